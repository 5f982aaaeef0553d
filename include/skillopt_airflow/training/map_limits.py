"""The limit on mapped tasks: Airflow makes them of lists up to a length, so no plan may have more chunks than that."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import Split
from skillopt_airflow.training.rollout_plan import largest_plan


class Demand(NamedTuple):
    """The number of chunks of the largest plan of a kind."""

    kind: str
    chunks: int
    knobs: tuple[str, ...]
    """Paths of the knobs that make it larger."""


def training_demands(config: TrainConfig, sizes: Mapping[Split, int]) -> list[Demand]:
    """Return the largest plans of a training; `sizes` are those of the splits before the limits."""
    rules = config.evaluation
    test = len(range(sizes[Split.TEST])[: rules.limit(Split.TEST)])
    samples = min(sizes[Split.TRAIN], config.optimizer.slow_update_samples)
    demands = [
        *step_demands(config, sizes),
        Demand("the comparison of two epochs", _chunks(config, samples, skills=2), ("optimizer.slow_update_samples",)),
    ]
    if rules.eval_test and not config.model.batch:
        # The seed's test has a plan of its own.
        skills = rules.most_tested(config.train.num_epochs) - 1
        tested = _chunks(config, test, rules.draws, skills)
        demands.append(Demand(f"the test of {skills} skills", tested, ("evaluation.draws", "evaluation.test_limit")))
    published = test if config.publishing.split == "test" else sizes[Split(config.publishing.split)]
    return [*demands, publishing_demand(config, published)]


def step_demands(config: TrainConfig, sizes: Mapping[Split, int]) -> list[Demand]:
    """Return the largest plan of each of a step's stages; what goes as one batch job, whatever its chunks, has none."""
    train, rules = config.train, config.evaluation
    val = len(range(sizes[Split.VAL])[: rules.limit(Split.VAL)])
    in_batch = min(sizes[Split.TRAIN], train.batch_size * train.accumulation)
    batch = _chunks(config, in_batch, train.rollouts_per_item)
    of_batch = ("train.batch_size", "train.accumulation")
    demands = [Demand("a step's batch", batch, (*of_batch, "train.rollouts_per_item"))]
    if not config.model.batch:
        evaluated = _chunks(config, val, rules.draws)
        more = ("evaluation.draws", "evaluation.val_limit")
        demands.append(Demand("the evaluation of a candidate", evaluated, more))
    return demands


def publishing_demand(config: TrainConfig, items: int) -> Demand:
    """Return the plan of candidate and champion on so many items."""
    return Demand("publishing", _chunks(config, items, config.publishing.draws, skills=2), ("publishing.draws",))


def scoring_demand(config: TrainConfig, skills: int, sizes: Sequence[int]) -> Demand:
    """Return the plan of skills on the items of splits, of these sizes, with every draw of an evaluation."""
    chunks = sum(_chunks(config, items, config.evaluation.draws, skills) for items in sizes)
    return Demand(f"the rollouts of {skills} skills", chunks, ("evaluation.draws",))


def check_mappable(config: TrainConfig, demands: Iterable[Demand], most: int) -> None:
    """Refuse plans of which Airflow would not make mapped tasks.

    Raises:
        ConfigError: naming the largest number and the knobs to change.
    """
    largest = max(demands, key=lambda demand: demand.chunks)
    if largest.chunks > most:
        values, size, lanes = config.model_dump(), config.sandbox.items_per_container, config.sandbox.max_containers
        knobs = [(path, values[group][key]) for path in largest.knobs for group, key in [path.split(".")]]
        raise ConfigError(
            f"{largest.kind}: {largest.chunks} chunks, and Airflow makes at most {most} tasks of a list ([core] "
            f"max_map_length); in benchmark.yaml raise sandbox.items_per_container = {size} or lower "
            f"sandbox.max_containers = {lanes}, or lower "
            + " or ".join(f"{path} = {'all' if value is None else value}" for path, value in knobs)
        )


def _chunks(config: TrainConfig, items: int, draws: int = 1, skills: int = 1) -> int:
    return largest_plan(items, config, skills, draws)
