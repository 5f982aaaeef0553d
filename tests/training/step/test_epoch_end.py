import pytest

from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.training.step.epoch_end import epoch_steps
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_both_scores_of_a_step_are_over_the_same_items_also_where_its_candidate_was_rejected_early() -> None:
    training = Training.of(evaluation__val_limit=40, model__concurrency=8)
    training()
    run, early = training.run, 0
    shown = {step.step: step for epoch in (1, 2) for step in epoch_steps(run, epoch)}
    for moment in run.timeline:
        if moment.kind != "step":
            continue
        decision = run.store.get_model(run.keys.moment(moment).gate, GateDecision)
        scores = shown[moment.step].score_before, shown[moment.step].score_after
        measured = decision.against_current
        assert scores == ((measured.other_score, measured.score) if measured.pairs else (None, None))
        early += decision.bound is not None and measured.pairs > 0
        for entry in run.state(moment).buffer.entries:
            if entry.step == moment.step and entry.rejected_edits:
                assert (entry.score_before, entry.score_after) == scores
    assert early
