from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from skillopt_airflow.core.errors import AnswerCut, ModelError, ModelOutputError, PromptTooLong
from skillopt_airflow.core.values.model_protocols import Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.training.run.answer_cache import CachedOptimizer, CachedTarget
from tests.training.local_store import LocalStore


class Counting:
    """Answers with a counter, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked, self.error = 0, error

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return output_type.model_validate({"order": [self.asked]})


def remembering(shelf: Any, counting: Counting, model: str = "m") -> CachedOptimizer:
    return CachedOptimizer(lambda: counting, model, shelf, "answers/")


def test_an_answer_is_paid_once_also_by_another_process() -> None:
    shelf, counting = LocalStore(), Counting()
    first = remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert remembering(shelf, counting).ask("rank", "i", "p", Ranking) == first
    assert counting.asked == 1
    (key,) = shelf.objects
    assert key.startswith("answers/rank-")
    # No connection is made for a known answer.
    unreachable = Mock(side_effect=AssertionError("connected"))
    memory = CachedOptimizer(unreachable, "m", shelf, "answers/")
    assert memory.ask("rank", "i", "p", Ranking) == first


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
    shelf, counting = LocalStore(), Counting()
    remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert remembering(shelf, counting, model).ask(*question).order == [2]


@pytest.mark.parametrize("kind", [ModelOutputError, AnswerCut, PromptTooLong])
def test_an_unusable_answer_is_not_paid_twice_either_and_a_call_without_one_is_made_again(
    kind: type[ModelOutputError],
) -> None:
    shelf, counting = LocalStore(), Counting(kind("broken"))
    for _ in range(2):
        with pytest.raises(ModelOutputError, match="broken") as miss:
            remembering(shelf, counting).ask("rank", "i", "p", Ranking)
    assert counting.asked == 1
    assert type(miss.value) is kind
    shelf = LocalStore()
    with pytest.raises(ModelError):
        remembering(shelf, Counting(ModelError("no answer"))).ask("rank", "i", "p", Ranking)
    assert shelf.objects == {}
    assert remembering(shelf, Counting()).ask("rank", "i", "p", Ranking).order == [1]


class Talking:
    """Counts its replies."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        self.asked += 1
        return f"{stage} {self.asked}"


def test_a_reply_of_the_target_is_paid_once() -> None:
    shelf, talking = LocalStore(), Talking()

    def ask(text: str, picture: bytes = b"") -> str:
        target = CachedTarget(lambda: talking, "m", shelf, "answers/")  # type: ignore[arg-type]
        return target.ask("follow_up", [Message(role="user", content=text)], {"a.png": picture} if picture else {})

    assert [ask("why?"), ask("why?"), ask("how?")] == ["follow_up 1", "follow_up 1", "follow_up 2"]
    # The same words about another picture are another question.
    assert [ask("why?", b"red"), ask("why?", b"blue"), ask("why?", b"red")] == [f"follow_up {n}" for n in (3, 4, 3)]
