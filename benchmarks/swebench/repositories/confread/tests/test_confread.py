import unittest

from confread.inifile import ConfError, read, unquoted
from confread.values import as_bool, as_list, merged


class ReaderTest(unittest.TestCase):
    def test_sections(self) -> None:
        self.assertEqual(read("a = 1\n[s]\nb = 2\n"), {"": {"a": "1"}, "s": {"b": "2"}})

    def test_a_value_may_hold_the_sign(self) -> None:
        self.assertEqual(read("a = b=c\n"), {"": {"a": "b=c"}})

    def test_comments(self) -> None:
        self.assertEqual(read("# x\n; y\na = 1\n"), {"": {"a": "1"}})

    def test_indented_comments(self) -> None:
        self.assertEqual(read("a = 1\n  # not a value\n  ; nor this\nb = 2\n"), {"": {"a": "1", "b": "2"}})

    def test_a_value_goes_on(self) -> None:
        self.assertEqual(read("a = 1\n  2\n"), {"": {"a": "1\n2"}})

    def test_no_sign(self) -> None:
        with self.assertRaisesRegex(ConfError, "line 2"):
            read("a = 1\nnonsense\n")

    def test_quotes(self) -> None:
        self.assertEqual(unquoted("'a b'"), "a b")
        self.assertEqual(unquoted("plain"), "plain")

    def test_odd_quotes_stay(self) -> None:
        self.assertEqual([unquoted(text) for text in ("", "'", "'a\"", "a'")], ["", "'", "'a\"", "a'"])


class ValuesTest(unittest.TestCase):
    def test_words(self) -> None:
        self.assertTrue(as_bool("yes"))
        self.assertFalse(as_bool("off"))

    def test_neither(self) -> None:
        with self.assertRaises(ValueError):
            as_bool("maybe")

    def test_list(self) -> None:
        self.assertEqual(as_list("a, b"), ["a", "b"])

    def test_list_over_lines_without_empty_parts(self) -> None:
        self.assertEqual(as_list("a, b,\nc,,d\n"), ["a", "b", "c", "d"])
        self.assertEqual(as_list("a;b\nc", ";"), ["a", "b", "c"])

    def test_later_layers_win(self) -> None:
        self.assertEqual(merged({"s": {"a": "1"}}, {"s": {"a": "2"}}), {"s": {"a": "2"}})

    def test_merging_keeps_other_settings_and_the_layers(self) -> None:
        first = {"s": {"a": "1", "b": "1"}}
        self.assertEqual(merged(first, {"s": {"a": "2"}}), {"s": {"a": "2", "b": "1"}})
        self.assertEqual(first, {"s": {"a": "1", "b": "1"}})
