"""Strategies of evaluations on few items, so that two of them often have items in common."""

from hypothesis import strategies as st

from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.types import Status

SCORES = st.dictionaries(
    st.sampled_from([f"i{index}" for index in range(12)]),
    st.builds(ItemScore, hard=st.sampled_from([0.0, 1.0]), soft=st.floats(0, 1)),
)
EVALUATIONS = st.builds(
    Evaluation, scores=SCORES, failures=st.dictionaries(st.sampled_from([Status.TIMEOUT]), st.integers(1, 5))
)
