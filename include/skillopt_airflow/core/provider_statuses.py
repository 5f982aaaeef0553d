"""The one table from what model providers send to a rollout's status; docs/statuses.md shows it by provider."""

import json
import re
from collections.abc import Iterator, Mapping

from skillopt_airflow.core.types import JsonObject, Status

CODES: Mapping[Status, str] = {Status.REFUSED: "content_filter", Status.TOO_LONG: "context_length_exceeded"}
"""The code of an error that the gateway translates, by the status that it stands for."""
SENTENCES: Mapping[Status, str] = {
    Status.REFUSED: "the provider's content filter refused the prompt or the answer",
    Status.TOO_LONG: "the prompt, or the answer with it, is too long for the model or its server",
}
"""The beginning of a failed rollout's error."""

_OTHER_CAUSES = frozenset({401, 402, 404, 405, 408, 409, 429, 502, 503, 504, 529})
"""HTTP statuses of a key, an account, a URL or a load, whatever the error mentions."""
_CODES = frozenset(["code", "error_code", "status", "status_code"])
_TOLD = _CODES | frozenset(
    ["detail", "error", "error_msg", "error_type", "message", "msg", "raw", "reason", "status_msg", "type"]
)
"""Keys of an error whose values are the provider's words. Others, such as `input`, repeat the prompt."""
_MARKS = frozenset(
    ["blockreason", "block_reason", "contentfilter", "flagged_input", "input_sensitive", "output_sensitive"]
)
"""Keys whose value isn't empty only if a filter intervened: Gemini, Zhipu, OpenRouter, MiniMax."""
_NEAR = r"[^.;\n]{0,60}"
_TEXT = r"\b(?:input|prompt|request|message|content|conversation|image|output|response|text|answer|completion)s?\b"
_REFUSED = re.compile(
    "|".join(
        (
            # Codes: OpenAI, Azure, Alibaba, Bedrock, StepFun, gateways such as One API. Zhipu and MiniMax use numbers.
            r"content_?filter|content_?policy_?violation|invalid_prompt|responsibleaipolicy|data_?inspection_?failed",
            r"guardrail\w*[ _](?:blocked|intervened|triggered|violat\w+)|moderation_blocked|censorship",
            r"\b(?:bio|cyber|misalignment)_policy|safety_check|sensitive_?(?:words?|content)|new_sensitive",
            r"\bcode\W{1,4}1301\b|status_code\W{1,4}102[67]\b|\(102[67]\)",
            # Words: DeepSeek, Moonshot, OpenRouter, xAI, Anthropic, Azure, Alibaba, and Zhipu in Chinese.
            r"content exists risk|considered high risk|for safety reasons",
            _TEXT + _NEAR + r"\bflagged\b",
            _TEXT + _NEAR + r"\bviolat\w+" + _NEAR + r"\b(?:polic|guideline|terms|standard)",
            r"\b(?:blocked|filtered|refused|rejected|stopped)\b" + _NEAR + r"\b"
            r"(?:content (?:filter|manage|moderat|polic|safety)|guardrail|moderation|safety)",
            r"\b(?:harmful|inappropriate|prohibited|sensitive|unsafe) (?:or \w+ )?"
            r"(?:content|chat|data|image|information|input|material|message|prompt|text|word)",
            "敏感|违规(?:内容|信息)|内容违规|不安全(?:或|的?内容)|内容安全|内容审核|高风险",
        )
    )
)
_TOO_LONG = re.compile(
    "|".join(
        (
            # Codes: OpenAI, llama.cpp, Anthropic, GitHub, Qianfan. MiniMax and Zhipu use numbers.
            r"context_?(?:length_?|window_?)?exceeded|exceed_context_size|request_too_large|string_above_max_length",
            r"(?:tokens|characters|prompt|input)_(?:limit_reached|too_(?:large|long))",
            r"status_code\W{1,4}1039\b|\(1039\)|\bcode\W{1,4}1261\b",
            # Words: vLLM, OpenRouter, llama.cpp, LM Studio, SGLang, xAI, Ollama, Groq, Cohere, Gemini, Alibaba, TGI.
            r"context (?:length|window|size|limit)s?\b[^;\n]{0,80}\bexceed|exceed\w*\b[^;\n]{0,80}\bcontext\b",
            r"(?:greater|larger|longer|more) than (?:\S+ ){0,4}(?:length|context|window)\b|context size is \d",
            r"max(?:imum)? (?:allowed )?(?:context|input|model|prompt|sequence) ?(?:length|size|token)",
            _TEXT + r"(?: \w+){0,3} too (?:big|large|long)\b|\bimage\b" + _NEAR + r"\bexceeds?\b" + _NEAR + r"\bmax",
            r"\b(?:prompt|input|payload|request (?:body|size))s?\b" + _NEAR + r"\bexceed",
            r"\btokens?\b" + _NEAR + r"\bexceed\w*\b" + _NEAR + r"\b(?:limit|max|model)",
            r"exceed\w* (?:the |your )?(?:max\w*|model)\b" + _NEAR + r"\b(?:length|token)|too many (?:\w+ )?tokens",
            r"reduce (?:the |your )?(?:context|input|length|message|prompt|size)|range of input length",
            r"\boutput limit was reached|less than \d+ tokens|inputs\W{1,2}tokens \+",
            "(?:长度|上下文|字数|token)[^。]{0,20}(?:超|过长)|超[^。]{0,20}(?:长度|上下文)",
        )
    )
)
_SETTING = re.compile(r"max\w*[ _-]?(?:\w+[ _-])?tokens?")
_PROMPT = re.compile(r"context|input|messages\b|the message|prompt|too long")
"""An error about a limit of tokens that mentions nothing of these is about a setting, and concerns every prompt."""

_ENDINGS = (
    # The model called a tool in a way that can't be read: its answer is what it said.
    (Status.OK, re.compile(r"malformed_\w+|unexpected_tool_call")),
    (
        Status.REFUSED,
        re.compile(
            r"content_?filter\w*|(?:image_)?(?:safety|recitation|prohibited_content)|blocklist|spii|model_armor|"
            r"sensitive\w*|guardrail_\w+|refusal|moderation\w*|flagged|data_?inspection_?failed|\w+_toxic"
        ),
    ),
    (
        Status.TRUNCATED,
        re.compile(r"length|max_(?:\w+_)?(?:tokens|length)|model_(?:length|context_\w+)|context_\w+|token_limit"),
    ),
    (Status.MODEL_ERROR, re.compile(r"\w*error\w*|insufficient_system_resource|abort\w*|failed|cancell?ed")),
)
_HTTP_CODE = re.compile(r"^(?:code|status)=([45]\d\d)$", re.MULTILINE)
_MINIMAX: Mapping[object, int] = {1002: 429, 1004: 401, 1008: 402, 2013: 400, 2049: 401}
"""HTTP statuses of the errors that MiniMax sends with status 200, where a user can do something about them."""


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
    """Return the status of an answer that has a text, by the names of its ending: the provider's, a library's.

    A name that isn't known, None and an empty one are `ok`.
    """
    names = [name for one in endings if one for name in re.split(r"[^a-z_]+", str(one).lower().replace("-", "_"))]
    return next((status for status, known in _ENDINGS if any(map(known.fullmatch, names))), Status.OK)


def failed_with(document: JsonObject) -> int:
    """Return the HTTP status that belongs to a failure sent with status 200; 0 if a document reports no failure."""
    if error_status(200, document) is not None:
        return 400
    if found := _HTTP_CODE.search(_said(document)):
        return int(found[1])
    own, choices = document.get("base_resp"), document.get("choices")
    if isinstance(own, dict) and own.get("status_code"):
        return _MINIMAX.get(own["status_code"], 502)
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


def _words(value: object, key: str = "") -> Iterator[str]:
    if key in _MARKS and value:
        yield CODES[Status.REFUSED]
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _words(inner, str(name).lower())
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, key)
    elif key == "finish_reason" and ending_status(value) is Status.REFUSED:
        yield CODES[Status.REFUSED]
    elif key in _TOLD and value is not None:
        yield f"{key}={value}".lower() if key in _CODES else str(value).lower()
