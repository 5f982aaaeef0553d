"""A chunk as a sandbox workload: open items, limits, scoring, storing, and the program version."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from uuid import uuid4

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.sampling import PREFLIGHT_ATTEMPTS
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, ImageMissing, SandboxError
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
    ItemFile,
    ItemRef,
    JsonObject,
    ModelCall,
    Rollout,
    RolloutResult,
    Split,
    Status,
    Trajectory,
    canonical_json,
    sha256,
)
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import WebSearch
from skillopt_airflow.rollout.settings import IN_IMAGE, PROTOCOL, RolloutSettings
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.data.corpora import StoredCorpus
from skillopt_airflow.store.tables.rollout_table import KnownParts, RolloutKey
from skillopt_airflow.tasks.protocols import Benchmark, JudgesRepository, PlaysSession
from skillopt_airflow.training.rollouts.evaluation import samples_of
from skillopt_airflow.training.rollouts.judging import engine_test_runner, score_of, score_repository
from skillopt_airflow.training.rollouts.rollout_plan import find_chunk
from skillopt_airflow.training.run.answer_cache import grade_rollouts
from skillopt_airflow.training.run.run import TrainingRun, contents, needs_container_each
from skillopt_airflow.training.run.run_documents import run_search, stored_corpus
from skillopt_airflow.training.run.spending import BudgetShare, GatewayShare

log = logging.getLogger(__name__)


def rollout_program(config: TrainConfig, image: str, benchmark: Path) -> str:
    """Return the program version: the protocol or a user's image, and the definition in the benchmark's folder.

    A user's image contains the adapter, but no declared task and no scoring files next to the adapter.
    """
    if config.task is not None:
        # A group affects tests of scores, but not rollouts.
        section = canonical_json({key: value for key, value in config.task.items() if key != "group"})
        program = f"protocol-{PROTOCOL}" if config.sandbox.image is None else image
        return f"{program}/task-{sha256(section)[:12]}"
    files = _files(benchmark)
    if config.sandbox.image is not None:
        beside = {name: text for name, text in files.items() if name not in IN_IMAGE}
        return f"{image}/beside-{sha256(canonical_json(beside))[:12]}" if beside else image
    return f"protocol-{PROTOCOL}/adapter-{sha256(canonical_json(files))[:12]}"


def check_program(stored: str, program: str, config: TrainConfig, benchmark: Path, run: str) -> None:
    """Raise ConfigError if the program changed since the run began, under which it stores rollouts."""
    now = rollout_program(config, stored, benchmark)
    if now != program:
        raise ConfigError(
            f"{benchmark}: the adapter, the files that score with it, or the project's rollout program changed since "
            f"the run began ({now}, not {program}). Restore these files and clear this task, or trigger a new run. "
            f"Or accept the new program: set the Airflow variable {ACCEPT_PROGRAM} to {run}, clear "
            "the training's task prepare alone, then this task"
        )


def image_to_use(stored: str, program: str, config: TrainConfig, benchmark: Path) -> str:
    """Return the run's image, or the current image of the same program if the engine lost it.

    An image without a registry is lost when it is rebuilt.

    Raises:
        EngineUnavailable: no engine answers.
        ImageMissing: the engine has neither, or the current image is another program.
    """
    from skillopt_airflow.sandbox.docker.connection import has_image, image_digest

    if not stored.startswith("sha256:") or has_image(stored, config.sandbox):
        return stored
    current = image_digest(config.image, config.sandbox)
    now = rollout_program(config, current, benchmark)
    if now != program:
        raise ImageMissing(
            f"the engine has lost the run's sandbox image {stored}, and the current one is another program "
            f"({now}, not {program}). Trigger a new training, or load that image from a copy"
        )
    log.warning("The image %s is gone; using %s, which is the same program", stored, current)
    return current


def _files(benchmark: Path) -> JsonObject:
    files = [path for path in benchmark.glob("*.py") if not path.match("make_*")]
    return {path.name: path.read_text(encoding="utf-8") for path in files}


ACCEPT_PROGRAM = "skillopt_accept_program"
"""Airflow variable with the names of runs that go on with a changed rollout program, separated by spaces."""

MIN_AHEAD, MAX_AHEAD = 1, 3
"""Bounds on the items that a contested chunk starts beyond the rows read, in multiples of its concurrent calls. The
maximum keeps a fast server from receiving all items at once."""
LARGEST_SHARE_AHEAD = 0.1
"""The maximum as a share of the items, if that is more."""
JUDGES_SHARE = 4
"""The judge gets one part in this number of a budget share."""
JUDGES = 2
"""Concurrent file judging processes; each uses a full core."""

ReadFiles = Callable[[Sequence[ItemFile]], Mapping[str, bytes]]


class BenchmarkWorkload:
    """The part of a `Workload` that follows from its benchmark and configuration; `contents` reads an item's files."""

    def __init__(self, benchmark: Benchmark, config: TrainConfig, contents: ReadFiles) -> None:
        self.limits, self.run_concurrency = config.sandbox, config.model.concurrency
        self.one_item_each = needs_container_each(benchmark, config)
        self.seals_files = isinstance(benchmark, PlaysSession)
        self._benchmark, self._contents = benchmark, contents

    def files(self, item: Item) -> Mapping[str, bytes]:
        """Return the item's files for the container; for a world, only its source files."""
        found, benchmark = self._contents(item.files), self._benchmark
        return benchmark.world_files(found) if isinstance(benchmark, PlaysSession) else found

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        return {} if item.image is None else self._contents(item.image.files)


class ChunkWorkload(BenchmarkWorkload):
    """A chunk of a run's plan as a sandbox workload; rows are scored and stored as they arrive.

    Raises:
        ConfigError: the rollout program changed since the run began.
    """

    def __init__(self, run: TrainingRun, ref: JsonObject, dag_run_id: str) -> None:
        super().__init__(run.benchmark, run.config, partial(contents, run))
        plan, self.chunk = find_chunk(run, ref)
        self.run, self.stage = run, self.chunk.stage
        folder = benchmarks.folder(run.ref.benchmark)
        check_program(run.record.image, run.record.program, run.config, folder, run.ref.run)
        self.moment = plan.moment
        filled = [chunk for chunk in plan.chunks if chunk.item_ids]
        self._measuring = [chunk for chunk in filled if chunk.measures == self.chunk.measures]
        self.index = int(str(ref["index"]))
        # Chunks of a batch ahead run one at a time, and the gateways limit parallel stages together.
        same = 1 if self.stage == "speculate" else sum(chunk.stage == self.stage for chunk in filled)
        beside = max(1, min(same, run.config.sandbox.max_containers))
        self.concurrency = max(1, run.config.model.concurrency // beside)
        """Maximum concurrent model calls of the chunk: its share of the run's."""
        self._plan, self._chunks = PurePosixPath(str(ref["plan"])).stem, max(1, len(filled))
        self.document = run.document(self.chunk.skill)
        self.skill = self.document.text
        self.started = time.time()
        self._released = 0
        self._recorded = 0
        self._writer, self._has_stored = uuid4().hex, False
        """Random name of its parts, because an abandoned attempt may still be writing."""
        self._known: KnownParts = {}
        """Parts read of its items' rollouts."""
        self._looked: Mapping[int, KnownParts] = defaultdict(dict)
        """Parts read of the whole evaluation, by sample."""
        self._first: list[Trajectory] = []
        """The first finished items."""
        storage = run.ref.storage
        self.labels: Mapping[str, str] = {
            # Distinguishes installations that share an engine.
            "store": f"{storage.bucket}/{storage.prefix}",
            # Distinguishes the nights of two benchmarks.
            "benchmark": run.ref.benchmark,
            "dag_run": dag_run_id,
            "run": run.ref.run,
            "stage": self.stage,
            "step": str(self.moment.step),
            "moment": self.moment.name,
            "chunk": str(self.index),
        }

    @cached_property
    def assigned(self) -> list[Item]:
        """The chunk's usable items in start order."""
        return [item for item in self.run.items_of(self.chunk.split, self.chunk.item_ids) if not item.unusable]

    @cached_property
    def items(self) -> Sequence[Item]:
        """The items without a stored score, except those that only lack a judge's grade."""
        done = {one.item_id for one in self.ended() if one.status.scored or one.status is Status.JUDGE_ERROR}
        return [item for item in self.assigned if item.id not in done]

    @cached_property
    def corpus(self) -> StoredCorpus | None:
        return stored_corpus(self.run)

    @cached_property
    def upstream(self) -> Upstream:
        return self.run.connections.upstream(self.run.config.model)

    @cached_property
    def search(self) -> WebSearch | None:
        return run_search(self.run, len(self.items))

    @cached_property
    def share(self) -> BudgetShare:
        return self.share_of("target", str(self.index), self._chunks)

    def share_of(self, role: Role, task: str, tasks: int, attempt: str = "") -> BudgetShare:
        """Return the budget share for a role's calls, divided among `tasks` tasks."""
        judges = Fraction(0 if self.run.config.model.judge is None else 1, JUDGES_SHARE)
        part = (judges if role == "judge" else 1 - judges) / tasks
        return BudgetShare(self.run, self.moment, self._plan, task, part, attempt)

    def allotted(self, gateways: int = 1) -> "AbstractContextManager[GatewayShare]":
        """Return a gateway's part of the share, at most twice the calls that the items can make."""
        model = self.run.config.model
        most = math.inf if HARNESSES[model.harness].is_cli else 2 * model.max_turns * len(self.items)
        return self.share.gateway(gateways, most)

    def release_budget(self) -> None:
        for name in ("share", "_judge_share"):
            share: BudgetShare | None = self.__dict__.pop(name, None)
            if share is not None:
                share.close()

    @property
    def settings(self) -> RolloutSettings:
        settings = self.run.settings(self.upstream.dialect, self.upstream.model)
        fewer = {"max_attempts": PREFLIGHT_ATTEMPTS} if self.stage == "preflight" else {}
        return settings.model_copy(update={"gives_up": self._fresh, "concurrency": self.concurrency, **fewer})

    @cached_property
    def image(self) -> str:
        record, benchmark = self.run.record, benchmarks.folder(self.run.ref.benchmark)
        return image_to_use(record.image, record.program, self.run.config, benchmark)

    @property
    def released(self) -> int | None:
        """Number of items that may start, as of the last `is_decided`; None for all."""
        return self._released if self.chunk.contested else None

    @property
    def hopeless(self) -> FailureReason | None:
        """Return why no further item is tried, if the first ones failed for a common reason."""
        return shared_lasting_failure(self._first, len(self.assigned)) if self._fresh else None

    def is_decided(self) -> bool:
        """Return whether no further item matters: all would fail, or by all chunks' rows the candidate can't win."""
        if self.hopeless is not None:
            return True
        if not self.chunk.contested:
            return False
        run, current = self.run, self._state.current.evaluation
        rollouts = samples_of(run, Split.VAL, self.document, known=self._looked)
        record = run.states.record(self._state)
        running = RunningEvaluation.of(run.item_refs(Split.VAL), rollouts, current, run.config.evaluation, record)
        if running.lost() is not None:
            return True
        worthwhile = set(running.worthwhile())
        # Without this minimum, the last items would run almost one by one.
        least = self.concurrency * MIN_AHEAD
        most = max(self.concurrency * MAX_AHEAD, math.ceil(len(self.items) * LARGEST_SHARE_AHEAD))
        wanted = sum(item.id in worthwhile for item in self.items) - self._recorded
        self._released = self._recorded + min(max(wanted, least), most)
        return False

    def record(self, outcomes: Sequence["Outcome"], calls: Sequence[ModelCall]) -> None:
        self._recorded += len(outcomes)
        self._first = [*self._first, *(one.trajectory for one in outcomes)][:FIRST_ITEMS]
        with ThreadPoolExecutor(JUDGES) as pool:
            self._store(list(pool.map(self._scored, outcomes)), calls)

    def judge_again(self) -> None:
        """Judge answers again whose judge failed, without new rollouts."""
        waiting = [self._refs[one.item_id] for one in self.ended() if one.status is Status.JUDGE_ERROR]
        if not waiting:
            return
        failed = self.run.rollouts.errors(self._key, self.run.ref.run, waiting)
        answered = [one.trajectory.model_copy(update={"status": Status.OK, "error": ""}) for one in failed.values()]
        self._store([self._scored(Outcome(one)) for one in answered], [])

    def _store(self, scored: Sequence[Rollout], calls: Sequence[ModelCall]) -> None:
        """Store rollouts, judged where the rules can't decide."""
        judges: list[ModelCall] = []
        pairs = [(self._by_id[one.trajectory.item_id], one) for one in scored]
        rollouts = grade_rollouts(self.run, pairs, self.concurrency, self._judge_share, judges)
        rows = [(self._refs[rollout.trajectory.item_id], rollout) for rollout in rollouts]
        if self.chunk.stage == "rollout" and not self._has_stored:
            # An earlier reflection on the batch didn't include these.
            self.run.store.delete(self.run.keys.moment(self.moment).reflected_items)
        self.run.rollouts.append(self._key, self.run.ref.run, rows, self._writer)
        self._has_stored = True
        # Separate parts: the judge may be asked again about repeated rows.
        self.share.store(calls, self._writer)
        self._judge_share.store(judges, self._writer)

    def close(self) -> None:
        """Merge the parts written while the chunk ran; nothing is stored afterwards."""
        self.run.rollouts.close(self._key, self._writer)
        self.run.usage.close(self.run.ref.benchmark, self.run.account, self._writer)

    def ended(self) -> list[RolloutResult]:
        refs = list(self._refs.values())
        return list(self.run.results(self.chunk.split, self.document, self.chunk.sample, refs, self._known).values())

    def begun_at(self, moment: float) -> set[str]:
        """Return the ids of items whose rollouts this run stored with this start time (Unix seconds)."""
        own = self.run.rollouts.carried_out(self._key, self.run.ref.run)
        # Stored times have microsecond precision.
        return {one.item_id for one in own if abs(one.started - moment) < 1e-5}

    def tally(self) -> RolloutTally:
        return RolloutTally.of(self.ended(), len(self.assigned))

    @cached_property
    def wanted_coverage(self) -> float:
        """Required share of assigned items with a score, so that the whole measurement has enough coverage in every
        sample.

        Unusable items have no score either. If a missing item counts against the candidate, all failures are retried.
        """
        policy = policy_of(self.run.config.evaluation.gate_policy)
        if self.stage == "publish" or (self.stage == "evaluate" and policy.has_level):
            return 1.0
        measured = {item_id for part in self._measuring for item_id in part.item_ids}
        useless = sum(bool(ref.unusable) for ref in self.run.item_refs(self.chunk.split) if ref.id in measured)
        may_fail = (1 - self.run.config.evaluation.min_coverage) * len(measured) - useless
        rollouts = len({part.sample for part in self._measuring}) * (len(measured) - useless)
        return 1 - max(0.0, may_fail) / rollouts if rollouts else 1.0

    @property
    def _fresh(self) -> bool:
        """Return whether no item of the chunk has a score; otherwise a failure isn't common to all items."""
        return len(self.items) == len(self.assigned)

    @cached_property
    def _by_id(self) -> Mapping[str, Item]:
        return {item.id: item for item in self.assigned}

    @cached_property
    def _refs(self) -> Mapping[str, ItemRef]:
        return {ref.id: ref for ref in self.run.item_refs(self.chunk.split) if ref.id in self._by_id}

    @cached_property
    def _state(self) -> RunState:
        """Return the state that the candidate competes with; it doesn't change meanwhile."""
        return self.run.state_before(self.moment)

    @cached_property
    def _judge_share(self) -> BudgetShare:
        return self.share_of("judge", f"{self.index}-judge", self._chunks)

    @cached_property
    def _key(self) -> RolloutKey:
        return self.run.rollout_key(self.chunk.split, self.document, self.chunk.sample)

    def _scored(self, outcome: Outcome) -> Rollout:
        trajectory, benchmark = outcome.trajectory, self.run.benchmark
        item = self._by_id[trajectory.item_id]
        if not trajectory.status.scored:
            return Rollout(trajectory=trajectory, score=None)
        if isinstance(benchmark, JudgesRepository):
            tests = engine_test_runner(self.limits, self.image, self.labels, self.image_files, None)
            return score_repository(benchmark, item, trajectory, outcome.files, tests)
        try:
            name, references = self.run.ref.benchmark, partial(self._contents, item.reference_files)
            score = score_of(name, benchmark, item, trajectory, outcome.files, references)
        except SandboxError as error:
            failed = trajectory.model_copy(update={"status": Status.SANDBOX_ERROR, "error": str(error)[:500]})
            return Rollout(trajectory=failed, score=None)
        return Rollout(trajectory=trajectory, score=score)
