"""Plain chat completions, asked and read without an SDK: what pydantic-ai would ask, and how it would read the answer.

It knows what is particular to some models and servers, and the words of every failure. So only what is the same
everywhere is done here, and the rest is left to it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from skillopt_airflow.core.pictures import Pictures, shown
from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.types import JsonObject, Message, Status
from skillopt_airflow.core.wire_formats.openai_chat import chat_content
from skillopt_airflow.rollout.gateway_call import Answer
from skillopt_airflow.rollout.reply import Reply
from skillopt_airflow.rollout.settings import RolloutSettings

MAX_BYTES = 8 * 1024 * 1024
"""The gateway refuses a very long request before it has read it all, which a plain call cannot hear."""
_REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
"""Names of OpenAI's models that think; each takes other settings."""
_CONTROL_TOKEN = re.compile(
    r"<[|｜]|\|>|_of_turn>|\]~|\[(?:\||e~|/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])"
)
"""The beginnings and ends of what some servers would take for a chat template's tokens; pydantic-ai breaks those."""
_BROKEN_TOKEN = re.compile("[<\\[\\]][\u200b-\u200d\u2060\ufeff]")
"""What pydantic-ai would mend in an answer."""
_THINKING = re.compile("<think>.*?</think>", re.DOTALL)
_FIELDS = {"max_tokens": "max_completion_tokens", "openai_reasoning_effort": "reasoning_effort"}
"""Fields of a request whose setting has another name."""
_ENDINGS = {"stop": Status.OK, "length": Status.TRUNCATED, None: Status.OK}


def request_body(settings: RolloutSettings, messages: Sequence[Message], pictures: Pictures) -> bytes | None:
    """Return the request for the next turn of a conversation; None if it is no plain one."""
    if settings.dialect != "openai-chat" or _REASONING_MODEL.match(settings.model):
        return None
    if any(_CONTROL_TOKEN.search(message.content) for message in messages):
        return None
    roles = {"tool": "user"}
    turns = [
        {"role": roles.get(turn.role, turn.role), "content": chat_content(pieces, settings.image_detail)}
        for turn, pieces in shown(messages, pictures)
    ]
    document = {"model": settings.model, "stream": False, "messages": turns, **_sampling(settings)}
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return body if len(body) <= MAX_BYTES else None


def _sampling(settings: RolloutSettings) -> JsonObject:
    chosen = settings.sampling()
    extra = chosen.pop("extra_body", {})
    return {_FIELDS.get(name, name): value for name, value in chosen.items()} | (
        extra if isinstance(extra, dict) else {}
    )


def read_reply(answer: Answer) -> Reply | None:
    """Return what an answer says; None if it is no plain one, such as a failure or a refusal."""
    if answer.status != 200 or not answer.headers.get("content-type", "").startswith("application/json"):
        return None
    try:
        document = from_json(answer.body)
    except ValueError:
        return None
    match document:
        case {
            "id": str(),
            "object": "chat.completion",
            "created": int(),
            "model": str(),
            "choices": [{"index": int(), "message": {"role": "assistant"} as message} as choice],
            "usage": {"prompt_tokens": int(read), "completion_tokens": int(written), "total_tokens": int()},
        }:
            return _reply(message, choice, read, written)
    return None


def _reply(message: Mapping[str, Any], choice: Mapping[str, Any], read: int, written: int) -> Reply | None:
    text, ending = message.get("content"), choice.get("finish_reason")
    unusual = any(message.get(name) for name in ("refusal", "annotations", "audio", "function_call", "tool_calls"))
    if unusual or choice.get("logprobs") or not isinstance(text, str | None) or ending not in _ENDINGS:
        return None
    if min(read, written) < 0 or _BROKEN_TOKEN.search(text or ""):
        return None
    # Of a block that nobody closed only its tag is left out.
    said = _THINKING.sub("", text or "").replace("<think>", "", 1)
    return Reply(_ENDINGS[ending], text=without_thinking(said), prompt_tokens=read, completion_tokens=written)
