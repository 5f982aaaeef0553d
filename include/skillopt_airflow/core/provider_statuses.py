"""The one table from what model providers send to a rollout's status; docs/statuses.md shows it by provider."""

import json
import re
from collections.abc import Iterator, Mapping

from skillopt_airflow.core.types import JsonObject, Status

CODES: Mapping[Status, str] = {Status.REFUSED: "content_filter", Status.TOO_LONG: "context_length_exceeded"}
"""The code of an error that the gateway writes itself, by the status that it stands for."""
SENTENCES: Mapping[Status, str] = {
    Status.REFUSED: "the provider's content filter refused the prompt or the answer",
    Status.TOO_LONG: "the prompt, or the answer with it, is too long for the model or its server",
}
"""The beginning of a failed rollout's error."""
_OTHER_CAUSES = frozenset({401, 402, 404, 405, 408, 409, 429, 502, 503, 504, 529})
"""HTTP statuses of a key, an account, a URL or a load, whatever the error mentions."""
_CODE = re.compile(r"(?:error_|status_)?code|status")
_TEXT = re.compile(r"detail|error(?:_msg|_type)?|message|msg|raw|reason|status_msg|type")
"""Keys of an error whose values are the provider's words. Others, such as `input`, repeat the prompt."""
_MARK = re.compile(r"blockreason|contentfilter|flagged_input|(?:in|out)put_sensitive")
"""Keys whose value isn't empty only if a filter intervened: Gemini, Zhipu, OpenRouter, MiniMax."""
_NEAR = r"[^.;\n]{0,60}"
_SAID = r"\b(?:input|prompt|request|message|content|conversation|image|output|response|text|answer|completion)s?\b"
# First codes, then words. OpenAI, Azure, Alibaba, Bedrock, StepFun, One API, Zhipu (1301), MiniMax (1026, 1027);
# DeepSeek, Moonshot, OpenRouter, xAI, Anthropic, and Chinese providers.
_REFUSED = re.compile(
    r"content_?filter|content_?policy_?violation|invalid_prompt|responsibleaipolicy|data_?inspection_?failed|"
    r"censorship|guardrail\w*[ _](?:blocked|intervened|triggered|violat\w+)|moderation_blocked|safety_check|"
    r"\b(?:bio|cyber|misalignment)_policy|sensitive_?(?:words?|content)|new_sensitive|\bcode\W{1,4}1301\b|status_code\W{1,4}102[67]\b|"
    r"\(102[67]\)|content exists risk|considered high risk|for safety reasons|"
    rf"{_SAID}{_NEAR}\bflagged\b|{_SAID}{_NEAR}\bviolat\w+{_NEAR}\b(?:polic|guideline|terms|standard)|"
    rf"\b(?:blocked|filtered|refused|rejected|stopped)\b{_NEAR}\b(?:content (?:filter|manage|moderat|polic|safety)|"
    r"guardrail|moderation|safety)|\b(?:harmful|inappropriate|prohibited|sensitive|unsafe) (?:or \w+ )?"
    r"(?:content|chat|data|image|information|input|material|message|prompt|text|word)|"
    "敏感|违规(?:内容|信息)|内容违规|不安全(?:或|的?内容)|内容安全|内容审核|高风险"
)
# OpenAI, llama.cpp, Anthropic, GitHub, Qianfan, MiniMax (1039), Zhipu (1261); vLLM, OpenRouter, LM Studio, SGLang, xAI,
# Ollama, Groq, Cohere, Gemini, Bedrock, Alibaba, Hugging Face.
_TOO_LONG = re.compile(
    r"context_?(?:length_?|window_?)?exceeded|exceed_context_size|request_too_large|string_above_max_length|"
    r"(?:tokens|characters|prompt|input)_(?:limit_reached|too_(?:large|long))|status_code\W{1,4}1039\b|\(1039\)|"
    r"\bcode\W{1,4}1261\b|context (?:length|window|size|limit)s?\b[^;\n]{0,80}\bexceed|context size is \d|"
    r"exceed\w*\b[^;\n]{0,80}\bcontext\b|(?:greater|larger|longer|more) than (?:\S+ ){0,4}(?:length|context|window)\b|"
    r"max(?:imum)? (?:allowed )?(?:context|input|model|prompt|sequence) ?(?:length|size|token)|range of input length|"
    rf"{_SAID}(?: \w+){{0,3}} too (?:big|large|long)\b|\bimage\b{_NEAR}\bexceeds?\b{_NEAR}\bmax|"
    rf"\b(?:prompt|input|payload|request (?:body|size))s?\b{_NEAR}\bexceed|inputs\W{{1,2}}tokens \+|"
    rf"\btokens?\b{_NEAR}\bexceed\w*\b{_NEAR}\b(?:limit|max|model)|too many (?:\w+ )?tokens|\boutput limit was reached|"
    rf"less than \d+ tokens|exceed\w* (?:the |your )?(?:max\w*|model)\b{_NEAR}\b(?:length|token)|"
    r"reduce (?:the |your )?(?:context|input|length|message|prompt|size)|"
    "(?:长度|上下文|字数|token)[^。]{0,20}(?:超|过长)|超[^。]{0,20}(?:长度|上下文)"
)
_SETTING = re.compile(r"max\w*[ _-]?(?:\w+[ _-])?tokens?")
_PROMPT = re.compile(r"context|input|messages\b|the message|prompt|too long")
"""An error about a limit of tokens that mentions nothing of these is about a setting, and concerns every prompt."""
_ENDINGS: Mapping[Status, re.Pattern[str]] = {
    # The model called a tool in a way that can't be read: its answer is what it said.
    Status.OK: re.compile(r"malformed_\w+|unexpected_tool_call"),
    Status.REFUSED: re.compile(
        r"content_?filter\w*|(?:image_)?(?:safety|recitation|prohibited_content)|blocklist|spii|model_armor|sensitive\w*|"
        r"guardrail_\w+|refusal|moderation\w*|flagged|data_?inspection_?failed|\w+_toxic"
    ),
    Status.TRUNCATED: re.compile(
        r"length|max_(?:\w+_)?(?:tokens|length)|model_(?:length|context_\w+)|context_\w+|token_limit"
    ),
    Status.MODEL_ERROR: re.compile(r"\w*error\w*|insufficient_system_resource|abort\w*|failed|cancell?ed"),
}
_HTTP_CODE = re.compile(r"^(?:code|status)=([45]\d\d)$", re.MULTILINE)
_MINIMAX = {"1002": 429, "1004": 401, "1008": 402, "2013": 400, "2049": 401}
"""HTTP statuses of the errors that MiniMax sends with status 200."""


def error_status(http_status: int, body: object) -> Status | None:
    """Return `refused` or `too_long` if an error says so; None for any other, which is a `model_error`.

    Args:
        http_status: of the answer; 0 if it isn't known, 200 for a document that isn't an answer.
        body: its JSON as values, or its text.
    """
    if http_status in _OTHER_CAUSES:
        return None
    said = _said(body)
    if http_status == 451 or _REFUSED.search(said):
        return Status.REFUSED
    is_setting = _SETTING.search(said) is not None and _PROMPT.search(said) is None
    return Status.TOO_LONG if http_status == 413 or (_TOO_LONG.search(said) and not is_setting) else None


def ending_status(*endings: object) -> Status:
    """Return the status of an answer that has a text, by its ending's names; an unknown or empty one is `ok`."""
    names = [name for one in endings if one for name in re.split(r"[^a-z_]+", str(one).lower().replace("-", "_"))]
    return next((status for status, known in _ENDINGS.items() if any(map(known.fullmatch, names))), Status.OK)


def failed_with(document: JsonObject) -> int:
    """Return the HTTP status that belongs to a failure sent with status 200; 0 if a document reports no failure."""
    if error_status(200, document) is not None:
        return 400
    if found := _HTTP_CODE.search(_said(document)):
        return int(found[1])
    own, choices = document.get("base_resp"), document.get("choices")
    if isinstance(own, dict) and own.get("status_code"):
        return _MINIMAX.get(str(own["status_code"]), 502)
    parts = [part for part in (document, *(choices if isinstance(choices, list) else ())) if isinstance(part, dict)]
    broken = (ending_status(part.get("finish_reason"), part.get("status")) is Status.MODEL_ERROR for part in parts)
    return 502 if any(part.get("error") for part in parts) or any(broken) else 0


def _said(body: object) -> str:
    """Return the provider's words, one value a line; of JSON within a text as well as by itself."""
    if not isinstance(body, str | bytes):
        return "\n".join(_words(body))
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    before, brace, rest = text.partition("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(brace + rest)
    except (ValueError, RecursionError):
        return text.lower()
    return "\n".join((before.lower(), *_words(document)))


def _words(document: object) -> Iterator[str]:
    # Without recursion, which a document could exhaust.
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        if value and (_MARK.fullmatch(key) or (key == "finish_reason" and ending_status(value) is Status.REFUSED)):
            yield CODES[Status.REFUSED]
        if isinstance(value, dict):
            waiting += [(str(name).lower(), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inner) for inner in value]
        elif value is not None and (_CODE.fullmatch(key) or _TEXT.fullmatch(key)):
            yield f"{key}={value}".lower() if _CODE.fullmatch(key) else str(value).lower()
