"""The program version in a stored rollout's key."""

import logging
from pathlib import Path

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, ImageMissing
from skillopt_airflow.core.values.types import JsonObject, canonical_json, sha256
from skillopt_airflow.rollout.settings import IN_IMAGE, PROTOCOL

log = logging.getLogger(__name__)


def rollout_program(config: TrainConfig, image: str, benchmark: Path) -> str:
    """Return the program version: the protocol or a user's image, and the benchmark's definition.

    A user's image contains the adapter, but no declared task and no scoring files next to the adapter.

    Args:
        config: names a user's image, if any.
        benchmark: its folder; without a declared task, its Python files are part of the program.
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


def check_program(stored: str, program: str, config: TrainConfig, benchmark: Path) -> None:
    """Refuse a rollout program that differs from the one under which the run stores rollouts.

    Args:
        stored: digest or id of the run's image.

    Raises:
        ConfigError: the program changed since the run began.
    """
    now = rollout_program(config, stored, benchmark)
    if now != program:
        raise ConfigError(
            f"{benchmark}: the adapter, the files that score with it, or the project's rollout program changed since "
            f"the run began ({now}, not {program}). Restore the previous files and clear this task, or trigger a new run"
        )


def image_to_use(stored: str, program: str, config: TrainConfig, benchmark: Path) -> str:
    """Return the run's image, or the current image of the same program if the engine lost it.

    An image without a registry is lost when it is rebuilt.

    Args:
        stored: digest or id of the run's image.
        config: the run's configuration, which names the current image.

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
