"""Optimizer calls within the model's limits: prompts that fit into its context, and answers that were cut off."""

from collections.abc import Callable
from typing import NamedTuple

from skillopt_airflow.core.budget import Prices
from skillopt_airflow.core.errors import AnswerCut, PromptTooLong
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Optimizer, Output
from skillopt_airflow.core.training_groups import GradientGroup
from skillopt_airflow.optimizer import prompts

MOST_CHARS = 200_000
"""About 50,000 tokens of English: an analyst's attention and its price are limits, too."""
CHARS_PER_TOKEN = 1.5
"""English has four; fewer leave room for other languages and scripts, and for the answer."""
LEAST_ROOM = 4_000
"""Characters below which a prompt isn't made shorter."""


def prompt_room(gradient: GradientGroup, prices: Prices) -> int:
    """Return the most characters of a prompt, by the optimizer's context as far as its price comes with that."""
    price = prices.get("optimizer")
    if gradient.prompt_chars is not None:
        return gradient.prompt_chars
    if price is None or price.context is None:
        return MOST_CHARS
    return min(MOST_CHARS, int(price.context * CHARS_PER_TOKEN))


class Question(NamedTuple):
    """A call whose prompt can be made shorter."""

    stage: str
    instructions: str
    prompt_in: Callable[[int], str]
    """Makes a prompt of about as many characters."""
    pictures: Pictures = NO_PICTURES
    brief: "Question | None" = None
    """The call that takes its place when its answer was cut; the same one, asked for less, when None."""

    @property
    def when_cut(self) -> "Question":
        less = self._replace(instructions=self.instructions + prompts.load("shorter"))
        return less if self.brief is None else self.brief


def ask_fitting(
    optimizer: Optimizer,
    question: Question,
    room: int,
    answer_type: type[Output],
    shorter: type[Output] | None = None,
    least: int = LEAST_ROOM,
) -> tuple[Output, bool]:
    """Ask in `room` characters, in half of them each time that the provider refuses the prompt for its length.

    An answer that is cut at the token limit is asked for once more, by the `shorter` schema if there is one.

    Returns:
        The answer, and whether it was asked for again because it was cut.

    Raises:
        PromptTooLong: the prompt is refused, and half of its room is less than `least`.
        ModelOutputError: the answer stayed outside its schema, or was cut twice.
    """
    cut = False
    while True:
        told = question.instructions
        prompt = question.prompt_in(room - len(told))
        try:
            wanted = shorter if cut and shorter is not None else answer_type
            return optimizer.ask(question.stage, told, prompt, wanted, question.pictures), cut
        except PromptTooLong:
            room = min(room, len(told) + len(prompt)) // 2
            if room < least:
                raise
        except AnswerCut:
            if cut:
                raise
            cut, question = True, question.when_cut
