"""Conversations in which the user and the assistant take turns."""

from collections.abc import Sequence

from skillopt_airflow.core.types import Message

_OF_THE_USER = ("user", "tool")


def taking_turns(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, those of the user that follow each other as one, with a blank line between their texts.

    They do after an empty reply, and the chat templates of Mistral, Gemma 3 and Llama 2 refuse it.
    """
    turns: list[Message] = []
    for message in messages:
        if turns and message.role in _OF_THE_USER and turns[-1].role in _OF_THE_USER:
            texts = (turns[-1].content, message.content)
            turns[-1] = turns[-1].model_copy(update={"content": "\n\n".join(text for text in texts if text)})
        else:
            turns.append(message)
    return turns
