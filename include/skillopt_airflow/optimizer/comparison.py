"""Two epochs' last skills on the same items, and the guidance that a slow update makes of it (paper section 3.6)."""

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
from skillopt_airflow.core.values.types import Edit, Message, Rollout, Score, UnitInterval, Value
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import (
    MAX_MEMORY_CHARS,
    MAX_SENTENCES_CHARS,
    ModelAnswer,
    clipped,
    flaw_of,
    said,
)
from skillopt_airflow.optimizer.sections import Question, ask_fitting, prompt_of, section
from skillopt_airflow.optimizer.transcripts import Piece, Quote, conversation, quoted, quotes_section

PairPolicy = Literal["mixed", "changed", "unchanged"]
OutcomeGroup = Literal["improved", "regressed", "persistent_failure", "stable_success"]


class Outcome(Value):
    """The result of an item under one of the two skills."""

    hard: UnitInterval
    soft: UnitInterval
    answer: str


class ComparedItem(Value):
    """An item under both skills; feedback and messages are those under the later one where the name says no other."""

    item_id: str
    before: Outcome
    after: Outcome
    feedback: str
    messages: tuple[Message, ...]
    feedback_before: str = ""
    messages_before: tuple[Message, ...] = ()
    """Empty, like the feedback, where both skills had the very same trajectory."""
    pictures: tuple[PictureSize, ...] = ()
    """Of those that the target was shown."""


class Comparison(Document):
    """The items by what became of them; `unscored` counts those that have no score under one of the skills."""

    improved: tuple[ComparedItem, ...] = ()
    regressed: tuple[ComparedItem, ...] = ()
    persistent_failure: tuple[ComparedItem, ...] = ()
    stable_success: tuple[ComparedItem, ...] = ()
    unscored: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, (self.improved, self.regressed, self.persistent_failure, self.stable_success)))

    @property
    def empty(self) -> bool:
        return self.size == 0


_TITLES: dict[OutcomeGroup, str] = {
    "regressed": "Regressed (right under the earlier skill, wrong under the later one)",
    "persistent_failure": "Persistent failures (wrong under both)",
    "improved": "Improved (wrong under the earlier skill, right under the later one)",
    "stable_success": "Stable successes (right under both, not shown)",
}
MAX_ROOM = 60_000
"""Characters of a call that shows a comparison: about 15,000 tokens of English."""
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
    """Group the items by their hard scores, in the order of `item_ids`; the policy says which groups stay.

    Without a score on both sides an item says nothing about the skills, so it is counted and left out.
    """
    groups: dict[OutcomeGroup, list[ComparedItem]] = {group: [] for group in _SEEN["mixed"]}
    unscored = 0
    for item_id in item_ids:
        found = _compared(item_id, before, after, sizes)
        if found is None:
            unscored += 1
        else:
            groups[found[0]].append(found[1])
    return Comparison(unscored=unscored, **{group: tuple(groups[group]) for group in _SEEN[policy]})


def comparison_section(comparison: Comparison, room: int) -> str:
    """Show the groups in `room` characters, the most instructive first.

    Each item's question is shown once. Of stable successes there is only the number.
    """
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
    former = "" if previous == skill else section("previous_skill", previous)
    return prompt_of(former, section("skill", skill))


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
    asked = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return [
        title,
        *sizes,
        *quoted(item.messages[:asked]),
        *_side("under the earlier skill", item.messages_before[asked:], before, item.feedback_before),
        *_side("under the later skill", item.messages[asked:], after, item.feedback),
    ]


def _side(title: str, messages: Sequence[Message], outcome: Outcome, feedback: str) -> list[Piece]:
    scored = [Quote("scorer's feedback", feedback)] if feedback.strip() else []
    return [f"### {title}", *quoted(messages), Quote("answer as extracted", outcome.answer), *scored]


def _outcome(rollout: Rollout, score: Score) -> Outcome:
    return Outcome(hard=score.hard, soft=score.soft, answer=rollout.trajectory.answer)


def _group(before: Score, after: Score) -> OutcomeGroup:
    if after.hard != before.hard:
        return "improved" if after.hard > before.hard else "regressed"
    return "persistent_failure" if is_failure(after) else "stable_success"


REGION = "SLOW_UPDATE"


class Guidance(Value):
    """The inside of the region and why; `fallback` says why it is the former one, or is empty."""

    text: str
    reason: str = ""
    fallback: str = ""


class GuidanceAnswer(ModelAnswer):
    """The answer of a slow_update call."""

    guidance: str = Field(description="The whole new inside of the region.")
    reason: str = Field(default="", description="What the comparison showed, in one or two sentences.")


def slow_update(
    optimizer: Optimizer, skill: str, previous: str, guidance: str, comparison: Comparison, room: int
) -> Guidance:
    """Ask for new guidance; the former one stays if nothing can be compared or the answer is unusable.

    `guidance` is the inside of the region so far, `room` the most characters of the call.
    """
    if comparison.empty:
        return Guidance(text=guidance, reason="the comparison holds no item to learn from")
    first = prompt_of(compared_skills(skill, previous), section("guidance", guidance))
    question = Question(
        "slow_update",
        prompts.load("slow_update"),
        lambda most: prompt_of(first, comparison_section(comparison, most - len(first))),
    )
    try:
        answer, _ = ask_fitting(optimizer, question, min(room, MAX_ROOM), GuidanceAnswer)
    except ModelOutputError as error:
        return Guidance(text=guidance, fallback=said("slow_update", [str(error)]))
    flaw = flaw_of(without_markers(answer.guidance), MAX_MEMORY_CHARS)
    if flaw:
        return Guidance(text=guidance, fallback=said("slow_update", [f"the guidance {flaw}"]))
    return Guidance(text=answer.guidance.strip(), reason=clipped(answer.reason, MAX_SENTENCES_CHARS))


def guidance_edit(guidance: Guidance) -> Edit:
    """Return the edit that writes the guidance into its region."""
    return Edit(
        op="region", anchor=REGION, content=guidance.text, rationale=guidance.reason, minibatches=("slow-update",)
    )
