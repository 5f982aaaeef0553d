"""A world of SearchQA-like items for trainings of the paper's size, with ids in the questions."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from local.standin.economy import Economy, World, fraction
from local.standin.known_items import KnownItem
from local.standin.stand_in import StandIn
from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import JsonObject, Split


@dataclass(frozen=True)
class BenchEconomy(Economy):
    """An economy with a name for tables."""

    name: str = ""
    description: str = ""
    """Sentence for the note of a table."""


MANY_EDITS = BenchEconomy(
    rules=24,
    needs_rule=0.55,
    needs_nothing=0.20,
    chance=0.12,
    insight=0.2,
    slip=0.5,
    misled=0.45,
    name="many edits",
    description="Much is to be learned in small steps, and about a third of the candidates is accepted.",
)
FEW_EDITS = BenchEconomy(
    rules=4,
    needs_rule=0.14,
    needs_nothing=0.757,
    chance=0.04,
    insight=0.08,
    slip=0.3,
    misled=0.9,
    name="few edits",
    description="What is to be learned is chosen after the SkillOpt paper, where a training accepts 1 to 4 edits "
    "(Section 4.4, Table 6) and the test score of SearchQA rises from 0.777 to 0.873 (Table 1).",
)
WORDS = ("amber", "basalt", "cedar", "dune", "ember", "fjord", "garnet", "heather", "indigo", "jasper", "kelp", "larch")
CONTEXT_DOCUMENTS, DOCUMENT_WORDS = 10, 80
_CASE = re.compile(r"Question: Case (\S+):")


class Cases:
    """The items of a seed, found by the id in the question."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._benchmark = benchmarks.load("searchqa")
        self._known = lru_cache(maxsize=5_000)(self._case)

    def find(self, text: str, pictures: Sequence[bytes] = ()) -> KnownItem | None:
        case = _CASE.search(text)
        return None if case is None else self._known(case[1])

    def _case(self, item_id: str) -> KnownItem:
        item = self._benchmark.item(record(item_id, self._seed))
        return KnownItem(self._benchmark, item, lambda files: {})


def stand_in(world: World) -> StandIn:
    """Return the target and the optimizer of a world."""
    return StandIn(world, Cases(world.seed))


def record(item_id: str, seed: int) -> JsonObject:
    """Return a SearchQA record of typical length."""
    words = Random(f"{seed} {item_id}")  # noqa: S311
    documents = [" ".join(words.choices(WORDS, k=DOCUMENT_WORDS)) for _ in range(CONTEXT_DOCUMENTS)]
    return {
        "id": item_id,
        "question": f"Case {item_id}: which mark does it bear?",
        "context": " ".join(f"[DOC] {document}" for document in documents),
        "answers": [f"mark {int(fraction(str(seed), item_id, 'mark') * 10**6)}"],
    }


def write_items(folder: Path, counts: Mapping[Split, int], seed: int = World.seed) -> None:
    """Write splits with `counts` items."""
    for split, count in counts.items():
        path = folder / split / "items.json"
        path.parent.mkdir(parents=True)
        records = [record(f"{split}-{index}", seed) for index in range(count)]
        path.write_text(json.dumps(records), encoding="utf-8")
