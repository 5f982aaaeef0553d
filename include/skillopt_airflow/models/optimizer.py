"""The optimizer model: structured answers through pydantic-ai, asked again after invalid ones, with usage rows.

Also has the model of an Azure connection with an identity, which Airflow's hook doesn't support.
"""

import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from openai import AsyncAzureOpenAI, AsyncOpenAI
from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, ModelRetry, PromptedOutput, ToolOutput
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ThinkingPart, ToolCallPart, UserContent
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.settings import ModelSettings
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from skillopt_airflow.core.config.sampling import OutputForm, answer_tokens, without_thinking
from skillopt_airflow.core.errors import AnswerCut, ToolsRefused
from skillopt_airflow.core.run.budget import Role
from skillopt_airflow.core.values.model_protocols import Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Picture, Pictures
from skillopt_airflow.core.values.text import clean_parts, storable, storable_json
from skillopt_airflow.core.values.types import JsonObject, ModelCall
from skillopt_airflow.gateway.backends import EntraToken
from skillopt_airflow.gateway.translation import without_environment
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream
from skillopt_airflow.models.metering import MeteredModel
from skillopt_airflow.models.model_errors import FAILURES, LimitTooLow, NoAnswer, project_error
from skillopt_airflow.models.providers import AZURE_DIALECTS
from skillopt_airflow.tasks.scoring.json_fields import json_values, parse_json

MAX_WRAPPERS = 6
"""Maximum number of JSON objects, lists and strings around an answer."""
_BAD_SAMPLE = re.compile(
    r"^400 .*(?:failed_generation|tool_use_failed|(?:json_validate|output_parse)_failed)", re.DOTALL
)
"""Groq's errors for an answer that it couldn't parse. A retry may succeed."""


def answer_hooks(kind: type[BaseModel], tool: str | None, limit: int | None) -> Hooks[None]:
    """Return the agent's hooks that parse an answer, or ask again.

    They also accept a tool call that the model wrote as text, even if the text was cut after it. `tool` is the output
    tool's name, if any, and `limit` our token limit, if any.
    """

    async def read(ctx: Any, *, output_context: Any, output: str | JsonObject) -> str | JsonObject:
        answer = answer_in(output, kind)
        if answer is None and not _required(kind):
            # Otherwise an answer with unknown keys would count as an empty one.
            raise ModelRetry(f"Answer with one JSON object that has these keys: {', '.join(kind.model_fields)}.")
        return output if answer is None else answer

    async def after_request(ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        clean_parts(response.parts)
        written = response.tool_calls[0].args if response.tool_calls else response.text
        answer = None if written is None else answer_in(written, kind)
        is_cut = response.finish_reason == "length"
        if answer is None and is_cut:
            raise _cut_error(response, limit)
        if tool is not None and answer is not None and (is_cut or not response.tool_calls):
            response.parts = [ToolCallPart(tool, answer)]
        return response

    async def after_error(ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        if not isinstance(error, ModelHTTPError) or not _BAD_SAMPLE.search(f"{error.status_code} {error}"):
            raise error
        inner = error.body.get("error", error.body) if isinstance(error.body, dict) else None
        written = inner.get("failed_generation") if isinstance(inner, dict) else None
        response = ModelResponse(parts=[TextPart(str(written or ""))])
        return await after_request(ctx, request_context=None, response=response)

    return Hooks(before_output_validate=read, after_model_request=after_request, model_request_error=after_error)


def _cut_error(response: ModelResponse, limit: int | None) -> AnswerCut:
    reason = f"the answer was cut at the token limit, after {response.usage.output_tokens} tokens"
    if limit is None:
        return AnswerCut(f"{reason}. Raise model.optimizer_max_tokens")
    thought = any(isinstance(part, ThinkingPart) for part in response.parts)
    thought = thought or response.usage.details.get("reasoning_tokens", 0) > 0
    kind = LimitTooLow if thought else AnswerCut
    return kind(f"{reason}, far more than such an answer needs. Use a model that ends its answers")


def answer_in(written: str | JsonObject, kind: type[BaseModel]) -> JsonObject | None:
    """Return the last written object with all required fields and at least one field, or None."""
    values: list[JsonValue] = [written]
    if isinstance(written, str):
        try:
            values = [parse_json(written)]
        except ValueError:
            values = json_values(without_thinking(written))
    for value in reversed(values):
        answers = list(_answers(value, kind, MAX_WRAPPERS))
        if len(answers) == 1:
            # Escapes within the JSON may be incomplete surrogates.
            return {storable(name): storable_json(field) for name, field in answers[0].items()}
    return None


def _answers(value: JsonValue, kind: type[BaseModel], wrappers: int) -> Iterator[JsonObject]:
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
        yield from _answers(one, kind, wrappers - 1)


def _form(kind: type[BaseModel]) -> str:
    """Return the instruction to answer in JSON, with an example, because small models repeat a schema."""
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
"""Without tools, a third answer is rarely better than the second."""


class PydanticAIOptimizer(MeteredModel):
    """An `Optimizer` with a pydantic-ai model.

    The provider's client retries a 429, a 5xx and a timeout, and then the next fallback is used. This class retries
    invalid responses, and pydantic-ai answers that don't match the schema.

    Each call has a token limit by its stage, and a time limit: `timeout` times `max_attempts` per model and fallback.
    In the preflight, a model without fallbacks has a single `timeout`.

    Args:
        on_call: called after every call, once per request.
        max_attempts: tries per call. boto3 always makes five.
        output: form of the answers; `auto` uses tools until the server refuses them.
        thinking_tokens: tokens for thinking, added to the answer's limit.
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
        settings = {} if settings is None else settings
        super().__init__(model, on_call, settings, begin=begin, max_attempts=max_attempts, role=role, redact=redact)
        self._max_attempts = max_attempts
        self._output = output
        self._thinking_tokens = thinking_tokens
        self._takes_tools = output != "text"
        """False once the server refused them; answers are then plain text."""
        # For Claude, pydantic-ai sets a limit itself, and streams long answers only without another one.
        self._limited = "max_tokens" not in model.unsupported_settings and "anthropic" not in model.system
        """False once the server refused our token limit, or the model's thinking used it up."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the answer to one structured call.

        Raises:
            ModelOutputError: no answer matched `output_type`, or the model refused.
            ToolsRefused: the server supports no tools, and `output` requires them.
            ModelUnavailable: the provider can't answer now, or not in time.
            ModelError: the provider didn't answer.
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
        """Ask, and retry without our token limit or without tools if the server refuses them."""
        limited = self._limited
        while True:
            try:
                output = answer(limited)
            except LimitTooLow as refusal:
                log.info("%s. Retrying the %s without a token limit", refusal, self.role)
                limited = False
            except ToolsRefused as refusal:
                if self._output == "tools":
                    raise
                log.info("%s. From now on, the %s answers in text, with the schema in its prompt", refusal, self.role)
                self._takes_tools = False
            else:
                # Only after a success: a prompt that is too long also fails without the limit.
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
            capabilities=[answer_hooks(output_type, tool, own)],
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
                raise project_error(error, f"{stage}: the {self.role} model", with_tools, own, answered) from error
        return output


def _content(prompt: str, pictures: Pictures) -> Prompt:
    content: list[UserContent] = []
    for name, picture in pictures.items():
        content += [f"Picture {name}:", BinaryContent(picture, media_type=Picture(picture).media_type)]
    return [prompt, *content] if content else prompt


class IdentityProvider(AzureProvider):
    """Closes its client, which the base class doesn't."""

    async def __aexit__(self, *error: Any) -> bool | None:
        await self.client.close()
        return await super().__aexit__(*error)


def azure_model(upstream: Upstream, identity: AzureIdentity) -> Model:
    """Return the model of an Azure connection, for one `async with` block."""
    token = EntraToken(identity)
    client = (
        AsyncAzureOpenAI(
            base_url=upstream.base_url, api_version=upstream.query["api-version"], azure_ad_token_provider=token.get
        )
        if upstream.deployments
        else AsyncOpenAI(base_url=upstream.base_url, api_key=token.get)
    )
    # The base class accepts both clients, but its annotation names only the one for dated API versions.
    provider = IdentityProvider(openai_client=cast("AsyncAzureOpenAI", client))
    name = next(provider for provider, dialect in AZURE_DIALECTS.items() if dialect == upstream.dialect)
    return infer_model(
        f"{name}:{upstream.model}", provider_factory=lambda _: without_environment(provider, has_url=True)
    )
