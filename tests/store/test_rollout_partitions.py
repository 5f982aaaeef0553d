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


def test_what_a_benchmark_has_rollouts_of(partitions: RolloutPartitions) -> None:
    expected = [ELSEWHERE, PLACE, PLACE._replace(draw=1), PLACE._replace(skill=OTHER[:12]), CODEX]
    assert partitions.of_benchmark("searchqa") == expected
    assert partitions.of_benchmark("searchqa2") == []


def test_what_a_skill_has_rollouts_of(partitions: RolloutPartitions) -> None:
    own = [PLACE, PLACE._replace(draw=1), CODEX]
    assert partitions.of_skill("searchqa", SKILL[:12], PLACE.target) == own
    assert partitions.of_skill("searchqa", SKILL[:12]) == [ELSEWHERE, *own]
    assert partitions.of_skill("searchqa", OTHER[:12], "a:b") == []
    assert partitions.of_skill("searchqa", "0" * 12) == []
    assert partitions.of_skill("searchqa", SKILL[:12], "no such model") == []


def test_which_skills_ran_on_the_same(partitions: RolloutPartitions) -> None:
    assert partitions.skills_beside(PLACE) == sorted([SKILL[:12], OTHER[:12]])
    assert partitions.skills_beside(CODEX) == [SKILL[:12]]
