"""Errors and endings as providers document them or were reported to send them; docs/statuses.md lists them."""

from typing import Any, NamedTuple

from skillopt_airflow.core.values.types import Status

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
# The body of each error, by its provider and by what the page says, which begins with the HTTP status.
REFUSALS: dict[tuple[str, str], Any] = {
    ("OpenAI", "400, code `content_policy_violation`"): error("It was rejected.", "content_policy_violation"),
    ("OpenAI", "400, code `invalid_prompt`"): error("Please try again with another one.", "invalid_prompt"),
    ("OpenAI", "200, a response with the status `failed` and the code `invalid_prompt`"): failed_response(
        "invalid_prompt", "flagged"
    ),
    ("OpenAI", "400, codes `cyber_policy`, `bio_policy`"): error("This is a possible risk.", "bio_policy"),
    ("Azure", "400, code `content_filter`, inner code `ResponsibleAIPolicyViolation`"): error(
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "content_filter",
        innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}},
    ),
    ("Anthropic", '400, "Output blocked by content filtering policy"'): anthropic(
        "Output blocked by content filtering policy"
    ),
    ("Bedrock", '400, "blocked by our content filters"'): {"message": "This has been blocked by our content filters."},
    ("Gemini", "200, `promptFeedback.blockReason`"): {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
    ("Gemini, compatible URL", "200, a choice without a message and the ending `content_filter: RECITATION`"): {
        "choices": [{"index": 0, "finish_reason": "content_filter: RECITATION"}]
    },
    ("DeepSeek", '400, "Content Exists Risk"'): error("Content Exists Risk", "invalid_request_error"),
    ("Alibaba", "400, code `data_inspection_failed`"): error("It is not allowed.", "data_inspection_failed"),
    ("Alibaba, DashScope", "400, code `DataInspectionFailed`"): {"code": "DataInspectionFailed", "message": "x"},
    ("OpenRouter", "403, `metadata` with `flagged_input`"): {
        "error": {"code": 403, "message": "Moderation of the provider", "metadata": MODERATION}
    },
    ("OpenRouter", '403, "Your input was flagged"'): {
        "error": {"code": 403, "message": 'm requires moderation on p. Your input was flagged for "violence".'}
    },
    ("OpenRouter", "400, the upstream's error in `metadata.raw`"): {
        "error": {"code": 400, "metadata": {"raw": '{"error":{"code":"data_inspection_failed"}}'}}
    },
    ("Zhipu", "400, code `1301`"): {"contentFilter": [{"level": 1}], "error": {"code": "1301", "message": "系统检测"}},
    ("MiniMax", "200, `base_resp.status_code` 1026"): minimax(1026, "input new_sensitive"),
    ("MiniMax", "200, `base_resp.status_code` 1027"): minimax(1027, "output"),
    ("MiniMax", '422, "input new_sensitive (1026)"'): anthropic("input new_sensitive (1026)"),
    ("Moonshot", "400, type `content_filter`"): error(
        "The request was rejected because it was considered high risk", 400, "content_filter"
    ),
    ("xAI", '403, "Content violates usage guidelines"'): {
        "error": "Content violates usage guidelines. API key ID: k, Failed check: SAFETY_CHECK_TYPE_BIO"
    },
    ("Mistral", "400, type `guardrail_violation`"): {"message": "It was stopped.", "type": "guardrail_violation"},
    ("Groq", "400, code `content_policy_violation`"): error("The request was refused", "content_policy_violation"),
    ("Baidu", '400, "the prompt contains sensitive content"'): error(
        "the prompt contains sensitive content", "invalid_argument"
    ),
    ("StepFun", "451"): error("The content you provided is not allowed", None, "censorship_blocked"),
    ("Volcengine", "400, code `InputTextSensitiveContentDetected`"): error(
        "The request failed because of its text", "InputTextSensitiveContentDetected"
    ),
    ("One API and similar gateways", "500, code `sensitive_words_detected`"): error(
        "user input", "sensitive_words_detected"
    ),
    ("LiteLLM", "400, `ContentPolicyViolationError`"): error(
        "litellm.BadRequestError: litellm.ContentPolicyViolationError: refused", "400", None
    ),
}
TOO_LONG_PROMPTS: dict[tuple[str, str], Any] = {
    ("OpenAI", "400, code `context_length_exceeded`"): error("It is over the limit.", "context_length_exceeded"),
    ("OpenAI", '400, "max_tokens or model output limit was reached"'): error(
        "Could not finish the message because max_tokens or model output limit was reached."
    ),
    ("OpenAI", "400, code `string_above_max_length`"): error("Invalid string.", "string_above_max_length"),
    ("Anthropic", '400, "prompt is too long"'): anthropic("prompt is too long: 213462 tokens > 200000 maximum"),
    ("Anthropic", '400, "input length and `max_tokens` exceed context limit"'): anthropic(
        "input length and `max_tokens` exceed context limit: 199000 + 20000 > 200000"
    ),
    ("Anthropic", "413, type `request_too_large`"): anthropic("Request exceeds the maximum size", "request_too_large"),
    ("any server or proxy", "413"): "<html><h1>413 Request Entity Too Large</h1></html>",
    ("vLLM", '400, "maximum context length"'): error(
        "'max_tokens' is too large: 8192. This model's maximum context length is 65536 tokens and "
        "your request has 57879 input tokens (8192 > 65536 - 57879)."
    ),
    ("SGLang, Together", '400, "longer than the model\'s context length"'): {
        "message": "The input (61709 tokens) is longer than the model's context length (40960)."
    },
    ("llama.cpp", "400, type `exceed_context_size_error`"): error("It is too much.", 400, "exceed_context_size_error"),
    ("llama.cpp, older", '500, "exceeds the available context size"'): error(
        "the request exceeds the available context size. try increasing the context size", 500, "server_error"
    ),
    ("LM Studio", '400, "greater than the context length"'): {
        "error": "The number of tokens to keep from the initial prompt is greater than the context length (n_ctx)."
    },
    ("Ollama", '400, "exceeds the context length"'): {"error": "the input length exceeds the context length"},
    ("Ollama Cloud", '400, "prompt too long"'): {"error": "prompt too long; exceeded max context length by 4 tokens"},
    ("Gemini", '400, "The input token count exceeds"'): error(
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
    ),
    ("Bedrock", '400, "Input is too long for requested model"'): {"message": "Input is too long for requested model."},
    ("Groq", '400, "reduce the length of the messages"'): error(
        "Please reduce the length of the messages or completion."
    ),
    ("Mistral", '400, "too large for model with 32768 maximum context length"'): {
        "message": "Prompt contains 40017 tokens, too large for model with 32768 maximum context length"
    },
    ("Cohere", '400, "too many tokens"'): {
        "message": "too many tokens: total number of tokens in the prompt cannot exceed 128000"
    },
    ("xAI", '400, "maximum prompt length"'): {
        "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
    },
    ("MiniMax", "200, `base_resp.status_code` 1039"): minimax(1039, "token limit"),
    ("MiniMax", '400, "context window exceeds limit (2013)"'): anthropic(
        "invalid params, context window exceeds limit (2013)"
    ),
    ("Zhipu", "400, code `1261`"): {"error": {"code": "1261", "message": "Prompt 超长"}},
    ("Alibaba", '400, "Range of input length should be"'): error(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"
    ),
    ("Moonshot", '400, "exceeded model token limit"'): error(
        "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)"
    ),
    ("Baidu", "400, code `tokens_too_long`"): error("the length is over the limit", "tokens_too_long"),
    ("GitHub Models", "413, code `tokens_limit_reached`"): error("Max size: 8000 tokens.", "tokens_limit_reached"),
    ("Hugging Face", '422, "`inputs` tokens + `max_new_tokens` must be <="'): {
        "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."
    },
}
ERRORS = [
    Row(provider, sends, status, int(sends.partition(",")[0]), body)
    for status, bodies in ((REFUSED, REFUSALS), (TOO_LONG, TOO_LONG_PROMPTS))
    for (provider, sends), body in bodies.items()
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
    Row("Gemini", "`MALFORMED_FUNCTION_CALL`, without a text", Status.EMPTY, 200, "x_filter: MALFORMED_FUNCTION_CALL"),
]
OTHERS: list[tuple[int, Any]] = [
    (400, error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.")),
    (400, anthropic("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens")),
    (400, {"message": "The maximum tokens you requested exceeds the model limit of 4096. Try again with fewer."}),
    (400, error("`max_tokens` must be greater than `thinking.budget_tokens`.")),
    (400, error("Unable to submit request because it has a maxOutputTokens value of 100000.")),
    (400, error("Failed to call a function. Adjust your prompt.", "tool_use_failed", failed_generation="flagged")),
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
