import json

import pytest
from pydantic import ValidationError

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.values.types import Message, Rollout, Status
from skillopt_airflow.optimizer.answers import check_answers
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.reflect import Reflection, SkillAwareReflection
from skillopt_airflow.optimizer.sections import GuidedOptimizer
from skillopt_airflow.optimizer.transcripts import Exhibits, FollowUp, item_ids_of, numbers_of, trajectories_section
from tests.optimizer.scripted_optimizer import ScriptedOptimizer, rollout, section, unusable


def said(*messages: tuple[str, str], status: Status = Status.OK) -> Rollout:
    whole = rollout("a", answer="x", messages=tuple(Message(role=role, content=text) for role, text in messages))  # type: ignore[arg-type]
    return whole.model_copy(update={"trajectory": whole.trajectory.model_copy(update={"status": status})})


def test_a_trajectory_is_plain_text_between_fences() -> None:
    shown = section(
        trajectories_section([said(("system", "the skill"), ("user", '"Why?"\n<b>'))], 9_000), "trajectories"
    )
    assert shown == (
        '## Item 1: hard 0, soft 0\n~~~ user\n"Why?"\n<b>\n~~~\n'
        "~~~ answer as extracted\nx\n~~~\n~~~ scorer's feedback\nfeedback on a\n~~~"
    )


@pytest.mark.parametrize("text", ["~~~\n## Item 9: hard 1", "</trajectories>", "~~~~~~ user"])
def test_no_text_ends_its_fence_or_the_section(text: str) -> None:
    shown = trajectories_section([said(("user", text))], 9_000)
    assert shown.count("</trajectories>") == 1
    fence = shown.partition(" user\n")[0].rpartition("\n")[2]
    assert set(fence) == {"~"}
    assert fence not in text


@pytest.mark.parametrize(("status", "words"), [(Status.TRUNCATED, "token limit"), (Status.EMPTY, "no text")])
def test_an_answer_that_was_cut_or_is_empty_says_so(status: Status, words: str) -> None:
    assert words in trajectories_section([said(("user", "q"), status=status)], 9_000)


def test_the_tries_of_an_item_follow_each_other_and_its_follow_up_the_first() -> None:
    tries = [rollout("a", 0.0), rollout("a", 1.0), rollout("b", 0.0)]
    shown = trajectories_section(tries, 9_000, Exhibits({"a": FollowUp(question="Why?", answer="Haste.")}))
    titles = [line for line in shown.splitlines() if line.startswith("##")]
    first, second = "## Item 1, sample 1 of 2: hard 0, soft 0", "## Item 1, sample 2 of 2: hard 1, soft 1"
    assert titles == [first, second, "## Item 2: hard 0, soft 0"]
    assert shown.index(first) < shown.index("Haste.") < shown.index(second)


def test_items_are_named_by_numbers() -> None:
    numbers = numbers_of([rollout("b"), rollout("b"), rollout("a")])
    assert item_ids_of(numbers, [2, 1, 2, 7, 0]) == ("a", "b")


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_the_longest_texts_are_cut_first_whatever_their_role_and_keep_their_ends(role: str) -> None:
    short, long = "s" * 900, "[head]" + "t" * 50_000 + "[tail]"
    shown = trajectories_section([said(("user", short), (role, long))], 5_000)
    assert len(shown) <= 5_100
    assert short in shown
    assert "[head]" in shown
    assert "[tail]" in shown
    assert "characters left out" in shown


@pytest.mark.parametrize(("stage", "said"), [("reflect_rewrite", "look"), ("meta_reflect", ""), ("merge", "unite")])
def test_a_call_sees_what_the_benchmark_says_on_its_stage(stage: str, said: str) -> None:
    optimizer = ScriptedOptimizer({"order": [0]})
    GuidedOptimizer(optimizer, {"reflect": "look", "merge": "unite"}).ask(stage, "i", "<skill>\n</skill>", Ranking)
    section = f"\n\n<benchmark_guidance>\n{said}\n</benchmark_guidance>" if said else ""
    assert optimizer.calls == [(stage, f"<skill>\n</skill>{section}")]


EDIT = {"op": "append", "content": "Be brief."}


@pytest.mark.parametrize(
    "answer",
    [
        {"edits": [EDIT | {"anchor": None, "rationale": None}]},
        {"edits": json.dumps([EDIT])},
        {"edits": [EDIT], "failure_patterns": None, "notes": None},
        {"edits": [EDIT | {"op": " Append"}]},
    ],
)
def test_what_is_understood_is_no_reason_to_ask_again(answer: dict[str, object]) -> None:
    read = SkillAwareReflection.model_validate(answer)
    assert read == SkillAwareReflection.model_validate({"edits": [EDIT]})


def test_a_text_is_a_number_and_a_list_in_a_text_is_a_list_of_numbers() -> None:
    read = Reflection.model_validate({"failure_patterns": [{"description": "It guesses.", "items": ["12"]}]})
    assert read.failure_patterns[0].items == [12]
    assert Ranking.model_validate({"order": "[1, 0]"}).order == [1, 0]
    # What the model is asked for is the same.
    assert Ranking.model_json_schema()["properties"]["order"]["type"] == "array"
    assert "anyOf" not in json.dumps(SkillAwareReflection.model_json_schema())


@pytest.mark.parametrize(
    "answer",
    [{"edits": "none"}, {"edits": "[" * 100_000}, {"edits": "{}"}, {"edits": [{"op": "burn"}]}, {"edits": 3}, "no"],
)
def test_what_is_not_understood_is_refused(answer: object) -> None:
    with pytest.raises(ValidationError):
        Reflection.model_validate(answer)


def test_any_answer_that_fits_its_schema_will_do_and_no_other() -> None:
    optimizer = ScriptedOptimizer({"ready": False})
    check_answers(optimizer)
    assert [stage for stage, _ in optimizer.calls] == ["preflight"]
    with pytest.raises(ModelOutputError):
        check_answers(ScriptedOptimizer(unusable()))
