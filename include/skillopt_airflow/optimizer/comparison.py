"""Slow update: comparing the last skills of two epochs on the same items, and writing guidance (paper section 3.6)."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.gate.item_scores import is_failure
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.pictures import NO_SIZES, PictureSize, PictureSizes
from skillopt_airflow.core.values.skill import without_markers
from skillopt_airflow.core.values.types import Edit, Message, Patch, Rollout, Score, UnitInterval, Value
from skillopt_airflow.optimizer.answers import (
    MAX_MEMORY_CHARS,
    MAX_SENTENCES_CHARS,
    ModelAnswer,
    check_text,
    clipped,
    fallback_text,
)
from skillopt_airflow.optimizer.sections import Question, ask_fitting, load_prompt, prompt_of, section
from skillopt_airflow.optimizer.transcripts import Piece, Quote, as_quotes, conversation, quotes_section

PairPolicy = Literal["mixed", "changed", "unchanged"]
OutcomeGroup = Literal["improved", "regressed", "persistent_failure", "stable_success"]


class Outcome(Value):
    """The result of an item under one of the two skills."""

    hard: UnitInterval
    soft: UnitInterval
    answer: str


class ComparedItem(Value):
    """An item under both skills; `feedback` and `messages` are those under the later one."""

    item_id: str
    before: Outcome
    after: Outcome
    feedback: str
    messages: tuple[Message, ...]
    feedback_before: str = ""
    messages_before: tuple[Message, ...] = ()
    """Empty, like `feedback_before`, if both skills had the same trajectory."""
    pictures: tuple[PictureSize, ...] = ()
    """Sizes of the pictures that the target saw."""


class Comparison(Document):
    """The items by outcome; `unscored` counts those without a score under one of the skills."""

    improved: tuple[ComparedItem, ...] = ()
    regressed: tuple[ComparedItem, ...] = ()
    persistent_failure: tuple[ComparedItem, ...] = ()
    stable_success: tuple[ComparedItem, ...] = ()
    unscored: int = 0

    @property
    def empty(self) -> bool:
        return not (self.improved or self.regressed or self.persistent_failure or self.stable_success)


_TITLES: dict[OutcomeGroup, str] = {
    "regressed": "Regressed (right under the earlier skill, wrong under the later one)",
    "persistent_failure": "Persistent failures (wrong under both)",
    "improved": "Improved (wrong under the earlier skill, right under the later one)",
    "stable_success": "Stable successes (right under both, not shown)",
}
MAX_ROOM = 60_000
"""Limit of a call that shows a comparison: about 15,000 tokens of English."""
_SEEN: dict[PairPolicy, tuple[OutcomeGroup, ...]] = {
    "mixed": ("improved", "regressed", "persistent_failure", "stable_success"),
    "changed": ("improved", "regressed"),
    "unchanged": ("persistent_failure", "stable_success"),
}


def compare(
    before: Mapping[str, Rollout],
    after: Mapping[str, Rollout],
    item_ids: Sequence[str],
    policy: PairPolicy,
    sizes: PictureSizes = NO_SIZES,
) -> Comparison:
    """Group the items by their hard scores, in the order of `item_ids`; the policy selects the groups.

    Items without a score under both skills are only counted.
    """
    compared = [_compared(item_id, before, after, sizes) for item_id in item_ids]
    scored = [one for one in compared if one is not None]
    groups = {group: tuple(item for of, item in scored if of == group) for group in _SEEN[policy]}
    return Comparison(unscored=len(compared) - len(scored), **groups)


def comparison_section(comparison: Comparison, room: int) -> str:
    """Show the groups in `room` characters, the most instructive first; of stable successes only the number."""
    pieces: list[Piece] = []
    number = 0
    for group, title in _TITLES.items():
        items: tuple[ComparedItem, ...] = getattr(comparison, group)
        pieces += [f"# {title}: {len(items)} items"] if items else []
        for item in items if group != "stable_success" else ():
            number += 1
            pieces += _item(item, number)
    return quotes_section("comparison", pieces, room)


def compared_skills(skill: str, previous: str) -> str:
    earlier = "" if previous == skill else section("previous_skill", previous)
    return prompt_of(earlier, section("skill", skill))


def _compared(
    item_id: str, before: Mapping[str, Rollout], after: Mapping[str, Rollout], sizes: PictureSizes
) -> tuple[OutcomeGroup, ComparedItem] | None:
    earlier, later = before.get(item_id), after.get(item_id)
    if earlier is None or later is None or earlier.score is None or later.score is None:
        return None
    same = earlier == later
    compared = ComparedItem(
        item_id=item_id,
        before=_outcome(earlier, earlier.score),
        after=_outcome(later, later.score),
        feedback=later.score.feedback,
        messages=conversation(later),
        feedback_before="" if same else earlier.score.feedback,
        messages_before=() if same else conversation(earlier),
        pictures=tuple(sizes.get(item_id, ())),
    )
    return _group(earlier.score, later.score), compared


def _item(item: ComparedItem, number: int) -> list[Piece]:
    before, after = item.before, item.after
    title = f"## Item {number}: hard {before.hard:g} -> {after.hard:g}, soft {before.soft:g} -> {after.soft:g}"
    sizes = [f"picture {size.name}: {size.width} x {size.height} pixels" for size in item.pictures]
    if not item.messages_before:
        return [title, *sizes, *_side("under both skills, the same reply", item.messages, after, item.feedback)]
    pairs = zip(item.messages_before, item.messages, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return [
        title,
        *sizes,
        *as_quotes(item.messages[:shared]),
        *_side("under the earlier skill", item.messages_before[shared:], before, item.feedback_before),
        *_side("under the later skill", item.messages[shared:], after, item.feedback),
    ]


def _side(title: str, messages: Sequence[Message], outcome: Outcome, feedback: str) -> list[Piece]:
    scored = [Quote("scorer's feedback", feedback)] if feedback.strip() else []
    return [f"### {title}", *as_quotes(messages), Quote("answer as extracted", outcome.answer), *scored]


def _outcome(rollout: Rollout, score: Score) -> Outcome:
    return Outcome(hard=score.hard, soft=score.soft, answer=rollout.trajectory.answer)


def _group(before: Score, after: Score) -> OutcomeGroup:
    if after.hard != before.hard:
        return "improved" if after.hard > before.hard else "regressed"
    return "persistent_failure" if is_failure(after) else "stable_success"


REGION = "SLOW_UPDATE"


class GuidanceAnswer(ModelAnswer):
    """The answer of a slow_update call."""

    guidance: str = Field(description="The whole new inside of the region.")
    reason: str = Field(default="", description="What the comparison showed, in one or two sentences.")


def slow_update(
    optimizer: Optimizer, skill: str, previous: str, guidance: str, comparison: Comparison, room: int
) -> Patch:
    """Ask for new guidance, as an edit of its region in a call of at most `room` characters.

    The edit has the current text, `guidance`, if nothing can be compared or the answer is unusable.
    """
    if comparison.empty:
        return _guidance_patch(guidance, "the comparison holds no item to learn from")
    first = prompt_of(compared_skills(skill, previous), section("guidance", guidance))
    question = Question(
        "slow_update",
        load_prompt("slow_update"),
        lambda most: prompt_of(first, comparison_section(comparison, most - len(first))),
    )
    try:
        answer, _ = ask_fitting(optimizer, question, min(room, MAX_ROOM), GuidanceAnswer)
        check_text("the guidance", without_markers(answer.guidance), MAX_MEMORY_CHARS)
    except ModelOutputError as error:
        return _guidance_patch(guidance).also(fallback_text("slow_update", [str(error)]))
    return _guidance_patch(answer.guidance.strip(), clipped(answer.reason, MAX_SENTENCES_CHARS))


def _guidance_patch(text: str, reason: str = "") -> Patch:
    edit = Edit(op="region", anchor=REGION, content=text, rationale=reason, minibatches=("slow-update",))
    return Patch(edits=(edit,))
