"""A finished run of the reference implementation as a run of this project: its skills, and what it states of them."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from skillopt_airflow.core.config import TrainConfig, changed_paths
from skillopt_airflow.core.documents import Document, flaws
from skillopt_airflow.core.errors import ConfigError, DataError, ObjectMissing, SkillError
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.preset import StatedScores
from skillopt_airflow.core.provenance import IMPORT, LinesOfSkill, continued, seed_lines
from skillopt_airflow.core.reference_config import own_knobs
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import Measured, RunState, seed_state
from skillopt_airflow.core.types import JsonObject, canonical_json, sha256
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.data_items import read_items, store_files
from skillopt_airflow.training.preparation import Beginning, files_of, settle
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_corpus import store_corpus

Parsed = TypeVar("Parsed")


class StatedStep(BaseModel):
    """A step as its history states it."""

    step: int
    epoch: int
    action: str
    selection_hard: float | None = None
    selection_soft: float | None = None
    current_score: float | None = None
    best_score: float | None = None
    edit_budget: int | None = None


class StatedSummary(BaseModel):
    """The scores at the end of a run, as its summary states them."""

    baseline_selection_hard: float | None = None
    best_selection_hard: float | None = None
    baseline_test_hard: float | None = None
    test_hard: float | None = None
    final_test_hard: float | None = None


class ImportedRun(Document):
    """The content of another project's run; none of the scores was measured here."""

    source: str
    """Name of its folder."""
    sha256: str
    """Of the files that were read."""
    target: str
    """Its target model, as it names it."""
    optimizer: str
    """Its optimizer model, as it names it."""
    overrides: JsonObject
    """Its settings that have a counterpart here, by our paths."""
    not_taken: tuple[str, ...]
    """The keys of its other settings."""
    steps: tuple[StatedStep, ...]
    stated: StatedSummary = StatedSummary()
    best_version: int
    """Version of the best skill here; its skills are numbered as they differ."""


class _Config(BaseModel):
    """The keys of config.json that say which run it is."""

    env: str = Field(min_length=1)
    target_model: str = ""
    optimizer_model: str = ""
    split_dir: str = ""


class ReferenceRun:
    """The files of a run's folder."""

    def __init__(self, folder: Path) -> None:
        """Read a folder.

        Raises:
            DataError: a file is missing, or does not hold what it should; the text names it, and the key.
        """
        self.folder = folder
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; expected the output folder of a finished training")
        self.flat: JsonObject = self._read("config.json", TypeAdapter(dict[str, Any]).validate_python)
        self.about: _Config = self._read("config.json", _Config.model_validate)
        self.steps = self._read("history.json", TypeAdapter(tuple[StatedStep, ...]).validate_python)
        summary = (folder / "summary.json").exists()
        self.stated = self._read("summary.json", StatedSummary.model_validate) if summary else StatedSummary()
        self.best = self._skill("best_skill.md")
        names = sorted(path.name for path in folder.glob("skills/skill_v*.md"))
        if "skill_v0000.md" not in names:
            raise DataError(f"{folder}/skills/skill_v0000.md: no such file; the training began with it")
        self.skills = _distinct([self._skill(f"skills/{name}") for name in names])

    @property
    def sha256(self) -> str:
        """Return the hash of all that was read."""
        texts = [self.best.text, *(skill.text for skill in self.skills)]
        steps = [step.model_dump(mode="json") for step in self.steps]
        return sha256(canonical_json([self.flat, *steps, self.stated.model_dump(mode="json"), *texts]))

    @property
    def name(self) -> str:
        """Return the run's name here, which is the same whenever the same files are imported."""
        return run_name(f"{self.folder.resolve().name}-{self.sha256[:12]}")

    def overrides(self, own: TrainConfig) -> JsonObject:
        """Return its settings in our knobs, and its splits if they are folders on this machine.

        `own` is the benchmark's configuration, beside which they are allowed.
        """
        knobs, _ = own_knobs(self.flat, own)
        place = Path(self.about.split_dir).absolute() if self.about.split_dir else None
        if place is not None and place.is_dir():
            knobs |= {"data.uri": str(place), "data.split_mode": "split_dir"}
            if own.data.split_manifest is not None:
                knobs["data.split_manifest"] = None
        return knobs

    def document(self, best_version: int, own: TrainConfig) -> ImportedRun:
        """Return what is stored of it besides its skills; `own` is the benchmark's configuration."""
        return ImportedRun(
            source=self.folder.resolve().name,
            sha256=self.sha256,
            target=self.about.target_model,
            optimizer=self.about.optimizer_model,
            overrides=self.overrides(own),
            not_taken=tuple(own_knobs(self.flat, own)[1]),
            steps=self.steps,
            stated=self.stated,
            best_version=best_version,
        )

    def scores(self) -> StatedScores | None:
        """Return the test scores that it states, if it does."""
        seed, best = self.stated.baseline_test_hard, self.stated.test_hard
        if seed is None or best is None:
            return None
        source = f"summary.json of {self.folder.resolve().name}, a run of the reference implementation"
        return StatedScores(source=source, target=self.about.target_model, seed=seed, best=best)

    def _read(self, name: str, parse: Callable[[Any], Parsed]) -> Parsed:
        try:
            return parse(json.loads(self._text(name)))
        except ValueError as error:
            what = flaws(error) if isinstance(error, ValidationError) else f"not JSON ({error})"
            raise DataError(f"{self.folder}/{name}: {what}") from error

    def _skill(self, name: str) -> SkillDocument:
        skill = SkillDocument(self._text(name))
        try:
            _ = skill.protected
        except SkillError as error:
            raise DataError(f"{self.folder}/{name}: {error}") from error
        return skill

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.folder}/{name}: {error}; a finished training has it") from error


def import_run(run: TrainingRun, config: TrainConfig, reference: ReferenceRun, named: Collection[str] = ()) -> bool:
    """Store a run that has the skills of another project's, and ends with its best one; False if it is there already.

    It is measured by whatever asks for it: nothing here is, so its states have no scores.

    Args:
        run: the run.
        config: its configuration, complete.
        reference: the other project's run.
        named: paths of the knobs that whoever imports it has set.

    Raises:
        SkillOptError: the data set cannot be used, a connection does not lead anywhere, or the run is there with other
            data or another value of a named knob.
    """
    if is_imported(run):
        _check_unchanged(run, config, named)
        return False
    items, quality = read_items(run, config)
    items = store_files(run, items, files_of(run, config))
    begun = Beginning(stated=reference.scores(), is_import=True)
    image, corpus = run.connections.image(config), store_corpus(run, config)
    settle(run, config, items, quality, image, run.connections.prices(config), begun, corpus=corpus)
    skills = [*reference.skills]
    if reference.best not in skills:
        skills.append(reference.best)
    _store_skills(run, skills)
    best = skills.index(reference.best)
    run.store.put_text(run.keys.best_skill, reference.best.text)
    run.store.put_model(run.keys.imported, reference.document(best, benchmark_config(run.ref.benchmark)))
    seed = seed_state(run.timeline[0], _unmeasured(skills, 0))
    final = RunState(
        moment=run.timeline[-1].name,
        step=0,
        current=_unmeasured(skills, skills.index(reference.skills[-1])),
        best=_unmeasured(skills, best),
        newest=len(skills) - 1,
    )
    run.commit(run.timeline[0], seed, newest=False)
    run.commit(run.timeline[-1], final, newest=True)
    return True


def is_imported(run: TrainingRun) -> bool:
    """Return whether the run is there, whole."""
    try:
        return run.committed(run.timeline[-1])
    except ObjectMissing:
        return False


def _check_unchanged(run: TrainingRun, config: TrainConfig, named: Collection[str]) -> None:
    kept, changed = run.record.config, []
    for path in changed_paths(kept, config):
        group, _, key = path.partition(".")
        if group == "data" or {group, path} & {*named}:
            old, new = (getattr(getattr(one, group), key, None) for one in (kept, config))
            changed.append(f"{path} = {old}, now {new}")
    if changed:
        raise ConfigError(
            f"run {run.ref.run} was imported with other settings, and keeps them: {'; '.join(changed)}; to import the "
            "folder with these, copy it under another name"
        )


def _store_skills(run: TrainingRun, skills: Sequence[SkillDocument]) -> None:
    """Store the skills by version; a line that a skill shares with the one before it keeps its origin."""
    lines = seed_lines(skills[0], run.timeline[0].name)
    for version, skill in enumerate(skills):
        if version:
            lines = continued(skills[version - 1], lines, "", skill, IMPORT)
        run.store.put_text(run.keys.skill(version), skill.text)
        run.store.put_model(run.keys.line_origins(version), LinesOfSkill(lines=lines))


def _unmeasured(skills: Sequence[SkillDocument], version: int) -> Measured:
    return Measured(version=version, sha256=skills[version].sha256, evaluation=Evaluation(scores={}))


def _distinct(skills: Sequence[SkillDocument]) -> list[SkillDocument]:
    """Return the skills without those that are what the one before them was: rejected steps change nothing."""
    return [skill for place, skill in enumerate(skills) if place == 0 or skill != skills[place - 1]]
