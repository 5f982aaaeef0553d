from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.sandbox.task_workload import SandboxSeconds, union_seconds

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


@given(INTERVALS)
def test_the_union_counts_each_second_once(intervals):
    covered = {second for start, end in intervals for second in range(start, end)}
    assert union_seconds(intervals) == len(covered)


def test_wall_time_is_model_time_and_the_rest():
    assert SandboxSeconds(wall=5.0, model=3.0).container == 2.0
    assert SandboxSeconds(wall=5.0, model=5.5).container == 0.0
