"""A question to the target and one to the optimizer, for clients of every wire format."""

import json

from pydantic import BaseModel
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.models import Model

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin.economy import World
from local.standin.stand_in import StandIn, of_all_benchmarks
from skillopt_airflow import benchmarks

STAND_IN: StandIn = of_all_benchmarks()
RECORDS = json.loads((benchmarks.folder("searchqa") / "sample" / "train" / "items.json").read_text("utf-8"))
ITEM = next(item for item in map(BENCHMARK.item, RECORDS) if World().nature(item.id).rule)
"""An item that needs a rule, which SYSTEM has."""
SKILL = f"- {World().nature(ITEM.id).rule}"
SYSTEM, USER = BENCHMARK.messages(ITEM.public, SKILL)
TASK = BENCHMARK.task(ITEM.public)
ANSWER, QUESTION = str(ITEM.reference["answers"][0]), str(ITEM.public["question"])  # type: ignore[index]
RANK = '<skill>\nx\n</skill>\n\n<edits>\n[{"index": 0, "op": "append", "content": "- x"}]\n</edits>'


class RankResult(BaseModel):
    order: list[int]


async def ranked(model: Model, streamed: bool) -> list[int]:
    """The order in which the optimizer puts the only edit of `RANK`."""
    agent = Agent(model, output_type=ToolOutput(RankResult, name="rank_result"))
    if not streamed:
        return (await agent.run(RANK)).output.order
    async with agent.run_stream(RANK) as run:
        return (await run.get_output()).order
