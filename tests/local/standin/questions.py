"""A question to the target and one to the optimizer, for clients of every wire format."""

from pydantic import BaseModel
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.models import Model

from benchmarks.searchqa.adapter import BENCHMARK

CONTEXT = "[DOC] [TLE] Strelsau [PAR] Strelsau is the capital of Ruritania. [DOC] [TLE] Map [PAR] Ruritania, Strelsau"
SYSTEM, USER = BENCHMARK.messages(
    {"question": "Ruritania has this capital", "context": CONTEXT}, "- Leave out words of the question."
)
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
