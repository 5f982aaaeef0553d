"""The pages of rollouts over a run of one step."""

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlencode

import pyarrow as pa
import pytest
from fastapi import Response
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, Message, Rollout, Score, Split, Status, Trajectory
from skillopt_airflow.pipeline.tasks import dag_ids
from skillopt_airflow.store.keys import scoring_name
from skillopt_airflow.store.tables.rollout_browser import MARK
from skillopt_airflow.store.tables.rollout_table import RolloutPartitions
from skillopt_airflow.training.champion.publication import PublicationPlan, plan_publication
from skillopt_airflow.training.rollouts.rollout_plan import store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import access, rollout_list, rollout_query
from skillopt_airflow.ui.pages import app
from skillopt_airflow.ui.reports import DagRunRow, row_of
from tests import page_data
from tests.stored_run import BATCH, StoredRun, store_rollouts, store_run
from tests.stored_run import SEED as SEED_TEXT
from tests.training.in_process import InProcessConnections, configured
from tests.training.local_store import LocalStore
from tests.training.matrix_training import OTHER, TARGET, MatrixTraining
from tests.training.matrix_training import asked as matrix_asked
from tests.ui.users import log_in

RUN = rollout_list.RUN_ROUTE.format(benchmark="searchqa", run="run")
SKILL = rollout_list.SKILL_ROUTE.format(benchmark="searchqa")
STEP = {"moment": "steps/step_0001", "stage": "evaluate"}
CANDIDATE = "steps/step_0001/candidate_skill.md"
SEED = "skills/skill_v0000.md"
FAILED = "val-03"


@pytest.fixture(scope="module")
def store() -> LocalStore:
    return LocalStore()


@pytest.fixture(scope="module")
def trained(store: LocalStore) -> StoredRun:
    """One step; an item of the seed's evaluation failed, and was tried again, and failed in the candidate's."""
    config = configured("searchqa", {"train.num_epochs": 1, "evaluation.val_limit": 12})
    made = {split: [item(f"{split}-{number:02d}") for number in range(16)] for split in DATA_SPLITS}
    stored = store_run(run_in(store), config, made)
    run, val = stored.run, made[Split.VAL][:12]
    store_rollouts(run, Split.TRAIN, stored.seed, made[Split.TRAIN][:BATCH], play)
    store_rollouts(run, Split.VAL, stored.seed, [val[3]], lambda item, skill: failed(item))
    store_rollouts(run, Split.VAL, stored.seed, val, play)
    store_rollouts(run, Split.VAL, stored.candidate, val[:3] + val[4:], play)
    store_rollouts(run, Split.VAL, stored.candidate, [val[3]], lambda item, skill: failed(item))
    return stored


def run_in(store: LocalStore) -> TrainingRun:
    return TrainingRun(RunRef(benchmark="searchqa", run="run", storage=StorageGroup()), InProcessConnections(store))


def begun(monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> StoredRun:
    """A run with eight items a split in a bucket of its own, which the pages read from now on."""
    store = LocalStore()
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: store)
    made = {split: [item(f"{split}-{number:02d}") for number in range(8)] for split in DATA_SPLITS}
    return store_run(run_in(store), configured("searchqa", knobs), made)


def item(name: str) -> Item:
    public, reference = {"question": f"What is {name}?", "context": "[DOC] it"}, {"answers": [f"answer {name}"]}
    return Item(id=name, public=public, reference=reference, task_types=("even" if int(name[-2:]) % 2 == 0 else "odd",))


def mark_of(name: str) -> str:
    return item(name).fingerprint[:MARK]


def play(item: Item, skill: str) -> Rollout:
    """Under the seed every third item is a success, under the candidate every second."""
    number = int(item.id[-2:])
    hard = float(number % (3 if skill == SEED_TEXT else 2) == 0)
    said = (("system", skill), ("user", str(item.public["question"])), ("assistant", f"It is {number}."))
    messages = tuple(Message.model_validate({"role": role, "content": content}) for role, content in said)
    trajectory = Trajectory(
        item_id=item.id,
        status=Status.OK,
        messages=messages,
        answer=str(number),
        calls=1,
        prompt_tokens=100 + number,
        seconds=number / 10,
        started=1763696507.25,
    )
    return Rollout(trajectory=trajectory, score=Score(hard=hard, soft=hard, feedback=f"feedback on {number}"))


def failed(item: Item) -> Rollout:
    return Rollout(trajectory=Trajectory(item_id=item.id, status=Status.TIMEOUT, error="no answer in 60 s"), score=None)


@pytest.fixture
def browser(store: LocalStore, trained: StoredRun, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    before = dict(store.objects)
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: store)
    log_in(monkeypatch)
    with TestClient(app) as client:
        yield client
    store.objects = before


def get(browser: TestClient, path: str = RUN, expected: int = 200, **asked: Any) -> html.HtmlElement:
    answer = browser.get(f"{path}?{urlencode(asked)}")
    page = html.document_fromstring(answer.text)
    assert answer.status_code == expected, text(page)
    assert "script-src 'self'" in answer.headers["content-security-policy"] or expected != 200
    return page


def get_stored(browser: TestClient, path: str) -> html.HtmlElement:
    """A message, which carries all that it needs."""
    answer = browser.get(path)
    assert answer.status_code == 200
    return html.document_fromstring(answer.text)


def follow(browser: TestClient, page: html.HtmlElement, link: str, path: str = RUN) -> html.HtmlElement:
    """The page behind the one link of an XPath."""
    [address] = page.xpath(f"{link}/@href")
    return get(browser, path, **{name: value for name, [value] in parse_qs(address[1:]).items()})


def items(page: html.HtmlElement) -> list[str]:
    return [row.xpath("string(td[1])") for row in page.xpath("//table[@class='rollouts']/tbody/tr")]


def options(page: html.HtmlElement, name: str) -> dict[str, str]:
    return {one.get("value"): one.text for one in page.xpath(f"//select[@name='{name}']/option")}


def chosen(page: html.HtmlElement, name: str) -> str:
    found = page.xpath(f"//select[@name='{name}']/option[@selected]/@value | //input[@name='{name}']/@value")
    return str(found[0])


def text(page: html.HtmlElement) -> str:
    return " ".join(page.xpath("//main")[0].text_content().split())


VAL = [f"val-{number:02d}" for number in range(12)]


def test_a_run_shows_its_newest_stage_and_leads_to_the_others(browser: TestClient) -> None:
    page = get(browser)
    moments = {"steps/step_0000": "Beginning", "steps/step_0001": "Step 1", "final": "End"}
    assert options(page, "moment") == moments
    assert chosen(page, "moment") == "steps/step_0001"
    assert options(page, "stage") == {"evaluate": "candidate on the selection split", "rollout": "batch"}
    assert chosen(page, "stage") == "evaluate"
    assert page.xpath("string(//h1)") == "Rollouts: Step 1, candidate on the selection split"
    assert (chosen(page, "skill"), items(page)) == (CANDIDATE, VAL)


def test_another_moment_or_stage_begins_with_its_own_skill(browser: TestClient) -> None:
    before = get(browser, moment="steps/step_0000")
    form = {name: chosen(before, name) for name in ("at", "stage", "skill", "other")}
    assert (form["at"], form["skill"]) == ("steps/step_0000", SEED)
    assert chosen(get(browser, **form, moment="steps/step_0001"), "skill") == CANDIDATE
    assert chosen(get(browser, **form | {"at": "steps/step_0001"}, moment="steps/step_0001"), "skill") == SEED
    before = get(browser, **STEP)
    form = {name: chosen(before, name) for name in ("at", "at_stage", "moment", "stage", "skill", "other")}
    assert (form["at_stage"], form["skill"]) == ("evaluate", CANDIDATE)
    batch = get(browser, **form | {"stage": "rollout"})
    assert (chosen(batch, "skill"), chosen(batch, "split")) == (SEED, "train")
    assert items(batch) == [f"train-{number:02d}" for number in range(BATCH)]
    assert chosen(get(browser, **form | {"at_stage": "rollout", "stage": "rollout"}), "skill") == CANDIDATE


def test_the_candidate_is_compared_with_what_it_had_to_beat(browser: TestClient) -> None:
    page = follow(browser, get(browser, **STEP), "//a[starts-with(text(), 'Compare')]")
    assert chosen(page, "other") == SEED
    won, lost = ["val-02", "val-04", "val-08", "val-10"], ["val-09"]
    tied = [name for name in VAL if name not in (*won, *lost, FAILED)]
    for show, expected in (("won", won), ("lost", lost), ("tied", tied), ("flipped", sorted(won + lost))):
        found = get(browser, **STEP, other=SEED, show=show)
        assert items(found) == expected
        assert options(found, "show")[show].endswith(f" ({len(expected)})")
    page = get(browser, **STEP)
    told = [" ".join(row.xpath("td[2]")[0].itertext()) for row in page.xpath("//table[@class='rollouts']/tbody/tr")]
    assert [one.split()[:2] for one in told[:2]] == [["✓", "success"], ["✕", "failure"]]
    page = get(browser, **STEP, other=SEED, sort="difference", order="down")
    assert items(page)[:4] == won
    assert items(page)[-2:] == ["val-09", FAILED]
    without = get(browser, **STEP, show="won", sort="difference")
    assert (items(without), chosen(without, "show")) == (VAL, "all")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"show": "success"}, VAL[::2]),
        ({"show": "failure"}, [name for name in VAL[1::2] if name != FAILED]),
        ({"show": "no_score"}, [FAILED]),
        ({"status": "timeout"}, [FAILED]),
        ({"task_type": "odd"}, VAL[1::2]),
        ({"text": "NO ANSWER"}, [FAILED]),
        ({"text": "no answer", "within": "said"}, []),
        ({"text": "it is 1", "within": "said"}, ["val-01", "val-10", "val-11"]),
        ({"text": "FEEDBACK ON 7", "within": "said"}, ["val-07"]),
        ({"text": "it is 1", "within": "said", "task_type": "even"}, ["val-10"]),
    ],
)
def test_filters(browser: TestClient, asked: dict[str, str], expected: list[str]) -> None:
    page = get(browser, **STEP, **asked)
    assert items(page) == expected
    for name, value in asked.items():
        assert chosen(page, name) == value
    assert items(follow(browser, page, "//form//a")) == VAL


def test_a_search_in_what_was_said_says_what_it_left_out(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_list, "MAX_SEARCHED", 0)
    page = get(browser, **STEP, text="it is", within="said")
    assert items(page) == []
    assert "12 rollouts were not searched" in text(page)


def test_a_list_is_sorted_and_cut_into_pages(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_list, "PAGE_ROWS", 5)
    first = get(browser, **STEP)
    second = follow(browser, first, "//a[@rel='next']")
    third = follow(browser, second, "//a[@rel='next']")
    assert [items(page) for page in (first, second, third)] == [VAL[:5], VAL[5:10], VAL[10:]]
    assert "11 to 12 of 12 rollouts" in text(third)
    assert not third.xpath("//a[@rel='next']")
    assert items(follow(browser, third, "//a[@rel='prev']")) == VAL[5:10]
    assert items(get(browser, **STEP, page=999)) == VAL[10:]
    turned = follow(browser, second, "//th[@aria-sort='ascending']/a")
    assert items(turned) == VAL[:6:-1]
    assert turned.xpath("//th[@aria-sort='descending']")
    assert items(get(browser, **STEP, sort="seconds", order="down")) == VAL[:6:-1]


def test_an_item_shows_its_conversation_beside_another_skill_s(browser: TestClient) -> None:
    page = get(browser, **STEP, other=SEED, mark=mark_of("val-02"))
    sides = page.xpath("//div[@class='sides']/section")
    assert [side.xpath("string(h2)") for side in sides] == ["candidate of step 1", "seed"]
    shown = " ".join(sides[0].text_content().split())
    for said in (
        "Prefer titles.",
        "What is val-02?",
        "It is 2.",
        "feedback on 2",
        "Exact score1.0000",
        "Input tokens102",
    ):
        assert said in shown
    assert "Prefer titles." not in sides[1].text_content()
    assert "candidate of step 1 scores 1.0000, seed 0.0000: a difference of +1.0000." in text(page)
    [record] = page.xpath("//main/details")
    assert "answer val-02" in record.text_content()
    assert "Type of task: even" in record.text_content()
    assert page.xpath("string(//time/@datetime)") == "2025-11-21T03:41:47+00:00"


def test_a_failure_says_why_and_what_came_of_the_other_tries(browser: TestClient) -> None:
    page = get(browser, **STEP, other=SEED, mark=mark_of(FAILED))
    failure, success = page.xpath("//div[@class='sides']/section")
    assert "Statustimeout" in " ".join(failure.text_content().split())
    assert "no answer in 60 s" in failure.text_content()
    assert "No messages." in failure.text_content()
    assert "All 2 tries" in success.text_content()
    tries = [" ".join(one.text_content().split()) for one in success.xpath(".//li")]
    assert ": ok, score 1.0000, of run run, shown here" in tries[0]
    assert tries[1].endswith(": timeout, of run run: no answer in 60 s")
    assert "a difference of" not in text(page)


def test_tries_have_the_score_that_a_gate_compares(browser: TestClient, trained: StoredRun, store: LocalStore) -> None:
    run = trained.run
    graded = Rollout(trajectory=Trajectory(item_id="val-04", status=Status.OK), score=Score(hard=1.0, soft=0.6))
    run.rollouts.append(run.rollout_key(Split.VAL, trained.candidate, 0), "again", [(item("val-04"), graded)])
    record = run.record.model_copy(update={"config": configured("searchqa", {"evaluation.gate_metric": "soft"})})
    store.put_model(run.keys.config, record)
    page = get(browser, **STEP, mark=mark_of("val-04"))
    tries = [" ".join(one.text_content().split()) for one in page.xpath("//div[@class='sides']//li")]
    assert [one.split(": ")[1] for one in tries] == [
        "ok, score 1.0000, of run run, shown here",
        "ok, score 0.6000, of run again",
    ]


def test_one_goes_from_item_to_item_in_the_order_of_the_list(browser: TestClient) -> None:
    page = follow(browser, get(browser, **STEP, show="success"), "//a[contains(., 'val-04')]")
    assert page.xpath("string(//h1)") == "val-04"
    assert follow(browser, page, "//a[@rel='next']").xpath("string(//h1)") == "val-06"
    assert follow(browser, page, "//a[@rel='prev']").xpath("string(//h1)") == "val-02"
    assert items(follow(browser, page, "//nav[@aria-label='Items']/a[1]")) == VAL[::2]
    assert get(browser, **STEP, place=999).xpath("string(//h1)") == VAL[-1]
    assert "None of 12 rollouts passes" in text(get(browser, **STEP, place=1, text="nothing"))


def test_an_item_whose_content_changed_shows_the_rollout_of_the_list(
    browser: TestClient, trained: StoredRun, store: LocalStore
) -> None:
    former = item("val-04").model_copy(update={"reference": {"answers": ["another answer"]}})
    said = Trajectory(item_id=former.id, status=Status.OK, messages=(Message(role="user", content="What was it?"),))
    rollout = Rollout(trajectory=said, score=Score(hard=0.0, soft=0.0))
    store.objects = {key: value for key, value in store.objects.items() if not key.startswith("trajectories/")}
    for skill in (trained.candidate, trained.seed):
        trained.run.rollouts.append(trained.run.rollout_key(Split.VAL, skill, 0), "former", [(former, rollout)])
        store_rollouts(trained.run, Split.VAL, skill, [item("val-04")], play)
    page = follow(browser, get(browser, **STEP, other=SEED), "//table//a[contains(., 'val-04')]")
    assert page.xpath("string(//h1)") == "val-04"
    assert "It is 4." in text(page)
    assert "What was it?" not in text(page)
    assert "scores 1.0000, seed 0.0000" in text(page)
    assert "All 2 tries" not in text(page)


def test_a_run_that_is_under_way(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = begun(monkeypatch)
    store, val = stored.run.store, stored.run.items(Split.VAL)
    store.delete(stored.run.keys.runtime_state)
    page = get(browser)
    assert "No stored rollouts" in text(page)
    assert "8 items are planned with seed" in text(page)
    store_rollouts(stored.run, Split.VAL, stored.seed, val[:5], play)
    page = get(browser)
    assert len(items(page)) == 5
    assert "8 items were planned" in text(page)
    store_plan(stored.run, stored.run.timeline[0], "seed", [])
    assert "8 items" not in text(get(browser))
    store.delete(stored.run.keys.moment(stored.run.timeline[0]).plan("seed"))
    assert "No rollouts at this stage" in text(get(browser))


def test_an_evaluation_shows_the_rollouts_of_each_cell(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = MatrixTraining(configured("searchqa", {"evaluation.test_limit": 8}), name=scoring_name("matrix"))
    matrix.matrix(matrix_asked())
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: matrix.store)
    monkeypatch.setitem(app.dependency_overrides, row_of, lambda: DagRunRow({}, None))
    path = rollout_list.DAG_RUN_ROUTE.format(dag_id="evaluate_searchqa", run_id="matrix")
    for cell, target in enumerate((TARGET, OTHER)):
        page = get(browser, path, cell=cell)
        assert len(items(page)) == 8
        assert f"Beginning, scoring under {target}, chat" in page.xpath("string(//h1)")
        assert page.xpath("//form//input[@name='cell']/@value") == [str(cell)]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> TrainingRun:
    """A finished run whose skill is a success on every test item, and its publication for a model that fails on all."""
    stored = begun(monkeypatch, **{"train.num_epochs": 1})
    run, final, items = stored.run, stored.run.timeline[-1], stored.run.items(Split.TEST)
    run.store.put_text(run.keys.skill(1), stored.candidate.text)
    state = run.newest_state()
    best = state.best.model_copy(update={"version": 1, "sha256": stored.candidate.sha256})
    run.commit(final, state.model_copy(update={"moment": final.name, "best": best, "newest": 1}))
    other = TrainingRun(run.ref.model_copy(update={"overrides": {"model.target": "c:d"}}), run.connections, run.store)
    plan_publication(other, other.published, "later", PublishingGroup())
    store_rollouts(run, Split.TEST, stored.candidate, items, partial(play_for, 1.0))
    store_rollouts(other, Split.TEST, stored.candidate, items, partial(play_for, 0.0))
    return run


def play_for(hard: float, item: Item, skill: str) -> Rollout:
    return play(item, skill).model_copy(update={"score": Score(hard=hard, soft=hard)})


def test_a_publication_for_another_model_shows_the_rollouts_of_that_model(
    browser: TestClient, published: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"moment": "final", "stage": "publish-later"}
    page = get(browser, **asked)
    assert page.xpath("string(//h1)") == "Rollouts: End, publication later for c:d"
    assert (len(items(page)), len(items(get(browser, **asked, show="failure")))) == (8, 8)
    assert options(page, "skill")["publish/later/rival_skill.md"] == "rival"
    # In the tab of the publication's own DAG run, too.
    monkeypatch.setitem(app.dependency_overrides, row_of, lambda: DagRunRow({"run": "run", "target": "c:d"}, None))
    tab = rollout_list.DAG_RUN_ROUTE.format(dag_id="publish_searchqa", run_id="later")
    assert get(browser, tab).xpath("string(//h1)") == "Rollouts: End, publication later for c:d"
    assert get(browser, tab, moment="steps/step_0000").xpath("string(//h1)").startswith("Rollouts: Beginning")
    # The training calls its own publication by its id.
    other = TrainingRun(published.ref, published.connections, published.store)
    plan_publication(other, other.published, "publish-run", PublishingGroup())
    tab_of_same_id = rollout_list.DAG_RUN_ROUTE.format(dag_id="publish_searchqa", run_id="run")
    assert get(browser, tab_of_same_id).xpath("string(//h1)") == "Rollouts: End, publication publish-run"
    monkeypatch.setitem(app.dependency_overrides, row_of, lambda: DagRunRow({"run": "../run"}, None))
    assert "names no run of searchqa" in text(get_stored(browser, tab))
    # One that was planned when the contest did not say under which knobs.
    key = published.keys.publication("later").contest
    contest = published.store.get_model(key, PublicationPlan)
    published.store.put_model(key, contest.model_copy(update={"overrides": {}}))
    page = get(browser, **asked)
    assert page.xpath("string(//h1)") == "Rollouts: End, publication later"
    assert len(items(get(browser, **asked, show="success"))) == 8


def test_a_skill_shows_the_rollouts_of_all_runs(browser: TestClient, trained: StoredRun) -> None:
    seed, candidate = (skill.sha256[:12] for skill in (trained.seed, trained.candidate))
    page = follow(browser, get(browser, SKILL), f"//tr[contains(., '{seed}') and contains(., 'val')]//a", SKILL)
    assert items(page) == VAL
    assert list(options(page, "split")) == ["train", "val"]
    assert list(options(page, "other")) == ["", candidate]
    assert list(options(page, "task_type")) == ["", "even", "odd"]
    target = trained.run.config.model.target
    assert page.xpath("string(//h1)") == f"Rollouts: skill {seed} on the val split, {target}, chat"
    asked = {"skill": seed, "other": candidate, "split": "val"}
    assert items(get(browser, SKILL, **asked, show="flipped")) == [
        "val-02", "val-04", "val-08", "val-09", "val-10"
    ]  # fmt: skip
    assert len(get(browser, SKILL, **asked, mark=mark_of("val-02")).xpath("//div[@class='sides']/section")) == 2


def test_a_skill_under_several_settings_and_harnesses(browser: TestClient, trained: StoredRun) -> None:
    seed, rollouts = trained.seed.sha256[:12], [(item("val-01"), play(item("val-01"), ""))]
    key = trained.run.rollout_key(Split.VAL, trained.seed, 0)
    trained.run.rollouts.append(key.model_copy(update={"settings_sha256": "0" * 64}), "hot", rollouts)
    asked = {"skill": seed, "split": "val", "other": trained.candidate.sha256[:12]}
    page = get(browser, SKILL, **asked)
    assert (len(options(page, "variant")), len(items(page))) == (2, 12)
    hot = get(browser, SKILL, **asked, variant=1)
    assert items(hot) == ["val-01"]
    assert "different settings" in text(hot)
    for harness in ("aider", "tools"):
        trained.run.rollouts.append(key.model_copy(update={"harness": harness}), "others", rollouts)
    page = get(browser, SKILL, skill=seed, split="val")
    assert list(options(page, "harness")) == ["aider", "chat", "tools"]
    assert (chosen(page, "harness"), len(items(page))) == ("chat", 12)
    page = get(browser, SKILL, skill=seed, harness="tools", split="train")
    assert page.xpath("string(//h1)").endswith("on the val split, openai-chat:stand-in-target, tools")
    assert items(page) == ["val-01"]


def test_of_many_skills_some_can_be_chosen_beside_versions_first(
    browser: TestClient, trained: StoredRun, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained.run
    others = [SkillDocument(f"# Skill {number}\n") for number in range(5)]
    for skill in others:
        store_rollouts(run, Split.VAL, skill, [item("val-01")], play)
    target = run.rollout_key(Split.VAL, trained.seed, 0).target
    page_data.publish(store, "", "searchqa", target, [skill.text for skill in others[3:]])
    monkeypatch.setattr(rollout_query, "MAX_SKILLS", 3)
    monkeypatch.setattr(RolloutPartitions, "of_benchmark", lambda *asked: pytest.fail("all keys are listed"))
    asked = {"skill": trained.seed.sha256[:12], "split": "val"}
    newest, oldest = f"v0002-{others[4].sha256[:12]}", f"v0001-{others[3].sha256[:12]}"
    page = get(browser, SKILL, **asked)
    assert list(options(page, "other").values())[:3] == ["no other skill", newest, oldest]
    assert "Compare with (3 of 7 skills)" in text(page)
    page = get(browser, SKILL, **asked, other=min(skill.sha256 for skill in others[:3])[:12])
    assert page.xpath("count(//table[@class='rollouts']/thead//th[contains(., 'Difference')])") == 1
    key = run.rollout_key(Split.VAL, trained.seed, 1)
    run.rollouts.append(key, "again", [(item("val-01"), play(item("val-01"), ""))])
    page = get(browser, SKILL, **asked, sample=1, other=others[0].sha256[:12])
    assert "The other skill has no rollouts of this sample." in text(page)
    assert items(page) == ["val-01"]


def test_a_skill_without_rollouts_of_the_model_that_is_named_shows_no_other_s(
    browser: TestClient, trained: StoredRun
) -> None:
    seed, target = trained.seed.sha256[:12], str(trained.run.config.model.target)
    assert items(get(browser, SKILL, skill=seed, target=target, split="test", sample=1))
    for asked in ({"target": "c:d"}, {"target": target, "harness": "codex"}):
        said = text(get(browser, SKILL, 404, skill=seed, **asked))
        assert all(f"'{value}'" in said for value in (seed, *asked.values()))


def test_rollouts_that_are_gone_and_buckets_without_any(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there are no rollouts of skill" in text(get(browser, SKILL, 404, skill="0" * 12))
    assert "there is no rollout of such an item" in text(get(browser, expected=404, mark="0123456789abcdef"))
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: LocalStore())
    assert "Nothing is stored yet" in text(get(browser, expected=404))
    page = get(browser, SKILL)
    assert "No rollouts yet" in text(page)
    assert page.xpath("//a[@target='_top']/@href") == ["../../../dags/train_searchqa"]
    monkeypatch.setenv(dag_ids.PREFIX_VARIABLE, "team-a.")
    assert get(browser, SKILL).xpath("//a[@target='_top']/@href") == ["../../../dags/team-a.train_searchqa"]


@pytest.mark.parametrize(("name", "value"), [("page", "0"), ("show", "x"), ("mark", "../"), ("sample", "-1")])
def test_what_no_page_has_is_no_page(browser: TestClient, name: str, value: str) -> None:
    assert "does not understand" in text(get(browser, RUN, 422, **{name: value}))


def test_no_key_is_read_that_is_no_skill_or_run(browser: TestClient) -> None:
    for skill in ("../../runtime_state.json", "skills/skill_v9999.md"):
        page = get(browser, **STEP, skill=skill, other=skill)
        assert (chosen(page, "skill"), chosen(page, "other")) == (CANDIDATE, "")
    for run in ("..", "a%2Fb"):
        assert browser.get(rollout_list.RUN_ROUTE.format(benchmark="searchqa", run=run)).status_code == 404


def test_a_dag_run_has_the_page_as_a_tab(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.dependency_overrides, row_of, lambda: DagRunRow({}, None))
    path = rollout_list.DAG_RUN_ROUTE.format(dag_id="train_searchqa", run_id="run")
    assert items(get(browser, path, **STEP)) == VAL
    # Airflow shows the tab on runs of other teams' DAGs, too.
    assert "train_<benchmark>" in text(get_stored(browser, path.replace("train_searchqa", "skillopt_cleanup")))
    monkeypatch.setitem(app.dependency_overrides, row_of, lambda: None)
    assert "has no run run" in text(get(browser, path, 404))


@pytest.mark.parametrize("asked", [{}, {"other": SEED, "text": "a", "within": "said"}, {"mark": mark_of(FAILED)}])
def test_a_page_that_was_answered_has_written_nothing_and_keeps_no_rollouts_in_memory(
    browser: TestClient, store: LocalStore, asked: dict[str, str]
) -> None:
    stored = dict(store.objects)
    get(browser, **STEP, **asked)
    assert store.objects == stored
    gc.collect()
    before = pa.total_allocated_bytes()
    gc.disable()
    try:
        for _ in range(3):
            get(browser, **STEP, **asked)
        assert pa.total_allocated_bytes() == before
    finally:
        gc.enable()


def test_two_pages_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counting, going, most = threading.Lock(), 0, 0

    def show(*_: Any) -> Response:
        nonlocal going, most
        with counting:
            going += 1
            most = max(most, going)
        time.sleep(0.02)
        with counting:
            going -= 1
        return Response()

    monkeypatch.setattr(rollout_list, "_render", show)
    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(lambda _: rollout_list._respond(Mock(), Mock(), Mock()), range(8))]) == 8
    assert most == 2
