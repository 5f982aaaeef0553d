"""Merge rewrites: bodies that several minibatches wrote anew become one (full_rewrite_minibatch)."""

from collections.abc import Sequence

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.skill import without_markers
from skillopt_airflow.core.types import Edit, Patch
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import MOST_OF_SENTENCES, MOST_OF_SKILL, clipped, flaw_of, said
from skillopt_airflow.optimizer.rewrite import RewrittenBody
from skillopt_airflow.optimizer.sections import edits_section, meta_skill_section, prompt_of, section
from skillopt_airflow.optimizer.uniting import Priority, unite, without_duplicates


def merge_rewrites(
    optimizer: Optimizer, skill: str, parts: Sequence[Sequence[Edit]], priority: Priority, meta_skill: str
) -> Patch:
    """Make one body of several in one call; there is none for a single part, and for bodies that are equal.

    An unusable answer leaves them all, for a later merge or the choice of one, and the patch's fallback says so.
    """
    edits = [edit for part in parts for edit in part]
    if len(parts) < 2:
        return Patch(edits=tuple(edits))
    bodies = without_duplicates(edits)
    if len(bodies) == 1:
        return Patch(edits=bodies)
    prompt = prompt_of(
        section("skill", skill), section("priority", priority), edits_section(bodies), meta_skill_section(meta_skill)
    )
    try:
        body = optimizer.ask("merge_rewrites", prompts.load("merge_rewrites"), prompt, RewrittenBody).body
    except ModelOutputError as error:
        return Patch(edits=bodies, fallback=said(f"merge_rewrites {priority}", [str(error)]))
    # Applying the edit takes the markers out, and its report says so.
    flaw = flaw_of(without_markers(body), MOST_OF_SKILL)
    if flaw:
        return Patch(edits=bodies, fallback=said(f"merge_rewrites {priority}", [f"the body {flaw}"]))
    reasons = " ".join(dict.fromkeys(edit.rationale for edit in bodies if edit.rationale))
    wording = Edit(op="rewrite", content=body, rationale=clipped(reasons, MOST_OF_SENTENCES))
    return Patch(edits=(unite(wording, edits),))
