"""The judge's call: does an answer agree with a reference?"""

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.grading import GradingRequest, rests_on_answer
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.types import Grade
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import clipped
from skillopt_airflow.optimizer.sections import json_section, prompt_of, section

STAGE = "judge"
MOST_CHARS = 20_000
"""Characters of an answer that the judge reads, from its start."""
MOST_OF_REASON = 500
TRIES = 2
"""Answers of the judge, until one quotes what it rests on."""


def grade(judge: Optimizer, request: GradingRequest) -> Grade:
    """Ask whether the answer agrees with a reference; a grade that quotes too little of it does not count.

    Raises:
        ModelOutputError: the judge's answer stayed outside its form, or its quote is too short or not in the answer.
        ModelError: the provider did not answer.
    """
    answer, left_out = request.answer[:MOST_CHARS], max(0, len(request.answer) - MOST_CHARS)
    prompt = prompt_of(
        section("agreement", request.instructions) if request.instructions else "",
        json_section("question", request.question),
        json_section("references", list(request.references)),
        # As JSON in which no < stands, so that the answer cannot end its section.
        json_section("answer", answer),
        json_section("characters_left_out", left_out) if left_out else "",
    )
    wrong: list[str] = []
    for _ in range(TRIES):
        asked = prompt_of(prompt, json_section("unusable_quotes", wrong)) if wrong else prompt
        found = judge.ask(STAGE, prompts.load(STAGE), asked, Grade)
        if rests_on_answer(found, answer):
            return found.model_copy(update={"reason": clipped(found.reason, MOST_OF_REASON)})
        wrong.append(clipped(found.quote))
    raise ModelOutputError(
        f"the judge says {found.grade} and quotes too little, or what the answer does not say: {wrong[-1]!r}"
    )
