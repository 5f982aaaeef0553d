from typing import Any

import pytest
from pydantic import BaseModel

from include.core.errors import ModelOutputError, ObjectMissing
from include.core.ports import Output
from include.optimizer.select import Ranking
from include.pipeline.memory import RememberingOptimizer
from include.store.objects import model_bytes


class Shelf:
    """The part of an object store that the memory uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get_bytes(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key]

    def put_model(self, key: str, model: BaseModel) -> None:
        self.objects[key] = model_bytes(model)


class Counting:
    """Answers with a counter, or fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.broken = False

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        self.asked += 1
        if self.broken:
            raise ModelOutputError("broken")
        return output_type.model_validate({"order": [self.asked]})


def remembering(shelf: Any, counting: Counting, model: str = "m") -> RememberingOptimizer:
    return RememberingOptimizer(lambda: counting, model, shelf, "answers/")


def test_an_answer_is_paid_once_also_by_another_process() -> None:
    shelf, counting = Shelf(), Counting()
    first = remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert remembering(shelf, counting).ask("rank", "i", "p", Ranking) == first
    assert counting.asked == 1
    (key,) = shelf.objects
    assert key.startswith("answers/rank-")


def test_no_connection_is_made_for_a_known_answer() -> None:
    shelf = Shelf()
    remembering(shelf, Counting()).ask("rank", "i", "p", Ranking)

    def unreachable() -> Counting:
        raise AssertionError("connected")

    memory = RememberingOptimizer(unreachable, "m", shelf, "answers/")  # type: ignore[arg-type]
    assert memory.ask("rank", "i", "p", Ranking) == Ranking(order=[1])


class OtherRanking(Ranking):
    """Another form of answer."""

    why: str = ""


@pytest.mark.parametrize(
    ("model", "question"),
    [
        ("other", ("rank", "i", "p", Ranking)),
        ("m", ("rank", "other", "p", Ranking)),
        ("m", ("rank", "i", "other", Ranking)),
        ("m", ("merge", "i", "p", Ranking)),
        ("m", ("rank", "i", "p", OtherRanking)),
    ],
)
def test_another_question_is_asked(model: str, question: tuple[str, str, str, type[Ranking]]) -> None:
    shelf, counting = Shelf(), Counting()
    remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert remembering(shelf, counting, model).ask(*question).order == [2]


def test_a_failed_call_is_not_remembered() -> None:
    shelf, counting = Shelf(), Counting()
    counting.broken = True
    with pytest.raises(ModelOutputError):
        remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert shelf.objects == {}
    counting.broken = False
    assert remembering(shelf, counting).ask("rank", "i", "p", Ranking).order == [2]


def test_a_stored_answer_that_no_longer_fits_is_asked_again() -> None:
    shelf, counting = Shelf(), Counting()
    remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    (key,) = shelf.objects
    shelf.objects[key] = b'{"order": "torn'
    assert remembering(shelf, counting).ask("rank", "i", "p", Ranking).order == [2]
