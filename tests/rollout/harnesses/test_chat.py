from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK, SearchQA
from skillopt_airflow.core.values.text import MAX_TOLD_CHARS
from skillopt_airflow.core.values.types import JsonObject, Status, Trajectory
from skillopt_airflow.rollout.harnesses.chat import ChatHarness
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.tasks.protocols import Benchmark, Workspace
from tests.gateway.gateway_rig import PATHS, Hanging
from tests.gateway.scripted_provider import Asked, Reply, completion, failure
from tests.rollout.single_item import PLAIN, run_item
from tests.rollout.wire import cut_off, says

ITEM = PublicItem(id="i-1", public={"question": "Which tower?", "context": "[DOC] Eiffel"})


class Coach(SearchQA):
    """Shows the item's files; tells each reply back until it has an answer; runs the code in a reply."""

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        return f"{public['question']}: {len(workspace.input_names())} files"

    async def follow_up(self, public: JsonObject, response: str, workspace: Workspace) -> str | None:
        if response.startswith("run "):
            return await workspace.run_python(response.removeprefix("run "))
        return None if "<answer>" in response else f"{public['question']} not {response}" + "!" * len(response)


def run(
    answer: Callable[[Asked], Reply],
    benchmark: Benchmark = BENCHMARK,
    outputs: Path = Path("/nowhere"),
    **settings: Any,
) -> tuple[Trajectory, list[Asked]]:
    return run_item(answer, partial(ChatHarness, RolloutSettings(**PLAIN | settings), benchmark), ITEM, outputs)


@pytest.mark.parametrize(("dialect", "path"), PATHS.items())
def test_an_item_becomes_one_request_and_its_answer(dialect: str, path: str):
    trajectory, (asked,) = run(lambda asked: says(dialect, "Hm. <answer>Eiffel</answer>"), dialect=dialect)

    assert (trajectory.item_id, trajectory.status, trajectory.answer) == ("i-1", Status.OK, "Eiffel")
    assert [message.role for message in trajectory.messages] == ["system", "user", "assistant"]
    assert trajectory.messages[0].content == "Be short."
    assert trajectory.messages[2].content == "Hm. <answer>Eiffel</answer>"
    assert (trajectory.calls, trajectory.prompt_tokens, trajectory.completion_tokens) == (1, 11, 3)
    assert trajectory.started > 0
    assert (asked.path, asked.body["model"]) == (path, "stand-in-target")
    assert "Be short." in asked.raw.decode()


BROKEN = [
    (failure(401, "who are you"), Status.MODEL_ERROR, "who are you"),
    (failure(402, "tokens are spent", code="budget"), Status.BUDGET, "tokens are spent"),
    (failure(402, "pay first", code="insufficient_balance"), Status.MODEL_ERROR, "pay first"),
    (failure(400, "held back", code="content_filter"), Status.REFUSED, "held back"),
    (failure(504, "too slow"), Status.TIMEOUT, "too slow"),
    (Reply(200, b"<html>", {"content-type": "text/html"}), Status.MODEL_ERROR, ""),
    (Reply(200, b'{"hello": 1}'), Status.MODEL_ERROR, ""),
    (Reply(200, b"[]"), Status.MODEL_ERROR, ""),
    (Reply(200, b""), Status.MODEL_ERROR, ""),
    (Reply(200, b'{"choices": [], "output": 3, "content": {"a": 1}}'), Status.MODEL_ERROR, ""),
    (Reply(500, b"<html>", {"content-type": "text/html"}), Status.MODEL_ERROR, "500"),
    (Reply(402, b"[1]"), Status.MODEL_ERROR, "402"),
    (Reply(200, chunks=[b'{"choices"'], broken=b"zz"), Status.MODEL_ERROR, ""),
]


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(("reply", "status", "words"), BROKEN)
def test_what_a_provider_does_wrong_becomes_the_status(dialect: str, reply: Reply, status: Status, words: str):
    trajectory, requests = run(lambda asked: reply, dialect=dialect)

    assert (trajectory.status, trajectory.answer) == (status, "")
    assert words in trajectory.error
    assert trajectory.error
    assert [message.role for message in trajectory.messages[:2]] == ["system", "user"]
    assert trajectory.calls == len(requests) == 1


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (completion("", refusal="I will not"), Status.REFUSED, "I will not"),
        (completion("half of", finish_reason="PROHIBITED_CONTENT"), Status.REFUSED, "content filter"),
        (completion("<answer>Eiffel</answer> and", finish_reason="MAX_TOKENS"), Status.TRUNCATED, ""),
        (completion("<answer>Eiffel</answer>", finish_reason=""), Status.OK, ""),
    ],
)
def test_an_ending_has_its_status(reply: Reply, status: Status, words: str):
    trajectory, _ = run(lambda asked: reply)
    assert (trajectory.status, bool(trajectory.answer)) == (status, status.scored)
    assert words in trajectory.error


@pytest.mark.parametrize("dialect", PATHS)
def test_an_answer_that_never_comes_is_a_timeout(dialect: str):
    hang = Hanging()
    trajectory, _ = run(hang, dialect=dialect, call_timeout=0.1)
    hang.release()

    assert trajectory.status is Status.TIMEOUT


NO_BUDGET: dict[str, Any] = {"dialect": "anthropic", "model": "claude-opus-4-7", "reasoning_effort": 32}
"""The model thinks by an effort alone, which pydantic-ai knows."""


def test_a_setting_that_the_model_does_not_take_would_be_refused_again():
    trajectory, requests = run(lambda asked: says("anthropic", "Eiffel"), **NO_BUDGET)
    assert (trajectory.status, trajectory.lasting_error, requests) == (Status.MODEL_ERROR, "400", [])
    assert "does not support" in trajectory.error


EMPTY = [
    (completion(None, reasoning_content="It must be <answer>Eiffel</answer>"), "openai-chat"),
    (completion(None, finish_reason="function_call_filter: MALFORMED_FUNCTION_CALL"), "openai-chat"),
    (completion("<think>It must be Eiffel</think>\n"), "openai-chat"),
    (completion("", finish_reason=""), "openai-chat"),
    (says("openai", ""), "openai"),
    (says("anthropic", ""), "anthropic"),
]


@pytest.mark.parametrize(("reply", "dialect"), EMPTY)
def test_an_empty_answer_is_scored_and_counted_unless_there_are_files(reply: Reply, dialect: str, tmp_path: Path):
    trajectory, _ = run(lambda asked: reply, outputs=tmp_path, dialect=dialect)
    assert (trajectory.status, trajectory.answer, trajectory.error) == (Status.EMPTY, "", "")
    assert trajectory.completion_tokens == 3
    (tmp_path / "made.txt").write_text("x")
    assert run(lambda asked: reply, outputs=tmp_path, dialect=dialect)[0].status is Status.OK


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    "text", ["<think>Is it <answer>Big Ben</answer>?</think>Eiffel", "Hm, Big Ben?</think>\nEiffel"]
)
def test_thinking_in_the_answer_is_none_of_it(dialect: str, text: str):
    trajectory, _ = run(lambda asked: says(dialect, text), dialect=dialect)

    assert trajectory.answer == "Eiffel"
    assert "Big Ben" not in trajectory.messages[-1].content


@pytest.mark.parametrize("dialect", PATHS)
def test_a_conversation_goes_on_until_the_benchmark_ends_it(dialect: str):
    said = ["Big Ben", "Tower", "<answer>Eiffel</answer>", "never asked"]
    trajectory, requests = run(
        lambda asked: says(dialect, said[asked.number - 1]), Coach(), dialect=dialect, max_turns=9
    )

    assert (trajectory.status, trajectory.answer, trajectory.calls) == (Status.OK, "Eiffel", 3)
    assert (trajectory.prompt_tokens, trajectory.completion_tokens) == (33, 9)
    assert trajectory.messages[1].content.endswith("\n\nWhich tower?: 0 files")
    roles = [message.role for message in trajectory.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert trajectory.messages[3].content == "Which tower? not Big Ben!!!!!!!"
    assert "not Tower!" in requests[2].raw.decode()


@pytest.mark.parametrize("dialect", PATHS)
def test_after_an_empty_reply_the_user_goes_on_in_the_same_turn(dialect: str):
    said = ["", "<answer>Eiffel</answer>"]
    trajectory, (_, second) = run(
        lambda asked: says(dialect, said[asked.number - 1]), Coach(), dialect=dialect, max_turns=2
    )
    turns = [turn["role"] for turn in second.body.get("messages", second.body.get("input"))]
    assert turns == (["user"] if dialect == "anthropic" else ["system", "user"])
    assert "[DOC] Eiffel" in second.raw.decode()
    assert "Which tower? not " in second.raw.decode()
    assert [message.role for message in trajectory.messages] == ["system", "user", "user", "assistant"]


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("text", ["It is <answer>Eiffel</answer>, which", ""])
def test_an_answer_that_was_cut_off_counts_by_what_it_holds(dialect: str, text: str):
    trajectory, _ = run(lambda asked: cut_off(dialect, text), dialect=dialect)

    assert (trajectory.status, trajectory.error) == (Status.TRUNCATED, "")
    assert trajectory.answer == ("Eiffel" if text else "")
    assert trajectory.messages[-1].content == (text or trajectory.messages[1].content)


@pytest.mark.parametrize(("cut", "status"), [(1, Status.OK), (2, Status.TRUNCATED)])
def test_of_a_conversation_the_last_answer_counts(cut: int, status: Status):
    said = ["Big Ben", "<answer>Eiffel</answer>"]

    def answer(asked: Asked) -> Reply:
        return (cut_off if asked.number == cut else says)("openai-chat", said[asked.number - 1])

    trajectory, requests = run(answer, Coach(), max_turns=2)
    assert (trajectory.status, trajectory.answer, len(requests)) == (status, "Eiffel", 2)


def test_turns_are_limited_and_the_last_reply_is_seen_too(tmp_path: Path):
    trajectory, requests = run(lambda asked: completion(f"run print({asked.number})"), Coach(), tmp_path, max_turns=2)

    assert (trajectory.status, trajectory.calls, len(requests)) == (Status.OK, 2, 2)
    assert [message.content for message in trajectory.messages[3::2]] == [
        "1\n\n[exit status 0]",
        "2\n\n[exit status 0]",
    ]


def test_a_failure_after_some_turns_is_the_trajectorys(tmp_path: Path):
    trajectory, _ = run(
        lambda asked: completion("Big Ben") if asked.number == 1 else failure(402, "spent", code="budget"),
        Coach(),
        max_turns=3,
    )

    assert (trajectory.status, trajectory.answer, trajectory.calls) == (Status.BUDGET, "", 2)
    assert trajectory.prompt_tokens == 11


def test_feedback_is_cut():
    trajectory, _ = run(lambda asked: completion("x" * 30_000), Coach(), max_turns=2)
    assert len(trajectory.messages[3].content) <= MAX_TOLD_CHARS
