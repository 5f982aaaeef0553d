"""One edit out of several that mean the same, with the support of all."""

from collections.abc import Sequence
from typing import Literal

from skillopt_airflow.core.types import Edit

Priority = Literal["failure", "success", "failure-over-success"]
"""What a merge unites: proposals from failures, from successes, or both, where those from failures win."""


def without_duplicates(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Unite edits of equal operation, anchor and content; failures come first."""
    equal: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: edit.source_type != "failure"):
        equal.setdefault((edit.op, edit.anchor, edit.content), []).append(edit)
    return tuple(unite(same[0], same) for same in equal.values())


def unite(wording: Edit, sources: Sequence[Edit]) -> Edit:
    """Return the wording of one edit with the support of all its sources; one failure makes it a failure edit."""
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
