"""Skills under several targets and harnesses, in one process."""

import logging
from pathlib import Path

import pytest

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, DataError, EngineUnavailable, ModelConnectionError, SkillOptError
from skillopt_airflow.core.gate.decision import decide
from skillopt_airflow.core.gate.paired import interval, paired
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, MatrixKeys
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from skillopt_airflow.training.report.matrix import conclude_matrix, prepare_matrix
from skillopt_airflow.training.rollouts.evaluation import by_type, measured
from skillopt_airflow.training.rollouts.rollout_plan import find_chunk
from skillopt_airflow.training.run.spending import limits_of_run
from skillopt_airflow.training.step.seed_and_final import with_run_regions
from tests.store.test_artifacts import provenance
from tests.training.matrix_training import BETTER, OTHER, TARGET, MatrixTraining, asked, of_cell, one_cell

pytestmark = pytest.mark.slow

KEYS = MatrixKeys("", "searchqa")
BROKEN = "openai-chat:broken"
PRICES = {TARGET: {"input": 1.0, "output": 10.0}, OTHER: {"input": 2.0, "output": 20.0}}


def test_one_cell_scores_a_skill_and_compares_another_with_it() -> None:
    training = MatrixTraining.of(preflight=False)
    matrix = training.matrix(one_cell(), "exact_paired")
    run = training.run
    seed, better = (measured(run, Split.TEST, run.skill(version)) for version in (0, 1))
    [cell], rules = matrix.cells, run.config.evaluation
    first, second = cell.skills
    assert (first.score, (first.low, first.high)) == (seed.gate_mean(rules), interval(seed, rules))
    assert (second.score, second.against_first) == (better.gate_mean(rules), paired(better, seed, rules))
    exact = rules.model_copy(update={"gate_policy": "exact_paired"})
    decision = decide(better, seed, seed, exact)
    assert second.verdict is not None
    assert (second.verdict.action, second.verdict.statistic) == (decision.action, decision.statistic)
    assert second.verdict.action.accepted
    assert (first.against_first, first.verdict) == (None, None)
    # Its run is that of the evaluation, with the configuration as it is.
    assert (matrix.run, run.config) == (run.ref.run, training.config)
    assert training.rollouts["score"] == 2 * cell.items


def test_a_skill_alone_has_scores_by_type_and_nothing_to_compare_with() -> None:
    few = {"preflight": False, "evaluation__val_limit": 20}
    training = MatrixTraining.of("livemathematicianbench", **few, data__task_type="no")
    [cell] = training.matrix(one_cell(skills=("seed",), splits=(Split.VAL,))).cells
    [skill] = cell.skills
    assert skill.by_type == by_type(training.run, Split.VAL, measured(training.run, Split.VAL, training.run.skill(0)))
    assert len(skill.by_type) == skill.items == 20
    assert (skill.against_first, skill.verdict) == (None, None)


@pytest.mark.nightly
def test_splits_are_cells_too() -> None:
    training = MatrixTraining.of(preflight=False)
    matrix = training.matrix(one_cell(splits=(Split.TEST, Split.VAL)))
    sizes = {split: len(training.run.item_refs(split)) for split in (Split.TEST, Split.VAL)}
    assert {cell.split: cell.items for cell in matrix.cells} == sizes
    assert training.rollouts["score"] == 2 * sum(sizes.values())
    alone = MatrixTraining.of(preflight=False).matrix(one_cell(splits=(Split.VAL,)))
    assert alone.cells[0] == matrix.cells[1]


def test_every_skill_runs_on_the_same_items_in_every_cell() -> None:
    training = MatrixTraining.of()
    plan = training.plan(asked(harnesses=("chat", "tools")))
    everywhere = {item.id for item in training.run.item_refs(Split.TEST)}
    for run, chunks in zip(plan.runs, plan.chunks, strict=True):
        items: dict[str, set[str]] = {}
        for ref in chunks:
            chunk = find_chunk(run, ref)[1]
            items.setdefault(chunk.skill, set()).update(chunk.item_ids)
        assert list(items.values()) == [everywhere] * 2
    work = [training.workload(one) for one in plan.alternating]
    assert [(str(one.run.config.model.target), one.run.config.model.harness) for one in work[:4]] == [
        (target, harness) for target in (TARGET, OTHER) for harness in ("chat", "tools")
    ]
    # Together, those that run at the same time have the run's calls in flight.
    lanes = training.config.sandbox.max_containers
    assert {one.concurrency for one in work} == {training.config.model.concurrency // lanes}


@pytest.mark.parametrize(("containers", "targets"), [(1, 3), (8, 3), (3, 5)])
def test_chunks_that_run_at_the_same_time_have_at_most_the_runs_calls_in_flight(containers: int, targets: int) -> None:
    training = MatrixTraining.of(sandbox__max_containers=containers, model__concurrency=30)
    plan = training.plan(asked(targets=tuple(f"openai-chat:{place}" for place in range(targets))))
    calls = sorted((training.workload(one).concurrency for one in plan.alternating), reverse=True)
    assert 0 < sum(calls[:containers]) <= 30


def test_all_that_is_named_wrongly_is_told_at_once() -> None:
    training = MatrixTraining.of(
        budget__max_usd=1.0, budget__prices={TARGET: {"input": 1, "output": 1}}, model__judge="openai-chat:judge"
    )

    def config_of(target: str, harness: str) -> TrainConfig:
        if target == "nowhere":
            raise ModelConnectionError("connection skillopt_target: model 'nowhere' should be written as a provider")
        if harness == "codex":
            raise EngineUnavailable("no Docker engine answers")
        return of_cell(training.config, target, harness)

    request = asked(
        skills=("seed", "champion", "v0007-0123456789ab", "sed"),
        targets=(TARGET, OTHER, "nowhere"),
        harnesses=("chat", "codex"),
    )
    with pytest.raises(SkillOptError) as raised:
        prepare_matrix(training.run, training.config, request, config_of)
    told = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "skill champion",
        "nothing is stored as s3",
        "skill 'sed'",
        "budget.max_usd = 0.166667",
        "budget.max_usd = 0.166667",
        "connection skillopt_target",
    ]
    assert f"the target {OTHER} and the judge openai-chat:judge" in told[4]
    # What may pass is not told beside what stays.
    assert not isinstance(raised.value, EngineUnavailable)
    assert not training.store.objects


def test_skills_are_found_by_name_and_one_that_may_not_be_named_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = MatrixTraining.of()
    artifacts = ArtifactStore(training.models.artifacts, ArtifactKeys("", "searchqa", TARGET))
    published = artifacts.publish(BETTER, provenance("run"), None)
    plan = training.plan(asked(skills=("champion", published.version, "# A text\n\nof two lines\n"), targets=(OTHER,)))
    texts = [training.run.skill(version).text for version in range(3)]
    assert texts == [BETTER, BETTER, "# A text\n\nof two lines\n"]
    assert [skill.version for skill in plan.skills] == [published.version, published.version, ""]
    (tmp_path / "deployment.yaml").write_text("allowed: {data: ['s3://ours/*']}\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    # In this process, there is no client that could read it.
    with pytest.raises(ConfigError, match=r"^skills\[1\] = 's3://theirs/skill.md': .*\nskill 'sed'"):
        MatrixTraining.of().plan(asked(skills=("seed", "s3://theirs/skill.md", "sed")))


def test_a_plan_keeps_to_airflows_limit_the_splits_and_the_data_limit() -> None:
    with pytest.raises(ConfigError, match=r"^1200 chunks, and Airflow makes at most 1024 "):
        MatrixTraining.of(evaluation__samples=100, sandbox__items_per_container=4).plan(asked())
    with pytest.raises(ConfigError, match=r"^splits = publish"):
        MatrixTraining.of().plan(asked(splits=(Split.PUBLISH,)))
    # The limit may be lower than what evaluations need.
    training = MatrixTraining.of(data__limit=5)
    training.plan(asked())
    assert len(training.run.item_refs(Split.TEST)) == 5


def test_the_size_is_logged_without_what_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    training = MatrixTraining.of(budget__prices=PRICES)
    training.breaks = lambda target, item_id: Status.TIMEOUT if target == OTHER else None
    with caplog.at_level(logging.INFO, "skillopt_airflow.training.report.matrix"):
        training.run_containers(training.plan(asked()).alternating)
        training.plan(asked())
    first, second = (text for text in caplog.messages if " cells: " in text)
    assert first.startswith("2 skills in 2 cells: 48 rollouts to make, at most 48 calls")
    assert second.startswith("2 skills in 2 cells: 24 rollouts to make, at most 24 calls")
    assert "US dollars" in first


def test_each_cell_has_an_equal_part_of_the_budget_at_its_targets_price() -> None:
    with pytest.raises(ConfigError, match=rf"^{TARGET}, chat: budget.max_calls leaves 23 calls, and 24 rollouts"):
        MatrixTraining.of(budget__max_calls=47).plan(asked())
    training = MatrixTraining.of(budget__prices=PRICES, budget__max_usd=1.0, budget__max_calls=100)
    request = asked()
    plan = training.plan(request)
    training.run_containers(plan.alternating)
    # A call reads 100 tokens and writes 20.
    paid = [24 * (100 * price + 20 * 10 * price) / 1e6 for price in (1.0, 2.0)]
    for run, cost in zip(plan.runs, paid, strict=True):
        left = limits_of_run(run)
        assert (left.calls, left.usd) == (50 - 24, pytest.approx(0.5 - cost))
    matrix = conclude_matrix(plan.runs, plan.skills, request.splits, None)
    assert (matrix.spent.calls, matrix.spent.usd) == (48, pytest.approx(sum(paid)))


def test_a_spent_budget_stops_no_matrix_whose_rollouts_are_stored() -> None:
    enough = MatrixTraining.of(budget__max_calls=48)
    enough.run_containers(enough.plan(asked()).alternating)
    assert len(enough.plan(asked()).alternating) == 4
    with pytest.raises(ConfigError, match=r"budget.max_calls is used up"):
        enough.plan(asked(skills=("seed", "# Another one\n")))


@pytest.mark.nightly
def test_what_is_stored_is_not_made_again_and_a_retry_makes_what_is_missing() -> None:
    training, request = MatrixTraining.of(), asked(harnesses=("chat", "tools"))
    training.run_containers(training.plan(request).alternating[::2])
    half = len(training.asked_of)
    assert 0 < half < 2 * 4 * 12
    first = training.matrix(request)
    assert len(training.asked_of) == 2 * 4 * 12
    assert {(cell.target, cell.harness) for cell in first.cells} == set(training.asked_of)
    # Another run, with one target more, pays for that one alone.
    again = MatrixTraining(training.config, name="again", store=training.store)
    wider = again.matrix(asked(targets=(TARGET, OTHER, "openai-chat:third"), harnesses=("chat", "tools")))
    assert {target for target, _ in again.asked_of} == {"openai-chat:third"}
    assert wider.cells[:4] == first.cells


def test_equal_texts_share_their_rollouts_and_are_not_compared() -> None:
    training = MatrixTraining.of()
    chunks = training.prepare()
    training.run_containers([{**chunk, "run": training.run.ref.model_dump()} for chunk in chunks])
    seed = with_run_regions(training.run.seed_skill(), training.config).text
    matrix = MatrixTraining(training.config, name="matrix", store=training.store)
    found = matrix.matrix(one_cell(skills=("seed", seed, BETTER), splits=(Split.VAL,)))
    # The seed is the one that a training has measured.
    assert len(matrix.asked_of) == training.rollouts["seed"] == 24
    first, same, better = found.cells[0].skills
    assert same == first
    assert same.against_first is None
    assert better.against_first is not None


@pytest.mark.nightly
def test_too_few_scores_decide_nothing_and_a_matrix_of_nothing_else_fails() -> None:
    training = MatrixTraining.of()
    request = asked()
    training.plan(request)
    late = [item.id for item in training.run.item_refs(Split.TEST)[:2]]
    training.breaks = lambda target, item_id: Status.TIMEOUT if target == OTHER and item_id in late else None
    matrix = training.matrix(request, "strict")
    assert [row.cell.target for row in matrix.undecided] == [OTHER, OTHER]
    assert {(row.result.items, row.result.coverage) for row in matrix.undecided} == {(10, 10 / 12)}
    assert OTHER in {row.cell.target for row in matrix.not_better}
    everywhere = MatrixTraining.of()
    everywhere.breaks = lambda target, item_id: Status.TIMEOUT
    with pytest.raises(DataError, match=r"^no skill has a score in any cell:\n.*: 0% of the items .*timeout: played"):
        everywhere.matrix(request)
    assert len(MatrixTable(everywhere.store, KEYS).read("run").undecided) == 4
