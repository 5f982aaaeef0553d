"""The stand-in as optimizer: it finds some rules behind failures, and makes some harmful edits."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from local.standin.economy import HARMFUL, NUMBERS, RULES, USELESS, World, pick
from local.standin.known_items import Finder
from local.standin.stage_request import ListedEdit, SeenItem, StageRequest
from skillopt_airflow.core.errors import ModelError, SkillError
from skillopt_airflow.core.values.edits import apply_edits
from skillopt_airflow.core.values.skill import SkillDocument, before_markers
from skillopt_airflow.core.values.types import Edit, EditOp

JsonEdit = dict[str, Any]
Answer = dict[str, Any]

KINDS_LOOKED_AT = 3
REPAIR = 0.5
"""Probability that the optimizer finds the harmful sentence that broke an item."""
MAX_GUIDANCE = 4
"""Lines."""
MAX_QUOTED = 200
MISSING_ANCHOR = "## Checks before the end"


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of a world."""

    world: World
    items: Finder

    @property
    def stages(self) -> Mapping[str, Callable[[str], Answer]]:
        """Return the function from a prompt to an answer, by tool name."""
        reading: dict[str, tuple[Callable[[StageRequest], Answer], str]] = {
            "reflect_result": (self.reflect, "skill budget outcome trajectories step_buffer"),
            "reflect_skill_aware_result": (self.reflect_skill_aware, "skill budget outcome trajectories step_buffer"),
            "reflect_brief_result": (self.reflect_brief, "skill budget trajectories"),
            "reflect_rewrite_result": (self.reflect_rewrite, "skill outcome trajectories step_buffer"),
            "merge_result": (merge, "skill priority edits"),
            "rank_result": (rank, "skill edits"),
            "learning_rate_result": (learning_rate, "skill most edits step_buffer"),
            "rewrite_result": (rewrite, "skill edits"),
            "deep_reflect_result": (deep_reflect, "skill trajectories"),
            "consolidate_result": (consolidate, "skill notes most"),
            "slow_update_result": (self.slow_update, "skill guidance comparison"),
            "meta_skill_result": (meta_skill, "memory epoch_steps"),
            "meta_reflect_result": (self.meta_reflect, "skill budget epoch_steps"),
            "preflight_result": (lambda request: {"ready": True}, ""),
            "judge_result": (judge, "references answer"),
            "judge_steps_result": (judge_steps, "paths answer"),
        }

        def answering(answer: Callable[[StageRequest], Answer], tags: str) -> Callable[[str], Answer]:
            return lambda prompt: answer(StageRequest.read(prompt, tags))

        return {name: answering(*how) for name, how in reading.items()}

    def reflect(self, request: StageRequest) -> Answer:
        """Return edits for a minibatch; for successes, at most a useless one."""
        seen_items = self._known(request.trajectories)
        item_ids = list(seen_items.values())
        situation = "|".join([request.skill, request.outcome, *item_ids])
        if request.outcome == "success":
            idle = self.world.fraction(situation, "praise") < self.world.economy.slip
            return {"failure_patterns": [], "edits": [self._useless(situation)] if idle else []}
        seen = [
            *(self._addition(request.skill, rule) for rule in self._rules_seen(request.skill, item_ids, situation)),
            *self._repairs(request.skill, item_ids, situation),
        ]
        # Explanations and drafts prevent bad edits.
        careful = request.drafted or any(item.explained for item in request.trajectories)
        slips = not careful and (not seen or self.world.fraction(situation, "slip") < self.world.economy.slip)
        edits = [*seen, *([self._slip(request, situation)] if slips else [])]
        numbers = list(seen_items)
        patterns = [{"description": "A rule was missing or led astray.", "items": numbers}] if numbers else []
        return {
            "reasoning": f"{len(numbers)} items lack a rule or were led astray.",
            "edits": [one | {"items": numbers} for one in edits[: request.budget]],
            "failure_patterns": patterns,
        }

    def reflect_skill_aware(self, request: StageRequest) -> Answer:
        """Reflect, with notes on rules in the skill whose items still fail."""
        known = [rule for rule in RULES if rule in request.skill]
        known_items = self._known(request.trajectories).values()
        lapsed = [item_id for item_id in known_items if not self._rule_lacking(request.skill, item_id)]
        noted = request.outcome == "failure" and lapsed and known
        notes = [f"Keep to this rule: {pick(known, request.skill, lapsed[0])}"] if noted else []
        return self.reflect(request) | {"notes": [note for note in notes if note not in request.skill]}

    def reflect_brief(self, request: StageRequest) -> Answer:
        return {"rules": [edit["content"] for edit in self.reflect(request)["edits"]]}

    def reflect_rewrite(self, request: StageRequest) -> Answer:
        """Reflect, with the edits applied to the skill's body."""
        reflected = self.reflect(request)
        return {
            "failure_patterns": reflected["failure_patterns"],
            "body": apply_to_body(request.skill, reflected["edits"]),
            "rationale": " ".join(dict.fromkeys(str(edit["rationale"]) for edit in reflected["edits"])) or "No change.",
        }

    def slow_update(self, request: StageRequest) -> Answer:
        """Extend the previous guidance with rules for items that still fail."""
        wrong = [item for item in request.comparison if item.group in ("persistent failures", "regressed")]
        failing = list(self._known(wrong).values())
        situation = "|".join([request.skill, request.guidance, *failing])
        kept = [line for line in request.guidance.splitlines() if line.removeprefix("- ") not in HARMFUL]
        lines = [*kept, *(f"- {rule}" for rule in self._rules_seen(request.skill, failing, situation))]
        guidance = "\n".join(lines[-MAX_GUIDANCE:]) if lines else "- Read the rules in their order."
        return {"guidance": guidance, "reason": f"{len(failing)} items fail."}

    def meta_reflect(self, request: StageRequest) -> Answer:
        """Return rules of rejected candidates, which may be good without the other edits."""
        rejected = [edit for step in request.epoch_steps if step.action == "reject" for edit in step.edits]
        rules = dict.fromkeys(rule for edit in rejected for rule in RULES if rule in edit.content)
        lacking = [rule for rule in rules if rule not in request.skill]
        return {"edits": [self._addition(request.skill, rule) for rule in lacking][: request.budget]}

    def _known(self, shown: Iterable[SeenItem]) -> dict[int, str]:
        """Return the ids of known items by their numbers."""
        items = {item.number: self.items.find(item.text) for item in shown}
        return {number: known.item.id for number, known in items.items() if known is not None}

    def _rule_lacking(self, skill: str, item_id: str) -> str:
        rule = self.world.nature(item_id).rule
        return "" if rule in skill else rule

    def _rules_seen(self, skill: str, item_ids: Iterable[str], situation: str) -> list[str]:
        """Return some of the rules that the skill lacks and most failures need."""
        lacking = Counter(rule for item_id in item_ids if (rule := self._rule_lacking(skill, item_id)))
        often = [rule for rule, _ in lacking.most_common(KINDS_LOOKED_AT)]
        return [rule for rule in often if self.world.fraction(situation, rule, "insight") < self.world.economy.insight]

    def _repairs(self, skill: str, item_ids: Iterable[str], situation: str) -> list[JsonEdit]:
        """Return deletions of harmful lines."""
        blamed = dict.fromkeys(self.world.nature(item_id).harmful for item_id in item_ids)
        body = before_markers(skill).splitlines()
        lines = [f"- {sentence}" for sentence in blamed if sentence and f"- {sentence}" in body]
        found = [line for line in lines if self.world.fraction(situation, line, "repair") < REPAIR]
        return [edit("delete", line, "", "This line led astray.") for line in found]

    def _addition(self, skill: str, sentence: str) -> JsonEdit:
        """Return an edit that adds a line, after the last list item or at the end."""
        lines = [line for line in before_markers(skill).splitlines() if line.startswith("- ")]
        reason = "Items failed that this line would have helped."
        if lines and self.world.fraction(skill, sentence, "place") < 0.5:
            return edit("insert_after", lines[-1], f"- {sentence}", reason)
        return edit("append", "", f"- {sentence}", reason)

    def _slip(self, request: StageRequest, situation: str) -> JsonEdit:
        """Return an untried harmful line, or a useless one."""
        tried = [edit.content for step in request.step_buffer for edit in step.rejected_edits]
        known = "\n".join([request.skill, request.meta_skill, *tried])
        free = [sentence for sentence in HARMFUL if sentence not in known]
        if free and self.world.fraction(situation, "misled") < self.world.economy.misled:
            return self._addition(request.skill, pick(free, str(self.world.seed), situation))
        return self._useless(situation)

    def _useless(self, situation: str) -> JsonEdit:
        number = int(self.world.fraction(situation, "number") * NUMBERS)
        op, anchor = ("insert_after", MISSING_ANCHOR) if number % 4 == 0 else ("append", "")
        return edit(op, anchor, f"- {USELESS.format(number=number)}", "It can do no harm.")


def edit(op: str, anchor: str, content: str, rationale: str) -> JsonEdit:
    return {"op": op, "anchor": anchor, "content": content, "rationale": rationale}


def merge(request: StageRequest) -> Answer:
    """Merge edits with the same text, in order of first mention; with priority, failures come first."""
    groups: defaultdict[tuple[str, str], list[ListedEdit]] = defaultdict(list)
    for listed in _by_priority(request):
        key = ("delete", listed.anchor) if listed.op == "delete" else ("", listed.content)
        groups[key].append(listed)
    return {"reasoning": "By equal words.", "edits": [_merged(group) for group in groups.values()]}


def rank(request: StageRequest) -> Answer:
    """Return all indices by support."""
    best = sorted(request.edits, key=lambda listed: (-listed.support_count, listed.index))
    return {"reasoning": "By support.", "order": [listed.index for listed in best]}


def learning_rate(request: StageRequest) -> Answer:
    """Return the number of edits with several minibatches, from 1 to `most`; 1 after a rejection."""
    agreed = sum(listed.support_count > 1 for listed in request.edits)
    reason = f"{agreed} of {len(request.edits)} edits were proposed by more than one minibatch."
    if request.step_buffer and request.step_buffer[-1].rejected_edits:
        return {"learning_rate": 1, "reason": f"{reason} The last step was rejected, so this one is small."}
    rate = max(agreed, 1) if request.most is None else min(max(agreed, 1), request.most)
    return {"learning_rate": rate, "reason": reason}


def rewrite(request: StageRequest) -> Answer:
    return {"body": apply_to_body(request.skill, (listed.model_dump() for listed in request.edits))}


def apply_to_body(skill: str, edits: Iterable[Mapping[str, Any]]) -> str:
    """Return the body after the edits; ignore edits that don't apply and rewrites."""
    usable = [one for one in edits if one["op"] in get_args(EditOp)]
    wanted = [Edit(op=one["op"], anchor=one["anchor"], content=one["content"]) for one in usable]
    try:
        document, _ = apply_edits(SkillDocument(before_markers(skill)), wanted)
    except SkillError as error:
        raise ModelError(f"The request's <skill> section cannot be read: {error}") from error
    return document.text.rstrip("\n") + "\n"


def deep_reflect(request: StageRequest) -> Answer:
    numbers = dict.fromkeys(item.number for item in request.trajectories)
    question = "Which rule of the skill did you follow to this answer?"
    return {"questions": [{"item": number, "question": question} for number in numbers]}


def consolidate(request: StageRequest) -> Answer:
    """Merge notes with the same rule or words; above `most`, merge the last ones too."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, note in enumerate(request.notes):
        if note.strip():
            groups[next((rule for rule in RULES if rule in note), " ".join(note.split()))].append(index)
    united = [(request.notes[sources[0]], sources) for sources in groups.values()]
    if request.most is not None and len(united) > request.most:
        first, rest = united[: max(request.most - 1, 0)], united[max(request.most - 1, 0) :]
        shared = " ".join(note.strip() for note, _ in rest)
        united = [*first, (shared, sorted(index for _, sources in rest for index in sources))]
    notes = [{"text": " ".join(note.split()), "sources": sources} for note, sources in united]
    return {"notes": notes[: request.most]}


def meta_skill(request: StageRequest) -> Answer:
    """Return the verdicts of the epoch and the rejected sentences."""
    verdicts = [f"- {step.step}: {step.action}" for step in request.epoch_steps]
    rejected = [edit for step in request.epoch_steps if step.action == "reject" for edit in step.edits]
    harm = dict.fromkeys(sentence for edit in rejected for sentence in HARMFUL if sentence in edit.content)
    return {"memory": "\n".join(["Verdicts:", *verdicts, *(f"- rejected with others: {line}" for line in harm)])}


def _by_priority(request: StageRequest, *, supported: bool = False) -> list[ListedEdit]:
    edits = sorted(request.edits, key=lambda listed: -listed.support_count) if supported else list(request.edits)
    if request.priority == "failure-over-success":
        edits.sort(key=lambda listed: listed.source_type != "failure")
    return edits


def _merged(group: list[ListedEdit]) -> dict[str, Any]:
    best = max(group, key=lambda listed: listed.support_count)
    sources = sorted(listed.index for listed in group)
    return edit(best.op, best.anchor, best.content, best.rationale) | {"sources": sources}


def judge(request: StageRequest) -> Answer:
    """Grade an answer by its words, ignoring punctuation."""
    answer = request.answer.strip()
    if not answer:
        return {"grade": "not_attempted", "quote": "", "reason": "There is no answer."}
    agrees = next((one for one in request.references if _words(one) and _words(one) == _words(answer)), None)
    if agrees is None:
        return {"grade": "incorrect", "quote": answer[:MAX_QUOTED], "reason": "It names something else."}
    return {"grade": "correct", "quote": answer[:MAX_QUOTED], "reason": f"It says what {agrees!r} says."}


def judge_steps(request: StageRequest) -> Answer:
    """Return the steps whose words are all in the answer."""
    paths, answer = request.paths, request.answer.strip()
    words = set(_words(answer))
    places = [(number, place) for number, path in enumerate(paths) for place in range(len(path))]
    taken = [(number, place) for number, place in places if words.issuperset(_words(paths[number][place]))]
    return {"taken": [{"path": path, "step": step, "quote": answer[:MAX_QUOTED]} for path, step in taken]}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
