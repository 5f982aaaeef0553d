"""Replies that a benchmark's rules take for right or wrong, or leave to its judge."""

from collections.abc import Sequence
from typing import Any

from skillopt_airflow.core.values.types import Item, Status, Trajectory


def judged(benchmark: Any, item: Item, reply: str) -> bool | None:
    """Whether the rules take the reply for right; None if they leave it to the judge, and then it scores 0."""
    trajectory = Trajectory(item_id=item.id, status=Status.OK, answer=benchmark.answer(reply))
    score = benchmark.score(item, trajectory)
    if benchmark.decides(item, trajectory):
        assert score.hard == score.soft
        return bool(score.hard == 1)
    assert score.hard == 0
    return None


def assert_judged(benchmark: Any, item: Item, form: str, *answers: Sequence[str]) -> None:
    """Check the right, the wrong and the uncertain answers, each in a reply of this form."""
    for outcome, some in zip((True, False, None), answers, strict=True):
        for answer in some:
            assert judged(benchmark, item, form.format(answer)) is outcome, answer
