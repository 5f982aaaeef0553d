"""A whole training in this process: the product's own loop, with the stand-in called as a function."""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bench.training_loop import TrainingLoop
from local.standin.chat_wire import complete
from local.standin.stand_in import of_all_benchmarks
from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup, StorageGroup
from skillopt_airflow.core.config.sampling import OutputForm
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.model_protocols import Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Part, Pictures, message_parts
from skillopt_airflow.core.values.types import Item, JsonObject, Message, ModelCall, Status, Trajectory, canonical_json
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import SearchUpstream
from skillopt_airflow.models.metering import price_of
from skillopt_airflow.rollout.corpus_folder import CorpusFolder
from skillopt_airflow.rollout.workspace import ItemFolders, output_files
from skillopt_airflow.sandbox.staging import stage_corpus
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.keys import MomentKeys, RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.protocols import FollowsUp, ShowsFiles
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.connections import Begin, OnCall
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.training.local_store import LocalStore

PROJECT = Path(__file__).parents[2]
BEFORE_STEPS = ("prepare", "preflight", "score_seed", "start", "plan_seed_test", "test_seed")
Reply = Callable[[str, str, str], Any]
"""What the optimizer answers by stage, prompt and tool name; None leaves it to the stand-in."""


class InterruptedRun(Exception):
    """The process that ran the training is gone."""


def content(parts: Sequence[Part]) -> object:
    """A text by itself, and a list where there are pictures."""
    if all(isinstance(part, str) for part in parts):
        return "".join(map(str, parts))
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": part.data_url}}
        for part in parts
    ]


@lru_cache(maxsize=65536)
def stand_in(request: str) -> str:
    return json.dumps(complete(json.loads(request), of_all_benchmarks().reply)["choices"][0]["message"])


def said(
    system: str, messages: Sequence[Message | Mapping[str, str]], tool: str = "", pictures: Pictures = NO_PICTURES
) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": tool}}] if tool else []
    turns = [Message.model_validate(message) for message in messages]
    told = [{"role": turn.role, "content": content(parts)} for turn, parts in message_parts(turns, pictures)]
    conversation = [{"role": "system", "content": system}, *told]
    request = {"model": "stand-in", "messages": conversation, **({"tools": tools} if tools else {})}
    message: dict[str, Any] = json.loads(stand_in(canonical_json(request)))
    return message


@dataclass
class InProcessConnections:
    """The stand-in as both models, stores in memory; keeps every prompt that the optimizer saw."""

    store: LocalStore = field(default_factory=LocalStore)
    reply: Reply = lambda stage, prompt, tool: None
    artifacts: LocalStore = field(default_factory=LocalStore)
    prompts: list[tuple[str, str]] = field(default_factory=list)
    questions: list[tuple[str, Sequence[Message]]] = field(default_factory=list)
    shown: list[tuple[str, Pictures]] = field(default_factory=list)
    """The pictures of each call of the optimizer that has some."""
    checked: list[Collection[Role]] = field(default_factory=list)
    """The roles of each check of the models."""

    def s3_client(self, storage: StorageGroup) -> Any:
        return None

    def object_store(self, storage: StorageGroup, bucket: str) -> ObjectStore:
        return self.artifacts if bucket == storage.artifact_bucket else self.store

    @contextmanager
    def optimizer(
        self, model: ModelGroup, on_call: OnCall, begin: Begin, output: OutputForm = "auto", attempts: int = 1
    ) -> Iterator["InProcessOptimizer"]:
        yield InProcessOptimizer(self, on_call, begin)

    @contextmanager
    def judge(
        self, model: ModelGroup, on_call: OnCall, begin: Begin, output: OutputForm = "auto", attempts: int = 1
    ) -> Iterator["InProcessOptimizer"]:
        yield InProcessOptimizer(self, on_call, begin, "judge")

    @contextmanager
    def target(self, model: ModelGroup, on_call: OnCall, begin: Begin) -> Iterator["InProcessTarget"]:
        yield InProcessTarget(self, on_call, begin)

    def upstream(self, model: ModelGroup) -> Upstream:
        return Upstream(dialect="openai-chat", base_url="http://127.0.0.1:9/v1", model="stand-in-target", api_key="")

    def search(self, search: SearchGroup) -> SearchUpstream:
        return SearchUpstream(conn_id="skillopt_search", kind="searxng", base_url="http://127.0.0.1:9")

    def prices(self, config: TrainConfig) -> Prices:
        model = config.model
        names: dict[Role, str | None] = {"target": model.target, "optimizer": model.optimizer, "judge": model.judge}
        return {role: price_of(name, config.budget.prices) for role, name in names.items() if name is not None}

    def item_images(self, config: TrainConfig, names: Sequence[str]) -> None:
        """Nothing runs in an image here."""

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        self.checked.append(asked)
        return "skillopt-sandbox@sha256:in-process"


@dataclass
class InProcessOptimizer:
    models: InProcessConnections
    on_call: OnCall
    begin: Begin
    role: str = "optimizer"

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        self.begin()
        self.models.prompts.append((stage, prompt))
        if pictures:
            self.models.shown.append((stage, pictures))
        self.on_call(call(self.role, stage, len(instructions) + len(prompt)))
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
    models: InProcessConnections
    on_call: OnCall
    begin: Begin

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        self.begin()
        self.models.questions.append((stage, messages))
        self.on_call(call("target", stage, sum(len(message.content) for message in messages)))
        system, *rest = messages
        return str(said(system.content, rest, pictures=pictures)["content"])


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


@dataclass(eq=False)
class Training(TrainingLoop):
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
    """The status of an item's rollout, if it is not ok, by stage and id."""
    slip: Callable[[int, str], bool] = lambda sample, item_id: False
    """Whether a try comes to a wrong answer, by sample and item."""
    why: str = "played"
    """The error of a rollout that fails."""
    reports: bool = False
    """Whether its page is written, whose figures take longer to draw than two steps to train."""
    rollouts: Counter[str] = field(default_factory=Counter)
    """Rollouts that were carried out, by stage."""

    def __post_init__(self) -> None:
        ref = RunRef(benchmark=self.benchmark, run=self.name, storage=StorageGroup())
        self.models = InProcessConnections(self.store, self.reply)
        super().__init__(TrainingRun(ref, self.models), self.config, self.run_containers)

    @classmethod
    def of(
        cls,
        benchmark: str = "searchqa",
        reply: Reply | None = None,
        *,
        reports: bool = False,
        preflight: bool = True,
        **overrides: Any,
    ) -> "Training":
        """A run of the benchmark's sample with overrides by dotted path, `__` for the dot."""
        paths = {key.replace("__", "."): value for key, value in overrides.items()}
        played = {} if reply is None else {"reply": reply}
        done = {} if preflight else {"preflight": None}
        return cls(configured(benchmark, paths), benchmark, done=done, reports=reports, **played)

    def prepare(self) -> list[JsonObject]:
        """Only the first task, done."""
        chunks: list[JsonObject] = self.task("prepare", lambda: prepare_training(self.run, self.config))
        return chunks

    def clear_steps(self) -> None:
        """Have all tasks behind those of the seed done again, as when the first epoch is cleared."""
        self.done = {name: found for name, found in self.done.items() if name in BEFORE_STEPS}

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
        if name == "report" and not self.reports:
            return None
        if name not in self.done:
            result = work()
            self.order.append(name)
            if name == self.interrupt_after:
                raise InterruptedRun(name)
            self.done[name] = result
        return self.done[name]

    def run_containers(self, refs: Sequence[JsonObject]) -> None:
        """Up to `containers` chunks at the same time, each some items whenever it is its turn."""
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
        try:
            yield from self._ran(work)
        finally:
            work.release_budget()

    def _ran(self, work: ChunkWorkload) -> Iterator[None]:
        if work.is_decided():
            return
        items, begun = list(work.items), 0
        while begun < len(items):
            released = len(items) if work.released is None else work.released
            ran = [self._outcome(work, item) for item in items[begun:released][: work.concurrency]]
            begun += len(ran)
            calls = [call("target", work.stage, 400) for _ in ran]
            with work.allotted() as allotment:
                for made in calls:
                    allotment.count(made)
                allotment.complete()
            work.record(ran, calls)
            if work.is_decided():
                return
            yield

    def _outcome(self, work: ChunkWorkload, item: Item) -> Outcome:
        """With what the target's program left, where the benchmark has programs; they run here, in plain processes."""
        trajectory = self._trajectory(work, item)
        if not self.run.benchmark.runs_code or not trajectory.status.scored:
            return Outcome(trajectory)
        assert isinstance(self.run.benchmark, FollowsUp)
        with tempfile.TemporaryDirectory() as folder:
            inputs, outputs = Path(folder) / "in", Path(folder) / "out"
            inputs.mkdir()
            outputs.mkdir()
            for name, content in work.files(item).items():
                (inputs / name).write_bytes(content)
            workspace = ItemFolders(inputs, outputs, code_timeout=60)
            asyncio.run(self.run.benchmark.follow_up(item.public, trajectory.messages[-1].content, workspace))
            files = {name: (outputs / name).read_bytes() for name in output_files(str(outputs))}
        return Outcome(trajectory.model_copy(update={"files": tuple(files)}), files)

    def _trajectory(self, work: ChunkWorkload, item: Item) -> Trajectory:
        self.rollouts[work.stage] += 1
        played = self.fail(work.stage, item.id)
        status = Status.OK if played is None else played
        if not status.scored:
            return Trajectory(item_id=item.id, status=status, error=self.why)
        system, *rest = self.run.benchmark.messages(item.public, work.skill)
        if isinstance(self.run.benchmark, ShowsFiles) and self.run.config.data.corpus is not None:
            shown = asyncio.run(self.run.benchmark.shown_files(item.public, self._corpus_alone(work)))
            rest[-1] = rest[-1].model_copy(update={"content": f"{rest[-1].content}\n\n{shown}"})
        text = str(said(system.content, rest, pictures=work.files(item))["content"])
        if self.slip(work.chunk.sample, item.id):
            text = "<answer>a slip</answer>"
        return Trajectory(
            item_id=item.id,
            status=status,
            messages=(system, *rest, Message(role="assistant", content=text)),
            answer=self.run.benchmark.answer(text),
            calls=1,
        )

    def _corpus_alone(self, work: ChunkWorkload) -> ItemFolders:
        """The folders of an item without files of its own."""
        assert work.corpus is not None
        nowhere, staged = Path("/nowhere"), stage_corpus(work.corpus, Path(tempfile.gettempdir()))
        return ItemFolders(nowhere, nowhere, 1.0, corpus=CorpusFolder(staged))


def step_keys(keys: RunKeys, number: int) -> MomentKeys:
    """Return the keys of a step (1-based)."""
    return keys.moment(Moment(kind="step", epoch=1, step=number))


def configured(benchmark: str, overrides: Mapping[str, Any]) -> TrainConfig:
    """The benchmark's configuration, small enough for a test, with overrides by dotted path."""
    layer = yaml.safe_load((PROJECT / "benchmarks" / benchmark / "benchmark.yaml").read_text(encoding="utf-8"))
    small = {
        "train": {"num_epochs": 2, "steps_per_epoch": 2, "batch_size": 8},
        "gradient": {"minibatch_size": 4},
        "model": {
            "target": "openai-chat:stand-in-target",
            "optimizer": "openai-chat:stand-in-optimizer",
            "concurrency": 16,
        },
        "optimizer": {"slow_update_samples": 6},
        "evaluation": {"val_limit": 24, "test_limit": 12},
    }
    return TrainConfig.from_layers(layer, small, nest(overrides))
