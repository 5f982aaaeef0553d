import unittest

from lanes.paths import in_order, shortest
from lanes.waiting import Waiting

GRAPH = {"a": {"b": 1.0, "c": 5.0}, "b": {"c": 1.0}, "c": {"a": 1.0}, "d": {}}


class WaitingTest(unittest.TestCase):
    def filled(self) -> Waiting[str]:
        waiting: Waiting[str] = Waiting()
        for item, priority in (("z", 1), ("y", 0), ("x", 2)):
            waiting.put(item, priority)
        return waiting

    def test_lowest_first(self) -> None:
        self.assertEqual(self.filled().get(), "y")

    def test_length(self) -> None:
        self.assertEqual(len(self.filled()), 3)

    def test_equal_ones_keep_their_order(self) -> None:
        waiting: Waiting[object] = Waiting()
        for item in ("b", "a", {}, {"x": 1}):
            waiting.put(item)
        self.assertEqual([waiting.get() for _ in range(4)], ["b", "a", {}, {"x": 1}])

    def test_empty(self) -> None:
        with self.assertRaises(IndexError):
            Waiting[str]().get()

    def test_drain_all(self) -> None:
        self.assertEqual(self.filled().drain(), ["y", "z", "x"])

    def test_drain_some(self) -> None:
        waiting = self.filled()
        self.assertEqual(waiting.drain(2), ["y", "z"])
        self.assertEqual(waiting.drain(9), ["x"])


class PathsTest(unittest.TestCase):
    def test_shortest(self) -> None:
        self.assertEqual(shortest(GRAPH, "a", "b"), (1.0, ["a", "b"]))

    def test_a_detour_may_be_shorter(self) -> None:
        self.assertEqual(shortest(GRAPH, "a", "c"), (2.0, ["a", "b", "c"]))

    def test_unknown(self) -> None:
        with self.assertRaises(KeyError):
            shortest(GRAPH, "x", "a")

    def test_no_path_and_unknown_ends(self) -> None:
        self.assertIsNone(shortest(GRAPH, "d", "b"))
        with self.assertRaises(KeyError):
            shortest(GRAPH, "d", "x")

    def test_order(self) -> None:
        self.assertEqual(in_order({"b": ["a"], "a": []}), ["a", "b"])

    def test_alphabet(self) -> None:
        self.assertEqual(in_order({"b": [], "a": [], "c": ["b"]}), ["a", "b", "c"])

    def test_needs_without_an_entry_and_circles(self) -> None:
        self.assertEqual(in_order({"b": ["a"]}), ["a", "b"])
        with self.assertRaisesRegex(ValueError, "a, b"):
            in_order({"a": ["b"], "b": ["a"]})
