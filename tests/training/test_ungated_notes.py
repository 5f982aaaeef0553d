"""Notes of lapses that enter the skill without the gate, in steps that are done again."""

from typing import Any

import pytest

from local.standin.economy import RULES as ALL_RULES
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

RULES = ALL_RULES[:3]


def noting(**more: Any) -> Training:
    """A training whose analysts find lapses only as long as the skill lacks the rules that they propose."""

    def reply(stage: str, prompt: str, tool: str) -> Any:
        if stage != "reflect_skill_aware":
            return None
        edit = {"op": "append", "content": "\n".join(f"- {rule}" for rule in RULES), "rationale": "r"}
        skill = prompt.partition("<skill>\n")[2].partition("\n</skill>")[0]
        notes = [] if RULES[0] in skill else [f"Mind {len(prompt)}."]
        return {"failure_patterns": [], "edits": [edit], "notes": notes}

    return Training.of(
        reply=reply,
        optimizer__use_skill_aware_reflection=True,
        optimizer__use_slow_update=False,
        train__num_epochs=1,
        **more,
    )


def notes_of(run: TrainingRun, moment: Moment) -> EditApplyReport | None:
    return run.store.find_model(run.keys.moment(moment).notes_apply_report, EditApplyReport)


@pytest.mark.nightly
def test_a_step_that_finds_no_lapse_when_it_is_done_again_has_no_notes() -> None:
    training = noting()
    training.fail = lambda stage, item: Status.MODEL_ERROR if stage == "evaluate" else None
    training()
    run = training.run
    first, second = run.timeline[1:3]
    assert notes_of(run, first)
    assert notes_of(run, second)
    training.fail = lambda stage, item: None
    training.clear_steps()
    training()
    noted = run.state(first).current
    assert notes_of(run, first)
    assert noted.has_new_notes
    assert not notes_of(run, second)
    assert run.state(second).current.version == noted.version
