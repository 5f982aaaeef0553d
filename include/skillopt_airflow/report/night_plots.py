"""The nights of a skill as SVG: what the three skills scored, and the evidence about the champion with its limits."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from skillopt_airflow.core.night_verdict import NightPoint
from skillopt_airflow.report.plots import BLUE, INK, MUTED, ORANGE, PURPLE, RULE, VERMILLION, as_svg, drawing


class Role(NamedTuple):
    """The look of a skill that nights measure."""

    name: str
    label: str
    colour: str
    marker: str
    place: float
    """Days by which its points stand aside, so that intervals do not cover each other."""


ROLES = (
    Role("seed", "seed", MUTED, "P", 0.18),
    Role("previous", "champion before", ORANGE, "s", -0.18),
    Role("champion", "champion", BLUE, "o", 0.0),
)
EVIDENCE = (
    ("decline_to_previous", "worse than the champion before", VERMILLION, "v"),
    ("decline_to_seed", "worse than the seed", PURPLE, "X"),
    ("decline_to_promise", "below its published score", ORANGE, "D"),
)
"""Field of a judgement, what it is evidence for, and its look."""


class AliasEvent(NamedTuple):
    """A move of the alias, to be marked."""

    moment: datetime
    kind: str
    version: str


def nights_chart(points: Sequence[NightPoint], events: Sequence[AliasEvent]) -> str:
    """Plot the nights, at least one, with the events from a day before the first to a day after the last of them.

    Scores of different metrics are no series: nights under another one than the last night's are left out.
    """
    last = max(points, key=lambda point: point.date)
    ordered = sorted((point for point in points if point.metric == last.metric), key=lambda point: point.date)
    left_out = len(points) - len(ordered)
    with drawing("nights"):
        figure = Figure(figsize=(10.4, 6.2), layout="constrained")
        scores, evidence = figure.subplots(2, 1, sharex=True, height_ratios=[1.5, 1.0])
        _scores(scores, ordered)
        _evidence(evidence, ordered)
        # A night's own move comes on the day after its date, when its items are complete.
        day_before, day_after = _day(ordered[0]) - timedelta(days=1), _day(ordered[-1]) + timedelta(days=1)
        _events(scores, [one for one in events if day_before <= one.moment.date() <= day_after])
        evidence.set_xlim(day_before, day_after + timedelta(days=1))
        locator = AutoDateLocator(minticks=2, maxticks=9)  # type: ignore[no-untyped-call]
        evidence.xaxis.set_major_locator(locator)
        evidence.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        if left_out:
            evidence.set_xlabel(f"left out, under another metric: {left_out}")
        for one in (scores, evidence):
            one.grid(axis="y", color=RULE, linewidth=0.6)
            one.set_axisbelow(True)
            one.legend(loc="upper left", bbox_to_anchor=(0, 1.17 if one is scores else 1.22), ncols=4, fontsize=9)
        return as_svg(figure, "nights", "Nights of the skill", _described(ordered, events))


def _scores(axes: Axes, points: Sequence[NightPoint]) -> None:
    for role in ROLES:
        there = [point for point in points if role.name in point.scores]
        if not there:
            continue
        days = [_number(point) + role.place for point in there]
        means = [point.scores[role.name] for point in there]
        ends = [point.intervals.get(role.name, (mean, mean)) for point, mean in zip(there, means, strict=True)]
        below = [max(0.0, mean - low) for mean, (low, _) in zip(means, ends, strict=True)]
        above = [max(0.0, high - mean) for mean, (_, high) in zip(means, ends, strict=True)]
        axes.errorbar(
            days, means, yerr=(below, above), fmt="none", ecolor=role.colour, elinewidth=1, capsize=2, alpha=0.4
        )
        axes.plot(days, means, color=role.colour, linewidth=1.2, marker=role.marker, markersize=5, label=role.label)
    axes.set(ylabel=f"{points[-1].metric} score, 95 % intervals", ylim=(-0.02, 1.02))


def _evidence(axes: Axes, points: Sequence[NightPoint]) -> None:
    for field, label, colour, marker in EVIDENCE:
        known = [(point, getattr(point.judgement, field)) for point in points]
        there = [(_number(point), value) for point, value in known if value is not None]
        if there:
            axes.plot(*zip(*there, strict=True), color=colour, linewidth=1.2, marker=marker, markersize=4, label=label)
    last = points[-1].judgement
    axes.axhline(last.alarm, color=INK, linewidth=1, linestyle="--")
    axes.annotate("alarm", (1, last.alarm), xycoords=("axes fraction", "data"), ha="right",
                  va="bottom", fontsize=9, color=INK)  # fmt: skip
    axes.set(ylabel="CUSUM of a decline")
    axes.set_ylim(bottom=0.0)


def _events(axes: Axes, events: Sequence[AliasEvent]) -> None:
    for one in events:
        axes.axvline(one.moment, color=VERMILLION if one.kind == "demoted" else INK, linewidth=1)  # type: ignore[arg-type]
        axes.annotate(_label(one), (one.moment, 0.02), rotation=90, fontsize=9,
                      ha="right", va="bottom", color=INK)  # fmt: skip


def _label(event: AliasEvent) -> str:
    version = event.version.partition("-")[0]
    return f"{event.kind} {version}" if event.kind == "published" else f"{event.kind} to {version}"


def _day(point: NightPoint) -> date:
    return date.fromisoformat(point.date)


def _number(point: NightPoint) -> float:
    """Return the date as matplotlib counts days."""
    return float((_day(point) - date(1970, 1, 1)).days)


def _described(points: Sequence[NightPoint], events: Sequence[AliasEvent]) -> str:
    last = points[-1]
    scores = ", ".join(f"{role} {score:.4f}" for role, score in last.scores.items())
    moves = "; ".join(f"{one.moment:%Y-%m-%d} {_label(one)}" for one in events)
    return (
        f"{len(points)} nights from {points[0].date} to {last.date}. In the last one: {scores}; verdict "
        f"{last.judgement.verdict.value}. {moves} The table below has every score, and the reason for each verdict."
    )
