"""A stage's evaluation as one job of the provider's batch API: requests, and answers turned into rollouts."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from skillopt_airflow.core.config.sampling import named_effort, without_thinking
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.run.budget import RemainingLimits
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.failure_reasons import SENTENCES, RolloutTally, ending_status, error_status
from skillopt_airflow.core.values.pictures import parts
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import (
    Item,
    JsonObject,
    Message,
    ModelCall,
    Status,
    Trajectory,
    Value,
    canonical_json,
    sha256,
)
from skillopt_airflow.core.wire_formats.anthropic_messages import message_content
from skillopt_airflow.core.wire_formats.openai_chat import chat_content
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.keys import batch_folder, batch_job
from skillopt_airflow.tasks.protocols import Benchmark, FollowsUp, JudgesFiles, ShowsFiles
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.run import TrainingRun, contents
from skillopt_airflow.training.run.spending import BudgetShare

MAX_ERROR_CHARS = 500
FRAME_BYTES = 1000
"""Maximum bytes that a provider's format adds to a request: id, model, token limit."""


class Entry(Value):
    """A request of a job; its position is its index in the provider's answers."""

    chunk: int
    item_id: str


class BatchJob(Document):
    """A job's requests, stored before they are sent: a retry must send the same ones to find the job again."""

    number: int
    """Earlier jobs of this plan."""
    plan: str
    """Hash of its plan."""
    entries: tuple[Entry, ...]
    created: float
    """Unix time in seconds."""
    landed: bool = False
    """True once its answers are recorded."""
    later: tuple[Entry, ...] = ()
    """Requests that exceed the provider's limits; the next job sends them."""
    earlier: int = 0
    """Requests of the jobs that this one continues."""


def check_batchable(config: TrainConfig, benchmark: Benchmark) -> None:
    """Raise ConfigError, with the key and the fix, for a configuration that batch jobs don't support."""
    model = config.model
    if benchmark.runs_code or isinstance(benchmark, JudgesFiles | FollowsUp | ShowsFiles):
        raise ConfigError(
            "model.batch: this benchmark executes code, answers its target, or shows or judges files. A batch "
            "job can't do that; set model.batch to false"
        )
    effort = model.reasoning_effort
    if effort is not None and not (_is_openai(config) and named_effort(effort)):
        raise ConfigError(
            f"model.reasoning_effort = {effort!r}: a batch job takes efforts such as low, only at openai. Unset it"
        )


class BatchWork:
    """The open items of all chunks of a stage."""

    def __init__(self, run: TrainingRun, refs: Sequence[JsonObject], dag_run_id: str) -> None:
        self.run = run
        self.chunks = [ChunkWorkload(run, ref, dag_run_id) for ref in refs]
        self._plan = str(refs[0]["plan"])

    @cached_property
    def job(self) -> BatchJob:
        """The running job, or the next one; without entries if every item has a stored score."""
        before, plan = self._before, self._content
        # Ignore what other runs stored since: with other requests, the job would not be found again.
        if before is not None and self.under_way:
            return before
        number = 0 if before is None else before.number + before.landed
        entries = tuple(
            Entry(chunk=index, item_id=item.id) for index, chunk in enumerate(self.chunks) for item in chunk.items
        )
        later = set(before.later) if before is not None and before.plan == plan else ()
        # Failures of earlier jobs wait for Airflow's retry.
        rest = tuple(entry for entry in entries if entry in later)
        earlier = before.earlier + len(before.entries) if before is not None and rest else 0
        return BatchJob(
            number=number, plan=plan, entries=rest if rest else entries, created=time.time(), earlier=earlier
        )

    def judge_again(self) -> None:
        """Judge answers again whose judge failed; the target isn't called again."""
        for chunk in self.chunks:
            chunk.judge_again()
            chunk.release_budget()

    @property
    def under_way(self) -> bool:
        """Return whether an earlier attempt may have sent the job, without recorded answers so far."""
        before = self._before
        return before is not None and before.plan == self._content and not before.landed

    def reserve(self) -> RemainingLimits:
        """Take the job's calls from the run's budget, up to the remaining ones; return what remained."""
        return self._share.take(len(self.job.entries))

    def shorten(self, calls: int | None) -> None:
        """Refuse the entries beyond this number of calls; None means no limit."""
        entries = self.job.entries
        if calls is None or calls >= len(entries):
            return
        self.refuse("budget.max_calls", entries[calls:])
        self.job = self.job.model_copy(update={"entries": entries[:calls]})

    def begin(self, most_requests: int, most_bytes: int) -> list[dict[str, Any]]:
        """Store the requests and return them as Airflow's batch operator takes them.

        A running job stays as it was sent. A new one leaves the requests beyond the limits to the next.

        Raises:
            ConfigError: the benchmark doesn't open with a system message and one user message.
        """
        entries, size = self.job.entries, 0
        requests: list[dict[str, Any]] = []
        for entry in entries:
            request = self._request(entry)
            size += len(json.dumps(request)) + FRAME_BYTES
            # Airflow's operator refuses a single request that is too large.
            if not self.under_way and requests and (size > most_bytes or len(requests) == most_requests):
                break
            requests.append(request)
        if len(requests) < len(entries):
            cut = {"entries": entries[: len(requests)], "later": entries[len(requests) :]}
            self.job = self.job.model_copy(update=cut)
        self.run.store.put_model(batch_job(self._plan), self.job)
        return requests

    @property
    def results(self) -> str:
        storage = self.run.ref.storage
        return f"s3://{storage.conn_id}@{storage.bucket}/{self._folder}"

    def record(self, name: str) -> None:
        """Score and store the answers in a file of the job's folder, and release the unspent budget."""
        answers = {int(row["index"]): row for row in _rows(self.run.store.get_text(f"{self._folder}/{name}"))}
        came = [(entry, *self._outcome(entry, answers[place])) for place, entry in enumerate(self.job.entries)]
        for number, chunk in enumerate(self.chunks):
            # An earlier attempt may have recorded some. Rollouts that other runs stored meanwhile were paid for here
            # too.
            recorded = chunk.begun_at(self.job.created)
            mine = [one for one in came if one[0].chunk == number and one[0].item_id not in recorded]
            chunk.share = self._share
            chunk.record([outcome for _, outcome, _ in mine], [call for *_, call in mine])
        # Nothing continues a landed job, so release its budget first.
        self._share.free()
        self.run.store.put_model(batch_job(self._plan), self.job.model_copy(update={"landed": True}))
        for chunk in self.chunks:
            chunk.release_budget()

    def refuse(self, why: str, entries: Sequence[Entry]) -> None:
        """Store entries as failed, because this limit is used up."""
        for number, chunk in enumerate(self.chunks):
            ids = [entry.item_id for entry in entries if entry.chunk == number]
            rows = [Trajectory(item_id=item_id, status=Status.BUDGET, error=f"{why} is used up") for item_id in ids]
            chunk.record([Outcome(row) for row in rows], ())

    def tally(self) -> RolloutTally:
        return _tally(self.chunks)

    def tallies(self) -> list[tuple[RolloutTally, float]]:
        """Return the tally and the required coverage per skill and split."""
        measured: defaultdict[object, list[ChunkWorkload]] = defaultdict(list)
        for work in self.chunks:
            measured[work.chunk.measures].append(work)
        return [(_tally(works), works[0].wanted_coverage) for works in measured.values()]

    @property
    def _share(self) -> BudgetShare:
        return self.chunks[0].share_of("target", "batch", 1, f"job-{self.job.number}")

    @property
    def _folder(self) -> str:
        return batch_folder(self._plan, self.job.number)

    @cached_property
    def _content(self) -> str:
        return sha256(canonical_json([chunk.chunk.model_dump(mode="json") for chunk in self.chunks]))

    @cached_property
    def _before(self) -> BatchJob | None:
        return self.run.store.find_model(batch_job(self._plan), BatchJob)

    def _item(self, entry: Entry) -> Item:
        return next(item for item in self.chunks[entry.chunk].assigned if item.id == entry.item_id)

    def _messages(self, entry: Entry) -> tuple[Message, ...]:
        return tuple(self.run.benchmark.messages(self._item(entry).public, self.chunks[entry.chunk].skill))

    def _request(self, entry: Entry) -> dict[str, Any]:
        opening = self._messages(entry)
        if [message.role for message in opening] != ["system", "user"]:
            raise ConfigError("model.batch: the benchmark must open with one system message and one user message")
        model = self.run.config.model
        params = {"temperature": model.temperature, "reasoning_effort": model.reasoning_effort}
        given = {name: value for name, value in params.items() if value is not None}
        return {"system_prompt": opening[0].content, "prompt": self._prompt(entry, opening[1].content), "params": given}

    def _prompt(self, entry: Entry, text: str) -> JsonValue:
        """Return the text, or with pictures the content in the provider's format."""
        files = [file for file in self._item(entry).files if file.picture]
        pieces = parts(text, contents(self.run, files))
        if _is_openai(self.run.config):
            return chat_content(pieces)
        return message_content(pieces)

    def _outcome(self, entry: Entry, row: Mapping[str, Any]) -> tuple[Outcome, ModelCall]:
        status, error = _status(row)
        text = without_thinking(storable(row["output"])) if isinstance(row["output"], str) else ""
        reply = (Message(role="assistant", content=text),) if text else ()
        usage = row["usage"] or {}
        tokens = {
            "prompt_tokens": int(usage.get("input_tokens") or 0),
            "completion_tokens": int(usage.get("output_tokens") or 0),
        }
        seconds = time.time() - self.job.created
        trajectory = Trajectory(
            item_id=entry.item_id,
            status=status,
            error=error,
            messages=(*self._messages(entry), *reply),
            answer=self.run.benchmark.answer(text) if status.scored else "",
            calls=1,
            started=self.job.created,
            seconds=seconds,
            **tokens,
        )
        call = ModelCall(
            role="target",
            stage=self.chunks[entry.chunk].stage,
            model=str(self.run.config.model.target).partition(":")[2],
            http_status=200 if row["status"] in ("success", "invalid_output") else 0,
            attempts=1,
            started=self.job.created,
            seconds=seconds,
            batch=True,
            **tokens,
        )
        return Outcome(trajectory), call


def _tally(works: Sequence[ChunkWorkload]) -> RolloutTally:
    ended = [rollout for work in works for rollout in work.ended()]
    return RolloutTally.of(ended, sum(len(work.assigned) for work in works))


def _status(row: Mapping[str, Any]) -> tuple[Status, str]:
    """Return the rollout's status for a row of Airflow's batch operator, and the reason."""
    kind, status = row["status"], ending_status(row["finish_reason"])
    failure = row["error"] or {}
    reason = str(failure.get("message") or f"the batch job left it {kind}")
    if kind in ("success", "invalid_output"):
        if status.scored:
            is_empty = status is Status.OK and not (isinstance(row["output"], str) and without_thinking(row["output"]))
            return Status.EMPTY if is_empty else status, ""
        reason = f"the answer ended with {row['finish_reason']}"
    elif kind == "expired":
        status, reason = Status.TIMEOUT, "the batch job expired before the provider came to it"
    else:
        code = str(failure.get("provider_code"))
        http_status = int(code) if len(code) == 3 and code.isdecimal() else 0
        status = error_status(http_status, {"code": code, "message": reason}) or Status.MODEL_ERROR
    if status in SENTENCES:
        reason = f"{SENTENCES[status]}: {reason}"
    return status, " ".join(reason.split())[:MAX_ERROR_CHARS]


def _rows(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.split("\n") if line.strip())


def _is_openai(config: TrainConfig) -> bool:
    return str(config.model.target).startswith("openai:")
