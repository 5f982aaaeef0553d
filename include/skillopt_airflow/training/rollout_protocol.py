"""The part of a stored rollout's key besides skill, item, model and settings: the program that made it."""

from pathlib import Path

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import canonical_json, sha256

PROTOCOL = 3
"""Protocol of the project's own images. Raise it when the rollout program makes another rollout of the same input, for
instance by another prompt, another loop of calls, another release of an agent CLI, or another answer or score that
core/scoring makes of the same response: stored rollouts are made again."""


def rollout_program(config: TrainConfig, image: str, benchmark: Path) -> str:
    """Return what rollouts are stored under: the protocol, or a user's own image, and the benchmark's definition.

    The image of a user's own has an adapter in it, but no declared task.

    Args:
        config: says whether the image is the project's own.
        image: its digest.
        benchmark: its folder, whose adapter.py is a part of the program where no task is declared.
    """
    if config.task is not None:
        # A group changes how scores are judged, and no rollout.
        section = canonical_json(config.task.model_dump(mode="json", exclude={"group"}))
        program = f"protocol-{PROTOCOL}" if config.sandbox.image is None else image
        return f"{program}/task-{sha256(section)[:12]}"
    if config.sandbox.image is not None:
        return image
    adapter = (benchmark / "adapter.py").read_text(encoding="utf-8")
    return f"protocol-{PROTOCOL}/adapter-{sha256(adapter)[:12]}"
