"""The champions' scores on the same nights under two target models."""

from collections.abc import Mapping, Sequence

from skillopt_airflow.core.gate.night_verdict import MEMORY, NightMean, gain
from skillopt_airflow.core.gate.paired import PairedTable, paired_values
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Value
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.night_table import Night, NightTable
from skillopt_airflow.training.run.run import TrainingRun


class TargetChangeNight(Value):
    """Champion against seed on a night's items; None under a model that didn't run the night."""

    date: str
    champion: str
    """Version measured under the new model, else under the old one."""
    old: PairedTable | None
    new: PairedTable | None


class Pooled(Value):
    """Champion against seed on items scored under both models; groups are nights."""

    old: PairedTable
    new: PairedTable
    old_p: float | None
    """p-value of the last nights under the old model, see `gain`: champion better than seed."""
    new_p: float | None


class TargetChangeReport(Document):
    """The champion of each night under two target models."""

    benchmark: str
    old_target: str
    new_target: str
    champion: str
    """The last version measured under the new model."""
    nights: tuple[TargetChangeNight, ...]
    pooled: Pooled | None
    """Up to MEMORY last nights together that measured this champion against the same seed under both models; None if
    there are none."""


def write_target_changes(run: TrainingRun, base_target: str) -> list[TargetChangeReport]:
    """Write the target's report next to its nights; for the base target, write all reports."""
    target, benchmark, prefix = str(run.config.model.target), run.ref.benchmark, run.ref.storage.prefix
    old, others = RegateKeys(prefix, benchmark, base_target), [target]
    if target == base_target:
        keys = run.store.list_keys(RegateKeys.of_benchmark(prefix, benchmark))
        others = [other for other in RegateKeys.targets(keys, prefix, benchmark) if other != base_target]
    reports = []
    for other in others:
        new = RegateKeys(prefix, benchmark, other)
        report = target_change(run.store, old, new)
        run.store.put_model(f"{new.target_change(base_target)}.json", report)
        run.store.put_text(f"{new.target_change(base_target)}.md", as_markdown(report))
        reports.append(report)
    return reports


def target_change(store: ObjectStore, old: RegateKeys, new: RegateKeys) -> TargetChangeReport:
    """Compare the nights with equal contenders under both models; include nights of one model only."""
    tables = NightTable(store, old), NightTable(store, new)
    under_old, under_new = ({night.date: night for night in table.all()} for table in tables)
    newest = under_new[max(under_new)].champion
    nights = []
    for date in sorted(under_old.keys() | under_new.keys()):
        before, after = under_old.get(date), under_new.get(date)
        if before is not None and after is not None and _contenders(before) != _contenders(after):
            before = None
        shown = before if after is None else after
        if shown is not None:
            nights.append(
                TargetChangeNight(date=date, champion=shown.champion.version, old=_table(before), new=_table(after))
            )
    both = [
        night.date
        for night in nights
        if night.old is not None and night.new is not None and under_new[night.date].champion == newest
    ]
    # Differences in another metric or from another seed aren't comparable.
    both = [date for date in both if _contenders(under_new[date]) == _contenders(under_new[both[-1]])]
    return TargetChangeReport(
        benchmark=new.benchmark,
        old_target=old.target,
        new_target=new.target,
        champion=newest.version,
        nights=tuple(nights),
        # A fixed window keeps the work per night constant.
        pooled=_pooled(tables, [(under_old[date], under_new[date]) for date in both[-MEMORY:]]),
    )


def as_markdown(report: TargetChangeReport) -> str:
    lines = [
        f"# {report.benchmark}: champions under another target",
        "",
        f"Old target `{report.old_target}`, new target `{report.new_target}`. Each cell is the champion's mean minus "
        "the seed's on the same items, with a 95% interval, and won:lost.",
        "",
        "| night | champion | old | new |",
        "|---|---|---|---|",
        *(
            f"| {night.date} | `{night.champion}` | {_cell(night.old)} | {_cell(night.new)} |"
            for night in report.nights
        ),
    ]
    if report.pooled is not None:
        pooled = report.pooled
        lines += [
            f"| **nights of both, the last {MEMORY}** | `{report.champion}` "
            f"| {_cell(pooled.old)}{_p(pooled.old_p)} | {_cell(pooled.new)}{_p(pooled.new_p)} |"
        ]
    return "\n".join([*lines, ""])


def _pooled(tables: tuple[NightTable, NightTable], nights: Sequence[tuple[Night, Night]]) -> Pooled | None:
    """Compare pairs (old, new) of nights; a night is one observation."""
    dates: list[str] = []
    pairs: tuple[list[tuple[float, float]], ...] = [], []
    means: tuple[list[NightMean], ...] = [], []
    for night in nights:
        before, after = (table.scores(one.date) for table, one in zip(tables, night, strict=True))
        found = [(_pair(before[item]), _pair(after[item])) for item in sorted(before.keys() & after.keys())]
        both = [(old, new) for old, new in found if old is not None and new is not None]
        if both:
            dates += [night[0].date] * len(both)
            for one, side, pooled, mean in zip(night, zip(*both, strict=True), pairs, means, strict=True):
                pooled += side
                mean.append(_mean(side, one))
    if not dates:
        return None
    old, new = (paired_values(pooled, dates) for pooled in pairs)
    old_p, new_p = (gain(mean, MEMORY) for mean in means)
    return Pooled(old=old, new=new, old_p=old_p, new_p=new_p)


def _mean(pairs: Sequence[tuple[float, float]], night: Night) -> NightMean:
    """Return the mean over a part of a night's items; it has at most the whole night's groups."""
    found = NightMean.of({str(place): mine - other for place, (mine, other) in enumerate(pairs)}, {})
    whole = night.means.get("seed")
    return found if whole is None else found.model_copy(update={"count": min(found.count, whole.count)})


def _pair(scores: Mapping[str, float | None]) -> tuple[float, float] | None:
    champion, seed = scores["champion"], scores["seed"]
    return None if champion is None or seed is None else (champion, seed)


def _contenders(night: Night) -> tuple[str, str, str, float | None]:
    return night.champion.sha256, night.seed.sha256, night.metric, night.mixed_weight


def _table(night: Night | None) -> PairedTable | None:
    return None if night is None else night.against_seed


def _cell(table: PairedTable | None) -> str:
    if table is None:
        return "not measured"
    return f"{table.delta:+.4f} [{table.low:+.4f}, {table.high:+.4f}], {table.wins}:{table.losses}"


def _p(value: float | None) -> str:
    return "" if value is None else f", p = {value:.2g}"
