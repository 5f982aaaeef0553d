"""A run as its history would describe it: 12 steps in 2 epochs with every verdict, judged by the project's rules."""

from io import BytesIO

from PIL import Image

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import EQUAL, Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.run.budget import StageCost
from skillopt_airflow.core.run.early_rejection import RunningEvaluation, evaluation_order
from skillopt_airflow.core.run.history import MomentHistory, Publication, RolloutCounts, StageRollouts, StepSeconds
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import apply_edits
from skillopt_airflow.core.values.failure_reasons import RolloutTally
from skillopt_airflow.core.values.provenance import LineOrigin, seed_lines, trace
from skillopt_airflow.core.values.skill import SkillDocument, diff_of
from skillopt_airflow.core.values.types import Edit, FailurePattern, Split, Status, Trajectory
from skillopt_airflow.report.view import Example, Part, ReportView, Turn

RULES = EvaluationGroup(early_reject=True)
ITEMS = 80
SEED = """# Answering questions from search results

Answer with the shortest span of the passages that answers the question.

- Read every passage before you answer.
- Say "unknown" if no passage holds the answer.
"""
ADVICE = (
    "Prefer a passage that names the question's subject over one that only shares its words.",
    "Give names in full, as the passage writes them: `Franklin D. Roosevelt`, not `Roosevelt`.",
    "Leave out articles, titles and units unless the question asks for them, because the reference answers of this "
    "benchmark were written without them, and an answer of more words than the reference scores nothing at all even "
    "where it means the same: https://example.org/a-very-long-address-without-a-single-blank/that-has-to-be-broken.",
    "If two passages disagree, take the one with the date that is nearer to the one in the question.",
    "Never answer with a question.",
    "For a `when` question answer with the year alone: 1969, not 20 July 1969.",
)


def evaluation(wrong: int, failed: int = 0, shift: int = 0) -> Evaluation:
    """The first items are wrong, the last ones failed; `shift` moves the wrong ones, so that there are losses too."""
    scored = range(ITEMS - failed)
    lost = {(number + shift) % len(scored) for number in range(wrong)}
    scores = {f"item-{i:03d}": ItemScore(hard=float(i not in lost), soft=0.3 if i in lost else 1.0) for i in scored}
    return Evaluation(scores=scores, failures={Status.TIMEOUT: failed} if failed else {})


def estimate(of: Evaluation, version: int = 0) -> SplitScore:
    return SplitScore.of(of, RULES, version=version)


class Training:
    """Collects the moments of a run whose candidates' evaluations are given."""

    def __init__(self) -> None:
        self.skill = SkillDocument(SEED)
        self.lines: tuple[LineOrigin, ...] = seed_lines(self.skill, "steps/step_0000")
        self.current = self.best = self.seed = evaluation(36)
        self.best_version = self.version = 0
        self.moments: list[MomentHistory] = []

    def take(self, moment: Moment, edits: tuple[Edit, ...], measured: Evaluation | None, **more: object) -> None:
        candidate, report = apply_edits(self.skill, edits)
        decision = self._decision(measured, more.pop("action", None))
        if decision.action.accepted and measured is not None:
            self.lines = trace(self.skill, self.lines, report, moment.name)
            self.current, self.version = measured, self.version + 1
            if decision.action is Action.ACCEPT_NEW_BEST:
                self.best, self.best_version = measured, self.version
        row = {
            "name": moment.name,
            **moment.model_dump(include={"kind", "epoch", "step"}),
            "decision": decision,
            "candidate": None if measured is None or decision.bound is not None else estimate(measured),
            "score_after": self.current.mean("hard"),
            "best_score": self.best.mean("hard"),
            "skill_version": self.version,
            "edits": report.rows,
            "diff": diff_of(self.skill.text, candidate.text),
            "fallbacks": (),
            "cancelled": 0,
            "ended": 0.0,
            "seconds": StepSeconds(
                wall=61.5 + moment.step, model=38.25, container=9.5, own=4.5, airflow=9.25 + moment.step
            ),
        }
        if decision.action.accepted:
            self.skill = candidate
        self.moments.append(MomentHistory.model_validate(row | more))

    def _decision(self, measured: Evaluation | None, action: object) -> GateDecision:
        if measured is None:
            reason = f"{EQUAL}, so there was nothing to measure"
            return decide(self.current, self.current, self.best, RULES, certain=reason)
        if action == "early":
            order = evaluation_order(tuple(measured.scores), self.current, RULES, TrackRecord())
            lost = RunningEvaluation(measured.scores, {}, order, self.current, RULES).lost()
            assert lost is not None
            short, bound = lost
            reason = f"rejected early: {short.size - short.cancelled} of {short.size} items show it"
            decision = decide(short, self.current, self.best, RULES, certain=reason)
            return decision.model_copy(update={"bound": bound})
        decision = decide(measured, self.current, self.best, RULES)
        return decision if action is None else decision.model_copy(update={"action": action, "statistic": 0.125})


def proposed(number: int, op: str = "append", anchor: str = "", **more: object) -> Edit:
    source = more.get("source_type", "failure")
    return Edit.model_validate(
        {
            "op": op,
            "anchor": anchor,
            "content": "" if op == "delete" else f"- {ADVICE[number % len(ADVICE)]}",
            "rationale": "Eleven answers of the minibatch hold more words than the reference, which the scorer counts "
            "as wrong.",
            "support_count": 1 + number % 3,
            "merge_level": number % 3,
            "minibatches": tuple(f"{source}-{index}" for index in range(1 + number % 3)),
        }
        | more
    )


def example() -> ReportView:
    """Twelve steps, a slow update and a meta reflection; a fallback, skipped edits, an early rejection."""
    training = Training()
    wrong = [30, 34, 27, 27, 40, 22, 22, 19, 30, 19, 17, 24]
    patterns = (
        FailurePattern(description="Answers with a whole sentence", item_ids=("item-003", "item-017", "item-021")),
        FailurePattern(description="Takes a passage about another person of the same name", item_ids=("item-044",)),
    )
    for step, lost in enumerate(wrong, start=1):
        edits = (
            proposed(step),
            proposed(step + 1, "insert_after", "- Read every passage before you answer."),
            proposed(step + 2, "replace", "an anchor that no line of the skill holds", source_type="success"),
        )
        measured: Evaluation | None = evaluation(lost, failed=12 if step == 4 else 0, shift=step % 3)
        more: dict[str, object] = {"failure_patterns": patterns[: 1 + step % 2]}
        if step in (5, 9):
            more["action"] = "early"
        if step == 7:
            more["fallbacks"] = ("merge: the answer was not valid after 2 tries; failures first, then successes",)
            edits, measured = (proposed(1, "delete", "no such line"),), None
        if step == 10:
            more["action"] = Action.UNDERPOWERED
        training.take(Moment(kind="step", epoch=1 if step <= 6 else 2, step=step), edits, measured, **more)
    guidance = Edit(
        op="region",
        anchor="SLOW_UPDATE",
        content="- Short answers held since epoch 1: keep them.\n- Dates came back as sentences.",
        rationale="Two items regressed on dates.",
    )
    training.take(Moment(kind="slow_update", epoch=2, step=12), (guidance,), evaluation(15, shift=1))
    training.take(
        Moment(kind="meta_reflect", epoch=2, step=12),
        (proposed(4, "delete", '- Say "unknown" if no passage holds the answer.'),),
        evaluation(15, shift=2),
    )
    return _view(training)


def drawn() -> bytes:
    made = BytesIO()
    Image.new("RGB", (320, 120), "steelblue").save(made, "JPEG")
    return made.getvalue()


EXAMPLES = tuple(
    Example(
        item_id=f"item-{number:03d}",
        hard=hard,
        soft=max(hard, 0.4),
        feedback="right" if hard else "expected 'Lisbon'",
        answer="Porto",
        turns=(
            Turn(role="user", parts=(Part(text="The map:"), Part(thumbnail=drawn()), Part(text="Which city?"))),
            Turn(role="assistant", parts=(Part(text="It is <answer>Porto</answer>."),)),
        ),
    )
    for number, hard in ((3, 0.0), (5, 1.0))
)


def _view(training: Training) -> ReportView:
    def cost(stage: str, role: str, calls: int, prompt: int, completion: int, seconds: float) -> StageCost:
        usd = None if role == "target" else prompt * 1.25e-6 + completion * 1e-5
        return StageCost.model_validate(
            {"stage": stage, "role": role, "calls": calls, "attempts": calls + 3, "prompt_tokens": prompt}
            | {"completion_tokens": completion, "seconds": seconds, "usd": usd}
        )

    tested = {"seed": (0, 37), "best": (training.best_version, 21), "last": (training.version, 21)}
    return ReportView(
        benchmark="searchqa",
        run="manual__2026-11-21T04-00-00-1a2b3c4d",
        target="openai-chat:stand-in",
        optimizer="openai-chat:stand-in",
        created="2026-11-21T04:00:07Z",
        metric="hard",
        gate_policy="strict",
        total_steps=12,
        stopped="",
        published=Publication(
            version="v0003-0123456789ab",
            sha256="0123",
            key="s3://skillopt/best_skill.md",
            created=True,
            split=Split.TEST,
            look=1,
        ),
        seed=estimate(training.seed),
        best=estimate(training.best, training.best_version),
        moments=tuple(training.moments),
        test={name: estimate(evaluation(lost), version) for name, (version, lost) in tested.items()},
        val_items=ITEMS,
        test_items=ITEMS,
        skill=training.skill.text,
        lines=training.lines,
        examples=EXAMPLES,
        costs=(
            cost("seed", "target", 80, 96_400, 1_310, 71.2),
            cost("rollout", "target", 480, 574_100, 8_020, 402.9),
            cost("reflect", "optimizer", 72, 412_700, 61_400, 380.0),
            cost("merge", "optimizer", 31, 90_800, 30_200, 161.4),
            cost("rank", "optimizer", 9, 30_100, 2_050, 21.0),
            cost("evaluate", "target", 816, 981_000, 13_600, 690.3),
            cost("slow_update", "optimizer", 1, 22_100, 420, 6.1),
            cost("test", "target", 240, 290_700, 4_100, 215.0),
        ),
        rollouts=RolloutCounts(planned=1818, ran=1616, reused=122, cancelled=80, speculated=40, wasted=20),
        outcomes=(
            outcomes("seed", 80, 0),
            outcomes("rollout", 480, 12, *[(Status.TIMEOUT, "the CLI was not done after 60 s")] * 7),
            outcomes(
                "evaluate",
                816,
                96,
                *[(Status.MODEL_ERROR, "Invalid response: usage.prompt_tokens: Input should be a valid integer")] * 11,
                *[(Status.BUDGET, "budget.max_calls is spent, so the run makes no more model calls")] * 3,
            ),
        ),
    )


def outcomes(stage: str, planned: int, truncated: int, *failures: tuple[Status, str]) -> StageRollouts:
    """What became of a stage's rollouts; all but the failures have a score."""
    ended = [(Status.TRUNCATED, "")] * truncated + list(failures)
    ended += [(Status.OK, "")] * (planned - len(ended))
    rows = [Trajectory(item_id=f"item-{n:03d}", status=status, error=why) for n, (status, why) in enumerate(ended)]
    return StageRollouts(stage=stage, **dict(RolloutTally.of(rows, planned)))
