"""The providers' wire formats, as far as this project's requests go, after their public documentation."""

import json
import re
from typing import Any

from tests.gateway.scripted_provider import (
    Answer,
    Asked,
    Document,
    Refusal,
    chat_document,
    message_document,
    response_document,
    response_message,
)

CHAT_FIELDS = (
    "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata n parallel_tool_calls "
    "presence_penalty reasoning_effort response_format seed service_tier stop store stream stream_options temperature "
    "tool_choice tools top_logprobs top_p user"
)
RESPONSES_FIELDS = (
    "background include instructions max_output_tokens max_tool_calls metadata parallel_tool_calls "
    "previous_response_id reasoning service_tier store stream temperature text tool_choice tools top_p truncation user"
)
MESSAGES_FIELDS = "metadata output_config service_tier stop_sequences stream system thinking tool_choice tools"
SAMPLING_FIELDS = "temperature top_k top_p"
"""Of messages, too, before Anthropic's version 2026-10-21, and at servers like Anthropic's."""


def expect(request: Asked, method: str, path: str, **query: str) -> None:
    """Refuse another address."""
    if (request.method, request.path) != (method, path):
        raise Refusal(404, f"no {request.method} {request.path} here, only {method} {path}")
    if request.query != query:
        raise Refusal(404, f"the query is {request.query}, not {query}")


def authorised(request: Asked, header: str, value: str) -> None:
    """Refuse another key, and more than one."""
    carried = {name for name in ("authorization", "api-key", "x-api-key") if name in request.headers}
    if carried != {header} or request.headers[header] != value:
        raise Refusal(401, f"incorrect key in {carried}")


def only(body: Document, required: str, allowed: str) -> None:
    """Refuse fields that the documentation does not have."""
    missing, unknown = set(required.split()) - set(body), set(body) - set(required.split()) - set(allowed.split())
    if missing or unknown:
        raise Refusal(400, f"missing: {sorted(missing)}; unrecognized request argument supplied: {sorted(unknown)}")


def chat_completion(body: Document, text: str, arguments: Document | None = None, **message: Any) -> Document:
    """A chat completion: the text, or a call of the first tool with the arguments."""
    if body.get("tools") and arguments is not None:
        name = body["tools"][0]["function"]["name"]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return chat_document(None, "tool_calls", body["model"], tool_calls=[call])
    return chat_document(text, model=body["model"], **message)


def response(body: Document, arguments: Document | None) -> Document:
    """An answer of the responses API: Paris, or a call of the first tool with the arguments."""
    output = response_message("Paris")
    if body.get("tools") and arguments is not None:
        output = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        output |= {"name": body["tools"][0]["name"], "arguments": json.dumps(arguments)}
    return response_document(output, model=body["model"])


def openai(key: str, arguments: Document | None = None, *, prefix: str = "/v1") -> Answer:
    """OpenAI's chat completions and responses: a bearer key, no field that is not documented."""

    def answer(request: Asked) -> Document:
        authorised(request, "authorization", f"Bearer {key}")
        if request.path == f"{prefix}/models":
            return {"object": "list", "data": []}
        if request.path == f"{prefix}/responses":
            expect(request, "POST", f"{prefix}/responses")
            only(request.body, "model input", RESPONSES_FIELDS)
            return response(request.body, arguments)
        expect(request, "POST", f"{prefix}/chat/completions")
        only(request.body, "model messages", CHAT_FIELDS)
        return chat_completion(request.body, "Paris", arguments)

    return answer


def azure_dated(deployment: str, version: str, header: str, value: str, arguments: Document | None = None) -> Answer:
    """Azure OpenAI's dated API versions: the deployment is in the path of chat completions."""

    def answer(request: Asked) -> Document:
        authorised(request, header, value)
        if request.path == "/openai/models":
            expect(request, "GET", "/openai/models", **{"api-version": version})
            return {"object": "list", "data": []}
        if request.path == "/openai/responses":
            expect(request, "POST", "/openai/responses", **{"api-version": version})
            only(request.body, "model input", RESPONSES_FIELDS)
            return response(request.body, arguments)
        path = f"/openai/deployments/{deployment}/chat/completions"
        expect(request, "POST", path, **{"api-version": version})
        only(request.body, "messages", f"model {CHAT_FIELDS}")
        return chat_completion(request.body, "Paris", arguments)

    return answer


def anthropic(key: str, arguments: Document | None = None, *, prefix: str = "") -> Answer:
    """Anthropic's messages: a dated version in a header, max_tokens required and above a thinking budget.

    At another server, below a prefix, a request may set the sampling.
    """

    def answer(request: Asked) -> Document:
        # Keys come in a header of their own, or as Anthropic's own client has them now.
        own_header = "x-api-key" in request.headers
        authorised(request, *(("x-api-key", key) if own_header else ("authorization", f"Bearer {key}")))
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", request.headers.get("anthropic-version", "")):
            raise Refusal(400, "anthropic-version: header is required")
        if request.path == f"{prefix}/v1/models":
            return {"data": [], "has_more": False}
        # The beta client of pydantic-ai says so in the query too, which the gateway's clients may not.
        if request.query not in ({}, {"beta": "true"}):
            raise Refusal(404, "not found")
        if (request.method, request.path) != ("POST", f"{prefix}/v1/messages"):
            raise Refusal(404, "not found")
        fields = f"{MESSAGES_FIELDS} {SAMPLING_FIELDS}" if prefix else MESSAGES_FIELDS
        only(request.body, "model messages max_tokens", fields)
        budget = request.body.get("thinking", {}).get("budget_tokens", 0)
        if budget >= request.body["max_tokens"]:
            raise Refusal(400, "`max_tokens` must be greater than `thinking.budget_tokens`")
        content: list[Document] = [{"type": "text", "text": "Paris"}]
        if request.body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            content = [{"type": "thinking", "thinking": "France, so", "signature": "c2ln"}, *content]
        if request.body.get("tools") and arguments is not None:
            name = request.body["tools"][0]["name"]
            content = [{"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}]
        stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        message = message_document(stop, *content, model=request.body["model"])
        return message_events(message) if request.body.get("stream") else message

    return answer


def message_events(message: Document) -> list[Document]:
    """A message as the events of a stream, a block in one piece."""
    events: list[Document] = [{"type": "message_start", "message": message | {"content": [], "stop_reason": None}}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
        else:
            start = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": start},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    stopped = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": stopped, "usage": message["usage"]}, {"type": "message_stop"}]


def vllm(*, parser: bool, opened: bool = True) -> Answer:
    """A Qwen3 model on vLLM: it thinks unless its template is told not to.

    Args:
        parser: whether the server runs with a reasoning parser, which moves the thinking out of the content.
        opened: whether the model writes `<think>` itself; since Qwen3.5 the template does.
    """

    def answer(request: Asked) -> Document:
        if request.path == "/v1/models":
            return {"object": "list", "data": []}
        expect(request, "POST", "/v1/chat/completions")
        only(request.body, "model messages", f"{CHAT_FIELDS} chat_template_kwargs")
        template = request.body.get("chat_template_kwargs", {})
        if not template.get("enable_thinking", True):
            return chat_completion(request.body, "Paris")
        if parser:
            return chat_completion(request.body, "Paris", reasoning_content="France, so")
        return chat_completion(request.body, f"{'<think>' if opened else ''}France, so</think>\n\nParis")

    return answer


def minimax(key: str, arguments: Document | None = None) -> Answer:
    """MiniMax: chat completions with the thinking inside the content, and Anthropic's messages below /anthropic."""
    messages = anthropic(key, arguments, prefix="/anthropic")

    def answer(request: Asked) -> Document:
        if request.path.startswith("/anthropic/"):
            return messages(request)
        authorised(request, "authorization", f"Bearer {key}")
        expect(request, "POST", "/v1/chat/completions")
        only(request.body, "model messages", f"{CHAT_FIELDS} reasoning_split")
        if not 0 < request.body.get("temperature", 1.0) <= 1:
            raise Refusal(400, "invalid params, temperature")
        if request.body.get("reasoning_split"):
            details = [{"type": "reasoning.text", "text": "France, so"}]
            return chat_completion(request.body, "Paris", reasoning_details=details)
        return chat_completion(request.body, "<think>\nFrance, so\n</think>\n\nParis")

    return answer


def bedrock(model: str, authorization: str, arguments: Document | None = None) -> Answer:
    """Bedrock's Converse: the model in the path, camel case, content blocks.

    Args:
        model: the model's id.
        authorization: what the header begins with: a signature's algorithm and key, or a bearer token.
        arguments: what the model calls the first tool with, until it sees a result.
    """

    def answer(request: Asked) -> Document:
        if not request.headers.get("authorization", "").startswith(authorization):
            raise Refusal(403, "The security token included in the request is invalid.")
        expect(request, "POST", f"/model/{model}/converse")
        only(request.body, "messages", "system inferenceConfig toolConfig additionalModelRequestFields")
        only(request.body.get("inferenceConfig", {}), "", "maxTokens temperature topP stopSequences")
        content: list[Document] = [{"text": "Paris"}]
        if "thinking" in request.body.get("additionalModelRequestFields", {}):
            thought = {"reasoningText": {"text": "France, so", "signature": "c2ln"}}
            content = [{"reasoningContent": thought}, *content]
        called = any("toolResult" in block for block in request.body["messages"][-1]["content"])
        if "toolConfig" in request.body and arguments is not None and not called:
            name = request.body["toolConfig"]["tools"][0]["toolSpec"]["name"]
            content = [*content[:-1], {"toolUse": {"toolUseId": "tooluse_1", "name": name, "input": arguments}}]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use" if "toolUse" in content[-1] else "end_turn",
            "usage": {"inputTokens": 11, "outputTokens": 3, "totalTokens": 14},
            "metrics": {"latencyMs": 1},
        }

    return answer


def instance_metadata(
    token: str, client_id: str | None = None, resource: str = "https://cognitiveservices.azure.com"
) -> Answer:
    """Azure's instance metadata service, which gives the tokens of managed identities."""

    def answer(request: Asked) -> Document:
        wanted = {"resource": resource} | ({"client_id": client_id} if client_id else {})
        asked = {name: value for name, value in request.query.items() if name != "api-version"}
        if request.path != "/metadata/identity/oauth2/token" or asked != wanted:
            raise Refusal(400, f"unexpected {request.path} {asked}")
        if request.headers.get("metadata") != "true":
            raise Refusal(400, "no Metadata header")
        return {
            "access_token": token,
            "expires_in": "86399",
            "expires_on": "4102444800",
            "resource": wanted["resource"],
            "token_type": "Bearer",
        }

    return answer
