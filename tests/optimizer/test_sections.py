import pytest
from scripted_optimizer import ScriptedOptimizer

from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.sections import GuidedOptimizer


@pytest.mark.parametrize(("stage", "said"), [("reflect_rewrite", "look"), ("meta_reflect", ""), ("merge", "unite")])
def test_a_call_sees_what_the_benchmark_says_on_its_stage(stage: str, said: str) -> None:
    optimizer = ScriptedOptimizer({"order": [0]})
    GuidedOptimizer(optimizer, {"reflect": "look", "merge": "unite"}).ask(stage, "i", "<skill>\n</skill>", Ranking)
    section = f"\n\n<benchmark_guidance>\n{said}\n</benchmark_guidance>" if said else ""
    assert optimizer.calls == [(stage, f"<skill>\n</skill>{section}")]
