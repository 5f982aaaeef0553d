"""The base of wire formats, for connections, the gateway and the harnesses.

Shapes list the parts of a request that may leave a sandbox. Fields without a shape are dropped at all levels. A field
whose type or value differs from its shape is rejected.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from pydantic import JsonValue
from pydantic_core import core_schema

from skillopt_airflow.core.values.types import JsonObject, Message

Shape = core_schema.CoreSchema
Named = Mapping[str, Shape]
"""Shapes by field name. Names with the same shape can share a key, and `!` marks required fields."""
TEXT, FLAG, NUMBER = core_schema.str_schema(), core_schema.bool_schema(), core_schema.float_schema(allow_inf_nan=False)
NAME = core_schema.str_schema(max_length=256)
COUNT, INTEGER = core_schema.int_schema(ge=1), core_schema.int_schema()
many = partial(core_schema.list_schema, fail_fast=True)
OBJECT = core_schema.dict_schema()
"""The client's own data: the arguments or the JSON schema of a tool."""


def one_of(*words: str | bool) -> Shape:
    return core_schema.literal_schema(list(words))


def fields(named: Named) -> Shape:
    """Return the shape of an object with these fields. Optional fields can be missing or null."""
    optional, field = core_schema.nullable_schema, core_schema.typed_dict_field
    shapes = {name: shape for names, shape in named.items() for name in names.split()}
    return core_schema.typed_dict_schema(
        {
            name.rstrip("!"): field(shape if name[-1] == "!" else optional(shape), required=name[-1] == "!")
            for name, shape in shapes.items()
        },
        extra_behavior="ignore",
    )


def by_type(kinds: Mapping[str, Named]) -> Shape:
    """Return the shape of an object whose field `type` names its kind. Kinds with the same fields can share a key."""
    one_each = {kind: named for names, named in kinds.items() for kind in names.split()}
    return core_schema.tagged_union_schema(
        {kind: fields({"type": one_of(kind), **named}) for kind, named in one_each.items()}, "type"
    )


def either(*shapes: Shape) -> Shape:
    return core_schema.union_schema([(shape, "option") for shape in shapes], mode="left_to_right")


def client_tools(tool: Shape, *kinds: str | None) -> Shape:
    """Return the shape of a list of tools, without tools of other types, which the provider would run.

    They are dropped rather than rejected, because clients such as Codex offer some by default.
    """

    def own(tools: JsonValue) -> JsonValue:
        if not isinstance(tools, list):
            return tools
        return [one for one in tools if isinstance(one, dict) and one.get("type") in kinds]

    return core_schema.no_info_before_validator_function(own, many(tool))


def contents(pattern: str) -> Shape:
    """Return the shape of encoded contents; some providers would fetch a URL in their place."""
    refused = "Input should be contents, not a URL"
    return core_schema.custom_error_schema(core_schema.str_schema(pattern=pattern), "url", custom_error_message=refused)


BASE64 = contents(r"^[A-Za-z0-9+/=]*$")
IMAGE_URL = contents(r"^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]*$")
FUNCTION: Named = {"name!": NAME, "description": TEXT, "parameters": OBJECT, "strict": FLAG}
OUTPUT_SCHEMA: Named = {"name": NAME, "description": TEXT, "schema": OBJECT, "strict": FLAG}
CHOICE = one_of("none", "auto", "required")
ANSWERING: Named = {"model!": NAME, "stream parallel_tool_calls": FLAG, "temperature top_p": NUMBER}
"""Fields that all formats share."""


Settings = Mapping[str, JsonValue | None]
TILED_SIDE, TILED_SHORTER, TILE = 2048, 768, 512
"""Pixels: the square into which a picture is scaled, then the limit of its shorter side, and the side of a tile."""
PICTURE_TOKENS, TILE_TOKENS = 85, 170
MAX_TOKENS = 10**12
"""Larger numbers don't fit into the usage table."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of one call; zero if the provider doesn't report them."""

    prompt: int = 0
    completion: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.prompt + other.prompt, self.completion + other.completion)


class WireFormat(ABC):
    """The format of requests and answers of a family of model servers."""

    name: ClassVar[str]
    """pydantic-ai's name of a provider with this format, which is the part of a model's name before the colon."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other such names."""
    path: ClassVar[str]
    """Path of calls below the version /v1."""
    address: ClassVar[str]
    """URL of the provider that defined the format, with the version."""
    client_adds_version: ClassVar[bool] = False
    """True if clients expect a URL without the version."""
    key_header: ClassVar[str] = "bearer"
    """Header for the key; `bearer` is the header Authorization."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers that every request needs; the client's own take precedence."""
    queries: ClassVar[tuple[bytes, ...]] = (b"",)
    """Valid query strings of a request; they aren't forwarded."""
    below_deployment: ClassVar[bool] = False
    """True if Azure's dated API versions have the path below deployments/<model>."""

    event_field: ClassVar[tuple[str, type]] = ("type", str)
    """A field of stream events, and its type."""
    prompt_tokens: ClassVar[tuple[str, ...]] = ("prompt_tokens", "input_tokens")
    """Names of the prompt's count in a `usage` object; some proxies mix the names of several formats."""
    beside_prompt: ClassVar[tuple[str, ...]] = ()
    """Counts of a `usage` object to add to the prompt's."""
    completion_tokens: ClassVar[tuple[str, ...]] = ("completion_tokens", "output_tokens")
    """Names of the answer's count."""
    usage_within: ClassVar[str] = ""
    """Field whose object contains `usage` in stream events, if it isn't always at the top level."""
    usage_at_end: ClassVar[bool] = True
    """True if a stream reports the answer's tokens only at its end."""
    request: ClassVar[Shape]
    """The fields of a request that may leave a sandbox."""
    betas: ClassVar[tuple[str, ...]] = ()
    """Names, without dates, that the header anthropic-beta may contain."""
    limits: ClassVar[tuple[str, ...]]
    """Fields of a request that limit the answer's tokens; the last one is added if none is set."""

    @abstractmethod
    def is_answer(self, document: JsonObject) -> bool:
        """Return whether a complete document is an answer in this format, whatever its status."""

    def whole(self, document: JsonObject, text: bytes) -> bytes:
        """Return the text of an answer after repairing parts that clients reject."""
        return text

    def is_event(self, document: JsonObject) -> bool:
        name, kind = self.event_field
        failed = document.get("error") or document.get("type") == "error"
        return not failed and isinstance(document.get(name), kind)

    def prepared(self, request: JsonObject) -> JsonObject:
        """Return the final form of a request that the gateway has already filtered."""
        return request

    @abstractmethod
    def sampling(self, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None) -> Settings:
        """Return pydantic-ai's settings for those arguments that the format supports; None means not set."""

    def sets(self, thinking: bool | None = None, thinking_budget: int | None = None) -> bool:
        """Return whether the format has a field for the given value."""
        return any(value is not None for value in self.sampling(None, thinking, thinking_budget).values())

    def picture_tokens(self, width: int, height: int) -> int:
        """Return the tokens of a picture, by OpenAI's count of tiles (guide "Images and vision")."""
        shrunk = min(1.0, TILED_SIDE / max(width, height))
        shrunk *= min(1.0, TILED_SHORTER / (shrunk * min(width, height)))
        tiles = math.ceil(shrunk * width / TILE) * math.ceil(shrunk * height / TILE)
        return PICTURE_TOKENS + TILE_TOKENS * tiles

    def tokens(self, document: JsonObject) -> Tokens:
        """Return the usage that an answer or an event reports."""
        holders = (document, document.get(self.usage_within))
        found = [holder.get("usage") for holder in holders if isinstance(holder, dict)]
        usages = [usage for usage in found if isinstance(usage, dict)]
        return Tokens(prompt=max([0, *map(self._prompt, usages)]), completion=max([0, *map(self._completion, usages)]))

    def _prompt(self, usage: JsonObject) -> int:
        return count(usage, *self.prompt_tokens) + sum(count(usage, name) for name in self.beside_prompt)

    def _completion(self, usage: JsonObject) -> int:
        reported, prompt = count(usage, *self.completion_tokens), self._prompt(usage)
        # xAI (reference "Chat completions") and Gemini's compatible API count thinking only in the total.
        return max(reported, count(usage, "total_tokens") - prompt) if prompt else reported


def count(holder: JsonObject, *names: str) -> int:
    """Return the largest of the counts; invalid values count as zero."""
    values = (holder.get(name) for name in names)
    return min(MAX_TOKENS, max([0, *(value for value in values if isinstance(value, int))]))


def side(message: Message) -> Literal["system", "user", "assistant"]:
    """Return the side of a message; results of tools belong to the user."""
    if message.role == "tool":
        return "user"
    return "assistant" if message.role == "call" else message.role


def taking_turns(messages: Sequence[Message]) -> list[Message]:
    """Return system, user and assistant messages, with adjacent messages of one side joined by a blank line.

    The chat templates of Mistral, Gemma 3 and Llama 2 reject two adjacent user turns, which follow an empty reply.
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
