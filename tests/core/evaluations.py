"""Evaluations on few items, so that two that are drawn often have items in common, and rules to judge them by."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup
from skillopt_airflow.core.gate import item_scores
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Status

SCORES = st.dictionaries(
    st.sampled_from([f"i{index}" for index in range(12)]),
    st.builds(ItemScore, hard=st.sampled_from([0.0, 0.5, 1.0]), soft=st.floats(0, 1)),
)
EVALUATIONS = st.builds(
    Evaluation, scores=SCORES, failures=st.dictionaries(st.sampled_from([Status.TIMEOUT]), st.integers(1, 5))
)
GATES = st.builds(
    EvaluationGroup,
    gate_metric=st.sampled_from(["hard", "soft", "mixed"]),
    gate_mixed_weight=st.floats(0, 1),
    min_coverage=st.floats(0, 1),
    gate_policy=st.sampled_from(sorted(GATE_POLICIES)),
)


def measured(*values: float, failed: int = 0) -> Evaluation:
    """Soft scores of i0, i1, and so on; those of 1 are hard ones, too."""
    scores = {f"i{index}": ItemScore(hard=float(value == 1), soft=value) for index, value in enumerate(values)}
    return Evaluation(scores=scores, failures={Status.TIMEOUT: failed} if failed else {})


def evaluation_of(
    item_ids: Iterable[str],
    rollouts: Iterable[RolloutResult],
    samples: int = 1,
    groups: Mapping[str, str] = MappingProxyType({}),
) -> Evaluation:
    """What `item_scores.evaluation_of` makes of rollouts in one list."""
    found: dict[str, list[RolloutResult]] = {}
    for one in rollouts:
        found.setdefault(one.item_id, []).append(one)
    return item_scores.evaluation_of([ItemRef(item, "", groups.get(item, "")) for item in item_ids], found, samples)
