"""The part of a stored rollout's key besides skill, item, model and settings: the program that made it."""

from pathlib import Path

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import sha256

PROTOCOL = 1
"""Protocol of the project's own images. Raise it when the rollout program makes another rollout of the same input, for
instance by another prompt, another loop of calls or another release of an agent CLI: stored rollouts are made again."""


def rollout_program(config: TrainConfig, image: str, benchmark: Path) -> str:
    """Return what rollouts are stored under: the protocol and the benchmark's adapter, or a user's own image.

    Args:
        config: says whether the image is the project's own.
        image: its digest.
        benchmark: its folder, whose adapter.py is a part of the program.
    """
    if config.sandbox.image is not None:
        return image
    adapter = (benchmark / "adapter.py").read_text(encoding="utf-8")
    return f"protocol-{PROTOCOL}/adapter-{sha256(adapter)[:12]}"
