import pytest

from skillopt_airflow.core.types import Split
from skillopt_airflow.store.rollout_partitions import Partition, RolloutPartitions
from tests.store.stored_rollouts import OTHER, SKILL, Try, put, rollout_key
from tests.training.local_store import LocalStore

PLACE = Partition("searchqa", "openai-chat:org/model", "chat", Split.VAL, SKILL[:12], 0)
CODEX = PLACE._replace(harness="codex")
ELSEWHERE = PLACE._replace(target="a:b")


@pytest.fixture
def partitions() -> RolloutPartitions:
    store = LocalStore()
    others = [rollout_key().model_copy(update=one) for one in ({"harness": "codex"}, {"target": "a:b"})]
    for key in (rollout_key(), rollout_key(draw=1), rollout_key(OTHER), *others):
        put(store, key, [[Try("a")], [Try("b")]])
    return RolloutPartitions(store, "")


def test_what_a_benchmark_and_a_skill_have_rollouts_of(partitions: RolloutPartitions) -> None:
    own = [PLACE, PLACE._replace(draw=1)]
    assert partitions.of_benchmark("searchqa") == [ELSEWHERE, *own, PLACE._replace(skill=OTHER[:12]), CODEX]
    assert partitions.of_benchmark("searchqa2") == []
    assert partitions.of_skill("searchqa", SKILL[:12], PLACE.target) == [*own, CODEX]
    assert partitions.of_skill("searchqa", SKILL[:12]) == [ELSEWHERE, *own, CODEX]
    for skill, target in ((OTHER[:12], "a:b"), ("0" * 12, ""), (SKILL[:12], "no such model")):
        assert partitions.of_skill("searchqa", skill, target) == []
    # Which skills ran on the same.
    assert partitions.skills_beside(PLACE) == sorted([SKILL[:12], OTHER[:12]])
    assert partitions.skills_beside(CODEX) == [SKILL[:12]]
