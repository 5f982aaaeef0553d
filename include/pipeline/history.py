"""A run's history: a row a step, from what the steps stored, as JSON and as a page."""

from collections import Counter

from pydantic import Field

from include.core.edits import EditApplyReport
from include.core.gate import GateDecision
from include.core.scoring import Evaluation
from include.core.types import Patch, Split, Value
from include.pipeline import timing
from include.pipeline.publishing import Publication
from include.pipeline.run import TrainingRun


class StepHistory(Value):
    """One step; scores are means of the gate metric."""

    step: int
    epoch: int
    candidate_score: float
    current_score: float
    """Of the skill that the candidate was compared with."""
    best_score: float
    """After the step."""
    action: str
    reason: str
    edits_applied: int
    edits_skipped: int
    skill_version: int
    """Current version after the step."""
    fallback: str
    """Where the optimizer's answer gave way to the deterministic rule, or empty."""
    seconds: timing.StepSeconds


class SplitScore(Value):
    """A skill's means on a split."""

    version: int
    hard: float
    soft: float
    coverage: float


class History(Value):
    """The whole run."""

    benchmark: str
    run: str
    target: str
    optimizer: str
    metric: str
    seed_val_score: float
    best_val_score: float
    best_version: int
    steps: tuple[StepHistory, ...]
    test: dict[str, SplitScore] = Field(default_factory=dict)
    """The seed and the best skill on the test split; empty if that was not measured."""
    calls: dict[str, int]
    """Model calls by role, as paid for by this run."""
    tokens: dict[str, int]
    """Prompt and completion tokens by role."""
    published: Publication | None = None


def history_of(run: TrainingRun, published: Publication | None = None) -> History:
    """The history, from the run's stored documents."""
    record, rules = run.record, run.config.evaluation
    end = run.state(record.total_steps)
    seed = run.state(0).best.evaluation
    calls, tokens = _usage(run)
    return History(
        benchmark=record.benchmark,
        run=record.run,
        target=str(record.config.model.target),
        optimizer=str(record.config.model.optimizer),
        metric=rules.gate_metric,
        seed_val_score=seed.mean(rules.gate_metric, rules.gate_mixed_weight),
        best_val_score=end.best.evaluation.mean(rules.gate_metric, rules.gate_mixed_weight),
        best_version=end.best.version,
        steps=_steps(run),
        test=_test(run, end.best.version),
        calls=calls,
        tokens=tokens,
        published=published,
    )


def write_report(run: TrainingRun, history: History) -> None:
    """history.json and report.html; what a model wrote is escaped."""
    from jinja2 import Environment, PackageLoader

    page = Environment(loader=PackageLoader("include.pipeline"), autoescape=True).get_template("report.html")
    skill = run.skill(history.best_version).text
    run.store.put_text(run.keys.report, page.render(history=history, skill=skill))
    run.store.put_model(run.keys.history, history)


def _steps(run: TrainingRun) -> tuple[StepHistory, ...]:
    record = run.record
    rows: list[StepHistory] = []
    previous_end = None
    for step in range(1, record.total_steps + 1):
        keys = run.keys.step(step)
        timings = timing.load(run.store, keys)
        if previous_end is None:
            previous_end = min(row.started for row in timings)
        gate, state = run.store.get_model(keys.gate, GateDecision), run.state(step)
        report = run.store.get_model(keys.edit_apply_report, EditApplyReport)
        rows.append(
            StepHistory(
                step=step,
                epoch=(step - 1) // record.steps_in_epoch + 1,
                candidate_score=gate.against_current.score,
                current_score=gate.against_current.other_score,
                best_score=_mean(run, state.best.evaluation),
                action=gate.action.value,
                reason=gate.reason,
                edits_applied=report.count("applied", "applied_as_append"),
                edits_skipped=report.count("skipped"),
                skill_version=state.current.version,
                fallback=run.store.get_model(keys.ranked_edits, Patch).fallback,
                seconds=timing.step_seconds(timings, previous_end),
            )
        )
        previous_end = max(row.ended for row in timings)
    return tuple(rows)


def _mean(run: TrainingRun, evaluation: Evaluation) -> float:
    rules = run.config.evaluation
    return evaluation.mean(rules.gate_metric, rules.gate_mixed_weight)


def _test(run: TrainingRun, best: int) -> dict[str, SplitScore]:
    if not run.config.evaluation.eval_test:
        return {}
    scores: dict[str, SplitScore] = {}
    for name, version in (("seed", 0), ("best", best)):
        measured = run.evaluation(Split.TEST, run.skill(version))
        if measured.scores:
            scores[name] = SplitScore(
                version=version,
                hard=measured.mean("hard"),
                soft=measured.mean("soft"),
                coverage=measured.coverage,
            )
    return scores


def _usage(run: TrainingRun) -> tuple[dict[str, int], dict[str, int]]:
    calls: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in run.usage.read(run.ref.benchmark, run.ref.run):
        calls[row.call.role] += 1
        tokens[f"{row.call.role}_prompt"] += row.call.prompt_tokens
        tokens[f"{row.call.role}_completion"] += row.call.completion_tokens
    return dict(calls), dict(tokens)
