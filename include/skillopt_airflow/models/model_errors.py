"""From the exceptions of pydantic-ai and the providers' clients to the project's errors."""

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
    # Providers' clients raise these for JSON of another shape.
    *(TypeError, ValueError, AttributeError, LookupError),
)
"""All exceptions of a request, except the project's own."""
_REFUSALS: Mapping[Status, type[ModelError]] = {Status.REFUSED: ModelOutputError, Status.TOO_LONG: errors.PromptTooLong}
_LIMIT = re.compile(r"max\w*[ _-]?(?:\w+[ _-])?tokens|maximum context length")
_NO_TOOLS = re.compile(
    r"support (?:for )?tool|tool use|--jinja|tool[_ ]choice|tools?\b[^.]* not supported|tool calling|function calling"
)
"""Ollama: 400 "... does not support tools"; llama.cpp: 500 "tools param requires --jinja flag"; OpenRouter: 404 "No
endpoints found that support tool use"; vLLM: 400 '"auto" tool choice requires ...'."""


class NoAnswer(ModelError):
    """The response isn't in the provider's format; a retry may succeed."""


class LimitTooLow(errors.AnswerCut):
    """The server refuses our token limit, or the model's thinking used it up."""


def project_error(error: Exception, subject: str, tools: bool, limit: int | None, answered: bool) -> ModelError:
    """Return the project's error for one of `FAILURES`.

    Args:
        tools: whether the request asked for a tool call.
        limit: our token limit, if any.
        answered: whether a valid response was received.
    """
    match error:
        case raised.ModelHTTPError():
            return _refusal(error, subject, tools, limit)
        case raised.ModelAPIError() | raised.RunTimedOut():
            refused = error_status(0, error.message)
            if refused is not None:
                return _REFUSALS[refused](f"{subject}: {SENTENCES[refused]}: {error.message}")
            kind = NoAnswer if isinstance(error.__cause__, JSONDecodeError) else _kind(error)
            return _failure(kind, f"{subject} did not answer: {error}")
        case raised.FallbackExceptionGroup():
            kinds = {_kind(one) for one in error.exceptions}
            late = any(issubclass(kind, ModelUnavailable) for kind in kinds)
            kind = kinds.pop() if len(kinds) == 1 else ModelUnavailable if late else ModelError
            return _failure(
                kind, f"{subject} and its fallbacks did not answer: {'; '.join(map(str, error.exceptions))}"
            )
        case raised.ContentFilterError():
            return ModelOutputError(str(error))
        case raised.UnexpectedModelBehavior() if answered:
            return ModelOutputError(str(error))
        case raised.UserError():
            # Bedrock's open-weight models can't be forced to use a tool while they think.
            no_tools = tools and "output tools" in str(error)
            return (errors.ToolsRefused if no_tools else ModelError)(f"{subject}: {error}")
    return NoAnswer(f"{subject}: its server's answer is invalid: {error!r}")


def _refusal(error: raised.ModelHTTPError, subject: str, tools: bool, limit: int | None) -> ModelError:
    status, text = error.status_code, f"{error.message} {error.body}".lower()
    message = f"{subject} answered {status}: {error.message}"
    # Servers that count the limit as context send the error of a long prompt, with the limit or the context's length.
    about_limit = _LIMIT.search(text) is not None or str(limit) in text.replace(",", "")
    if limit is not None and status in (400, 413, 422) and about_limit:
        return LimitTooLow(message)
    refused = error_status(status, error.body)
    if refused is not None:
        return _REFUSALS[refused](f"{subject}: {SENTENCES[refused]}: {error.message}")
    no_tools = tools and _NO_TOOLS.search(text) is not None and status != HTTPStatus.TOO_MANY_REQUESTS
    return errors.ToolsRefused(message) if no_tools else _failure(_kind(error), message)


def _failure(kind: type[ModelError], message: str) -> ModelError:
    too_slow = issubclass(kind, errors.ModelTooSlow)
    return kind(f"{message.rstrip('.')}; raise model.call_timeout" if too_slow else message)


def is_unavailable(error: Exception) -> bool:
    if isinstance(error, raised.ModelHTTPError):
        return is_transient(error.status_code)
    return isinstance(error, raised.ModelAPIError)


def _kind(error: Exception) -> type[ModelError]:
    """Return the kind of error, by whether a retry may succeed."""
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
