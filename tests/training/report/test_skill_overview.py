import pytest

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.artifacts import SkillManifest
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys
from skillopt_airflow.training.report.skill_overview import Buckets, champion_of, overview, stated_score, targets
from tests import page_data
from tests.training.local_store import LocalStore

TARGET = "openai-chat:org/model"


@pytest.fixture
def buckets() -> Buckets:
    return Buckets(LocalStore(), LocalStore(), "team/")


def test_targets_are_those_with_versions_or_nights(buckets: Buckets) -> None:
    assert targets(buckets, "searchqa") == []
    page_data.publish(buckets.artifacts, "team/", "searchqa", TARGET, ["# A\n"])
    page_data.publish(buckets.artifacts, "team/", "searchqa-2", "other", ["# A\n"])
    buckets.runs.put_text(RegateKeys("team/", "searchqa", "a:new").series, "{}")
    assert targets(buckets, "searchqa") == ["a:new", TARGET]


def test_a_line_reads_four_objects(buckets: Buckets) -> None:
    artifacts = page_data.publish(buckets.artifacts, "team/", "searchqa", TARGET, ["# A\n", "# B\n" * 100])
    contender = page_data.contender(artifacts, artifacts.list_versions()[-1])
    made = page_data.nights("searchqa", TARGET, contender, None, 3)
    page_data.store_nights(buckets.runs, RegateKeys("team/", "searchqa", TARGET), made)
    read: list[str] = []
    for store in (buckets.runs, buckets.artifacts):
        store.before_read = read.append
    found = overview(buckets, "searchqa", TARGET)
    assert len(read) == 4
    assert (found.champion.alias.version, found.champion.tokens) == (artifacts.list_versions()[-1], 100)
    assert [night.date for night in found.nights] == ["2026-10-01", "2026-10-02", "2026-10-03"]


def test_what_cannot_be_read_is_said(buckets: Buckets) -> None:
    buckets.artifacts.put_text(ArtifactKeys("team/", "searchqa", TARGET).champion, "{}")
    with pytest.raises(StoreError, match="does not hold"):
        overview(buckets, "searchqa", TARGET)


@pytest.mark.parametrize(
    ("rules", "score"),
    [({"gate_metric": "soft"}, 0.9), ({"gate_metric": "mixed", "gate_mixed_weight": 0.25}, 0.825), ({}, 0.8)],
)
def test_the_stated_score_is_that_of_the_metric_that_counted(buckets: Buckets, rules: object, score: float) -> None:
    manifest = manifest_of(buckets, rules)
    found = stated_score(manifest)
    assert (found.score, found.split, found.flatters) == (pytest.approx(score), Split.TEST, False)
    # One on the selection split flatters.
    scores = manifest.best_scores.model_copy(update={"promised": None})
    chosen = stated_score(manifest.model_copy(update={"best_scores": scores}))
    assert chosen.flatters
    unmeasured = scores.model_copy(update={"val": None})
    assert stated_score(manifest.model_copy(update={"best_scores": unmeasured})) is None


def manifest_of(buckets: Buckets, rules: object) -> SkillManifest:
    artifacts = page_data.publish(buckets.artifacts, "team/", "searchqa", TARGET, ["# A\n"])
    champion = champion_of(artifacts)
    manifest = champion.manifest
    score = manifest.best_scores.val
    scores = manifest.best_scores.model_copy(update={"promised": score.model_copy(update={"soft": 0.9, "hard": 0.8})})
    return manifest.model_copy(update={"config": {"evaluation": rules}, "best_scores": scores})
