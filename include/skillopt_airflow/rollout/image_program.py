"""The program of the project's own images, by which a worker and the sandbox tell whether they are of one version."""

from skillopt_airflow import benchmarks
from skillopt_airflow.core.types import JsonObject, canonical_json, sha256

PROTOCOL = 11
"""Protocol of the project's own images. Raise it when the rollout program makes another rollout of the same input, for
instance by another prompt, another loop of calls, another release of an agent CLI, or another answer or score that
core/scoring makes of the same response: stored rollouts are made again."""
IN_IMAGE = ("adapter.py", "tools.py", "worlds.py")
"""Files of a benchmark that the sandbox image has, as local/image.py puts them there."""


def image_program(benchmark: str, *, declared: bool) -> str:
    """Return the protocol of this installation, and a hash of what it has for a benchmark in the image.

    Args:
        benchmark: its name.
        declared: whether its section `task` declares it, so that no file of it is in the image.
    """
    if declared:
        return f"protocol-{PROTOCOL}"
    folder = benchmarks.folder(benchmark)
    files: JsonObject = {
        name: (folder / name).read_text(encoding="utf-8") for name in IN_IMAGE if (folder / name).is_file()
    }
    return f"protocol-{PROTOCOL}/image-{sha256(canonical_json(files))[:12]}"
