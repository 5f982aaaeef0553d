"""A question to the target and one to the optimizer, for clients of every wire format."""

import json

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
