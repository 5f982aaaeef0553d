"""The project's exceptions, one type per boundary, with its kinds below it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class SkillOptError(Exception):
    """Base of all. Its message is for the user: the problem, its place, and the fix."""


class ConfigError(SkillOptError):
    """A configuration key or value is not usable."""


class DataError(SkillOptError):
    """A dataset, split or item is not usable."""


class SkillError(SkillOptError):
    """A skill document breaks its own structure."""


class ModelError(SkillOptError):
    """A call to a model provider failed."""


class ModelConnectionError(ModelError):
    """The connection to a model provider is missing, incomplete or leads nowhere."""


class ModelOutputError(ModelError):
    """A model's structured answer was still invalid after a retry."""


class AnswerCut(ModelOutputError):
    """The answer hit the token limit."""


class PromptTooLong(ModelOutputError):
    """The prompt doesn't fit into the model's context, or its server's."""


class BudgetUsedUp(ModelOutputError):
    """The run's budget allows no more calls; stages continue without an answer, as after an unusable one."""


class ToolsRefused(ModelError):
    """The server or its model doesn't support tools, which structured answers use."""


class ModelUnavailable(ModelError):
    """The model server is overloaded, broken or too slow now; a retry may succeed."""


class ModelUnreachable(ModelUnavailable):
    """No server answers at the URL: it may be wrong, or the server may come back."""


class ModelTooSlow(ModelUnavailable):
    """The answer isn't complete within the time of the call."""


class SandboxError(SkillOptError):
    """A sandbox couldn't run, or its output was rejected."""


class EngineUnavailable(SandboxError):
    """No Docker engine answers."""


class ImageMissing(SandboxError):
    """The engine does not have the sandbox image and could not pull it."""


class StoreError(SkillOptError):
    """An object store refused or lost a request."""


class StoreUnavailable(StoreError):
    """The object store can't answer now; a retry may succeed."""


class ObjectMissing(StoreError):
    """No object is stored under the key."""


class NewerDocument(StoreError):
    """A later version of the project wrote the document, and this one would misunderstand it."""


class Conflict(StoreError):
    """Another writer created or moved the object first."""


class ProcessLost(SkillOptError):
    """A process with limits crashed on a file, or couldn't start."""

    def __init__(self, problem: str, status: int | None, error_output: str) -> None:
        """Store the exit status (None after a timeout or a failed start) and the end of the error output."""
        super().__init__(problem)
        self.status = status
        self.error_output = error_output


class PlatformError(SkillOptError):
    """A part of the local platform does not start or answer, or Airflow refused a request."""


UNAVAILABLE = (StoreUnavailable, EngineUnavailable, ModelUnavailable)
"""The kinds that a retry may fix."""


def merge_errors(errors: Sequence[SkillOptError]) -> SkillOptError:
    """Return one error with the messages of all, one per line; it is temporary only if all errors are."""
    found = [error for error in errors if not isinstance(error, UNAVAILABLE)] or errors
    return type(found[0])("\n".join(dict.fromkeys(map(str, found))))


@contextmanager
def collect_errors(failures: list[SkillOptError]) -> Iterator[None]:
    """Append an error of the block to `failures`."""
    try:
        yield
    except SkillOptError as error:
        failures.append(error)
