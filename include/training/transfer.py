"""What another target model does to the champion: the same nights under both models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from include.core.paired import PairedTable, paired_values
from include.core.signs import e_value
from include.core.types import Value
from include.store.keys import RegateKeys
from include.store.nights import Night, NightTable
from include.training.run import TrainingRun

if TYPE_CHECKING:
    from include.store.objects import ObjectStore


class TransferNight(Value):
    """Champion against seed on one night's items; None under a model for which the night is not settled."""

    date: str
    old: PairedTable | None
    new: PairedTable | None


class Pooled(Value):
    """Champion against seed on the items of all nights that both models have."""

    old: PairedTable
    new: PairedTable
    old_e_value: float
    """Evidence that the champion is better than the seed under the old model."""
    new_e_value: float


class TransferReport(Value):
    """One champion under two target models."""

    benchmark: str
    old_target: str
    new_target: str
    champion: str
    """Its version."""
    nights: tuple[TransferNight, ...]
    pooled: Pooled | None
    """None while no night is settled under both."""


def write_transfer(run: TrainingRun, base_target: str) -> TransferReport | None:
    """Write the report of the run's target beside the nights of that target; None for the base target itself."""
    target, benchmark, prefix = str(run.config.model.target), run.ref.benchmark, run.ref.storage.prefix
    if target == base_target:
        return None
    old, new = RegateKeys(prefix, benchmark, base_target), RegateKeys(prefix, benchmark, target)
    report = transfer(run.store, old, new)
    key = new.transfer(base_target)
    run.store.put_model(f"{key}.json", report)
    run.store.put_text(f"{key}.md", as_markdown(report))
    return report


def transfer(store: "ObjectStore", old: RegateKeys, new: RegateKeys) -> TransferReport:
    """The nights of the champion that was measured last under the new target."""
    tables = NightTable(store, old), NightTable(store, new)
    new_nights = tables[1].all()
    champion = new_nights[-1].champion
    under_new = {night.date: night for night in new_nights if night.champion.sha256 == champion.sha256}
    under_old = {night.date: night for night in tables[0].all() if night.champion.sha256 == champion.sha256}
    dates = sorted(under_old.keys() | under_new.keys())
    both = [date for date in dates if date in under_old and date in under_new]
    return TransferReport(
        benchmark=new.benchmark,
        old_target=old.target,
        new_target=new.target,
        champion=champion.version,
        nights=tuple(
            TransferNight(date=date, old=_table(under_old.get(date)), new=_table(under_new.get(date))) for date in dates
        ),
        pooled=_pooled(tables, both) if both else None,
    )


def as_markdown(report: TransferReport) -> str:
    """The report for people."""
    lines = [
        f"# {report.benchmark}: champion {report.champion} under another target",
        "",
        f"Old target `{report.old_target}`, new target `{report.new_target}`. Each cell is the champion's mean less "
        "the seed's on the same items, with a 95 % interval, and won:lost.",
        "",
        "| night | old | new |",
        "|---|---|---|",
        *(f"| {night.date} | {_cell(night.old)} | {_cell(night.new)} |" for night in report.nights),
    ]
    if report.pooled is not None:
        pooled = report.pooled
        lines += [
            f"| **all nights of both** | {_cell(pooled.old)}, E = {pooled.old_e_value:.3g} "
            f"| {_cell(pooled.new)}, E = {pooled.new_e_value:.3g} |"
        ]
    return "\n".join([*lines, ""])


def _pooled(tables: tuple[NightTable, NightTable], dates: Sequence[str]) -> Pooled:
    old, new = (paired_values(_pairs(table, dates)) for table in tables)
    return Pooled(
        old=old, new=new, old_e_value=e_value(old.wins, old.losses), new_e_value=e_value(new.wins, new.losses)
    )


def _pairs(table: NightTable, dates: Sequence[str]) -> list[tuple[float, float]]:
    rows = [(row["champion"], row["seed"]) for date in dates for row in table.scores(date)]
    return [(champion, seed) for champion, seed in rows if champion is not None and seed is not None]


def _table(night: Night | None) -> PairedTable | None:
    return None if night is None else night.against_seed


def _cell(table: PairedTable | None) -> str:
    if table is None:
        return "not settled"
    return f"{table.delta:+.4f} [{table.low:+.4f}, {table.high:+.4f}], {table.wins}:{table.losses}"
