"""A matrix of skills: a run per cell, which is a target with a harness; all are planned and concluded together."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain, zip_longest
from typing import NamedTuple

from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import PolicyName
from skillopt_airflow.core.errors import ConfigError, DataError, SkillOptError, collect_errors, merge_errors
from skillopt_airflow.core.gate.item_scores import evaluation_of, failed_sample
from skillopt_airflow.core.run.budget import MEASURING_ROLES, Prices, Spending, total_usd
from skillopt_airflow.core.run.skill_matrix import (
    CellResult,
    ComparedSkill,
    MatrixRequest,
    Measurement,
    RolloutCost,
    SkillInCell,
    SkillMatrix,
)
from skillopt_airflow.core.values.failure_reasons import share
from skillopt_airflow.core.values.skill import SkillDocument, tokens_of
from skillopt_airflow.core.values.types import JsonObject, Split, Status
from skillopt_airflow.quality.records import evaluation_needs
from skillopt_airflow.report.summary import as_markdown
from skillopt_airflow.store.keys import MatrixKeys, cell_name
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import check_skills
from skillopt_airflow.training.prepare.data_checks import check_tables, measured_tables
from skillopt_airflow.training.prepare.estimate import SAMPLED_ITEMS, Prompt, estimate_rollouts
from skillopt_airflow.training.prepare.preparation import check_item_images, check_priced, files_of, save_run
from skillopt_airflow.training.prepare.records_to_items import read_items, store_files
from skillopt_airflow.training.rollouts.evaluation import by_type, samples_of
from skillopt_airflow.training.rollouts.rollout_plan import (
    MAX_CHUNKS,
    Chunk,
    cut,
    ids,
    parts_of,
    store_plan,
    store_versions,
)
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_documents import store_corpus
from skillopt_airflow.training.run.spending import budget_shortfall, total_spent
from skillopt_airflow.training.step.seed_and_final import NamedSkill, find_skill, with_run_regions

log = logging.getLogger(__name__)

STAGE = "score"
NAME_CHARS = 80
"""Characters of a skill's text that name it."""

ConfigOf = Callable[[str, HarnessName], TrainConfig]


class Cell(NamedTuple):
    """One target with one harness, before its run is stored."""

    config: TrainConfig
    image: str
    prices: Prices


class MatrixPlan(NamedTuple):
    """The runs of the cells, the references of each one's chunks, and the skills."""

    runs: list[TrainingRun]
    chunks: list[list[JsonObject]]
    skills: list[ComparedSkill]

    @property
    def alternating(self) -> list[JsonObject]:
        """The chunks of all cells in turn, so that a slow hour of a server affects all cells."""
        return [one for one in chain.from_iterable(zip_longest(*self.chunks)) if one is not None]


def prepare_matrix(run: TrainingRun, config: TrainConfig, request: MatrixRequest, config_of: ConfigOf) -> MatrixPlan:
    """Store a run per cell, log how many rollouts are to be made, and plan them.

    Args:
        run: the first cell's run, which gives the others their names.
        config: the configuration that the cells share. Champion and versions are those of its target.
        config_of: returns the complete configuration of a cell; raises if a target can't run under a harness.

    Raises:
        SkillOptError: the request, data, budget or number of chunks is wrong; for skills and cells the text has all
            problems at once.
    """
    failures: list[SkillOptError] = []
    found = _skills(run, config, request, failures)
    cells = _cells(run, request, config_of, failures)
    if failures:
        raise merge_errors(failures)
    # A run with data.limit is meant to measure on fewer items than usual.
    needs = [] if config.data.limit is not None else [*evaluation_needs(config.evaluation)]
    items, quality = read_items(run, config, needs)
    if missing := [split for split in request.splits if split not in items]:
        raise ConfigError(f"splits = {', '.join(missing)}: the dataset has no such split. It has {', '.join(items)}")
    items = store_files(run, items, files_of(run, config))
    check_item_images(run, config, items)
    corpus = store_corpus(run, config)
    runs = []
    for place, cell in enumerate(cells):
        ref = run.ref.model_copy(update={"run": cell_name(run.ref.run, place)})
        runs.append(TrainingRun(ref, run.connections, run.store))
        save_run(runs[-1], cell.config, items, quality, cell.image, cell.prices, corpus=corpus)
    skills = [one.document for one in found]
    _check_size(runs, request, skills)
    chunks = [_plan_cell(one, request, skills) for one in runs]
    if not config.model.batch and (count := sum(map(len, chunks))) > MAX_CHUNKS:
        raise ConfigError(
            f"{count} chunks, and Airflow makes at most {MAX_CHUNKS} tasks of a list. Name fewer skills, targets, "
            f"harnesses or splits, or raise sandbox.items_per_container = {config.sandbox.items_per_container}"
        )
    compared = [
        ComparedSkill(
            source=_source_name(source), version=one.version, sha256=one.document.sha256, tokens=tokens_of(one.document)
        )
        for source, one in zip(request.skills, found, strict=True)
    ]
    return MatrixPlan(runs, chunks, compared)


def _skills(
    run: TrainingRun, config: TrainConfig, request: MatrixRequest, failures: list[SkillOptError]
) -> list[NamedSkill]:
    client, seed, found = run.connections.s3_client(config.storage), with_run_regions(run.seed_skill(), config), []
    artifacts = published_skills(run.connections, config.storage, run.ref.benchmark, str(config.model.target))
    for place, source in enumerate(request.skills):
        with collect_errors(failures):
            check_skills({f"skills[{place}]": source})
            found.append(find_skill(source, seed, artifacts, client))
    return found


def _cells(run: TrainingRun, request: MatrixRequest, config_of: ConfigOf, failures: list[SkillOptError]) -> list[Cell]:
    """Return the cells whose models and images are available; two names of one target are one cell."""
    cells: dict[tuple[str, str], Cell] = {}
    count = len(request.targets) * len(request.harnesses)
    for target in request.targets:
        for harness in request.harnesses:
            with collect_errors(failures):
                config = _share_of(config_of(target, harness), count)
                prices = run.connections.prices(config)
                check_priced(config, prices, MEASURING_ROLES)
                image = run.connections.image(config, MEASURING_ROLES)
                cells[str(config.model.target), harness] = Cell(config, image, prices)
    return list(cells.values())


def _share_of(config: TrainConfig, cells: int) -> TrainConfig:
    """Return the configuration of one of several cells: with its part of the budget, containers and calls in flight.

    Airflow runs at most `sandbox.max_containers` chunks of all cells at the same time, so each has as many calls in
    flight as one of that many.
    """
    if cells == 1:
        return config
    budget, most = config.budget, config.sandbox.max_containers
    lanes = max(1, most // cells)
    layer: JsonObject = {
        "budget": {
            "max_calls": None if budget.max_calls is None else budget.max_calls // cells,
            "max_tokens": None if budget.max_tokens is None else budget.max_tokens // cells,
            "max_usd": None if budget.max_usd is None else budget.max_usd / cells,
        },
        "sandbox": {"max_containers": lanes},
        "model": {"concurrency": max(1, config.model.concurrency * lanes // most)},
    }
    return read_config(config.model_dump(), layer)


def _check_size(runs: Sequence[TrainingRun], request: MatrixRequest, skills: Sequence[SkillDocument]) -> None:
    """Log the size of the matrix; refuse one whose budget has fewer calls than there are rollouts to make.

    Raises:
        ConfigError: naming the first cell whose budget is too small.
    """
    chars = [len(skill.text) for skill in skills]
    estimates, split = [], request.splits[0]
    for run in runs:
        rollouts = sum(_open_rollouts(run, split, skill) for split in request.splits for skill in set(skills))
        if why := budget_shortfall(run, rollouts):
            raise ConfigError(
                f"{_cell_label(run)}: {why}. Raise the budget, which {len(runs)} cells share equally, or "
                "lower data.limit"
            )
        items = run.items_of(split, ids(run.item_refs(split)[:SAMPLED_ITEMS]))
        prompt = Prompt.of(run.benchmark, str(run.config.model.target), items)
        estimates.append(estimate_rollouts(run.config, {STAGE: rollouts}, prompt, (min(chars), max(chars)), run.prices))
    likely, most = total_usd(one.usd("likely") for one in estimates), total_usd(one.usd("most") for one in estimates)
    log.info(
        "%d skills in %d cells: %s rollouts to make, at most %s calls, %s",
        *(len(set(skills)), len(runs)),
        f"{sum(one.rollouts[STAGE] for one in estimates):,}",
        f"{sum(role.calls for one in estimates for role in one.roles):,}",
        "price unknown, set budget.prices"
        if likely is None or most is None
        else f"{likely:,.2f} to {most:,.2f} US dollars",
    )


def _open_rollouts(run: TrainingRun, split: Split, skill: SkillDocument) -> int:
    """Return how many rollouts of a skill on a split are to be made; those that only lack their judge aren't."""
    items = [item for item in run.item_refs(split) if not item.unusable]
    left = 0
    for sample in range(run.config.evaluation.samples):
        found = run.results(split, skill, sample, items).values()
        left += len(items) - sum(one.status.scored or one.status is Status.JUDGE_ERROR for one in found)
    return left


def _plan_cell(run: TrainingRun, request: MatrixRequest, skills: Sequence[SkillDocument]) -> list[JsonObject]:
    """Store the skills as the run's versions, and plan their rollouts; equal texts share theirs.

    The skills alternate, so that a slow hour of a server affects all of them.
    """
    keys, samples = store_versions(run, [skill.text for skill in skills]), run.config.evaluation.samples
    chunks = []
    for split in request.splits:
        items = ids(run.item_refs(split))
        chunks += [
            Chunk(stage=STAGE, skill=key, split=split, sample=sample, item_ids=tuple(part))
            for part in cut(items, parts_of(len(items), run.config, len(keys) * samples))
            for sample in range(samples)
            for key in keys
        ]
    ref = run.ref.model_dump(mode="json", exclude_defaults=True)
    return [{**chunk, "run": ref} for chunk in store_plan(run, run.timeline[0], STAGE, chunks)]


def conclude_matrix(
    runs: Sequence[TrainingRun], skills: Sequence[ComparedSkill], splits: Sequence[Split], policy: PolicyName | None
) -> SkillMatrix:
    """Compute the matrix from the runs of its cells, and store it as document, table and text.

    Raises:
        DataError: rows can't be concluded from, or no skill has a score in any cell; the matrix is stored then.
    """
    first, rules = runs[0], runs[0].config.evaluation
    documents = [first.skill(place) for place in range(len(skills))]
    by_name = {f"{one.source} ({one.sha256[:12]})": document for one, document in zip(skills, documents, strict=True)}
    _check_rows(runs, splits, by_name)
    matrix = SkillMatrix(
        benchmark=first.ref.benchmark,
        run=first.ref.run,
        created=datetime.fromisoformat(first.record.created),
        metric=rules.gate_metric,
        samples=rules.samples,
        min_coverage=rules.min_coverage,
        policy=policy,
        skills=tuple(skills),
        cells=tuple(_cell(run, split, documents, policy) for run in runs for split in splits),
        spent=Spending().plus(*map(total_spent, runs)),
    )
    text = as_markdown(matrix)
    key = MatrixTable(first.store, MatrixKeys(first.ref.storage.prefix, first.ref.benchmark)).save(matrix, text)
    log.info("%s\n\n%s", first.store.address(key), text)
    _check_decided(matrix)
    return matrix


def _check_rows(runs: Sequence[TrainingRun], splits: Sequence[Split], skills: Mapping[str, SkillDocument]) -> None:
    """Check the rows of all cells; the result is the first run's."""
    tables = {}
    for run in runs:
        for split in splits:
            for name, rows in measured_tables(run, split, skills).items():
                tables[f"{_cell_label(run)}, {split}, {name}"] = rows
    check_tables(runs[0], splits, tables)


def _cell(run: TrainingRun, split: Split, skills: Sequence[SkillDocument], policy: PolicyName | None) -> CellResult:
    measured = {skill: _measurement(run, split, skill) for skill in dict.fromkeys(skills)}
    first, rules = measured[skills[0]], run.config.evaluation
    return CellResult(
        target=str(run.config.model.target),
        harness=run.config.model.harness,
        split=split,
        items=len(run.item_refs(split)),
        skills=tuple(SkillInCell.of(measured[skill], first, rules, policy) for skill in skills),
    )


def _measurement(run: TrainingRun, split: Split, skill: SkillDocument) -> Measurement:
    samples, items, price = run.config.evaluation.samples, run.item_refs(split), run.prices["target"]
    found = samples_of(run, split, skill)
    evaluation = evaluation_of(items, found, samples)
    failed = [
        failed_sample(item, rollouts)
        for item, rollouts in found.items()
        if item not in evaluation.scores and any(not one.status.scored for one in rollouts)
    ]
    effort = [
        one for sample in range(samples) for one in run.rollouts.effort(run.rollout_key(split, skill, sample), items)
    ]
    calls, read, written = (sum(one[column] for one in effort) for column in range(3))
    cost = RolloutCost(
        rollouts=len(effort),
        calls=calls,
        prompt_tokens=read,
        completion_tokens=written,
        usd=None if price is None else price.usd(read, written),
    )
    return Measurement(evaluation, by_type(run, split, evaluation), failed, cost)


def _check_decided(matrix: SkillMatrix) -> None:
    """Warn of skills without a score, and refuse a matrix of nothing else."""
    undecided = matrix.undecided
    words = [
        f"{row.cell.target}, {row.cell.harness}, {row.cell.split}, {row.skill.source}: "
        f"{share(row.result.coverage)} of the items have a score ({share(matrix.min_coverage)} are required)"
        f"{f'; {row.result.reason}' if row.result.reason else ''}"
        for row in undecided
    ]
    if len(undecided) == len(list(matrix.rows())):
        raise DataError("\n".join(["no skill has a score in any cell:", *words]))
    for sentence in words:
        log.warning("%s", sentence)


def _source_name(source: str) -> str:
    line = " ".join(source.split())
    return line if len(line) <= NAME_CHARS else f"{line[: NAME_CHARS - 4]} ..."


def _cell_label(run: TrainingRun) -> str:
    return f"{run.config.model.target}, {run.config.model.harness}"
