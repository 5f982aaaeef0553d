"""The end of a run by its values alone."""

import pytest

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import decide
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.run.state import BufferEntry, Measured, RunState, StepBuffer
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.training.step.seed_and_final import compete
from tests.core.evaluations import measured

END = Moment(kind="final", epoch=2, step=8)


def version(number: int, evaluation: Evaluation) -> Measured:
    return Measured(version=number, sha256=f"sha-{number}", evaluation=evaluation)


@pytest.mark.parametrize(("hard", "best"), [((1, 1, 1), 3), ((1, 1, 0), 2), ((0, 0, 0), 2)])
def test_at_the_end_the_last_skill_is_best_if_it_beats_it(hard: tuple[float, ...], best: int) -> None:
    before = RunState(
        moment="steps/step_0008",
        step=8,
        current=version(3, measured(1, failed=2)),
        best=version(2, measured(1, 1, 0)),
        newest=3,
        buffer=StepBuffer(entries=(BufferEntry(step=1),)),
        meta_skill="short edits",
        stopped="why",
    )
    last, rival = version(3, measured(*hard)), before.best.evaluation
    state = compete(before, END, last, decide(last.evaluation, rival, rival, EvaluationGroup(), force=True))
    assert (state.moment, state.step, state.newest) == ("final", 8, 3)
    assert (state.current, state.best.version) == (last, best)
    assert (state.buffer, state.meta_skill, state.stopped) == (before.buffer, "short edits", "why")
