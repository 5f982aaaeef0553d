"""The target behind the gateway, as the chat harness asks it."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING

from skillopt_airflow.core.pictures import Pictures
from skillopt_airflow.core.types import Message
from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.rollout.gateway_call import Answer, posted
from skillopt_airflow.rollout.plain_chat import read_reply, request_body
from skillopt_airflow.rollout.reply import Reply
from skillopt_airflow.rollout.settings import RolloutSettings

if TYPE_CHECKING:
    from skillopt_airflow.rollout.replies import TargetModel


class ChatTarget:
    """Asks plainly where that is enough, else through pydantic-ai.

    Its import and its first answer cost a container more than a second of a processor, a plain call milliseconds. So
    it is imported where a request is none that every server takes alike, or an answer is none: it says then what
    came, in its own words.
    """

    def __init__(self, settings: RolloutSettings, gateway: str) -> None:
        self._settings = settings
        self._gateway = gateway
        self._path = f"/v1/{WIRE_FORMATS[settings.dialect].path}"

    async def ask(self, messages: Sequence[Message], pictures: Pictures) -> Reply:
        """Return the next turn of a conversation, or the reason why there is none."""
        body = request_body(self._settings, messages, pictures)
        if body is None:
            return await self._model.ask(messages, pictures)
        try:
            answer = await posted(self._gateway, self._path, body, self._settings.patience)
        except OSError as error:
            return await self._explained(messages, error)
        return read_reply(self._settings.dialect, answer) or await self._explained(messages, answer)

    async def aclose(self) -> None:
        """Close the connections."""
        if "_model" in vars(self):
            await self._model.aclose()

    async def _explained(self, messages: Sequence[Message], came: Answer | OSError) -> Reply:
        """Return what pydantic-ai makes of an answer, or of its absence, as if it had asked itself."""
        from skillopt_airflow.rollout.replies import Replayed, TargetModel

        async with aclosing(TargetModel(self._settings, self._gateway, Replayed(came))) as model:
            return await model.ask(messages, {})

    @cached_property
    def _model(self) -> "TargetModel":
        from skillopt_airflow.rollout.replies import TargetModel

        return TargetModel(self._settings, self._gateway)
