"""The settling of a night of re-gating: champion, the champion before it and the seed skill on the same fresh items."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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
from skillopt_airflow.store.tables.night_table import Night, NightTable, Rival
from skillopt_airflow.training.champion.night_plan import Contest, fingerprints
from skillopt_airflow.training.prepare.benchmark_settings import other_connection
from skillopt_airflow.training.prepare.data_checks import check_measured
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

if TYPE_CHECKING:
    from skillopt_airflow.store.objects import ObjectStore

log = logging.getLogger(__name__)


DECLINES: Mapping[NightVerdict, str] = {
    NightVerdict.DEMOTE: "declined",
    NightVerdict.STALE: "declined",
    NightVerdict.DRIFT: "drifted",
}
"""Verdicts that are told, and what each says of a champion; each of these is told once."""
DEMOTED = "demoted on "
"""Beginning of the reason with which a night moves the alias back."""


class LedgerRow(Document):
    """A night and the verdict after it, by all nights that were settled up to then."""

    night: Night
    judgement: NightDecision
    warning: str = ""
    """Set if the night's score is below `regate.floor`."""


def night_table(run: TrainingRun) -> NightTable:
    return NightTable(run.store, _keys(run))


def settle_night(run: TrainingRun) -> LedgerRow:
    """Store what the night found, once; return it with the verdict by all nights up to it.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score.
    """
    contest, nights, config = run.store.get_model(run.keys.contest, Contest), night_table(run), run.config
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
    contest: Contest,
    evaluations: Mapping[str, Evaluation],
    contents: Mapping[str, str],
) -> Night:
    """Return what a night found: the evaluations by role, and the fingerprints of its items by id."""
    rules, champion, promised = config.evaluation, evaluations["champion"], contest.promised
    rivals: tuple[Rival, ...] = ("seed", "previous")
    against = {rival: differences(champion, evaluations[rival], rules) for rival in rivals if rival in evaluations}
    if promised is not None:
        # What was promised counts as its interval's lower end.
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


def settled(run: TrainingRun) -> tuple[LedgerRow, list[Night]]:
    """Return the run's night, which is settled, with its verdict, and all nights of its benchmark and target."""
    date, nights = run.store.get_model(run.keys.contest, Contest).date, night_table(run).all()
    return verdict_after(nights, run.config.regate.alpha, date), nights


def ledger(nights: Sequence[Night], alpha: float) -> list[LedgerRow]:
    """Return each night with the verdict after it, of the champion that it measured, in the order of their arrival."""
    return [verdict_after(nights, alpha, night.date) for night in nights]


def verdict_after(nights: Sequence[Night], alpha: float, date: str) -> LedgerRow:
    """Return a settled night with the verdict after it; the nights are in the order of their arrival.

    Nights count from when they were settled on, whatever their dates, so that a verdict stands: what arrives later is
    evidence for later verdicts. A champion's evidence starts with its own first night, and against the champion before
    it with the first night on which these two met. One that others replaced meanwhile, such as until a rollback, has no
    evidence of what is long past.
    """
    place = next(place for place, night in enumerate(nights) if night.date == date)
    seen = nights[: place + 1][-MEMORY:]
    last = seen[-1]
    # Differences of other scores are no evidence of this one.
    own = [one for one in seen if one.champion.sha256 == last.champion.sha256 and one.measures_as(last)]
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
    return [mean for night in nights if (mean := night.against(rival)) is not None]


def is_news(run: TrainingRun, row: LedgerRow, nights: Sequence[Night]) -> bool:
    """Return whether the run's night may report its verdict: the newest may, unless another did for this champion."""
    what = DECLINES.get(row.judgement.verdict)
    if what is None or nights[-1].date != row.night.date:
        return False
    return night_table(run).reporter(row.night.champion.sha256, what) in (None, run.ref.run)


def first_to_tell(run: TrainingRun, news: JsonObject) -> bool:
    """Keep that the run's night reports these news, since evidence may swing; return False if another night does."""
    what = DECLINES[NightVerdict(str(news["verdict"]))]
    return night_table(run).claim_report(str(news["sha256"]), what, run.ref.run) == run.ref.run


def to_demote(row: LedgerRow, nights: Sequence[Night], champion: Alias | None) -> Alias | None:
    """Return the alias to move back: only by the newest night, and only if it still names what was measured."""
    night = row.night
    if row.judgement.verdict is not NightVerdict.DEMOTE or champion is None:
        return None
    if champion.sha256 != night.champion.sha256:
        log.info("%s was measured, %s is the champion now: nothing to do", night.champion.version, champion.version)
        return None
    if nights[-1].date != night.date:
        log.info("nights were settled after %s, which have the say", night.date)
        return None
    return champion


def demote(run: TrainingRun) -> Alias | str:
    """Move the champion back to the one before it where `regate.on_demote` says rollback; else return why it stays.

    Raises:
        Conflict: somebody else moved it meanwhile.
    """
    (row, nights), champion = settled(run), run.published.champion.read()
    seen = to_demote(row, nights, champion) if run.config.regate.on_demote == "rollback" else None
    if seen is None:
        # It may be this run that moved it, killed before it could tell.
        if champion is not None and champion.run == run.ref.run:
            return champion
        return f"{row.night.date}: {row.judgement.verdict}, nothing is moved back"
    if row.night.previous is None:
        raise DataError(f"{row.night.date}: there is no champion before {seen.version}")
    return run.published.roll_back(row.night.previous.version, run.ref.run, _reason(row), seen)


def question_of(run: TrainingRun) -> JsonObject | str:
    """Return the rollback that somebody has to approve where `regate.on_demote` says ask, or why nobody is asked.

    Its run has the name of what is left: who is asked once, is not asked again by each of the nights that follow.
    """
    (row, nights), champion = settled(run), run.published.champion.read()
    seen = to_demote(row, nights, champion) if run.config.regate.on_demote == "ask" else None
    if seen is None or row.night.previous is None:
        return f"{row.night.date}: {row.judgement.verdict}, nobody is asked"
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


def news_of(run: TrainingRun, base: str) -> JsonObject | str:
    """Return what the night's event of a verdict says, of the benchmark's own target only, or why there is none.

    Nothing is told by this: who emits the event asks `first_to_tell` before.
    """
    (row, nights), alias = settled(run), run.published.champion.read()
    night = row.night
    # The alias still names what the night measured, or was moved back because of it.
    stands = alias is not None and (alias.sha256 == night.champion.sha256 or alias.reason.startswith(_because(night)))
    if night.target != base or not stands or not is_news(run, row, nights):
        return f"{night.date}: {row.judgement.verdict}, which is no news"
    return {
        "benchmark": run.ref.benchmark,
        "target": night.target,
        "date": night.date,
        "version": night.champion.version,
        "sha256": night.champion.sha256,
        **row.judgement.model_dump(mode="json"),
    }


def _reason(row: LedgerRow) -> str:
    return f"{_because(row.night)} {row.judgement.reason}"


def _because(night: Night) -> str:
    return f"{DEMOTED}{night.date}:"


def _keys(run: TrainingRun) -> RegateKeys:
    return RegateKeys(run.ref.storage.prefix, run.ref.benchmark, str(run.config.model.target))


MAX_POINTS = 400
"""Nights that the document holds, the newest ones: more than a year of them."""


class NightSeries(Document):
    """The newest nights with the verdict after each, in the order in which they were settled."""

    points: tuple[NightPoint, ...]


def write_series(store: "ObjectStore", keys: RegateKeys, alpha: float, row: LedgerRow) -> None:
    """Add a night that was just settled; others that the document lacks are judged anew."""
    nights = NightTable(store, keys).all()[-MAX_POINTS:]
    stored = store.find_model(keys.series, NightSeries)
    points = () if stored is None else stored.points
    known = {point.date: point for point in points} | {row.night.date: point_of(row)}
    for night in nights:
        if night.date not in known:
            known[night.date] = point_of(verdict_after(nights, alpha, night.date))
    store.put_model(keys.series, NightSeries(points=tuple(known[night.date] for night in nights)))


def read_series(store: "ObjectStore", keys: RegateKeys, most: int = MAX_POINTS) -> list[NightPoint]:
    """Return the newest nights, at most so many, in the order in which they were settled."""
    stored = store.find_model(keys.series, NightSeries)
    return [] if stored is None else list(stored.points[-most:])


def point_of(row: LedgerRow) -> NightPoint:
    """Return what the document keeps of a night."""
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
