from typing import Any

import pytest
from pydantic import BaseModel

from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.optimizer.guided import GuidedOptimizer


class Answer(BaseModel):
    """An answer without content."""


class Listening:
    """Keeps the prompt that it was asked."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: Any, pictures: Pictures = NO_PICTURES
    ) -> Any:
        self.prompt = prompt
        return output_type()


@pytest.mark.parametrize(("stage", "said"), [("reflect_rewrite", "look"), ("meta_reflect", ""), ("merge", "unite")])
def test_a_call_sees_what_the_benchmark_says_on_its_stage(stage: str, said: str) -> None:
    listening = Listening()
    GuidedOptimizer(listening, {"reflect": "look", "merge": "unite"}).ask(stage, "i", "<skill>\n</skill>", Answer)
    section = f"\n\n<benchmark_guidance>\n{said}\n</benchmark_guidance>" if said else ""
    assert listening.prompt == f"<skill>\n</skill>{section}"
