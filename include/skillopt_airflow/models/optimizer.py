"""The optimizer model behind pydantic-ai: structured answers, asked again on a miss, one usage row a request."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from json import JSONDecodeError
from typing import TYPE_CHECKING, Self, cast

from anyio.from_thread import start_blocking_portal
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from skillopt_airflow.core.config import Effort
from skillopt_airflow.core.errors import ModelError, ModelOutputError
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.sampling import sampling_settings
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.models.metering import calls_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model

OUTPUT_RETRIES = 2


class _NoAnswer(ModelError):
    """What came back is no answer of the provider's format."""


class PydanticAIOptimizer:
    """An `Optimizer` over a pydantic-ai model, usable from many threads inside its `with` block.

    All calls share one event loop, because the provider's client keeps connections that belong to one.
    A 429, a 5xx and a time-out are tried again by the provider's own client, then by the next model of a chain of
    fallbacks; an answer that is none (no JSON, or not of the provider's format) here; a failed schema by pydantic-ai.

    Args:
        model: the model.
        on_call: called after every call, once a request.
        reasoning_effort: the provider's default when None.
        max_attempts: tries of one call, also of an answer that is none; boto3 keeps its own number of five.
        call_timeout: seconds of one try.
    """

    def __init__(
        self,
        model: "Model",
        on_call: Callable[[ModelCall], None],
        *,
        reasoning_effort: Effort | None = None,
        max_attempts: int = 1,
        call_timeout: float | None = None,
    ) -> None:
        self._model = model
        self._on_call = on_call
        self._max_attempts = max_attempts
        # Any provider may stand behind the model, also several, so no wire format is meant.
        settings = sampling_settings(None, reasoning_effort=reasoning_effort, timeout=call_timeout)
        if "max_retries" not in model.unsupported_settings:
            settings["max_retries"] = max_attempts - 1
        self._settings = cast("ModelSettings", settings)
        self._portals = ExitStack()

    def __enter__(self) -> Self:
        self._portal = self._portals.enter_context(start_blocking_portal())
        self._portals.enter_context(self._portal.wrap_async_context_manager(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._portals.close()

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        """One structured call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type`, or the model refused.
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
        started, clock = time.time(), time.monotonic()
        status, usage = 0, RunUsage()
        try:
            output = self._portal.call(partial(agent.run, prompt, usage=usage)).output
            status = 200
        except ModelHTTPError as error:
            status = error.status_code
            raise ModelError(f"{stage}: the optimizer model answered {error.status_code}: {error.message}") from error
        except ModelAPIError as error:
            kind = _NoAnswer if isinstance(error.__cause__, JSONDecodeError) else ModelError
            raise kind(f"{stage}: the optimizer model did not answer: {error}") from error
        except FallbackExceptionGroup as group:
            tried = "; ".join(str(error) for error in group.exceptions)
            raise ModelError(f"{stage}: neither the optimizer model nor its fallbacks answered: {tried}") from group
        except (UnexpectedModelBehavior, ContentFilterError) as error:
            status = 200
            if usage.requests == 0 and not isinstance(error, ContentFilterError):
                raise _NoAnswer(f"{stage}: the optimizer model's server answered something else: {error}") from error
            raise ModelOutputError(str(error)) from error
        except UserError as error:
            raise ModelError(f"{stage}: {error}") from error
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            # The provider's client stumbled over JSON that is no answer.
            raise _NoAnswer(f"{stage}: the optimizer model's server answered something else: {error!r}") from error
        finally:
            self._record(stage, status, usage, started, time.monotonic() - clock)
        return output

    def _record(self, stage: str, status: int, usage: RunUsage, started: float, seconds: float) -> None:
        name = self._model.model_name
        for call in calls_of(
            usage, role="optimizer", stage=stage, model=name, status=status, started=started, seconds=seconds
        ):
            self._on_call(call)
