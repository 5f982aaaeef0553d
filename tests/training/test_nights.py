"""Nights of re-gating on the sample, in-process: settled once, judged by all nights, one report for two targets."""

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.night_verdict import NightVerdict
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys
from skillopt_airflow.store.night_table import Night, NightTable
from skillopt_airflow.training.night import (
    LedgerRow,
    declined,
    demote,
    ledger,
    night_table,
    settle_night,
    tells,
    to_demote,
)
from skillopt_airflow.training.night_plan import contest_again, contest_of, plan_night, plan_nothing
from skillopt_airflow.training.preparation import checked_items, settle
from skillopt_airflow.training.rollout_plan import RolloutPlan
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.transfer import as_markdown, transfer, write_transfers
from tests.store.test_artifacts import provenance
from tests.training.in_process import PROJECT, Training, configured, said
from tests.training.local_store import LocalStore

pytestmark = pytest.mark.slow

SEED = "# Seed\n\n- Rely on the last document, which sums the others up.\n"
FORMER = "# Former\n\n- Leave out words of the question: what the clue already says is not what it asks for.\n"
CHAMPION = f"""{FORMER}- Weigh titles more than running text: a page about the answer often carries it as its title.
- Prefer documents that share the question's words; the others are about something else.
- Prefer phrases that recur across several documents to ones that a single document repeats.
"""
TARGET = "openai-chat:stand-in-target"
ALPHA = 0.05


@dataclass
class Nights:
    """Nights of one target on one store."""

    store: LocalStore = field(default_factory=LocalStore)
    target: str = TARGET
    fail: Callable[[str, str], Status | None] = lambda stage, item_id: None
    carried_out: int = 0

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.store, ArtifactKeys("", "searchqa", TARGET))

    def publish(self, text: str) -> str:
        return self.artifacts.publish(text, provenance("run"), self.artifacts.champion.read()).version

    def night(self, date: str, records: list[dict[str, Any]]) -> LedgerRow:
        """What the DAG's tasks do, one after the other."""
        config = configured("searchqa", {"model.target": self.target, "regate.on_demote": "rollback"})
        training = Training(config, name=f"regate-{date}-{self.target[-1]}", store=self.store, fail=self.fail)
        run = training.run
        items, quality = checked_items(run, config, "fresh", {Split.FRESH: records})
        settle(run, config, items, quality, "sha256:in-process", {"target": None, "optimizer": None})
        if night_table(run).read(date) is None:
            contest = contest_of(date, self.artifacts, SkillDocument(SEED))
            names = [contest.champion.version, *([] if contest.previous is None else [contest.previous.version])]
            champion, *previous = [self.artifacts.read(name).skill for name in names]
            training.run_containers(plan_night(run, contest, [champion, SEED, *previous]))
        self.carried_out += training.rollouts["regate"]
        return settle_night(run)

    def run(self, row: LedgerRow) -> TrainingRun:
        """The run of a night."""
        training = Training(configured("searchqa", {"model.target": self.target}), name=row.night.run, store=self.store)
        training.models.artifacts = self.store
        return training.run

    def tells(self, row: LedgerRow) -> bool:
        return tells(self.run(row), row, self.all())

    def all(self) -> list[Night]:
        return NightTable(self.store, RegateKeys("", "searchqa", self.target)).all()


def sample() -> list[dict[str, Any]]:
    path = PROJECT / "benchmarks" / "searchqa" / "sample" / "test" / "items.json"
    records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return records


def answered(record: dict[str, Any], skill: str) -> str:
    adapter = benchmarks.load("searchqa")
    system, *rest = adapter.messages(adapter.item(record).public, skill)
    return adapter.answer(str(said(system.content, [message.model_dump() for message in rest])["content"]))


def healthy(day: int, count: int = 12) -> list[dict[str, Any]]:
    """The world as it is, under ids of the day's own."""
    records = sample()
    chosen = [records[(day * count + index) % len(records)] for index in range(count)]
    return [record | {"id": f"{day}-{record['id']}"} for record in chosen]


def changed(day: int, count: int = 12) -> list[dict[str, Any]]:
    """A world in which the champion before is right wherever the two differ."""
    told = [(record, answered(record, FORMER), answered(record, CHAMPION)) for record in sample()]
    differing = [record | {"answers": [former]} for record, former, champion in told if former and former != champion]
    chosen = [differing[(day * count + index) % len(differing)] for index in range(count)]
    return [record | {"id": f"{day}-{index}-{record['id']}"} for index, record in enumerate(chosen)]


@pytest.fixture
def nights() -> Nights:
    found = Nights()
    found.publish(FORMER)
    found.publish(CHAMPION)
    return found


def date(day: int) -> str:
    return str(datetime.date(2026, 9, 1) + datetime.timedelta(day - 1))


def test_a_healthy_champion_is_kept_every_night(nights: Nights) -> None:
    rows = [nights.night(date(day), healthy(day, 40)) for day in range(1, 11)]
    assert {row.judgement.verdict for row in rows} == {NightVerdict.KEEP}
    assert [row.night.date for row in ledger(nights.all(), ALPHA)] == [date(day) for day in range(1, 11)]
    assert rows[-1].night.previous is not None
    assert rows[-1].judgement.gain_on_seed > rows[0].judgement.gain_on_seed


def test_a_champion_that_got_worse_is_demoted_with_the_night_and_the_evidence(nights: Nights) -> None:
    rows = [nights.night(date(day), healthy(day)) for day in range(1, 12)]
    assert not any(declined(row) for row in rows)
    for day in range(12, 20):
        rows.append(nights.night(date(day), changed(day)))
        if declined(rows[-1]):
            break
    last = rows[-1]
    assert last.judgement.verdict is NightVerdict.DEMOTE
    seen = to_demote(last, nights.all(), nights.artifacts)
    assert seen is not None
    run = nights.run(last)
    alias = demote(run)
    assert alias is not None
    assert alias.run == run.ref.run
    # Killed before it could tell, it finds what it did.
    assert demote(run) == alias
    assert nights.artifacts.read(alias.version).skill == FORMER
    assert alias.reason == f"demoted on {last.night.date}: {last.judgement.reason}"
    assert to_demote(last, nights.all(), nights.artifacts) is None


def test_a_night_is_settled_once_however_often_it_is_done_again(nights: Nights) -> None:
    first = nights.night(date(1), healthy(1))
    before, ran = dict(nights.store.objects), nights.carried_out
    for _ in range(2):
        # Even if the partition holds something else by now.
        assert nights.night(date(1), changed(1)) == first
    ledger_keys = [key for key in before if key.startswith("regate/")]
    assert len(ledger_keys) == 3
    assert {key: nights.store.objects[key] for key in ledger_keys} == {key: before[key] for key in ledger_keys}
    assert nights.carried_out == ran


def test_a_night_that_comes_late_takes_its_place(nights: Nights) -> None:
    late = Nights()
    late.publish(FORMER)
    late.publish(CHAMPION)
    for day in (1, 2, 3):
        nights.night(date(day), healthy(day))
    for day in (1, 3, 2):
        late.night(date(day), healthy(day))
    judged = [[row.judgement for row in ledger(one.all(), ALPHA)] for one in (nights, late)]
    assert judged[0] == judged[1]


def test_an_older_night_does_not_move_the_alias(nights: Nights) -> None:
    rows = [nights.night(date(day), changed(day)) for day in (1, 2, 3, 4, 5)]
    assert declined(rows[-1])
    as_bad = rows[0].model_copy(update={"judgement": rows[-1].judgement})
    assert to_demote(as_bad, nights.all(), nights.artifacts) is None
    assert to_demote(rows[-1], nights.all(), nights.artifacts) is not None


def test_a_night_is_as_many_chunks_whoever_is_measured_and_when_it_is_settled(nights: Nights) -> None:
    only = Nights()
    only.publish(CHAMPION)
    planned = []
    for one in (nights, only):
        one.night(date(1), healthy(1))
        run = Training(
            configured("searchqa", {"model.target": TARGET}), name=f"regate-{date(1)}-t", store=one.store
        ).run
        plan = run.keys.moment(run.timeline[0]).plan("regate")
        planned.append(one.store.get_model(plan, RolloutPlan).chunks)
        assert len(plan_nothing(run)) == len(planned[-1])
        assert not any(chunk.item_ids for chunk in one.store.get_model(plan, RolloutPlan).chunks)
    assert [len(chunks) for chunks in planned] == [3, 3]
    assert [sum(len(chunk.item_ids) for chunk in chunks) for chunks in planned] == [36, 24]


def test_a_decline_is_told_once(nights: Nights) -> None:
    rows, told = [], []
    for day in range(1, 9):
        rows.append(nights.night(date(day), changed(day)))
        told.append(nights.tells(rows[-1]))
    assert [declined(row) for row in rows].count(True) >= 2
    assert told.count(True) == 1
    assert told.index(True) == [declined(row) for row in rows].index(True)
    # Nor again by a night of the past that is cleared.
    assert not any(nights.tells(row) for row in rows)


def test_a_decline_that_a_late_night_reveals_is_told_by_the_next(nights: Nights) -> None:
    assert not nights.tells(nights.night(date(1), changed(1, 3)))
    assert not nights.tells(nights.night(date(3), changed(3, 3)))
    late = nights.night(date(2), changed(2, 40))
    assert declined(late)
    assert not nights.tells(late)
    next_night = nights.night(date(4), changed(4, 3))
    assert nights.tells(next_night)
    # Killed before Airflow heard of it, it tells it again.
    assert nights.tells(next_night)


def test_a_decline_that_swings_is_told_once(nights: Nights) -> None:
    told = [nights.tells(nights.night(date(day), changed(day, 12))) for day in range(1, 4)]
    told += [nights.tells(nights.night(date(day), healthy(day, 60))) for day in range(4, 7)]
    told += [nights.tells(nights.night(date(day), changed(day, 40))) for day in range(7, 10)]
    verdicts = [declined(row) for row in ledger(nights.all(), ALPHA)]
    assert [verdict for verdict, _ in groupby(verdicts)] in ([False, True, False, True], [True, False, True])
    assert told.count(True) == 1


def test_the_nights_of_another_model_are_of_the_champion_of_those_nights(nights: Nights) -> None:
    first = nights.night(date(1), healthy(1)).night
    nights.publish(CHAMPION + "\nAnd nothing else.\n")
    second = nights.night(date(2), healthy(2)).night
    assert first.champion != second.champion
    run = Training(configured("searchqa", {"model.target": f"{TARGET}-2"}), name="other", store=nights.store).run
    for night, text in ((first, CHAMPION), (second, CHAMPION + "\nAnd nothing else.\n")):
        contest, texts = contest_again(run, night)
        assert (contest.date, contest.champion, contest.seed) == (night.date, night.champion, night.seed)
        assert texts[:2] == [text, SEED]
        assert night.previous is not None
        assert [SkillDocument(one).sha256 for one in texts[2:]] == [night.previous.sha256]


def test_pooled_are_the_nights_on_which_both_models_had_the_same_contenders(nights: Nights) -> None:
    new = Nights(nights.store, target="openai-chat:stand-in-target-2")
    nights.night(date(1), healthy(1))
    nights.publish(CHAMPION + "\nAnd nothing else.\n")
    for day in (1, 2):
        new.night(date(day), healthy(day))
    nights.night(date(2), healthy(2))
    report = transfer(nights.store, *(RegateKeys("", "searchqa", target) for target in (TARGET, new.target)))
    # On the first one the old model had the champion before.
    assert [(row.old is None, row.new is None) for row in report.nights] == [(True, False), (False, False)]
    assert report.pooled is not None
    assert report.pooled.old.pairs == report.pooled.new.pairs == 12


def test_the_night_of_every_item_is_known(nights: Nights) -> None:
    for day in (1, 2):
        nights.night(date(day), healthy(day))
    found = NightTable(nights.store, RegateKeys("", "searchqa", TARGET)).dates_of_items()
    assert found == {record["id"]: date(day) for day in (1, 2) for record in healthy(day)}


@pytest.mark.parametrize(
    ("moves", "previous"),
    [("A", ""), ("AB", "A"), ("ABC", "B"), ("ABA", ""), ("ABAB", "A"), ("ZABAB", "A"), ("ABCA", ""), ("ABAC", "A")],
)
def test_going_back_leaves_all_behind_that_came_after(moves: str, previous: str) -> None:
    nights = Nights()
    texts = {name: f"# {name}\n" for name in moves}
    versions: dict[str, str] = {}
    for name in moves:
        present = nights.artifacts.champion.read()
        if name in versions:
            nights.artifacts.roll_back(versions[name], "rollback", "why", present)
        else:
            versions[name] = nights.publish(texts[name])
    found = contest_of(date(1), nights.artifacts, SkillDocument(SEED)).previous
    assert (found.version if found else "") == versions.get(previous, "")


def test_after_a_rollback_the_demoted_skill_is_no_rival_any_more(nights: Nights) -> None:
    champion = nights.artifacts.champion.read()
    assert champion is not None
    assert champion.previous is not None
    nights.artifacts.roll_back(champion.previous, "rollback", "why", champion)
    row = nights.night(date(1), healthy(1))
    assert row.night.previous is None
    assert row.night.against_previous is None
    assert row.judgement.decline_to_previous is None


def test_a_new_champion_starts_with_evidence_of_its_own(nights: Nights) -> None:
    nights.night(date(1), healthy(1))
    nights.publish(CHAMPION + "\nAnd nothing else.\n")
    row = nights.night(date(2), healthy(2))
    assert row.judgement == ledger([row.night], ALPHA)[0].judgement


def test_too_many_failed_rollouts_settle_nothing(nights: Nights) -> None:
    nights.fail = lambda stage, item_id: Status.MODEL_ERROR if item_id.endswith(("1", "3", "5")) else None
    with pytest.raises(DataError, match=r"the champion skill on the fresh items: only \d+% of the items have a score"):
        nights.night(date(1), healthy(1))
    assert nights.all() == []


def test_without_a_champion_there_is_nothing_to_check() -> None:
    with pytest.raises(ConfigError, match="nothing is published"):
        contest_of(date(1), Nights().artifacts, SkillDocument(SEED))


def test_two_targets_have_results_of_their_own_and_one_transfer_report(nights: Nights) -> None:
    new = Nights(nights.store, target="openai-chat:stand-in-target-2")
    for day in (1, 2, 3):
        nights.night(date(day), healthy(day))
    before = {key: nights.store.objects[key] for key in nights.store.list_keys("regate/")}
    for day in (2, 3, 4):
        new.night(date(day), healthy(day))
    assert before == {key: nights.store.objects[key] for key in before}
    keys = [RegateKeys("", "searchqa", target) for target in (TARGET, new.target)]
    report = transfer(nights.store, *keys)
    assert [(row.date, row.old is not None, row.new is not None) for row in report.nights] == [
        (date(1), True, False),
        (date(2), True, True),
        (date(3), True, True),
        (date(4), False, True),
    ]
    assert report.pooled is not None
    wins = sum(row.new.wins for row in report.nights if row.new is not None and row.old is not None)
    assert (report.pooled.new.wins, report.pooled.new.pairs) == (wins, 24)
    assert f"| {date(1)} | `{report.champion}` | +" in as_markdown(report)
    config = configured("searchqa", {"model.target": new.target})
    run = Training(config, name=f"regate-{date(4)}-2", store=nights.store).run
    assert write_transfers(run, TARGET) == [report]
    # A night of the base target changes the reports of all others.
    base = Training(configured("searchqa", {"model.target": TARGET}), name=f"regate-{date(1)}-t", store=nights.store)
    assert write_transfers(base.run, TARGET) == [report]
    assert [key for key in nights.store.list_keys(keys[1].folder) if "/transfer/" in key] == [
        f"{keys[1].transfer(TARGET)}{suffix}" for suffix in (".json", ".md")
    ]
