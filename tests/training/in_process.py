"""A whole training in this process: the stages in the order of the DAGs, the stand-in called as a function.

What Airflow adds (processes, retries, containers) is left out; every stage and the store's rows are the product's own.
"""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from local.standin.chat import complete
from skillopt_airflow.core.budget import Prices
from skillopt_airflow.core.config import StorageGroup, TrainConfig, nest
from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Conversing, Output
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Item, JsonObject, Message, ModelCall, Status, Trajectory, canonical_json
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.prices import price_of
from skillopt_airflow.rollout.workspace import ItemFolders, files_left
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.training import candidate, ends, epoch_end, steps
from skillopt_airflow.training.models import OnCall
from skillopt_airflow.training.preparation import check_affordable, read_items, read_seed, settle, store_files
from skillopt_airflow.training.run import RunRef, TrainingRun
from skillopt_airflow.training.workload import ChunkWorkload
from tests.training.local_store import LocalStore

PROJECT = Path(__file__).parents[2]
Reply = Callable[[str, str, str], Any]
"""What the optimizer answers by stage, prompt and tool name; None leaves it to the stand-in."""


class InterruptedRun(Exception):
    """The process that ran the training is gone."""


@lru_cache(maxsize=65536)
def stand_in(request: str) -> str:
    return json.dumps(complete(json.loads(request))["choices"][0]["message"])


def said(system: str, messages: Sequence[Mapping[str, str]], tool: str = "") -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": tool}}] if tool else []
    conversation = [{"role": "system", "content": system}, *messages]
    request = {"model": "stand-in", "messages": conversation, **({"tools": tools} if tools else {})}
    message: dict[str, Any] = json.loads(stand_in(canonical_json(request)))
    return message


@dataclass
class InProcessModels:
    """The stand-in as both models; keeps every prompt that the optimizer saw."""

    run: TrainingRun
    reply: Reply
    prompts: list[tuple[str, str]] = field(default_factory=list)
    questions: list[tuple[str, Sequence[Message]]] = field(default_factory=list)

    @contextmanager
    def optimizer(self, on_call: OnCall) -> Iterator["InProcessOptimizer"]:
        yield InProcessOptimizer(self, on_call)

    @contextmanager
    def target(self, on_call: OnCall) -> Iterator["InProcessTarget"]:
        yield InProcessTarget(self, on_call)

    def upstream(self) -> Upstream:
        return Upstream(dialect="openai-chat", base_url="http://127.0.0.1:9/v1", model="stand-in-target", api_key="")


@dataclass
class InProcessOptimizer:
    models: InProcessModels
    on_call: OnCall

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        self.models.prompts.append((stage, prompt))
        self.on_call(call("optimizer", stage, len(instructions) + len(prompt)))
        answer = self.models.reply(stage, prompt, f"{stage}_result")
        if answer is None:
            message = said(instructions, [{"role": "user", "content": prompt}], f"{stage}_result")
            answer = json.loads(message["tool_calls"][0]["function"]["arguments"])
        if isinstance(answer, Exception):
            raise answer
        try:
            return output_type.model_validate_json(answer if isinstance(answer, str) else json.dumps(answer))
        except ValidationError as error:
            raise ModelOutputError(str(error)) from error


@dataclass
class InProcessTarget:
    models: InProcessModels
    on_call: OnCall

    def ask(self, stage: str, messages: Sequence[Message]) -> str:
        self.models.questions.append((stage, messages))
        self.on_call(call("target", stage, sum(len(message.content) for message in messages)))
        system, *rest = [message.model_dump() for message in messages]
        return str(said(system["content"], rest)["content"])


def call(role: Any, stage: str, characters: int) -> ModelCall:
    return ModelCall(
        role=role,
        stage=stage,
        model="stand-in",
        http_status=200,
        attempts=1,
        prompt_tokens=characters // 4,
        completion_tokens=20,
        started=time.time(),
        seconds=0.0,
    )


@dataclass
class Training:
    """A run by its configuration; `store` may be shared, and `done` is what a scheduler knows of its tasks."""

    config: TrainConfig
    benchmark: str = "searchqa"
    name: str = "run"
    store: LocalStore = field(default_factory=LocalStore)
    done: dict[str, Any] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    containers: int = 2
    seed: int = 0
    """Of the order in which containers get on."""
    interrupt_after: str = ""
    """Task behind whose work the process dies, before its end is known."""
    reply: Reply = lambda stage, prompt, tool: None
    fail: Callable[[str, str], Status | None] = lambda stage, item_id: None
    """How the rollout of an item fails, if it does, by stage and id."""
    calls_each: int = 1
    """Calls that a rollout takes."""
    rollouts: Counter[str] = field(default_factory=Counter)
    """Rollouts that were carried out, by stage."""

    def __post_init__(self) -> None:
        ref = RunRef(benchmark=self.benchmark, run=self.name, storage=StorageGroup())
        self.run = TrainingRun(ref, self.store)
        self.models = InProcessModels(self.run, self.reply)
        self.run.models = self.models

    @classmethod
    def of(cls, benchmark: str = "searchqa", reply: Reply | None = None, **overrides: Any) -> "Training":
        """A run of the benchmark's sample with overrides by dotted path, `__` for the dot."""
        paths = {key.replace("__", "."): value for key, value in overrides.items()}
        return cls(configured(benchmark, paths), benchmark, **({} if reply is None else {"reply": reply}))

    def __call__(self) -> RunState:
        """Go through all tasks that are not done."""
        self.task("prepare", self._prepare)
        self._rollouts("evaluate_seed", lambda: ends.seed_plan(self.run))
        self.task("start", lambda: ends.start(self.run))
        self._rollouts("test_seed", lambda: ends.seed_test_plan(self.run))
        for epoch in range(1, self.config.train.num_epochs + 1):
            self._epoch(epoch)
        self._rollouts("evaluate_last", lambda: ends.last_plan(self.run))
        self._rollouts("test", lambda: ends.finish(self.run))
        return self.state

    @property
    def state(self) -> RunState:
        return self.run.state(self.run.timeline[-1])

    def skill(self) -> str:
        return self.run.skill(self.state.best.version).text

    def actions(self) -> list[str]:
        """The verdicts, in order."""
        keys = [self.run.keys.moment(moment).gate for moment in self.run.timeline[1:-1]]
        return [json.loads(self.store.get_bytes(key))["action"] for key in keys if self.store.exists(key)]

    def task(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it unless it is done; what it returned is known from then on."""
        if name not in self.done:
            result = work()
            self.order.append(name)
            if name == self.interrupt_after:
                raise InterruptedRun(name)
            self.done[name] = result
        return self.done[name]

    def _epoch(self, epoch: int) -> None:
        for moment in [one for one in self.run.timeline if one.kind == "step" and one.epoch == epoch]:
            if self.run.stopped():
                return
            self._step(moment)
        for kind, stage in (("slow_update", epoch_end.slow_update), ("meta_reflect", epoch_end.meta_reflect)):
            moment = next((one for one in self.run.timeline if (one.kind, one.epoch) == (kind, epoch)), None)
            if moment is None or self.run.stopped():
                continue
            if kind == "slow_update":
                self._rollouts(f"{moment.name}/rollout", lambda at=moment: epoch_end.longitudinal(self.run, at))
            self._judged(moment, kind, lambda at=moment, stage=stage: stage(self.run, at))

    def _step(self, moment: Moment) -> None:
        run, name, parts = self.run, moment.name, 2
        self._rollouts(f"{name}/rollout", lambda: steps.rollout(run, moment))
        for part in range(parts):
            self.task(f"{name}/reflect-{part}", lambda part=part: steps.reflect(run, moment, part, parts))
        self.task(f"{name}/aggregate", lambda: steps.aggregate(run, moment))
        self.task(f"{name}/select", lambda: steps.select(run, moment))
        self._judged(moment, "update", lambda: steps.update(run, moment))

    def _judged(self, moment: Moment, stage: str, propose: Callable[[], list[JsonObject]]) -> None:
        planned = self.task(f"{moment.name}/{stage}", propose)
        self._carry_out(f"{moment.name}/evaluate", planned)
        if self.config.evaluation.gate_policy == "confirm":
            self._rollouts(f"{moment.name}/confirm", lambda: candidate.confirm(self.run, moment))
        self.task(f"{moment.name}/gate", lambda: candidate.gate(self.run, moment) and None)

    def _rollouts(self, name: str, plan: Callable[[], list[JsonObject]]) -> None:
        self._carry_out(f"{name}_rollouts", self.task(name, plan))

    def _carry_out(self, name: str, refs: Sequence[JsonObject]) -> None:
        self.task(name, lambda: self._run_containers(refs))

    def _run_containers(self, refs: Sequence[JsonObject]) -> None:
        """Up to `containers` chunks at the same time, each a wave of items whenever it is its turn."""
        waiting = [self._container(ref) for ref in refs]
        running: list[Iterator[None]] = []
        turn = random.Random(self.seed)
        while waiting or running:
            while waiting and len(running) < self.containers:
                running.append(waiting.pop(0))
            container = turn.choice(running)
            if next(container, StopIteration) is StopIteration:
                running.remove(container)

    def _container(self, ref: JsonObject) -> Iterator[None]:
        work = ChunkWorkload(self.run, ref, "in-process")
        if work.settled():
            return
        waiting = list(work.items)
        while waiting:
            size = work.wave or self.config.model.concurrency
            wave, waiting = [self._outcome(work, item) for item in waiting[:size]], waiting[size:]
            work.record(wave, [call("target", work.stage, 400) for _ in wave for _ in range(self.calls_each)])
            if work.settled():
                return
            yield

    def _outcome(self, work: ChunkWorkload, item: Item) -> Outcome:
        """With what the target's program left, where the benchmark has programs; they run here, in plain processes."""
        trajectory = self._trajectory(work, item)
        if not self.run.benchmark.runs_code or trajectory.status is not Status.OK:
            return Outcome(trajectory)
        assert isinstance(self.run.benchmark, Conversing)
        with tempfile.TemporaryDirectory() as folder:
            inputs, outputs = Path(folder) / "in", Path(folder) / "out"
            inputs.mkdir()
            outputs.mkdir()
            for name, content in work.files(item).items():
                (inputs / name).write_bytes(content)
            workspace = ItemFolders(inputs, outputs, code_timeout=60)
            asyncio.run(self.run.benchmark.follow_up(item.public, trajectory.messages[-1].content, workspace))
            files = {name: (outputs / name).read_bytes() for name in files_left(str(outputs))}
        return Outcome(trajectory.model_copy(update={"files": tuple(files)}), files)

    def _trajectory(self, work: ChunkWorkload, item: Item) -> Trajectory:
        self.rollouts[work.stage] += 1
        failed = self.fail(work.stage, item.id)
        if failed is not None:
            return Trajectory(item_id=item.id, status=failed, error="played")
        system, *rest = self.run.benchmark.messages(item.public, work.skill)
        text = str(said(system.content, [message.model_dump() for message in rest])["content"])
        return Trajectory(
            item_id=item.id,
            status=Status.OK,
            messages=(system, *rest, Message(role="assistant", content=text)),
            answer=self.run.benchmark.answer(text),
            calls=1,
        )

    def _prepare(self) -> None:
        folder = PROJECT / "benchmarks" / self.benchmark
        items, quality = read_items(self.config.data, folder, self.run.benchmark, None)
        names = {"target": str(self.config.model.target), "optimizer": str(self.config.model.optimizer)}
        prices: Prices = {role: price_of(name, self.config.budget.prices) for role, name in names.items()}
        check_affordable(self.config, items, prices)
        items = store_files(self.run, items, DataFiles.of(self.config.data, folder, None))
        seed = read_seed(PROJECT / "skills" / self.benchmark / "initial.md")
        settle(self.run, self.config, items, quality, "sha256:in-process", prices)
        ends.store_seed(self.run, ends.opened(seed, self.config))


def configured(benchmark: str, overrides: Mapping[str, Any]) -> TrainConfig:
    """The benchmark's configuration, small enough for a test, with overrides by dotted path."""
    layer = yaml.safe_load((PROJECT / "benchmarks" / benchmark / "benchmark.yaml").read_text(encoding="utf-8"))
    small = {
        "train": {"num_epochs": 2, "steps_per_epoch": 2, "batch_size": 8},
        "gradient": {"minibatch_size": 4},
        "model": {
            "target": "openai-chat:stand-in-target",
            "optimizer": "openai-chat:stand-in-optimizer",
            "concurrency": 4,
        },
        "sandbox": {"items_per_container": 8},
        "optimizer": {"slow_update_samples": 6},
        "evaluation": {"val_limit": 24, "test_limit": 12},
    }
    return TrainConfig.from_layers(layer, small, nest(overrides))
