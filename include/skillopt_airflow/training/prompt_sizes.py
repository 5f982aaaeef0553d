"""The size of a rollout's prompt without its skill, as far as it is known before one is made."""

from collections.abc import Sequence

from skillopt_airflow.core.pictures import sizes
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.types import Item
from skillopt_airflow.core.wire_formats import WIRE_FORMATS

LOOKED_AT = 100
"""Items whose prompts stand for all of a split."""


def prompt_chars(benchmark: Benchmark, items: Sequence[Item]) -> float:
    """Return the mean characters of the items' prompts."""
    prompts = [benchmark.messages(item.public, "") for item in items if not item.unusable]
    return sum(len(message.content) for prompt in prompts for message in prompt) / max(1, len(prompts))


def picture_tokens(target: str, items: Sequence[Item]) -> float:
    """Return the mean tokens of an item's pictures; those of a format of its own are counted as OpenAI's."""
    spoken = WIRE_FORMATS.get(target.partition(":")[0], WIRE_FORMATS["openai"])
    seen = [size for item in items for size in sizes(item)]
    return sum(spoken.picture_tokens(size.width, size.height) for size in seen) / max(1, len(items))
