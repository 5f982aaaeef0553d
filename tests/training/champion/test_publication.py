"""Publishing what a whole training found, in-process and against real conditional writes."""

import copy
import json
import re
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, Conflict, DataError
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.gate.run_gates import level_of
from skillopt_airflow.core.run.history import Publication
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.text import is_hidden
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.quality.quality_report import DataQualityError
from skillopt_airflow.report import summary
from skillopt_airflow.store.artifacts import ArtifactStore, PublishedScore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.champion import approval
from skillopt_airflow.training.champion.approval import (
    describe,
    fenced,
    publication_body,
    roll_back,
    rollback_body,
    rollback_request,
)
from skillopt_airflow.training.champion.publication import (
    PublicationPlan,
    count_looks,
    gate_publication,
    plan_publication,
    publish_best,
)
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.report.reporting import view_of, write_report
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.rollout_plan import RolloutPlan, find_chunk
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import limits_of_run, total_spent
from tests.store.test_artifacts import provenance
from tests.training.in_process import PROJECT, InterruptedRun, Training, configured
from tests.training.local_store import LocalStore

pytestmark = pytest.mark.slow

NAME, PROVENANCE = "run", provenance("another-run")
TWO_STEPS = {"train.num_epochs": 1, "optimizer.use_slow_update": False}
TWO_STEPS |= {"evaluation.val_limit": None, "evaluation.test_limit": 60}


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training(configured("searchqa", TWO_STEPS))
    training()
    return training


@pytest.fixture
def artifacts() -> ArtifactStore:
    return ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))


def contest(training: Training, artifacts: ArtifactStore, name: str = NAME, **rules: object) -> str:
    """Plan, measure and gate; why nothing is published."""
    refs = plan_publication(training.run, artifacts, name, PublishingGroup(**rules))
    training.run_containers(refs)
    return gate_publication(training.run, name)


def contestants(training: Training, name: str) -> PublicationPlan:
    return training.store.get_model(training.run.keys.publication(name).contest, PublicationPlan)


@pytest.mark.nightly
def test_the_first_skill_is_published_if_it_beats_the_seed_where_nothing_was_selected(
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
    assert manifest.gate_history[-1]["policy"] == "exact_paired"
    assert manifest.gate_history[-1]["reason"].endswith("; look 1 at these 36 items, level 0.04")
    assert (published.split, published.look) == (Split.TEST, 1)
    gate = manifest.publish_gate
    assert gate is not None
    assert (gate.split, gate.look, gate.rival) == (Split.TEST, 1, "the seed skill")
    assert gate.level == pytest.approx(level_of(1, 0.05))
    assert gate.score.items == 36
    assert manifest.best_scores.promised is not None
    assert manifest.best_scores.promised.items == 24
    assert manifest.selected_on is Split.VAL
    assert next(iter(manifest.model_dump())) == "publish_gate"
    told = summary.outcome(view_of(trained.run, write_report(trained.run, published)))
    assert f"The run published {published.version}, by look 1 at these items of the test split." in told


@pytest.mark.nightly
def test_for_a_look_that_no_result_could_pass_nothing_is_rolled_out(
    trained: Training, artifacts: ArtifactStore
) -> None:
    assert "look 1 at these 36 items" in contest(trained, artifacts, "passable", gate_alpha=1.2e-18)
    before = trained.rollouts["publish"]
    assert contest(trained, artifacts, "impassable", gate_alpha=1.2e-18, samples=3).startswith(
        "look 2 at these 36 items: at level 1.5e-19 exact_paired could accept nothing, since they come from 36 groups, "
        "and it needs at least 63; give the next training other items"
    )
    assert trained.rollouts["publish"] == before


def test_the_gate_looks_at_items_that_no_candidate_was_selected_by(trained: Training, artifacts: ArtifactStore) -> None:
    refs = plan_publication(trained.run, artifacts, "samples", PublishingGroup(samples=2))
    chunks = [find_chunk(trained.run, ref)[1] for ref in refs]
    contest = trained.store.get_model(trained.run.keys.publication("samples").contest, PublicationPlan)
    assert {chunk.split for chunk in chunks} == {Split.TEST}
    assert {chunk.sample for chunk in chunks} == {0, 1}
    assert {chunk.stage for chunk in chunks} == {"publish"}
    assert len({chunk.skill for chunk in chunks}) == 2
    assert sum(len(chunk.item_ids) for chunk in chunks) == 4 * len(trained.run.items(Split.TEST))
    before = trained.rollouts["publish"]
    trained.run_containers(refs)
    # Their first samples were rolled out for the test.
    assert trained.rollouts["publish"] == before + 2 * len(trained.run.items(Split.TEST))
    assert measured(trained.run, contest.split, trained.run.skill(0), contest.samples).coverage == 1.0


@pytest.mark.nightly
def test_a_seed_that_takes_no_part_has_the_score_of_its_test(trained: Training, artifacts: ArtifactStore) -> None:
    artifacts.publish("# Former\n", PROVENANCE, None)
    assert contest(trained, artifacts, "more-samples", samples=3) == ""
    _, manifest = artifacts.read(publish_best(trained.run, artifacts, "more-samples").version)
    tested = measured(trained.run, Split.TEST, trained.run.skill(0))
    assert manifest.seed_scores.test == PublishedScore.of(tested, trained.config.evaluation)


def test_every_comparison_is_a_look_and_its_level_follows(trained: Training, artifacts: ArtifactStore) -> None:
    levels = []
    for number in (1, 2, 3):
        champion = artifacts.champion.read()
        artifacts.publish(f"# Former {number}\n", PROVENANCE, champion)
        assert contest(trained, artifacts, f"look-{number}", gate_policy="strict") == ""
        look = contestants(trained, f"look-{number}").look
        assert look is not None
        assert look.number == count_looks(trained.run, artifacts, Split.TEST) == number
        levels.append(look.level)
        decision = trained.store.get_model(trained.run.keys.publication(f"look-{number}").gate, GateDecision)
        assert f"; look {number} at these 36 items" in decision.reason
    assert levels == [level_of(number, 0.05) for number in (1, 2, 3)]
    # The same question under another name, such as by the retry of a run that was triggered twice, is no new look.
    assert contest(trained, artifacts, "look-4", gate_policy="strict") == ""
    assert contestants(trained, "look-4").look == contestants(trained, "look-3").look
    # Under another policy it is one.
    contest(trained, artifacts, "look-5")
    assert count_looks(trained.run, artifacts, Split.TEST) == 4


def test_a_planner_that_died_behind_the_ledger_takes_no_second_look(
    trained: Training, artifacts: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(key: str, model: object) -> None:
        raise InterruptedRun(key)

    monkeypatch.setattr(trained.run.store, "put_model", dies)
    with pytest.raises(InterruptedRun, match="contest"):
        plan_publication(trained.run, artifacts, "died", PublishingGroup())
    monkeypatch.undo()
    assert count_looks(trained.run, artifacts, Split.TEST) == 1
    assert contest(trained, artifacts, "died") == ""
    assert count_looks(trained.run, artifacts, Split.TEST) == 1


@pytest.mark.nightly
def test_a_split_of_its_own_is_looked_at_by_publishing_alone(tmp_path: Path, artifacts: ArtifactStore) -> None:
    sample = PROJECT / "benchmarks" / "searchqa" / "sample"
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
        shutil.copy(sample / split / "items.json", tmp_path / split)
    items = json.loads((sample / "test" / "items.json").read_text(encoding="utf-8"))
    knobs = {"data__uri": str(tmp_path), "train__num_epochs": 1}
    for split, part in (("test", items[:60]), ("publish", items[60:])):
        (tmp_path / split).mkdir(exist_ok=True)
        (tmp_path / split / "items.json").write_text(json.dumps(part), encoding="utf-8")
    training = Training.of(**knobs, optimizer__use_slow_update=False)
    training()
    assert contest(training, artifacts, NAME) == ""
    assert training.rollouts["publish"] == 120
    manifest = artifacts.read(publish_best(training.run, artifacts, NAME).version).manifest
    assert manifest.publish_gate is not None
    assert manifest.publish_gate.split is Split.PUBLISH
    assert manifest.best_scores.publish == manifest.publish_gate.score
    assert manifest.best_scores.test is not None
    assert Split.PUBLISH in manifest.data_fingerprints
    assert count_looks(training.run, artifacts, Split.TEST) == 0
    assert count_looks(training.run, artifacts, Split.PUBLISH) == 1
    # What publishing judges by is not learned from either.
    (tmp_path / "publish" / "items.json").write_text(json.dumps(items[30:]), encoding="utf-8")
    with pytest.raises(DataQualityError, match=r"an earlier record has the same id .* in publish row 1 "):
        Training.of(**knobs).prepare()


def test_a_skill_that_is_no_better_than_the_champion_is_withheld(trained: Training, artifacts: ArtifactStore) -> None:
    artifacts.publish(trained.skill() + "\n<!-- the same rules, another text -->\n", PROVENANCE, None)
    assert contest(trained, artifacts, "no-better").startswith("the publish gate says reject against champion v")


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        ("- Run ```!touch x``` first.", "has ! next to a backtick in line {}, where Claude Code runs a command"),
        ("- Do \U000e0041this.", "has the invisible character U+E0041 in line {}"),
    ],
)
def test_a_skill_with_a_command_or_hidden_text_is_withheld(
    trained: Training, artifacts: ArtifactStore, monkeypatch: pytest.MonkeyPatch, line: str, flaw: str
) -> None:
    text = trained.skill() + line
    best = trained.run.state(trained.run.timeline[-1]).best.version
    read = trained.run.skill
    monkeypatch.setattr(trained.run, "skill", lambda version: SkillDocument(text) if version == best else read(version))
    withheld = contest(trained, artifacts, f"refused-{len(line)}")
    assert withheld == f"the best skill {flaw.format(len(text.splitlines()))}"
    assert artifacts.champion.read() is None


def test_the_champion_itself_is_not_measured_again(trained: Training, artifacts: ArtifactStore) -> None:
    assert contest(trained, artifacts, "once") == ""
    publish_best(trained.run, artifacts, "once")
    assert plan_publication(trained.run, artifacts, "twice", PublishingGroup()) == []
    assert gate_publication(trained.run, "twice").startswith("the best skill is the champion already, v0001-")


def test_who_competes_is_settled_once(trained: Training, artifacts: ArtifactStore) -> None:
    def plan() -> RolloutPlan:
        trained.run_containers(
            plan_publication(trained.run, artifacts, "settled", PublishingGroup(gate_policy="strict"))
        )
        return trained.store.get_model(
            trained.run.keys.moment(trained.run.timeline[-1]).plan("publish-settled"), RolloutPlan
        )

    first = plan()
    artifacts.publish("# Another skill\n", PROVENANCE, None)
    assert plan() == first
    assert gate_publication(trained.run, "settled") == ""
    with pytest.raises(Conflict, match="made v0001-"):
        publish_best(trained.run, artifacts, "settled")


@pytest.mark.nightly
@pytest.mark.parametrize("accepted", [0, 1])
def test_a_training_that_ends_otherwise_when_it_is_cleared_competes_with_what_it_has_then(
    accepted: int, artifacts: ArtifactStore
) -> None:
    training = Training(configured("searchqa", TWO_STEPS))

    def is_down(stage: str, item: str) -> Status | None:
        """From the step behind so many, no candidate can be measured."""
        measures = stage == "evaluate" and training.run.newest_state().step >= accepted
        return Status.MODEL_ERROR if measures else None

    training.fail = is_down
    before = training().best
    contest(training, artifacts)
    assert before.version == accepted == count_looks(training.run, artifacts, Split.TEST)
    assert bool(contestants(training, NAME).withheld) is (accepted == 0)
    training.fail = lambda stage, item: None
    training.clear_steps()
    best = training().best
    assert best.sha256 != before.sha256
    if accepted:
        # Whoever approved the other one did not approve this one.
        for attempt in (gate_publication, lambda run, name: publish_best(run, artifacts, name)):
            with pytest.raises(DataError, match=r"another best skill since .* Clear plan_publication"):
                attempt(training.run, NAME)
        assert artifacts.champion.read() is None
    assert contest(training, artifacts) == ""
    look = contestants(training, NAME).look
    assert look is not None
    assert (look.question.candidate, look.number) == (best.sha256, accepted + 1)
    assert artifacts.read(publish_best(training.run, artifacts, NAME).version).skill == training.skill()


def test_the_same_skills_under_other_settings_are_another_look(trained: Training, artifacts: ArtifactStore) -> None:
    assert contest(trained, artifacts, "cool") == ""
    warmer = trained.run.ref.model_copy(update={"overrides": {"model.temperature": 0.7}})
    other = TrainingRun(warmer, trained.models, trained.store)
    plan_publication(other, artifacts, "warm", PublishingGroup())
    plan_publication(other, artifacts, "warm again", PublishingGroup())
    looks = [contestants(trained, name).look for name in ("cool", "warm", "warm again")]
    # The rollouts of the second look aren't stored, as where they were removed.
    assert [look.number for look in looks if look is not None] == [1, 2, 3]


def test_skills_go_to_the_storage_with_which_the_run_was_opened(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[StorageGroup, str]] = []
    monkeypatch.setattr(trained.models, "object_store", lambda storage, bucket: asked.append((storage, bucket)))
    moved = StorageGroup(artifact_bucket="moved", prefix="there/")
    run = TrainingRun(trained.run.ref.model_copy(update={"storage": moved}), trained.models, trained.store)
    run.__dict__["record"] = trained.run.record
    assert run.config.storage != moved
    _ = run.published
    assert asked == [(moved, "moved")]


def test_a_stopped_run_publishes_nothing(artifacts: ArtifactStore) -> None:
    training = Training.of(budget__max_calls=70, train__num_epochs=1)
    training()
    assert plan_publication(training.run, artifacts, NAME, PublishingGroup()) == []
    assert gate_publication(training.run, NAME).startswith("the run was stopped: budget.max_calls")


def test_what_the_budget_has_no_room_for_is_not_begun(artifacts: ArtifactStore) -> None:
    training = Training.of(
        train__num_epochs=1, train__steps_per_epoch=1, budget__max_calls=10_000, evaluation__eval_test=False
    )
    training()
    left = limits_of_run(training.run).calls
    assert left is not None
    short = copy.copy(training)
    spent = 10_000 - left
    ref = training.run.ref.model_copy(update={"overrides": {"budget.max_calls": spent + 5}})
    short.run = TrainingRun(ref, training.models)
    withheld = contest(short, artifacts, "short")
    assert withheld.startswith(
        "the budget has no room for publishing: budget.max_calls leaves 5 calls, and 24 rollouts"
    )
    assert short.rollouts["publish"] == 0


def test_a_publication_that_needs_no_rollout_is_judged_under_a_budget_that_is_used_up(
    artifacts: ArtifactStore, tmp_path: Path
) -> None:
    for split in ("train", "val", "test"):
        rows = json.loads((PROJECT / "benchmarks/searchqa/sample" / split / "items.json").read_text("utf-8"))
        (tmp_path / split).mkdir()
        # An item of no use is never rolled out.
        (tmp_path / split / "items.json").write_text(json.dumps([rows[0] | {"answers": []}, *rows[1:]]))
    training = Training.of(
        data__uri=str(tmp_path), train__num_epochs=1, train__steps_per_epoch=1, optimizer__use_slow_update=False
    )
    training()
    spent = total_spent(training.run).calls
    ref = training.run.ref.model_copy(update={"overrides": {"budget.max_calls": spent}})
    training.run = TrainingRun(ref, training.models)
    assert limits_of_run(training.run).calls == 0
    assert plan_publication(training.run, artifacts, NAME, PublishingGroup()) == []
    assert contestants(training, NAME).withheld == ""


def test_the_approval_shows_settings_that_differ_first_then_scores_difference_and_origins(
    trained: Training, artifacts: ArtifactStore
) -> None:
    assert contest(trained, artifacts, "shown", gate_alpha=0.2) == ""
    body = publication_body(trained.run, "shown")
    assert "| `evaluation.test_limit` | not set | 60 |" in body
    assert "| `publishing.gate_alpha` | 0.05 | 0.2 |" in body
    assert "| `train.num_epochs` | 4 | 1 |" in body
    assert "data.uri" not in body
    places = [body.index(part) for part in ("Settings that differ", "Publish gate", "| hard, test", "What changes:")]
    assert places == sorted(places)
    decision = trained.store.get_model(trained.run.keys.publication("shown").gate, GateDecision)
    assert f"{decision.against_current.delta:+.4f}" in body
    assert "wants to replace the seed skill" in body
    assert "Lines of the skill by their origin: seed" in body
    added = [line for line in trained.skill().splitlines() if line and line not in trained.run.skill(0).text]
    assert added
    assert all(f"+{line}" in body for line in added)


def test_settings_are_shown_as_they_are_and_long_ones_with_their_length() -> None:
    own = TrainConfig()
    assert approval._settings(own, own) == "All settings are those of benchmark.yaml."
    hidden = "a|b`c\u202e\U000e0041\n<b>" + "x" * 1000
    shown = approval._settings(TrainConfig.from_layers({"data": {"uri": hidden}}), own)
    [row] = [line for line in shown.split("\n") if "data.uri" in line]
    assert row.startswith(r"| `data.uri` | 'sample' | 'a\|b\`c\\u202e\\U000e0041\\n\<b\>xxx")
    assert "more characters" in row
    assert len(row) < 500


def test_a_difference_that_is_cut_says_so_first() -> None:
    whole = approval._difference("", "x" * 50_000, ["a", "b"])
    assert whole.startswith("What changes:")
    assert "x" * 50_000 in whole
    cut = approval._difference("", "x" * 150_000, ["s3://b/rival.md", "s3://b/skill.md"])
    assert re.match(r"\*\*Only the first 100,000 of 150,\d+ characters", cut)
    assert "`s3://b/rival.md` and `s3://b/skill.md`" in cut
    assert len(cut) < 101_000


UPGRADED = "openai-chat:upgraded"


def on_another_model(training: Training) -> Training:
    other = copy.copy(training)
    overrides = {"model.target": UPGRADED, "model.target_conn_id": "skillopt_upgraded"}
    ref = training.run.ref.model_copy(update={"overrides": overrides})
    other.run, other.rollouts = TrainingRun(ref, training.models), Counter()
    return other


@pytest.mark.nightly
def test_another_model_gets_the_skill_by_the_gate_on_that_model(trained: Training) -> None:
    other, store = on_another_model(trained), LocalStore()
    own = ArtifactStore(store, ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))
    new = ArtifactStore(store, ArtifactKeys("", "searchqa", UPGRADED))
    assert contest(trained, own, "own") == ""
    publish_best(trained.run, own, "own")
    before, history = own.champion.read(), history_of(trained.run)
    assert "test" in {outcome.stage for outcome in history.outcomes}
    assert contest(other, new, "upgraded") == ""
    after = history_of(trained.run)
    assert (after.rollouts, after.outcomes) == (history.rollouts, history.outcomes)
    # The rollouts of the model before it say nothing about this one, nor do these count for the training.
    assert len(trained.run.usage.read("searchqa", other.run.account)) >= 2 * len(trained.run.items(Split.TEST))
    assert other.rollouts["publish"] == 2 * len(trained.run.items(Split.TEST))
    published = publish_best(other.run, new, "upgraded")
    champion = new.champion.read()
    assert champion is not None
    assert (champion.version, own.champion.read()) == (published.version, before)
    manifest = new.read(published.version).manifest
    assert manifest.target == manifest.models["target"] == UPGRADED
    assert manifest.models["trained_for"] == "openai-chat:stand-in-target"
    assert manifest.best_scores.test is not None
    assert manifest.seed_scores.test is not None
    assert manifest.best_scores.test.hard > manifest.seed_scores.test.hard
    assert manifest.best_scores.val is None


def test_another_model_keeps_its_champion_if_the_skill_is_no_better_there(trained: Training) -> None:
    new = ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", UPGRADED))
    present = new.publish(trained.skill() + "\n<!-- tuned for it -->\n", PROVENANCE, None)
    withheld = contest(on_another_model(trained), new, "no-better-there")
    assert withheld.startswith(f"the publish gate says reject against champion {present.version}")


@pytest.fixture(scope="module")
def rivals(trained: Training) -> dict[str, Training]:
    """Two trainings of one benchmark in one bucket that are about as good as each other, by the names of their runs."""
    other = Training(configured("searchqa", TWO_STEPS | {"train.seed": 7}), name="rival", store=trained.store)
    other()
    assert other.skill() != trained.skill()
    return {NAME: trained, "rival": other}


@pytest.mark.parametrize("champion", [False, True], ids=["first", "later"])
def test_of_two_trainings_that_publish_at_the_same_moment_one_has_to_compare_again(
    rivals: dict[str, Training], store: ObjectStore, champion: bool
) -> None:
    artifacts = ArtifactStore(store, ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))
    if champion:
        artifacts.publish("# Former\n", PROVENANCE, None)
    name, racers = f"race-{champion}", [*rivals.values()]
    assert [contest(one, artifacts, name) for one in racers] == ["", ""]
    start = threading.Barrier(2)

    def enter(racer: Training) -> Publication | Conflict:
        start.wait(60)
        try:
            return publish_best(racer.run, artifacts, name)
        except Conflict as conflict:
            return conflict

    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(rivals, pool.map(enter, racers), strict=True))
    [(winner, published)] = [(who, one) for who, one in outcomes.items() if isinstance(one, Publication)]
    [(loser, refused)] = [(who, one) for who, one in outcomes.items() if isinstance(one, Conflict)]
    assert f"run {winner} made {published.version} the champion" in str(refused)
    assert "is stored, and must beat that champion first" in str(refused)
    after = artifacts.champion.read()
    assert after is not None
    assert (after.version, after.run, after.sequence) == (published.version, winner, int(champion))
    # Trying the same again changes nothing.
    with pytest.raises(Conflict):
        publish_best(rivals[loser].run, artifacts, name)
    # What publish_<benchmark> does: it compares with the new champion, which is no worse.
    withheld = contest(rivals[loser], artifacts, f"again-{champion}")
    assert contestants(rivals[loser], f"again-{champion}").champion == after
    assert withheld.startswith(f"the publish gate says reject against champion {published.version}")
    assert artifacts.champion.read() == after


def test_a_better_skill_that_was_overtaken_is_published_by_comparing_again(
    trained: Training, artifacts: ArtifactStore
) -> None:
    assert contest(trained, artifacts, "overtaken") == ""
    overtaking = artifacts.publish("# Worse\n", provenance("worse"), None)
    with pytest.raises(Conflict, match=f"run worse made {overtaking.version} the champion"):
        publish_best(trained.run, artifacts, "overtaken")
    assert contest(trained, artifacts, "compared") == ""
    published = publish_best(trained.run, artifacts, "compared")
    history = artifacts.champion.history()
    assert [alias.version for alias in history] == [overtaking.version, published.version]
    assert f"against champion {overtaking.version}" in history[-1].reason
    # The version that the first try left tells of a gate that published nothing.
    gate = artifacts.read(published.version).manifest.publish_gate
    assert gate is not None
    assert gate.rival == f"champion {overtaking.version}"


@pytest.mark.parametrize("hidden", ["\0", "\x1b", "\u202e", "\u200b", "\U000e0041", "\ufe0f", "\u3164", "\ud800", "\r"])
def test_an_approval_shows_hidden_text_and_fits_the_database(artifacts: ArtifactStore, hidden: str) -> None:
    before, after, reason = "# Skill\n", f"# Skill\n- a{hidden}b\n", f"worse{hidden} items"
    first = artifacts.publish("# First\n", PROVENANCE, None)
    present = artifacts.champion.read()
    assert present is not None
    body = rollback_body(present, first.version, reason, before, after, [present])
    assert hidden not in body
    assert "\n+- a" in body
    assert not any(map(is_hidden, body))
    body.encode()


@pytest.mark.parametrize("text", ["plain", "```\n<script>alert(1)</script>\n```", "`" * 7])
def test_a_models_text_cannot_leave_its_code_block(text: str) -> None:
    first, *_, last = fenced(text, "diff").split("\n")
    assert first == f"{last}diff"
    assert last not in fenced(text, "diff").removeprefix(first).removesuffix(last)


def test_a_rollback_goes_to_an_earlier_version_and_says_why(artifacts: ArtifactStore) -> None:
    first = artifacts.publish("# First\n", PROVENANCE, None)
    artifacts.publish("# Second\n", PROVENANCE, artifacts.champion.read())
    request = rollback_request(artifacts, "rollback-1", first.version, "worse on *fresh* items", approval=True)
    body = describe(artifacts, request)
    assert "+# First" in body
    assert "worse on \\*fresh\\* items" in body
    alias = roll_back(artifacts, request)
    assert (alias.version, alias.run, alias.reason) == (first.version, "rollback-1", "worse on *fresh* items")
    assert roll_back(artifacts, request) == alias


def test_a_champion_whose_text_was_lost_can_be_left(artifacts: ArtifactStore) -> None:
    first = artifacts.publish("# First\n", PROVENANCE, None)
    second = artifacts.publish("# Second\n", PROVENANCE, artifacts.champion.read())
    artifacts._store.put_text(artifacts._keys.version(second.version).best_skill, "# Changed\n")
    request = rollback_request(artifacts, "rollback-1", first.version, "it was changed", approval=True)
    body = describe(artifacts, request)
    assert body.startswith("The current champion cannot be read: ")
    assert "it was changed after it was published" in body
    assert "+# First" in body
    assert roll_back(artifacts, request).version == first.version


def test_a_rollback_leaves_the_champion_that_it_is_about_or_none(artifacts: ArtifactStore) -> None:
    first = artifacts.publish("# First\n", PROVENANCE, None)
    second = artifacts.publish("# Second\n", PROVENANCE, artifacts.champion.read())
    asked = (artifacts, "rollback-1", first.version, "why", False)
    assert rollback_request(*asked, leaving=second.version).seen.version == second.version
    artifacts.publish("# Third\n", PROVENANCE, artifacts.champion.read())
    with pytest.raises(ConfigError, match=f"leaving: {second.version} is not the champion any more, v0003-"):
        rollback_request(*asked, leaving=second.version)


def test_a_rollback_to_nowhere_is_refused(artifacts: ArtifactStore) -> None:
    unknown = "v0009-0123456789ab"
    with pytest.raises(ConfigError, match="nothing is published"):
        rollback_request(artifacts, "rollback-1", unknown, "why", approval=False)
    only = artifacts.publish("# First\n", PROVENANCE, None).version
    for version, said in ((unknown, "is not a complete version. Available: v0001-"), (only, "already")):
        with pytest.raises(ConfigError, match=said):
            rollback_request(artifacts, "rollback-1", version, "why", approval=False)
