"""The settings that the host passes to the program inside the sandbox, without any secrets."""

from typing import Annotated

from pydantic import Field

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.sampling import Effort, sampling_settings
from skillopt_airflow.core.values.types import JsonObject, Value, canonical_json, sha256
from skillopt_airflow.core.wire_formats import Dialect

CLOSING_SECONDS = 30.0
"""Time to end an agent, read its trace, and collect its changes."""

PROTOCOL = 11
"""Version of the project's images. Raise it whenever the same input leads to another rollout or score, for example
after a change of a prompt, a loop of calls, an agent CLI or a scoring rule. Stored rollouts are then made again."""
IN_IMAGE = ("adapter.py", "tools.py", "worlds.py")
"""Files of a benchmark that local/image.py copies into the sandbox image."""


class RolloutSettings(Value):
    """The settings of all items in a container."""

    benchmark: str = Field(min_length=1)
    task: JsonObject | None = None
    """The benchmark's section `task`, if it has no adapter. Plain JSON, so that other benchmarks don't import the
    rules for sections."""
    image_program: str = ""
    """Required program, see `image_program`. Empty for a user's own image, which isn't checked."""
    harness: HarnessName = "chat"
    dialect: Dialect
    """The wire format of the model calls."""
    model: str = Field(min_length=1)
    """The provider's name of the model, without the prefix."""
    max_turns: int = Field(default=1, ge=1)
    """Maximum number of the target's answers per item."""
    reasoning_effort: Effort | None = None
    """Default: the provider's."""
    item_timeout: float = Field(default=900.0, gt=0.0)
    """Seconds without a finished item after which a container is stopped."""
    code_timeout: float = Field(default=60.0, gt=0.0)
    """Seconds per execution of the target's code."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Default: the provider's."""
    max_tokens: int = Field(ge=1)
    """Token limit per answer."""
    concurrency: int = Field(ge=1)
    """Items at the same time."""
    call_timeout: float = Field(gt=0.0)
    """Seconds per try of a model call."""
    max_attempts: int = Field(ge=1)
    """The gateway's tries per call."""
    search_patience: float | None = None
    """Timeout of the run's search in seconds; None if searches use the item's documents."""
    gives_up: bool = False
    """True to skip the remaining items after the first ones failed permanently, in the same way."""

    def sampling(self) -> JsonObject:
        return sampling_settings(
            self.dialect,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
        )

    @property
    def patience(self) -> float:
        """Timeout of a call in seconds: each pause between two tries is at most as long as a try."""
        return 2 * self.max_attempts * self.call_timeout

    @property
    def agent_seconds(self) -> float:
        """Time limit of an agent's whole work on an item, which leaves time to read its trace."""
        return self.item_timeout - min(CLOSING_SECONDS, self.item_timeout / 10)


class PublicItem(Value):
    id: str = Field(min_length=1)
    public: JsonObject


def image_program(benchmark: str, *, declared: bool) -> str:
    """Return this installation's protocol and a hash of a benchmark's files, to compare with the image's.

    The image has no files of a benchmark that its section `task` declares.
    """
    if declared:
        return f"protocol-{PROTOCOL}"
    folder = benchmarks.folder(benchmark)
    files: JsonObject = {
        name: (folder / name).read_text(encoding="utf-8") for name in IN_IMAGE if (folder / name).is_file()
    }
    return f"protocol-{PROTOCOL}/image-{sha256(canonical_json(files))[:12]}"
