"""The part of a stored rollout's key besides skill, item, model and settings: the program that made it."""

import logging
from pathlib import Path

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, ImageMissing
from skillopt_airflow.core.values.types import JsonObject, canonical_json, sha256
from skillopt_airflow.rollout.settings import IN_IMAGE, PROTOCOL

log = logging.getLogger(__name__)


def rollout_program(config: TrainConfig, image: str, benchmark: Path) -> str:
    """Return what rollouts are stored under: the protocol, or a user's own image, and the benchmark's definition.

    The image of a user's own has an adapter in it, but no declared task and no files beside the adapter that score.

    Args:
        config: says whether the image is the project's own.
        benchmark: its folder, whose Python files are a part of the program where no task is declared.
    """
    if config.task is not None:
        # A group changes how scores are judged, and no rollout.
        section = canonical_json({key: value for key, value in config.task.items() if key != "group"})
        program = f"protocol-{PROTOCOL}" if config.sandbox.image is None else image
        return f"{program}/task-{sha256(section)[:12]}"
    files = _files(benchmark)
    if config.sandbox.image is not None:
        beside = {name: text for name, text in files.items() if name not in IN_IMAGE}
        return f"{image}/beside-{sha256(canonical_json(beside))[:12]}" if beside else image
    return f"protocol-{PROTOCOL}/adapter-{sha256(canonical_json(files))[:12]}"


def check_program(settled: str, program: str, config: TrainConfig, benchmark: Path) -> None:
    """Refuse to make and score rollouts by other files than those under whose name the run stores them.

    Args:
        settled: the digest or id of the image that the run settled on.

    Raises:
        ConfigError: the files changed since the run began.
    """
    now = rollout_program(config, settled, benchmark)
    if now != program:
        raise ConfigError(
            f"{benchmark}: the adapter, what scores beside it, or the project's rollout program changed since the run "
            f"began ({now}, and not {program}): restore the former files and clear this task, or trigger a new run"
        )


def image_to_use(settled: str, program: str, config: TrainConfig, benchmark: Path) -> str:
    """Return the image that a run settled on, or the present one if the engine lost that and both are one program.

    An image that was built on the engine, which has no name in a registry, is lost when it is built anew.

    Args:
        settled: its digest, or its id.
        config: that of the run, which names the present image.

    Raises:
        EngineUnavailable: no engine answers.
        ImageMissing: the engine has neither, or the present one is another program.
    """
    from skillopt_airflow.sandbox.docker.connection import has_image, image_digest

    if not settled.startswith("sha256:") or has_image(settled, config.sandbox):
        return settled
    present = image_digest(config.image, config.sandbox)
    now = rollout_program(config, present, benchmark)
    if now != program:
        raise ImageMissing(
            f"the engine has lost the sandbox image {settled} that the run began with, and the present one makes other "
            f"rollouts ({now}, and not {program}): trigger a new training, or load that image from a copy"
        )
    log.warning("The image %s is gone; %s takes its place, which makes the same rollouts", settled, present)
    return present


def _files(benchmark: Path) -> JsonObject:
    files = [path for path in benchmark.glob("*.py") if not path.match("make_*")]
    return {path.name: path.read_text(encoding="utf-8") for path in files}
