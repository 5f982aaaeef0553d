"""The properties of a wire format that connections, the gateway and the harnesses use.

Shapes list the parts of a request that may leave a sandbox. A field without a shape is dropped, wherever it is. A field
with another type or value than its shape is refused.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from pydantic import JsonValue
from pydantic_core import core_schema

from skillopt_airflow.core.values.types import JsonObject, Message

Shape = core_schema.CoreSchema
Named = Mapping[str, Shape]
"""Shapes by the names of their fields. Names with the same shape may share a key, and one with `!` is required."""
TEXT, FLAG, NUMBER = core_schema.str_schema(), core_schema.bool_schema(), core_schema.float_schema(allow_inf_nan=False)
NAME = core_schema.str_schema(max_length=256)
COUNT, INTEGER = core_schema.int_schema(ge=1), core_schema.int_schema()
many = partial(core_schema.list_schema, fail_fast=True)
OBJECT = core_schema.dict_schema()
"""Data of the client's own: the arguments or the JSON schema of a tool."""


def one_of(*words: str | bool) -> Shape:
    return core_schema.literal_schema(list(words))


def fields(named: Named) -> Shape:
    """Return the shape of an object with these fields. Those that aren't required may be missing or null."""
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
    """Return the shape of an object whose field `type` names its kind. Kinds with the same fields may share a key."""
    one_each = {kind: named for names, named in kinds.items() for kind in names.split()}
    return core_schema.tagged_union_schema(
        {kind: fields({"type": one_of(kind), **named}) for kind, named in one_each.items()}, "type"
    )


def either(*shapes: Shape) -> Shape:
    return core_schema.union_schema([(shape, "option") for shape in shapes], mode="left_to_right")


def client_tools(tool: Shape, *kinds: str | None) -> Shape:
    """Return the shape of a list of tools that drops those of other types, since the provider would run them.

    Clients such as Codex offer some by default, so they are no reason to refuse a request.
    """

    def own(tools: JsonValue) -> JsonValue:
        if not isinstance(tools, list):
            return tools
        return [one for one in tools if isinstance(one, dict) and one.get("type") in kinds]

    return core_schema.no_info_before_validator_function(own, many(tool))


def contents(pattern: str) -> Shape:
    """Return the shape of encoded contents, in whose place some providers would fetch a URL."""
    refused = "Input should be contents, not a URL"
    return core_schema.custom_error_schema(core_schema.str_schema(pattern=pattern), "url", custom_error_message=refused)


BASE64 = contents(r"^[A-Za-z0-9+/=]*$")
IMAGE_URL = contents(r"^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]*$")
FUNCTION: Named = {"name!": NAME, "description": TEXT, "parameters": OBJECT, "strict": FLAG}
OUTPUT_SCHEMA: Named = {"name": NAME, "description": TEXT, "schema": OBJECT, "strict": FLAG}
CHOICE = one_of("none", "auto", "required")
ANSWERING: Named = {"model!": NAME, "stream parallel_tool_calls": FLAG, "temperature top_p": NUMBER}
"""The fields that several formats share."""


Settings = Mapping[str, JsonValue | None]
TILED_SIDE, TILED_SHORTER, TILE = 2048, 768, 512
"""Pixels: of the square that a picture is scaled to fit, of its shorter side after that, and of a tile."""
PICTURE_TOKENS, TILE_TOKENS = 85, 170
MAX_TOKENS = 10**12
"""No answer has more tokens; a larger number would not fit into the usage table."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of one call; zero where the provider says nothing."""

    prompt: int = 0
    completion: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.prompt + other.prompt, self.completion + other.completion)


class WireFormat(ABC):
    """The format of requests and answers that a family of model servers shares."""

    name: ClassVar[str]
    """pydantic-ai's name of a provider that speaks it: the part of a model's name before the colon."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other such names."""
    path: ClassVar[str]
    """Path of its calls below the version, which is /v1."""
    address: ClassVar[str]
    """Address of the provider whose own format it is, with the version."""
    client_adds_version: ClassVar[bool] = False
    """True if its clients take an address without the version."""
    key_header: ClassVar[str] = "bearer"
    """Header that carries the key; `bearer` is the header Authorization."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers that every request needs; the client's own win."""
    queries: ClassVar[tuple[bytes, ...]] = (b"",)
    """Queries that a request may have; they are not passed on."""
    below_deployment: ClassVar[bool] = False
    """True if Azure's dated API versions have the path below deployments/<model>."""

    event_field: ClassVar[tuple[str, type]] = ("type", str)
    """A field of the events of a stream, and what it holds."""
    prompt_tokens: ClassVar[tuple[str, ...]] = ("prompt_tokens", "input_tokens")
    """Names of the prompt's count in a `usage` object; some proxies answer one format with the names of another."""
    beside_prompt: ClassVar[tuple[str, ...]] = ()
    """Counts of a `usage` object that the prompt's leaves out."""
    completion_tokens: ClassVar[tuple[str, ...]] = ("completion_tokens", "output_tokens")
    """Names of the answer's count."""
    usage_within: ClassVar[str] = ""
    """Field whose object holds `usage` in the events of a stream, where it does not always stand at the top."""
    usage_at_end: ClassVar[bool] = True
    """True if a stream tells the answer's tokens only once they are all counted."""
    request: ClassVar[Shape]
    """The fields of a request that leave a sandbox."""
    betas: ClassVar[tuple[str, ...]] = ()
    """Names, without their dates, that the header anthropic-beta may have."""
    limits: ClassVar[tuple[str, ...]]
    """Fields of a request that bound the tokens of its answer; the last one is written where none is set."""

    @abstractmethod
    def is_answer(self, document: JsonObject) -> bool:
        """Return whether a whole document is an answer of this format, not only a success by its status."""

    def whole(self, document: JsonObject, text: bytes) -> bytes:
        """Return the text of an answer, with what its clients can't do without and some servers leave out."""
        return text

    def is_event(self, document: JsonObject) -> bool:
        name, kind = self.event_field
        failed = document.get("error") or document.get("type") == "error"
        return not failed and isinstance(document.get(name), kind)

    def prepared(self, request: JsonObject) -> JsonObject:
        """Return a request, from which the gateway took what no format may ask for, as it leaves."""
        return request

    @abstractmethod
    def sampling(self, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None) -> Settings:
        """Return pydantic-ai's settings for what the format can say of these; None stands for what is not set."""

    def sets(self, thinking: bool | None = None, thinking_budget: int | None = None) -> bool:
        """Return whether a request has a field for the value that is given."""
        return any(value is not None for value in self.sampling(None, thinking, thinking_budget).values())

    def picture_tokens(self, width: int, height: int) -> int:
        """Return the tokens of a picture of so many pixels, as OpenAI counts its tiles (guide "Images and vision")."""
        shrunk = min(1.0, TILED_SIDE / max(width, height))
        shrunk *= min(1.0, TILED_SHORTER / (shrunk * min(width, height)))
        tiles = math.ceil(shrunk * width / TILE) * math.ceil(shrunk * height / TILE)
        return PICTURE_TOKENS + TILE_TOKENS * tiles

    def tokens(self, document: JsonObject) -> Tokens:
        """Return the usage that an answer, or the data of one event, tells."""
        usages = list(self._usages(document))
        return Tokens(
            prompt=max([0, *map(self._prompt, usages)]),
            completion=max([0, *map(self._completion, usages)]),
        )

    def _prompt(self, usage: JsonObject) -> int:
        return count(usage, *self.prompt_tokens) + sum(count(usage, name) for name in self.beside_prompt)

    def _completion(self, usage: JsonObject) -> int:
        told, prompt = count(usage, *self.completion_tokens), self._prompt(usage)
        # xAI counts thinking in the total alone (reference "Chat completions"), and so does Gemini's compatible API.
        return max(told, count(usage, "total_tokens") - prompt) if prompt else told

    def _usages(self, document: JsonObject) -> Iterator[JsonObject]:
        for holder in (document, document.get(self.usage_within)):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                yield usage


def count(holder: JsonObject, *names: str) -> int:
    """Return the largest of some counts; what is no sensible number counts as zero."""
    values = (holder.get(name) for name in names)
    return min(MAX_TOKENS, max([0, *(value for value in values if isinstance(value, int))]))


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
