"""The moments of a run at which its state may change, in order; each stores its state under its own name."""

from typing import Literal

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Value

MomentKind = Literal["seed", "step", "slow_update", "meta_reflect", "final"]

EPOCH_ENDS: tuple[MomentKind, ...] = ("slow_update", "meta_reflect")
"""What may follow the steps of an epoch, in order."""
FINAL = "final"
"""Name of the run's end."""


class Moment(Value):
    """The seed's measurement, a step, a part of an epoch's end, or the end of the run."""

    kind: MomentKind
    epoch: int
    """1-based; 0 for the seed."""
    step: int
    """Steps that have been taken when it is over; 0 for the seed."""

    @property
    def compares(self) -> bool:
        """True of an epoch's end that compares the epoch with the one before."""
        return self.kind == "slow_update" and self.epoch > 1

    @property
    def name(self) -> str:
        """Its folder below the run, such as `steps/step_0007` or `slow_update/epoch_02`; the run's end is `final`."""
        if self.kind in ("seed", "step"):
            return f"steps/step_{self.step:04d}"
        if self.kind == "final":
            return FINAL
        return f"{self.kind}/epoch_{self.epoch:02d}"


def writes_guidance(moment: Moment, rules: OptimizerGroup) -> bool:
    """Return whether an epoch's end makes a candidate from a comparison; without one it leaves a memory only."""
    return rules.use_slow_update and moment.compares


def moment_label(kind: MomentKind, step: int, epoch: int) -> str:
    """Return the name of a step, or of a part of an epoch's end, that people use."""
    return f"Step {step}" if kind == "step" else f"{kind.replace('_', ' ').capitalize()}, epoch {epoch}"


def timeline(config: TrainConfig, steps_in_epoch: int) -> tuple[Moment, ...]:
    """Return all moments of a run that is not stopped.

    The longitudinal comparison needs two epochs, so it starts with the second. The optimizer's memory is written from
    the first epoch on; after the last it would come too late.
    """
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
