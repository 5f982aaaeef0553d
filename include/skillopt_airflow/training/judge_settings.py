"""The settings of a run that say whose word counts for a score."""

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.grading import JudgeUse
from skillopt_airflow.core.protocols import AsksJudge, Benchmark
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import JsonObject, sha256
from skillopt_airflow.optimizer.judge import judge_instructions


def check_judge(rules: EvaluationGroup, benchmark: Benchmark) -> None:
    """Refuse a judge for every answer where nobody says what to ask it.

    Raises:
        ConfigError: the benchmark asks no judge.
    """
    if rules.judge == "always" and not isinstance(benchmark, AsksJudge):
        raise ConfigError(
            "evaluation.judge = always: this benchmark asks no judge; give a task without code a task.judge, or leave "
            "evaluation.judge out"
        )


def judge_use(rules: EvaluationGroup, benchmark: Benchmark) -> JudgeUse:
    return rules.judge if isinstance(benchmark, AsksJudge) else "rules"


def judge_settings(config: TrainConfig) -> JsonObject:
    """Return what a score depends on besides its rollout: nothing in a run without a judge."""
    judge = config.model.judge
    return {} if judge is None else {"judge": [config.evaluation.judge, judge, sha256(judge_instructions())]}
