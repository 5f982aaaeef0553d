import unittest

from gridtext.shorten import shorten, wrap
from gridtext.table import aligned, render


class TableTest(unittest.TestCase):
    def test_columns(self) -> None:
        self.assertEqual(render([["a", "bb"], ["ccc", "d"]]), "a    bb\nccc  d")

    def test_header(self) -> None:
        self.assertEqual(render([["1", "2"]], header=["one", "b"]), "one  b\n---  -\n1    2")

    def test_nothing(self) -> None:
        self.assertEqual(render([]), "")

    def test_short_rows(self) -> None:
        self.assertEqual(render([["a", "b", "c"], ["d"]]), "a  b  c\nd")
        self.assertEqual(render([["a", "b"]], header=["x"]), "x\n-  -\na  b")

    def test_numbers_are_cells(self) -> None:
        self.assertEqual(render([[1, None], [12, 0]], align="r"), " 1  None\n12  0")

    def test_right(self) -> None:
        self.assertEqual(render([["a"], ["bb"]], align="r"), " a\nbb")

    def test_aligned(self) -> None:
        self.assertEqual(aligned("a", 3), "a  ")

    def test_aligned_in_the_middle(self) -> None:
        self.assertEqual(aligned("a", 3, "c"), " a ")
        self.assertEqual(render([["a", "x"], ["bbb", "y"]], align="cr"), " a   x\nbbb  y")


class ShortenTest(unittest.TestCase):
    def test_fits(self) -> None:
        self.assertEqual(shorten("abc", 3), "abc")

    def test_cut(self) -> None:
        self.assertEqual(shorten("hello world", 9), "hello...")

    def test_narrower_than_the_mark(self) -> None:
        self.assertEqual([shorten("abcdef", width) for width in (0, 2, 3, 4)], ["", "..", "...", "a..."])

    def test_wrap(self) -> None:
        self.assertEqual(wrap("one two three", 7), ["one two", "three"])

    def test_wrap_nothing(self) -> None:
        self.assertEqual(wrap("  ", 7), [])

    def test_long_words_are_broken(self) -> None:
        self.assertEqual(wrap("a abcdefgh b", 3), ["a", "abc", "def", "gh", "b"])
        self.assertEqual(wrap("abcdef", 3), ["abc", "def"])
