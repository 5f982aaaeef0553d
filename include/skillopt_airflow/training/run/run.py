"""A run as its stages see it, opened from a small reference; everything else is read from the object store."""

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
from skillopt_airflow.core.run.state import RunState, StepBuffer
from skillopt_airflow.core.run.timeline import EPOCH_ENDS, Moment, MomentKind, batch_samples, slices, timeline
from skillopt_airflow.core.values.pictures import Pictures, marks_in
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person
from skillopt_airflow.core.values.types import (
    Item,
    ItemFile,
    ItemRef,
    JsonObject,
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
from skillopt_airflow.rollout.settings import RolloutSettings, image_program
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.tasks.protocols import Benchmark, JudgesRepository
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run_record import RunRecord, RunRef

if TYPE_CHECKING:
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.run_states import RunStates
    from skillopt_airflow.store.tables.rollout_table import KnownParts, RolloutKey, RolloutTable, UsageTable
    from skillopt_airflow.training.run.connections import Connections

log = logging.getLogger(__name__)

PRIVATE_SPLITS = (Split.FRESH,)
"""Splits whose items belong to one run; rollouts of other runs don't count."""
ROLLOUT_KNOBS = ("temperature", "max_tokens", "max_turns", "reasoning_effort")
"""Model knobs that change a rollout."""


class TrainingRun:
    """A run's settings, documents and tables, and its connections to the outside."""

    def __init__(self, ref: RunRef, connections: "Connections", store: "ObjectStore | None" = None) -> None:
        """Open a run; pass its bucket as `store` if it's already open, because opening takes longer than reading."""
        self.ref = ref
        self.connections = connections
        self.store = connections.object_store(ref.storage, ref.storage.bucket) if store is None else store
        self.keys: RunKeys = RunKeys(ref.storage.prefix, ref.benchmark, ref.run)
        self._refs: dict[Split, list[ItemRef]] = {}

    @cached_property
    def record(self) -> RunRecord:
        return self.store.get_model(self.keys.config, RunRecord)

    @cached_property
    def config(self) -> TrainConfig:
        stored, overrides = self.record.config, self.ref.overrides
        return read_config(stored.model_dump(), nest(overrides)) if overrides else stored

    def batch_samples(self, moment: Moment) -> range:
        return batch_samples(self.config.train, max(1, moment.epoch), self.config.model.temperature)

    @property
    def prompt_room(self) -> int:
        return prompt_room(self.config.gradient, self.record.prices)

    def output_of(self, role: Role) -> OutputForm:
        """Return the output form of a model: plain text if the preflight got no other usable answer."""
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
        """Name under which its model calls are stored and count for its budget."""
        return f"{self.ref.run}@{self.config.model.target}" if self.for_another_model else self.ref.run

    @cached_property
    def benchmark(self) -> Benchmark:
        return benchmarks.load(self.ref.benchmark, self.config.task)

    def seed_skill(self) -> SkillDocument:
        """Read the skill that a training of the benchmark starts from.

        Raises:
            ConfigError: the file is missing.
            SkillError: its protected regions are broken, or it has hidden characters or commands.
        """
        path = benchmarks.seed_skill(self.ref.benchmark)
        if not path.is_file():
            raise ConfigError(
                f"{path}: the seed skill is missing. Write the Markdown that the training should start from"
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
        """Return step `position` (1-based) of this DAG run; None past its end or the epoch's."""
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
        """Return the moment of this kind at the epoch's end; None if the DAG run lacks it or was stopped before."""
        moment = next((one for one in self.epoch_ends() if one.kind == kind), None)
        return None if moment is None or self.stopped_before(moment) else moment

    def newest_state(self) -> RunState:
        return self.states.read(self.keys.runtime_state)

    def stopped(self) -> str:
        return self.newest_state().stopped

    def stopped_before(self, moment: Moment) -> bool:
        """Return whether the previous moment is missing or stopped the run."""
        try:
            return bool(self.state(self.previous(moment)).stopped)
        except ObjectMissing:
            return True

    def is_newest(self, moment: Moment) -> bool:
        """Return whether nothing after the moment is committed, so that it represents the whole run."""
        following = self.timeline[self.timeline.index(moment) + 1 :]
        return not any(map(self.committed, following[:1]))

    def previous(self, moment: Moment) -> Moment:
        return self.timeline[self.timeline.index(moment) - 1]

    def state(self, moment: Moment) -> RunState:
        return self.states.read(self.keys.moment(moment).state)

    def commit(self, moment: Moment, state: RunState) -> None:
        """Store a moment's final state; the newest moment also updates the run's state and best skill.

        If the moment had another outcome before, delete the later results first.
        """
        from skillopt_airflow.store.run_states import equal_states

        later = self.timeline[self.timeline.index(moment) + 1 :]
        # The next moment may have begun without storing a state.
        if later and self.committed(moment) and not equal_states(self.state(moment), state):
            for undone in map(self.keys.moment, reversed(later)):
                self.store.delete(undone.reflected_items)
                self.store.delete(undone.state)
            log.warning(
                "%s has another outcome than before, so the later results were deleted. Clear the training's task of "
                "this part and all tasks after it",
                moment.name,
            )
        keys = [self.keys.moment(moment).state]
        if not later or not self.committed(later[0]):
            # Not only for an accepted candidate: a repeated gate may revoke the previous best skill.
            self.store.put_text(self.keys.best_skill, self.skill(state.best.version).text)
            keys = [self.keys.runtime_state, *keys]
        self.states.write(keys, state)

    def state_before(self, moment: Moment) -> RunState:
        """Return the state that the moment starts from."""
        previous = self.previous(moment)
        state = self.state(self.last_committed() if moment.kind == "final" else previous)
        # The run's end belongs to the last epoch.
        return state if previous.epoch == moment.epoch else state.model_copy(update={"buffer": StepBuffer()})

    def committed(self, moment: Moment) -> bool:
        return self.store.exists(self.keys.moment(moment).state)

    def last_committed(self) -> Moment:
        """Return the last moment with a state before the run's end; raise StoreError if an earlier one is missing."""
        stored = set(self.store.list_keys(self.keys.folder))
        reached = self.timeline[0]
        for moment in self.timeline[:-1]:
            if self.keys.moment(moment).state not in stored:
                break
            reached = moment
            # States after a stop are left over from an earlier attempt.
            if self.state(moment).stopped:
                break
        if reached != self.timeline[-2] and not self.state(reached).stopped:
            raise StoreError(
                f"{self.store.address(self.keys.folder)}: the run has no state after {reached.name}. Clear the task "
                "that should have written it. If the graph has no such task, benchmark.yaml lowered train.num_epochs: "
                f"this run needs {self.config.train.num_epochs}"
            )
        return reached

    def skill(self, version: int) -> SkillDocument:
        """Return an accepted version of the skill; 0 is the seed."""
        return self.document(self.keys.skill(version))

    def document(self, key: str) -> SkillDocument:
        return SkillDocument(self.store.get_text(key))

    def items(self, split: Split) -> "list[Item]":
        """Return the items of a split that this run uses, in their order."""
        from skillopt_airflow.store.data.item_tables import load_items

        return load_items(self.store, self.keys.items(split))[: self.config.evaluation.limit(split)]

    def items_of(self, split: Split, ids: "Sequence[str]") -> "list[Item]":
        """Return the items of a split with these ids, in the order of the ids."""
        from skillopt_airflow.store.data.item_tables import load_items

        wanted = set(ids)
        places = {place for place, ref in enumerate(self.item_refs(split)) if ref.id in wanted}
        found = {item.id: item for item in load_items(self.store, self.keys.items(split), places)}
        return [found[item_id] for item_id in ids]

    def item_refs(self, split: Split) -> "list[ItemRef]":
        """Like `items`, without their contents."""
        from skillopt_airflow.store.data.item_tables import load_item_refs

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

    def settings(self, dialect: str, model: str) -> RolloutSettings:
        """Return the settings for a sandbox, with the provider's name of the model."""
        return rollout_settings(self.ref.benchmark, self.config, dialect, model)

    def rollout_key(self, split: Split, skill: SkillDocument, sample: int) -> "RolloutKey":
        """Return the key under which equal rollouts of an item are shared, without speed and retries."""
        from skillopt_airflow.store.tables.rollout_table import RolloutKey

        model = self.config.model
        return RolloutKey(
            benchmark=self.ref.benchmark,
            target=str(model.target),
            harness=model.harness,
            split=split,
            skill_sha256=skill.sha256,
            sample=sample,
            settings_sha256=self._settings_sha256,
            image=self.record.program,
        )

    @cached_property
    def _settings_sha256(self) -> str:
        """Hash of the settings that affect a rollout and its score."""
        model = self.config.model
        shaping = model.model_dump(mode="json", include=set(ROLLOUT_KNOBS))
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
        sample: int,
        items: "Sequence[Item | ItemRef]",
        known: "KnownParts | None" = None,
    ) -> "Mapping[str, RolloutResult]":
        """Like `stored`, without transcripts. `known` caches parts read earlier."""
        own = split in PRIVATE_SPLITS
        found = self.rollouts.results(self.rollout_key(split, skill, sample), self.ref.run, items, own=own, known=known)
        return {**found, **{item.id: _unusable(item).result for item in items if item.unusable}}

    def stored(
        self, split: Split, skill: SkillDocument, sample: int, items: "Sequence[Item | ItemRef]"
    ) -> "Mapping[str, Rollout]":
        """Return the items' rollouts by id: any run's scored ones, else this run's failures.

        Unusable items count as failed, without a stored row.
        """
        key = self.rollout_key(split, skill, sample)
        scored = self.rollouts.read(key, items)
        missing = [item for item in items if item.id not in scored]
        failed = self.rollouts.errors(key, self.ref.run, missing) if missing else {}
        return scored | failed | {item.id: _unusable(item) for item in items if item.unusable}


def _unusable(item: "Item | ItemRef") -> Rollout:
    return Rollout(trajectory=Trajectory(item_id=item.id, status=Status.DATA_ERROR, error=item.unusable), score=None)


def needs_container_each(benchmark: Benchmark, config: TrainConfig) -> bool:
    """Return whether code from the model is executed; always true for an agent's CLI."""
    return benchmark.runs_code or HARNESSES[config.model.harness].is_cli


def rollout_settings(benchmark: str, config: TrainConfig, dialect: str, model: str) -> RolloutSettings:
    chosen = config.model
    own = image_program(benchmark, declared=config.task is not None) if config.sandbox.has_own_image else ""
    return RolloutSettings.model_validate(
        {
            # Knobs that the sandbox needs have the same names there.
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

    files_by_hash = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: files_by_hash.get(file.sha256) for file in files}


def shown_items(run: TrainingRun, split: Split, rollouts: Iterable[Rollout]) -> list[Item]:
    """Return the items whose pictures the target saw in these rollouts."""
    shown = {
        one.trajectory.item_id
        for one in rollouts
        if any(marks_in(message.content) for message in one.trajectory.messages)
    }
    return run.items_of(split, sorted(shown)) if shown else []


def pictures(run: TrainingRun, items: Iterable[Item]) -> Mapping[str, Pictures]:
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}


def search_settings(config: TrainConfig, created: str) -> JsonObject:
    """Return the search settings that affect a rollout of a run created then (ISO 8601); empty without web search."""
    if config.search.conn_id is None:
        return {}
    return {"search": config.search.model_dump(mode="json"), "search_day": search_day(created)}


def search_day(created: str) -> str:
    """Return the day of a run's searches: its first day, so that all candidates get equal results."""
    return created[: len("2026-01-31")]
