"""The optimizer model: structured answers through pydantic-ai, with retries and a usage row for each request."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, ModelRetry, PromptedOutput, ToolOutput
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ToolCallPart, UserContent
from pydantic_ai.models import Model
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from skillopt_airflow.core.budget import Role
from skillopt_airflow.core.errors import (
    AnswerCut,
    ModelError,
    ModelOutputError,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
)
from skillopt_airflow.core.http_failures import may_pass
from skillopt_airflow.core.pictures import NO_PICTURES, Picture, Pictures
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.provider_statuses import SENTENCES, error_status
from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.scoring.json_answer import json_values, parsed
from skillopt_airflow.core.storable import clean_parts, storable, storable_json
from skillopt_airflow.core.types import JsonObject, ModelCall, Status
from skillopt_airflow.models.metering import MeteredModel

MOST_WRAPPERS = 6
"""Objects, lists and strings of JSON around an answer."""
_BAD_SAMPLE = re.compile(
    r"^400 .*(?:failed_generation|tool_use_failed|(?:json_validate|output_parse)_failed)", re.DOTALL
)
"""Groq's words for an answer that it couldn't read itself; the same request may succeed."""


def lenient(kind: type[BaseModel], tool: str | None) -> Hooks[None]:
    """Return the hooks by which an agent reads an answer of this kind, or asks again.

    A model may write a call of the output tool down instead of making it; `tool` is its name, or None without tools.
    """

    async def read(ctx: Any, *, output_context: Any, output: str | JsonObject) -> str | JsonObject:
        found = answer_in(output, kind)
        if found is None and not _required(kind):
            # Otherwise an answer under unknown keys would count as an empty one.
            raise ModelRetry(f"Answer with one JSON object that has these keys: {', '.join(kind.model_fields)}.")
        return output if found is None else found

    async def called(ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        clean_parts(response.parts)
        written = response.tool_calls[0].args if response.tool_calls else response.text
        found = None if written is None else answer_in(written, kind)
        if found is None and response.finish_reason == "length":
            raise AnswerCut(
                f"the answer was cut at the token limit, after {response.usage.output_tokens} tokens; "
                "raise model.optimizer_max_tokens"
            )
        if tool is not None and not response.tool_calls and found is not None:
            response.parts = [ToolCallPart(tool, found)]
        return response

    async def failed(ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        if not isinstance(error, ModelHTTPError) or not _BAD_SAMPLE.search(f"{error.status_code} {error}"):
            raise error
        inner = error.body.get("error", error.body) if isinstance(error.body, dict) else None
        written = inner.get("failed_generation") if isinstance(inner, dict) else None
        return await called(ctx, request_context=None, response=ModelResponse(parts=[TextPart(str(written or ""))]))

    return Hooks(before_output_validate=read, after_model_request=called, model_request_error=failed)


def answer_in(written: str | JsonObject, kind: type[BaseModel]) -> JsonObject | None:
    """Return the last object that a model wrote with all required fields and at least one field; None without one."""
    values: list[JsonValue] = [written]
    if isinstance(written, str):
        try:
            values = [parsed(written)]
        except ValueError:
            values = json_values(without_thinking(written))
    for value in reversed(values):
        found = list(_fitting(value, kind, MOST_WRAPPERS))
        if len(found) == 1:
            # Escapes within the JSON may stand for half a character.
            return {storable(name): storable_json(field) for name, field in found[0].items()}
    return None


def _fitting(value: JsonValue, kind: type[BaseModel], wrappers: int) -> Iterator[JsonObject]:
    inner: list[JsonValue] = value if isinstance(value, list) else []
    if isinstance(value, str):
        with suppress(ValueError):
            inner = [parsed(value)]
    elif isinstance(value, dict):
        if _required(kind) <= value.keys() and kind.model_fields.keys() & value.keys():
            yield value
            return
        inner = list(value.values())
    for one in inner if wrappers else ():
        yield from _fitting(one, kind, wrappers - 1)


def _required(kind: type[BaseModel]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if field.is_required()}


log = logging.getLogger(__name__)

Prompt = str | Sequence[UserContent]

OUTPUT_RETRIES = 2
TEXT_RETRIES = 1
"""A model without tools seldom gets better than its second answer."""
_NO_TOOLS = re.compile(
    r"support (?:for )?tool|tool use|--jinja|tool[_ ]choice|tools?\b[^.]* not supported|tool calling|function calling"
)


_REFUSALS = {Status.REFUSED: ModelOutputError, Status.TOO_LONG: PromptTooLong}


class _NoAnswer(ModelError):
    """The response is no answer in the provider's format."""


class _NoTools(ModelError):
    """The server, or its model, takes no tools, by which structured answers are asked for."""


class PydanticAIOptimizer(MeteredModel):
    """An `Optimizer` over a pydantic-ai model.

    A 429, a 5xx and a time-out are tried again by the provider's own client, then by the next model of a chain of
    fallbacks; an answer that is none (no JSON, or not of the provider's format) here; a failed schema by pydantic-ai.

    Args:
        model: the model.
        on_call: called after every call, once a request.
        settings: see `sampling_settings`; none leaves all to the provider.
        max_attempts: tries of one call, also of an answer that is none; boto3 keeps its own number of five.
        role: what it is asked as; a judge answers in the same way.
        redact: see `MeteredModel`.
    """

    def __init__(
        self,
        model: Model,
        on_call: Callable[[ModelCall], None],
        settings: JsonObject | None = None,
        *,
        max_attempts: int = 1,
        role: Role = "optimizer",
        redact: Callable[[str], str] = str,
    ) -> None:
        super().__init__(model, on_call, role, {} if settings is None else settings, max_attempts, redact)
        self._max_attempts = max_attempts
        self._takes_tools = True
        """Until the server refuses them: then answers are taken from plain text."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the answer to one structured call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type`, or the model refused.
            ModelUnavailable: the provider has no answer now.
            ModelError: the provider did not answer.
        """
        retrying = Retrying(
            stop=stop_after_attempt(self._max_attempts), retry=retry_if_exception_type(_NoAnswer), reraise=True
        )
        output: Output = retrying(self._ask, stage, instructions, _content(prompt, pictures), output_type)
        return output

    def _ask(self, stage: str, instructions: str, prompt: Prompt, output_type: type[Output]) -> Output:
        if self._takes_tools:
            try:
                return self._answer(stage, instructions, prompt, output_type)
            except _NoTools as refusal:
                log.info("%s; from here on the %s answers in text, by the schema in its prompt", refusal, self.role)
                self._takes_tools = False
        return self._answer(stage, instructions, prompt, output_type)

    def _answer(self, stage: str, instructions: str, prompt: Prompt, output_type: type[Output]) -> Output:
        with_tools = self._takes_tools
        tool = f"{stage}_result" if with_tools else None
        agent: Agent[None, Output] = Agent(
            self._model,
            output_type=PromptedOutput(output_type) if tool is None else ToolOutput(output_type, name=tool),
            capabilities=[lenient(output_type, tool)],
            instructions=instructions,
            model_settings=self._settings,
            retries={"output": OUTPUT_RETRIES if with_tools else TEXT_RETRIES},
        )
        garbage = f"{stage}: the {self.role} model's server answered something else"
        with self._metered(stage) as metered:
            try:
                output = self._portal.call(partial(agent.run, prompt, usage=metered.usage)).output
                metered.status = 200
            except ModelHTTPError as error:
                metered.status = error.status_code
                if (refused := error_status(error.status_code, error.body)) is not None:
                    raise _REFUSALS[refused](f"{stage}: {SENTENCES[refused]}: {error.message}") from error
                kind = _NoTools if with_tools and _refuses_tools(error) else _kind(error)
                raise kind(f"{stage}: the {self.role} model answered {error.status_code}: {error.message}") from error
            except ModelAPIError as error:
                if (refused := error_status(0, error.message)) is not None:
                    raise _REFUSALS[refused](f"{stage}: {SENTENCES[refused]}: {error.message}") from error
                kind = _NoAnswer if isinstance(error.__cause__, JSONDecodeError) else _kind(error)
                raise kind(f"{stage}: the {self.role} model did not answer: {error}") from error
            except FallbackExceptionGroup as group:
                tried = "; ".join(str(error) for error in group.exceptions)
                kinds = list(map(_kind, group.exceptions))
                late = any(issubclass(kind, ModelUnavailable) for kind in kinds)
                kind = kinds[0] if len(set(kinds)) == 1 else ModelUnavailable if late else ModelError
                raise kind(f"{stage}: neither the {self.role} model nor its fallbacks answered: {tried}") from group
            except (UnexpectedModelBehavior, ContentFilterError) as error:
                metered.status = 200
                if metered.usage.requests == 0 and not isinstance(error, ContentFilterError):
                    raise _NoAnswer(f"{garbage}: {error}") from error
                raise ModelOutputError(str(error)) from error
            except UserError as error:
                # Bedrock's models with open weights cannot be forced on a tool while they think.
                kind = _NoTools if with_tools and "output tools" in str(error) else ModelError
                raise kind(f"{stage}: {error}") from error
            except (TypeError, ValueError, AttributeError, LookupError) as error:
                # The provider's client stumbled over JSON that is no answer.
                raise _NoAnswer(f"{garbage}: {error!r}") from error
        return output


def _content(prompt: str, pictures: Pictures) -> Prompt:
    content: list[UserContent] = []
    for name, picture in pictures.items():
        content += [f"Picture {name}:", BinaryContent(picture, media_type=Picture(picture).media_type)]
    return [prompt, *content] if content else prompt


def _refuses_tools(error: ModelHTTPError) -> bool:
    """Return whether the request failed because of its tools, which servers say in many words and with many codes.

    Ollama: 400 "... does not support tools"; llama.cpp: 500 "tools param requires --jinja flag"; OpenRouter: 404 "No
    endpoints found that support tool use"; vLLM: 400 '"auto" tool choice requires ...'.
    """
    said = f"{error.message} {error.body}".lower()
    return _NO_TOOLS.search(said) is not None and error.status_code != HTTPStatus.TOO_MANY_REQUESTS


def is_unavailable(error: Exception) -> bool:
    """Return whether the server cannot be reached, or has no answer now, by the error of the provider's client."""
    if isinstance(error, ModelHTTPError):
        return may_pass(error.status_code)
    return isinstance(error, ModelAPIError)


def _kind(error: Exception) -> type[ModelError]:
    """Return whether the same request may be answered later; without a connection, the address may be wrong."""
    if isinstance(error, ModelConnectionError) and not isinstance(error, ModelTimeoutError):
        return ModelUnreachable
    late = isinstance(error, ModelTimeoutError | ModelRequestTimeout | ModelHTTPError) and is_unavailable(error)
    return ModelUnavailable if late else ModelError
