"""Paths through directed graphs with lengths."""

from collections.abc import Mapping

from lanes.waiting import Waiting

Graph = Mapping[str, Mapping[str, float]]
"""Each place's neighbours, with their distance."""


def shortest(graph: Graph, start: str, end: str) -> tuple[float, list[str]] | None:
    """Return the length of a shortest path and its places; None if there is none. Unknown places raise a KeyError."""
    for place in (start, end):
        if place not in graph:
            raise KeyError(place)
    waiting: Waiting[tuple[float, list[str]]] = Waiting()
    waiting.put((0.0, [start]), 0.0)
    done: set[str] = set()
    while waiting:
        length, path = waiting.get()
        if path[-1] == end:
            return length, path
        if path[-1] in done:
            continue
        done.add(path[-1])
        for place, distance in graph[path[-1]].items():
            waiting.put((length + distance, [*path, place]), length + distance)
    return None


def in_order(needs: Mapping[str, list[str]]) -> list[str]:
    """Return names so that each comes after those that it needs, by the alphabet where that leaves a choice.

    Names that only others need count as well. ValueError for a circle.
    """
    open_needs = {name: set(others) for name, others in needs.items()}
    for others in needs.values():
        for name in others:
            open_needs.setdefault(name, set())
    order: list[str] = []
    while open_needs:
        ready = sorted(name for name, others in open_needs.items() if not others - set(order))
        if not ready:
            raise ValueError(f"a circle: {', '.join(sorted(open_needs))}")
        order.append(ready[0])
        del open_needs[ready[0]]
    return order
