"""A preflight: try everything that a run uses, in parallel and within seconds, before the first batch."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal

from skillopt_airflow.core.config.sampling import PREFLIGHT_ATTEMPTS, OutputForm
from skillopt_airflow.core.errors import (
    Conflict,
    ModelConnectionError,
    ModelError,
    ModelOutputError,
    ModelTooSlow,
    ModelUnavailable,
    ModelUnreachable,
    SandboxError,
    SkillOptError,
    StoreError,
    ToolsRefused,
    collect_errors,
    merge_errors,
)
from skillopt_airflow.core.values.failure_reasons import EMPTY_ADVICE, FIRST_ITEMS, SENTENCES, advice, is_transient
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.types import ItemRef, JsonObject, ModelCall, Split, Status, Trajectory
from skillopt_airflow.optimizer.answers import check_answers
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import BudgetShare
from skillopt_airflow.training.run.timing import repeat_every

STAGE = "preflight"
LOG_SECONDS = 10.0
"""Interval of log lines while a preflight waits."""

log = logging.getLogger(__name__)

RollOut = Callable[[Sequence[JsonObject]], None]


def preflight(run: TrainingRun, roll_out: RollOut) -> None:
    """Try the target in a sandbox, the optimizer, the judge, and a write in both buckets; costs count.

    Raises:
        SkillOptError: one sentence per failing part; an `Unavailable` kind only if all failures are of that kind.
    """
    if run.store.exists(run.keys.runtime_state):
        log.info("the run is past the seed: no preflight")
        return
    failures: list[SkillOptError] = []
    beside: list[Callable[[], str]] = [partial(_try_answers, run, "optimizer"), partial(_try_buckets, run)]
    if run.config.model.judge is not None:
        beside.append(partial(_try_answers, run, "judge"))
    with ThreadPoolExecutor(2) as pool:
        if not run.config.budget.is_limited:
            beside = [pool.submit(part).result for part in beside]
        parts: list[Callable[[], str]] = [partial(_try_target, run, roll_out), *beside]
        for part in parts:
            with collect_errors(failures):
                log.info("%s", part())
    if failures:
        raise merge_errors(failures)


def unscored_items(run: TrainingRun) -> list[ItemRef]:
    """Return the first step's items without a stored score under the seed skill."""
    items = run.batch(run.timeline[1])
    found = run.results(Split.TRAIN, run.skill(0), 0, items)
    usable = (item for item in items if not item.unusable)
    return [item for item in usable if item.id not in found or not found[item.id].status.scored]


def _try_target(run: TrainingRun, roll_out: RollOut) -> str:
    """Roll out up to FIRST_ITEMS items until one has an answer; the first step reuses the rollouts."""
    model = run.config.model
    who = f"connection {model.target_conn_id}: the target {model.target}"
    chunks: list[Chunk] = []
    tried: list[Trajectory] = []
    for item in unscored_items(run)[:FIRST_ITEMS]:
        before = len(_target_calls(run))
        chunks.append(Chunk(stage=STAGE, skill=run.keys.skill(0), split=Split.TRAIN, sample=0, item_ids=(item.id,)))
        with _log_waiting(f"{who}, training item {item.id}"):
            roll_out(store_plan(run, run.timeline[0], STAGE, chunks)[len(tried) : len(chunks)])
        found = run.stored(Split.TRAIN, run.skill(0), 0, [item])
        if item.id not in found:
            raise SandboxError(f"training item {item.id} has no stored row. See this task's log")
        one = found[item.id].trajectory
        _check_target(who, one, _target_calls(run)[before:])
        if not _outcome(one):
            tokens = f"{one.prompt_tokens} + {one.completion_tokens} tokens"
            answered = f"target answered in {one.seconds:.1f} s, {tokens} ({one.status})"
            return f"training items {_outcomes(tried)}; item {item.id} answered: {answered}" if tried else answered
        tried.append(one)
    if not tried:
        return "the first step's items have stored rollouts: the target is not asked"
    todo, errors = [], [one.error for one in tried if one.error]
    if len(errors) < len(tried):
        todo.append(f"It wrote {sum(one.completion_tokens for one in tried)} tokens, but no answer. {EMPTY_ADVICE}.")
    if errors:
        todo.append(f"Change or shorten the prompts and the seed skill, or use another model. First error: {errors[0]}")
    raise ModelConnectionError(f"{who} answers none of the training items {_outcomes(tried)}. {' '.join(todo)}")


def _outcome(one: Trajectory) -> str:
    """Return the outcome of a rollout that doesn't show whether the target can answer; "" if it answered."""
    silent = not one.files and all(message.role not in ("assistant", "call") for message in one.messages)
    cut = one.status is Status.TRUNCATED and silent
    return "empty, cut off" if cut else one.status if one.status in (*SENTENCES, Status.EMPTY) else ""


def _outcomes(tried: Sequence[Trajectory]) -> str:
    outcomes = dict.fromkeys(map(_outcome, tried))
    return "; ".join(f"{', '.join(one.item_id for one in tried if _outcome(one) == kind)}: {kind}" for kind in outcomes)


def _check_target(who: str, trajectory: Trajectory, calls: Sequence[ModelCall]) -> None:
    why = f"training item {trajectory.item_id}: {trajectory.status}: {trajectory.error}"
    status = calls[-1].http_status if calls else 0
    if trajectory.status is Status.SANDBOX_ERROR:
        raise SandboxError(f"the sandbox of {why}. See this task's log")
    if trajectory.status is Status.TIMEOUT or (trajectory.status is Status.MODEL_ERROR and is_transient(status)):
        raise ModelUnavailable(f"{who} has no answer now. Try again later ({why})")
    if trajectory.status is Status.MODEL_ERROR:
        raise ModelConnectionError(f"{who} does not answer; {advice(status)} ({why})")
    if trajectory.status is Status.BUDGET:
        raise ModelError(f"{who} was not called. Raise the limit under budget.* ({why})")


def _try_answers(run: TrainingRun, role: Literal["optimizer", "judge"]) -> str:
    """Ask a model one small question; raise errors with the model's name."""
    model, connect = run.config.model, run.connections.optimizer
    who = f"connection {model.optimizer_conn_id}: the optimizer {model.optimizer}"
    if role == "judge":
        connect, who = run.connections.judge, f"the judge {model.judge}"
    calls: list[ModelCall] = []
    share = BudgetShare(run, run.timeline[0], STAGE, role)

    def count(call: ModelCall) -> None:
        calls.append(call)
        share.count(call)

    try:
        with _log_waiting(who):
            flaw = _tool_failure(lambda output: connect(model, count, share.begin, output, PREFLIGHT_ATTEMPTS))
    except ModelConnectionError:
        raise
    except ModelUnreachable as error:
        raise ModelConnectionError(f"{who} does not answer; {advice(0)} ({error})") from error
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{who} has no answer now. Try again later ({error})") from error
    except (ModelOutputError, ToolsRefused) as error:
        raise ModelOutputError(
            f"{who} answers neither by a tool call nor with JSON in plain text. Use a model that calls tools ({error})"
        ) from error
    except ModelError as error:
        todo = advice(calls[-1].http_status if calls else 0)
        raise ModelConnectionError(f"{who} does not answer; {todo} ({error})") from error
    finally:
        share.store(calls)
        share.close()
    run.store.delete(run.keys.in_text(role))
    if flaw:
        run.store.put_bytes(run.keys.in_text(role), b"")
        log.warning("%s is called in plain text from now on (%s)", who, flaw)
    tokens = f"{sum(call.prompt_tokens for call in calls)} + {sum(call.completion_tokens for call in calls)} tokens"
    return f"{role} answered in {sum(call.seconds for call in calls):.1f} s, {tokens}"


def _tool_failure(connect: Callable[[OutputForm], AbstractContextManager[Optimizer]]) -> str:
    """Ask with a tool, then in plain text; return the tool's failure, or ""."""
    try:
        with connect("tools") as asked:
            check_answers(asked)
        return ""
    except (ModelOutputError, ModelTooSlow, ToolsRefused) as error:
        flaw = str(error)
    try:
        with connect("text") as asked:
            check_answers(asked)
    except (ModelOutputError, ModelTooSlow, ToolsRefused) as error:
        raise type(error)(f"with a tool: {flaw}; in plain text: {error}") from error
    return flaw


def _log_waiting(who: str) -> AbstractContextManager[None]:
    """Log periodically that the preflight waits for this model while the block runs."""
    began = time.monotonic()
    return repeat_every(LOG_SECONDS, lambda: log.info("waiting for %s, %.0f s so far", who, time.monotonic() - began))


def _try_buckets(run: TrainingRun) -> str:
    storage, benchmark, target = run.ref.storage, run.ref.benchmark, str(run.config.model.target)
    artifacts = run.connections.object_store(storage, storage.artifact_bucket)
    published = ArtifactKeys(storage.prefix, benchmark, target).write_probe(run.ref.run)
    for store, key in ((run.store, run.keys.write_probe), (artifacts, published)):
        check_conditional_write(store, key)
    return f"buckets {storage.bucket} and {storage.artifact_bucket} take conditional writes"


def _target_calls(run: TrainingRun) -> list[ModelCall]:
    rows = run.usage.read(run.ref.benchmark, run.account)
    return [row.call for row in rows if row.call.stage == STAGE and row.call.role == "target"]


OTHER = '"00000000000000000000000000000000"'
"""An ETag that no object has."""


def check_conditional_write(store: ObjectStore, key: str) -> None:
    """Check that the store rejects conflicting writes, with an object that is removed afterwards.

    The key has no concurrent users. Leftovers of an interrupted check are fine.

    Raises:
        StoreError: the bucket refuses writes, or the store ignores their conditions.
    """
    ignored = _ignored_condition(store, key)
    _remove(store, key)
    if ignored:
        raise StoreError(
            f"{store.address(key)}: the object store wrote over an object that {ignored} protects, so concurrent "
            "publishers and tasks could overwrite each other. Use a store with conditional writes"
        )


def _ignored_condition(store: ObjectStore, key: str) -> str:
    """Return the condition that the store ignores, or ""."""
    for _ in range(2):
        try:
            store.create(key, b"")
        except Conflict:
            break
    else:
        return "If-None-Match"
    try:
        store.replace(key, b"", OTHER)
    except Conflict:
        return ""
    return "If-Match"


def _remove(store: ObjectStore, key: str) -> None:
    """Remove the object; a bucket that denies deletes keeps an empty one."""
    try:
        store.delete(key)
    except StoreError as error:
        log.warning("An empty object could not be removed: %s", error)
