"""A night of re-gating: champion, the champion before it and the seed skill on the same fresh items."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.measured_score import require_coverage
from skillopt_airflow.core.night_verdict import Judgement, NightCounts, NightVerdict, judge_nights
from skillopt_airflow.core.paired import PairedTable, paired
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import JsonObject, Split
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.keys import RegateKeys, RunKeys
from skillopt_airflow.store.nights import Contender, Night, NightTable
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.quality import check_measured
from skillopt_airflow.training.rollouts import chunks_of, ids, store_plan
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.artifacts import ArtifactStore

log = logging.getLogger(__name__)

ROLES = ("champion", "seed", "previous")
"""In the order of the versions under which the night's run keeps their texts."""


class Contest(Document):
    """Who is measured, fixed when the night was prepared."""

    date: str
    champion: Contender
    seed: Contender
    previous: Contender | None


class LedgerRow(Document):
    """A night and the verdict after it, by all nights up to it."""

    night: Night
    judgement: Judgement


def night_table(run: TrainingRun) -> NightTable:
    """The nights of the run's benchmark and target."""
    keys = RegateKeys(run.ref.storage.prefix, run.ref.benchmark, str(run.config.model.target))
    return NightTable(run.store, keys)


def contest_of(date: str, artifacts: "ArtifactStore", seed: SkillDocument) -> Contest:
    """The champion, and the one that it followed.

    Raises:
        ConfigError: nothing is published.
    """
    history = artifacts.champion.history()
    if not history:
        raise ConfigError("nothing is published for this benchmark and target, so there is no champion to check")
    champion = history[-1]
    before = _before(history)
    return Contest(
        date=date,
        champion=Contender(version=champion.version, sha256=champion.sha256),
        seed=Contender(version="", sha256=seed.sha256),
        previous=None if before is None else Contender(version=before.version, sha256=before.sha256),
    )


def contest_again(run: TrainingRun, night: Night) -> tuple[Contest, list[str]]:
    """The contenders of a settled night, of whatever target, and their texts in the order of the roles."""
    contest = Contest(date=night.date, champion=night.champion, seed=night.seed, previous=night.previous)
    keys = RunKeys(run.ref.storage.prefix, run.ref.benchmark, night.run)
    return contest, [run.store.get_text(keys.skill(version)) for version, _ in _roles(contest)]


def plan_night(run: TrainingRun, contest: Contest, texts: Sequence[str]) -> list[JsonObject]:
    """Store who is measured and their texts, in the order of the roles; returns the chunks, equal texts once."""
    items = ids(run.items(Split.FRESH))
    run.store.put_model(run.keys.contest, contest)
    chunks = []
    for version, text in enumerate(texts):
        key = run.keys.skill(version)
        run.store.put_text(key, text)
        if text not in texts[:version]:
            for draw in range(run.config.evaluation.draws):
                chunks += chunks_of(run, "regate", key, Split.FRESH, items, draw)
    # As many for every target, since a night is one DAG run for all of them.
    each = len(chunks_of(run, "regate", "", Split.FRESH, items))
    return store_plan(run, run.timeline[0], "regate", chunks, least=len(ROLES) * run.config.evaluation.draws * each)


def plan_nothing(run: TrainingRun) -> list[JsonObject]:
    """The chunks of a night that is settled: as many as it had, all without items."""
    return store_plan(run, run.timeline[0], "regate", [])


def settle_night(run: TrainingRun) -> LedgerRow:
    """What the night found, stored once; with the verdict by all nights up to it.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score.
    """
    contest, rules = run.store.get_model(run.keys.contest, Contest), run.config.evaluation
    nights, keys = night_table(run), _keys(run)
    night = nights.read(contest.date)
    if night is None:
        check_measured(run, Split.FRESH, {role: run.skill(version) for version, role in _roles(contest)})
        evaluations = _evaluations(run, contest)
        champion = evaluations["champion"]
        night = nights.settle(
            Night(
                benchmark=run.ref.benchmark,
                target=str(run.config.model.target),
                date=contest.date,
                run=run.ref.run,
                champion=contest.champion,
                seed=contest.seed,
                previous=contest.previous,
                items=len(champion.scores),
                metric=rules.gate_metric,
                scores={
                    role: evaluation.mean(rules.gate_metric, rules.gate_mixed_weight)
                    for role, evaluation in evaluations.items()
                },
                against_seed=paired(champion, evaluations["seed"], rules),
                against_previous=(
                    paired(champion, evaluations["previous"], rules) if "previous" in evaluations else None
                ),
                settled=datetime.now(UTC),
            ),
            evaluations,
            rules.gate_mixed_weight,
        )
    row = judged(nights.all(), run.config.regate.alpha, night.date)
    run.store.put_model(keys.report(night.date), row)
    log.info("%s: %s, %s", night.date, row.judgement.verdict, row.judgement.reason)
    return row


def settled(run: TrainingRun) -> tuple[LedgerRow, list[Night]]:
    """The run's night, which is settled, with its verdict, and all nights of its benchmark and target."""
    date, nights = run.store.get_model(run.keys.contest, Contest).date, night_table(run).all()
    return judged(nights, run.config.regate.alpha, date), nights


def ledger(nights: Sequence[Night], alpha: float) -> list[LedgerRow]:
    """Each night with the verdict after it, of the champion that it measured."""
    return [judged(nights, alpha, night.date) for night in nights]


def judged(nights: Sequence[Night], alpha: float, date: str) -> LedgerRow:
    """A settled night with the verdict after it.

    A champion's evidence starts with its own first night, and against the champion before it with the first night
    on which these two met.
    """
    kept = [night for night in nights if night.date <= date]
    return LedgerRow(night=kept[-1], judgement=_judge(kept, alpha))


def declined(row: LedgerRow) -> bool:
    """Whether the champion became worse than one of its rivals."""
    return row.judgement.verdict in (NightVerdict.DEMOTE, NightVerdict.STALE)


def tells(run: TrainingRun, row: LedgerRow, nights: Sequence[Night]) -> bool:
    """Whether the run's night tells of a decline: the newest one does, unless another told it of this champion before.

    Which night did is kept, since judging the nights before again would not say it: a night that came late changes
    what they say, and evidence may swing.
    """
    if not declined(row) or nights[-1].date != row.night.date:
        return False
    return night_table(run).first_to_tell(row.night.champion, run.ref.run) == run.ref.run


def to_demote(row: LedgerRow, nights: Sequence[Night], artifacts: "ArtifactStore") -> Alias | None:
    """The alias that is to be moved back: only by the newest night, and only if it still names what was measured."""
    night, champion = row.night, artifacts.champion.read()
    if row.judgement.verdict is not NightVerdict.DEMOTE or champion is None:
        return None
    if champion.sha256 != night.champion.sha256:
        log.info("%s was measured, %s is the champion now: nothing to do", night.champion.version, champion.version)
        return None
    if any(other.date > night.date for other in nights):
        log.info("there are later nights than %s, which have the say", night.date)
        return None
    return champion


def demote(artifacts: "ArtifactStore", row: LedgerRow, seen: Alias, run: str) -> Alias:
    """Move the champion back to the one before it."""
    if row.night.previous is None:
        raise DataError(f"{row.night.date}: there is no champion before {seen.version}")
    reason = f"demoted on {row.night.date}: {row.judgement.reason}"
    return artifacts.roll_back(row.night.previous.version, run, reason, seen)


def _judge(nights: Sequence[Night], alpha: float) -> Judgement:
    """After the last of them."""
    last = nights[-1]
    own = [night for night in nights if night.champion.sha256 == last.champion.sha256]
    met = [
        _counts(night.against_previous)
        for night in own
        if night.previous == last.previous and night.against_previous is not None
    ]
    against_seed = [_counts(night.against_seed) for night in own if night.seed.sha256 == last.seed.sha256]
    return judge_nights(against_seed, met if last.previous is not None else None, alpha)


def _counts(table: PairedTable) -> NightCounts:
    return NightCounts(wins=table.wins, losses=table.losses)


def _evaluations(run: TrainingRun, contest: Contest) -> dict[str, Evaluation]:
    """By role; the champion before it is left out where it is the seed, which is measured anyway."""
    found = {}
    for version, role in _roles(contest):
        found[role] = measured(run, Split.FRESH, run.skill(version))
        measured_on = f"{contest.date}, the {role} skill on the fresh items"
        require_coverage(found[role], run.config.evaluation, measured_on)
    return found


def _roles(contest: Contest) -> list[tuple[int, str]]:
    """The versions under which the run keeps the texts, with the roles."""
    return [*enumerate(ROLES if contest.previous is not None else ROLES[:2])]


def _before(history: Sequence[Alias]) -> Alias | None:
    """The one that the champion followed: going back to an earlier one leaves all that came after that behind."""
    standing: list[Alias] = []
    for alias in history:
        earlier = [one.sha256 for one in standing]
        standing = [*standing[: earlier.index(alias.sha256)], alias] if alias.sha256 in earlier else [*standing, alias]
    return standing[-2] if len(standing) > 1 else None


def _keys(run: TrainingRun) -> RegateKeys:
    return RegateKeys(run.ref.storage.prefix, run.ref.benchmark, str(run.config.model.target))
