"""Aggregate: merging patches into one, hierarchically, failures before successes (paper section 3.3)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.values.edits import new_notes
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, Patch, SourceType
from skillopt_airflow.optimizer.answers import ModelAnswer, fallback_text, join_fallbacks
from skillopt_airflow.optimizer.proposals import Priority, ProposedEdit, flaw_of_edit, unite, without_duplicates
from skillopt_airflow.optimizer.sections import edits_section, load_prompt, meta_skill_section, prompt_of, section


class MergedEdit(ProposedEdit):
    """An edit of a merged patch as a model writes it."""

    sources: list[int] = Field(min_length=1, description="Indices of the edits that this one unites.")


class MergedPatch(ModelAnswer):
    """The answer of a merge call."""

    reasoning: str = Field(default="", description="Which edits mean the same or contradict each other, and why.")
    edits: list[MergedEdit]


def aggregate(
    optimizer: Optimizer, skill: str, patches: Sequence[Patch], merge_batch_size: int, workers: int, meta_skill: str
) -> Patch:
    """Merge failure and success patches separately, in parallel, `merge_batch_size` per call; then merge the results.

    The order is that of `patches`, never that of completion. Rewrites of the whole body aren't merged, because select
    chooses one of them; only equal ones are united.
    """
    with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(2) as both:

        def merged_levels(source_type: SourceType) -> tuple[list[list[Edit]], list[str]]:
            """Return the result of the last level, which is at most one part, and the merges' fallbacks."""
            parts, fallbacks = [edits for patch in patches if (edits := _of(patch, source_type))], []
            while len(parts) > 1:
                batches = [parts[i : i + merge_batch_size] for i in range(0, len(parts), merge_batch_size)]
                level = list(pool.map(lambda batch: merge(optimizer, skill, batch, source_type, meta_skill), batches))
                fallbacks += [patch.fallback for patch in level]
                parts = [list(patch.edits) for patch in level]
            return parts, fallbacks

        (failures, unused), (successes, unused_too) = both.map(merged_levels, ("failure", "success"))
    merged = [*failures, *successes]
    fallbacks = [*(patch.fallback for patch in patches), *unused, *unused_too]
    last = merge(optimizer, skill, merged, "failure-over-success", meta_skill)
    rewrites = [edit for patch in patches for edit in patch.edits if edit.op == "rewrite"]
    return Patch(
        edits=(*last.edits, *_united_bodies(rewrites)),
        failure_patterns=tuple(pattern for patch in patches for pattern in patch.failure_patterns),
        notes=tuple(new_notes((note for patch in patches for note in patch.notes), ())),
        fallback=join_fallbacks(*fallbacks, last.fallback),
    )


def merge(
    optimizer: Optimizer, skill: str, parts: Sequence[Sequence[Edit]], priority: Priority, meta_skill: str
) -> Patch:
    """Make one merge call; a single part needs none, and concatenation replaces an unusable answer.

    Invented edits, which have no known source, are left out. An edit whose wording can't be applied gets the wording of
    its first source. The patch's fallback names both.
    """
    edits = [edit for part in parts for edit in part]
    if len(parts) < 2:
        return Patch(edits=tuple(edits))
    prompt = prompt_of(
        section("skill", skill), section("priority", priority), edits_section(edits), meta_skill_section(meta_skill)
    )
    try:
        answer = optimizer.ask("merge", load_prompt("merge"), prompt, MergedPatch)
        united, flaws = _united(answer.edits, edits, SkillDocument(skill))
        if not united:
            raise ModelOutputError("the answer has no edit with a known source")
    except ModelOutputError as error:
        return Patch(edits=without_duplicates(edits), fallback=fallback_text(f"merge {priority}", [str(error)]))
    return Patch(edits=united, fallback=fallback_text(f"merge {priority}", flaws))


def _of(patch: Patch, source_type: SourceType) -> list[Edit]:
    return [edit for edit in patch.edits if edit.source_type == source_type and edit.op != "rewrite"]


def _united(
    answer: Sequence[MergedEdit], edits: Sequence[Edit], skill: SkillDocument
) -> tuple[tuple[Edit, ...], list[str]]:
    united: list[Edit] = []
    flaws: list[str] = []
    for merged in answer:
        sources = [edits[index] for index in dict.fromkeys(merged.sources) if 0 <= index < len(edits)]
        if not sources:
            flaws.append(f"left out, without a known source: {merged.content or merged.op}")
            continue
        if len(united) == len(edits):
            flaws.append(f"{len(edits)} edits became {len(answer)}")
            break
        flaw = flaw_of_edit(merged, skill)
        if flaw:
            flaws.append(f"replaced by the wording of its first source: an edit {flaw}")
        worded = sources[0] if flaw else Edit(**merged.model_dump(exclude={"sources"}))
        united.append(unite(worded, sources))
    return tuple(united), flaws


def _united_bodies(rewrites: Sequence[Edit]) -> tuple[Edit, ...]:
    equal: dict[str, list[Edit]] = {}
    for edit in rewrites:
        equal.setdefault(edit.content.strip(), []).append(edit)
    return tuple(unite(same[0], same) if len(same) > 1 else same[0] for same in equal.values())
