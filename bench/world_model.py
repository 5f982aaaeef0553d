"""A world of exactly known rules: what each item needs of a skill, what the target answers, what the optimizer writes.

An item is told by its id alone. Some need one rule, whose sentence the skill has or lacks; the first rules have larger
shares of the items than the last. Of the others some are right as long as no misleading sentence stands in the skill,
some are a matter of chance, and some are never right. The optimizer sees the rule behind a failure now and then, and
otherwise proposes sentences that mislead or do nothing, so that a training accepts and rejects. Every answer is a pure
function of the seed and the request.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from local.standin.chance import fraction, pick
from local.standin.conversation import Call, Conversation, Reply
from local.standin.deciding import STAGE_MARK
from local.standin.deciding import STAGES as STAND_IN
from local.standin.proposing import JsonEdit, body_of, edit
from local.standin.stage_request import StageRequest
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import JsonObject, Split

KINDS = (
    *("amber", "basalt", "cedar", "dune", "ember", "fjord", "garnet", "heather", "indigo", "jasper", "kelp", "larch"),
    *("maple", "nectar", "onyx", "pewter", "quartz", "russet", "slate", "topaz", "umber", "velvet", "willow", "zinc"),
)
RULES = tuple(f"A case of {kind} bears its mark on the {kind} side." for kind in KINDS)
"""The sentence that the items of each kind need."""
PLACES = ("harbour", "valley", "island", "tower", "market", "orchard")
MISLEADING = tuple(f"A case from the {place} bears no mark." for place in PLACES)
"""Sentences that spoil the items of a place, which are right without any rule."""
USELESS = "A case of day {day} is a case like any other."
"""A sentence that does nothing, one for each of many days."""
DAYS = 10_000

RIGHT_BY_CHANCE = 0.5
KINDS_LOOKED_AT = 3
REPAIR = 0.5
"""How often the optimizer finds the sentence that misled the target."""
MOST_GUIDANCE = 4

WRONG = "unknown"
CONTEXT_DOCUMENTS, DOCUMENT_WORDS = 10, 80
_CASE = re.compile(r"Question: Case (\S+):")


@dataclass(frozen=True)
class Economy:
    """The rules that there are to learn, and how well the optimizer finds them."""

    name: str
    description: str
    """A sentence for the note of a table."""
    rules: int
    """How many of RULES some items need."""
    needs_rule: float
    needs_nothing: float
    chance: float
    """Shares of the items; the rest is never right."""
    insight: float
    """How often the optimizer sees the rule behind the failures of a kind, for each of the kinds that it looks at."""
    slip: float
    """How often a reflection that saw something also proposes a sentence that misleads or does nothing; one that saw
    nothing always does."""
    misled: float
    """The share of these that mislead."""


MANY_EDITS = Economy(
    name="many edits",
    description="Much is to be learnt in small steps, and about a third of the candidates is accepted.",
    rules=len(RULES),
    needs_rule=0.55,
    needs_nothing=0.20,
    chance=0.12,
    insight=0.2,
    slip=0.5,
    misled=0.45,
)
FEW_EDITS = Economy(
    name="few edits",
    description="What is to be learnt is chosen after the SkillOpt paper, where a training accepts 1 to 4 edits "
    "(Section 4.4, Table 6) and the test score of SearchQA rises from 0.777 to 0.873 (Table 1).",
    rules=4,
    needs_rule=0.14,
    needs_nothing=0.757,
    chance=0.04,
    insight=0.08,
    slip=0.3,
    misled=0.9,
)


@dataclass(frozen=True)
class Nature:
    """The conditions under which an item is answered right."""

    rule: str = ""
    """A sentence that the skill must have."""
    misleading: str = ""
    """A sentence that it must not have."""
    chance: float = 1.0
    """How often it is right where the skill is as it must be."""


@dataclass(frozen=True)
class World:
    """The world of a seed."""

    seed: int = 42
    noise: float = 0.0
    """How often the target misses what it would get right, each time on its own."""
    economy: Economy = MANY_EDITS

    def nature(self, item_id: str) -> Nature:
        """Return what an item is like."""
        draw, shares = self._fraction(item_id, "nature"), self.economy
        if draw < shares.needs_rule:
            return Nature(rule=_weighted(draw / shares.needs_rule, RULES[: shares.rules]))
        if draw < shares.needs_rule + shares.needs_nothing:
            return Nature(misleading=pick(MISLEADING, str(self.seed), item_id, "place"))
        by_chance = draw < shares.needs_rule + shares.needs_nothing + shares.chance
        return Nature(chance=RIGHT_BY_CHANCE if by_chance else 0.0)

    def right(self, item_id: str, skill: str, draw: int) -> bool:
        """Return whether the target is right on an item when it is asked for the nth time under a skill."""
        return self._fraction(item_id, skill, str(draw), "answer") < self.chance(item_id, skill)

    def chance(self, item_id: str, skill: str) -> float:
        """Return how often the target is right on an item under a skill."""
        nature = self.nature(item_id)
        if nature.rule not in skill or (nature.misleading and nature.misleading in skill):
            return 0.0
        return nature.chance * (1 - self.noise)

    def record(self, item_id: str) -> JsonObject:
        """Return an item as a SearchQA record of that benchmark's length."""
        words = Random(f"{self.seed} {item_id}")  # noqa: S311
        documents = [" ".join(words.choices(KINDS + PLACES, k=DOCUMENT_WORDS)) for _ in range(CONTEXT_DOCUMENTS)]
        return {
            "id": item_id,
            "question": f"Case {item_id}: which mark does it bear?",
            "context": " ".join(f"[DOC] {document}" for document in documents),
            "answers": [self.mark(item_id)],
        }

    def write_items(self, folder: Path, counts: Mapping[Split, int]) -> None:
        """Write a folder with so many items in each split."""
        for split, count in counts.items():
            path = folder / split / "items.json"
            path.parent.mkdir(parents=True)
            records = [self.record(f"{split}-{index}") for index in range(count)]
            path.write_text(json.dumps(records), encoding="utf-8")

    def mark(self, item_id: str) -> str:
        """Return the answer to an item."""
        return f"mark {int(self._fraction(item_id, 'mark') * 10**6)}"

    def reply(self, conversation: Conversation, draw: int) -> Reply:
        """Return the next turn: as optimizer if the client offers the tool of a stage, else as target.

        Raises:
            ModelError: the stage is none that this world's optimizer answers.
        """
        asked = next((name for name in conversation.tools if name.endswith(STAGE_MARK)), None)
        if asked is None:
            return Reply(f"<answer>{self._answer(conversation, draw)}</answer>")
        if asked not in self._stages:
            raise ModelError(f"tools: the world knows {', '.join(self._stages)}; got {asked}")
        return Reply(calls=(Call(asked, json.dumps(self._stages[asked](conversation.user_text))),))

    def reflect(self, request: StageRequest) -> dict[str, Any]:
        """Return edits for a minibatch of failures; after successes there is nothing to change."""
        if request.outcome == "success":
            return {"failure_patterns": [], "edits": []}
        item_ids = [trajectory.item_id for trajectory in request.trajectories]
        situation = "|".join([request.skill, *item_ids])
        seen = [
            *(_addition(rule) for rule in self._rules_seen(request.skill, item_ids, situation)),
            *self._repairs(request.skill, item_ids, situation),
        ]
        slips = not seen or self._fraction(situation, "slip") < self.economy.slip
        edits = [*seen, *([self._slip(request.skill, situation)] if slips else [])]
        pattern = {"description": "Cases whose mark was not found.", "item_ids": item_ids}
        return {"failure_patterns": [pattern], "edits": edits[: request.budget]}

    def slow_update(self, request: StageRequest) -> dict[str, Any]:
        """Return the former guidance with the rules that it sees behind what still fails."""
        failing = [item.item_id for item in request.comparison.failing]
        seen = self._rules_seen(request.skill, failing, "|".join([request.skill, request.guidance, *failing]))
        lines = [*request.guidance.splitlines(), *(f"- {rule}" for rule in seen)]
        guidance = "\n".join(lines[-MOST_GUIDANCE:]) if lines else "- Look at a case before its mark is told."
        return {"guidance": guidance, "reason": f"{len(failing)} items fail."}

    @staticmethod
    def meta_skill(request: StageRequest) -> dict[str, Any]:
        """Return the verdicts of the epoch."""
        return {"memory": "\n".join(["Verdicts:", *(f"- {step.step}: {step.action}" for step in request.epoch_steps)])}

    @property
    def _stages(self) -> Mapping[str, Callable[[str], dict[str, Any]]]:
        """Return the stages of the default settings; what needs no knowledge of the items is the stand-in's own."""
        own: dict[str, tuple[Callable[[StageRequest], dict[str, Any]], str]] = {
            "reflect_result": (self.reflect, "skill budget outcome trajectories step_buffer"),
            "slow_update_result": (self.slow_update, "skill guidance comparison"),
            "meta_skill_result": (self.meta_skill, "memory comparison epoch_steps"),
        }
        return {name: STAND_IN[name] for name in ("merge_result", "rank_result", "preflight_result")} | {
            name: lambda prompt, answer=answer, tags=tags: answer(StageRequest.read(prompt, tags))
            for name, (answer, tags) in own.items()
        }

    def _answer(self, conversation: Conversation, draw: int) -> str:
        case = _CASE.search(conversation.user_text)
        found = case is not None and self.right(case[1], conversation.system, draw)
        return self.mark(case[1]) if case is not None and found else WRONG

    def _rules_seen(self, skill: str, item_ids: Iterable[str], situation: str) -> list[str]:
        """Return rules that the skill lacks, of the kinds that fail most; some are overlooked."""
        lacking = Counter(rule for item_id in item_ids if (rule := self.nature(item_id).rule) and rule not in skill)
        often = [rule for rule, _ in lacking.most_common(KINDS_LOOKED_AT)]
        return [rule for rule in often if self._fraction(situation, rule, "insight") < self.economy.insight]

    def _repairs(self, skill: str, item_ids: Iterable[str], situation: str) -> list[JsonEdit]:
        """Return deletions of misleading sentences that spoilt an item."""
        blamed = dict.fromkeys(self.nature(item_id).misleading for item_id in item_ids)
        lines = [f"- {sentence}" for sentence in blamed if sentence and f"- {sentence}" in body_of(skill).splitlines()]
        found = [line for line in lines if self._fraction(situation, line, "repair") < REPAIR]
        return [edit("delete", line, "", "This led astray.") for line in found]

    def _slip(self, skill: str, situation: str) -> JsonEdit:
        free = [sentence for sentence in MISLEADING if sentence not in skill]
        if free and self._fraction(situation, "misled") < self.economy.misled:
            return _addition(pick(free, str(self.seed), situation))
        return _addition(USELESS.format(day=int(self._fraction(situation, "day") * DAYS)))

    def _fraction(self, *parts: str) -> float:
        return fraction(str(self.seed), *parts)


def _weighted(share: float, rules: Sequence[str]) -> str:
    """Return the rule at a place in [0, 1) of the rules laid end to end."""
    weights = [1 / (place + 2) for place in range(len(rules))]
    left = share * sum(weights)
    for rule, weight in zip(rules, weights, strict=True):
        left -= weight
        if left < 0:
            return rule
    return rules[-1]


def _addition(sentence: str) -> JsonEdit:
    return edit("append", "", f"- {sentence}", "Cases like these failed.")
