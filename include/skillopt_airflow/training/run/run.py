"""One run, as its stages see it: opened from a small reference, everything else read from the object store."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import SEARCH_PATIENCE
from skillopt_airflow.core.config.sampling import MODEL_ATTEMPTS, OutputForm
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, ObjectMissing, StoreError
from skillopt_airflow.core.gate.run_gates import publish_split
from skillopt_airflow.core.run.budget import Prices, Role
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.run.timeline import EPOCH_ENDS, Moment, MomentKind, batch_draws, slices, timeline
from skillopt_airflow.core.values.pictures import Pictures, marks_in
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person
from skillopt_airflow.core.values.types import (
    Item,
    ItemFile,
    ItemRef,
    Rollout,
    RolloutResult,
    Split,
    Status,
    Trajectory,
    canonical_json,
    sha256,
)
from skillopt_airflow.optimizer.judge import judge_settings
from skillopt_airflow.optimizer.sections import prompt_room
from skillopt_airflow.tasks.protocols import Benchmark, JudgesRepository, PlaysSession
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run_record import RunRecord, RunRef
from skillopt_airflow.training.run.run_search import search_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skillopt_airflow.rollout.settings import RolloutSettings
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.run_states import RunStates
    from skillopt_airflow.store.tables.rollout_table import KnownParts, RolloutKey, RolloutTable, UsageTable
    from skillopt_airflow.training.run.connections import Connections

log = logging.getLogger(__name__)

OF_ONE_RUN = (Split.FRESH,)
"""Splits whose items no other run rolls out: those of a night are refused in any other."""
SHAPING = (*("temperature", "max_tokens", "max_turns", "reasoning_effort"),)
"""Knobs of the model that decide what a rollout says."""


class TrainingRun:
    """A run's settings, documents and tables, and its connections to the outside."""

    def __init__(self, ref: RunRef, connections: "Connections", store: "ObjectStore | None" = None) -> None:
        """Open a run; `store` is its bucket, if it is open already, since to reach one takes longer than to read it."""
        from skillopt_airflow.store.keys import RunKeys

        self.ref = ref
        self.connections = connections
        self.store = connections.object_store(ref.storage, ref.storage.bucket) if store is None else store
        self.keys: RunKeys = RunKeys(ref.storage.prefix, ref.benchmark, ref.run)
        self._refs: dict[Split, list[ItemRef]] = {}

    @cached_property
    def record(self) -> RunRecord:
        return self.store.get_model(self.keys.config, RunRecord)

    @property
    def config(self) -> TrainConfig:
        return self._overridden if self.ref.overrides else self.record.config

    def batch_draws(self, moment: Moment) -> range:
        return batch_draws(self.config.train, max(1, moment.epoch), self.config.model.temperature)

    @property
    def prompt_room(self) -> int:
        return prompt_room(self.config.gradient, self.record.prices)

    @cached_property
    def _overridden(self) -> TrainConfig:
        return read_config(self.record.config.model_dump(), nest(self.ref.overrides))

    def output_of(self, role: Role) -> OutputForm:
        """Return how a model is asked: in plain text if the preflight got no other answer of it."""
        return "text" if self.store.exists(self.keys.in_text(role)) else "auto"

    @property
    def prices(self) -> Prices:
        return self.record.prices if self.ref.prices is None else self.ref.prices

    @property
    def for_another_model(self) -> bool:
        """Return whether the run is published for another target model than it was trained for."""
        return self.config.model.target != self.record.config.model.target

    @property
    def account(self) -> str:
        """Under which name its model calls are stored, and count for its budget."""
        return f"{self.ref.run}@{self.config.model.target}" if self.for_another_model else self.ref.run

    @cached_property
    def benchmark(self) -> Benchmark:
        return benchmarks.load(self.ref.benchmark, self.config.task)

    def seed_skill(self) -> SkillDocument:
        """Read the skill that a training of the benchmark starts from.

        Raises:
            ConfigError: there is none.
            SkillError: its protected regions are broken, or it has hidden characters or commands.
        """
        path = benchmarks.seed_skill(self.ref.benchmark)
        if not path.is_file():
            raise ConfigError(
                f"{path}: the seed skill is missing; write the Markdown that the training should start from"
            )
        skill = skill_of_person(path.read_text(encoding="utf-8"), str(path))
        log.info("seed skill %s, %d characters, %d protected regions", path, len(skill.text), len(skill.protected))
        return skill

    @property
    def published(self) -> "ArtifactStore":
        return published_skills(self.connections, self.ref.storage, self.ref.benchmark, str(self.config.model.target))

    @cached_property
    def rollouts(self) -> "RolloutTable":
        from skillopt_airflow.store.tables.rollout_table import RolloutTable

        return RolloutTable(self.store, self.ref.storage.prefix)

    @cached_property
    def states(self) -> "RunStates":
        from skillopt_airflow.store.run_states import RunStates

        return RunStates(self.store, self.keys)

    @cached_property
    def usage(self) -> "UsageTable":
        from skillopt_airflow.store.tables.rollout_table import UsageTable

        return UsageTable(self.store, self.ref.storage.prefix)

    @cached_property
    def timeline(self) -> tuple[Moment, ...]:
        return timeline(self.config, self.record.steps_in_epoch)

    def step(self, position: int) -> Moment | None:
        """Return step `position` (1-based) of this DAG run, or None behind its end or the epoch's."""
        number = self.ref.offset + position
        if number > self.record.steps_in_epoch or 0 < self.ref.part < position:
            return None
        return Moment(
            kind="step", epoch=self.ref.epoch, step=(self.ref.epoch - 1) * self.record.steps_in_epoch + number
        )

    def epoch_ends(self) -> list[Moment]:
        """Return the moments that follow the epoch's steps in this DAG run."""
        if not self.ref.ends or 0 < self.ref.part < self.record.steps_in_epoch - self.ref.offset:
            return []
        return [one for one in self.timeline if one.kind in EPOCH_ENDS and one.epoch == self.ref.epoch]

    def epoch_end(self, kind: MomentKind) -> Moment | None:
        """Return the moment of this kind at the epoch's end, if the DAG run has it and was not stopped before."""
        moment = next((one for one in self.epoch_ends() if one.kind == kind), None)
        return None if moment is None or self.stopped_before(moment) else moment

    def newest_state(self) -> RunState:
        return self.states.read(self.keys.runtime_state)

    def stopped(self) -> str:
        return self.newest_state().stopped

    def stopped_before(self, moment: Moment) -> bool:
        """Return whether the moment before this one was not reached, or stopped the run."""
        try:
            return bool(self.state(self.previous(moment)).stopped)
        except ObjectMissing:
            return True

    def is_newest(self, moment: Moment) -> bool:
        """Return whether nothing after the moment is committed; only then does it speak for the whole run."""
        following = self.timeline[self.timeline.index(moment) + 1 :]
        return not any(map(self.committed, following[:1]))

    def previous(self, moment: Moment) -> Moment:
        return self.timeline[self.timeline.index(moment) - 1]

    def state(self, moment: Moment) -> RunState:
        return self.states.read(self.keys.moment(moment).state)

    def commit(self, moment: Moment, state: RunState) -> None:
        """Store the state that a moment ends with, last; the newest moment's is the run's, and so is its best skill.

        If the moment ended otherwise before, what followed from that goes first.
        """
        from skillopt_airflow.store.run_states import equal_states

        later = self.timeline[self.timeline.index(moment) + 1 :]
        # The next moment may have begun without a state of its own.
        if later and self.committed(moment) and not equal_states(self.state(moment), state):
            for undone in map(self.keys.moment, reversed(later)):
                self.store.delete(undone.reflected_items)
                self.store.delete(undone.state)
            log.warning(
                "%s has another outcome than before, so what followed from it does not count: clear the training's "
                "task of this part, with all that comes after it",
                moment.name,
            )
        keys = [self.keys.moment(moment).state]
        if not later or not self.committed(later[0]):
            # Not only an accepted candidate: a gate that is done again may take back the best skill of before.
            self.store.put_text(self.keys.best_skill, self.skill(state.best.version).text)
            keys = [self.keys.runtime_state, *keys]
        self.states.write(keys, state)

    def state_before(self, moment: Moment) -> RunState:
        """Return the state that the moment starts from."""
        previous = self.previous(moment)
        state = self.state(self.last_committed() if moment.kind == "final" else previous)
        # The run's end is in the last epoch.
        return state.in_new_epoch() if previous.epoch != moment.epoch else state

    def committed(self, moment: Moment) -> bool:
        return self.store.exists(self.keys.moment(moment).state)

    def last_committed(self) -> Moment:
        """Return the last moment before the run's end that has a state, an early one if the run was stopped.

        Raises:
            StoreError: a moment is missing although the run was not stopped.
        """
        stored = set(self.store.list_keys(self.keys.folder))
        reached = self.timeline[0]
        for moment in self.timeline[:-1]:
            if self.keys.moment(moment).state not in stored:
                break
            reached = moment
            # What lies behind a stop is of an earlier attempt.
            if self.state(moment).stopped:
                break
        if reached != self.timeline[-2] and not self.state(reached).stopped:
            raise StoreError(
                f"{self.store.address(self.keys.folder)}: the run has no state behind {reached.name}; clear the task "
                "that should have written it. If the graph has none, train.num_epochs was lowered in benchmark.yaml "
                f"meanwhile: this run needs {self.config.train.num_epochs}"
            )
        return reached

    def skill(self, version: int) -> SkillDocument:
        """Return an accepted version of the skill; 0 is the seed."""
        return self.document(self.keys.skill(version))

    def document(self, key: str) -> SkillDocument:
        return SkillDocument(self.store.get_text(key))

    def items(self, split: Split) -> "list[Item]":
        """Return the items of a split that this run uses, in their order."""
        from skillopt_airflow.store.data.items import load_items

        return load_items(self.store, self.keys.items(split))[: self.config.evaluation.limit(split)]

    def items_of(self, split: Split, ids: "Sequence[str]") -> "list[Item]":
        """Return the items of a split with these ids, in the order of these."""
        from skillopt_airflow.store.data.items import load_items

        wanted = set(ids)
        places = {place for place, ref in enumerate(self.item_refs(split)) if ref.id in wanted}
        found = {item.id: item for item in load_items(self.store, self.keys.items(split), places)}
        return [found[item_id] for item_id in ids]

    def item_refs(self, split: Split) -> "list[ItemRef]":
        """Return `items` by their ids, without what they hold."""
        from skillopt_airflow.store.data.items import load_item_refs

        if split not in self._refs:
            self._refs[split] = load_item_refs(self.store, self.keys.items(split))
        return self._refs[split][: self.config.evaluation.limit(split)]

    @property
    def publish_split(self) -> Split:
        return publish_split([Split.PUBLISH] if self.store.exists(self.keys.items(Split.PUBLISH)) else [])

    def slices(self, moment: Moment) -> "list[list[ItemRef]]":
        position = moment.step - (moment.epoch - 1) * self.record.steps_in_epoch
        return slices(self.item_refs(Split.TRAIN), moment.epoch, position, self.config.train)

    def batch(self, step: Moment) -> "list[ItemRef]":
        return [item for part in self.slices(step) for item in part]

    def settings(self, dialect: str, model: str) -> "RolloutSettings":
        """Return what a sandbox is told; the model as its provider names it."""
        return rollout_settings(self.ref.benchmark, self.config, dialect, model)

    def rollout_key(self, split: Split, skill: SkillDocument, draw: int) -> "RolloutKey":
        """Return what makes two rollouts of an item the same, however fast or often they are tried."""
        from skillopt_airflow.store.tables.rollout_table import RolloutKey

        model = self.config.model
        return RolloutKey(
            benchmark=self.ref.benchmark,
            target=str(model.target),
            harness=model.harness,
            split=split,
            skill_sha256=skill.sha256,
            draw=draw,
            settings_sha256=self._settings_sha256,
            image=self.record.program,
        )

    @cached_property
    def _settings_sha256(self) -> str:
        """Hash of the settings that shape a rollout and its score."""
        model = self.config.model
        shaping = model.model_dump(mode="json", include=set(SHAPING))
        shaping |= judge_settings(self.config) | search_settings(self.config, self.record.created)
        shaping |= {"corpus": self.record.corpus} if self.record.corpus else {}
        sandbox = self.config.sandbox
        if needs_container_each(self.benchmark, self.config):
            shaping |= sandbox.model_dump(mode="json", include={"code_timeout", "memory"})
        if isinstance(self.benchmark, JudgesRepository):
            shaping |= sandbox.model_dump(mode="json", include={"memory", "test_timeout"})
        return sha256(canonical_json(shaping))

    def results(
        self,
        split: Split,
        skill: SkillDocument,
        draw: int,
        items: "Sequence[Item | ItemRef]",
        known: "KnownParts | None" = None,
    ) -> "Mapping[str, RolloutResult]":
        """Return `stored` without what was said; `known` has what was read before with the same arguments."""
        own = split in OF_ONE_RUN
        found = self.rollouts.results(self.rollout_key(split, skill, draw), self.ref.run, items, own=own, known=known)
        return {**found, **{item.id: _unusable(item).result for item in items if item.unusable}}

    def stored(
        self, split: Split, skill: SkillDocument, draw: int, items: "Sequence[Item | ItemRef]"
    ) -> "Mapping[str, Rollout]":
        """Return the items' rollouts by id: those with a score, of any run, else this run's failures.

        An item that is of no use has failed in every run, without a stored row.
        """
        key = self.rollout_key(split, skill, draw)
        scored = self.rollouts.read(key, items)
        missing = [item for item in items if item.id not in scored]
        failed = self.rollouts.errors(key, self.ref.run, missing) if missing else {}
        return scored | failed | {item.id: _unusable(item) for item in items if item.unusable}


def _unusable(item: "Item | ItemRef") -> Rollout:
    return Rollout(trajectory=Trajectory(item_id=item.id, status=Status.DATA_ERROR, error=item.unusable), score=None)


def needs_container_each(benchmark: Benchmark, config: TrainConfig) -> bool:
    """Return True where what the model writes is executed, and for an agent's CLI, which may execute anything."""
    return benchmark.runs_code or HARNESSES[config.model.harness].is_cli


def rollout_settings(benchmark: str, config: TrainConfig, dialect: str, model: str) -> "RolloutSettings":
    from skillopt_airflow.rollout.settings import RolloutSettings, image_program

    chosen = config.model
    own = image_program(benchmark, declared=config.task is not None) if config.sandbox.has_own_image else ""
    return RolloutSettings.model_validate(
        {
            # A knob of the model that the sandbox is told of has the same name there.
            **chosen.model_dump(include=set(RolloutSettings.model_fields)),
            "benchmark": benchmark,
            "task": config.task,
            "image_program": own,
            "max_attempts": MODEL_ATTEMPTS,
            "item_timeout": config.sandbox.timeout,
            "code_timeout": config.sandbox.code_timeout,
            "dialect": dialect,
            "model": model,
            "search_patience": None if config.search.conn_id is None else SEARCH_PATIENCE,
        }
    )


def contents(run: TrainingRun, files: Sequence[ItemFile]) -> Mapping[str, bytes]:
    from skillopt_airflow.store.data.files import FileStore

    kept = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: kept.get(file.sha256) for file in files}


def for_container(benchmark: Benchmark, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return what enters a container of an item's files: all, but of a world only what it is made of."""
    return benchmark.world_files(contents) if isinstance(benchmark, PlaysSession) else contents


def shown_items(run: TrainingRun, split: Split, rollouts: Iterable[Rollout]) -> list[Item]:
    """Return the items whose pictures the target was shown in these rollouts."""
    shown = {
        one.trajectory.item_id for one in rollouts if any(marks_in(said.content) for said in one.trajectory.messages)
    }
    return run.items_of(split, sorted(shown)) if shown else []


def pictures(run: TrainingRun, items: Iterable[Item]) -> Mapping[str, Pictures]:
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}
