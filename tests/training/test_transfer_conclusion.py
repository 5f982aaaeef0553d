"""Skills under several targets and harnesses, in one process."""

import pytest

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.paired import interval, paired
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.report.matrix_markdown import as_markdown
from skillopt_airflow.store.keys import TransferKeys
from skillopt_airflow.store.matrix_table import MatrixTable
from skillopt_airflow.store.parquet import from_parquet
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.matrix_cells import in_cell
from skillopt_airflow.training.seed_and_final import opened
from skillopt_airflow.training.spending import left_of_run, share_records
from skillopt_airflow.training.transfer_conclusion import conclude_transfer
from skillopt_airflow.training.transfer_plan import prepare_transfer
from tests.training.served_training import ServedTraining, connect
from tests.training.transfer_training import BETTER, OTHER, TARGET, TransferTraining, asked, of_cell

pytestmark = pytest.mark.slow

KEYS = TransferKeys("", "searchqa")
BROKEN = "openai-chat:broken"
PRICES = {TARGET: {"input": 1.0, "output": 10.0}, OTHER: {"input": 2.0, "output": 20.0}}


@pytest.mark.nightly
def test_every_cell_has_its_scores_and_one_that_fails_takes_no_other_down() -> None:
    training = TransferTraining.of(budget__prices=PRICES)
    training.breaks = lambda target, item_id: Status.MODEL_ERROR if target == BROKEN else None
    training.why = "The model `broken` does not exist."
    request = asked(targets=(TARGET, OTHER, BROKEN))
    matrix = training.matrix(request)
    assert [(cell.target, cell.harness) for cell in matrix.cells] == [
        (target, "chat") for target in (TARGET, OTHER, BROKEN)
    ]
    for place in (0, 1):
        view = in_cell(training.run, place)
        seed, better = (measured(view, Split.TEST, view.skill(version)) for version in (0, 1))
        first, second = matrix.cells[place].skills
        rules = view.config.evaluation
        assert (first.score, (first.low, first.high)) == (seed.gate_mean(rules), interval(seed, rules))
        assert second.against_first == paired(better, seed, rules)
        assert (first.items, first.coverage, first.cost.rollouts, first.cost.tokens) == (12, 1.0, 12, 110.0)
    # The same answers, at twice the price.
    assert matrix.cells[0].skills[1].score == matrix.cells[1].skills[1].score
    costs = [cell.skills[0].cost.usd for cell in matrix.cells]
    assert costs == [pytest.approx(12 * 200 / 1e6), pytest.approx(12 * 400 / 1e6), None]
    for lost in matrix.cells[2].skills:
        assert (lost.score, lost.items, lost.coverage) == (None, 0, 0.0)
        assert "model_error: The model `broken` does not exist." in str(lost.reason)
    table = MatrixTable(training.store, KEYS)
    assert table.read("run") == matrix
    assert training.store.get_text(KEYS.markdown("run")) == as_markdown(matrix)
    assert len(from_parquet(training.store.get_bytes(KEYS.table("run")))) == 6
    for text in (BETTER, training.run.skill(0).text):
        assert table.of_skill(SkillDocument(text).sha256) == [matrix]
    checked = training.store.get_model(training.run.keys.rollout_quality, QualityReport)
    assert checked.success
    assert len(checked.rows) == 6


@pytest.mark.nightly
def test_what_is_stored_is_not_made_again_and_a_retry_makes_what_is_missing() -> None:
    training, request = TransferTraining.of(), asked(harnesses=("chat", "tools"))
    chunks = training.plan(request)
    training.run_containers(chunks[::2])
    half = len(training.asked_of)
    assert 0 < half < 2 * 4 * 12
    training.run_containers(training.plan(request))
    assert len(training.asked_of) == 2 * 4 * 12
    first = conclude_transfer(training.run, request)
    assert {(cell.target, cell.harness) for cell in first.cells} == set(training.asked_of)
    # Another run, with one target more, pays for that one alone.
    again = TransferTraining(training.config, name="again", store=training.store)
    wider = again.matrix(asked(targets=(TARGET, OTHER, "openai-chat:third"), harnesses=("chat", "tools")))
    assert {target for target, _ in again.asked_of} == {"openai-chat:third"}
    assert wider.cells[:4] == first.cells


@pytest.mark.nightly
def test_equal_texts_share_their_rollouts_and_are_not_compared() -> None:
    training = TransferTraining.of()
    training.run_containers(training.prepare())
    rollouts = training.rollouts["seed"]
    seed = opened(training.run.seed_skill(), training.config).text
    matrix = TransferTraining(training.config, name="matrix", store=training.store)
    found = matrix.matrix(asked(skills=("seed", seed, BETTER), targets=(TARGET,), split=Split.VAL))
    # The seed is the one that a training has measured.
    assert len(matrix.asked_of) == rollouts == 24
    first, same, better = found.cells[0].skills
    assert same == first
    assert same.against_first is None
    assert better.against_first is not None


@pytest.mark.nightly
def test_too_few_scores_decide_nothing_and_a_matrix_of_nothing_else_fails() -> None:
    training = TransferTraining.of()
    request = asked()
    training.plan(request)
    late = [item.id for item in training.run.item_refs(Split.TEST)[:2]]
    training.breaks = lambda target, item_id: Status.TIMEOUT if target == OTHER and item_id in late else None
    matrix = training.matrix(request)
    assert [row.cell.target for row in matrix.undecided] == [OTHER, OTHER]
    assert {(row.result.items, row.result.coverage) for row in matrix.undecided} == {(10, 10 / 12)}
    everywhere = TransferTraining.of()
    everywhere.breaks = lambda target, item_id: Status.TIMEOUT
    with pytest.raises(DataError, match=r"^no skill has a score in any cell:\n.*: 0% of the items .*timeout: played"):
        everywhere.matrix(request)
    assert len(MatrixTable(everywhere.store, KEYS).read("run").undecided) == 4


@pytest.mark.nightly
def test_all_cells_spend_one_budget_each_at_its_targets_price() -> None:
    training = TransferTraining.of(budget__prices=PRICES, budget__max_usd=1.0, budget__max_calls=100)
    request, run = asked(), training.run
    training.run_containers(training.plan(request))
    # A call reads 100 tokens and writes 20.
    paid = 24 * (100 * 1.0 + 20 * 10.0 + 100 * 2.0 + 20 * 20.0) / 1e6
    for place in range(2):
        left = left_of_run(in_cell(run, place))
        assert (left.calls, left.usd) == (100 - 48, pytest.approx(1.0 - paid))
    assert not share_records(run)
    matrix = conclude_transfer(run, request)
    assert (matrix.spent.calls, matrix.spent.usd) == (48, pytest.approx(paid))


@pytest.mark.nightly
def test_real_harnesses_on_the_stand_in(standin_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway and the rollout program are those of every rollout."""
    connect(monkeypatch, "target", standin_url, "none", "stand-in-target")
    small = {"data__limit": 4, "model__max_turns": 6, "evaluation__val_limit": None, "evaluation__test_limit": None}
    training = ServedTraining.of(**small)
    request = asked(harnesses=("chat", "tools"))
    chunks = prepare_transfer(
        training.run, training.config, request, lambda *cell: of_cell(training.config, *cell), 1024
    )
    for chunk in chunks:
        training.run_program(chunk)
    matrix = conclude_transfer(training.run, request)
    assert matrix.undecided == []
    by_cell = {(cell.target, cell.harness): cell.skills for cell in matrix.cells}
    assert {skill.items for skills in by_cell.values() for skill in skills} == {4}
    # The stand-in is the same by every name; an agent asks it more often.
    for harness in ("chat", "tools"):
        assert [one.score for one in by_cell[TARGET, harness]] == [one.score for one in by_cell[OTHER, harness]]
    chat, tools = (by_cell[TARGET, harness][0].cost for harness in ("chat", "tools"))
    assert (chat.calls, chat.rollouts, tools.rollouts) == (4, 4, 4)
    assert tools.calls > 4
    assert chat.tokens > 0
    models = {
        call.model for account in ("run", f"run@{OTHER}") for call in training.run.usage.calls("searchqa", account)
    }
    assert models == {"stand-in-target", "other-target"}
