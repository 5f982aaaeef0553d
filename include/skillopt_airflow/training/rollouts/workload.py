"""One chunk's work: which items are still to do under which skill, and where the rows go."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from fractions import Fraction
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from uuid import uuid4

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.config.sampling import PREFLIGHT_ATTEMPTS
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.gate.policies import policy_of
from skillopt_airflow.core.run.budget import Role
from skillopt_airflow.core.run.early_rejection import RunningEvaluation
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.values.failure_reasons import (
    FIRST_ITEMS,
    FailureReason,
    RolloutTally,
    shared_lasting_failure,
)
from skillopt_airflow.core.values.types import (
    Item,
    ItemRef,
    JsonObject,
    ModelCall,
    Rollout,
    RolloutResult,
    Split,
    Status,
    Trajectory,
)
from skillopt_airflow.tasks.protocols import JudgesRepository, PlaysSession
from skillopt_airflow.training.rollouts.evaluation import draws_of
from skillopt_airflow.training.rollouts.judging import engine_test_runner, judged_repository, score_of
from skillopt_airflow.training.rollouts.rollout_plan import planned
from skillopt_airflow.training.rollouts.rollout_protocol import check_program, image_to_use
from skillopt_airflow.training.run.answer_cache import judged
from skillopt_airflow.training.run.run import TrainingRun, contents, for_container, needs_container_each
from skillopt_airflow.training.run.run_corpus import stored_corpus
from skillopt_airflow.training.run.run_search import run_search
from skillopt_airflow.training.run.spending import BudgetShare, GatewayShare

if TYPE_CHECKING:
    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.gateway.web_search import WebSearch
    from skillopt_airflow.rollout.settings import RolloutSettings
    from skillopt_airflow.sandbox.task_workload import Outcome
    from skillopt_airflow.store.data.corpora import StoredCorpus
    from skillopt_airflow.store.tables.rollout_table import KnownParts, RolloutKey


MIN_AHEAD, MAX_AHEAD = 1, 3
"""A contested chunk begins so many times its model calls in flight beyond the rows that were looked at: at least,
whatever is to be expected of the candidate, and at most, so that a server which answers faster than one looks is not
asked for all of them at once."""
LARGEST_SHARE_AHEAD = 0.1
"""And so large a share of its items, if that is more."""
JUDGES_SHARE = 4
"""A judge has one part in so many of a share of the budget."""
JUDGES = 2
"""Processes that judge files at the same time; each keeps a core busy, and other tasks of the worker want some too."""


class ChunkWorkload:
    """A chunk of a run's plan, as a sandbox carries it out; every row is scored and stored as it arrives.

    Raises:
        ConfigError: what makes and scores rollouts changed since the run began.
    """

    def __init__(self, run: TrainingRun, ref: JsonObject, dag_run_id: str) -> None:
        plan, self.chunk = planned(run, ref)
        self.run = run
        check_program(run.record.image, run.record.program, run.config, benchmarks.folder(run.ref.benchmark))
        self.moment = plan.moment
        filled = [chunk for chunk in plan.chunks if chunk.item_ids]
        self._measuring = [chunk for chunk in filled if chunk.measures == self.chunk.measures]
        self.index = int(str(ref["index"]))
        # The chunks of a batch ahead run one after the other, and the gateways hold stages side by side to the run's.
        same = 1 if self.stage == "speculate" else sum(chunk.stage == self.stage for chunk in filled)
        beside = max(1, min(same, run.config.sandbox.max_containers))
        self.concurrency = max(1, run.config.model.concurrency // beside)
        """Model calls that the chunk has in flight: its part of the run's, as several of a stage run at a time."""
        self._plan, self._chunks = PurePosixPath(str(ref["plan"])).stem, max(1, len(filled))
        self.document = run.document(self.chunk.skill)
        self.started = time.time()
        self._released = 0
        self._recorded = 0
        self._writer, self._has_stored = uuid4().hex, False
        """The name of its parts; random, since a task that was given up may still write beside the next attempt."""
        self._known: KnownParts = {}
        """What it has read of the rollouts of its items."""
        self._looked: Mapping[int, KnownParts] = defaultdict(dict)
        """What it has read of the evaluation that it is a part of, by draw."""
        self._first: list[Trajectory] = []
        """The first items that ended."""
        storage = run.ref.storage
        self.labels: Mapping[str, str] = {
            # Installations that share an engine may be equal in all the rest.
            "store": f"{storage.bucket}/{storage.prefix}",
            # The nights of two benchmarks are equal in all else.
            "benchmark": run.ref.benchmark,
            "dag_run": dag_run_id,
            "run": run.ref.run,
            "stage": self.stage,
            "step": str(self.moment.step),
            "moment": self.moment.name,
            "chunk": str(self.index),
        }

    @property
    def stage(self) -> str:
        return self.chunk.stage

    @property
    def skill(self) -> str:
        return self.document.text

    @cached_property
    def assigned(self) -> list[Item]:
        """All items of the chunk that can run, in the order in which they are begun."""
        return [item for item in self.run.items_of(self.chunk.split, self.chunk.item_ids) if not item.unusable]

    @cached_property
    def items(self) -> Sequence[Item]:
        """The items that have no stored score yet; what waits for its judge alone needs no other rollout."""
        done = {one.item_id for one in self.ended() if one.status.scored or one.status is Status.JUDGE_ERROR}
        return [item for item in self.assigned if item.id not in done]

    @cached_property
    def corpus(self) -> "StoredCorpus | None":
        return stored_corpus(self.run)

    @cached_property
    def upstream(self) -> "Upstream":
        return self.run.connections.upstream(self.run.config.model)

    @cached_property
    def search(self) -> "WebSearch | None":
        return run_search(self.run, len(self.items))

    @cached_property
    def share(self) -> BudgetShare:
        return self.share_of("target", str(self.index), self._chunks)

    def share_of(self, role: Role, task: str, tasks: int, attempt: str = "") -> BudgetShare:
        """Return the share for the calls of a role, where so many tasks divide what the stage has for it."""
        judges = Fraction(0 if self.run.config.model.judge is None else 1, JUDGES_SHARE)
        part = (judges if role == "judge" else 1 - judges) / tasks
        return BudgetShare(self.run, self.moment, self._plan, task, part, attempt)

    def allotted(self, gateways: int = 1) -> "AbstractContextManager[GatewayShare]":
        """Return a gateway's part of the share, which covers no more calls than the items can take twice."""
        model = self.run.config.model
        most = math.inf if HARNESSES[model.harness].is_cli else 2 * model.max_turns * len(self.items)
        return self.share.gateway(gateways, most)

    def release_budget(self) -> None:
        for name in ("share", "_judge_share"):
            share: BudgetShare | None = self.__dict__.pop(name, None)
            if share is not None:
                share.close()

    @property
    def settings(self) -> "RolloutSettings":
        settings = self.run.settings(self.upstream.dialect, self.upstream.model)
        fewer = {"max_attempts": PREFLIGHT_ATTEMPTS} if self.stage == "preflight" else {}
        return settings.model_copy(update={"gives_up": self._fresh, "concurrency": self.concurrency, **fewer})

    @property
    def run_concurrency(self) -> int:
        return self.run.config.model.concurrency

    @cached_property
    def image(self) -> str:
        record, benchmark = self.run.record, benchmarks.folder(self.run.ref.benchmark)
        return image_to_use(record.image, record.program, self.run.config, benchmark)

    @property
    def limits(self) -> SandboxGroup:
        return self.run.config.sandbox

    @property
    def released(self) -> int | None:
        """First items that may start as of the last `is_decided`; None if nothing may end the chunk early."""
        return self._released if self.chunk.contested else None

    @property
    def hopeless(self) -> FailureReason | None:
        """Return why no further item is tried, if the first ones failed as all others would."""
        return shared_lasting_failure(self._first, len(self.assigned)) if self._fresh else None

    def is_decided(self) -> bool:
        """Return whether no further item is of use: all would fail alike, or the candidate has lost for certain.

        Of the latter, the rows of all chunks of its evaluation decide.
        """
        if self.hopeless is not None:
            return True
        if not self.chunk.contested:
            return False
        run, current = self.run, self._state.current.evaluation
        rollouts = draws_of(run, Split.VAL, self.document, known=self._looked)
        record = run.states.record(self._state)
        running = RunningEvaluation.of(run.item_refs(Split.VAL), rollouts, current, run.config.evaluation, record)
        if running.lost() is not None:
            return True
        worthwhile = set(running.worthwhile())
        # Held back to what runs in any case, the last items would run almost one by one.
        least = self.concurrency * MIN_AHEAD
        most = max(self.concurrency * MAX_AHEAD, math.ceil(len(self.items) * LARGEST_SHARE_AHEAD))
        wanted = sum(item.id in worthwhile for item in self.items) - self._recorded
        self._released = self._recorded + min(max(wanted, least), most)
        return False

    @property
    def one_item_each(self) -> bool:
        return needs_container_each(self.run.benchmark, self.run.config)

    def files(self, item: Item) -> Mapping[str, bytes]:
        return for_container(self.run.benchmark, contents(self.run, item.files))

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        return {} if item.image is None else contents(self.run, item.image.files)

    @property
    def seals_files(self) -> bool:
        return isinstance(self.run.benchmark, PlaysSession)

    def record(self, outcomes: Sequence["Outcome"], calls: Sequence[ModelCall]) -> None:
        self._recorded += len(outcomes)
        self._first = [*self._first, *(one.trajectory for one in outcomes)][:FIRST_ITEMS]
        by_id = {item.id: item for item in self.assigned}
        with ThreadPoolExecutor(JUDGES) as pool:
            scored = list(pool.map(lambda one: self._scored(by_id[one.trajectory.item_id], one), outcomes))
        self._store(scored, calls)

    def judge_again(self) -> None:
        """Have answers judged whose judge failed before; their rollouts are not made again."""
        from skillopt_airflow.sandbox.task_workload import Outcome

        waiting = [one.item_id for one in self.ended() if one.status is Status.JUDGE_ERROR]
        if not waiting:
            return
        failed = self.run.rollouts.errors(self._key, self.run.ref.run, [self._refs[item] for item in waiting])
        answered = [one.trajectory.model_copy(update={"status": Status.OK, "error": ""}) for one in failed.values()]
        by_id = {item.id: item for item in self.assigned}
        self._store([self._scored(by_id[one.item_id], Outcome(one)) for one in answered], [])

    def _store(self, scored: Sequence[Rollout], calls: Sequence[ModelCall]) -> None:
        """Store rollouts, after a judge has looked at those that the rules cannot decide on."""
        judges: list[ModelCall] = []
        by_id = {item.id: item for item in self.assigned}
        pairs = [(by_id[one.trajectory.item_id], one) for one in scored]
        rollouts = judged(self.run, pairs, self.concurrency, self._judge_share, judges)
        rows = [(self._refs[rollout.trajectory.item_id], rollout) for rollout in rollouts]
        if self.chunk.stage == "rollout" and not self._has_stored:
            # If it was reflected on the batch before, then without these.
            self.run.store.delete(self.run.keys.moment(self.moment).reflected_items)
        self.run.rollouts.append(self._key, self.run.ref.run, rows, self._writer)
        self._has_stored = True
        # In parts of their own, since a judge is asked again about what is handed over again.
        self.share.store(calls, self._writer)
        self._judge_share.store(judges, self._writer)

    def close(self) -> None:
        """Make one part of those that were written while the chunk ran, after which nothing is stored."""
        self.run.rollouts.close(self._key, self._writer)
        self.run.usage.close(self.run.ref.benchmark, self.run.account, self._writer)

    def ended(self) -> list[RolloutResult]:
        refs = list(self._refs.values())
        return list(self.run.results(self.chunk.split, self.document, self.chunk.draw, refs, self._known).values())

    def begun_at(self, moment: float) -> set[str]:
        """Return the ids of items whose rollouts the run itself stored, as begun at this moment, in seconds."""
        own = self.run.rollouts.carried_out(self._key, self.run.ref.run)
        # Stored times are whole microseconds.
        return {one.item_id for one in own if abs(one.started - moment) < 1e-5}

    def tally(self) -> RolloutTally:
        return RolloutTally.of(self.ended(), len(self.assigned))

    @cached_property
    def wanted_coverage(self) -> float:
        """Share of the assigned items that want a score, so that of all that is measured enough have one in every draw.

        Items that are of no use have none either. Every failure is worth another try where an item that one skill lacks
        counts against the candidate.
        """
        if self.stage == "publish" or (self.stage == "evaluate" and policy_of(self.run.config.evaluation).has_level):
            return 1.0
        planned = {item_id for part in self._measuring for item_id in part.item_ids}
        useless = sum(bool(ref.unusable) for ref in self.run.item_refs(self.chunk.split) if ref.id in planned)
        may_fail = (1 - self.run.config.evaluation.min_coverage) * len(planned) - useless
        rollouts = len({part.draw for part in self._measuring}) * (len(planned) - useless)
        return 1 - max(0.0, may_fail) / rollouts if rollouts else 1.0

    @property
    def _fresh(self) -> bool:
        """Return whether no item of the chunk has a score: what fails where others did not, fails for itself alone."""
        return len(self.items) == len(self.assigned)

    @cached_property
    def _refs(self) -> Mapping[str, ItemRef]:
        mine = {item.id for item in self.assigned}
        return {ref.id: ref for ref in self.run.item_refs(self.chunk.split) if ref.id in mine}

    @cached_property
    def _state(self) -> RunState:
        """Return what the candidate competes with; it does not change while the candidate is measured."""
        return self.run.state_before(self.moment)

    @cached_property
    def _judge_share(self) -> BudgetShare:
        return self.share_of("judge", f"{self.index}-judge", self._chunks)

    @cached_property
    def _key(self) -> "RolloutKey":
        return self.run.rollout_key(self.chunk.split, self.document, self.chunk.draw)

    def _scored(self, item: Item, outcome: "Outcome") -> Rollout:
        trajectory, benchmark = outcome.trajectory, self.run.benchmark
        if not trajectory.status.scored:
            return Rollout(trajectory=trajectory, score=None)
        if isinstance(benchmark, JudgesRepository):
            tests = engine_test_runner(self.limits, self.image, self.labels, self.image_files, None)
            return judged_repository(benchmark, item, trajectory, outcome.files, tests)
        try:
            score = score_of(
                self.run.ref.benchmark,
                benchmark,
                item,
                trajectory,
                outcome.files,
                lambda: contents(self.run, item.reference_files),
            )
        except SandboxError as error:
            failed = trajectory.model_copy(update={"status": Status.SANDBOX_ERROR, "error": str(error)[:500]})
            return Rollout(trajectory=failed, score=None)
        return Rollout(trajectory=trajectory, score=score)
