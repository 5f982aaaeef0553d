"""The end of a night of re-gating: verdict, demotion and events."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, gate_value
from skillopt_airflow.core.gate.measured_score import require_coverage
from skillopt_airflow.core.gate.night_verdict import (
    MEMORY,
    RECENT,
    NightDecision,
    NightMean,
    NightPoint,
    NightVerdict,
    decide_nights,
)
from skillopt_airflow.core.gate.paired import differences, interval, paired
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, Split, canonical_json, sha256
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.night_table import Night, NightTable, Rival
from skillopt_airflow.training.champion.night_plan import NightLineup, fingerprints
from skillopt_airflow.training.prepare.benchmark_settings import other_connection
from skillopt_airflow.training.prepare.data_checks import check_measured
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

log = logging.getLogger(__name__)


DECLINES: Mapping[NightVerdict, str] = {
    NightVerdict.REGRESSED: "declined",
    NightVerdict.WORSE_THAN_SEED: "declined",
    NightVerdict.BELOW_PUBLISHED: "drifted",
}
"""Verdicts that emit an event, once per champion, and the word for each."""
DEMOTED = "demoted on "
"""Start of the reason of a demotion's alias move."""


class LedgerRow(Document):
    """A night with the verdict from all nights concluded up to it."""

    night: Night
    judgement: NightDecision
    warning: str = ""
    """Set if the night's score is below `regate.floor`."""


def night_table(run: TrainingRun) -> NightTable:
    return NightTable(run.store, _keys(run))


def conclude_night(run: TrainingRun) -> LedgerRow:
    """Store the night's result once; return it with the verdict up to it. Raise DataError for bad rows."""
    contest, nights, config = run.store.get_model(run.keys.contest, NightLineup), night_table(run), run.config
    night = nights.read(contest.date)
    if night is None:
        skills = {role: run.skill(version) for version, role in contest.roles}
        check_measured(run, Split.FRESH, skills)
        evaluations = {role: measured(run, Split.FRESH, skill) for role, skill in skills.items()}
        for role, evaluation in evaluations.items():
            require_coverage(evaluation, config.evaluation, f"{contest.date}, the {role} skill on the fresh items")
        found = night_of(run.ref, config, contest, evaluations, fingerprints(run.store, run.keys))
        night = nights.conclude(found, evaluations, config.evaluation.gate_mixed_weight)
    row = verdict_after(nights.all(), config.regate.alpha, night.date)
    floor, promised, score = config.regate.floor, night.promised, night.scores["champion"]
    if floor is not None and promised is not None and 100 * (promised.score - score) > floor:
        below = f"more than regate.floor = {floor:g} points below the published {promised.score:.4f}"
        row = row.model_copy(update={"warning": f"{night.date}: {score:.4f} is {below}"})
        log.warning("%s", row.warning)
    run.store.put_model(_keys(run).report(night.date), row)
    log.info("%s: %s, %s", night.date, row.judgement.verdict, row.judgement.reason)
    return row


def night_of(
    ref: RunRef,
    config: TrainConfig,
    contest: NightLineup,
    evaluations: Mapping[str, Evaluation],
    contents: Mapping[str, str],
) -> Night:
    """Return a night's result from the evaluations by role; `contents` has fingerprints by item id."""
    rules, champion, promised = config.evaluation, evaluations["champion"], contest.promised
    rivals: tuple[Rival, ...] = ("seed", "previous")
    against = {rival: differences(champion, evaluations[rival], rules) for rival in rivals if rival in evaluations}
    if promised is not None:
        # A promise counts as its interval's lower bound.
        against["promise"] = {item: gate_value(one, rules) - promised.low for item, one in champion.scores.items()}
    scored = {item for evaluation in evaluations.values() for item in evaluation.scores}
    return Night(
        benchmark=ref.benchmark,
        target=str(config.model.target),
        date=contest.date,
        run=ref.run,
        champion=contest.champion,
        seed=contest.seed,
        previous=contest.previous,
        items=len(champion.scores),
        metric=rules.gate_metric,
        mixed_weight=rules.gate_mixed_weight if rules.gate_metric == "mixed" else None,
        scores={role: evaluation.gate_mean(rules) for role, evaluation in evaluations.items()},
        against_seed=paired(champion, evaluations["seed"], rules),
        against_previous=paired(champion, evaluations["previous"], rules) if "previous" in evaluations else None,
        settled=datetime.now(UTC),
        means={rival: NightMean.of(values, champion.groups) for rival, values in against.items() if values},
        promised=promised,
        contents={item: contents[item] for item in sorted(scored & contents.keys())},
        intervals={role: interval(evaluation, rules) for role, evaluation in evaluations.items()},
    )


def concluded_night(run: TrainingRun) -> tuple[LedgerRow, list[Night]]:
    """Return the run's concluded night with its verdict, and all nights of its benchmark and target."""
    date, nights = run.store.get_model(run.keys.contest, NightLineup).date, night_table(run).all()
    return verdict_after(nights, run.config.regate.alpha, date), nights


def verdict_after(nights: Sequence[Night], alpha: float, date: str) -> LedgerRow:
    """Return a concluded night with its verdict; `nights` are in the order of conclusion.

    Nights count in the order of conclusion, not of their dates, so that verdicts are final. A champion's evidence
    starts with its first night. Against the previous champion it starts with the first night that measured both. If
    other champions were in between, older evidence doesn't count.
    """
    place = next(place for place, night in enumerate(nights) if night.date == date)
    seen = nights[: place + 1][-MEMORY:]
    last = seen[-1]
    # Differences in other metrics aren't evidence for this one.
    own = [one for one in seen if one.champion.sha256 == last.champion.sha256 and one.measure == last.measure]
    met = [night for night in own if night.previous == last.previous]
    same_seed = [night for night in own if night.seed.sha256 == last.seed.sha256]
    recent = {night.date for night in seen[-RECENT:]}
    judgement = decide_nights(
        _means_of(same_seed, "seed"),
        _means_of(met, "previous") if last.previous is not None else None,
        _means_of(own, "promise") if last.promised is not None else None,
        alpha,
        recent=len(_means_of([night for night in same_seed if night.date in recent], "seed")),
    )
    return LedgerRow(night=last, judgement=judgement)


def _means_of(nights: Sequence[Night], rival: Rival) -> list[NightMean]:
    return [mean for night in nights if (mean := night.means.get(rival)) is not None]


def may_report(run: TrainingRun, row: LedgerRow, nights: Sequence[Night]) -> bool:
    """Return whether the run's night may report its verdict: only the newest, and only once per champion."""
    what = DECLINES.get(row.judgement.verdict)
    if what is None or nights[-1].date != row.night.date:
        return False
    return night_table(run).reporter(row.night.champion.sha256, what) in (None, run.ref.run)


def claim_report(run: TrainingRun, news: JsonObject) -> bool:
    """Claim the report of this verdict for the run's night; return False if another night has it."""
    what = DECLINES[NightVerdict(str(news["verdict"]))]
    return night_table(run).claim_report(str(news["sha256"]), what, run.ref.run) == run.ref.run


def alias_to_demote(row: LedgerRow, nights: Sequence[Night], champion: Alias | None) -> Alias | None:
    """Return the alias to move back, for the newest night and the measured champion only."""
    night = row.night
    if row.judgement.verdict is not NightVerdict.REGRESSED or champion is None:
        return None
    if champion.sha256 != night.champion.sha256:
        log.info("%s was measured, %s is the champion now: nothing to do", night.champion.version, champion.version)
        return None
    if nights[-1].date != night.date:
        log.info("newer nights than %s were concluded and decide instead", night.date)
        return None
    return champion


def demote(run: TrainingRun) -> Alias | str:
    """Roll back the champion if `regate.on_demote` is rollback, else return why it stays. Raise Conflict."""
    (row, nights), champion = concluded_night(run), run.published.champion.read()
    seen = alias_to_demote(row, nights, champion) if run.config.regate.on_demote == "rollback" else None
    if seen is None:
        # This run may have moved the alias and been killed before it emitted the event.
        if champion is not None and champion.run == run.ref.run:
            return champion
        return f"{row.night.date}: {row.judgement.verdict}, nothing is moved back"
    if row.night.previous is None:
        raise DataError(f"{row.night.date}: there is no champion before {seen.version}")
    return run.published.roll_back(row.night.previous.version, run.ref.run, _reason(row), seen)


def rollback_question(run: TrainingRun) -> JsonObject | str:
    """Return the rollback to approve if `regate.on_demote` is ask; otherwise why there is no question.

    The DAG run's id names the champion to roll back, so that later nights don't ask again.
    """
    (row, nights), champion = concluded_night(run), run.published.champion.read()
    seen = alias_to_demote(row, nights, champion) if run.config.regate.on_demote == "ask" else None
    if seen is None or row.night.previous is None:
        return f"{row.night.date}: {row.judgement.verdict}, no question"
    storage = run.ref.storage.model_dump(mode="json")
    place = sha256(canonical_json([storage, row.night.target]))
    conf: JsonObject = {
        "version": row.night.previous.version,
        "leaving": seen.version,
        "reason": _reason(row),
        "approval": True,
        "model.target": row.night.target,
        "overrides": {
            **{f"storage.{key}": value for key, value in storage.items()},
            **other_connection(run.ref.benchmark, run.config),
        },
    }
    return {"run_id": f"demote__{seen.version}-{seen.sequence}-{place[:8]}", "conf": conf}


def decline_event(run: TrainingRun, base: str) -> JsonObject | str:
    """Return the event of the night's verdict, for the benchmark's own target only; or why there is none.

    The caller emits the event after `claim_report`.
    """
    (row, nights), alias = concluded_night(run), run.published.champion.read()
    night = row.night
    # The alias still names the measured champion, or was moved back because of this night.
    is_current = alias is not None and (
        alias.sha256 == night.champion.sha256 or alias.reason.startswith(_reason_prefix(night))
    )
    if night.target != base or not is_current or not may_report(run, row, nights):
        return f"{night.date}: {row.judgement.verdict}, no new event"
    return {
        "benchmark": run.ref.benchmark,
        "target": night.target,
        "date": night.date,
        "version": night.champion.version,
        "sha256": night.champion.sha256,
        **row.judgement.model_dump(mode="json"),
    }


def _reason(row: LedgerRow) -> str:
    return f"{_reason_prefix(row.night)} {row.judgement.reason}"


def _reason_prefix(night: Night) -> str:
    return f"{DEMOTED}{night.date}:"


def _keys(run: TrainingRun) -> RegateKeys:
    return RegateKeys(run.ref.storage.prefix, run.ref.benchmark, str(run.config.model.target))


MAX_POINTS = 400
"""Maximum of the newest nights in the document, more than a year."""


class NightSeries(Document):
    """The newest nights with their verdicts, in the order of conclusion."""

    points: tuple[NightPoint, ...]


def write_series(store: ObjectStore, keys: RegateKeys, alpha: float, row: LedgerRow) -> None:
    """Add a newly concluded night; compute missing ones again."""
    nights = NightTable(store, keys).all()[-MAX_POINTS:]
    stored = store.find_model(keys.series, NightSeries)
    points = () if stored is None else stored.points
    known = {point.date: point for point in points} | {row.night.date: point_of(row)}
    for night in nights:
        if night.date not in known:
            known[night.date] = point_of(verdict_after(nights, alpha, night.date))
    store.put_model(keys.series, NightSeries(points=tuple(known[night.date] for night in nights)))


def read_series(store: ObjectStore, keys: RegateKeys, most: int = MAX_POINTS) -> list[NightPoint]:
    """Return up to `most` of the newest nights, in the order of conclusion."""
    stored = store.find_model(keys.series, NightSeries)
    return [] if stored is None else list(stored.points[-most:])


def point_of(row: LedgerRow) -> NightPoint:
    """Return a night as a point of the series."""
    night = row.night
    return NightPoint(
        date=night.date,
        run=night.run,
        champion=night.champion.version,
        previous=None if night.previous is None else night.previous.version,
        items=night.items,
        metric=night.metric,
        scores=night.scores,
        intervals=night.intervals,
        judgement=row.judgement,
        settled=night.settled,
    )
