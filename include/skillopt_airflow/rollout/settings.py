"""The settings that the host passes to the program inside the sandbox; none is secret.

By `image_program`, a worker and the project's own image tell whether they are of one version.
"""

from typing import Annotated

from pydantic import Field

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.sampling import Effort, sampling_settings
from skillopt_airflow.core.values.types import JsonObject, Value, canonical_json, sha256
from skillopt_airflow.core.wire_formats import Dialect

CLOSING_SECONDS = 30.0
"""Time to end an agent, to read its trace, and to see what it changed."""

PROTOCOL = 11
"""Protocol of the project's own images. Raise it when the rollout program makes another rollout of the same input, for
instance by another prompt, another loop of calls, another release of an agent CLI, or another answer or score that
core/scoring makes of the same response: stored rollouts are made again."""
IN_IMAGE = ("adapter.py", "tools.py", "worlds.py")
"""Files of a benchmark that the sandbox image has, as local/image.py puts them there."""


class RolloutSettings(Value):
    """The settings of all items of a container."""

    benchmark: str = Field(min_length=1)
    task: JsonObject | None = None
    """The section `task` of the benchmark, if it is declared by its data alone; no adapter of it is in the image then.
    Plain JSON here: the rules of all sections need not be imported for the other benchmarks."""
    image_program: str = ""
    """What the image has to have, see `image_program`; anything when empty, as in an image of the user's own."""
    harness: HarnessName = "chat"
    dialect: Dialect
    """The wire format of the model calls."""
    model: str = Field(min_length=1)
    """The provider's name of the model, without the prefix."""
    max_turns: int = Field(default=1, ge=1)
    """Most answers of the target to one item."""
    reasoning_effort: Effort | None = None
    """The provider's default when unset."""
    item_timeout: float = Field(default=900.0, gt=0.0)
    """Seconds after which a container is stopped in which no item has ended."""
    code_timeout: float = Field(default=60.0, gt=0.0)
    """Seconds that one execution of the target's code may take."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """The provider's default when unset."""
    max_tokens: int = Field(ge=1)
    """Most tokens of one answer."""
    concurrency: int = Field(ge=1)
    """Items at the same time."""
    call_timeout: float = Field(gt=0.0)
    """Seconds that one try of a model call may take."""
    max_attempts: int = Field(ge=1)
    """Tries that the gateway makes of one call."""
    search_patience: float | None = None
    """Seconds after which no answer of the run's search can come; None if searches stay in the item's documents."""
    gives_up: bool = False
    """True if the other items are left once the first ones fail alike, and no retry mends it."""

    def sampling(self) -> JsonObject:
        """Return the settings of a call by which the target samples and thinks; see `sampling_settings`."""
        return sampling_settings(
            self.dialect,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
        )

    @property
    def patience(self) -> float:
        """Seconds after which no answer can come: a pause between two tries is at most as long as a try."""
        return 2 * self.max_attempts * self.call_timeout

    @property
    def agent_seconds(self) -> float:
        """Seconds for an agent's whole work on an item, so that its trace is read before the container is stopped."""
        return self.item_timeout - min(CLOSING_SECONDS, self.item_timeout / 10)


class PublicItem(Value):
    id: str = Field(min_length=1)
    public: JsonObject


def image_program(benchmark: str, *, declared: bool) -> str:
    """Return the protocol of this installation, and a hash of what it has for a benchmark in the image.

    Args:
        declared: whether its section `task` declares it, so that no file of it is in the image.
    """
    if declared:
        return f"protocol-{PROTOCOL}"
    folder = benchmarks.folder(benchmark)
    files: JsonObject = {
        name: (folder / name).read_text(encoding="utf-8") for name in IN_IMAGE if (folder / name).is_file()
    }
    return f"protocol-{PROTOCOL}/image-{sha256(canonical_json(files))[:12]}"
