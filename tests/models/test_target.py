import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Message, ModelCall
from skillopt_airflow.models.target import PydanticAITarget

PICTURE = b"\x89PNG\r\n\x1a\nvery small"
CONVERSATION = [
    Message(role="system", content="the skill"),
    Message(role="user", content="the clue"),
    Message(role="assistant", content="an answer"),
    Message(role="user", content="Why?"),
]


def test_the_whole_conversation_reaches_the_model_with_the_settings_of_a_rollout() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []
    calls: list[ModelCall] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse(parts=[TextPart("because")], usage=RequestUsage(input_tokens=9, output_tokens=2))

    model = FunctionModel(respond, model_name="m")
    with PydanticAITarget(model, calls.append, {"temperature": 0.5, "max_tokens": 77}) as target:
        assert target.ask("follow_up", CONVERSATION, {}) == "because"
    [(messages, info)] = seen
    parts = [
        part for message in messages if isinstance(message, ModelRequest | ModelResponse) for part in message.parts
    ]
    assert [str(getattr(part, "content", "")) for part in parts] == [message.content for message in CONVERSATION]
    assert info.model_settings is not None
    assert (info.model_settings.get("temperature"), info.model_settings.get("max_tokens")) == (0.5, 77)
    (call,) = calls
    assert (call.role, call.stage, call.http_status) == ("target", "follow_up", 200)
    assert (call.prompt_tokens, call.completion_tokens) == (9, 2)


@pytest.mark.parametrize(
    ("turns", "prompts"),
    [
        (
            [("user", f"Is {mark('a.png')} red?"), ("assistant", "yes"), ("user", f"Why? {mark('a.png')}")],
            [["Is ", BinaryContent(PICTURE, media_type="image/png"), " red?"], "Why? [picture: a.png]"],
        ),
        (
            [("user", "the clue"), ("assistant", "an answer"), ("user", "Why?"), ("user", "Tell.")],
            ["the clue", "Why?\n\nTell."],
        ),
    ],
)
def test_pictures_are_shown_once_and_what_the_user_says_in_a_row_is_one_turn(
    turns: list[tuple[str, str]], prompts: list[object]
) -> None:
    seen: list[ModelMessage] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("because")])

    with PydanticAITarget(FunctionModel(respond), [].append, {}) as target:
        said = [Message.model_validate({"role": role, "content": text}) for role, text in turns]
        target.ask("follow_up", said, {"a.png": PICTURE})
    assert [part.content for turn in seen for part in turn.parts if isinstance(part, UserPromptPart)] == prompts


def test_a_provider_that_does_not_answer_is_a_model_error_and_still_a_call() -> None:
    calls: list[ModelCall] = []

    def refuse(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(503, "m", "overloaded")

    with (
        PydanticAITarget(FunctionModel(refuse), calls.append, {"max_tokens": 7}) as target,
        pytest.raises(ModelError, match="follow_up: the target model did not answer"),
    ):
        target.ask("follow_up", CONVERSATION, {})
    assert [call.http_status for call in calls] == [503]
