"""The tab of a training's progress, on a real object store that a training in this process has filled."""

import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline import dag_ids
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.progress import Progress
from skillopt_airflow.training.progress_reader import ProgressReader
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.training.time_left import Seconds
from skillopt_airflow.ui import buckets, progress_tab
from skillopt_airflow.ui.pages import app
from skillopt_airflow.ui.progress_tab import MOST_ROWS, Sight, WatchedRun, end_of, limits, rows, span, status_of
from skillopt_airflow.ui.training_runs import TrainingDagRun
from tests.store.conftest import s3_client, s3_endpoint
from tests.training.in_process import InterruptedRun, Training
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain
from tests.ui.shelf import Tables, airflow_tables
from tests.ui.users import log_in

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["s3_client", "s3_endpoint"]

pytestmark = pytest.mark.slow

DAG, EPOCH = dag_ids.train_dag_id("searchqa"), dag_ids.epoch_dag_id("searchqa")
BUCKET = "progress-tab"
PRICES = {
    "openai-chat:stand-in-target": {"input": 1.0, "output": 4.0},
    "openai-chat:stand-in-optimizer": {"input": 10.0, "output": 40.0},
}
POINTS = {"prepared": "prepare", "second_step": "steps/step_0002/plan", "published": ""}
"""Where a training is looked at, by the task behind which it is."""


@pytest.fixture(scope="module")
def training() -> Iterator[Training]:
    """A training with a budget, and its objects at each of the points."""
    training = Training.of(
        train__num_epochs=1,
        evaluation__eval_test=False,
        budget__max_calls=500,
        budget__max_usd=20.0,
        budget__prices=PRICES,
        publishing__gate_policy="strict",
    )
    training.points = {}  # type: ignore[attr-defined]
    for name, task in POINTS.items():
        training.interrupt_after = task
        with suppress(InterruptedRun):
            training()
        if not task:
            training.publish("run")
        # The run's newest state is written again at each later point.
        training.points[name] = dict(training.store.objects), dict(training.store.written)  # type: ignore[attr-defined]
    return training


@pytest.fixture(scope="module")
def stored(training: Training, s3_client: "S3Client") -> ObjectStore:
    """The bucket that has the training at each point, below the point's name."""
    s3_client.create_bucket(Bucket=BUCKET)
    store = ObjectStore(s3_client, BUCKET)
    for name in POINTS:
        put(store, training, name)
    return store


def put(store: ObjectStore, training: Training, point: str) -> None:
    """Store what a page may read of the training at a point; moments one after the other, as they ended."""

    def one(key: str) -> None:
        folder = b'"runs/searchqa/run/'
        store.put_bytes(f"{point}/{key}", objects[key].replace(folder, f'"{point}/runs/searchqa/run/'.encode()))

    objects: dict[str, bytes]
    objects, written = training.points[point]  # type: ignore[attr-defined]
    keys = [key for key in objects if not re.search("/(answers|reflections|timing)/", key)]
    dated = ("/gate.json", "/state.json", "/runtime_state.json")
    last = [key for key in keys if key.endswith(dated) or "/plans/" in key]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, set(keys) - set(last)))
    for key in sorted(last, key=written.__getitem__):
        one(key)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, s3_endpoint: str) -> Iterator[Tables]:
    """Airflow with the connection of the bucket, and somebody who is logged in."""
    uri = f"aws://test:test@/?region_name=us-east-1&endpoint_url={quote(s3_endpoint, safe='')}"
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_S3", uri)
    kept = buckets.KeptClients()
    monkeypatch.setitem(app.state._state, "clients", kept)
    log_in(monkeypatch)
    with airflow_tables() as found:
        yield found
    for _, client in kept._kept.values():
        client.close()


@pytest.fixture
def browser() -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def path(dag_id: str = DAG, run_id: str = "run") -> str:
    return progress_tab.PROGRESS_ROUTE.format(dag_id=dag_id, run_id=run_id)


def conf(point: str) -> dict[str, Any]:
    return {"overrides": {"storage.bucket": BUCKET, "storage.prefix": f"{point}/"}}


def page(browser: TestClient, tables: Tables, point: str, state: str = "running") -> str:
    tables.has_run(DAG, "run", conf(point), state=state)
    answer = browser.get(path())
    assert answer.status_code == 200
    return answer.text


def words(text: str) -> str:
    """What a page says, without its elements."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


@pytest.mark.parametrize(
    ("dag_id", "run_id", "said"),
    [
        ("another_dag", "run", "This DAG trains no skill"),
        (EPOCH, "run", "This run has no progress"),
        (DAG, "<script>alert(1)", "&lt;script&gt;"),
    ],
)
def test_what_has_no_progress_says_so(browser: TestClient, tables: Tables, dag_id: str, run_id: str, said: str) -> None:
    tables.has_run(dag_id, "run", state="running")
    answer = browser.get(path(dag_id, run_id))
    assert (answer.status_code, said in answer.text, "<script" in answer.text) == (404, True, False)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("state", "says", "renews"),
    [
        ("running", "This page fills by itself", True),
        ("failed", "It failed before it stored anything", False),
        ("success", "Trigger a training", False),
    ],
)
def test_a_run_that_has_stored_nothing_says_what_to_do(
    browser: TestClient, tables: Tables, stored: ObjectStore, state: str, says: str, renews: bool
) -> None:
    tables.has_task(DAG, "run", "prepare", "failed")
    text = page(browser, tables, "nowhere", state)
    assert says in text
    assert ("data-refresh" in text) == renews
    assert (f"dags/{DAG}/runs/run/tasks/prepare" in text) == (state == "failed")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("point", "state", "task", "said"),
    [
        (
            "prepared",
            "running",
            None,
            ("0 of 2 steps are done", "0 of 24 rollouts", "not known yet", "$20.00", "at most ", "not measured yet"),
        ),
        (
            "second_step",
            "running",
            ("publication.approve", "awaiting_input"),
            (f"dags/{DAG}/runs/run/tasks/publication.approve/required_actions", "waits for approval"),
        ),
        (
            "second_step",
            "failed",
            ("epoch_01", "failed"),
            (f"../../../../dags/{DAG}/runs/run/tasks/epoch_01", "1 of 2 steps is done"),
        ),
        (
            "published",
            "success",
            None,
            ("2 of 2 steps are done", "It published v0001-", f'href="../../../dag_runs/{DAG}/run/report"'),
        ),
    ],
)
def test_a_training_shows_how_far_it_is_and_leads_to_what_it_needs(
    browser: TestClient,
    tables: Tables,
    stored: ObjectStore,
    point: str,
    state: str,
    task: tuple[str, str] | None,
    said: tuple[str, ...],
) -> None:
    if task is not None:
        tables.has_task(DAG, "run", *task)
    text = page(browser, tables, point, state)
    shown = text + words(text)
    assert [part for part in said if part not in shown] == []
    # What is over is not asked for again.
    assert ("data-refresh" in text) == (state == "running")


def test_a_training_under_way(browser: TestClient, tables: Tables, stored: ObjectStore, training: Training) -> None:
    text = page(browser, tables, "second_step")
    found = progress_of(stored, "second_step")
    said = words(text)
    assert "1 of 2 steps is done" in said
    assert "Step 2: Runs its batch with the present skill, 0 of 8 rollouts" in said
    assert found.seed is not None
    assert found.best is not None
    for score in (found.seed, found.best):
        assert f"{score.score:.4f} ({score.low:.4f} to {score.high:.4f})" in said
    assert f"Calls {found.spent.calls} " in said
    assert f"{100 * found.spent.calls // 500} %" in said
    assert re.search(r"in (less than a minute|[\d.]+( to [\d.]+)? (min|hours)) between ", said)
    assert text.count('data-refresh="5"') == 3
    assert 'data-announce="Step 1 has ended: new best. 1 of 2 steps are done."' in text
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in text
    assert text.count('role="status"') == 1
    assert "Offline stand-in." in text


def test_a_refresh_asks_little_and_draws_nothing(
    browser: TestClient, tables: Tables, stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page(browser, tables, "second_step")
    asked: list[str] = []
    client = app.state.clients.of(StorageGroup())
    client.meta.events.register("before-call.s3", lambda model, **more: asked.append(model.name))
    monkeypatch.setattr("skillopt_airflow.report.plots.learning_curve", lambda view: pytest.fail("drawn again"))
    again = browser.get(path()).text
    assert re.sub("<time.*?</time>", "", again) == re.sub("<time.*?</time>", "", first)
    assert len(asked) <= 8
    # A second that passes changes nothing of what is renewed.
    moments = html.document_fromstring(first).xpath("//*[@data-refresh]//time/@datetime")
    assert {one[-len(":ss+00:00") :] for one in moments} == {":00+00:00"}


def test_its_epoch_shows_the_training(browser: TestClient, tables: Tables, stored: ObjectStore) -> None:
    storage = StorageGroup(bucket=BUCKET, prefix="second_step/")
    ref = RunRef(benchmark="searchqa", run="run", storage=storage, epoch=1).model_dump(mode="json")
    tables.has_run(DAG, "run", conf("second_step"), state="running")
    tables.has_run(EPOCH, "run__epoch_01", ref, state="success")
    text = browser.get(path(EPOCH, "run__epoch_01")).text
    assert "1 of 2 steps is done" in words(text)
    assert "data-refresh" in text


def test_a_training_that_published_nothing_says_no_more_than_why(
    browser: TestClient, tables: Tables, stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "another run has published meanwhile: trigger publish_searchqa"
    found = progress_of(stored, "second_step").model_copy(update={"withheld": why})
    monkeypatch.setattr(WatchedRun, "look", lambda self, now: Sight(found, ""))
    tables.has_task(DAG, "run", "publication.publish", "failed")
    said = words(page(browser, tables, "second_step", "failed"))
    assert f"It published nothing: {why}" in said
    assert "is cleared" not in said


def test_what_can_have_the_focus_in_a_part_that_renews_has_an_id(
    browser: TestClient, tables: Tables, stored: ObjectStore
) -> None:
    tables.has_task(DAG, "run", "publication.approve", "awaiting_input")
    shown = html.document_fromstring(page(browser, tables, "second_step"))
    renewed = "//*[@data-refresh]//*[self::a or self::summary or @tabindex]"
    assert len(shown.xpath(renewed)) == len(set(shown.xpath(f"{renewed}/@id"))) > 0


def test_a_look_does_not_wait_for_ever_behind_one_that_the_store_keeps_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Reader:
        def read(self, now: datetime) -> None:
            asked.set()
            answers.wait(60)

    monkeypatch.setattr(progress_tab, "MOST_SECONDS_IN_LINE", 0.05)
    run = WatchedRun(cast("ProgressReader", Reader()))
    first = threading.Thread(target=run.look, args=(datetime.now(UTC),))
    first.start()
    asked.wait(60)
    with pytest.raises(StoreUnavailable, match="has not answered others"):
        run.look(datetime.now(UTC))
    answers.set()
    first.join()
    assert run.look(datetime.now(UTC)) is None


@pytest.mark.parametrize("alone", ["script", "handler", "long_markup"])
def test_no_text_of_a_run_changes_its_page(
    browser: TestClient, tables: Tables, stored: ObjectStore, monkeypatch: pytest.MonkeyPatch, alone: str
) -> None:
    """Each as a moment's reason and a model's name, and one of them as all that a page has once."""
    real = progress_of(stored, "second_step")
    [moment], role = real.moments, real.roles[0]

    def shown(texts: Sequence[str], one: str) -> str:
        decisions = [moment.decision.model_copy(update={"reason": text}) for text in texts]
        told = {
            "moments": tuple(moment.model_copy(update={"decision": decision}) for decision in decisions),
            "roles": tuple(role.model_copy(update={"model": text}) for text in texts),
            "stopped": one,
            "withheld": one,
        }
        monkeypatch.setattr(WatchedRun, "look", lambda self, now: Sight(real.model_copy(update=told), ""))
        tables.session.rollback()
        tables.has_task(DAG, "run", one[:200], "failed")
        return page(browser, tables, "second_step", "failed")

    hostile = HOSTILE.values()
    found = shown([*hostile], HOSTILE[alone])
    assert_harmless(found, shown([plain(text) for text in hostile], plain(HOSTILE[alone])), most=300_000)


@pytest.fixture
def progress(training: Training, stored: ObjectStore) -> Progress:
    return progress_of(stored, "second_step")


def progress_of(store: ObjectStore, point: str) -> Progress:
    from skillopt_airflow.store.keys import RunKeys

    found = ProgressReader(store, RunKeys(f"{point}/", "searchqa", "run")).read(datetime.now(UTC))
    assert found is not None
    return found


def test_of_a_long_training_the_table_has_the_latest_moments(progress: Progress) -> None:
    [moment] = progress.moments
    many = tuple(moment.model_copy(update={"step": step}) for step in range(1, MOST_ROWS + 51))
    shown = rows(progress.model_copy(update={"moments": many}))
    assert [row.moment.step for row in shown] == list(range(MOST_ROWS + 50, 50, -1))


def test_limits_are_told_with_what_was_spent_of_them(progress: Progress) -> None:
    calls, tokens, price = limits(progress)
    assert (calls.limit, tokens.limit, price.limit) == ("500", "", "$20.00")
    assert calls.share == pytest.approx(progress.spent.calls / 500)
    assert tokens.share == 0
    spent = progress.spent.model_copy(update={"calls": 450, "usd": 25.0})
    calls, _, price = limits(progress.model_copy(update={"spent": spent}))
    assert (calls.css, price.css, price.share) == ("near", "spent", 1.0)
    for count, percent in ((145, 29), (498, 99), (500, 100)):
        spent = progress.spent.model_copy(update={"calls": count})
        assert limits(progress.model_copy(update={"spent": spent}))[0].percent == percent
    spent = progress.spent.model_copy(update={"usd": None})
    _, tokens, price = limits(progress.model_copy(update={"spent": spent, "estimate": None}))
    assert (price.spent, price.share, price.estimate, tokens.estimate) == ("not known", 0.0, "", "")


@pytest.mark.parametrize(
    ("state", "waiting", "stopped", "word"),
    [
        ("queued", (), "", "queued"),
        ("running", (), "", "running"),
        ("running", ("publication.approve",), "", "waits for approval"),
        ("running", (), "budget", "stops, its budget is spent"),
        ("success", (), "budget", "stopped by its budget"),
        ("success", (), "", "finished"),
        ("failed", (), "", "failed"),
        ("", (), "", "not known to Airflow any more"),
    ],
)
def test_the_state_of_a_training(
    progress: Progress, state: str, waiting: tuple[str, ...], stopped: str, word: str
) -> None:
    sight = Sight(progress.model_copy(update={"stopped": stopped}), "")
    assert status_of(TrainingDagRun(DAG, "run", state, (), waiting), sight).word == word


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (10, 29, "less than a minute"),
        (10, 200, "0 to 3 min"),
        (720, 730, "12 min"),
        (720, 1860, "12 to 31 min"),
        (3600, 9000, "1.0 to 2.5 hours"),
        (200_000, 400_000, "2.3 to 4.6 days"),
    ],
)
def test_a_range_is_told_without_digits_that_nobody_knows(low: float, high: float, said: str) -> None:
    assert span(low, high) == said


def test_the_end_is_told_as_moments_too(progress: Progress) -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    end = end_of(progress.model_copy(update={"left": Seconds(600, 1800)}), now)
    assert end is not None
    assert (end.words, end.first.minute, end.last.minute) == ("10 to 30 min", 10, 30)
    assert end_of(progress.model_copy(update={"left": None}), now) is None
