"""The optimizer behind a provider that fails two tries of five."""

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from local.served import served
from skillopt_airflow.core.types import Edit, ModelCall, Patch
from skillopt_airflow.models.optimizer import PydanticAIOptimizer
from skillopt_airflow.optimizer.select import select
from tests.pipeline.faulty_model import FaultyModel

SKILL = "# Skill\n\n- Read the question.\n"


@pytest.mark.nightly
@pytest.mark.slow
def test_every_question_gets_its_answer_from_a_provider_that_keeps_failing(standin_url: str) -> None:
    calls: list[ModelCall] = []
    with served(FaultyModel(standin_url, hang=2.0)) as server:
        model = OpenAIChatModel("stand-in-optimizer", provider=OpenAIProvider(base_url=server.base_url, api_key="none"))
        with PydanticAIOptimizer(model, calls.append, {"timeout": 0.5}, max_attempts=12) as optimizer:
            for number in range(45):
                patch = Patch(edits=tuple(Edit(op="append", content=f"- rule {number} {n}") for n in range(3)))
                ranked = select(optimizer, SKILL, patch, 2, "")
                assert not ranked.fallback
                assert len(ranked.edits) == 2
    assert set(server.outcomes) == {"answer", "busy", "broken", "hang", "garbage"}
    assert server.outcomes["answer"] == 45
