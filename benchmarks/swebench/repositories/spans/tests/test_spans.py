import unittest

from spans import SpanError, format_span, parse_span
from spans.formatting import format_clock
from spans.parsing import unit_seconds


class ParsingTest(unittest.TestCase):
    def test_parts_are_added(self) -> None:
        self.assertEqual(parse_span("1h 30m"), 5400)

    def test_a_fraction(self) -> None:
        self.assertEqual(parse_span("1.5h"), 5400)

    def test_names_of_units(self) -> None:
        self.assertEqual(parse_span("2 days, 1 hour"), 176400)
        self.assertEqual(unit_seconds("s"), 1)

    def test_upper_case(self) -> None:
        self.assertEqual(parse_span("2H"), 7200)

    def test_a_sign_counts_for_all_parts(self) -> None:
        self.assertEqual(parse_span("-1h 30m"), -5400)
        self.assertEqual(parse_span("+1h"), 3600)

    def test_text_behind_is_refused(self) -> None:
        with self.assertRaises(SpanError):
            parse_span("1h and more 3")
        with self.assertRaises(SpanError):
            parse_span("1h x 5m")

    def test_unknown_unit(self) -> None:
        with self.assertRaisesRegex(SpanError, "fortnight"):
            parse_span("1 fortnight")


class FormattingTest(unittest.TestCase):
    def test_two_parts(self) -> None:
        self.assertEqual(format_span(93784), "1d 2h")

    def test_more_parts(self) -> None:
        self.assertEqual(format_span(93784, parts=4), "1d 2h 3m 4s")

    def test_zero(self) -> None:
        self.assertEqual(format_span(0), "0s")

    def test_less_than_a_second_has_no_sign(self) -> None:
        self.assertEqual(format_span(0.4), "0s")
        self.assertEqual(format_span(-0.4), "0s")

    def test_negative(self) -> None:
        self.assertEqual(format_span(-90), "-1m 30s")

    def test_clock(self) -> None:
        self.assertEqual(format_clock(3600), "1:00:00")

    def test_clock_below_zero_and_beyond_a_day(self) -> None:
        self.assertEqual(format_clock(93784), "26:03:04")
        self.assertEqual(format_clock(-90), "-0:01:30")


if __name__ == "__main__":
    unittest.main()
