import unittest

from numerals.roman import from_roman, to_roman
from numerals.spelling import in_words, ordinal


class RomanTest(unittest.TestCase):
    def test_write(self) -> None:
        self.assertEqual(to_roman(1987), "MCMLXXXVII")

    def test_the_ends_of_the_range(self) -> None:
        self.assertEqual((to_roman(1), to_roman(3999)), ("I", "MMMCMXCIX"))
        for number in (0, -1, 4000):
            with self.assertRaises(ValueError):
                to_roman(number)

    def test_read(self) -> None:
        self.assertEqual(from_roman("MCMLXXXVII"), 1987)

    def test_read_small_letters_and_blanks(self) -> None:
        self.assertEqual(from_roman(" xiv "), 14)

    def test_what_nobody_writes_is_refused(self) -> None:
        for text in ("", "IIII", "IXIX", "VX", "ABC"):
            with self.assertRaises(ValueError):
                from_roman(text)


class WordsTest(unittest.TestCase):
    def test_small(self) -> None:
        self.assertEqual((in_words(0), in_words(13), in_words(40)), ("zero", "thirteen", "forty"))

    def test_hyphen(self) -> None:
        self.assertEqual(in_words(21), "twenty-one")

    def test_hundreds(self) -> None:
        self.assertEqual(in_words(300), "three hundred")

    def test_and(self) -> None:
        self.assertEqual(in_words(105), "one hundred and five")
        self.assertEqual(in_words(1005), "one thousand and five")
        self.assertEqual(in_words(1200), "one thousand two hundred")

    def test_negative(self) -> None:
        self.assertEqual(in_words(-7), "minus seven")

    def test_ordinals(self) -> None:
        self.assertEqual([ordinal(number) for number in (1, 2, 3, 4)], ["1st", "2nd", "3rd", "4th"])

    def test_ordinals_of_the_teens(self) -> None:
        self.assertEqual([ordinal(number) for number in (11, 13, 21)], ["11th", "13th", "21st"])
        self.assertEqual([ordinal(number) for number in (111, 212)], ["111th", "212th"])
