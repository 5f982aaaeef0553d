"""Aggregate: many patches become one, hierarchically, failures before successes (paper section 3.3)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pydantic import BaseModel, Field

from include.core.errors import ModelOutputError
from include.core.ports import Optimizer
from include.core.types import Edit, Patch, SourceType
from include.optimizer import prompts
from include.optimizer.reflect import ProposedEdit
from include.optimizer.sections import edits_section, section

Priority = Literal["failure", "success", "failure-over-success"]


class MergedEdit(ProposedEdit):
    """An edit of a merged patch as a model writes it."""

    sources: list[int] = Field(min_length=1, description="Indices of the edits that this one unites.")


class MergedPatch(BaseModel):
    """The answer of a merge call."""

    edits: list[MergedEdit]


def aggregate(optimizer: Optimizer, skill: str, patches: Sequence[Patch], merge_batch_size: int, workers: int) -> Patch:
    """Merge failure and success patches apart, `merge_batch_size` at a time, then both in one last merge.

    The order is that of `patches`, never that of completion.
    """
    groups: dict[SourceType, list[list[Edit]]] = {
        source_type: [edits for patch in patches if (edits := _of(patch, source_type))]
        for source_type in ("failure", "success")
    }
    fallbacks = [patch.fallback for patch in patches if patch.fallback]
    with ThreadPoolExecutor(max_workers=workers) as pool:

        def merge_level(batches: list[list[list[Edit]]], priority: Priority) -> list[Patch]:
            return list(pool.map(lambda batch: merge(optimizer, skill, batch, priority), batches))

        merged: list[list[Edit]] = []
        for source_type, parts in groups.items():
            while len(parts) > 1:
                batches = [parts[i : i + merge_batch_size] for i in range(0, len(parts), merge_batch_size)]
                level = merge_level(batches, source_type)
                fallbacks += [patch.fallback for patch in level if patch.fallback]
                parts = [list(patch.edits) for patch in level]
            merged += parts
    last = merge(optimizer, skill, merged, "failure-over-success")
    fallbacks += [last.fallback] if last.fallback else []
    patterns = tuple(pattern for patch in patches for pattern in patch.failure_patterns)
    return Patch(edits=last.edits, failure_patterns=patterns, fallback="; ".join(fallbacks))


def merge(optimizer: Optimizer, skill: str, parts: Sequence[Sequence[Edit]], priority: Priority) -> Patch:
    """One merge call; a single part is passed through, and an unusable answer gives way to plain concatenation.

    An edit that the answer invented, with no known source, is left out, and the patch's fallback names it.
    """
    edits = [edit for part in parts for edit in part]
    if len(parts) < 2:
        return Patch(edits=tuple(edits))
    prompt = "\n\n".join((section("skill", skill), section("priority", priority), edits_section(edits)))
    try:
        answer = optimizer.ask("merge", prompts.load("merge"), prompt, MergedPatch)
    except ModelOutputError as error:
        return Patch(edits=without_duplicates(edits), fallback=f"merge {priority}: {error}")
    united = tuple(_with_provenance(merged, edits) for merged in answer.edits if _known(merged, edits))
    if edits and not united:
        reason = "the answer holds no edit of a known source"
        return Patch(edits=without_duplicates(edits), fallback=f"merge {priority}: {reason}")
    invented = [merged.content or merged.op for merged in answer.edits if not _known(merged, edits)]
    fallback = f"merge {priority}: left out, without a known source: {'; '.join(invented)}" if invented else ""
    return Patch(edits=united, fallback=fallback)


def without_duplicates(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Failures, then successes; of edits with equal operation, anchor and content the first, with all the support."""
    equal: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: edit.source_type != "failure"):
        equal.setdefault((edit.op, edit.anchor, edit.content), []).append(edit)
    return tuple(_unite(same[0], same) for same in equal.values())


def _of(patch: Patch, source_type: SourceType) -> list[Edit]:
    return [edit for edit in patch.edits if edit.source_type == source_type]


def _known(merged: MergedEdit, edits: Sequence[Edit]) -> list[Edit]:
    return [edits[index] for index in merged.sources if 0 <= index < len(edits)]


def _with_provenance(merged: MergedEdit, edits: Sequence[Edit]) -> Edit:
    sources = _known(merged, edits)
    worded = Edit(**merged.model_dump(exclude={"sources"}), source_type=sources[0].source_type)
    return _unite(worded, sources)


def _unite(wording: Edit, sources: Sequence[Edit]) -> Edit:
    """The wording of one edit with the support of all its sources; a failure among them makes it a failure edit."""
    minibatches = tuple(dict.fromkeys(name for source in sources for name in source.minibatches))
    from_failure = any(source.source_type == "failure" for source in sources)
    return wording.model_copy(
        update={
            "support_count": max(1, len(minibatches)),
            "source_type": "failure" if from_failure else "success",
            "merge_level": 1 + max(source.merge_level for source in sources),
            "minibatches": minibatches,
        }
    )
