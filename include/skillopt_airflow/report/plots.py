"""Plots of a report and of a skill's nights as embeddable SVG; the same view gives the same bytes."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from html import escape
from io import StringIO
from threading import Lock
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.gate.night_verdict import NightPoint
from skillopt_airflow.core.run.budget import StageCost
from skillopt_airflow.core.run.history import History, MomentHistory

# Okabe and Ito's palette (2008), safe for color vision deficiencies. Each color also has a marker.
GREEN, VERMILLION, ORANGE, PURPLE, BLUE, SKY = "#007a5a", "#c04e00", "#b87700", "#a0527f", "#0060a0", "#8cc4ea"
INK, MUTED, RULE, EDGE, SHADE = "#1d232b", "#5b6672", "#d5dae1", "#9aa4af", "#f4f6f8"
VARIABLES = {
    GREEN: "plot-green",
    VERMILLION: "plot-vermillion",
    ORANGE: "plot-orange",
    PURPLE: "plot-purple",
    BLUE: "plot-blue",
    SKY: "plot-sky",
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    EDGE: "edge",
    SHADE: "soft",
    "#ffffff": "card",
}
"""CSS variables of these colors; the stylesheet has other values for dark pages."""

STYLE: Any = {
    # Keep text selectable, readable by screen readers, and in the page's font.
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": EDGE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}
WITHIN_STEP = {"slow_update": 0.2, "meta_reflect": 0.35}
"""Steps between an epoch's last step and the moment."""
MAX_EPOCH_LABELS = 12
FEW_MOMENTS = 60
# The style of plots is global to the process, and the API server draws in several threads.
_DRAWING = Lock()
MAX_STAGE = 30
WIDTH = 10.4
LINE = 0.21
CHARACTER = 0.085
"""Sizes in inches from which the layout is computed; measuring the text would double the time of a plot."""
LEGEND_COLUMNS = 4


class Mark(NamedTuple):
    """Marker style of a verdict."""

    name: str
    marker: str
    color: str
    filled: bool


MARKS = {
    Action.ACCEPT_NEW_BEST: Mark("new best", "*", GREEN, filled=True),
    Action.ACCEPT: Mark("accepted", "o", GREEN, filled=True),
    Action.REJECT: Mark("rejected", "X", VERMILLION, filled=True),
    Action.INDECISIVE: Mark("indecisive", "D", ORANGE, filled=False),
    Action.UNDERPOWERED: Mark("underpowered", "s", PURPLE, filled=False),
}
EARLY = Mark("rejected early (upper bound)", "v", VERMILLION, filled=False)


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Apply the style of the plots, one plot at a time; `name` makes the ids in the SVG reproducible."""
    with _DRAWING, rc_context(STYLE | {"svg.hashsalt": name}):
        yield


def learning_curve(view: History) -> str:
    """Plot the scores of current, best, and each candidate per step, and the test scores next to them."""
    with drawing("learning-curve"):
        figure = Figure(figsize=(WIDTH, 4.6))
        columns = [1.0, 0.05 + 0.04 * len(view.test)] if view.test else [1.0]
        axes = figure.subplots(1, len(columns), sharey=True, width_ratios=columns, squeeze=False)[0]
        _lines(axes[0], view)
        _candidates(axes[0], view.moments)
        _epochs(axes[0], view.moments)
        axes[0].set(xlabel="step", ylabel=f"{view.metric} score, selection split")
        axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        last = max([1, *(moment.step for moment in view.moments)])
        axes[0].set_xlim(-0.3 - 0.01 * last, last + 0.6 + 0.01 * last)
        if view.test:
            _test(axes[1], view)
        for one in axes:
            one.title.set(fontsize=10, color=MUTED)
            one.grid(axis="y", color=RULE, linewidth=0.6)
            one.set_axisbelow(True)
        _add_legend(figure, axes[:1], left=0.7, above=0.3)
        return as_svg(figure, "learning-curve", "Learning curve", _description(view))


def costs(rows: Sequence[StageCost]) -> str:
    """Plot tokens and seconds of model calls per stage, for at least one row."""
    with drawing("costs"):
        figure = Figure(figsize=(WIDTH, 1.3 + 0.3 * len(rows)))
        tokens, seconds = figure.subplots(1, 2, sharey=True)
        places = range(len(rows))
        prompt, completion = [row.prompt_tokens for row in rows], [row.completion_tokens for row in rows]
        tokens.barh(places, prompt, color=SKY, height=0.65, label="input tokens")
        tokens.barh(places, completion, left=prompt, color=BLUE, height=0.65, label="output tokens")
        seconds.barh(places, [row.seconds for row in rows], color=EDGE, height=0.65, label="seconds of calls")
        names = [f"{row.stage[:MAX_STAGE]} ({row.role})" for row in rows]
        tokens.set_yticks(places, names)
        tokens.invert_yaxis()
        tokens.set_xlabel("tokens")
        seconds.set_xlabel("seconds, sum of all calls")
        for one in (tokens, seconds):
            one.xaxis.set_major_formatter(EngFormatter(sep=""))
            one.xaxis.set_major_locator(MaxNLocator(5))
            one.grid(axis="x", color=RULE, linewidth=0.6)
            one.set_axisbelow(True)
            one.tick_params(axis="y", length=0)
        _add_legend(figure, (tokens, seconds), left=0.1 + CHARACTER * max(map(len, names)), above=0.05)
        text = "; ".join(
            f"{row.stage} ({row.role}): {row.prompt_tokens + row.completion_tokens:,d} tokens, {row.seconds:,.0f} s"
            for row in rows
        )
        return as_svg(figure, "costs", "Tokens and seconds per stage", text)


def _add_legend(figure: Figure, sources: Sequence[Axes], left: float, above: float) -> None:
    """Add the legend of `sources` at the top, and fit all axes below it.

    `left` and `above` are inches reserved for labels to the left of the axes and right above them.
    """
    shown = [entry for axes in sources for entry in zip(*axes.get_legend_handles_labels(), strict=True)]
    rows, height = -(-len(shown) // LEGEND_COLUMNS), figure.get_figheight()
    figure.legend(*zip(*shown, strict=True), loc="upper left", ncols=LEGEND_COLUMNS, fontsize=9, borderaxespad=0.2)
    figure.subplots_adjust(
        left=left / WIDTH,
        right=1 - 0.15 / WIDTH,
        bottom=0.55 / height,
        top=1 - (0.1 + LINE * rows + above) / height,
        wspace=0.04,
    )


def _place(moment: MomentHistory) -> float:
    return moment.step + WITHIN_STEP.get(moment.kind, 0.0)


def _lines(axes: Axes, view: History) -> None:
    places = [0.0, *(_place(moment) for moment in view.moments)]
    best = [view.seed.score, *(moment.best_score for moment in view.moments)]
    known = (moment.score_after for moment in view.moments)
    current = [view.seed.score, *(math.nan if score is None else score for score in known)]
    axes.plot(places, best, drawstyle="steps-post", color=SKY, linewidth=5, solid_capstyle="butt", label="best skill")
    axes.plot(places, current, drawstyle="steps-post", color=BLUE, linewidth=1.5, label="current skill")
    _marks(axes, Mark("seed", "P", INK, filled=True), [0.0], [view.seed])


def _candidates(axes: Axes, moments: Sequence[MomentHistory]) -> None:
    size = 8.0 if len(moments) <= FEW_MOMENTS else 5.0
    for action, mark in MARKS.items():
        measured = [(_place(one), one.candidate) for one in moments if one.decision.action is action]
        known = [(place, candidate) for place, candidate in measured if candidate is not None]
        _marks(axes, mark, [place for place, _ in known], [candidate for _, candidate in known], size)
    early = [(_place(moment), moment.decision.bound) for moment in moments if moment.decision.bound is not None]
    if early:
        axes.plot(*zip(*early, strict=True), linestyle="none", label=EARLY.name, **_look(EARLY, size))


def _marks(axes: Axes, mark: Mark, places: Sequence[float], scores: Sequence[SplitScore], size: float = 8.0) -> None:
    if not places:
        return
    means, ends = [each.score for each in scores], [(each.low, each.high) for each in scores]
    alpha = 0.45 if len(places) <= FEW_MOMENTS else 0.2
    _intervals(axes, places, means, ends, ecolor=mark.color, capsize=size / 4, alpha=alpha)
    axes.plot(places, means, linestyle="none", label=mark.name, **_look(mark, size))


def _intervals(
    axes: Axes, places: Sequence[float], means: Sequence[float], ends: Sequence[tuple[float, float]], **style: Any
) -> None:
    # Rounding may leave an interval's end on the wrong side of the mean.
    below = [max(0.0, mean - low) for mean, (low, _) in zip(means, ends, strict=True)]
    above = [max(0.0, high - mean) for mean, (_, high) in zip(means, ends, strict=True)]
    axes.errorbar(places, means, yerr=(below, above), fmt="none", elinewidth=1, **style)


def _look(mark: Mark, size: float) -> dict[str, Any]:
    return {
        # Draw accepted candidates on top.
        "zorder": 4 if mark.color == GREEN else 3,
        "marker": mark.marker,
        "markersize": size * 1.6 if mark.marker == "*" else size,
        "color": mark.color,
        "markerfacecolor": mark.color if mark.filled else "white",
        "markeredgecolor": "white" if mark.filled else mark.color,
        "markeredgewidth": 0.7 if mark.filled else 1.4,
    }


def _epochs(axes: Axes, moments: Sequence[MomentHistory]) -> None:
    last = {moment.epoch: moment.step for moment in moments}
    for epoch, step in last.items():
        first = last.get(epoch - 1, 0)
        if epoch - 1 in last:
            axes.axvline(first + 0.5, color=RULE, linewidth=1.0, zorder=0)
        if len(last) <= MAX_EPOCH_LABELS:
            place = (first + 0.5 + step + 0.5) / 2
            axes.text(
                place, 1.015, f"epoch {epoch}", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                color=MUTED,
            )  # fmt: skip


def _test(axes: Axes, view: History) -> None:
    mark = Mark("test split", "h", BLUE, filled=True)
    places = range(len(view.test))
    _marks(axes, mark, list(places), list(view.test.values()), 9.0)
    axes.set_xticks(places, [name.removeprefix("epoch ") for name in view.test])
    axes.set_xlim(-0.6, len(view.test) - 0.4)
    axes.set(title="test split", facecolor=SHADE)
    axes.tick_params(axis="y", length=0, labelleft=False)


def _description(view: History) -> str:
    accepted, candidates, ungated = view.candidates
    how = f"taken, {ungated} of them without the gate" if ungated else "accepted"
    made = f"Of {candidates} candidates, {accepted} were {how}." if candidates else "No candidate was made."
    text = (
        f"The seed skill scores {view.seed.score:.4f} on the selection split, the best skill {view.best.score:.4f}. "
        f"{made}"
    )
    on_test = [f"{name} {score.score:.4f}" for name, score in view.test.items()]
    return f"{text} On the test split: {', '.join(on_test)}." if on_test else text


def as_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Return the figure as an SVG element with a title, a description, and ids prefixed with `name`."""
    file = StringIO()
    omitted: Iterable[str] = ("Date", "Creator", "Format", "Type")
    figure.savefig(file, format="svg", metadata=dict.fromkeys(omitted), transparent=True)
    text = file.getvalue()
    head, body = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="[\d. ]+"', head)
    body = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for color, variable in VARIABLES.items():
        body = re.sub(rf'{color}\b(?=[;"])', f"var(--{variable})", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} '
        f'role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>{body.strip()}\n'
    )


CONTENDERS = (
    ("seed", "seed", MUTED, "P", 0.18),
    ("previous", "previous champion", ORANGE, "s", -0.18),
    ("champion", "champion", BLUE, "o", 0.0),
)
"""Skill of a night, label, color, marker, and offset in days, so that intervals don't overlap."""
EVIDENCE = (
    ("decline_to_previous", "worse than the previous champion", VERMILLION, "v"),
    ("decline_to_seed", "worse than the seed", PURPLE, "X"),
    ("decline_to_promise", "below its published score", ORANGE, "D"),
)
"""Field of a night's judgement, label, color, and marker."""


class AliasEvent(NamedTuple):
    """A move of the alias, marked in the chart."""

    moment: datetime
    kind: str
    version: str


def nights_chart(points: Sequence[NightPoint], events: Sequence[AliasEvent]) -> str:
    """Plot at least one night, and the alias moves between the day before the first and the day after the last.

    Leaves out nights whose metric differs from the last night's.
    """
    last = max(points, key=lambda point: point.date)
    ordered = sorted((point for point in points if point.metric == last.metric), key=lambda point: point.date)
    left_out = len(points) - len(ordered)
    with drawing("nights"):
        figure = Figure(figsize=(10.4, 6.2), layout="constrained")
        scores, evidence = figure.subplots(2, 1, sharex=True, height_ratios=[1.5, 1.0])
        _scores(scores, ordered)
        _evidence(evidence, ordered)
        # A night moves the alias on the day after its date, when its items are complete.
        day_before, day_after = _day(ordered[0]) - timedelta(days=1), _day(ordered[-1]) + timedelta(days=1)
        for one in (one for one in events if day_before <= one.moment.date() <= day_after):
            scores.axvline(one.moment, color=VERMILLION if one.kind == "demoted" else INK, linewidth=1)
            scores.annotate(_label(one), (one.moment, 0.02), rotation=90, fontsize=9,
                            ha="right", va="bottom", color=INK)  # fmt: skip
        evidence.set_xlim(day_before, day_after + timedelta(days=1))
        locator = AutoDateLocator(minticks=2, maxticks=9)  # type: ignore[no-untyped-call]
        evidence.xaxis.set_major_locator(locator)
        evidence.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        if left_out:
            evidence.set_xlabel(f"left out, with another metric: {left_out}")
        for one in (scores, evidence):
            one.grid(axis="y", color=RULE, linewidth=0.6)
            one.set_axisbelow(True)
            one.legend(loc="upper left", bbox_to_anchor=(0, 1.17 if one is scores else 1.22), ncols=4, fontsize=9)
        return as_svg(figure, "nights", "Nights of the skill", _nights_description(ordered, events))


def _scores(axes: Axes, points: Sequence[NightPoint]) -> None:
    for skill, label, color, marker, offset in CONTENDERS:
        nights = [point for point in points if skill in point.scores]
        if not nights:
            continue
        days, means = [_number(point) + offset for point in nights], [point.scores[skill] for point in nights]
        ends = [point.intervals.get(skill, (mean, mean)) for point, mean in zip(nights, means, strict=True)]
        _intervals(axes, days, means, ends, ecolor=color, capsize=2, alpha=0.4)
        axes.plot(days, means, color=color, linewidth=1.2, marker=marker, markersize=5, label=label)
    axes.set(ylabel=f"{points[-1].metric} score, 95% CI", ylim=(-0.02, 1.02))


def _evidence(axes: Axes, points: Sequence[NightPoint]) -> None:
    for field, label, color, marker in EVIDENCE:
        known = [(point, getattr(point.judgement, field)) for point in points]
        series = [(_number(point), value) for point, value in known if value is not None]
        if series:
            axes.plot(*zip(*series, strict=True), color=color, linewidth=1.2, marker=marker, markersize=4, label=label)
    last = points[-1].judgement
    axes.axhline(last.alarm, color=INK, linewidth=1, linestyle="--")
    axes.annotate("alarm", (1, last.alarm), xycoords=("axes fraction", "data"), ha="right",
                  va="bottom", fontsize=9, color=INK)  # fmt: skip
    axes.set(ylabel="CUSUM of a decline")
    axes.set_ylim(bottom=0.0)


def _label(event: AliasEvent) -> str:
    version = event.version.partition("-")[0]
    return f"{event.kind} {version}" if event.kind == "published" else f"{event.kind} to {version}"


def _day(point: NightPoint) -> date:
    return date.fromisoformat(point.date)


def _number(point: NightPoint) -> float:
    return float((_day(point) - date(1970, 1, 1)).days)


def _nights_description(points: Sequence[NightPoint], events: Sequence[AliasEvent]) -> str:
    last = points[-1]
    scores = ", ".join(f"{role} {score:.4f}" for role, score in last.scores.items())
    moves = "; ".join(f"{one.moment:%Y-%m-%d} {_label(one)}" for one in events)
    return (
        f"{len(points)} nights from {points[0].date} to {last.date}. In the last one: {scores}; verdict "
        f"{last.judgement.verdict.value}. {moves} The table below has every score, and the reason for each verdict."
    )
