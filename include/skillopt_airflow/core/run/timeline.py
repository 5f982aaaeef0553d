"""The moments of a run, its learning rate (paper section 3.4), and its order of items."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import OptimizerGroup, TrainGroup
from skillopt_airflow.core.values.types import Value

T = TypeVar("T")

_SCHEDULES: dict[str, Callable[[int, int, float], float]] = {
    "constant": lambda highest, lowest, progress: highest,
    "linear": lambda highest, lowest, progress: highest + (lowest - highest) * progress,
    "cosine": lambda highest, lowest, progress: lowest + (highest - lowest) * (1 + math.cos(math.pi * progress)) / 2,
}
"""The learning rate from the highest to the lowest value, by progress from 0 to 1."""


def edit_budget(step: int, total_steps: int, optimizer: OptimizerGroup) -> int | None:
    """Return L_t, the limit of edits in step `step` of `total_steps`, rounded half to even; None means no limit.

    In autonomous mode it is the limit for the optimizer's choice.
    """
    if optimizer.skill_update_mode == "full_rewrite_minibatch":
        return 1
    if optimizer.lr_control_mode == "none":
        return None
    if optimizer.lr_control_mode == "autonomous" or total_steps <= 1:
        return optimizer.learning_rate
    schedule = _SCHEDULES[optimizer.lr_scheduler]
    rate = schedule(optimizer.learning_rate, optimizer.min_learning_rate, step / total_steps)
    # In floating point, cos(pi / 3) is slightly above one half, so the inner round restores exact halves.
    return max(optimizer.min_learning_rate, round(round(rate, 9)))


def steps_in_epoch(train_size: int, train: TrainGroup) -> int:
    """Return the number of steps that cover all items, at most `steps_per_epoch`."""
    steps = math.ceil(math.ceil(train_size / train.batch_size) / train.accumulation)
    return steps if train.steps_per_epoch is None else min(train.steps_per_epoch, steps)


def slices(items: Sequence[T], epoch: int, position: int, train: TrainGroup) -> list[list[T]]:
    """Return the slices of a step from its epoch's shuffle; `epoch` and `position` are 1-based.

    A step has `accumulation` slices; at the epoch's end some may be shorter or missing.
    """
    order, first = _shuffled(items, f"{train.seed}-epoch-{epoch}"), (position - 1) * train.accumulation
    starts = [index * train.batch_size for index in range(first, first + train.accumulation)]
    return [order[start : start + train.batch_size] for start in starts if start < len(order)]


def batch_samples(train: TrainGroup, epoch: int, temperature: float | None) -> range:
    """Return the samples of a batch's items in an epoch (1-based).

    Each epoch has new samples, so analysts see new trajectories, except at temperature 0, where answers repeat.
    """
    first = 0 if temperature == 0 else (epoch - 1) * train.samples
    return range(first, first + train.samples)


def sample(items: Sequence[T], count: int, seed: str) -> list[T]:
    """Choose `count` items by seed, or all if there are fewer, in their original order."""
    chosen = set(_shuffled(range(len(items)), seed)[:count])
    return [item for index, item in enumerate(items) if index in chosen]


def _shuffled(items: Sequence[T], seed: str) -> list[T]:
    order = list(items)
    random.Random(seed).shuffle(order)  # noqa: S311 - a shuffle, not a secret
    return order


MomentKind = Literal["seed", "step", "slow_update", "meta_reflect", "final"]

EPOCH_ENDS: tuple[MomentKind, ...] = ("slow_update", "meta_reflect")
"""Optional moments after the steps of an epoch, in order."""
FINAL = "final"


class Moment(Value):
    """The seed's measurement, a step, a part of an epoch's end, or the end of the run."""

    kind: MomentKind
    epoch: int
    """1-based; 0 for the seed."""
    step: int
    """Number of finished steps at its end; 0 for the seed."""

    @property
    def compares(self) -> bool:
        """True for a slow update, which compares the epoch with the previous one."""
        return self.kind == "slow_update" and self.epoch > 1

    @property
    def name(self) -> str:
        """Its folder below the run, such as `steps/step_0007`, `slow_update/epoch_02` or `final`."""
        if self.kind in ("seed", "step"):
            return f"steps/step_{self.step:04d}"
        return FINAL if self.kind == "final" else f"{self.kind}/epoch_{self.epoch:02d}"


def writes_guidance(moment: Moment, rules: OptimizerGroup) -> bool:
    """Return whether an epoch's end creates a candidate from a comparison; otherwise it only leaves a memory."""
    return rules.use_slow_update and moment.compares


def leaves_memory(moment: Moment, config: TrainConfig) -> bool:
    """Return whether the moment leaves a memory to the optimizer; after the last epoch, no one would read it."""
    wanted = config.optimizer.use_meta_skill and moment.kind == "slow_update"
    return wanted and moment.epoch < config.train.num_epochs


def moment_label(kind: MomentKind, step: int, epoch: int) -> str:
    return f"Step {step}" if kind == "step" else f"{kind.replace('_', ' ').capitalize()}, epoch {epoch}"


def timeline(config: TrainConfig, steps_in_epoch: int) -> tuple[Moment, ...]:
    """Return all planned moments of a run; no one would read a memory that the last epoch leaves."""
    optimizer, epochs = config.optimizer, config.train.num_epochs
    moments = [Moment(kind="seed", epoch=0, step=0)]
    for epoch in range(1, epochs + 1):
        first, last = (epoch - 1) * steps_in_epoch + 1, epoch * steps_in_epoch
        moments += [Moment(kind="step", epoch=epoch, step=step) for step in range(first, last + 1)]
        if (optimizer.use_slow_update and epoch > 1) or (optimizer.use_meta_skill and epoch < epochs):
            moments.append(Moment(kind="slow_update", epoch=epoch, step=last))
        if optimizer.use_meta_reflect:
            moments.append(Moment(kind="meta_reflect", epoch=epoch, step=last))
    moments.append(Moment(kind="final", epoch=epochs, step=epochs * steps_in_epoch))
    return tuple(moments)
