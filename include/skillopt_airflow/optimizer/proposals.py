"""Edits that a model proposes: checking them, and uniting those with the same meaning."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from skillopt_airflow.core.values.skill import SkillDocument, has_marker, without_markers
from skillopt_airflow.core.values.text import flaw_of_text
from skillopt_airflow.core.values.types import Edit, EditOp
from skillopt_airflow.optimizer.answers import MAX_SKILL_CHARS, ModelAnswer

Priority = Literal["failure", "success", "failure-over-success"]
"""The sources of the edits in a merge; with both, edits from failures win."""


def without_duplicates(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Unite edits with the same operation, anchor and content; those from failures come first."""
    equal: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: edit.source_type != "failure"):
        equal.setdefault((edit.op, edit.anchor, edit.content), []).append(edit)
    return tuple(unite(same[0], same) for same in equal.values())


def unite(wording: Edit, sources: Sequence[Edit]) -> Edit:
    """Return an edit with the support of all its sources; one failure among them makes it a failure edit."""
    minibatches = tuple(dict.fromkeys(name for source in sources for name in source.minibatches))
    item_ids = tuple(dict.fromkeys(item_id for source in sources for item_id in source.item_ids))
    from_failure = any(source.source_type == "failure" for source in sources)
    return wording.model_copy(
        update={
            "support_count": max(1, len(item_ids), len(minibatches)),
            "item_ids": item_ids,
            "source_type": "failure" if from_failure else "success",
            "merge_level": 1 + max(source.merge_level for source in sources),
            "minibatches": minibatches,
        }
    )


MAX_EDITS = 200
"""Limit of edits per answer if the learning rate sets none."""


class ProposedEdit(ModelAnswer):
    """An edit as a model writes it."""

    op: Annotated[EditOp, BeforeValidator(lambda op: op.strip().lower() if isinstance(op, str) else op)]
    anchor: str = Field(default="", description="Text copied from the skill; not needed for append.")
    content: str = Field(default="", description="The new text; not needed for delete.")
    rationale: str = Field(default="", description="Why this helps on unseen items, in one sentence.")

    @property
    def size(self) -> int:
        return len(self.anchor) + len(self.content) + len(self.rationale)


AnyEdit = TypeVar("AnyEdit", bound=ProposedEdit)


def flaw_of_edit(edit: ProposedEdit, skill: SkillDocument) -> str:
    """Return the reason why an edit can never be applied to the skill, or an empty string."""
    if edit.size > MAX_SKILL_CHARS:
        return f"has {edit.size:,} characters, {MAX_SKILL_CHARS:,} are allowed"
    # append ignores its anchor.
    anchor = "" if edit.op == "append" else edit.anchor
    if edit.op in ("append", "insert_after") and not without_markers(edit.content).strip():
        return "has no content"
    if edit.op in ("replace", "delete") and not anchor.strip():
        return "has no anchor"
    if has_marker(anchor):
        return "has the marker of a protected region in its anchor"
    regions = (skill.text[span.start : span.end] for span in skill.protected)
    if anchor.strip() and skill.find(anchor) is None and any(anchor in region for region in regions):
        return "has its anchor in a protected region"
    return flaw_of_text(edit.content) or flaw_of_text(edit.rationale)


def sift(proposed: Sequence[AnyEdit], skill: SkillDocument, budget: int | None) -> tuple[list[AnyEdit], list[str]]:
    """Return the first applicable edits, at most `budget`, and the answer's flaws.

    An anchor that the skill doesn't contain isn't a flaw: the update handles and reports it.
    """
    kept: list[AnyEdit] = []
    flaws: list[str] = []
    most = MAX_EDITS if budget is None else budget
    room = MAX_SKILL_CHARS
    for number, edit in enumerate(proposed, start=1):
        if len(kept) == most:
            flaws.append(f"{len(proposed)} edits proposed, {most} allowed")
            break
        flaw = flaw_of_edit(edit, skill)
        if not flaw and edit.size > room:
            flaw = f"exceeds the {MAX_SKILL_CHARS:,} characters that all edits of an answer may have"
        if flaw:
            flaws.append(f"edit {number} {flaw}")
        else:
            kept.append(edit)
            room -= edit.size
    return kept, flaws
