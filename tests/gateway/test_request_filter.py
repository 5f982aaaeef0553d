import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.gateway.request_filter import KEPT_BACK, NotUsable, contained, parsed

DIALECTS = sorted(WIRE_FORMATS)
ADDRESS = "https://listener.invalid/?secret"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def left(document, dialect="openai-chat"):
    return json.loads(contained(document, WIRE_FORMATS[dialect]))


@given(st.dictionaries(st.text(), JSON, max_size=5), st.sampled_from(DIALECTS))
def test_an_ordinary_request_leaves_as_it_is(document, dialect):
    document = {f"x{name}": value for name, value in document.items()} | {"model": "m"}
    assert left(document, dialect) == document
    assert parsed(json.dumps(document)) == document


@pytest.mark.parametrize("name", sorted(KEPT_BACK))
def test_what_leads_elsewhere_is_taken_out(name):
    assert left({"model": "m", name: ["x"], "temperature": 0}) == {"model": "m", "temperature": 0}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "web_search_preview_2025_03_11"},
        {"type": "mcp", "server_url": ADDRESS},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}},
        {"type": "shell", "environment": {}},
        {"type": "shell", "environment": "container_auto"},
        {"type": ["function"]},
        "web_search",
    ],
)
def test_tools_of_the_provider_are_taken_out_and_those_of_the_client_stay(tool):
    mine = [
        {"type": "function", "function": {"name": "f", "parameters": {"properties": {"image_url": "https://x"}}}},
        {"type": "custom", "name": "apply_patch"},
        {"name": "Bash", "input_schema": {}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "shell"},
        {"type": "shell", "environment": {"type": "local"}},
    ]
    assert left({"model": "m", "tools": [tool, *mine], "tool_choice": "auto"}) == {
        "model": "m",
        "tools": mine,
        "tool_choice": "auto",
    }
    assert left({"model": "m", "tools": [tool], "tool_choice": "auto"}) == {"model": "m"}


def test_tools_of_the_provider_do_not_come_with_a_message_either():
    mine = {"type": "function", "name": "f"}
    theirs = [{"type": "mcp", "server_url": ADDRESS}, {"type": "web_search"}]
    for kind in ("additional_tools", "tool_search_output"):
        item = {"type": kind, "tools": [*theirs, mine]}
        assert left({"model": "m", "input": [item]}, "openai") == {"model": "m", "input": [item | {"tools": [mine]}]}
    space = {"type": "namespace", "name": "n", "tools": [*theirs, mine]}
    assert left({"model": "m", "tools": [space]}, "openai")["tools"] == [space | {"tools": [mine]}]


def test_a_message_adds_tools_of_the_client_alone():
    def adding(definition):
        block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
        return {"model": "m", "messages": [{"role": "user", "content": [block]}]}

    mine = adding({"name": "f", "input_schema": {}})
    assert left(mine, "anthropic") == mine
    with pytest.raises(NotUsable, match="adds a tool"):
        left(adding({"type": "web_fetch_20250910", "name": "web_fetch"}), "anthropic")


def test_what_a_tool_is_called_with_stays():
    call = {"type": "tool_use", "name": "f", "input": {"tools": [{"type": "web_search"}]}}
    request = {"model": "m", "messages": [{"role": "assistant", "content": [call]}]}
    assert left(request, "anthropic") == request


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": ADDRESS}},
        {"type": "input_image", "image_url": ADDRESS},
        {"type": "input_file", "file_url": ADDRESS},
        {"type": "image", "source": {"type": "url", "url": ADDRESS}},
        {"type": "tool_result", "content": [{"type": "document", "source": {"type": "url", "url": ADDRESS}}]},
        {"type": "input_image", "image_url": "HTTPS://listener.invalid"},
        {"type": "input_image", "image_url": "file:///etc/passwd"},
        {"type": "image", "source": {"url": ADDRESS}},
        {"type": "tool_use", "image_url": ADDRESS},
        {"type": "tool_use", "source": {"type": "url", "url": ADDRESS}},
        {"type": "tool_use", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]},
        {"type": "file", "file": {"file_data": ADDRESS}},
        {"type": "file", "file": {"file_id": "http://listener.invalid"}},
        {"type": "document_url", "document_url": ADDRESS},
        {"type": "input_audio", "input_audio": {"data": f" {ADDRESS}"}},
        {"type": "video", "video": ["data:image/png;base64,AAAA", ADDRESS]},
        {"type": "video", "video": [{"url": ADDRESS}]},
        {"type": "image", "image": "ht\ttp://listener.invalid"},
        {"type": "image", "image": "\x01http://listener.invalid"},
        {"type": "image", "image": "http:\t/\n/listener.invalid"},
        {"type": "image", "images": [ADDRESS]},
        {"type": "input_audio", "input_audio": {"type": "text", "data": ADDRESS}},
    ],
)
def test_the_provider_is_sent_to_no_address(part):
    with pytest.raises(NotUsable, match="fetch an address") as refused:
        contained({"model": "m", "messages": [{"role": "user", "content": [part]}]}, WIRE_FORMATS["openai-chat"])
    assert "listener" not in str(refused.value)


def test_a_message_that_calls_itself_a_use_of_a_tool_is_read_like_any_other():
    content = [{"type": "image_url", "image_url": {"url": ADDRESS}}]
    for document in (
        {"messages": [{"role": "user", "type": "tool_use", "content": content}]},
        {"type": "tool_use", "input": [{"role": "user", "content": content}]},
    ):
        with pytest.raises(NotUsable, match="fetch an address"):
            contained({"model": "m"} | document, WIRE_FORMATS["openai"])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "text", "text": f'{{"image_url": "{ADDRESS}"}}'},
        {"type": "tool_use", "name": "download", "input": {"image_url": ADDRESS}},
        {"type": "search_result", "source": ADDRESS, "content": []},
        {"type": "function_call", "arguments": f'{{"file_url": "{ADDRESS}"}}'},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "//uQAAAA", "format": "mp3"}},
        {"type": "url_citation", "url_citation": {"url": ADDRESS}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": f"{ADDRESS} says hello"}},
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {"base_url": ADDRESS}}},
    ],
)
def test_contents_and_words_about_addresses_pass(part):
    document = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    assert left(document) == document


def test_what_a_request_says_besides_its_messages_is_no_address():
    document = {"model": "m", "messages": [], "metadata": {"repo_url": ADDRESS}, "text": {"format": {"a_url": ADDRESS}}}
    schema = {"properties": {"avatar_url": {"type": "string", "examples": [ADDRESS]}}, "examples": [{"a_url": ADDRESS}]}
    document["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert left(document) == document


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_chat_completions_have_to_be_asked_for_the_usage_of_a_stream(dialect):
    asked = {"stream_options": {"include_usage": True}} if dialect == "openai-chat" else {}
    assert left({"model": "m", "stream": True}, dialect) == {"model": "m", "stream": True} | asked
    assert left({"model": "m", "stream": False}, dialect) == {"model": "m", "stream": False}


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_not_usable(text):
    try:
        document = parsed(text)
    except NotUsable:
        return
    assert isinstance(document, dict)


@pytest.mark.parametrize("depth", [100, 900, 990, 2000, 100_000])
def test_depth_is_no_way_to_break_it(depth):
    text = '{"model": "m", "x": ' + "[" * depth + "]" * depth + "}"
    try:
        contained(parsed(text), WIRE_FORMATS["openai"])
    except NotUsable:
        assert depth > 100
