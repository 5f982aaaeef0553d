"""A model server that behaves as llama.cpp did with a small model: a tool call as text, then newlines to the limit."""

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.scripted_provider import Asked, Document, Reply, chat_document, failure

CONTEXT = 8_192
REFUSED = "some-model does not support tools"


@dataclass
class RamblingServer:
    """It never ends an answer by itself, and knows no tool calls but those that it writes down."""

    by_tool: str | None
    """Its text where a tool call is asked for; None refuses the tools."""
    by_text: str = "I would rather not."
    seconds: float = 0.0
    """Time of an answer."""
    slow_tools: float = 0.0
    """Time of an answer by a tool, in addition."""
    message: dict[str, Any] = field(default_factory=dict)
    """Further fields of its answers."""
    refusal: str = ""
    """Error of each request with a limit of tokens, which it names."""
    ends: bool = False
    """Whether its answers do end."""
    bodies: list[Document] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def limits(self) -> list[int | None]:
        """The limit of each request."""
        return [body.get("max_completion_tokens") for body in self.bodies]

    @property
    def with_tools(self) -> list[bool]:
        """Whether each request asked for a tool call."""
        return ["tools" in body for body in self.bodies]

    def answer(self, asked: Asked) -> Reply | Document:
        if asked.method == "GET":
            return {"object": "list", "data": [{"id": "some-model"}]}
        body = asked.body
        self.bodies.append(body)
        limit = body.get("max_completion_tokens", CONTEXT)
        if self.refusal and "max_completion_tokens" in body:
            return failure(400, self.refusal.format(limit))
        text = self.by_tool if "tools" in body else self.by_text
        if text is None:
            return failure(400, REFUSED)
        self.gone.wait(self.seconds + self.slow_tools * ("tools" in body))
        if self.ends:
            return chat_document(text, **self.message)
        used = {"usage": {"prompt_tokens": 20, "completion_tokens": limit, "total_tokens": 20 + limit}}
        return chat_document(text + "\n" * limit, "length", **self.message) | used
