"""Plain responses of OpenAI's API: what pydantic-ai would ask of any server, and how it would read the answer."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from skillopt_airflow.core.pictures import Picture
from skillopt_airflow.core.types import JsonObject, Status
from skillopt_airflow.rollout.plain_completions import REASONING_MODEL
from skillopt_airflow.rollout.reply import Reply, Turn
from skillopt_airflow.rollout.settings import RolloutSettings

_ENDINGS = {("completed", None): Status.OK, ("incomplete", "max_output_tokens"): Status.TRUNCATED}
"""By the status of a response, and the reason why it is incomplete."""


class PlainResponses:
    """Responses."""

    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        """Return the request; None for a model whose settings differ, and where there are pictures."""
        pictures = any(isinstance(part, Picture) for turn in turns for part in turn.parts)
        if pictures or REASONING_MODEL.match(settings.model):
            return None
        said: list[JsonValue] = [{"role": turn.role, "content": "".join(map(str, turn.parts))} for turn in turns]
        sampling = settings.sampling()
        limit, effort = sampling.pop("max_tokens"), sampling.pop("openai_reasoning_effort", None)
        thinking: JsonObject = {} if effort is None else {"reasoning": {"effort": effort}}
        return {
            "model": settings.model,
            "stream": False,
            "input": said,
            "max_output_tokens": limit,
            **thinking,
            **sampling,
        }

    def reply(self, document: Any) -> Reply | None:
        """Return what a response of messages, and perhaps thoughts, says; None for anything else."""
        match document:
            case {
                "id": str(),
                "object": "response",
                "created_at": int(),
                "model": str(),
                "status": str(status),
                "output": [*outputs],
                "usage": {"input_tokens": int(read), "output_tokens": int(written), "total_tokens": int()},
            } if not document.get("error"):
                ending = _ENDINGS.get((status, (document.get("incomplete_details") or {}).get("reason")))
                texts = [_text(output) for output in outputs]
                if ending is not None and None not in texts:
                    said = "".join(text for text in texts if text)
                    return Reply(ending, text=said, prompt_tokens=read, completion_tokens=written)
        return None


def _text(output: Any) -> str | None:
    """Return what an output says, which is nothing for a thought; None for one of another kind."""
    match output:
        case {"type": "reasoning"}:
            return ""
        case {"type": "message", "role": "assistant", "content": [*blocks]} if all(map(_is_text, blocks)):
            return "".join(block["text"] for block in blocks)
    return None


def _is_text(block: Any) -> bool:
    match block:
        case {"type": "output_text", "text": str(), "annotations": []}:
            return not block.get("logprobs")
    return False
