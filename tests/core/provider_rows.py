"""Errors and endings as providers document them or were reported to send them; docs/statuses.md lists them."""

from typing import Any, NamedTuple

from skillopt_airflow.core.types import Status

REFUSED, TOO_LONG, TRUNCATED, MODEL_ERROR = Status.REFUSED, Status.TOO_LONG, Status.TRUNCATED, Status.MODEL_ERROR


class Row(NamedTuple):
    provider: str
    sends: str
    """As the page says it."""
    status: Status
    http_status: int
    body: Any
    """Of an error; of a whole answer its ending."""


def error(message: str, code: Any = None, kind: str | None = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def anthropic(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def minimax(code: int, message: str) -> dict[str, Any]:
    said = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": None}
    return said | {"input_sensitive": code == 1026, "base_resp": {"status_code": code, "status_msg": message}}


def failed_response(code: str, message: str) -> dict[str, Any]:
    said = {"id": "r", "object": "response", "status": "failed", "output": []}
    return said | {"error": {"code": code, "message": message}}


MODERATION = {"reasons": ["violence"], "flagged_input": "How do I", "provider_name": "OpenAI"}
ERRORS = [
    Row(
        "OpenAI",
        "400, code `content_policy_violation`",
        REFUSED,
        400,
        error("Your request was rejected as a result of our safety system.", "content_policy_violation"),
    ),
    Row(
        "OpenAI",
        "400, code `invalid_prompt`",
        REFUSED,
        400,
        error("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_prompt"),
    ),
    Row(
        "OpenAI",
        "200, a response with the status `failed` and the code `invalid_prompt`",
        REFUSED,
        200,
        failed_response("invalid_prompt", "flagged"),
    ),
    Row(
        "OpenAI",
        "400, codes `cyber_policy`, `bio_policy`",
        REFUSED,
        400,
        error("This content was flagged for possible biological risk.", "bio_policy"),
    ),
    Row(
        "Azure",
        "400, code `content_filter`, inner code `ResponsibleAIPolicyViolation`",
        REFUSED,
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            "content_filter",
            None,
            status=400,
            innererror={
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
            },
        ),
    ),
    Row(
        "Anthropic",
        '400, "Output blocked by content filtering policy"',
        REFUSED,
        400,
        anthropic("Output blocked by content filtering policy"),
    ),
    Row(
        "Bedrock",
        '400, "blocked by our content filters"',
        REFUSED,
        400,
        {"message": "This request has been blocked by our content filters. Please modify your prompt and try again."},
    ),
    Row(
        "Gemini",
        "200, `promptFeedback.blockReason`",
        REFUSED,
        200,
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}},
    ),
    Row(
        "Gemini, compatible URL",
        "200, a choice without a message and the ending `content_filter: RECITATION`",
        REFUSED,
        200,
        {"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "content_filter: RECITATION"}]},
    ),
    Row(
        "DeepSeek",
        '400, "Content Exists Risk"',
        REFUSED,
        400,
        error("Content Exists Risk", "invalid_request_error"),
    ),
    Row(
        "Alibaba",
        "400, code `data_inspection_failed`",
        REFUSED,
        400,
        error("Input data may contain inappropriate content.", "data_inspection_failed", "data_inspection_failed"),
    ),
    Row(
        "Alibaba, DashScope",
        "400, code `DataInspectionFailed`",
        REFUSED,
        400,
        {"code": "DataInspectionFailed", "message": "Output data is not allowed.", "request_id": "r"},
    ),
    Row(
        "OpenRouter",
        "403, `metadata` with `flagged_input`",
        REFUSED,
        403,
        {"error": {"code": 403, "message": "Moderation of the provider", "metadata": MODERATION}},
    ),
    Row(
        "OpenRouter",
        '403, "Your input was flagged"',
        REFUSED,
        403,
        {"error": {"code": 403, "message": 'm requires moderation on p. Your input was flagged for "violence".'}},
    ),
    Row(
        "OpenRouter",
        "400, the upstream's error in `metadata.raw`",
        REFUSED,
        400,
        {
            "error": {
                "code": 400,
                "message": "Provider returned error",
                "metadata": {"raw": '{"error":{"code":"data_inspection_failed"}}', "provider_name": "Alibaba"},
            }
        },
    ),
    Row(
        "Zhipu",
        "400, code `1301`",
        REFUSED,
        400,
        {"contentFilter": [{"level": 1, "role": "user"}], "error": {"code": "1301", "message": "系统检测到输入"}},
    ),
    Row("MiniMax", "200, `base_resp.status_code` 1026", REFUSED, 200, minimax(1026, "input new_sensitive")),
    Row("MiniMax", "200, `base_resp.status_code` 1027", REFUSED, 200, minimax(1027, "output")),
    Row(
        "MiniMax",
        '422, "input new_sensitive (1026)"',
        REFUSED,
        422,
        {"type": "error", "error": {"type": "unprocessable_entity_error", "message": "input new_sensitive (1026)"}},
    ),
    Row(
        "Moonshot",
        "400, type `content_filter`",
        REFUSED,
        400,
        error("The request was rejected because it was considered high risk", 400, "content_filter"),
    ),
    Row(
        "xAI",
        '403, "Content violates usage guidelines"',
        REFUSED,
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. API key ID: k, Failed check: SAFETY_CHECK_TYPE_BIO",
        },
    ),
    Row(
        "Mistral",
        "400, type `guardrail_violation`",
        REFUSED,
        400,
        {"object": "error", "message": "The input was rejected by the guardrail.", "type": "guardrail_violation"},
    ),
    Row(
        "Groq",
        "400, code `content_policy_violation`",
        REFUSED,
        400,
        error("The request was refused", "content_policy_violation"),
    ),
    Row(
        "Baidu",
        '400, "the prompt contains sensitive content"',
        REFUSED,
        400,
        error("the prompt contains sensitive content", "invalid_argument"),
    ),
    Row("StepFun", "451", REFUSED, 451, error("The content you provided is not allowed", None, "censorship_blocked")),
    Row(
        "Volcengine",
        "400, code `InputTextSensitiveContentDetected`",
        REFUSED,
        400,
        error("The request failed because of its text", "InputTextSensitiveContentDetected"),
    ),
    Row(
        "One API and similar gateways",
        "500, code `sensitive_words_detected`",
        REFUSED,
        500,
        error("user input", "sensitive_words_detected", "new_api_error"),
    ),
    Row(
        "LiteLLM",
        "400, `ContentPolicyViolationError`",
        REFUSED,
        400,
        error("litellm.BadRequestError: litellm.ContentPolicyViolationError: refused", "400", None),
    ),
    Row(
        "OpenAI",
        "400, code `context_length_exceeded`",
        TOO_LONG,
        400,
        error("Your input exceeds the limit of this model.", "context_length_exceeded"),
    ),
    Row(
        "OpenAI",
        '400, "max_tokens or model output limit was reached"',
        TOO_LONG,
        400,
        error("Could not finish the message because max_tokens or model output limit was reached."),
    ),
    Row(
        "OpenAI",
        "400, code `string_above_max_length`",
        TOO_LONG,
        400,
        error("Invalid 'messages[1].content': string too long.", "string_above_max_length"),
    ),
    Row(
        "Anthropic",
        '400, "prompt is too long"',
        TOO_LONG,
        400,
        anthropic("prompt is too long: 213462 tokens > 200000 maximum"),
    ),
    Row(
        "Anthropic",
        '400, "input length and `max_tokens` exceed context limit"',
        TOO_LONG,
        400,
        anthropic("input length and `max_tokens` exceed context limit: 199000 + 20000 > 200000"),
    ),
    Row(
        "Anthropic",
        "413, type `request_too_large`",
        TOO_LONG,
        413,
        anthropic("Request exceeds the maximum size", "request_too_large"),
    ),
    Row("any server or proxy", "413", TOO_LONG, 413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    Row(
        "vLLM",
        '400, "maximum context length"',
        TOO_LONG,
        400,
        {
            "error": {
                "message": "'max_tokens' is too large: 8192. This model's maximum context length is 65536 tokens and "
                "your request has 57879 input tokens (8192 > 65536 - 57879).",
                "type": "BadRequestError",
                "code": 400,
            }
        },
    ),
    Row(
        "SGLang, Together",
        '400, "longer than the model\'s context length"',
        TOO_LONG,
        400,
        {"object": "error", "message": "The input (61709 tokens) is longer than the model's context length (40960)."},
    ),
    Row(
        "llama.cpp",
        "400, type `exceed_context_size_error`",
        TOO_LONG,
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_ctx": 8192,
            }
        },
    ),
    Row(
        "llama.cpp, older",
        '500, "exceeds the available context size"',
        TOO_LONG,
        500,
        error("the request exceeds the available context size. try increasing the context size", 500, "server_error"),
    ),
    Row(
        "LM Studio",
        '400, "greater than the context length"',
        TOO_LONG,
        400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length (n_ctx)."},
    ),
    Row(
        "Ollama",
        '400, "exceeds the context length"',
        TOO_LONG,
        400,
        {"error": "the input length exceeds the context length"},
    ),
    Row(
        "Ollama Cloud",
        '400, "prompt too long"',
        TOO_LONG,
        400,
        {"error": "prompt too long; exceeded max context length by 4 tokens"},
    ),
    Row(
        "Gemini",
        '400, "The input token count exceeds"',
        TOO_LONG,
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
    Row(
        "Bedrock",
        '400, "Input is too long for requested model"',
        TOO_LONG,
        400,
        {"message": "Input is too long for requested model."},
    ),
    Row(
        "Groq",
        '400, "reduce the length of the messages"',
        TOO_LONG,
        400,
        error("Please reduce the length of the messages or completion.", "invalid_messages_length"),
    ),
    Row(
        "Mistral",
        '400, "too large for model with 32768 maximum context length"',
        TOO_LONG,
        400,
        {
            "object": "error",
            "message": "Prompt contains 40017 tokens, too large for model with 32768 maximum context length",
            "code": "3051",
        },
    ),
    Row(
        "Cohere",
        '400, "too many tokens"',
        TOO_LONG,
        400,
        {"message": "too many tokens: total number of tokens in the prompt cannot exceed 128000"},
    ),
    Row(
        "xAI",
        '400, "maximum prompt length"',
        TOO_LONG,
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."},
    ),
    Row("MiniMax", "200, `base_resp.status_code` 1039", TOO_LONG, 200, minimax(1039, "token limit")),
    Row(
        "MiniMax",
        '400, "context window exceeds limit (2013)"',
        TOO_LONG,
        400,
        anthropic("invalid params, context window exceeds limit (2013)"),
    ),
    Row(
        "Zhipu",
        "400, code `1261`",
        TOO_LONG,
        400,
        {"error": {"code": "1261", "message": "Prompt 超长"}},
    ),
    Row(
        "Alibaba",
        '400, "Range of input length should be"',
        TOO_LONG,
        400,
        error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"),
    ),
    Row(
        "Moonshot",
        '400, "exceeded model token limit"',
        TOO_LONG,
        400,
        error("Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)"),
    ),
    Row(
        "Baidu",
        "400, code `tokens_too_long`",
        TOO_LONG,
        400,
        error("the length of messages is over the limit", "tokens_too_long"),
    ),
    Row(
        "GitHub Models",
        "413, code `tokens_limit_reached`",
        TOO_LONG,
        413,
        error("Request body too large for gpt-4o model. Max size: 8000 tokens.", "tokens_limit_reached"),
    ),
    Row(
        "Hugging Face",
        '422, "`inputs` tokens + `max_new_tokens` must be <="',
        TOO_LONG,
        422,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.", "error_type": "v"},
    ),
]
ENDINGS = [
    Row("OpenAI and compatible", "`content_filter`", REFUSED, 200, "content_filter"),
    Row("Anthropic", "`refusal`", REFUSED, 200, "refusal"),
    Row("Bedrock", "`guardrail_intervened`", REFUSED, 200, "guardrail_intervened"),
    Row("Bedrock", "`content_filtered`", REFUSED, 200, "content_filtered"),
    *(
        Row("Gemini", f"`{name}`", REFUSED, 200, name)
        for name in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR")
    ),
    Row("Zhipu", "`sensitive`", REFUSED, 200, "sensitive"),
    Row("Cohere", "`ERROR_TOXIC`", REFUSED, 200, "ERROR_TOXIC"),
    Row("OpenAI and compatible", "`length`", TRUNCATED, 200, "length"),
    Row("Anthropic, Bedrock", "`max_tokens`", TRUNCATED, 200, "max_tokens"),
    Row("Gemini, Cohere", "`MAX_TOKENS`", TRUNCATED, 200, "MAX_TOKENS"),
    Row("Mistral", "`model_length`", TRUNCATED, 200, "model_length"),
    Row("OpenAI, responses", "`max_output_tokens`", TRUNCATED, 200, "max_output_tokens"),
    Row("Anthropic, Zhipu", "`model_context_window_exceeded`", TRUNCATED, 200, "model_context_window_exceeded"),
    Row("OpenRouter, Mistral", "`error`", MODEL_ERROR, 200, "error"),
    Row("DeepSeek", "`insufficient_system_resource`", MODEL_ERROR, 200, "insufficient_system_resource"),
    Row("Zhipu", "`network_error`", MODEL_ERROR, 200, "network_error"),
    Row("vLLM", "`abort`", MODEL_ERROR, 200, "abort"),
    Row("OpenAI, responses", "`failed`", MODEL_ERROR, 200, "failed"),
    Row("any server", "another name, an empty one or none, with a text", Status.OK, 200, ""),
    Row("any server", "another name, an empty one or none, without a text", Status.EMPTY, 200, None),
    Row(
        "Gemini",
        "`MALFORMED_FUNCTION_CALL`, without a text",
        Status.EMPTY,
        200,
        "function_call_filter: MALFORMED_FUNCTION_CALL",
    ),
]
OTHERS: list[tuple[int, Any]] = [
    (400, error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.")),
    (400, anthropic("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens")),
    (400, {"message": "The maximum tokens you requested exceeds the model limit of 4096. Try again with fewer."}),
    (400, error("`max_tokens` must be greater than `thinking.budget_tokens`.")),
    (400, error("Unable to submit request because it has a maxOutputTokens value of 100000.")),
    (
        400,
        error("Failed to call a function. Adjust your prompt.", "tool_use_failed", failed_generation="flagged"),
    ),
    (400, error("The model `m` does not exist", "model_not_found")),
    (400, error("Invalid schema for function 'f': the request violates its schema")),
    (400, error("Invalid value: 'unsafe'. Supported values are: 'auto' and 'default'.")),
    (401, error("Your access was terminated due to violation of our content policy")),
    (402, error("Insufficient balance: the prompt is too long for what is left")),
    (403, error("Your account was flagged for potential abuse.")),
    (403, error("Access terminated. Review our Community Guidelines", None, "access_terminated_error")),
    (404, error("No endpoints available matching your guardrail restrictions and data policy")),
    (422, {"detail": [{"loc": ["body", "top_p"], "msg": "Input should be a number", "input": "prompt was flagged"}]}),
    (429, error("Too many tokens, please wait before trying again.")),
    (503, error("The content filter is overloaded: content_filter")),
    (400, ""),
    (400, None),
    (500, "<html>Internal Server Error</html>"),
    (200, {"hello": 1}),
    (200, {"choices": [{"index": 0, "message": {"content": "The prompt was flagged: content_filter"}}]}),
    (200, {"output": [{"type": "message", "content": [{"type": "output_text", "text": "prompt is too long"}]}]}),
]
"""Errors of a setting, a key, an account or a load, and texts of the model that only mention such words."""
