"""The judge model: its calls, which grade answers against references, and the settings for its use."""

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import EvaluationGroup, JudgeUse
from skillopt_airflow.core.errors import ConfigError, ModelOutputError
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.types import Grade, JsonObject, Value, Verdict, sha256
from skillopt_airflow.optimizer.answers import clipped
from skillopt_airflow.optimizer.sections import json_section, load_prompt, prompt_of, section
from skillopt_airflow.tasks.grading import GradingRequest, is_quote, process_score, rests_on_answer
from skillopt_airflow.tasks.protocols import AsksJudge, Benchmark

STAGE, STEPS_STAGE = "judge", "judge_steps"
MAX_CHARS = 20_000
"""Limit of the part of an answer that the judge reads, from its start."""
MAX_REASON_CHARS = 500
TRIES = 2
"""Attempts to get a grade with a valid quote."""


class TakenStep(Value):
    """A step that the answer takes, by its indices in the request, from 0."""

    path: int
    step: int
    quote: str
    """The part of the answer that takes the step, word for word."""


class TakenSteps(Value):
    """The judge's reply about steps."""

    taken: tuple[TakenStep, ...]


def judge_instructions() -> str:
    """Return the judge's prompts, on which all grades depend."""
    return load_prompt(STAGE) + load_prompt(STEPS_STAGE)


def grade(judge: Optimizer, request: GradingRequest) -> Grade:
    """Ask whether the answer agrees with a reference; only a grade with a valid quote counts.

    Raises:
        ModelOutputError: the judge's reply is invalid, or its quote is too short or not in the answer.
        ModelError: the provider didn't answer.
    """
    if request.paths:
        return _process(judge, request)
    answer, shown = _shown(request.answer)
    prompt = prompt_of(
        section("agreement", request.instructions) if request.instructions else "",
        json_section("question", request.question),
        json_section("references", list(request.references)),
        shown,
    )
    wrong: list[str] = []
    for _ in range(TRIES):
        asked = prompt_of(prompt, json_section("unusable_quotes", wrong)) if wrong else prompt
        found = judge.ask(STAGE, load_prompt(STAGE), asked, Verdict)
        if rests_on_answer(found, answer):
            return Grade(grade=found.grade, quote=found.quote, reason=clipped(found.reason, MAX_REASON_CHARS))
        wrong.append(clipped(found.quote))
    raise ModelOutputError(
        f"the judge says {found.grade}, but its quote is too short or not in the answer: {wrong[-1]!r}"
    )


def _process(judge: Optimizer, request: GradingRequest) -> Grade:
    """Ask which steps of the known solutions the answer takes; steps whose quote isn't in the answer don't count."""
    answer, shown = _shown(request.answer)
    paths = json_section("paths", [list(path) for path in request.paths])
    prompt = prompt_of(json_section("question", request.question), paths, shown)
    found = judge.ask(STEPS_STAGE, load_prompt(STEPS_STAGE), prompt, TakenSteps).taken
    quoted = {(one.path, one.step): one.quote for one in found if is_quote(one.quote, answer)}
    share = process_score(request.paths, quoted.keys())
    return Grade(
        grade="correct" if share == 1 else "incorrect" if share else "not_attempted",
        quote=next(iter(quoted.values()), ""),
        reason=f"it takes {share:.0%} of the steps between the first and the last of a known solution",
        process=share,
    )


def _shown(answer: str) -> tuple[str, str]:
    read, left_out = answer[:MAX_CHARS], max(0, len(answer) - MAX_CHARS)
    # JSON without <, so the answer can't end its section.
    sections = [json_section("answer", read), json_section("characters_left_out", left_out) if left_out else ""]
    return read, prompt_of(*sections)


def check_judge(rules: EvaluationGroup, benchmark: Benchmark) -> None:
    """Raise ConfigError if the configuration requires a judge and the benchmark has no questions for it."""
    if rules.judge == "always" and not isinstance(benchmark, AsksJudge):
        raise ConfigError(
            "evaluation.judge = always: this benchmark asks no judge. Set task.judge for a declared task, or remove "
            "evaluation.judge"
        )


def judge_use(rules: EvaluationGroup, benchmark: Benchmark) -> JudgeUse:
    return rules.judge if isinstance(benchmark, AsksJudge) else "rules"


def judge_settings(config: TrainConfig) -> JsonObject:
    """Return the settings on which a score depends, in addition to its rollout; empty without a judge."""
    judge = config.model.judge
    return {} if judge is None else {"judge": [config.evaluation.judge, judge, sha256(judge_instructions())]}
