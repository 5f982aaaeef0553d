"""Outcomes of rollouts: statuses by the responses of model providers, and the most frequent failure.

docs/statuses.md shows the statuses by provider.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from pydantic import Field

from skillopt_airflow.core.values.types import JsonObject, RolloutResult, Status, Trajectory, Value

CODES: Mapping[Status, str] = {Status.REFUSED: "content_filter", Status.TOO_LONG: "context_length_exceeded"}
"""Codes of the gateway's own errors by status."""
SENTENCES: Mapping[Status, str] = {
    Status.REFUSED: "the provider's content filter refused the prompt or the answer",
    Status.TOO_LONG: "the prompt, or the answer with it, is too long for the model or its server",
}
"""Beginnings of failed rollouts' errors."""
_OTHER_CAUSES = frozenset({401, 402, 404, 405, 408, 409, 429, 502, 503, 504, 529})
"""HTTP statuses with another cause (key, account, URL or load), whatever the error mentions."""
_CODE = re.compile(r"(?:error_|status_)?code|status")
_TEXT = re.compile(r"detail|error(?:_msg|_type)?|message|msg|raw|reason|status_msg|type")
"""Keys of an error with the provider's messages. Others, such as `input`, repeat the prompt."""
_MARK = re.compile(r"blockreason|contentfilter|flagged_input|(?:in|out)put_sensitive")
"""Keys with a value only if a filter intervened: Gemini, Zhipu, OpenRouter, MiniMax."""
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
"""An error about a token limit without any of these words is about a setting and affects every prompt."""
_ENDINGS: Mapping[Status, re.Pattern[str]] = {
    # The model's tool call is malformed; its text is the answer.
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
"""HTTP statuses for errors that MiniMax sends with status 200."""


def error_status(http_status: int, body: object) -> Status | None:
    """Return `refused` or `too_long` for an error with this cause; None for others, which are a `model_error`.

    The HTTP status is 0 if unknown, and 200 for a document that isn't an answer. The body is parsed JSON, or text.
    """
    if http_status in _OTHER_CAUSES:
        return None
    messages = _provider_messages(body)
    if http_status == 451 or _REFUSED.search(messages):
        return Status.REFUSED
    is_setting = _SETTING.search(messages) is not None and _PROMPT.search(messages) is None
    return Status.TOO_LONG if http_status == 413 or (_TOO_LONG.search(messages) and not is_setting) else None


def ending_status(*endings: object) -> Status:
    """Return the status of an answer with text by its finish reasons; unknown ones give `ok`."""
    names = [name for one in endings if one for name in re.split(r"[^a-z_]+", str(one).lower().replace("-", "_"))]
    return next((status for status, known in _ENDINGS.items() if any(map(known.fullmatch, names))), Status.OK)


def failure_http_status(document: JsonObject) -> int:
    """Return the proper HTTP status of a failure that was sent with status 200; 0 if there is no failure."""
    if error_status(200, document) is not None:
        return 400
    if found := _HTTP_CODE.search(_provider_messages(document)):
        return int(found[1])
    own, choices = document.get("base_resp"), document.get("choices")
    if isinstance(own, dict) and own.get("status_code"):
        return _MINIMAX.get(str(own["status_code"]), 502)
    parts = [part for part in (document, *(choices if isinstance(choices, list) else ())) if isinstance(part, dict)]
    broken = (ending_status(part.get("finish_reason"), part.get("status")) is Status.MODEL_ERROR for part in parts)
    return 502 if any(part.get("error") for part in parts) or any(broken) else 0


def _provider_messages(body: object) -> str:
    """Return the provider's messages, one per line, from JSON or from text with JSON in it."""
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


MAX_ERROR_CHARS = 300
MAX_ID_CHARS = 80
_WORD = re.compile(r"[\w-]+(?:[.:]\d[\w-]*)*")

FinishedRollout = Trajectory | RolloutResult


class FailureReason(Value):
    """The most frequent error among `items` items, which `count` of them have; its string form is for the user."""

    status: Status
    error: str
    """One line without control characters; empty if these failures have no message."""
    count: int = Field(ge=1)
    items: int = Field(ge=1)
    item_id: str

    @classmethod
    def of(cls, rollouts: Iterable[FinishedRollout], items: int) -> Self | None:
        """Find the most frequent reason among the failed rollouts, one per item; None if none failed.

        Errors that differ only in numbers, ids, addresses and times count as one, represented by the most frequent
        wording. The order of the rollouts doesn't matter.
        """
        alike: defaultdict[tuple[Status, str], Counter[str]] = defaultdict(Counter)
        example: dict[tuple[Status, str], str] = {}
        for one in rollouts:
            if one.status.scored:
                continue
            error = _cut(one.error, MAX_ERROR_CHARS)
            alike[one.status, _kind(one)][error] += 1
            example[one.status, error] = min(one.item_id, example.get((one.status, error), one.item_id))
        if not alike:
            return None
        (status, _), wordings = min(alike.items(), key=lambda entry: (-entry[1].total(), entry[0]))
        error = min(wordings, key=lambda wording: (-wordings[wording], wording))
        count, item_id = wordings.total(), _cut(example[status, error], MAX_ID_CHARS)
        return cls(status=status, error=error, count=count, items=items, item_id=item_id)

    def __str__(self) -> str:
        why = f"{self.status}: {self.error}" if self.error else str(self.status)
        return f"{self.count} of {self.items} items: {why} (for example item {self.item_id})"


def low_coverage(coverage: float, wanted: float, reason: FailureReason | None) -> str:
    because = f"; {reason}" if reason else ""
    return f"only {share(coverage)} of the items have a score ({share(wanted)} are wanted){because}"


def share(part: float) -> str:
    """Return a share of items in percent, rounded down: 299 of 300 aren't 100%."""
    return f"{math.floor(1000 * part + 1e-9) / 10:g}%"


def _kind(rollout: FinishedRollout) -> str:
    words = re.sub(rf"(?<!\w){re.escape(rollout.item_id)}(?!\w)", "0", rollout.error)
    return " ".join(_WORD.sub(lambda word: "0" if any(map(str.isdigit, word.group())) else word.group(), words).split())


def _cut(text: str, limit: int) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= limit else f"{line[: limit - 4].rstrip()} ..."


UNREADABLE = "unreadable"
"""Replaces the status if the response isn't an answer."""
FIRST_ITEMS = 8
"""If the first items of a chunk all fail alike, the others don't run."""
ADDRESS, _NAME = "its host, which for most servers ends in /v1", "correct the name of its model"
ADVICE: Mapping[int, str] = {
    **dict.fromkeys((400, 422), f"{_NAME}, or the settings under model.* that this server does not take"),
    401: "correct its password",
    402: "top up its account",
    403: "correct its password, or give its key the right to use the model",
    404: f"{_NAME}, or {ADDRESS}",
    405: f"correct {ADDRESS}",
}
"""Advice about a connection by HTTP status, for each status that a retry doesn't change."""


def is_transient(status: int) -> bool:
    """Return whether a retry may succeed, as after a timeout, an overload or a server error."""
    return status in (408, 409, 429) or status >= 500


def advice(status: int) -> str:
    """Return the fix of a connection after this status; 0 or 200 if the response wasn't an answer."""
    return ADVICE.get(status, f"correct {ADDRESS}: no model server answers there")


def lasting_error(status: int | None) -> str:
    """Return `Trajectory.lasting_error` for an HTTP status."""
    return str(status) if status in ADVICE else ""


def shared_lasting_failure(first: Sequence[Trajectory], items: int) -> FailureReason | None:
    """Return the reason to skip the rest of a chunk of `items` items, if the first ones have the same lasting error."""
    needed = min(FIRST_ITEMS, items)
    checked = first[:needed]
    kinds = {one.lasting_error for one in checked}
    alike = len(checked) == needed and len(kinds) == 1 and kinds != {""}
    return FailureReason.of(checked, needed) if alike else None


TOLERATED_CUTS = 0.05
"""Share of cut or empty answers above which scores are doubtful."""
EMPTY_ADVICE = (
    "If the server separates the reasoning (vLLM: --reasoning-parser), choose the parser of this model. If the "
    "reasoning uses up model.max_tokens, raise it or lower model.reasoning_effort"
)


class RolloutTally(Value):
    """Numbers of rollouts by outcome; planned rollouts without an outcome weren't needed."""

    planned: int = Field(ge=0)
    scored: int = Field(ge=0)
    truncated: int = Field(ge=0)
    """Scored rollouts with a cut answer."""
    empty: int = Field(default=0, ge=0)
    """Scored rollouts with an empty answer."""
    failures: dict[Status, int]
    reason: FailureReason | None
    """The most frequent reason of the failures."""

    @classmethod
    def of(cls, rollouts: Iterable[FinishedRollout], planned: int) -> Self:
        ended = list(rollouts)
        statuses = Counter(one.status for one in ended)
        return cls(
            planned=planned,
            scored=sum(count for status, count in statuses.items() if status.scored),
            truncated=statuses[Status.TRUNCATED],
            empty=statuses[Status.EMPTY],
            failures={status: count for status, count in sorted(statuses.items()) if not status.scored},
            reason=FailureReason.of(ended, planned),
        )

    @property
    def coverage(self) -> float:
        """Share of the rollouts with a score; 1 if there are no rollouts."""
        return self.scored / self.planned if self.planned else 1.0

    @property
    def cuts(self) -> str:
        """A warning if many answers were cut off or empty; else empty."""
        cut = "were cut off at the token limit and scored anyway; raise model.max_tokens"
        kinds, of = ((self.truncated, cut), (self.empty, f"were empty and scored anyway. {EMPTY_ADVICE}")), self.scored
        many = [(count, words) for count, words in kinds if count > TOLERATED_CUTS * of]
        return "; ".join(f"{count} of {of} answers ({count / of:.0%}) {words}" for count, words in many)

    def __str__(self) -> str:
        if not self.planned:
            return "no rollout was left to make"
        failed = ", ".join(f"{count} {status}" for status, count in self.failures.items())
        words = (
            f"{self.truncated} of them cut off" if self.truncated else "",
            f"{self.empty} of them empty" if self.empty else "",
            failed and f"{failed} without a score",
        )
        return "; ".join([f"{self.scored} of {self.planned} rollouts have a score", *filter(None, words)])
