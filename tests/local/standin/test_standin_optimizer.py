import json
from typing import Any

import pytest
from pydantic import BaseModel

from local.standin import chat_wire as chat
from local.standin.deciding import STAGES
from local.standin.directives import DIRECTIVES, recognise
from local.standin.proposing import free_tempting
from local.standin.remembered import Memory
from local.standin.stage_request import SeenTrajectory
from local.standin.subjects import SUBJECTS
from skillopt_airflow.core.buffer import BufferEntry, StepBuffer
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Edit, Patch
from skillopt_airflow.optimizer.aggregate import merge
from skillopt_airflow.optimizer.minibatches import minibatches
from skillopt_airflow.optimizer.reflect import ReflectContext, reflect
from skillopt_airflow.optimizer.select import select
from tests.local.standin.towns import rollouts

SEED = "# Skill\n\n- Take the answer from the first document.\n- Copy it as the document spells it."
BUDGET = 4


class InProcess:
    """The stand-in without the wire; validates every answer against the type that the stage asks for."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": prompt}]
        tools = [{"type": "function", "function": {"name": f"{stage}_result"}}]
        completion = chat.complete({"model": "m", "messages": messages, "tools": tools, "tool_choice": "required"})
        assert completion == chat.complete({"model": "m", "messages": messages, "tools": tools})
        (call,) = completion["choices"][0]["message"]["tool_calls"]
        return output_type.model_validate_json(call["function"]["arguments"])


def reflected(
    skill: str,
    *,
    buffer: StepBuffer | None = None,
    rounds: int = 1,
    meta_skill: str = "",
    budget: int | None = BUDGET,
    seeds: int = 12,
) -> list[Patch]:
    """Patches for many minibatches of the same rollouts."""
    done = rollouts(skill, 16)
    batches = [batch for seed in range(seeds) for batch in minibatches([done], 8, str(seed), failure_only=False)]
    known = buffer if buffer is not None else StepBuffer()
    context = ReflectContext(skill=skill, budget=budget, buffer=known, meta_skill=meta_skill, rounds=rounds)
    return [reflect(InProcess(), context, batch, OptimizerGroup()) for batch in batches]


def directives_of(patches: list[Patch]) -> set[str]:
    return {name for patch in patches for edit in patch.edits for name in recognise(edit.content)}


def test_a_subject_tempts_with_directives_of_its_own() -> None:
    for subject in SUBJECTS:
        assert free_tempting((), subject) == [one.name for one in subject.directives if one.tempting]


def test_failures_bring_rules_that_help_and_some_that_do_not() -> None:
    patches = reflected(SEED)
    proposed = directives_of(patches)
    assert proposed >= {"question_words", "matching_documents"}
    assert any(DIRECTIVES[name].tempting for name in proposed)
    assert all(len(patch.edits) <= BUDGET and not patch.fallback for patch in patches)
    assert all(edit.rationale for patch in patches for edit in patch.edits)


def test_a_second_look_takes_out_what_no_trajectory_speaks_for() -> None:
    looked = directives_of(reflected(SEED, rounds=2))
    assert looked >= {"question_words", "matching_documents"}
    assert not any(DIRECTIVES[name].tempting for name in looked)


def test_every_operation_occurs_and_some_anchors_do_not_exist() -> None:
    echoing = "# Skill\n\n- Prefer names from the question, they are its subject.\n"
    edits = [edit for patch in (*reflected(SEED), *reflected(echoing)) for edit in patch.edits]
    assert {edit.op for edit in edits} == {"append", "insert_after", "replace", "delete"}
    missing = [edit for edit in edits if edit.anchor and edit.anchor not in SEED + echoing]
    assert missing
    assert {edit.op for edit in missing} == {"insert_after"}


def test_edits_are_rules_and_tell_nothing_of_the_items() -> None:
    for patch in reflected(SEED):
        for edit in patch.edits:
            assert not any(word in edit.content for word in ("Strelsa", "Ruritani", "Zenda"))
            assert edit.op == "delete" or edit.content.startswith("- ")


def test_rejected_edits_are_not_proposed_again() -> None:
    rule = DIRECTIVES["question_words"].rules[1]
    entry = BufferEntry(step=1, rejected_edits=(Edit(op="append", content=rule),), score_before=0.5, score_after=0.5)
    assert "question_words" in directives_of(reflected(SEED))
    assert "question_words" not in directives_of(reflected(SEED, buffer=StepBuffer(entries=(entry,))))


def test_what_the_memory_names_as_rejected_is_not_proposed() -> None:
    rejected = Memory(rejected=("question_words",))
    proposed = directives_of(reflected(SEED, meta_skill=rejected.text))
    assert "question_words" not in proposed
    assert proposed


def test_without_a_limit_all_that_helps_is_proposed() -> None:
    echoing = "# Skill\n\n- Prefer names from the question, they are its subject.\n"
    assert max(len(patch.edits) for patch in reflected(echoing, budget=None)) > 1
    assert all(len(patch.edits) <= 1 for patch in reflected(echoing, budget=1))


def test_failure_patterns_cover_the_minibatch() -> None:
    for patch in reflected(SEED, seeds=2):
        assert {identity for pattern in patch.failure_patterns for identity in pattern.item_ids} <= {
            f"q{index}" for index in range(16)
        }
        assert patch.failure_patterns


def test_successes_bring_what_the_skill_already_says_or_empty_advice() -> None:
    skill = "\n".join(f"- {DIRECTIVES[name].rules[0]}" for name in ("question_words", "titles", "recurrence"))
    patches = reflected(skill)
    assert all(edit.source_type == "success" for patch in patches for edit in patch.edits)
    assert directives_of(patches) <= recognise(skill)


def test_merge_unites_wordings_of_one_directive_and_puts_failures_first() -> None:
    first, second = DIRECTIVES["titles"].rules
    success = Edit(op="append", content="- Stay calm.", source_type="success", minibatches=("success-0",))
    failures = [
        Edit(op="append", content=f"- {first}", minibatches=("failure-0",)),
        Edit(op="insert_after", anchor="# Skill", content=f"- {second}", minibatches=("failure-1",)),
    ]
    merged = merge(InProcess(), SEED, [[success], failures], "failure-over-success", "")
    assert not merged.fallback
    assert [edit.support_count for edit in merged.edits] == [2, 1]
    assert [edit.source_type for edit in merged.edits] == ["failure", "success"]


def test_rank_goes_by_support_and_is_sometimes_taken_in() -> None:
    fooled = 0
    for trial in range(40):
        good = Edit(op="append", content=f"- {DIRECTIVES['titles'].rules[0]}", support_count=3)
        bad = Edit(op="append", content=f"- {DIRECTIVES['longest'].rules[0]}")
        empty = Edit(op="append", content="- Stay calm.")
        chosen = select(InProcess(), f"{SEED}\n{trial}", Patch(edits=(empty, bad, good)), 1, "")
        assert not chosen.fallback
        fooled += chosen.edits[0] == bad
    assert 0 < fooled < 20


def test_rank_puts_what_the_memory_names_as_rejected_last() -> None:
    good = Edit(op="append", content=f"- {DIRECTIVES['titles'].rules[0]}", support_count=2)
    other = Edit(op="append", content=f"- {DIRECTIVES['quoted'].rules[0]}")
    for memory, first in (("", good), (Memory(rejected=("titles",)).text, other)):
        assert select(InProcess(), SEED, Patch(edits=(good, other)), 1, memory).edits == (first,)


class Probe(BaseModel):
    """An output type of no known stage."""


@pytest.mark.parametrize(
    ("stage", "prompt", "complaint"),
    [
        ("dream", "", "knows reflect_result, merge_result, rank_result"),
        ("rank", "no sections", "no <skill> section"),
        ("rank", "<skill>x</skill>", "no <edits> section"),
        ("rank", "<skill>x</skill><edits>[{}]</edits>", "<edits> section cannot be read"),
        ("merge", "<skill>x</skill><priority>failure</priority><edits>[</edits>", "<edits> section cannot be read"),
    ],
)
def test_a_request_that_cannot_be_read_is_explained(stage: str, prompt: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        InProcess().ask(stage, "", prompt, Probe)


def test_a_skill_may_hold_tags() -> None:
    skill = "Put it inside <answer></answer>, not in <skill></skill> or <edits>[]</edits>."
    edits = json.dumps([{"index": 0, "op": "append", "content": "- x"}])
    answer = STAGES["rank_result"](f"<skill>{skill}</skill>\n\n<edits>{edits}</edits>")
    assert answer == {"order": [0]}


@pytest.mark.parametrize(
    ("feedback", "references"),
    [
        ('expected "A"; answered "B"', ("A",)),
        ('expected "A" or "B C"; answered ""', ("A", "B C")),
        ('expected "say "A""; answered "x"; answered "y"', ('say "A"',)),
        ("wrong", ()),
    ],
)
def test_references_are_read_from_the_feedback(feedback: str, references: tuple[str, ...]) -> None:
    fields: dict[str, Any] = {"item_id": "q", "hard": 0, "feedback": feedback, "messages": []}
    assert SeenTrajectory(**fields).references == references
