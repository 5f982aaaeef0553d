import re

import pytest

from skillopt_airflow.core.run_history import History, Publication
from skillopt_airflow.core.types import Split
from skillopt_airflow.report.run_page import LEAD, render
from skillopt_airflow.report.summary import outcome
from skillopt_airflow.training.reporting import view_of, write_report
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training.of(
        train__num_epochs=1, train__steps_per_epoch=2, optimizer__use_slow_update=False, reports=True
    )
    training()
    return training


@pytest.mark.nightly
@pytest.mark.parametrize("removed", ["trajectories/.*", "trajectories/.*split=test.*"])
@pytest.mark.parametrize("own", [True, False])
def test_a_report_keeps_its_figures_where_rollouts_were_removed(trained: Training, removed: str, own: bool) -> None:
    run, objects = trained.run, dict(trained.store.objects)
    before = run.store.get_model(run.keys.history, History)
    assert {"seed", "best", "last"} == set(before.test)
    if not own:
        # All rollouts were those of other runs.
        before = before.model_copy(update={"rollouts": before.rollouts.model_copy(update={"ran": 0})})
        run.store.put_model(run.keys.history, before)
    page = run.store.get_text(run.keys.report)
    kept = {key: body for key, body in trained.store.objects.items() if not re.fullmatch(removed, key)}
    assert len(kept) < len(objects)
    trained.store.objects = kept
    assert write_report(run, withheld="<b>nobody</b> approved it") == before.model_copy(
        update={"withheld": "<b>nobody</b> approved it"}
    )
    published = Publication(
        version="v0001-0123456789ab", sha256="0" * 64, key="s3://b/k", created=True, split=Split.TEST, look=1
    )
    assert "The run published nothing: &lt;b&gt;nobody&lt;/b&gt; approved it." in run.store.get_text(run.keys.report)
    assert write_report(run, published) == before.model_copy(update={"published": published})
    after = run.store.get_text(run.keys.report)
    assert "The run published v0001-0123456789ab, by look 1" in after
    assert without_outcome(after) == without_outcome(page)
    trained.store.objects = objects


@pytest.mark.nightly
def test_the_report_of_a_training_that_was_cleared_and_ends_otherwise_is_of_that_end(trained: Training) -> None:
    run, before = trained.run, trained.run.store.get_model(trained.run.keys.history, History)
    more = before.rollouts.model_copy(update={"ran": before.rollouts.ran + 1})
    run.store.put_model(run.keys.history, before.model_copy(update={"stopped": "once", "rollouts": more}))
    assert write_report(run) == before


@pytest.mark.nightly
def test_an_epochs_end_that_leaves_a_memory_alone_is_no_candidate() -> None:
    training = Training.of(
        train__num_epochs=3,
        train__steps_per_epoch=1,
        optimizer__use_slow_update=False,
        evaluation__eval_test=False,
        reports=True,
    )
    training()
    history = training.run.store.get_model(training.run.keys.history, History)
    assert [moment.kind for moment in history.moments] == ["step", "slow_update"] * 2 + ["step"]
    assert [moment.decision.memory_only for moment in history.moments] == [False, True] * 2 + [False]
    assert [moment.decision.equal for moment in history.moments] == [False, True] * 2 + [False]
    view = view_of(training.run, history)
    assert re.search(r"The gate accepted \d of 3 candidates\.", outcome(view))
    page = render(view)
    assert re.search(r"<dt>Candidates accepted</dt><dd class=\"figure\">\d of 3</dd>", page)
    assert re.search(r"Of 3 candidates, \d were accepted\.", page)
    assert "memory only" in page
    assert history.moments[1].candidate is None


def without_outcome(page: str) -> str:
    before, lead, rest = page.partition(LEAD)
    assert lead
    return before + rest.partition("</p>")[2]
