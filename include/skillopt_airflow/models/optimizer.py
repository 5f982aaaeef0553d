"""The optimizer model: structured answers through pydantic-ai, with retries and a usage row for each request."""

from collections.abc import Callable
from functools import partial
from json import JSONDecodeError
from typing import cast

from pydantic_ai import Agent, ToolOutput
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from skillopt_airflow.core.errors import ModelError, ModelOutputError, ModelUnavailable
from skillopt_airflow.core.http_failures import may_pass
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.sampling import Effort, sampling_settings
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.models.metering import MeteredModel

OUTPUT_RETRIES = 2


class _NoAnswer(ModelError):
    """The response is no answer in the provider's format."""


class PydanticAIOptimizer(MeteredModel):
    """An `Optimizer` over a pydantic-ai model.

    A 429, a 5xx and a time-out are tried again by the provider's own client, then by the next model of a chain of
    fallbacks; an answer that is none (no JSON, or not of the provider's format) here; a failed schema by pydantic-ai.

    Args:
        model: the model.
        on_call: called after every call, once a request.
        reasoning_effort: the provider's default when None.
        max_attempts: tries of one call, also of an answer that is none; boto3 keeps its own number of five.
        call_timeout: seconds of one try.
    """

    role = "optimizer"

    def __init__(
        self,
        model: Model,
        on_call: Callable[[ModelCall], None],
        *,
        reasoning_effort: Effort | None = None,
        max_attempts: int = 1,
        call_timeout: float | None = None,
    ) -> None:
        super().__init__(model, on_call)
        self._max_attempts = max_attempts
        # The model may belong to any provider, or to several, so there is no single wire format.
        settings = sampling_settings(None, reasoning_effort=reasoning_effort, timeout=call_timeout)
        if "max_retries" not in model.unsupported_settings:
            settings["max_retries"] = max_attempts - 1
        self._settings = cast("ModelSettings", settings)

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        """Return the answer to one structured call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type`, or the model refused.
            ModelUnavailable: the provider has no answer now.
            ModelError: the provider did not answer.
        """
        retrying = Retrying(
            stop=stop_after_attempt(self._max_attempts), retry=retry_if_exception_type(_NoAnswer), reraise=True
        )
        output: Output = retrying(self._ask, stage, instructions, prompt, output_type)
        return output

    def _ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        agent: Agent[None, Output] = Agent(
            self._model,
            output_type=ToolOutput(output_type, name=f"{stage}_result"),
            instructions=instructions,
            model_settings=self._settings,
            retries={"output": OUTPUT_RETRIES},
        )
        garbage = f"{stage}: the optimizer model's server answered something else"
        with self._metered(stage) as metered:
            try:
                output = self._portal.call(partial(agent.run, prompt, usage=metered.usage)).output
                metered.status = 200
            except ModelHTTPError as error:
                metered.status = error.status_code
                raise _kind(error)(
                    f"{stage}: the optimizer model answered {error.status_code}: {error.message}"
                ) from error
            except ModelAPIError as error:
                kind = _NoAnswer if isinstance(error.__cause__, JSONDecodeError) else _kind(error)
                raise kind(f"{stage}: the optimizer model did not answer: {error}") from error
            except FallbackExceptionGroup as group:
                tried = "; ".join(str(error) for error in group.exceptions)
                kind = ModelUnavailable if ModelUnavailable in map(_kind, group.exceptions) else ModelError
                raise kind(f"{stage}: neither the optimizer model nor its fallbacks answered: {tried}") from group
            except (UnexpectedModelBehavior, ContentFilterError) as error:
                metered.status = 200
                if metered.usage.requests == 0 and not isinstance(error, ContentFilterError):
                    raise _NoAnswer(f"{garbage}: {error}") from error
                raise ModelOutputError(str(error)) from error
            except UserError as error:
                raise ModelError(f"{stage}: {error}") from error
            except (TypeError, ValueError, AttributeError, LookupError) as error:
                # The provider's client stumbled over JSON that is no answer.
                raise _NoAnswer(f"{garbage}: {error!r}") from error
        return output


def _kind(error: Exception) -> type[ModelError]:
    """Return whether the same request may be answered later, by the error of the provider's client."""
    late = isinstance(error, ModelTimeoutError) or (isinstance(error, ModelHTTPError) and may_pass(error.status_code))
    return ModelUnavailable if late else ModelError
