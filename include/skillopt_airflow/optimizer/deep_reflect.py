"""Deep reflect: before reflection, the optimizer asks the target about some of its trajectories."""

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from skillopt_airflow.core.errors import ModelError, ModelOutputError
from skillopt_airflow.core.values.model_protocols import Optimizer, Target
from skillopt_airflow.core.values.pictures import Pictures
from skillopt_airflow.core.values.types import Message, Rollout, SourceType
from skillopt_airflow.optimizer.answers import (
    MAX_MEMORY_CHARS,
    MAX_SENTENCES_CHARS,
    ModelAnswer,
    fallback_text,
    flaw_of,
)
from skillopt_airflow.optimizer.reflect import by_outcome
from skillopt_airflow.optimizer.sections import Question, ask_fitting, load_prompt, prompt_of, section
from skillopt_airflow.optimizer.transcripts import FollowUp, ItemNumber, item_ids_of, numbers_of, trajectories_section


class ProposedQuestion(ModelAnswer):
    """A question as a model writes it."""

    item: ItemNumber
    question: str


class QuestionsAnswer(ModelAnswer):
    """The answer of a deep_reflect call."""

    questions: list[ProposedQuestion]


def probes(rollouts: Sequence[Rollout], failures: int, successes: int, seed: str) -> tuple[str, ...]:
    """Choose numbers of failed and of successful items of a step, by seed and independent of the rollouts' order."""
    most: dict[SourceType, int] = {"failure": failures, "success": successes}
    chosen: list[str] = []
    for source_type, items in by_outcome(rollouts).items():
        item_ids = [samples[0].trajectory.item_id for samples in items]
        chance = random.Random(f"{seed}-probe-{source_type}")  # noqa: S311 - a choice, not a secret
        chosen += chance.sample(item_ids, min(most[source_type], len(item_ids)))
    return tuple(chosen)


def questions(optimizer: Optimizer, skill: str, rollouts: Sequence[Rollout], room: int) -> tuple[dict[str, str], str]:
    """Ask the optimizer for at most one question per item, in a call of at most `room` characters.

    Returns the questions by item id, and a fallback with the flaws of the answer, which may be empty.
    """
    if not rollouts:
        return {}, ""
    first, numbers = section("skill", skill), numbers_of(rollouts)
    question = Question(
        "deep_reflect",
        load_prompt("deep_reflect"),
        lambda most: prompt_of(first, trajectories_section(rollouts, most - len(first))),
    )
    try:
        answer, _ = ask_fitting(optimizer, question, room, QuestionsAnswer)
    except ModelOutputError as error:
        return {}, fallback_text("deep_reflect", [str(error)])
    by_item: dict[str, str] = {}
    flaws: list[str] = []
    for proposed in answer.questions:
        item_ids, flaw = item_ids_of(numbers, [proposed.item]), flaw_of(proposed.question, MAX_SENTENCES_CHARS)
        if not item_ids:
            flaws.append(f"a question about an unknown item {proposed.item}")
        elif flaw:
            flaws.append(f"the question about item {proposed.item} {flaw}")
        else:
            by_item.setdefault(item_ids[0], proposed.question.strip())
    return by_item, fallback_text("deep_reflect", flaws)


def follow_ups(
    target: Target, rollouts: Sequence[Rollout], asked: Mapping[str, str], pictures: Mapping[str, Pictures]
) -> tuple[dict[str, FollowUp], str]:
    """Ask the target all questions at the same time; `rollouts` may include other items.

    Returns the useful answers by item id, and a fallback that lists the other questions, which may be empty.
    """

    def answer(rollout: Rollout) -> tuple[str, str]:
        """Return the answer, and the reason to reject it, which may be empty."""
        trajectory = rollout.trajectory
        messages = [*trajectory.messages, Message(role="user", content=asked[trajectory.item_id])]
        try:
            text = target.ask("follow_up", messages, pictures.get(trajectory.item_id, {}))
        except ModelError as error:
            return "", str(error)
        flaw = flaw_of(text, MAX_MEMORY_CHARS)
        return text, f"the answer {flaw}" if flaw else ""

    chosen = {rollout.trajectory.item_id: rollout for rollout in rollouts if rollout.trajectory.item_id in asked}
    with ThreadPoolExecutor(max(1, len(chosen))) as pool:
        answers = dict(zip(chosen, pool.map(answer, chosen.values()), strict=True))
    flaws = [f"{item_id}: {flaw}" for item_id, (_, flaw) in answers.items() if flaw]
    by_item = {
        item_id: FollowUp(question=asked[item_id], answer=text) for item_id, (text, flaw) in answers.items() if not flaw
    }
    return by_item, fallback_text("follow_up", flaws)
