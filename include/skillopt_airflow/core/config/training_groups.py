"""Knobs of a training: the loop, reflection, changes to the skill, and the gate."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from skillopt_airflow.core.config.group import Count, Fraction, Group, Positive
from skillopt_airflow.core.values.types import Split

GATE_POLICIES: Mapping[str, str] = {
    "strict": "skillopt_airflow.core.gate.policies:STRICT",
    "exact_paired": "skillopt_airflow.core.gate.policies:EXACT_PAIRED",
}
"""The place of each gate policy, as module:name."""

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(GATE_POLICIES)]

JudgeUse = Literal["rules", "rules_first", "always"]
"""Scoring by the rules, by the judge if the rules can't decide, or always by the judge."""


class TrainGroup(Group):
    """The outer loop (paper section 4, protocol)."""

    num_epochs: Positive = 4
    """Passes over the training split. benchmark.yaml sets the maximum; a run may use fewer."""
    steps_per_epoch: Positive | None = None
    """Maximum steps per epoch, one batch per step. Default: enough to cover the training split."""
    init_skill: Annotated[str, Field(min_length=1)] = "seed"
    """Initial skill: `seed`, `champion`, a version, an s3:// URL, or Markdown text. A training after a decline begins
    with the champion instead of the seed."""
    batch_size: Positive = 40
    """Training items per slice."""
    accumulation: Positive = 1
    """Slices per step. A step rolls out and reflects on all of them, then merges the patches."""
    samples: Positive = 1
    """Rollouts per item of a batch, which an analyst sees together. Only useful for a target that samples."""
    seed: int = 42
    """Seed of all shuffles of the training."""
    speculative_rollout: bool | Literal["auto"] = "auto"
    """Roll out the next batch with the current skill while a candidate is made and evaluated. An accepted candidate
    wastes it. auto does so if two of the last three steps rejected their candidates. Never with a budget."""


class GradientGroup(Group):
    """Reflection and merging (paper section 3.3)."""

    minibatch_size: Positive = 8
    """Items per reflection call, with all rollouts of each."""
    merge_batch_size: Annotated[int, Field(ge=2)] = 8
    """Patches per merge call."""
    prompt_chars: Annotated[int, Field(ge=4_000)] | None = None
    """Maximum characters of an optimizer prompt. Longer messages of trajectories are cut. Default: 1.5 per token of the
    model's context if that is known, at most 200,000."""
    analyst_workers: Positive = 16
    """Maximum concurrent optimizer calls per run."""
    analyst_rounds: Annotated[int, Field(ge=1, le=3)] = 1
    """Answers per analyst. After the first, the analyst checks its draft against the same minibatch and corrects it."""
    failure_only: bool = False
    """Reflect on failures only."""
    show_pictures: Annotated[int, Field(ge=0, le=50)] = 0
    """Maximum pictures per minibatch that the analyst sees. Use 0 for an optimizer that doesn't accept pictures."""
    use_deep_reflect: bool = False
    """Let the optimizer ask the target about a few of its trajectories before reflection."""
    deep_reflect_failures: Count = 4
    """Failures per step that the target is asked about."""
    deep_reflect_successes: Count = 2
    """Successes per step that the target is asked about."""


class OptimizerGroup(Group):
    """Changes to the skill (paper section 3.4), and the slower mechanisms at an epoch's end (3.6)."""

    learning_rate: Positive = 4
    """Maximum edits per step at the schedule's start."""
    min_learning_rate: Positive = 2
    """Maximum edits per step at the schedule's end."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "cosine"
    """Curve of the learning rate from its maximum to its minimum."""
    lr_control_mode: Literal["fixed", "autonomous", "none"] = "fixed"
    """Control of the learning rate. fixed follows the schedule, autonomous lets the optimizer choose up to
    learning_rate, none applies every edit."""
    skill_update_mode: Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"] = "patch"
    """Form of a step's change. patch applies the edits. The others let the optimizer rewrite the skill's body."""
    use_slow_update: bool = True
    """Compare the last skills of two epochs, from epoch 2 on, and write guidance into a protected region."""
    slow_update_samples: Positive = 20
    """Training items on which the two skills are compared."""
    slow_update_gate: bool = True
    """Apply the gate to the guidance. False measures the guidance and always accepts it."""
    longitudinal_pair_policy: Literal["mixed", "changed", "unchanged"] = "mixed"
    """Items of the comparison that the optimizer sees: all, those with a changed outcome, or those without."""
    use_meta_skill: bool = True
    """Keep a memory of the epochs' steps and comparisons for later optimizer calls. It isn't part of the skill."""
    use_meta_reflect: bool = False
    """Propose edits at an epoch's end from its accepted and rejected edits."""
    use_skill_aware_reflection: bool = False
    """Separate defects of the skill from mistakes in following it. Mistakes become notes in a protected appendix."""
    skill_aware_appendix_source: Literal["failure", "success", "both"] = "both"
    """Minibatches that may add notes."""
    skill_aware_consolidate_threshold: Count = 0
    """Notes above which the optimizer shortens the appendix; 0 never does."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError("min_learning_rate must not exceed learning_rate")
        return self

    @model_validator(mode="after")
    def _compatible(self) -> Self:
        if self.use_skill_aware_reflection and self.skill_update_mode == "full_rewrite_minibatch":
            raise ValueError(
                "skill_update_mode = full_rewrite_minibatch makes no edits, which use_skill_aware_reflection needs. "
                "Set it to patch or rewrite_from_suggestions, or use_skill_aware_reflection to false"
            )
        return self

    @property
    def chooses_rate(self) -> bool:
        """Return whether the optimizer sets the learning rate; a full rewrite is a single edit anyway."""
        return self.lr_control_mode == "autonomous" and self.skill_update_mode != "full_rewrite_minibatch"


class EvaluationGroup(Group):
    """The validation gate (paper section 3.5) and the test at the end."""

    use_gate: bool = True
    """Gate the candidates. False accepts every candidate that differs, and still measures and records it."""
    gate_policy: PolicyName = "strict"
    """Rule for accepting a candidate. Each policy also requires a strictly better mean."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """False positive rate of exact_paired."""
    gate_protected_items: tuple[str, ...] = ()
    """Ids of items of the selection split that no accepted candidate may lose, under any policy."""
    early_reject: bool = True
    """Stop an evaluation once the candidate can no longer win. Saves rollouts. No effect without a gate or on batch
    jobs."""
    judge: JudgeUse = "rules_first"
    """Scoring in a benchmark with a judge: by the rules only, by the judge if the rules can't decide, or always by the
    judge. No effect in other benchmarks."""
    samples: Positive = 1
    """Rollouts per item of an evaluation. The item's score is their mean. If one of them fails, it has no score."""
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    """Score that the gate compares; mixed is (1 - w) hard + w soft."""
    gate_mixed_weight: Fraction = 0.5
    """Weight w of the soft score if gate_metric is mixed."""
    use_semantic_density: bool = False
    """Choose the best skill by score and semantic density together. Doesn't change the gate's decisions."""
    min_coverage: Fraction = 0.95
    """Minimum share of items with a score. Below it, an evaluation decides nothing."""
    val_limit: Positive | None = None
    """Items to evaluate on, the first ones of the selection split. The split needs at least this number. Default: all
    items."""
    test_limit: Positive | None = None
    """Items to test on, the first ones of the test split. The split needs at least this number. Default: all items."""
    eval_test: bool | Literal["each_epoch"] = True
    """Measure the seed, the best and the last skill on the test split, equal texts once. each_epoch also measures each
    epoch's last skill, at the end of the run. These scores select nothing."""

    def most_tested(self, epochs: int) -> int:
        """Return the maximum number of skills, seed included, that a run measures on the test split."""
        if not self.eval_test:
            return 0
        # The last epoch's last skill is the run's last skill.
        return 3 + (epochs - 1 if self.eval_test == "each_epoch" else 0)

    def limit(self, split: Split) -> int | None:
        """Return the number of items of a split to use; None for all."""
        return {Split.VAL: self.val_limit, Split.TEST: self.test_limit}.get(split)
