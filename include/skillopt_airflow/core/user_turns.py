"""Conversations in which the user and the assistant take turns."""

from collections.abc import Sequence
from typing import Literal

from skillopt_airflow.core.types import Message


def side(message: Message) -> Literal["system", "user", "assistant"]:
    """Return who says a message; results of tools are the user's."""
    if message.role == "tool":
        return "user"
    return "assistant" if message.role == "call" else message.role


def taking_turns(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as those of the system, the user and the assistant, with neighbors of one side as one.

    A blank line separates their texts. The chat templates of Mistral, Gemma 3 and Llama 2 refuse two turns of the user
    in a row, which follow an empty reply.
    """
    turns: list[Message] = []
    for message in messages:
        role = side(message)
        if turns and role == turns[-1].role != "system":
            texts = (turns[-1].content, message.content)
            turns[-1] = turns[-1].model_copy(update={"content": "\n\n".join(text for text in texts if text)})
        else:
            turns.append(message.model_copy(update={"role": role}))
    return turns
