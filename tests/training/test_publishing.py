"""Publishing what a whole training found, in-process and against real conditional writes."""

import pytest

from include.core.config import PublishingGroup
from include.core.errors import ConfigError, Conflict
from include.core.gate import GateDecision
from include.core.types import Split
from include.store.artifacts import ArtifactStore
from include.store.keys import ArtifactKeys
from include.training.approval import MAX_DIFF_CHARS, fenced, publication_body
from include.training.publishing import (
    FIRST_FRESH_DRAW,
    fresh,
    gate_publication,
    plan_publication,
    publish_best,
)
from include.training.rollback import describe, roll_back, rollback_request
from include.training.rollouts import planned
from tests.training.in_process import Training
from tests.training.local_store import LocalStore

NAME = "run"


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training.of(train__num_epochs=1, optimizer__use_slow_update=False, evaluation__val_limit=None)
    training()
    return training


@pytest.fixture
def artifacts() -> ArtifactStore:
    return ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))


def contest(training: Training, artifacts: ArtifactStore, name: str = NAME, **rules: object) -> str:
    """Plan, measure and gate; why nothing is published."""
    refs = plan_publication(training.run, artifacts, name, PublishingGroup(**rules))
    training._run_containers(refs)
    return gate_publication(training.run, name)


def test_the_first_skill_is_published_if_it_beats_the_seed_on_fresh_rollouts(
    trained: Training, artifacts: ArtifactStore
) -> None:
    assert contest(trained, artifacts, "first") == ""
    published = publish_best(trained.run, artifacts, "first")
    champion = artifacts.champion.read()
    assert champion is not None
    assert (champion.version, champion.sha256) == (published.version, published.sha256)
    assert champion.reason.startswith("accept_new_best against the seed skill: ")
    skill, manifest = artifacts.read(published.version)
    assert skill == trained.skill()
    assert manifest.gate_history[-1]["moment"] == "publish"
    assert manifest.gate_history[-1]["policy"] == "mcnemar"


def test_the_gate_looks_at_draws_that_the_training_never_saw(trained: Training, artifacts: ArtifactStore) -> None:
    refs = plan_publication(trained.run, artifacts, "draws", PublishingGroup(draws=2))
    chunks = [planned(trained.run, ref)[1] for ref in refs]
    assert {chunk.draw for chunk in chunks} == {FIRST_FRESH_DRAW, FIRST_FRESH_DRAW + 1}
    assert {chunk.stage for chunk in chunks} == {"publish"}
    assert len({chunk.skill for chunk in chunks}) == 2
    assert sum(len(chunk.item_ids) for chunk in chunks) == 4 * len(trained.run.items(Split.VAL))
    trained._run_containers(refs)
    assert fresh(trained.run, trained.run.skill(0), 2).coverage == 1.0


def test_a_skill_that_is_no_better_than_the_champion_is_withheld(trained: Training, artifacts: ArtifactStore) -> None:
    better = trained.skill() + "\n<!-- the same rules, another text -->\n"
    artifacts.publish(better, provenance_of(trained, artifacts), None)
    withheld = contest(trained, artifacts, "no-better")
    assert withheld.startswith("the publish gate says reject against champion v")


def test_the_champion_itself_is_not_measured_again(trained: Training, artifacts: ArtifactStore) -> None:
    assert contest(trained, artifacts, "once") == ""
    publish_best(trained.run, artifacts, "once")
    assert plan_publication(trained.run, artifacts, "twice", PublishingGroup()) == []
    assert gate_publication(trained.run, "twice").startswith("the best skill is the champion already, v0001-")


def test_who_competes_is_settled_once(trained: Training, artifacts: ArtifactStore) -> None:
    first = plan_publication(trained.run, artifacts, "settled", PublishingGroup(gate_policy="paper"))
    artifacts.publish("# Another skill\n", provenance_of(trained, artifacts), None)
    assert plan_publication(trained.run, artifacts, "settled", PublishingGroup(gate_policy="paper")) == first
    trained._run_containers(first)
    assert gate_publication(trained.run, "settled") == ""
    with pytest.raises(Conflict, match="made v0001-"):
        publish_best(trained.run, artifacts, "settled")


def test_a_stopped_run_publishes_nothing(artifacts: ArtifactStore) -> None:
    training = Training.of(budget__max_calls=70, train__num_epochs=1)
    training()
    assert plan_publication(training.run, artifacts, NAME, PublishingGroup()) == []
    assert gate_publication(training.run, NAME).startswith("the run was stopped: budget.max_calls")


def test_the_approval_shows_difference_scores_and_origins(trained: Training, artifacts: ArtifactStore) -> None:
    assert contest(trained, artifacts, "shown") == ""
    body = publication_body(trained.run, "shown")
    decision = trained.store.get_model(trained.run.keys.publication("shown").gate, GateDecision)
    assert f"{decision.against_current.delta:+.4f}" in body
    assert "wants to replace the seed skill" in body
    assert "Lines of the skill by their origin: seed" in body
    added = [line for line in trained.skill().splitlines() if line and line not in trained.run.skill(0).text]
    assert added
    assert all(f"+{line}" in body for line in added)


@pytest.mark.parametrize("text", ["plain", "```\n<script>alert(1)</script>\n```", "`" * 7, "x" * (MAX_DIFF_CHARS + 1)])
def test_a_models_text_cannot_leave_its_code_block(text: str) -> None:
    first, *_, last = fenced(text, "diff").split("\n")
    assert first == f"{last}diff"
    assert last not in fenced(text, "diff").removeprefix(first).removesuffix(last)


def test_a_rollback_goes_to_an_earlier_version_and_says_why(trained: Training, artifacts: ArtifactStore) -> None:
    first = artifacts.publish("# First\n", provenance_of(trained, artifacts), None)
    artifacts.publish("# Second\n", provenance_of(trained, artifacts), artifacts.champion.read())
    request = rollback_request(artifacts, "rollback-1", first.version, "worse on *fresh* items", approval=True)
    body = describe(artifacts, request)
    assert "+# First" in body
    assert "worse on \\*fresh\\* items" in body
    alias = roll_back(artifacts, request)
    assert (alias.version, alias.run, alias.reason) == (first.version, "rollback-1", "worse on *fresh* items")
    assert roll_back(artifacts, request) == alias


@pytest.mark.parametrize(
    ("version", "sentence"), [("v0009-0123456789ab", "is not a complete version; there are: v0001-"), ("", "already")]
)
def test_a_rollback_to_nowhere_is_refused(
    trained: Training, artifacts: ArtifactStore, version: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match="nothing is published"):
        rollback_request(artifacts, "rollback-1", "v0001-0123456789ab", "why", approval=False)
    only = artifacts.publish("# First\n", provenance_of(trained, artifacts), None)
    with pytest.raises(ConfigError, match=sentence):
        rollback_request(artifacts, "rollback-1", version or only.version, "why", approval=False)


def provenance_of(training: Training, artifacts: ArtifactStore):
    from tests.store.test_artifacts import provenance

    return provenance("another-run")
