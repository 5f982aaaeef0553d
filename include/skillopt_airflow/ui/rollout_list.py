"""The pages of rollouts: what the target did on each item, as a list with filters that leads to the items."""

import json
import math
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
from skillopt_airflow.core.values.types import Item, ItemFile, Message, Status, Trajectory
from skillopt_airflow.pipeline.tasks.dag_ids import publish_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import run_storage
from skillopt_airflow.report.view import Part
from skillopt_airflow.store.keys import cell_name, publication_name, run_name
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import buckets
from skillopt_airflow.ui.access import benchmark_of, may_read, may_read_dag_run
from skillopt_airflow.ui.pages import MAX_CHARS, PRIVATE, app, dag_run_tab, message_page, page
from skillopt_airflow.ui.reports import DagRunRow, checked_run, row_of
from skillopt_airflow.ui.rollout_query import Asked, RolloutQuery, Subject, of_run, of_skill

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.tables.parquet import RolloutRow
    from skillopt_airflow.store.tables.rollout_browser import Counts, ListedRollout, Listing
    from skillopt_airflow.store.tables.rollout_table import RolloutKey

MAX_CONVERSATION_CHARS = 200_000
"""Characters of all that is shown of one conversation."""
LONG = 1500
"""Characters from which on a text is shown in a box that scrolls."""
ROLES = {"system": "Skill, as the system's message", "user": "User", "assistant": "Target", "tool": "Tool"}
# As the tools harness writes what came back.
_RESULT = re.compile(r"\[([^\[\],\n]{1,100})(?:, (\d+(?:\.\d+)?) s)?\]\n")

DAG_RUN_ROUTE = "/dag_runs/{dag_id}/{run_id}/rollouts"
"""Below the plugin's prefix, as all of these; the ids as Airflow's UI has them."""
RUN_ROUTE = "/runs/{benchmark}/{run}/rollouts"
"""`run` as the run's documents have it; they are where the benchmark's configuration says."""
SKILL_ROUTE = "/skills/{benchmark}/rollouts"
"""With the parameters target, harness, split and skill, the first 12 digits of its SHA-256; without: all skills."""

ROLLOUTS_TAB = dag_run_tab("Rollouts", DAG_RUN_ROUTE)

AT_ONCE = Semaphore(2)
"""Pages that are read at the same time: a list of 100,000 rollouts takes 300 MB, and the API server has 40 threads."""
PAGE = 50
"""Rows of a page."""
MAX_SEARCHED = 64 * 1024 * 1024
"""Bytes of texts that a search in what was said reads, before compression."""
MAX_IN_ADDRESS = 200
"""Characters of a type of task that stand in an address."""
MAX_TYPES = 500
"""Types of task that can be chosen."""


class ToolCall(NamedTuple):
    tool: str
    arguments: str
    """Indented JSON; a command, and JSON that was cut, as it is stored."""


class Turn(NamedTuple):
    role: str
    label: str
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    seconds: float | None = None
    """Of a tool, as far as it was measured."""

    @property
    def is_long(self) -> bool:
        return sum(len(part.text) for part in self.parts) > LONG


class Conversation(NamedTuple):
    turns: tuple[Turn, ...]
    left_out: int
    """Messages at the end that are not shown."""


def conversation(trajectory: Trajectory, thumbnails: Pictures) -> Conversation:
    """Return the turns with small pictures in the places of the item's own, and long texts cut."""
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
            turns.append(Turn("assistant", ROLES["assistant"], (), (_call("".join(map(str, parts))),)))
    return Conversation(tuple(turns), len(trajectory.messages) - shown_messages)


def _turn(message: Message, pieces: list[str | Picture]) -> Turn:
    label, seconds = ROLES[message.role], None
    if message.role == "tool" and isinstance(pieces[0], str):
        found = _RESULT.match(pieces[0])
        if found is not None:
            label, pieces = f"Result of {found[1]}", [pieces[0][found.end() :]]
            seconds = None if found[2] is None else float(found[2])
    # A picture has lines of its own, without those that its mark stood between.
    texts = [one.strip("\n") if isinstance(one, str) and len(pieces) > 1 else one for one in pieces]
    parts = (Part(thumbnail=one.content) if isinstance(one, Picture) else Part(text=one) for one in texts)
    return Turn(message.role, label, tuple(parts), seconds=seconds)


def _call(text: str) -> ToolCall:
    """Return a stored call; arguments that aren't JSON, or were cut, stay as they are."""
    if text.startswith("$ "):
        return ToolCall("command", text[2:])
    tool, found, arguments = text.partition("(")
    if not found:
        return ToolCall("tool", text)
    try:
        return ToolCall(tool, _pretty(json.loads(arguments.removesuffix(")"))))
    except (ValueError, RecursionError):
        return ToolCall(tool, arguments.removesuffix(")"))


def _pretty(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, indent=2), MAX_CHARS)


MAX_PICTURES = 8
"""Pictures of an item that are shown."""


class Try(NamedTuple):
    row: "RolloutRow"
    score: float | None
    """What a gate compares."""


class Side(NamedTuple):
    label: str
    counted: Try | None
    """The one that the list has; None where there is none."""
    said: Conversation | None
    tries: Sequence[Try]
    """All rollouts of the item, the one that counts among them."""

    @property
    def started(self) -> datetime | None:
        seconds = 0.0 if self.counted is None else self.counted.row.rollout.trajectory.started
        return datetime.fromtimestamp(seconds, UTC) if seconds else None


class Opened(NamedTuple):
    item_id: str
    sides: tuple[Side, ...]
    difference: float | None
    """The score of the first side less that of the second."""
    item: Item | None
    """None where no run has it any more."""
    record: str
    """JSON of what the target may see."""
    reference: str
    """JSON of what the scorer needs."""


def opened(subject: Subject, mark: str) -> Opened:
    """Return the item with the mark; rollouts of an earlier content of it have another one.

    Raises:
        DataError: the skill has no rollout of such an item.
        SkillOptError: it cannot be read.
    """
    from skillopt_airflow.store.tables.rollout_browser import RolloutBrowser

    browser = RolloutBrowser(subject.store, subject.prefix)
    keys = [(subject.key, subject.label), (subject.other, subject.other_label)]
    found = [
        (label, [row for row in browser.tries(key, mark) if not subject.alone or row.run == subject.run])
        for key, label in keys
        if key is not None
    ]
    rows = [row for _, tries in found for row in tries]
    if not rows:
        raise DataError("there is no rollout of such an item; rollouts are removed after retention.trajectory_days")
    item = _item(subject, rows)
    thumbnails = {} if item is None else _thumbnails(subject, item.files)
    sides = tuple(_side(subject, label, tries, thumbnails) for label, tries in found)
    scores = [side.counted.score for side in sides if side.counted is not None and side.counted.score is not None]
    difference = scores[0] - scores[1] if len(scores) > 1 else None
    record, reference = ("", "") if item is None else (_pretty(item.public), _pretty(item.reference))
    return Opened(rows[0].rollout.trajectory.item_id, sides, difference, item, record, reference)


def _item(subject: Subject, rows: "Sequence[RolloutRow]") -> Item | None:
    """Return the item as it was when it ran, of a run that stored a rollout of it."""
    from skillopt_airflow.store.data.items import find_item
    from skillopt_airflow.store.keys import RunKeys

    if subject.key is None:
        return None
    for run in dict.fromkeys([*([subject.run] if subject.run else []), *(row.run for row in rows)]):
        keys = RunKeys(subject.prefix, subject.benchmark, run)
        item = find_item(subject.store, keys.items(subject.key.split), rows[0].rollout.trajectory.item_id)
        if item is not None and item.fingerprint == rows[0].item_fingerprint:
            return item
    return None


def _side(subject: Subject, label: str, rows: "Sequence[RolloutRow]", thumbnails: Pictures) -> Side:
    from skillopt_airflow.store.tables.rollout_browser import listed_try

    rules, counted = subject.rules, listed_try(rows, subject.run)

    def scored(row: "RolloutRow") -> Try:
        found = row.rollout.score
        return Try(row, None if found is None else gate_value(found, rules))

    said = None if counted is None else conversation(counted.rollout.trajectory, thumbnails)
    return Side(label, None if counted is None else scored(counted), said, [scored(row) for row in rows])


def _thumbnails(subject: Subject, files: Sequence[ItemFile]) -> dict[str, bytes]:
    """Return small pictures in place of the item's first ones, by name."""
    from skillopt_airflow.store.data.files import FileStore
    from skillopt_airflow.store.data.picture_files import thumbnail

    kept, made = FileStore(subject.store, subject.prefix), {}
    for file in [file for file in files if file.picture][:MAX_PICTURES]:
        with suppress(ObjectMissing):
            made[file.name] = thumbnail(kept.get(file.sha256))
    return made


class Found(NamedTuple):
    rows: "pa.Table"
    """All rollouts of the subject."""
    places: "pa.Array"
    """Of those that pass, in the order of the page."""
    unsearched: int
    """Rollouts that pass the other filters and were not searched for the text."""


class RolloutList(NamedTuple):
    rows: "list[tuple[ListedRollout, str]]"
    """Each with the address of its page."""
    first: int
    """Number of the first row among those that pass the filters, from 1."""
    shown: int
    """Rollouts that pass the filters."""
    page: int
    last: int
    counts: "Counts"
    """Of all rollouts, whatever the filters."""
    types: list[str]
    unsearched: int


@app.get(DAG_RUN_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_rollouts(
    request: Request, dag_id: str, run_id: str, asked: Asked, row: Annotated[DagRunRow | None, Depends(row_of)]
) -> Response:
    """Show what the training, evaluation, matrix, night or publication that the DAG run is has rolled out."""
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        ref, asked = _rolled_out(dag_id, run_id, row, asked)
    except (SkillOptError, AirflowException) as error:
        # Airflow shows the tab on the runs of every DAG.
        return message_page(200, "No rollouts here", str(error))
    return _answer(request, asked, lambda: of_run(ref, asked))


def _rolled_out(dag_id: str, run_id: str, row: DagRunRow, asked: RolloutQuery) -> tuple[RunRef, RolloutQuery]:
    """Return the run behind a DAG run, and what is asked for: first of a training that is published, its publication.

    Raises:
        SkillOptError: the DAG rolls out nothing, or was triggered with a configuration that it does not accept.
    """
    from skillopt_airflow.training.report.rollout_stages import PUBLICATION

    benchmark = benchmark_of(dag_id, publish_dag_id)
    if benchmark is None:
        ref = checked_run(dag_id, run_id, row)
        return ref.model_copy(update={"run": cell_name(ref.run, asked.cell)}), asked
    run, storage = str(row.conf.get("run")), run_storage(benchmark_config(benchmark), row.conf)
    if run != run_name(run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no run of {benchmark}")
    own = {} if asked.moment else {"moment": "final", "stage": f"{PUBLICATION}{publication_name(run_id, run)}"}
    return RunRef(benchmark=benchmark, run=run, storage=storage), asked.changed(**own)


@app.get(RUN_ROUTE, dependencies=[Depends(may_read)])
def run_rollouts(request: Request, benchmark: str, run: str, asked: Asked) -> Response:
    if run != run_name(run):
        text = f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores."
        return message_page(404, "No such run", text)
    ref = RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage)
    return _answer(request, asked, lambda: of_run(ref, asked))


@app.get(SKILL_ROUTE, dependencies=[Depends(may_read)])
def skill_rollouts(request: Request, benchmark: str, asked: Asked) -> Response:
    """Show the rollouts of a skill, whatever runs have stored them; without one, which skills there are."""
    if asked.skill:
        return _answer(request, asked, lambda: of_skill(benchmark, asked))
    from skillopt_airflow.store.tables.rollout_table import RolloutPartitions

    storage = benchmark_config(benchmark).storage
    there = RolloutPartitions(buckets.open_bucket(storage, storage.bucket), storage.prefix).of_benchmark(benchmark)
    last = max(1, math.ceil(len(there) / PAGE))
    number = min(asked.page, last)
    shown = there[(number - 1) * PAGE : number * PAGE]
    return page(
        request,
        "rolled_out.html",
        benchmark=benchmark,
        rows=[(one, RolloutQuery().address(**one._asdict())) for one in shown],
        together=len(there),
        number=number,
        last=last,
        train_dag=train_dag_id(benchmark),
    )


def _answer(request: Request, asked: RolloutQuery, subject: Callable[[], Subject]) -> Response:
    """Return the page of an item where the address names one, and the list otherwise."""
    try:
        with AT_ONCE:
            return _shown(request, asked, subject())
    except DataError as error:
        return message_page(404, "No such rollout", str(error))
    except ObjectMissing as error:
        return message_page(404, "Nothing is stored yet", f"Come back when the run has rolled out items. {error}")


def _shown(request: Request, asked: RolloutQuery, about: Subject) -> Response:
    # So that an address stays what it is when a newer moment has rollouts.
    asked = asked.changed(**{choice.parameter: choice.chosen for choice in about.choices})
    if about.other is None and asked.compares:
        asked = asked.changed(show="all", sort="item_id")
    # A template's values are in memory until the garbage collector comes by, and these are large.
    shown = about._replace(items=None, types=None)
    if about.key is None:
        return page(request, "rollouts.html", about=shown, asked=asked, found=None)
    if asked.mark:
        return page(request, "rollout.html", about=shown, asked=asked, opened=opened(about, asked.mark))
    found = find(about, asked)
    if asked.place:
        return _at_place(found, asked)
    return page(request, "rollouts.html", about=shown, asked=asked, found=listed(found, asked))


def find(subject: Subject, asked: RolloutQuery) -> Found:
    """Return the rollouts of a subject that pass the filters.

    Raises:
        SkillOptError: they cannot be read.
    """
    from skillopt_airflow.store.tables import rollout_browser as stored

    browser, rules = stored.RolloutBrowser(subject.store, subject.prefix), subject.rules

    def listing_of(key: "RolloutKey") -> "Listing":
        found = browser.listing(key, subject.run, subject.items, alone=subject.alone)
        return found._replace(rows=stored.with_scores(found.rows, rules.gate_metric, rules.gate_mixed_weight))

    if subject.key is None:
        raise ValueError("nothing was rolled out")
    listing = listing_of(subject.key)
    other = None if subject.other is None else listing_of(subject.other).rows
    rows = stored.with_other(stored.with_task_types(listing.rows, subject.types), other)
    said = asked.text if asked.within == "said" else ""
    status = Status(asked.status) if asked.status else None
    places, unsearched = stored.filter_rows(rows, asked.show, status, asked.task_type, "" if said else asked.text), 0
    if said:
        having, searched = browser.search(listing, places, said, MAX_SEARCHED)
        places, unsearched = having, len(places) - searched
    return Found(rows, stored.sort_rows(rows, places, asked.sort, descending=asked.order == "down"), unsearched)


def listed(found: Found, asked: RolloutQuery) -> RolloutList:
    from skillopt_airflow.store.tables import rollout_browser as stored

    last = max(1, math.ceil(len(found.places) / PAGE))
    number = min(asked.page, last)
    start = (number - 1) * PAGE
    shown = stored.page(found.rows, found.places.slice(start, PAGE))
    return RolloutList(
        rows=[(row, asked.address(mark=row.mark, place=place)) for place, row in enumerate(shown, start + 1)],
        first=start + 1,
        shown=len(found.places),
        page=number,
        last=last,
        counts=stored.counts(found.rows),
        types=[name for name in stored.task_types(found.rows) if len(name) <= MAX_IN_ADDRESS][:MAX_TYPES],
        unsearched=found.unsearched,
    )


def _at_place(found: Found, asked: RolloutQuery) -> Response:
    """Lead to the item at a place of the list, the last one where there are fewer, or to the list where it is empty."""
    from skillopt_airflow.store.tables.rollout_browser import page as rows_at

    place = min(asked.place, len(found.places))
    rows = rows_at(found.rows, found.places.slice(place - 1, 1)) if place else []
    where = asked.address(mark=rows[0].mark, place=place) if rows else asked.address(place=0)
    return RedirectResponse(where, 303, headers=PRIVATE)
