"""The knobs of a training: its loop, reflection, changes to the skill, and the gate."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from skillopt_airflow.core.config.group import Count, Fraction, Group, Positive
from skillopt_airflow.core.values.types import Split

JudgeUse = Literal["rules", "rules_first", "always"]
"""Whose word counts: the rules' alone, the judge's where they cannot decide, or the judge's for every answer."""


class TrainGroup(Group):
    """The outer loop (paper section 4, protocol)."""

    num_epochs: Positive = 4
    """Passes over the training split. The graph has as many as the benchmark's file says; a run may ask for fewer."""
    steps_per_epoch: Positive | None = None
    """Most steps of an epoch, each a batch; as many as cover the training split when unset."""
    init_skill: Annotated[str, Field(min_length=1)] = "seed"
    """The skill to begin with: `seed`, `champion`, a version, an s3:// address, or a text. A training that a decline
    starts begins with the champion instead of the seed."""
    batch_size: Positive = 40
    """Items of the training split in one slice."""
    accumulation: Positive = 1
    """Slices that one step rolls out and reflects on before it merges what they propose."""
    rollouts_per_item: Positive = 1
    """Tries of each item of a batch, which an analyst sees side by side. For a target that samples: one that always
    answers alike gives equal ones."""
    seed: int = 42
    """Seed of every shuffle of the training."""
    speculative_rollout: bool | Literal["auto"] = "auto"
    """Roll out the next batch with the present skill while a candidate is made and evaluated; wasted if it is accepted.
    auto does so where two of the last three steps rejected theirs. Never with a budget."""


class GradientGroup(Group):
    """Reflection and merging (paper section 3.3)."""

    minibatch_size: Positive = 8
    """Items whose trajectories one reflection call sees, all tries of each."""
    merge_batch_size: Annotated[int, Field(ge=2)] = 8
    """Patches that one merge call sees; one alone would never become fewer."""
    prompt_chars: Annotated[int, Field(ge=4_000)] | None = None
    """Characters of an optimizer call's prompt, at most; longer messages of trajectories are cut. When unset 1.5 per
    token of the model's context, as far as that is known, and at most 200,000."""
    analyst_workers: Positive = 16
    """Optimizer calls of one run at the same time."""
    analyst_rounds: Annotated[int, Field(ge=1, le=3)] = 1
    """Times that an analyst answers: after the first, its draft is held against the same minibatch and corrected."""
    failure_only: bool = False
    """Reflect on failures alone."""
    show_pictures: Annotated[int, Field(ge=0, le=50)] = 0
    """Pictures of a minibatch's items that an analyst sees itself, at most; 0 for an optimizer that takes none."""
    use_deep_reflect: bool = False
    """Before reflection the optimizer asks the target about a few of its trajectories."""
    deep_reflect_failures: Count = 4
    """Failures of a step that the target is asked about."""
    deep_reflect_successes: Count = 2
    """Successes of a step that the target is asked about."""


class OptimizerGroup(Group):
    """Changes to the skill from proposals (paper section 3.4), and the slower mechanisms of an epoch's end (3.6)."""

    learning_rate: Positive = 4
    """Most edits that a step applies at the schedule's start."""
    min_learning_rate: Positive = 2
    """Most edits that a step applies at the schedule's end."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "cosine"
    """Curve on which the learning rate falls from its maximum to its minimum."""
    lr_control_mode: Literal["fixed", "autonomous", "none"] = "fixed"
    """fixed follows the schedule, autonomous lets the optimizer choose up to learning_rate, none applies every edit."""
    skill_update_mode: Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"] = "patch"
    """patch applies the edits; the others have the optimizer write the skill's body anew."""
    use_slow_update: bool = True
    """From epoch 2 on write guidance into a protected region, from comparing two epochs' last skills."""
    slow_update_samples: Positive = 20
    """Training items that both skills of the comparison run on."""
    slow_update_gate: bool = True
    """The guidance passes the gate like a step's edits; false measures it and takes it in any case."""
    longitudinal_pair_policy: Literal["mixed", "changed", "unchanged"] = "mixed"
    """Items of the comparison that the optimizer sees: all, those whose outcome changed, or the others."""
    use_meta_skill: bool = True
    """Keep a memory of epochs, from their steps and comparisons, for later optimizer calls; no part of the skill."""
    use_meta_reflect: bool = False
    """At an epoch's end propose edits from what the epoch accepted and rejected."""
    use_skill_aware_reflection: bool = False
    """Tell defects of the skill from lapses of its execution; lapses become notes in a protected appendix."""
    skill_aware_appendix_source: Literal["failure", "success", "both"] = "both"
    """Minibatches that may add notes."""
    skill_aware_consolidate_threshold: Count = 0
    """Notes above which the optimizer rewrites the appendix shorter; 0 never does."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError("min_learning_rate must not exceed learning_rate")
        return self

    @model_validator(mode="after")
    def _compatible(self) -> Self:
        if self.use_skill_aware_reflection and self.skill_update_mode == "full_rewrite_minibatch":
            raise ValueError(
                "use_skill_aware_reflection takes notes beside edits, and full_rewrite_minibatch makes no edits: "
                "set skill_update_mode to patch or rewrite_from_suggestions, or use_skill_aware_reflection to false"
            )
        return self

    @property
    def chooses_rate(self) -> bool:
        """Return whether the optimizer sets the learning rate; of whole rewrites there can be only one anyway."""
        return self.lr_control_mode == "autonomous" and self.skill_update_mode != "full_rewrite_minibatch"


class EvaluationGroup(Group):
    """The validation gate (paper section 3.5) and the test at the end."""

    use_gate: bool = True
    """False accepts every candidate that differs; it is measured and recorded all the same."""
    gate_policy: Literal["strict", "exact_paired"] = "strict"
    """The rule for accepting a candidate; each policy also asks for a strictly better mean."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Share of the candidates that change nothing which exact_paired may accept."""
    gate_protected_items: tuple[str, ...] = ()
    """Items of the selection split, by id, that no accepted candidate may lose, under any policy."""
    early_reject: bool = True
    """Stop an evaluation when what is certain rules a win out: what could not be accepted takes fewer rollouts. Without
    effect where nothing is gated, and on batch jobs."""
    judge: JudgeUse = "rules_first"
    """Who scores an answer, in a benchmark that asks a judge: the rules alone, the judge where these cannot decide, or
    the judge in any case. Without effect in other benchmarks."""
    draws: Positive = 1
    """Rollouts of each item of an evaluation; its score is their mean, and it has none if one of them failed."""
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    """Score that the gate compares; mixed is (1 - w) hard + w soft."""
    gate_mixed_weight: Fraction = 0.5
    """The weight w of the soft score when gate_metric is mixed."""
    use_semantic_density: bool = False
    """Choose the best skill by score and semantic density together; what is accepted is for the gate alone."""
    min_coverage: Fraction = 0.95
    """Share of items that must have a score, else an evaluation decides nothing."""
    val_limit: Positive | None = None
    """Evaluate on the first so many items of the selection split, which must have them; all when unset."""
    test_limit: Positive | None = None
    """Test on the first so many items of the test split, which must have them; all when unset."""
    eval_test: bool | Literal["each_epoch"] = True
    """Measure the seed, the best and the last skill on the test split; equal texts once. each_epoch also measures each
    epoch's last skill, at the end of the run. No skill is selected by these scores."""

    def most_tested(self, epochs: int) -> int:
        """Return the most skills that a run of so many epochs measures on the test split, the seed included."""
        if not self.eval_test:
            return 0
        # The last epoch's last skill is the last skill.
        return 3 + (epochs - 1 if self.eval_test == "each_epoch" else 0)

    def limit(self, split: Split) -> int | None:
        """Return how many items of a split are used; None for all of them."""
        return {Split.VAL: self.val_limit, Split.TEST: self.test_limit}.get(split)
