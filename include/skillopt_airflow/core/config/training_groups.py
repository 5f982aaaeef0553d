"""The knobs of a training: its loop, reflection, changes to the skill, and the gate."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from skillopt_airflow.core.config.group import Count, Fraction, Group, Positive
from skillopt_airflow.core.values.types import Split

JudgeUse = Literal["rules", "rules_first", "always"]
"""The scorer of answers: only the rules, the judge model if they can't decide, or always the judge model."""


class TrainGroup(Group):
    """The outer loop (paper section 4, protocol)."""

    num_epochs: Positive = 4
    """Passes over the training split. benchmark.yaml sets the number in the DAG; a run can ask for fewer."""
    steps_per_epoch: Positive | None = None
    """Maximum steps per epoch. Default: enough to cover the training split."""
    init_skill: Annotated[str, Field(min_length=1)] = "seed"
    """Initial skill: `seed`, `champion`, a version, an s3:// URL, or the text itself. A training after a decline starts
    with the champion instead of the seed."""
    batch_size: Positive = 40
    """Training items per slice."""
    accumulation: Positive = 1
    """Slices per step; their edits are merged together."""
    rollouts_per_item: Positive = 1
    """Rollouts per item of a batch, which analysts can compare. Only useful if the target's answers vary."""
    seed: int = 42
    """Seed of all shuffles of the training."""
    speculative_rollout: bool | Literal["auto"] = "auto"
    """Run the next batch with the current skill while a candidate is created and evaluated; wasted if the candidate is
    accepted. auto does so if two of the last three steps rejected their candidates. Never with a budget."""


class GradientGroup(Group):
    """Reflection and merging (paper section 3.3)."""

    minibatch_size: Positive = 8
    """Items per reflection call, with all their rollouts."""
    merge_batch_size: Annotated[int, Field(ge=2)] = 8
    """Patches per merge call."""
    prompt_chars: Annotated[int, Field(ge=4_000)] | None = None
    """Maximum characters of an optimizer prompt; longer messages of trajectories are cut. Default: 1.5 per token of the
    model's context if it is known, at most 200,000."""
    analyst_workers: Positive = 16
    """Concurrent optimizer calls per run."""
    analyst_rounds: Annotated[int, Field(ge=1, le=3)] = 1
    """Answers per analyst: each one after the first corrects the draft on the same minibatch."""
    failure_only: bool = False
    """Reflect only on failures."""
    show_pictures: Annotated[int, Field(ge=0, le=50)] = 0
    """Maximum pictures of a minibatch's items to show to an analyst; 0 for an optimizer without vision."""
    use_deep_reflect: bool = False
    """Before reflection, the optimizer asks the target about some of its trajectories."""
    deep_reflect_failures: Count = 4
    """Failed items per step for questions to the target."""
    deep_reflect_successes: Count = 2
    """Successful items per step for questions to the target."""


class OptimizerGroup(Group):
    """Updates of the skill (paper section 3.4), and the slower mechanisms at the end of an epoch (3.6)."""

    learning_rate: Positive = 4
    """Maximum edits per step at the start of the schedule."""
    min_learning_rate: Positive = 2
    """Maximum edits per step at the end of the schedule."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "cosine"
    """Curve of the learning rate from its maximum to its minimum."""
    lr_control_mode: Literal["fixed", "autonomous", "none"] = "fixed"
    """fixed follows the schedule, autonomous lets the optimizer choose up to learning_rate, none applies all edits."""
    skill_update_mode: Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"] = "patch"
    """patch applies the edits; with the others, the optimizer rewrites the skill's body."""
    use_slow_update: bool = True
    """From epoch 2 on, write guidance into a protected region, based on a comparison of two epochs' last skills."""
    slow_update_samples: Positive = 20
    """Training items for the comparison."""
    slow_update_gate: bool = True
    """Send the guidance through the gate like a step's edits; false accepts it in any case."""
    longitudinal_pair_policy: Literal["mixed", "changed", "unchanged"] = "mixed"
    """Items of the comparison that the optimizer sees: all, those with a changed outcome, or the others."""
    use_meta_skill: bool = True
    """Keep a memory across epochs for later optimizer calls, separate from the skill."""
    use_meta_reflect: bool = False
    """At the end of an epoch, propose edits based on its accepted and rejected edits."""
    use_skill_aware_reflection: bool = False
    """Distinguish defects of the skill from lapses in its execution; lapses become notes in a protected appendix."""
    skill_aware_appendix_source: Literal["failure", "success", "both"] = "both"
    """Minibatches that may add notes."""
    skill_aware_consolidate_threshold: Count = 0
    """Number of notes above which the optimizer consolidates the appendix; 0 never does."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError("min_learning_rate must not exceed learning_rate")
        return self

    @model_validator(mode="after")
    def _compatible(self) -> Self:
        if self.use_skill_aware_reflection and self.skill_update_mode == "full_rewrite_minibatch":
            raise ValueError(
                "use_skill_aware_reflection needs edits, which full_rewrite_minibatch doesn't create. Set "
                "skill_update_mode to patch or rewrite_from_suggestions, or use_skill_aware_reflection to false"
            )
        return self

    @property
    def chooses_rate(self) -> bool:
        """True if the optimizer sets the learning rate; with full rewrites, a step has one edit anyway."""
        return self.lr_control_mode == "autonomous" and self.skill_update_mode != "full_rewrite_minibatch"


class EvaluationGroup(Group):
    """The validation gate (paper section 3.5) and the test at the end."""

    use_gate: bool = True
    """Use the gate; false accepts every changed candidate, but still measures and records it."""
    gate_policy: Literal["strict", "exact_paired"] = "strict"
    """Policy for accepting candidates; each policy also requires a strictly better mean."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Significance level of exact_paired."""
    gate_protected_items: tuple[str, ...] = ()
    """Ids of selection items on which an accepted candidate must not lose, under any policy."""
    early_reject: bool = True
    """Stop an evaluation once the candidate can no longer win. Saves rollouts. No effect without a gate and on batch
    jobs."""
    judge: JudgeUse = "rules_first"
    """Scorer of answers in benchmarks with a judge model: rules, rules_first (the judge if the rules can't decide), or
    always (the judge). No effect in other benchmarks."""
    draws: Positive = 1
    """Rollouts per item in an evaluation. An item's score is their mean; it has none if a rollout failed."""
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    """Score that the gate compares; mixed is (1 - w) hard + w soft."""
    gate_mixed_weight: Fraction = 0.5
    """Weight w of the soft score if gate_metric is mixed."""
    use_semantic_density: bool = False
    """Choose the best skill by score and semantic density; acceptance depends only on the gate."""
    min_coverage: Fraction = 0.95
    """Share of items that must have a score for a decision."""
    val_limit: Positive | None = None
    """Number of items to use from the start of the selection split, which must have them. Default: all."""
    test_limit: Positive | None = None
    """Number of items to use from the start of the test split, which must have them. Default: all."""
    eval_test: bool | Literal["each_epoch"] = True
    """Measure the seed, best and last skill on the test split. each_epoch also measures each epoch's last skill, at the
    end of the run. These scores select no skill."""

    def most_tested(self, epochs: int) -> int:
        """Return the maximum number of skills that a run measures on the test split, including the seed."""
        if not self.eval_test:
            return 0
        # The last epoch's last skill is the run's last skill.
        return 3 + (epochs - 1 if self.eval_test == "each_epoch" else 0)

    def limit(self, split: Split) -> int | None:
        """Return the number of items to use from a split; None for all."""
        return {Split.VAL: self.val_limit, Split.TEST: self.test_limit}.get(split)
