"""The stand-in on both sides of a deep reflection: what the optimizer asks about a trajectory, what the target says."""

import re
from typing import Any

from local.standin.chance import pick
from local.standin.directives import recognise
from local.standin.exercise import Exercise
from local.standin.stage_request import SeenTrajectory, StageRequest
from local.standin.words import key

_ABOUT_DOCUMENTS = (
    "Which words of the documents made you choose this answer?",
    "Which document does this answer come from, and what does it say there?",
    "Which rules of the skill did you follow on the way to this answer?",
)
_ABOUT_OTHERS = (
    "Which words made you choose this answer?",
    "Which rules of the skill did you follow on the way to this answer?",
)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


def deep_reflect(request: StageRequest) -> dict[str, Any]:
    """Return one question an item."""
    asked = {trajectory.item_id: _question(request.skill, trajectory) for trajectory in request.trajectories}
    return {"questions": [{"item_id": identity, "question": question} for identity, question in asked.items()]}


def explain(skill: str, prompt: str, given: str) -> str:
    """Return what the target says when it is asked about the answer that it has given to a prompt; never empty."""
    tagged = _ANSWER.findall(given)
    answer = " ".join((tagged[-1] if tagged else given).split())
    rules = ", ".join(sorted(recognise(skill)))
    followed = f"Directives that I followed: {rules if rules else 'none'}."
    if not answer:
        return f"I found nothing to answer with. {followed}"
    return f'I answered "{answer}"{_where(prompt, answer)}. {followed}'


def _question(skill: str, trajectory: SeenTrajectory) -> str:
    wordings = _ABOUT_DOCUMENTS if "<documents>" in trajectory.prompt else _ABOUT_OTHERS
    return pick(wordings, skill, trajectory.item_id)


def _where(prompt: str, answer: str) -> str:
    wanted = key(answer)
    if "<documents>" not in prompt or not wanted:
        return ""
    sentences = (" ".join(sentence.split()) for _, _, sentence in Exercise.of_prompt(prompt).sentences())
    sentence = next((sentence for sentence in sentences if wanted in key(sentence)), None)
    return f' because of "{sentence}"' if sentence is not None else ""
