import unittest

from slots.interval import Interval
from slots.sets import first_free, gaps, merged

DAY = Interval(0, 10)


class IntervalTest(unittest.TestCase):
    def test_the_end_does_not_belong_to_it(self) -> None:
        self.assertIn(1, Interval(1, 3))
        self.assertNotIn(3, Interval(1, 3))

    def test_backwards(self) -> None:
        with self.assertRaises(ValueError):
            Interval(2, 1)

    def test_overlap(self) -> None:
        self.assertTrue(Interval(1, 3).overlaps(Interval(2, 4)))
        self.assertFalse(Interval(1, 3).overlaps(Interval(5, 6)))

    def test_neighbours_and_empty_ones_do_not_overlap(self) -> None:
        self.assertFalse(Interval(1, 3).overlaps(Interval(3, 4)))
        self.assertFalse(Interval(1, 3).overlaps(Interval(2, 2)))

    def test_not_moved(self) -> None:
        self.assertEqual(Interval(1, 3).moved(), Interval(1, 3))

    def test_moved(self) -> None:
        self.assertEqual(Interval(1, 3).moved(2), Interval(3, 5))


class SetsTest(unittest.TestCase):
    def test_apart(self) -> None:
        self.assertEqual(merged([Interval(4, 5), Interval(1, 2)]), [Interval(1, 2), Interval(4, 5)])

    def test_touching(self) -> None:
        self.assertEqual(merged([Interval(1, 2), Interval(2, 3)]), [Interval(1, 3)])

    def test_one_inside_the_other(self) -> None:
        self.assertEqual(merged([Interval(1, 9), Interval(2, 3)]), [Interval(1, 9)])
        self.assertEqual(merged([Interval(1, 9), Interval(20, 20)]), [Interval(1, 9)])

    def test_gaps(self) -> None:
        self.assertEqual(gaps([Interval(2, 4)], DAY), [Interval(0, 2), Interval(4, 10)])

    def test_gaps_stay_inside(self) -> None:
        self.assertEqual(gaps([Interval(-5, 2), Interval(8, 20)], DAY), [Interval(2, 8)])
        self.assertEqual(gaps([Interval(12, 20)], DAY), [DAY])

    def test_first_free(self) -> None:
        self.assertEqual(first_free([Interval(0, 3)], DAY), Interval(3, 4))

    def test_first_free_of_just_this_length(self) -> None:
        self.assertEqual(first_free([Interval(2, 4)], DAY, 6), Interval(4, 10))
        self.assertIsNone(first_free([Interval(2, 4)], DAY, 7))
