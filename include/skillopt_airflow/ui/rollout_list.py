"""Rollout pages: a filtered list of rollouts, and one page per item."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import Semaphore
from typing import TYPE_CHECKING, Annotated, NamedTuple

from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from skillopt_airflow.core.errors import DataError, ObjectMissing, SkillOptError
from skillopt_airflow.core.gate.item_scores import gate_value
from skillopt_airflow.core.values.pictures import Picture, Pictures, message_parts
from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.core.values.types import Item, ItemFile, Message, Split, Status, Trajectory
from skillopt_airflow.pipeline.tasks.dag_ids import publish_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import run_storage
from skillopt_airflow.report.view import Part
from skillopt_airflow.store.keys import RunKeys, cell_name, publication_name, run_name
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import access
from skillopt_airflow.ui.access import benchmark_of, may_read, may_read_dag_run
from skillopt_airflow.ui.pages import MAX_CHARS, PRIVATE, app, dag_run_tab, message_page, page, paged
from skillopt_airflow.ui.reports import DagRunRow, checked_run, row_of
from skillopt_airflow.ui.rollout_query import RolloutParams, RolloutQuery, Subject, of_run, of_skill

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.tables.parquet import RolloutRow
    from skillopt_airflow.store.tables.rollout_browser import Counts, ListedRollout, Listing
    from skillopt_airflow.store.tables.rollout_table import RolloutKey

MAX_CONVERSATION_CHARS = 200_000
MIN_SCROLLED_CHARS = 1500
"""Longer texts get a box that scrolls."""
SPEAKERS = {"system": "Skill (system message)", "user": "User", "assistant": "Target", "tool": "Tool"}
# Header of a tool result, as written by the tools harness.
_RESULT = re.compile(r"\[([^\[\],\n]{1,100})(?:, (\d+(?:\.\d+)?) s)?\]\n")

DAG_RUN_ROUTE = "/dag_runs/{dag_id}/{run_id}/rollouts"
"""Below the plugin's prefix, with Airflow's ids."""
RUN_ROUTE = "/runs/{benchmark}/{run}/rollouts"
SKILL_ROUTE = "/skills/{benchmark}/rollouts"
"""Lists all skills without the parameter `skill`, the first 12 digits of a SHA-256."""

ROLLOUTS_TAB = dag_run_tab("Rollouts", DAG_RUN_ROUTE)

CONCURRENT_PAGES = Semaphore(2)
"""Limits memory: a list of 100,000 rollouts takes 300 MB, and the API server has 40 threads."""
PAGE_ROWS = 50
MAX_SEARCHED = 64 * 1024 * 1024
"""Uncompressed bytes of conversations that one search reads."""
MAX_TYPE_CHARS = 200
"""Longer types of task aren't filters, because the filter is part of the URL."""
MAX_TYPES = 500


class ToolCall(NamedTuple):
    tool: str
    arguments: str
    """Indented JSON; commands and truncated JSON as stored."""


class Turn(NamedTuple):
    role: str
    label: str
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    seconds: float | None = None
    """Duration of a tool call, if measured."""

    @property
    def is_long(self) -> bool:
        return sum(len(part.text) for part in self.parts) > MIN_SCROLLED_CHARS


class Conversation(NamedTuple):
    turns: tuple[Turn, ...]
    left_out: int
    """Messages at the end that aren't shown."""


def conversation(trajectory: Trajectory, thumbnails: Pictures) -> Conversation:
    """Return the turns with thumbnails and truncated texts."""
    turns: list[Turn] = []
    left, shown_messages = MAX_CONVERSATION_CHARS, 0
    for message, pieces in message_parts(trajectory.messages, thumbnails):
        if left <= 0:
            break
        parts = [piece if isinstance(piece, Picture) else shortened(piece, min(MAX_CHARS, left)) for piece in pieces]
        left -= sum(len(part) for part in parts if isinstance(part, str))
        shown_messages += 1
        if message.role != "call":
            turns.append(_turn(message, parts))
        elif turns and turns[-1].role == "assistant":
            turns[-1] = turns[-1]._replace(calls=(*turns[-1].calls, _call("".join(map(str, parts)))))
        else:
            turns.append(Turn("assistant", SPEAKERS["assistant"], (), (_call("".join(map(str, parts))),)))
    return Conversation(tuple(turns), len(trajectory.messages) - shown_messages)


def _turn(message: Message, pieces: list[str | Picture]) -> Turn:
    label, seconds = SPEAKERS[message.role], None
    if message.role == "tool" and isinstance(pieces[0], str):
        header = _RESULT.match(pieces[0])
        if header is not None:
            label, pieces = f"Result of {header[1]}", [pieces[0][header.end() :]]
            seconds = None if header[2] is None else float(header[2])
    # A picture is a separate block, so drop the newlines around its placeholder.
    texts = [one.strip("\n") if isinstance(one, str) and len(pieces) > 1 else one for one in pieces]
    parts = (Part(thumbnail=one.content) if isinstance(one, Picture) else Part(text=one) for one in texts)
    return Turn(message.role, label, tuple(parts), seconds=seconds)


def _call(text: str) -> ToolCall:
    """Parse a stored call; arguments that aren't valid JSON stay unchanged."""
    if text.startswith("$ "):
        return ToolCall("command", text[2:])
    tool, bracket, arguments = text.partition("(")
    if not bracket:
        return ToolCall("tool", text)
    try:
        return ToolCall(tool, _pretty(json.loads(arguments.removesuffix(")"))))
    except (ValueError, RecursionError):
        return ToolCall(tool, arguments.removesuffix(")"))


def _pretty(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, indent=2), MAX_CHARS)


MAX_PICTURES = 8


class Try(NamedTuple):
    row: "RolloutRow"
    score: float | None
    """The score that gates compare."""


class Side(NamedTuple):
    label: str
    counted: Try | None
    """The rollout that the list shows."""
    conversation: Conversation | None
    tries: Sequence[Try]
    """All rollouts of the item, including `counted`."""

    @property
    def started(self) -> datetime | None:
        seconds = 0.0 if self.counted is None else self.counted.row.rollout.trajectory.started
        return datetime.fromtimestamp(seconds, UTC) if seconds else None


class ItemRollouts(NamedTuple):
    item_id: str
    sides: tuple[Side, ...]
    difference: float | None
    """Score of the first side minus score of the second."""
    item: Item | None
    """None if no run stores it anymore."""
    record: str
    """The public part, as JSON."""
    reference: str
    """The reference, as JSON."""


def read_item(subject: Subject, key: "RolloutKey", mark: str) -> ItemRollouts:
    """Read the rollouts of the item with this mark, which changes with the item's content.

    Raises DataError if the skill has no rollout of the item.
    """
    from skillopt_airflow.store.tables.rollout_browser import RolloutBrowser

    browser = RolloutBrowser(subject.store, subject.prefix)
    labeled = [
        (label, [row for row in browser.tries(skill, mark) if not subject.alone or row.run == subject.run])
        for skill, label in ((key, subject.label), (subject.other, subject.other_label))
        if skill is not None
    ]
    rows = [row for _, tries in labeled for row in tries]
    if not rows:
        raise DataError("there is no rollout of such an item. Rollouts are deleted after retention.trajectory_days")
    item = _item(subject, key.split, rows)
    thumbnails = {} if item is None else _thumbnails(subject, item.files)
    sides = tuple(_side(subject, label, tries, thumbnails) for label, tries in labeled)
    scores = [side.counted.score for side in sides if side.counted is not None and side.counted.score is not None]
    difference = scores[0] - scores[1] if len(scores) > 1 else None
    record, reference = ("", "") if item is None else (_pretty(item.public), _pretty(item.reference))
    return ItemRollouts(rows[0].rollout.trajectory.item_id, sides, difference, item, record, reference)


def _item(subject: Subject, split: Split, rows: "Sequence[RolloutRow]") -> Item | None:
    """Return the item with the content that it had when it ran, from a run that stored a rollout of it."""
    from skillopt_airflow.store.data.item_tables import find_item

    for run in dict.fromkeys([*([subject.run] if subject.run else []), *(row.run for row in rows)]):
        keys = RunKeys(subject.prefix, subject.benchmark, run)
        item = find_item(subject.store, keys.items(split), rows[0].rollout.trajectory.item_id)
        if item is not None and item.fingerprint == rows[0].item_fingerprint:
            return item
    return None


def _side(subject: Subject, label: str, rows: "Sequence[RolloutRow]", thumbnails: Pictures) -> Side:
    from skillopt_airflow.store.tables.rollout_browser import listed_try

    scores = [row.rollout.score for row in rows]
    values = [None if score is None else gate_value(score, subject.rules) for score in scores]
    tries = [*map(Try, rows, values)]
    listed = listed_try(rows, subject.run)
    counted = next((one for one in tries if one.row is listed), None)
    turns = None if counted is None else conversation(counted.row.rollout.trajectory, thumbnails)
    return Side(label, counted, turns, tries)


def _thumbnails(subject: Subject, files: Sequence[ItemFile]) -> dict[str, bytes]:
    """Return thumbnails of the item's first pictures by name."""
    from skillopt_airflow.store.data.files import FileStore
    from skillopt_airflow.store.data.picture_files import thumbnail

    stored, made = FileStore(subject.store, subject.prefix), {}
    for file in [file for file in files if file.picture][:MAX_PICTURES]:
        with suppress(ObjectMissing):
            made[file.name] = thumbnail(stored.get(file.sha256))
    return made


class FilteredRollouts(NamedTuple):
    rows: "pa.Table"
    """All rollouts of the subject."""
    places: "pa.Array"
    """Sorted indices of the rows that pass the filters."""
    unsearched: int
    """Rows that pass the other filters but weren't searched for the text."""


class RolloutList(NamedTuple):
    rows: "list[tuple[ListedRollout, str]]"
    """Each with the URL of its page."""
    first: int
    """Position of the first row among the filtered rollouts, from 1."""
    shown: int
    """Number of filtered rollouts."""
    page: int
    last: int
    counts: "Counts"
    """Counts before filtering."""
    types: list[str]
    unsearched: int


@app.get(DAG_RUN_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_rollouts(
    request: Request, dag_id: str, run_id: str, query: RolloutParams, row: Annotated[DagRunRow | None, Depends(row_of)]
) -> Response:
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        ref, query = _find_run(dag_id, run_id, row, query)
    except (SkillOptError, AirflowException) as error:
        # Airflow shows the tab on the runs of every DAG.
        return message_page(200, "No rollouts here", str(error))
    return _respond(request, query, lambda: of_run(ref, query))


def _find_run(dag_id: str, run_id: str, row: DagRunRow, query: RolloutQuery) -> tuple[RunRef, RolloutQuery]:
    """Return the run of a DAG run, and the query; a publishing DAG run defaults to its publication.

    Raises SkillOptError if the DAG runs no items, or if its conf is invalid.
    """
    from skillopt_airflow.training.report.reporting import PUBLICATION

    benchmark = benchmark_of(dag_id, publish_dag_id)
    if benchmark is None:
        ref = checked_run(dag_id, run_id, row)
        return ref.model_copy(update={"run": cell_name(ref.run, query.cell)}), query
    run, storage = str(row.conf.get("run")), run_storage(benchmark_config(benchmark), row.conf)
    if run != run_name(run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no run of {benchmark}")
    defaults = {} if query.moment else {"moment": "final", "stage": f"{PUBLICATION}{publication_name(run_id, run)}"}
    return RunRef(benchmark=benchmark, run=run, storage=storage), query.changed(**defaults)


@app.get(RUN_ROUTE, dependencies=[Depends(may_read)])
def run_rollouts(request: Request, benchmark: str, run: str, query: RolloutParams) -> Response:
    if run != run_name(run):
        text = f"{run!r} isn't a run name. Run names have letters, digits, periods, hyphens, and underscores."
        return message_page(404, "No such run", text)
    ref = RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage)
    return _respond(request, query, lambda: of_run(ref, query))


@app.get(SKILL_ROUTE, dependencies=[Depends(may_read)])
def skill_rollouts(request: Request, benchmark: str, query: RolloutParams) -> Response:
    """Show a skill's rollouts from all runs, or the list of skills with rollouts."""
    if query.skill:
        return _respond(request, query, lambda: of_skill(benchmark, query))
    from skillopt_airflow.store.tables.rollout_table import RolloutPartitions

    storage = benchmark_config(benchmark).storage
    partitions = RolloutPartitions(access.open_bucket(storage, storage.bucket), storage.prefix).of_benchmark(benchmark)
    shown, number, last = paged(partitions, query.page, PAGE_ROWS)
    return page(
        request,
        "rolled_out.html",
        benchmark=benchmark,
        rows=[(one, RolloutQuery().address(**one._asdict())) for one in shown],
        total=len(partitions),
        number=number,
        last=last,
        train_dag=train_dag_id(benchmark),
    )


def _respond(request: Request, query: RolloutQuery, subject: Callable[[], Subject]) -> Response:
    try:
        with CONCURRENT_PAGES:
            return _render(request, query, subject())
    except DataError as error:
        return message_page(404, "No such rollout", str(error))
    except ObjectMissing as error:
        return message_page(404, "Nothing is stored yet", f"Reload this page when the run has rollouts. {error}")


def _render(request: Request, query: RolloutQuery, about: Subject) -> Response:
    # Write all choices into URLs, so that links don't change when a newer moment has rollouts.
    query = query.changed(**{choice.parameter: choice.chosen for choice in about.choices})
    if about.other is None and query.compares:
        query = query.changed(show="all", sort="item_id")
    # Template values stay in memory until the next garbage collection, and these are large.
    shown = about._replace(items=None, types=None)
    if about.key is None:
        return page(request, "rollouts.html", about=shown, query=query, listing=None)
    if query.mark:
        return page(request, "rollout.html", about=shown, query=query, view=read_item(about, about.key, query.mark))
    rollouts = filter_rollouts(about, about.key, query)
    if query.place:
        return _redirect_to_place(rollouts, query)
    return page(request, "rollouts.html", about=shown, query=query, listing=list_page(rollouts, query))


def filter_rollouts(subject: Subject, key: "RolloutKey", query: RolloutQuery) -> FilteredRollouts:
    from skillopt_airflow.store.tables import rollout_browser as stored

    browser, rules = stored.RolloutBrowser(subject.store, subject.prefix), subject.rules

    def listing_of(key: "RolloutKey") -> "Listing":
        listing = browser.listing(key, subject.run, subject.items, alone=subject.alone)
        return listing._replace(rows=stored.with_scores(listing.rows, rules.gate_metric, rules.gate_mixed_weight))

    listing = listing_of(key)
    other = None if subject.other is None else listing_of(subject.other).rows
    rows = stored.with_other(stored.with_task_types(listing.rows, subject.types), other)
    phrase = query.text if query.within == "said" else ""
    status = Status(query.status) if query.status else None
    places, unsearched = stored.filter_rows(rows, query.show, status, query.task_type, "" if phrase else query.text), 0
    if phrase:
        having, searched = browser.search(listing, places, phrase, MAX_SEARCHED)
        places, unsearched = having, len(places) - searched
    return FilteredRollouts(
        rows, stored.sort_rows(rows, places, query.sort, descending=query.order == "down"), unsearched
    )


def list_page(found: FilteredRollouts, query: RolloutQuery) -> RolloutList:
    from skillopt_airflow.store.tables import rollout_browser as stored

    places, number, last = paged(found.places, query.page, PAGE_ROWS)
    first = (number - 1) * PAGE_ROWS + 1
    shown = enumerate(stored.page(found.rows, places), first)
    return RolloutList(
        rows=[(row, query.address(mark=row.mark, place=place)) for place, row in shown],
        first=first,
        shown=len(found.places),
        page=number,
        last=last,
        counts=stored.counts(found.rows),
        types=[name for name in stored.task_types(found.rows) if len(name) <= MAX_TYPE_CHARS][:MAX_TYPES],
        unsearched=found.unsearched,
    )


def _redirect_to_place(found: FilteredRollouts, query: RolloutQuery) -> Response:
    """Redirect to the item at a position of the list, at most the last, or to the list if it is empty."""
    from skillopt_airflow.store.tables.rollout_browser import page as rows_at

    place = min(query.place, len(found.places))
    rows = rows_at(found.rows, found.places.slice(place - 1, 1)) if place else []
    url = query.address(mark=rows[0].mark, place=place) if rows else query.address(place=0)
    return RedirectResponse(url, 303, headers=PRIVATE)
