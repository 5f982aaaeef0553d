"""The textual learning rate and the order of the items (paper section 3.4; design of the outer loop)."""

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from include.core.config import OptimizerGroup, TrainGroup

T = TypeVar("T")


def _constant(highest: int, lowest: int, progress: float) -> float:
    return highest


def _linear(highest: int, lowest: int, progress: float) -> float:
    return highest + (lowest - highest) * progress


def _cosine(highest: int, lowest: int, progress: float) -> float:
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * progress)) / 2


_SCHEDULES: dict[str, Callable[[int, int, float], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}


def edit_budget(step: int, total_steps: int, optimizer: OptimizerGroup) -> int:
    """L_t: most edits that step `step` (1-based) of `total_steps` may apply; rounded half to even."""
    if total_steps <= 1:
        return optimizer.learning_rate
    schedule = _SCHEDULES[optimizer.lr_scheduler]
    rate = schedule(optimizer.learning_rate, optimizer.min_learning_rate, step / total_steps)
    return max(optimizer.min_learning_rate, round(rate))


def steps_in_epoch(train_size: int, train: TrainGroup) -> int:
    """Steps of one epoch: as many slices as the training split has, at most `steps_per_epoch`."""
    return min(train.steps_per_epoch, math.ceil(train_size / train.batch_size))


def batch(items: Sequence[T], epoch: int, position: int, train: TrainGroup) -> list[T]:
    """Slice `position` (1-based) of the epoch's (1-based) own shuffle of the training split."""
    order = list(items)
    random.Random(f"{train.seed}-epoch-{epoch}").shuffle(order)  # noqa: S311 - a shuffle, not a secret
    return order[(position - 1) * train.batch_size : position * train.batch_size]
