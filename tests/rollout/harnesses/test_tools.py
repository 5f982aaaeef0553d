import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK, SearchQA
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.text import MAX_TOLD_CHARS
from skillopt_airflow.core.values.types import JsonObject, Status, Trajectory
from skillopt_airflow.rollout.harnesses.tools import ToolsHarness
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import ItemFolders
from skillopt_airflow.tasks.protocols import Benchmark, Workspace
from tests.gateway.gateway_rig import PATHS
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion, failure
from tests.rollout.cellar import NAME, cellar, files
from tests.rollout.harnesses.test_chat import EMPTY, NO_BUDGET
from tests.rollout.single_item import PLAIN, run_item
from tests.rollout.wire import calls, cut_off, results, says

__all__ = ["cellar"]

CONTEXT = "[DOC] [TLE] London [PAR] Big Ben stands in London. [DOC] [TLE] Paris [PAR] The Eiffel tower stands in Paris."
ITEM = PublicItem(id="i-1", public={"question": "Which tower stands in Paris?", "context": CONTEXT})
TOOLS: dict[str, Any] = PLAIN | {"harness": "tools", "max_turns": 5}


class Coding(SearchQA):
    """Its tools run code, fail, and say too much."""

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        async def fail(words: str) -> str:
            """Fail."""
            raise KeyError(words)

        async def shout(number: int) -> str:
            """Say a lot."""
            return "x" * number

        return (workspace.run_python, fail, shout)


def run(
    answer: Callable[[Asked], Reply],
    benchmark: Benchmark = BENCHMARK,
    outputs: Path = Path("/nowhere"),
    **settings: Any,
) -> tuple[Trajectory, list[Asked]]:
    return run_item(answer, partial(ToolsHarness, RolloutSettings(**TOOLS | settings), benchmark), ITEM, outputs)


@pytest.mark.parametrize(("dialect", "path"), PATHS.items())
def test_the_target_searches_and_answers(dialect: str, path: str):
    def answer(asked: Asked) -> Reply:
        if not results(asked):
            return calls(dialect, "search_documents", {"query": "tower in Paris"})
        return says(dialect, f"<answer>{results(asked)[0].split()[5]}</answer>")

    trajectory, (first, second) = run(answer, dialect=dialect)

    assert (trajectory.status, trajectory.error, trajectory.answer) == (Status.OK, "", "Eiffel")
    assert [message.role for message in trajectory.messages] == ["system", "user", "call", "tool", "assistant"]
    system, task, call, result, said = [message.content for message in trajectory.messages]
    assert system == "Be short."
    assert task == BENCHMARK.task(ITEM.public)
    assert call.startswith('search_documents({"query"')
    assert re.match(r"\[search_documents, \d+\.\d s\]\n\[DOC\] \[TLE\] Paris \[PAR\] The Eiffel tower", result)
    assert said == "<answer>Eiffel</answer>"
    assert (trajectory.calls, trajectory.prompt_tokens, trajectory.completion_tokens) == (2, 22, 6)
    assert first.path == second.path == path
    assert first.raw.count(b"Be short.") == second.raw.count(b"Be short.") == 1
    assert b"words that the documents should contain" in first.raw
    assert b"Big Ben" not in first.raw


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("text", ["\ud83d", "\0"])
def test_half_a_character_in_a_call_and_in_a_result_reaches_no_request_and_no_row(
    dialect: str, text: str, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Reply:
        if not results(asked):
            return calls(dialect, "run_python", {"code": f"print('a{text}b', '\\0')"})
        return says(dialect, f"<answer>{text}</answer>")

    trajectory, requests = run(answer, Coding(), tmp_path, dialect=dialect)
    assert (trajectory.status, trajectory.answer, len(requests)) == (Status.OK, "\ufffd", 2)
    assert not re.search("[\0\ud800-\udfff]", trajectory.model_dump_json() + "".join(results(requests[1])))


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fail", {"words": "gone"}, "KeyError: 'gone'"),
        ("fail", {"letters": "gone"}, "words"),
        ("shout", {"number": "many"}, "number"),
        ("no_such_tool", {}, "no_such_tool"),
    ],
)
def test_what_goes_wrong_in_a_tool_is_told_to_the_target(
    dialect: str, name: str, arguments: dict[str, Any], words: str
):
    def answer(asked: Asked) -> Reply:
        if asked.number < 4:
            return calls(dialect, name, arguments)
        return says(dialect, "<answer>I gave up</answer>")

    trajectory, requests = run(answer, Coding(), dialect=dialect)

    assert (trajectory.status, trajectory.answer, trajectory.calls) == (Status.OK, "I gave up", 4)
    tools = [message.content for message in trajectory.messages if message.role == "tool"]
    assert len(tools) == 3
    assert all(words in text for text in tools)
    assert all(words in text for text in results(requests[-1]))


def test_results_are_cut_for_the_target_and_kept_as_it_was_told_them_with_their_seconds():
    def answer(asked: Asked) -> Reply:
        if asked.number == 1:
            return calls("openai-chat", "shout", {"number": 10**6})
        return says("openai-chat", str(len(results(asked)[0])))

    trajectory, _ = run(answer, Coding())
    assert int(trajectory.answer) <= MAX_TOLD_CHARS
    heading, told = trajectory.messages[3].content.split("\n", 1)
    assert re.fullmatch(r"\[shout, \d+\.\d s\]", heading)
    assert len(told) == int(trajectory.answer)


def looking(asked: Asked) -> Reply:
    return calls(
        "anthropic", "search_documents", {"query": "tower"}, f"<think>Hm</think><answer>{asked.number}</answer>"
    )


def test_a_target_that_used_up_its_turns_is_taken_at_its_last_word():
    trajectory, requests = run(looking, dialect="anthropic", max_turns=3)

    assert (trajectory.status, trajectory.error, trajectory.answer) == (Status.OK, "", "3")
    assert (trajectory.calls, len(requests), trajectory.prompt_tokens) == (3, 3, 33)
    assert [(message.role, message.content) for message in trajectory.messages[2:4]] == [
        ("assistant", "<answer>1</answer>"),
        ("call", 'search_documents({"query":"tower"})'),
    ]
    assert trajectory.messages[-1].role == "tool"


def test_a_target_that_used_up_its_turns_without_a_word_has_no_answer(tmp_path: Path):
    def answer(asked: Asked) -> Reply:
        return calls("openai-chat", "search_documents", {"query": "tower"})

    trajectory, _ = run(answer, outputs=tmp_path, max_turns=3)
    assert (trajectory.status, trajectory.calls) == (Status.MODEL_ERROR, 3)
    assert trajectory.error == "no answer after model.max_turns = 3 model calls"

    (tmp_path / "made.txt").write_text("x")
    trajectory, _ = run(answer, outputs=tmp_path, max_turns=3)
    assert (trajectory.status, trajectory.answer) == (Status.OK, "")


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("text", ["<answer>Eiffel</answer> and", ""])
def test_an_answer_that_was_cut_off_counts_by_what_it_holds(dialect: str, text: str):
    def answer(asked: Asked) -> Reply:
        return calls(dialect, "search_documents", {"query": "tower"}) if asked.number == 1 else cut_off(dialect, text)

    trajectory, requests = run(answer, dialect=dialect)
    assert (trajectory.status, trajectory.error, len(requests)) == (Status.TRUNCATED, "", 2)
    assert (trajectory.answer, trajectory.calls) == ("Eiffel" if text else "", 2)


def test_a_call_of_a_tool_that_was_cut_off_is_the_last_answer(tmp_path: Path):
    function = {"name": "search_documents", "arguments": '{"query": "tow'}
    called = [{"id": "call-1", "type": "function", "function": function}]
    trajectory, _ = run(lambda asked: completion("", "length", tool_calls=called), outputs=tmp_path, max_turns=2)
    assert (trajectory.status, trajectory.error) == (Status.TRUNCATED, "")


def test_a_failure_after_an_answer_that_was_cut_off_is_the_trajectorys():
    def answer(asked: Asked) -> Reply:
        called = [{"id": "c", "type": "function", "function": {"name": "shout", "arguments": '{"number": 1}'}}]
        return completion("", "length", tool_calls=called) if asked.number == 1 else failure(500, "broken")

    trajectory, _ = run(answer, Coding())
    assert (trajectory.status, trajectory.calls) == (Status.MODEL_ERROR, 2)
    assert "broken" in trajectory.error


@pytest.mark.parametrize(("reply", "dialect"), EMPTY)
def test_an_answer_that_stays_empty_is_as_with_the_chat_harness(reply: Reply, dialect: str, tmp_path: Path):
    if b'"finish_reason": ""' in reply.body:
        # The gateway removes it.
        reply = completion("", finish_reason="stop")
    trajectory, requests = run(lambda asked: reply, outputs=tmp_path, dialect=dialect, max_turns=2)
    assert (trajectory.status, trajectory.answer, trajectory.error) == (Status.EMPTY, "", "")
    assert trajectory.calls == len(requests) <= 2

    (tmp_path / "made.txt").write_text("x")
    trajectory, _ = run(lambda asked: reply, outputs=tmp_path, dialect=dialect, max_turns=2)
    assert trajectory.status is Status.OK


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (failure(402, "spent", code="budget"), Status.BUDGET, "spent"),
        (failure(400, "held back", code="content_filter"), Status.REFUSED, "held back"),
        (Reply(200, b"[]"), Status.MODEL_ERROR, ""),
    ],
)
def test_what_a_provider_does_wrong_becomes_the_status(dialect: str, reply: Reply, status: Status, words: str):
    def answer(asked: Asked) -> Reply:
        return calls(dialect, "search_documents", {"query": "tower"}) if asked.number == 1 else reply

    trajectory, requests = run(answer, dialect=dialect)

    assert (trajectory.status, trajectory.answer) == (status, "")
    assert words in trajectory.error
    assert trajectory.error
    assert trajectory.calls == len(requests) == 2
    assert [message.role for message in trajectory.messages] == ["system", "user", "call", "tool"]


def test_several_items_at_once_keep_to_themselves():
    def answer(asked: Asked) -> Reply:
        if not results(asked):
            return calls("openai-chat", "search_documents", {"query": asked.raw.decode().split("Question: ")[1][:2]})
        return says("openai-chat", results(asked)[0])

    async def main(base_url: str) -> list[Trajectory]:
        async with aclosing(ToolsHarness(RolloutSettings(**TOOLS), BENCHMARK, base_url)) as harness:
            items = [PublicItem(id=f"i-{n}", public={"question": f"Q{n}", "context": f"[DOC] Q{n}"}) for n in range(5)]
            folders = ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0)
            return await asyncio.gather(*(harness.run(item, "Be short.", folders) for item in items))

    with ScriptedProvider(answer) as provider:
        trajectories = asyncio.run(main(provider.base_url.removesuffix("/v1")))
    assert [trajectory.answer for trajectory in trajectories] == [f"[DOC] Q{n}" for n in range(5)]
    assert {trajectory.calls for trajectory in trajectories} == {2}


@pytest.mark.nightly
@pytest.mark.usefixtures("cellar")
def test_a_session_is_played_by_one_tool_and_judged_by_its_outcome(tmp_path: Path):
    def answer(asked: Asked) -> Reply:
        done = results(asked)
        return says("openai-chat", "Enough.") if len(done) == 3 else calls("openai-chat", "act", {"action": "down"})

    settings = RolloutSettings(**TOOLS | {"benchmark": NAME})
    harness = partial(ToolsHarness, settings, benchmarks.load(NAME))
    trajectory, asked = run_item(answer, harness, PublicItem(id="i-1", public={}), tmp_path, files("2"))

    assert (trajectory.status, trajectory.answer) == (Status.OK, "won after 2 actions")
    assert results(asked[-1])[-1] == "The session is over, and takes no action any more."
    assert trajectory.messages[1].content.startswith("Find the lamp. It is dark.")

    trajectory, asked = run_item(answer, harness, PublicItem(id="i-1", public={}), tmp_path, files("9"))
    assert (trajectory.status, trajectory.answer) == (Status.OK, "not won after 3 actions")

    harness = partial(ToolsHarness, settings.model_copy(update={"max_turns": 2}), benchmarks.load(NAME))
    trajectory, _ = run_item(answer, harness, PublicItem(id="i-1", public={}), tmp_path, files("9"))
    assert (trajectory.status, trajectory.answer) == (Status.OK, "not won after 2 actions")


@pytest.mark.nightly
@pytest.mark.parametrize(("action", "words"), [("die", "the engine has crashed"), ("sleep", "within 4 s")])
@pytest.mark.usefixtures("cellar")
def test_a_world_that_breaks_down_is_no_score_of_the_targets(
    action: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("skillopt_airflow.rollout.harnesses.session.TURN_SECONDS", 4)
    asked: list[Asked] = []

    def answer(one: Asked) -> Reply:
        asked.append(one)
        return calls("openai-chat", "act", {"action": action if len(asked) == 2 else "down"})

    settings = RolloutSettings(**TOOLS | {"benchmark": NAME})
    harness = partial(ToolsHarness, settings, benchmarks.load(NAME))
    with pytest.raises(SandboxError, match=words):
        run_item(answer, harness, PublicItem(id="i-1", public={}), tmp_path, files("3"))
    assert len(asked) == 2


def test_a_setting_that_the_model_does_not_take_would_be_refused_again():
    trajectory, requests = run(lambda asked: says("anthropic", "Eiffel"), **NO_BUDGET)
    assert (trajectory.status, trajectory.lasting_error, requests) == (Status.MODEL_ERROR, "400", [])
