"""Nights of re-gating on the sample, in-process: settled once, judged by all nights, one report for two targets."""

import datetime
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby
from typing import Any

import pytest

from local.standin.economy import RULES
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.night_verdict import MEMORY, RECENT, NightMean, NightVerdict, gain
from skillopt_airflow.core.gate.paired import difference_interval, differences, paired
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import JsonObject, Split, Status
from skillopt_airflow.quality.fresh_items import content, fingerprint
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, PublishedScore
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys
from skillopt_airflow.store.tables.night_table import Contender, Night, NightTable, Promise
from skillopt_airflow.training.champion.night_conclusion import (
    DECLINES,
    LedgerRow,
    alias_to_demote,
    claim_report,
    conclude_night,
    decline_event,
    demote,
    may_report,
    night_table,
    verdict_after,
)
from skillopt_airflow.training.champion.night_plan import (
    earlier_lineup,
    lineup_of,
    measured_items,
    plan_night,
    promise_of,
)
from skillopt_airflow.training.champion.target_change import as_markdown, target_change, write_target_changes
from skillopt_airflow.training.prepare.preparation import save_run
from skillopt_airflow.training.prepare.records_to_items import checked_items
from skillopt_airflow.training.rollouts.rollout_plan import RolloutPlan, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from tests.page_data import ledger
from tests.store.test_artifacts import provenance
from tests.training.in_process import PROJECT, Training, configured, said
from tests.training.local_store import LocalStore

pytestmark = pytest.mark.slow

SEED = "# Seed\n\n- Answer the question.\n"
FORMER = f"# Former\n\n- {RULES[0]}\n"
CHAMPION = FORMER + "".join(f"- {rule}\n" for rule in RULES[1:4])
TARGET = "openai-chat:stand-in-target"
ALPHA = 0.05


def declined(row: LedgerRow) -> bool:
    return row.judgement.verdict in DECLINES


@dataclass
class Nights:
    """Nights of one target on one store."""

    store: LocalStore = field(default_factory=LocalStore)
    target: str = TARGET
    fail: Callable[[str, str], Status | None] = lambda stage, item_id: None
    carried_out: int = 0
    promised: Promise | None = None

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.store, ArtifactKeys("", "searchqa", TARGET))

    def publish(self, text: str) -> str:
        return self.artifacts.publish(text, provenance("run"), self.artifacts.champion.read()).version

    def measured(self, date: str, records: list[dict[str, Any]]) -> TrainingRun:
        """What the DAG's tasks do, one after the other, but for the last one."""
        config = configured("searchqa", {"model.target": self.target, "regate.on_demote": "rollback"})
        training = Training(config, name=f"regate-{date}-{self.target[-1]}", store=self.store, fail=self.fail)
        run = training.run
        items, quality = checked_items(run, config, "fresh", {Split.FRESH: records})
        save_run(run, config, items, quality, "sha256:in-process", {"target": None, "optimizer": None})
        if night_table(run).read(date) is None:
            contest = lineup_of(date, self.artifacts, SkillDocument(SEED))
            contest = contest.model_copy(update={"promised": self.promised})
            names = [contest.champion.version, *([] if contest.previous is None else [contest.previous.version])]
            champion, *previous = [self.artifacts.read(name).skill for name in names]
            training.run_containers(plan_night(run, contest, [champion, SEED, *previous]))
        self.carried_out += training.rollouts["regate"]
        return run

    def night(self, date: str, records: list[dict[str, Any]]) -> LedgerRow:
        return conclude_night(self.measured(date, records))

    def run(self, row: LedgerRow) -> TrainingRun:
        """The run of a night."""
        training = Training(configured("searchqa", {"model.target": self.target}), name=row.night.run, store=self.store)
        training.models.artifacts = self.store
        return training.run

    def tells(self, row: LedgerRow) -> bool:
        run = self.run(row)
        news = {"sha256": row.night.champion.sha256, "verdict": row.judgement.verdict}
        return may_report(run, row, self.all()) and claim_report(run, news)

    def all(self) -> list[Night]:
        return NightTable(self.store, RegateKeys("", "searchqa", self.target)).all()


@cache
def sample() -> list[dict[str, Any]]:
    path = PROJECT / "benchmarks" / "searchqa" / "sample" / "test" / "items.json"
    records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return records


def answered(adapter: Any, record: dict[str, Any], skill: str) -> str:
    system, *rest = adapter.messages(adapter.item(record).public, skill)
    return adapter.answer(str(said(system.content, [message.model_dump() for message in rest])["content"]))


def healthy(day: int, count: int = 12) -> list[dict[str, Any]]:
    """The world as it is, under ids of the day's own."""
    records = sample()
    chosen = [records[(day * count + index) % len(records)] for index in range(count)]
    return [record | {"id": f"{day}-{record['id']}"} for record in chosen]


@cache
def differing() -> list[dict[str, Any]]:
    """The items on which champion and the one before differ, in a world where the latter is right."""
    adapter = benchmarks.load("searchqa")
    told = [(record, answered(adapter, record, FORMER), answered(adapter, record, CHAMPION)) for record in sample()]
    return [record | {"answers": [former]} for record, former, champion in told if former and former != champion]


def changed(day: int, count: int = 12) -> list[dict[str, Any]]:
    """A world in which the champion before is right wherever the two differ."""
    records = differing()
    chosen = [records[(day * count + index) % len(records)] for index in range(count)]
    return [record | {"id": f"{day}-{index}-{record['id']}"} for index, record in enumerate(chosen)]


@pytest.fixture
def nights() -> Nights:
    return of_two_champions()


@pytest.fixture(scope="module")
def declining() -> tuple[Nights, list[LedgerRow]]:
    """Fifteen nights in a world in which the champion is worse, for tests that only look at them."""
    found = of_two_champions()
    return found, [found.night(date(day), changed(day)) for day in range(1, 16)]


def of_two_champions() -> Nights:
    found = Nights()
    found.publish(FORMER)
    found.publish(CHAMPION)
    return found


def date(day: int) -> str:
    return str(datetime.date(2026, 9, 1) + datetime.timedelta(day - 1))


@pytest.mark.nightly
def test_a_champion_that_got_worse_is_demoted_with_the_night_and_the_evidence(nights: Nights) -> None:
    rows = [nights.night(date(day), healthy(day)) for day in range(1, 6)]
    assert not any(declined(row) for row in rows)
    for day in range(6, 21):
        rows.append(nights.night(date(day), changed(day)))
        if declined(rows[-1]):
            break
    last = rows[-1]
    assert last.judgement.verdict is NightVerdict.REGRESSED
    seen = alias_to_demote(last, nights.all(), nights.artifacts.champion.read())
    assert seen is not None
    run = nights.run(last)
    alias = demote(run)
    assert isinstance(alias, Alias)
    assert alias.run == run.ref.run
    # A night before it moved nothing, and says so.
    assert demote(nights.run(rows[0])) == f"{rows[0].night.date}: {rows[0].judgement.verdict}, nothing is moved back"
    # Killed before it could tell, it finds what it did.
    assert demote(run) == alias
    assert nights.artifacts.read(alias.version).skill == FORMER
    assert alias.reason == f"demoted on {last.night.date}: {last.judgement.reason}"
    assert alias_to_demote(last, nights.all(), nights.artifacts.champion.read()) is None


def test_a_night_is_settled_once_however_often_it_is_done_again(nights: Nights) -> None:
    first = nights.night(date(1), healthy(1))
    before, ran = dict(nights.store.objects), nights.carried_out
    for _ in range(2):
        # Even if the partition holds something else by now.
        assert nights.night(date(1), changed(1)) == first
    ledger_keys = [key for key in before if key.startswith("regate/")]
    assert len(ledger_keys) == 5
    assert {key: nights.store.objects[key] for key in ledger_keys} == {key: before[key] for key in ledger_keys}
    assert nights.carried_out == ran


@pytest.mark.nightly
def test_nights_count_in_the_order_of_their_arrival(nights: Nights) -> None:
    late = of_two_champions()
    for day in (1, 2, 3):
        nights.night(date(day), changed(day) if day == 2 else healthy(day))
    for day, worlds_day in ((1, 1), (3, 2), (2, 3)):
        # What the other one had a day later or earlier.
        late.night(date(day), changed(2) if worlds_day == 2 else healthy(worlds_day))
    before = late.store.objects[RegateKeys("", "searchqa", TARGET).report(date(3))]
    assert [row.night.date for row in ledger(late.all(), ALPHA)] == [date(1), date(3), date(2)]
    for day in (1, 3):
        # What came after it changes no verdict.
        late.night(date(day), healthy(day))
    assert late.store.objects[RegateKeys("", "searchqa", TARGET).report(date(3))] == before
    in_order, arrived = ([row.judgement for row in ledger(one.all(), ALPHA)] for one in (nights, late))
    assert in_order == arrived


@pytest.mark.nightly
def test_an_older_night_does_not_move_the_alias(declining: tuple[Nights, list[LedgerRow]]) -> None:
    nights, rows = declining
    assert declined(rows[-1])
    as_bad = rows[0].model_copy(update={"judgement": rows[-1].judgement})
    assert alias_to_demote(as_bad, nights.all(), nights.artifacts.champion.read()) is None
    assert alias_to_demote(rows[-1], nights.all(), nights.artifacts.champion.read()) is not None


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
        assert len(store_plan(run, run.timeline[0], "regate", [])) == len(planned[-1])
        assert not any(chunk.item_ids for chunk in one.store.get_model(plan, RolloutPlan).chunks)
    assert [len(chunks) for chunks in planned] == [3, 3]
    assert [sum(len(chunk.item_ids) for chunk in chunks) for chunks in planned] == [36, 24]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("stored", "other"), [({}, {"metric": "soft"}), ({"mixed_weight": 0.5}, {"mixed_weight": 0.1})]
)
def test_nights_under_another_metric_are_no_evidence(
    declining: tuple[Nights, list[LedgerRow]], stored: dict[str, object], other: dict[str, object]
) -> None:
    _, rows = declining
    assert declined(rows[-1])
    found = [row.night.model_copy(update=stored) for row in rows]
    softer = [night.model_copy(update=other) for night in found[:-1]]
    alone = verdict_after([*softer, found[-1]], ALPHA, found[-1].date)
    assert alone.judgement == verdict_after(found[-1:], ALPHA, found[-1].date).judgement
    assert not declined(alone)


@pytest.mark.nightly
def test_a_decline_that_was_held_back_is_news_of_the_night_that_follows(nights: Nights) -> None:
    days, told = iter(range(1, 40)), []
    while len(told) < 2:
        day = next(days)
        row = nights.night(date(day), changed(day))
        if declined(row):
            # The first one's event is not emitted, since the DAG that it starts is paused.
            told.append(decline_event(nights.run(row), TARGET))
    assert [isinstance(news, dict) for news in told] == [True, True]


@pytest.mark.nightly
def test_a_decline_that_a_late_night_reveals_is_told_by_it(nights: Nights) -> None:
    day = 20
    while True:
        # Each night comes before those that were settled already.
        late = nights.night(date(day), changed(day))
        if declined(late):
            break
        assert not nights.tells(late)
        day -= 1
    assert nights.tells(late)
    assert alias_to_demote(late, nights.all(), nights.artifacts.champion.read()) is not None
    # Killed before Airflow heard of it, it tells it again.
    assert nights.tells(late)


@pytest.mark.nightly
def test_what_became_of_a_replaced_champion_is_no_news(nights: Nights) -> None:
    rows = [nights.night(date(1), changed(1))]
    while not declined(rows[-1]):
        rows.append(nights.night(date(len(rows) + 1), changed(len(rows) + 1)))
    run = nights.run(rows[-1])
    sha256 = rows[-1].night.champion.sha256

    def told() -> JsonObject | str:
        return decline_event(run, TARGET)

    assert isinstance(news := told(), dict)
    assert news["sha256"] == sha256
    # The rollback comes beside it, by the night itself or by whom it asked.
    alias = demote(run)
    assert isinstance(alias, Alias)
    assert told() == news
    artifacts = run.published
    forward = artifacts.roll_back(rows[-1].night.champion.version, "somebody", "a mistake", alias)
    previous = rows[-1].night.previous
    assert previous is not None
    artifacts.roll_back(previous.version, "rollback", alias.reason, forward)
    assert told() == news
    nights.publish(CHAMPION + "\nAnd nothing else.\n")
    assert told() == f"{rows[-1].night.date}: regressed, no new event"


@pytest.mark.nightly
def test_a_decline_that_swings_is_told_once(nights: Nights) -> None:
    told: list[bool] = []
    days = iter(range(1, 40))
    for world, verdict in ((changed, True), (partial(healthy, count=60), False), (changed, True)):
        settled = 0
        while settled < 2:
            day = next(days)
            row = nights.night(date(day), world(day))
            told.append(nights.tells(row))
            settled += declined(row) is verdict
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
        contest, texts = earlier_lineup(run, night)
        assert (contest.date, contest.champion, contest.seed) == (night.date, night.champion, night.seed)
        assert texts[:2] == [text, SEED]
        assert night.previous is not None
        assert [SkillDocument(one).sha256 for one in texts[2:]] == [night.previous.sha256]


@pytest.mark.nightly
def test_pooled_are_the_nights_on_which_both_models_had_the_same_contenders(nights: Nights) -> None:
    new = Nights(nights.store, target="openai-chat:stand-in-target-2")
    nights.night(date(1), healthy(1))
    nights.publish(CHAMPION + "\nAnd nothing else.\n")
    for day in (1, 2):
        new.night(date(day), healthy(day))
    nights.night(date(2), healthy(2))
    report = target_change(nights.store, *(RegateKeys("", "searchqa", target) for target in (TARGET, new.target)))
    # On the first one the old model had the champion before.
    assert [(row.old is None, row.new is None) for row in report.nights] == [(True, False), (False, False)]
    assert report.pooled is not None
    assert report.pooled.old.pairs == report.pooled.new.pairs == 12


def test_pooled_nights_are_one_observation_each_and_rest_on_the_groups_of_their_items() -> None:
    store, rules = LocalStore(), configured("searchqa", {}).evaluation
    champion, seed = (Contender(version=name, sha256=name) for name in ("v", ""))
    # One night is good for the champion, the other bad, under either model.
    outcomes = {date(1): [1.0, 1.0, 1.0, 0.0], date(2): [0.0, 0.0, 1.0, 0.0]}
    for target in (TARGET, f"{TARGET}-2"):
        for day, scores in outcomes.items():
            found = {
                role: Evaluation(
                    scores={f"{day}-{place}": ItemScore(hard=score, soft=score) for place, score in enumerate(values)},
                    groups={f"{day}-{place}": f"page {place // 2}" for place in range(len(values))},
                )
                for role, values in {"champion": scores, "seed": [0.0, 0.0, 0.0, 1.0]}.items()
            }
            night = Night(
                benchmark="searchqa",
                target=target,
                date=day,
                run=day,
                champion=champion,
                seed=seed,
                previous=None,
                items=len(scores),
                metric="hard",
                scores={role: evaluation.gate_mean(rules) for role, evaluation in found.items()},
                against_seed=paired(found["champion"], found["seed"], rules),
                against_previous=None,
                means={
                    "seed": NightMean.of(differences(found["champion"], found["seed"], rules), found["champion"].groups)
                },
                settled=datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC),
            )
            NightTable(store, RegateKeys("", "searchqa", target)).conclude(night, found, 0.5)
    pooled = target_change(store, *(RegateKeys("", "searchqa", target) for target in (TARGET, f"{TARGET}-2"))).pooled
    assert pooled is not None
    assert pooled.old == pooled.new
    assert (pooled.old.pairs, pooled.old.groups) == (8, 2)
    changes = [[1.0, 1.0, 1.0, -1.0], [0.0, 0.0, 1.0, -1.0]]
    assert (pooled.old.low, pooled.old.high) == difference_interval(changes)
    means = [NightMean(mean=0.5, variance=0.75, count=2), NightMean(mean=0.0, variance=0.5, count=2)]
    assert pooled.new_p == gain(means, MEMORY)


def test_the_night_of_every_item_is_known_also_under_another_id(nights: Nights) -> None:
    rows = [nights.night(date(day), healthy(day)) for day in (1, 2)]
    table, run = NightTable(nights.store, RegateKeys("", "searchqa", TARGET)), nights.run(rows[0])
    found = measured_items(run, table)
    assert found.by_id == {record["id"]: f"night {date(day)}" for day in (1, 2) for record in healthy(day)}
    adapter = benchmarks.load("searchqa")
    renamed = [adapter.item(record | {"id": "new"}) for record in healthy(2)]
    assert {found.by_content[fingerprint(content(item))] for item in renamed} == {f"night {date(2)}"}


@pytest.mark.nightly
def test_a_night_reads_as_much_however_many_went_before(nights: Nights) -> None:
    read = []
    for day in range(1, 7):
        reads: Counter[str] = Counter()
        nights.store.before_read = lambda key, reads=reads: reads.update([key])  # type: ignore[misc]
        row = nights.night(date(day), healthy(day, 3))
        measured_items(nights.run(row), NightTable(nights.store, RegateKeys("", "searchqa", TARGET)))
        read.append(sum(count for key, count in reads.items() if key.startswith("regate/")))
    assert len(set(read[1:])) == 1


@pytest.mark.nightly
def test_a_drop_that_all_contenders_share_is_seen_in_the_champions_own_score(nights: Nights) -> None:
    nights.promised = Promise(score=0.9, low=0.8)
    broken = [[record | {"answers": ["nobody knows"]} for record in healthy(day)] for day in range(1, 8)]
    rows = [nights.night(date(day), records) for day, records in enumerate(broken, 1)]
    assert {row.judgement.verdict for row in rows[:2]} == {NightVerdict.INCONCLUSIVE}
    assert rows[-1].judgement.verdict is NightVerdict.BELOW_PUBLISHED
    assert rows[-1].judgement.reason.startswith("below its published score, and no rival is better, CUSUM ")
    assert alias_to_demote(rows[-1], nights.all(), nights.artifacts.champion.read()) is None
    assert [nights.tells(row) for row in rows].count(True) == 1


MIXED = {"evaluation.gate_metric": "mixed", "evaluation.gate_mixed_weight": 0.9}
HARD = {"evaluation.gate_metric": "hard"}


@pytest.mark.parametrize(
    ("stored", "tested", "rules", "score"),
    [
        (HARD, True, {}, 0.7),
        (HARD, False, {}, None),
        ({"evaluation.gate_metric": "soft"}, True, {}, None),
        # In another harness it scores otherwise, which says nothing of the champion.
        (HARD, True, {"model.harness": "codex"}, None),
        (MIXED, True, MIXED, 0.79),
        (MIXED, True, MIXED | {"evaluation.gate_mixed_weight": 0.5}, None),
    ],
)
def test_what_the_manifest_states_of_items_that_nobody_selected_on_is_promised(
    stored: dict[str, Any], tested: bool, rules: dict[str, Any], score: float | None
) -> None:
    origin, artifacts = provenance("run"), Nights().artifacts
    test = PublishedScore(hard=0.7, soft=0.8, items=120, low=0.6, high=0.8) if tested else None
    scores = origin.best_scores.model_copy(update={"promised": test})
    config = {"evaluation": configured("searchqa", stored).evaluation.model_dump(mode="json")}
    made = origin.model_copy(update={"best_scores": scores, "config": config})
    promised = promise_of(artifacts, artifacts.publish("# A\n", made, None).version, configured("searchqa", rules))
    found = None if promised is None else (promised.score, promised.low)
    assert found == (None if score is None else (pytest.approx(score), 0.6))


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
    found = lineup_of(date(1), nights.artifacts, SkillDocument(SEED)).previous
    assert (found.version if found else "") == versions.get(previous, "")


@pytest.mark.nightly
def test_what_a_previous_alias_long_before_it_came_back_counts_for_nothing(nights: Nights) -> None:
    bad, good = nights.night(date(1), changed(1)).night, nights.night(date(2), healthy(2, 40)).night
    other = good.model_copy(update={"champion": good.champion.model_copy(update={"sha256": "0" * 64})})

    def last_of(*series: Night) -> LedgerRow:
        return ledger([night.model_copy(update={"date": date(1 + day)}) for day, night in enumerate(series)], ALPHA)[-1]

    assert declined(last_of(*[bad] * 20, *[other] * (MEMORY - 20), bad))
    assert last_of(*[bad] * 20, *[other] * MEMORY, bad).judgement == last_of(bad).judgement
    # For a gain the last nights of all count, too, and not the last of its own.
    assert "over 30 nights" in last_of(*[good] * 40).judgement.reason
    assert "over 5 nights" in last_of(*[good] * 40, *[other] * (RECENT - 5), good).judgement.reason


def test_too_many_failed_rollouts_settle_nothing(nights: Nights) -> None:
    nights.fail = lambda stage, item_id: Status.MODEL_ERROR if item_id.endswith(("1", "3", "5")) else None
    with pytest.raises(DataError, match=r"the champion skill on the fresh items: only [\d.]+% of the items"):
        nights.night(date(1), healthy(1))
    assert nights.all() == []


@pytest.mark.nightly
def test_two_targets_have_results_of_their_own_and_one_report_on_the_change(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Nights(nights.store, target="openai-chat:stand-in-target-2")
    for day in (1, 2, 3):
        nights.night(date(day), healthy(day))
    before = {key: nights.store.objects[key] for key in nights.store.list_keys("regate/")}
    for day in (2, 3, 4):
        new.night(date(day), healthy(day))
    assert before == {key: nights.store.objects[key] for key in before}
    keys = [RegateKeys("", "searchqa", target) for target in (TARGET, new.target)]
    report = target_change(nights.store, *keys)
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
    assert write_target_changes(run, TARGET) == [report]
    # A night of the base target changes the reports of all others.
    base = Training(configured("searchqa", {"model.target": TARGET}), name=f"regate-{date(1)}-t", store=nights.store)
    assert write_target_changes(base.run, TARGET) == [report]
    assert [key for key in nights.store.list_keys(keys[1].folder) if "/transfer/" in key] == [
        f"{keys[1].target_change(TARGET)}{suffix}" for suffix in (".json", ".md")
    ]
    # Of many nights only the last ones are pooled.
    monkeypatch.setattr("skillopt_airflow.training.champion.target_change.MEMORY", 1)
    last = target_change(nights.store, *keys)
    assert last.pooled is not None
    assert (last.nights, last.pooled.new.pairs) == (report.nights, 12)
