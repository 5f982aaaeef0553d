import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT, FormatError, filter_request, parse_object

DIALECTS = sorted(WIRE_FORMATS)
ADDRESS = "https://listener.invalid/?secret"
PIXEL = "data:image/png;base64,AAAA"
HI = [{"role": "user", "content": "hi"}]
REQUESTS = {
    "openai-chat": {"model": "m", "messages": HI, "max_completion_tokens": 9},
    "openai": {"model": "m", "input": HI, "max_output_tokens": 9},
    "anthropic": {"model": "m", "messages": HI, "max_tokens": 9},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SCHEMA = {"type": "object", "properties": {"image_url": {"type": "string", "default": ADDRESS}}, "$defs": {"a": {}}}


def left(document, dialect="openai-chat", **more):
    return json.loads(filter_request(document, WIRE_FORMATS[dialect], **more))


def with_part(part, dialect="openai-chat"):
    """A request whose only message has one part."""
    name = "input" if dialect == "openai" else "messages"
    return REQUESTS[dialect] | {name: [{"role": "user", "content": [part]}]}


OF_CHAT = {
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"url": "http://x"}'}}
            ],
        },
        {"role": "tool", "content": "r", "tool_call_id": "c"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "temperature": 0,
    "top_p": 0.5,
    "seed": 7,
    "stop": ["x"],
    "stream": False,
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "chat_template_kwargs": {"enable_thinking": False, "thinking_budget": 5},
}
OF_CODEX = {
    "input": [
        {"type": "message", "id": "m", "role": "developer", "content": [{"type": "input_text", "text": "t"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": "high"}]},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": None,
            "encrypted_content": "e",
        },
        {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "id": "o", "call_id": "c", "output": "hi"},
        {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** Begin Patch"},
        {
            "type": "custom_tool_call_output",
            "call_id": "d",
            "output": [{"type": "input_image", "image_url": PIXEL, "detail": "original"}],
        },
    ],
    "tools": [
        {"type": "function", "name": "f", "description": "d", "strict": False, "parameters": SCHEMA},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
        {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "g"}]},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "store": False,
    "stream": True,
}
CACHED = {"cache_control": {"type": "ephemeral"}}
OF_CLAUDE_CODE = {
    "system": [{"type": "text", "text": "s", **CACHED}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
        {"role": "system", "content": "the skills"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "c2ln"},
                {"type": "tool_use", "id": "u", "name": "Read", "input": {"image_url": ADDRESS, "tools": [{}]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "A"},
                        },
                    ],
                    "is_error": False,
                    **CACHED,
                }
            ],
        },
    ],
    "tools": [{"name": "Bash", "description": "d", "input_schema": SCHEMA}, {"type": "custom", "name": "f"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stream": True,
}


@pytest.mark.parametrize(
    ("dialect", "asked"), [("openai-chat", OF_CHAT), ("openai", OF_CODEX), ("anthropic", OF_CLAUDE_CODE)]
)
def test_the_requests_of_the_harnesses_and_their_clis_leave_as_they_are(dialect, asked):
    """Fields and parts of requests that Codex 0.169 and Claude Code 2.1.197 posted, and of pydantic-ai's."""
    request = REQUESTS[dialect] | asked
    assert left(request, dialect) == request


@given(st.dictionaries(st.text(), JSON, max_size=5), st.sampled_from(DIALECTS))
def test_a_field_that_no_format_lists_is_dropped(document, dialect):
    assert (
        left({f"x{name}": value for name, value in document.items()} | REQUESTS[dialect], dialect) == REQUESTS[dialect]
    )
    assert parse_object(json.dumps(document)) == document


DROPPED = [
    *("models", "fallbacks", "route", "provider", "preset", "plugins", "mcp_servers", "container"),
    *("context_window_fallbacks", "tags", "metadata", "user", "content_policy_fallbacks", "n", "best_of"),
    *("n_predict", "min_tokens", "background", "enable_code_interpreter", "service_tier", "speed"),
    *("inference_geo", "lora_path", "lora", "lora_request", "bootstrap_host", "kv_transfer_params"),
    *("data_sources", "dataSources", "api_base", "web_search_options", "webSearchOptions", "enable_search"),
    *("search_parameters", "prompt", "previous_response_id", "conversation", "mock_response", "extra_body"),
    *("toolConfig", "tool_config", "functions", "extraBody", "chat_template", "Tools", "TOOLS", "maxTokens"),
    *("responseFormat", "modalities", "audio"),
]
"""Fields by which a provider acts or another model answers."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_field_by_which_a_provider_acts_or_another_model_answers_is_dropped(dialect):
    for value in ("x", 128, ["x"], {"id": ADDRESS}):
        assert left(REQUESTS[dialect] | dict.fromkeys(DROPPED, value), dialect) == REQUESTS[dialect]


@pytest.mark.parametrize(
    ("dialect", "asked", "kept"),
    [
        (
            "openai-chat",
            {"chat_template_kwargs": {"chat_template": "x", "enable_thinking": True}},
            {"enable_thinking": True},
        ),
        ("openai-chat", {"stream_options": {"include_usage": True, "extra_body": {}}}, {"include_usage": True}),
        ("openai-chat", {"response_format": {"type": "text", "extra_body": {}}}, {"type": "text"}),
        ("openai-chat", {"tool_choice": {"type": "function", "function": {"name": "f", "x": 1}, "y": 1}}, None),
        ("openai", {"reasoning": {"effort": "low", "extra_body": {}, "generate_summary": "x"}}, {"effort": "low"}),
        ("openai", {"text": {"verbosity": "low", "extra_body": {}}}, {"verbosity": "low"}),
        ("anthropic", {"thinking": {"type": "adaptive", "extra_body": {}}}, {"type": "adaptive"}),
        ("anthropic", {"output_config": {"effort": "low", "task_budget": {"total": 1}}}, {"effort": "low"}),
    ],
)
def test_what_no_format_lists_within_a_field_is_dropped(dialect, asked, kept):
    ((name, value),) = asked.items()
    kept = {"type": "function", "function": {"name": "f"}} if kept is None else kept
    assert left(REQUESTS[dialect] | asked, dialect)[name] == kept
    assert value != kept


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "external_web_access": True},
        {"type": "mcp", "server_url": ADDRESS},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": ["function"]},
        {"type": "Function", "name": "f"},
        {"type": "googleSearch"},
        "web_search",
        None,
    ],
)
def test_a_tool_of_the_provider_is_dropped_and_those_of_the_client_stay(tool, dialect):
    mine = {
        "openai-chat": {"type": "function", "function": {"name": "f"}},
        "openai": {"type": "function", "name": "f"},
        "anthropic": {"name": "f"},
    }[dialect]
    choice = {"type": "auto"} if dialect == "anthropic" else "auto"
    request = REQUESTS[dialect]
    asked = {"tools": [tool, mine | {"googleSearch": {}, "extra_body": {}}], "tool_choice": choice}
    assert left(request | asked, dialect) == request | {"tools": [mine], "tool_choice": choice}
    # Some servers refuse an empty list, or a choice among no tools.
    assert left(request | {"tools": [tool], "tool_choice": choice}, dialect) == request


@pytest.mark.parametrize("tool", [{"googleSearch": {}}, {"codeExecution": {}}, {"url_context": {}}, {"name": 5}, {}])
def test_a_tool_without_a_type_needs_a_name(tool):
    for dialect in ("openai-chat", "openai"):
        assert left(REQUESTS[dialect] | {"tools": [tool]}, dialect) == REQUESTS[dialect]
    with pytest.raises(FormatError, match=r"tools\.0\.name"):
        left(REQUESTS["anthropic"] | {"tools": [tool]}, "anthropic")


def test_the_tools_of_a_namespace_are_filtered_too():
    mine = {"type": "function", "name": "f"}
    space = {
        "type": "namespace",
        "name": "n",
        "tools": [{"type": "web_search"}, mine, {"type": "namespace", "name": "x"}],
    }
    assert left(REQUESTS["openai"] | {"tools": [space]}, "openai")["tools"] == [space | {"tools": [mine]}]


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        ("openai-chat", {"type": "image_url", "image_url": {"url": ADDRESS}}),
        ("openai-chat", {"type": "image_url", "image_url": ADDRESS}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": f"{PIXEL},{ADDRESS}"}}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": f" {ADDRESS}"}}),
        ("openai-chat", {"type": "image_url", "imageUrl": {"url": ADDRESS}}),
        ("openai-chat", {"type": "video_url", "video_url": {"url": ADDRESS}}),
        ("openai-chat", {"image_url": {"url": ADDRESS}}),
        ("openai-chat", {"type": ["text"], "text": "t"}),
        ("openai-chat", {"type": "text", "text": {"url": ADDRESS}}),
        ("openai-chat", "t"),
        ("openai", {"type": "input_image", "image_url": ADDRESS}),
        ("openai", {"type": "input_image", "file_id": "file-1"}),
        ("openai", {"type": "input_image", "image_url": "ht\ttp://listener.invalid"}),
        ("anthropic", {"type": "image", "source": {"type": "url", "url": ADDRESS}}),
        ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "f"}}),
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ADDRESS}}),
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
        (
            "anthropic",
            {"type": "tool_result", "content": [{"type": "document", "source": {"type": "url", "url": ADDRESS}}]},
        ),
        ("anthropic", {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "f"}}}),
        ("anthropic", {"type": "server_tool_use", "name": "web_search", "input": {}}),
    ],
)
def test_a_part_of_another_kind_or_with_a_url_is_refused(dialect, part):
    with pytest.raises(FormatError, match=r"(messages|input)\.(option\.)?0") as refused:
        filter_request(with_part(part, dialect), WIRE_FORMATS[dialect])
    assert "listener" not in str(refused.value)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "additional_tools", "tools": [{"type": "web_search"}]},
        {"type": "tool_search_output", "tools": [{"type": "mcp", "server_url": ADDRESS}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]},
        {"content": "hi"},
        0,
    ],
)
def test_an_item_of_another_kind_is_refused(item):
    with pytest.raises(FormatError, match=r"input"):
        left(REQUESTS["openai"] | {"input": [item]}, "openai")


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [
        ("openai-chat", "messages", {"role": "user"}),
        ("openai-chat", "messages", [{"role": "function", "content": "x"}]),
        ("openai-chat", "model", ["m", "other"]),
        ("openai-chat", "temperature", "0"),
        ("openai-chat", "stop", [{"url": ADDRESS}]),
        ("openai-chat", "max_tokens", 0),
        ("openai-chat", "reasoning_effort", "x" * 300),
        ("openai-chat", "response_format", {"type": "url"}),
        ("openai-chat", "tools", {"googleSearch": {}}),
        ("openai", "include", ["web_search_call.action.sources"]),
        ("openai", "store", True),
        ("openai", "tool_choice", {"type": "mcp", "server_label": "x"}),
        ("anthropic", "system", [{"type": "image", "source": {"type": "url", "url": ADDRESS}}]),
        ("anthropic", "context_management", {"edits": [{"type": "compact_20260112"}]}),
        ("anthropic", "thinking", {"type": "url"}),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(dialect, name, value):
    with pytest.raises(FormatError, match=name):
        left(REQUESTS[dialect] | {name: value}, dialect)


@pytest.mark.parametrize("reference", [ADDRESS, "file:///etc/passwd", "other.json#/a", ""])
@pytest.mark.parametrize("name", ["$ref", "$dynamicRef"])
def test_a_schema_refers_to_no_other_document(reference, name):
    def tools(schema):
        return [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]

    with pytest.raises(FormatError, match="another document"):
        left(REQUESTS["openai-chat"] | {"tools": tools({name: reference})})
    for harmless in ({name: "#/$defs/a"}, {"description": f'{{"{name}":"{reference}"}}'}):
        assert left(REQUESTS["openai-chat"] | {"tools": tools(harmless)})["tools"] == tools(harmless)


@pytest.mark.parametrize(
    ("dialect", "asked", "kept"),
    [
        ("openai-chat", {}, {"max_completion_tokens": 100}),
        ("openai-chat", {"max_completion_tokens": None}, {"max_completion_tokens": 100}),
        ("openai-chat", {"max_tokens": 10**30}, {"max_tokens": 100}),
        ("openai-chat", {"max_tokens": 7}, {"max_tokens": 7}),
        (
            "openai-chat",
            {"max_tokens": 7, "max_completion_tokens": 101},
            {"max_tokens": 7, "max_completion_tokens": 100},
        ),
        ("openai", {}, {"max_output_tokens": 100}),
        ("openai", {"max_tokens": 7}, {"max_output_tokens": 100}),
        ("openai", {"max_output_tokens": 101}, {"max_output_tokens": 100}),
        ("anthropic", {}, {"max_tokens": 100}),
        ("anthropic", {"max_tokens": 99}, {"max_tokens": 99}),
    ],
)
def test_every_request_has_a_limit_of_tokens_and_none_above_the_runs(dialect, asked, kept):
    request = {"model": "m", "input" if dialect == "openai" else "messages": HI}
    assert left(request | asked, dialect, limit=100) == request | kept
    assert max(left(request, dialect).values(), key=lambda value: isinstance(value, int) and value) == DEFAULT_LIMIT


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_chat_completions_have_to_be_asked_for_the_usage_of_a_stream(dialect):
    asked = {"stream_options": {"include_usage": True}} if dialect == "openai-chat" else {}
    request = REQUESTS[dialect]
    assert left(request | {"stream": True}, dialect) == request | {"stream": True} | asked
    assert left(request | {"stream": False}, dialect) == request | {"stream": False}


def test_text_leaves_in_as_many_bytes_as_it_came():
    request = with_part({"type": "text", "text": "é€😀" * 100})
    assert len(filter_request(request, WIRE_FORMATS["openai-chat"])) <= len(
        json.dumps(request, ensure_ascii=False).encode()
    )
    with pytest.raises(FormatError):
        left(with_part({"type": "text", "text": "\ud800"}))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_not_usable(text):
    try:
        document = parse_object(text)
    except FormatError:
        return
    assert isinstance(document, dict)


@pytest.mark.parametrize("depth", [100, 900, 990, 2000, 100_000])
def test_depth_is_no_way_to_break_it(depth):
    text = (
        '{"model": "m", "messages": [], "tools": [{"name": "f", "input_schema": {"x": '
        + "[" * depth
        + "]" * depth
        + "}}]}"
    )
    try:
        filter_request(parse_object(text), WIRE_FORMATS["anthropic"])
    except FormatError:
        assert depth > 100


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_flaw_of_many_is_explained_and_no_other(dialect):
    name = "input" if dialect == "openai" else "messages"
    for one in (0, {}, {"role": "user", "content": [0] * 100_000}, {"type": "x" * 10**6}):
        with pytest.raises(FormatError) as refused:
            left(REQUESTS[dialect] | {name: [one] * 100_000}, dialect)
        assert len(str(refused.value)) <= 300
