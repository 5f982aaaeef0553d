"""The plan of a run that compares skills under several targets and harnesses: checked, priced, and cut into chunks."""

import logging
import math
from collections.abc import Callable, Sequence

from skillopt_airflow.core.budget import MEASURING
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, SkillOptError, kept, together
from skillopt_airflow.core.harnesses import HarnessName
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.transfer_matrix import MatrixCell
from skillopt_airflow.core.types import JsonObject, Split, Value
from skillopt_airflow.quality.sizes import evaluation_needs
from skillopt_airflow.training.connections import published_skills
from skillopt_airflow.training.data_items import read_items, store_files
from skillopt_airflow.training.deployment_file import check_skills
from skillopt_airflow.training.matrix_cells import in_cell
from skillopt_airflow.training.matrix_estimate import estimate_matrix
from skillopt_airflow.training.named_skill import find_skill
from skillopt_airflow.training.preparation import check_item_images, check_priced, files_of, settle
from skillopt_airflow.training.rollout_plan import Chunk, cut, ids, parts_of, store_plan, store_versions
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_corpus import store_corpus
from skillopt_airflow.training.seed_and_final import opened
from skillopt_airflow.training.spending import unaffordable

log = logging.getLogger(__name__)

STAGE = "transfer"
MOST_CHUNKS = 298
"""Chunks of a matrix, which leave a DAG run with 300 task instances: what Airflow needs for each grows with them."""

ConfigOf = Callable[[str, HarnessName], TrainConfig]


class TransferRequest(Value):
    """The skills that are compared, each with the first, and where: under every target with every harness."""

    skills: tuple[str, ...]
    targets: tuple[str, ...]
    harnesses: tuple[HarnessName, ...]
    split: Split


def prepare_transfer(
    run: TrainingRun, config: TrainConfig, request: TransferRequest, config_of: ConfigOf, most_chunks: int
) -> list[JsonObject]:
    """Store what a matrix needs, log what it may cost, and return the chunks of its rollouts.

    Args:
        run: the run.
        config: its configuration; champion and versions are those of its target.
        request: what is compared.
        config_of: gives the configuration of a cell, complete; raises what is wrong with it.
        most_chunks: the length of the longest plan that can be carried out.

    Raises:
        SkillOptError: of the kind that says what is wrong with skills, targets and harnesses, all of it at once; with
            the data; or with the budget, or the number of chunks.
    """
    failures: list[SkillOptError] = []
    skills = _skills(run, config, request, failures)
    cells = _cells(run, request, config_of, failures)
    with kept(failures):
        prices = run.connections.prices(config)
        check_priced(config, prices, ["judge"])
    if failures:
        raise together(failures)
    # Whoever asks for few items means to measure on fewer than usual.
    needs = [] if config.data.limit is not None else [*evaluation_needs(config.evaluation)]
    items, quality = read_items(run, config, needs)
    if request.split not in items:
        raise ConfigError(f"split = {request.split}: the data set has no such split")
    different = {skill.sha256: skill for skill in skills}
    parts = _parts(config, request, items[request.split], len(cells), len(different), most_chunks)
    items = store_files(run, items, files_of(run, config))
    check_item_images(run, config, items)
    corpus = store_corpus(run, config)
    settle(run, config, items, quality, cells[0].image, prices, corpus=corpus, cells=cells)
    estimate = estimate_matrix(run, request.split, different)
    for line in estimate.lines():
        log.info("%s", line)
    if why := unaffordable(in_cell(run, 0), estimate.rollouts):
        raise ConfigError(f"{why}; raise it, or name fewer skills, targets or harnesses, or a lower limit")
    return store_plan(run, run.timeline[0], STAGE, _chunks(run, request.split, skills, parts))


def _skills(
    run: TrainingRun, config: TrainConfig, request: TransferRequest, failures: list[SkillOptError]
) -> list[SkillDocument]:
    """Return the skills that can be found."""
    client, seed, found = run.connections.s3_client(config.storage), opened(run.seed_skill(), config), []
    artifacts = published_skills(run.connections, config.storage, run.ref.benchmark, str(config.model.target))
    for place, source in enumerate(request.skills):
        with kept(failures):
            check_skills({f"skills[{place}]": source})
            found.append(find_skill(source, seed, artifacts, client).document)
    return found


def _cells(
    run: TrainingRun, request: TransferRequest, config_of: ConfigOf, failures: list[SkillOptError]
) -> list[MatrixCell]:
    """Return the cells that can be, after their models and images have shown that they are there."""
    cells: dict[tuple[str, str], MatrixCell] = {}
    for target in request.targets:
        for harness in request.harnesses:
            with kept(failures):
                config = config_of(target, harness)
                name, image = str(config.model.target), run.connections.image(config, MEASURING)
                prices = run.connections.prices(config)
                check_priced(config, prices, ["target"])
                cells[name, harness] = MatrixCell(target=name, harness=harness, image=image, price=prices["target"])
    return list(cells.values())


def _parts(
    config: TrainConfig, request: TransferRequest, items: Sequence[object], cells: int, skills: int, most: int
) -> int:
    """Return into how many parts the items are cut, each of which is a chunk under every skill in every cell.

    Raises:
        ConfigError: all of them are more chunks than a DAG run should have tasks.
    """
    size = len(items[: config.evaluation.limit(request.split)])
    times, room = cells * skills * config.evaluation.draws, min(most, MOST_CHUNKS)
    parts = parts_of(size, config, times)
    if parts * times > room:
        # As few as may be, though some containers may be idle in the last round.
        parts = math.ceil(size / config.sandbox.items_per_container)
    if parts * times > room:
        raise ConfigError(
            f"{cells} targets with harnesses, {skills} skills and {config.evaluation.draws} draws of {size} items are "
            f"{parts * times} chunks, and a run has room for {room}: name fewer skills, targets or harnesses, a lower "
            "limit or fewer evaluation.draws, or let more items share a container: sandbox.items_per_container = "
            f"{config.sandbox.items_per_container}"
        )
    return parts


def _chunks(run: TrainingRun, split: Split, skills: Sequence[SkillDocument], parts: int) -> list[Chunk]:
    """Store the skills as the run's versions, and return the chunks of all cells; equal texts share theirs.

    What is compared runs side by side: a server that has a bad hour has it for all skills.
    """
    keys = store_versions(run, [skill.text for skill in skills])
    return [
        Chunk(stage=STAGE, skill=key, split=split, draw=draw, item_ids=tuple(part), cell=place)
        for part in cut(ids(run.item_refs(split)), parts)
        for place in range(len(run.record.cells))
        for draw in range(run.config.evaluation.draws)
        for key in keys
    ]
