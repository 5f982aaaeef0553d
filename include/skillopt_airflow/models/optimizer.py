"""The optimizer model: structured answers through pydantic-ai, with retries and a usage row for each request."""

import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, ModelRetry, PromptedOutput, ToolOutput
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ThinkingPart, ToolCallPart, UserContent
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from skillopt_airflow.core.config.sampling import OutputForm, answer_tokens, without_thinking
from skillopt_airflow.core.errors import AnswerCut, ToolsRefused
from skillopt_airflow.core.run.budget import Role
from skillopt_airflow.core.values.model_protocols import Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Picture, Pictures
from skillopt_airflow.core.values.text import clean_parts, storable, storable_json
from skillopt_airflow.core.values.types import JsonObject, ModelCall
from skillopt_airflow.models.metering import MeteredModel
from skillopt_airflow.models.model_errors import FAILURES, LimitTooLow, NoAnswer, explained
from skillopt_airflow.tasks.scoring.json_fields import json_values, parse_json

MAX_WRAPPERS = 6
"""Objects, lists and strings of JSON around an answer."""
_BAD_SAMPLE = re.compile(
    r"^400 .*(?:failed_generation|tool_use_failed|(?:json_validate|output_parse)_failed)", re.DOTALL
)
"""Groq's words for an answer that it couldn't read itself; the same request may succeed."""


def lenient(kind: type[BaseModel], tool: str | None, limit: int | None) -> Hooks[None]:
    """Return the hooks by which an agent reads an answer of this kind, or asks again.

    A model may write a call of the output tool down instead of making it, and go on after it until it is cut. `tool` is
    the tool's name, or None without tools, and `limit` our own one of tokens, or None.
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
        cut = response.finish_reason == "length"
        if found is None and cut:
            raise _cut(response, limit)
        if tool is not None and found is not None and (cut or not response.tool_calls):
            response.parts = [ToolCallPart(tool, found)]
        return response

    async def failed(ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        if not isinstance(error, ModelHTTPError) or not _BAD_SAMPLE.search(f"{error.status_code} {error}"):
            raise error
        inner = error.body.get("error", error.body) if isinstance(error.body, dict) else None
        written = inner.get("failed_generation") if isinstance(inner, dict) else None
        return await called(ctx, request_context=None, response=ModelResponse(parts=[TextPart(str(written or ""))]))

    return Hooks(before_output_validate=read, after_model_request=called, model_request_error=failed)


def _cut(response: ModelResponse, limit: int | None) -> AnswerCut:
    said = f"the answer was cut at the token limit, after {response.usage.output_tokens} tokens"
    if limit is None:
        return AnswerCut(f"{said}; raise model.optimizer_max_tokens")
    thought = any(isinstance(part, ThinkingPart) for part in response.parts)
    thought = thought or response.usage.details.get("reasoning_tokens", 0) > 0
    kind = LimitTooLow if thought else AnswerCut
    return kind(f"{said}, far more than such an answer needs; use a model that ends its answers")


def answer_in(written: str | JsonObject, kind: type[BaseModel]) -> JsonObject | None:
    """Return the last object that a model wrote with all required fields and at least one field; None without one."""
    values: list[JsonValue] = [written]
    if isinstance(written, str):
        try:
            values = [parse_json(written)]
        except ValueError:
            values = json_values(without_thinking(written))
    for value in reversed(values):
        found = list(_fitting(value, kind, MAX_WRAPPERS))
        if len(found) == 1:
            # Escapes within the JSON may stand for half a character.
            return {storable(name): storable_json(field) for name, field in found[0].items()}
    return None


def _fitting(value: JsonValue, kind: type[BaseModel], wrappers: int) -> Iterator[JsonObject]:
    inner: list[JsonValue] = value if isinstance(value, list) else []
    if isinstance(value, str):
        with suppress(ValueError):
            inner = [parse_json(value)]
    elif isinstance(value, dict):
        if _required(kind) <= value.keys() and kind.model_fields.keys() & value.keys():
            yield value
            return
        inner = list(value.values())
    for one in inner if wrappers else ():
        yield from _fitting(one, kind, wrappers - 1)


def _form(kind: type[BaseModel]) -> str:
    """Return the instruction to answer in JSON: small models repeat a schema, and fill in an example."""
    schema = kind.model_json_schema()
    example = json.dumps(_example(schema, schema.get("$defs", {})), ensure_ascii=False)
    return f"\nAnswer with one JSON object of this form, and nothing else:\n{example}"


def _example(schema: Any, definitions: Any) -> JsonValue:
    if "$ref" in schema:
        return _example(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    match schema.get("type"):
        case "array":
            return [_example(schema["items"], definitions)]
        case "object":
            return {name: _example(field, definitions) for name, field in schema.get("properties", {}).items()}
        case "string":
            return f"<{schema.get('description', 'text')}>"
        case "boolean":
            return True
    return 1


def _required(kind: type[BaseModel]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if field.is_required()}


log = logging.getLogger(__name__)

Prompt = str | Sequence[UserContent]

OUTPUT_RETRIES = 2
TEXT_RETRIES = 1
"""A model without tools seldom gets better than its second answer."""


class PydanticAIOptimizer(MeteredModel):
    """An `Optimizer` over a pydantic-ai model.

    A 429, a 5xx and a time-out are tried again by the provider's own client, then by the next model of a chain of
    fallbacks; an answer that is none (no JSON, or not of the provider's format) here; a failed schema by pydantic-ai.

    Each call has a limit of tokens by its stage, and of seconds: `timeout` times `max_attempts` for each model of the
    chain, and a single `timeout` for one of the preflight, if there is no chain.

    Args:
        on_call: called after every call, once a request.
        settings: see `sampling_settings`; none leaves all but the limit of tokens to the provider.
        max_attempts: tries of one call, also of an answer that is none; boto3 keeps its own number of five.
        role: what it is asked as; a judge answers in the same way.
        redact: see `MeteredModel`.
        output: how answers are asked for; with `auto` by tools, until the server refuses them.
        thinking_tokens: most tokens of its thinking, which are added to those of an answer.
    """

    def __init__(
        self,
        model: Model,
        on_call: Callable[[ModelCall], None],
        settings: JsonObject | None = None,
        *,
        begin: Callable[[], None] | None = None,
        max_attempts: int = 1,
        role: Role = "optimizer",
        redact: Callable[[str], str] = str,
        output: OutputForm = "auto",
        thinking_tokens: int = 0,
    ) -> None:
        super().__init__(model, on_call, role, {} if settings is None else settings, max_attempts, redact, begin)
        self._max_attempts = max_attempts
        self._output = output
        self._thinking_tokens = thinking_tokens
        self._takes_tools = output != "text"
        """Until the server refuses them: then answers are taken from plain text."""
        # Claude has a limit of its own, and pydantic-ai streams its long answers only without another one.
        self._limited = "max_tokens" not in model.unsupported_settings and "anthropic" not in model.system
        """Until the server refuses a limit of ours, or the model's thinking takes all of it."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the answer to one structured call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type`, or the model refused.
            ToolsRefused: the server takes no tools, and `output` asks for them.
            ModelUnavailable: the provider has no answer now, or none in time.
            ModelError: the provider did not answer.
        """
        retrying = Retrying(
            stop=stop_after_attempt(self._max_attempts), retry=retry_if_exception_type(NoAnswer), reraise=True
        )
        seconds = self._seconds * self.models
        if stage == "preflight" and self.models == 1:
            seconds /= self._max_attempts
        ends = time.monotonic() + seconds
        answer = partial(self._answer, stage, instructions, _content(prompt, pictures), output_type, ends)
        output: Output = retrying(self._ask, answer)
        return output

    def _ask(self, answer: Callable[[bool], Output]) -> Output:
        """Ask, and again without what the server refuses: a limit of ours, or tools."""
        limited = self._limited
        while True:
            try:
                output = answer(limited)
            except LimitTooLow as refusal:
                log.info("%s; the %s is asked without a limit of tokens", refusal, self.role)
                limited = False
            except ToolsRefused as refusal:
                if self._output == "tools":
                    raise
                log.info("%s; from here on the %s answers in text, by the schema in its prompt", refusal, self.role)
                self._takes_tools = False
            else:
                # Not before: a prompt that is too long fails without the limit as well.
                self._limited = self._limited and limited
                return output

    def _answer(
        self, stage: str, instructions: str, prompt: Prompt, output_type: type[Output], ends: float, limited: bool
    ) -> Output:
        with_tools = self._takes_tools
        tool = f"{stage}_result" if with_tools else None
        limit, most = answer_tokens(stage) + self._thinking_tokens, self._settings.get("max_tokens")
        own = limit if limited and (most is None or limit < most) else None
        agent: Agent[None, Output] = Agent(
            self._model,
            output_type=PromptedOutput(output_type, template=False)
            if tool is None
            else ToolOutput(output_type, name=tool),
            capabilities=[lenient(output_type, tool, own)],
            instructions=instructions + ("" if with_tools else _form(output_type)),
            model_settings=self._settings if own is None else ModelSettings(**self._settings | {"max_tokens": own}),
            retries={"output": OUTPUT_RETRIES if with_tools else TEXT_RETRIES},
        )
        left = None if ends == math.inf else ends - time.monotonic()
        with self._metered(stage) as metered:
            try:
                output = self._portal.call(partial(agent.run, prompt, usage=metered.usage, timeout=left)).output
            except FAILURES as error:
                answered = metered.usage.requests > 0
                raise explained(error, f"{stage}: the {self.role} model", with_tools, own, answered) from error
        return output


def _content(prompt: str, pictures: Pictures) -> Prompt:
    content: list[UserContent] = []
    for name, picture in pictures.items():
        content += [f"Picture {name}:", BinaryContent(picture, media_type=Picture(picture).media_type)]
    return [prompt, *content] if content else prompt
