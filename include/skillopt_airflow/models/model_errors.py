"""From the exceptions of pydantic-ai and the clients below it to the errors of the project."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from json import JSONDecodeError

from pydantic_ai import exceptions as raised

from skillopt_airflow.core import errors
from skillopt_airflow.core.errors import ModelError, ModelOutputError, ModelUnavailable
from skillopt_airflow.core.values.failure_reasons import SENTENCES, error_status, is_transient
from skillopt_airflow.core.values.types import Status

FAILURES = (
    *(raised.AgentRunError, raised.FallbackExceptionGroup, raised.UserError),
    # A provider's client stumbles over JSON that is no answer.
    *(TypeError, ValueError, AttributeError, LookupError),
)
"""All that a request may fail with, except for the project's own errors."""
_REFUSALS: Mapping[Status, type[ModelError]] = {Status.REFUSED: ModelOutputError, Status.TOO_LONG: errors.PromptTooLong}
_LIMIT = re.compile(r"max\w*[ _-]?(?:\w+[ _-])?tokens|maximum context length")
_NO_TOOLS = re.compile(
    r"support (?:for )?tool|tool use|--jinja|tool[_ ]choice|tools?\b[^.]* not supported|tool calling|function calling"
)
"""Ollama: 400 "... does not support tools"; llama.cpp: 500 "tools param requires --jinja flag"; OpenRouter: 404 "No
endpoints found that support tool use"; vLLM: 400 '"auto" tool choice requires ...'."""


class NoAnswer(ModelError):
    """The response is no answer in the provider's format; the same request may get one."""


class LimitTooLow(errors.AnswerCut):
    """The server refuses our own limit of tokens, or the model's thinking used it up."""


def explained(error: Exception, who: str, tools: bool, limit: int | None, answered: bool) -> ModelError:
    """Return the project's error for one of `FAILURES`.

    `tools` says whether the request asked for a tool call, `limit` is our own one of its tokens, if it has one, and
    `answered` says whether a response could be read.
    """
    match error:
        case raised.ModelHTTPError():
            return _refusal(error, who, tools, limit)
        case raised.ModelAPIError() | raised.RunTimedOut():
            refused = error_status(0, error.message)
            if refused is not None:
                return _REFUSALS[refused](f"{who}: {SENTENCES[refused]}: {error.message}")
            kind = NoAnswer if isinstance(error.__cause__, JSONDecodeError) else _kind(error)
            return _failed(kind, f"{who} did not answer: {error}")
        case raised.FallbackExceptionGroup():
            kinds = {_kind(one) for one in error.exceptions}
            late = any(issubclass(kind, ModelUnavailable) for kind in kinds)
            kind = kinds.pop() if len(kinds) == 1 else ModelUnavailable if late else ModelError
            return _failed(kind, f"{who} and its fallbacks did not answer: {'; '.join(map(str, error.exceptions))}")
        case raised.ContentFilterError():
            return ModelOutputError(str(error))
        case raised.UnexpectedModelBehavior() if answered:
            return ModelOutputError(str(error))
        case raised.UserError():
            # Bedrock's models with open weights cannot be forced on a tool while they think.
            no_tools = tools and "output tools" in str(error)
            return (errors.ToolsRefused if no_tools else ModelError)(f"{who}: {error}")
    return NoAnswer(f"{who}: its server answered something else: {error!r}")


def _refusal(error: raised.ModelHTTPError, who: str, tools: bool, limit: int | None) -> ModelError:
    status, said = error.status_code, f"{error.message} {error.body}".lower()
    what = f"{who} answered {status}: {error.message}"
    # Servers that count the limit as a part of the context name it, or that length, as for a prompt that is too long.
    about_limit = _LIMIT.search(said) is not None or str(limit) in said.replace(",", "")
    if limit is not None and status in (400, 413, 422) and about_limit:
        return LimitTooLow(what)
    refused = error_status(status, error.body)
    if refused is not None:
        return _REFUSALS[refused](f"{who}: {SENTENCES[refused]}: {error.message}")
    no_tools = tools and _NO_TOOLS.search(said) is not None and status != HTTPStatus.TOO_MANY_REQUESTS
    return errors.ToolsRefused(what) if no_tools else _failed(_kind(error), what)


def _failed(kind: type[ModelError], what: str) -> ModelError:
    return kind(f"{what.rstrip('.')}; raise model.call_timeout" if issubclass(kind, errors.ModelTooSlow) else what)


def is_unavailable(error: Exception) -> bool:
    if isinstance(error, raised.ModelHTTPError):
        return is_transient(error.status_code)
    return isinstance(error, raised.ModelAPIError)


def _kind(error: Exception) -> type[ModelError]:
    """Return whether the same request may be answered later; without a connection, the URL may be wrong."""
    match error:
        case raised.ModelTimeoutError(phase="pool" | "connect"):
            return ModelUnavailable
        case raised.ModelTimeoutError() | raised.ModelRequestTimeout() | raised.RunTimedOut():
            return errors.ModelTooSlow
        case raised.ModelConnectionError():
            return errors.ModelUnreachable
        case raised.ModelHTTPError() if is_unavailable(error):
            return ModelUnavailable
    return ModelError
