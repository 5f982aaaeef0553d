"""The calls that a run may make, by stage: upper bounds, which the estimate turns into tokens and a price."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from skillopt_airflow.core.appendix import notes_enter
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.timeline import timeline
from skillopt_airflow.core.types import Split
from skillopt_airflow.optimizer.minibatches import most_minibatches
from skillopt_airflow.training.speculation import batches_ahead


def most_merges(patches: int, merge_batch_size: int, failure_only: bool) -> int:
    """Return the most merge calls for so many patches, whichever way they split into failures and successes."""
    if failure_only:
        return _merges(patches, merge_batch_size)
    return max(
        _merges(failures, merge_batch_size) + _merges(patches - failures, merge_batch_size) + (0 < failures < patches)
        for failures in range(patches + 1)
    )


def _merges(parts: int, merge_batch_size: int) -> int:
    """Count calls until one part is left; a part alone in its batch passes without one."""
    calls = 0
    while parts > 1:
        full, rest = divmod(parts, merge_batch_size)
        calls += full + (rest > 1)
        parts = full + (rest > 0)
    return calls


def target_calls(config: TrainConfig, sizes: Mapping[Split, int], slices: Sequence[Sequence[int]]) -> dict[str, int]:
    """Count rollouts, of as many calls each as they may have turns, and follow-up questions, by stage."""
    rules, optimizer = config.evaluation, config.optimizer
    val, test = (len(range(sizes[split])[: rules.limit(split)]) for split in (Split.VAL, Split.TEST))
    batches, tries = [sum(each) for each in slices], config.train.rollouts_per_item
    kinds = Counter(moment.kind for moment in timeline(config, len(slices)))
    compared = sum(moment.compares for moment in timeline(config, len(slices)))
    slow_updates = compared if optimizer.use_slow_update else 0
    gated = kinds["step"] + slow_updates + kinds["meta_reflect"]
    forced = not rules.use_gate or (slow_updates > 0 and not optimizer.slow_update_gate)
    # All of them are in vain.
    ahead = [batches[place] for place in _places_ahead(config, len(batches))]
    rollouts = {
        "seed": val * rules.draws,
        "rollout": config.train.num_epochs * sum(batches) * tries,
        "speculate": sum(ahead) * tries,
        "evaluate": gated * val * rules.draws,
        "longitudinal": compared * 2 * min(optimizer.slow_update_samples, sizes[Split.TRAIN]),
        # Only what was taken in any case, or notes that no gate saw, can lack a score at the end.
        "final": val * rules.draws if forced or notes_enter(optimizer) else 0,
        "test": rules.most_tested(config.train.num_epochs) * test * rules.draws,
        "publish": _published_rollouts(config, sizes, test),
    }
    each = turns(config)
    asked = {"follow_up": sum(min(probes(config), batches[place]) for place in _reflections(config, len(batches)))}
    return {stage: each * calls for stage, calls in rollouts.items()} | asked


def _places_ahead(config: TrainConfig, steps: int) -> list[int]:
    """Return the steps whose batch may be rolled out ahead, by their place in the epoch, which has so many steps."""
    return [(following.step - 1) % steps for _, following in batches_ahead(timeline(config, steps), config)]


def _reflections(config: TrainConfig, steps: int) -> list[int]:
    """Return the steps that are reflected on, by their place in the epoch."""
    return list(range(steps)) * config.train.num_epochs


def turns(config: TrainConfig) -> int:
    """Return the most calls of a rollout, as far as they are known."""
    return 1 if HARNESSES[config.model.harness].is_cli else config.model.max_turns


def judge_calls(config: TrainConfig, target: Mapping[str, int]) -> dict[str, int]:
    """Count an answer of the judge for each rollout, where a benchmark asks one."""
    rollouts = sum(calls for stage, calls in target.items() if stage != "follow_up") // turns(config)
    return {"judge": 0 if config.model.judge is None else rollouts}


def _published_rollouts(config: TrainConfig, sizes: Mapping[Split, int], test: int) -> int:
    """Count the rollouts of the best skill and the present champion, without those of the best skill's test."""
    rules, publishing = config.evaluation, config.publishing
    if publishing.split != "test":
        return 2 * sizes[Split(publishing.split)] * publishing.draws
    tested = rules.draws if rules.eval_test else 0
    return test * (publishing.draws + max(0, publishing.draws - tested))


def optimizer_calls(config: TrainConfig, slices: Sequence[Sequence[int]]) -> dict[str, int]:
    """Count questions by stage."""
    rules, gradient = config.optimizer, config.gradient
    kinds = Counter(moment.kind for moment in timeline(config, len(slices)))
    minibatches = [_most_minibatches(config, sizes) for sizes in slices]
    rewrites = rules.skill_update_mode == "full_rewrite_minibatch"
    merges = [most_merges(count, gradient.merge_batch_size, gradient.failure_only) for count in minibatches]
    consolidates = rules.use_skill_aware_reflection and rules.skill_aware_consolidate_threshold > 0
    made, places = kinds["step"], _reflections(config, len(slices))
    return {
        # The target's part of it is one of the first step's rollouts.
        "preflight": int(config.train.preflight),
        "deep_reflect": sum(min(probes(config), minibatches[place]) for place in places),
        "reflect": sum(minibatches[place] for place in places) * gradient.analyst_rounds,
        "merge": 0 if rewrites else sum(merges[place] for place in places),
        "merge_rewrites": sum(merges[place] for place in places) if rewrites and rules.merge_rewrites else 0,
        "learning_rate": made if rules.chooses_rate else 0,
        # Of rewrites of the whole body one stays, also where edits have no limit.
        "rank": made if rewrites or rules.lr_control_mode != "none" else 0,
        "rewrite": made if rules.skill_update_mode == "rewrite_from_suggestions" else 0,
        "consolidate": made if consolidates else 0,
        "slow_update": config.train.num_epochs - 1 if rules.use_slow_update else 0,
        # After every epoch but the last.
        "meta_skill": config.train.num_epochs - 1 if rules.use_meta_skill else 0,
        "meta_reflect": kinds["meta_reflect"],
    }


def probes(config: TrainConfig) -> int:
    """Return the number of a step's items that the optimizer asks the target about."""
    gradient = config.gradient
    return gradient.deep_reflect_failures + gradient.deep_reflect_successes if gradient.use_deep_reflect else 0


def _most_minibatches(config: TrainConfig, slices: Sequence[int]) -> int:
    size = config.gradient.minibatch_size
    if config.gradient.failure_only:
        return sum(math.ceil(items / size) for items in slices)
    return sum(most_minibatches(items, size, accumulation=1) for items in slices)
