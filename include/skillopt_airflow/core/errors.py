"""
Every exception that this project raises on purpose, one type per boundary:

* SkillOptError
  + ConfigError            a key, value or file of the configuration
  + DataError              a data set, split or item
  + SkillError             a skill document
  + ModelError             a call to a model provider
    - ModelConnectionError   the Airflow connection, or the address in it
    - ModelOutputError       an answer that stays outside its schema
      - AnswerCut              or ends at the token limit
      - PromptTooLong          or isn't given, since the prompt doesn't fit into the model's context
      . BudgetUsedUp           no answer, because the run's budget allows no further call
    - ToolsRefused           the server, or its model, takes no tools
    - ModelUnavailable       the server cannot answer now
      . ModelUnreachable       nothing answers at its address
      . ModelTooSlow           the answer isn't complete in time
  + SandboxError           a container, its engine, or what it wrote
    - EngineUnavailable      no Docker engine answers
    - ImageMissing           the sandbox image is not there
  + StoreError             an object store
    - StoreUnavailable       it does not answer, or not now
    - ObjectMissing          no object under the key
    - NewerDocument          a later version of the project wrote it
    - Conflict               another writer was first
  + ProcessLost            a file that the process with limits that read it did not survive
  + PlatformError          a part of the local platform, or its REST API
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class SkillOptError(Exception):
    """Base of all; its text is meant for the user: what is wrong, where, what to do."""


class ConfigError(SkillOptError):
    """A configuration key or value is not usable."""


class DataError(SkillOptError):
    """A data set, split or item is not usable."""


class SkillError(SkillOptError):
    """A skill document breaks its own structure."""


class ModelError(SkillOptError):
    """A model provider did not answer usefully."""


class ModelConnectionError(ModelError):
    """The connection to a model provider is missing, incomplete or leads nowhere."""


class ModelOutputError(ModelError):
    """A model's structured answer stayed invalid after it was asked again."""


class AnswerCut(ModelOutputError):
    """The answer hit the token limit."""


class PromptTooLong(ModelOutputError):
    """The prompt doesn't fit into the model's context, or its server's."""


class BudgetUsedUp(ModelOutputError):
    """The run's budget allows no further call: its stages go on without an answer, as they do with one of no use."""


class ToolsRefused(ModelError):
    """The server, or its model, takes no tools, by which structured answers are asked for."""


class ModelUnavailable(ModelError):
    """The model server is overloaded, broken or too slow now; what was asked may be asked again."""


class ModelUnreachable(ModelUnavailable):
    """Nothing answers at the model server's address: it may be wrong, or the server may come back."""


class ModelTooSlow(ModelUnavailable):
    """The answer isn't complete within the time of the call."""


class SandboxError(SkillOptError):
    """A sandbox could not run, or what it wrote was refused."""


class EngineUnavailable(SandboxError):
    """No Docker engine answers."""


class ImageMissing(SandboxError):
    """The engine does not have the sandbox image and could not pull it."""


class StoreError(SkillOptError):
    """An object store refused or lost a request."""


class StoreUnavailable(StoreError):
    """The object store does not answer, or says that it cannot now; what was asked may be asked again."""


class ObjectMissing(StoreError):
    """No object is stored under the key."""


class NewerDocument(StoreError):
    """A later version of the project wrote the document, and this one would misunderstand it."""


class Conflict(StoreError):
    """Another writer created or moved the object first."""


class ProcessLost(SkillOptError):
    """A process with limits ended over a file, or could not start."""

    def __init__(self, problem: str, status: int | None, said: str) -> None:
        """Keep the exit status, which is None if time was up or nothing started, and the end of the error output."""
        super().__init__(problem)
        self.status = status
        self.said = said


class PlatformError(SkillOptError):
    """A part of the local platform does not start or answer, or Airflow refused a request."""


UNAVAILABLE = (StoreUnavailable, EngineUnavailable, ModelUnavailable)
"""The kinds that another try may mend."""


def together(errors: Sequence[SkillOptError]) -> SkillOptError:
    """Return one error that says what several say, a line each; of a kind that may pass only if all of them may."""
    lasting = [error for error in errors if not isinstance(error, UNAVAILABLE)]
    found = lasting if lasting else errors
    return type(found[0])("\n".join(dict.fromkeys(map(str, found))))


@contextmanager
def kept(failures: list[SkillOptError]) -> Iterator[None]:
    """Keep an error of the block beside others, to be told `together`."""
    try:
        yield
    except SkillOptError as error:
        failures.append(error)
