"""The limits of a container, as options of Docker's HostConfig."""

import signal
from collections.abc import Mapping
from typing import Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup

KILLED = 128 + signal.SIGKILL
"""Exit status of a process that the kernel ended at once."""
KILOBYTE = 1024
MEGABYTE = 1024 * KILOBYTE
TMP_MEGABYTES = 64
WORK_FOLDER = "/work"
"""Where an item's repository lies."""
CORPUS_FOLDER = "/corpus"
PACKAGES_SECONDS = 1200
"""Time in which the packages of an item's image are fetched."""
BUILD_SECONDS = 600
"""Time in which an item's image is put together."""
LAYOUT_SECONDS = 120
"""Time in which a tree is laid out for the tests that judge it."""
MAX_OPEN_FILES = 1024
PIDS = 128
MAX_LOG_BYTES = 64 * KILOBYTE
"""Of a container's output, in the task log."""
BUILD_MEMORY = "2g"
BUILD_PIDS = 256
NANO = 1_000_000_000
MEMORY_UNITS = {"k": KILOBYTE, "m": MEGABYTE, "g": KILOBYTE * MEGABYTE}


def host_options(limits: SandboxGroup, *, has_repository: bool = False) -> dict[str, Any]:
    """Return all of the HostConfig but the mounts; a repository gets a folder in memory, where programs may lie."""
    from docker.types import Ulimit

    output_bytes = limits.output_mb * MEGABYTE
    closed = _closed(limits.memory, PIDS)
    if has_repository:
        closed["tmpfs"][WORK_FOLDER] = f"rw,exec,nosuid,nodev,mode=1777,size={limits.output_mb}m"
    return closed | {
        "network_mode": "none",
        "nano_cpus": round(limits.cpus * NANO),
        "ulimits": [
            Ulimit(name="fsize", soft=output_bytes, hard=output_bytes),
            Ulimit(name="nofile", soft=MAX_OPEN_FILES, hard=MAX_OPEN_FILES),
            Ulimit(name="core", soft=0, hard=0),
        ],
    }


def helper_options(network: str | None, megabytes: int) -> dict[str, Any]:
    """Return the HostConfig of a gateway or courier but the mounts; on the engine's default network when unset."""
    options = _closed(f"{megabytes}m", PIDS)
    return options if network is None else options | {"network_mode": network}


def build_options(limits: SandboxGroup) -> dict[str, Any]:
    """Return the HostConfig of the container in which an item's image is made, by root, out of any user's files."""
    return _confined(BUILD_MEMORY, BUILD_PIDS) | {
        "network_mode": "none",
        "cap_add": ["DAC_OVERRIDE", "FOWNER"],
        "nano_cpus": round(limits.cpus * NANO),
    }


def _closed(memory: str, pids: int) -> dict[str, Any]:
    return _confined(memory, pids) | {
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={TMP_MEGABYTES}m"},  # noqa: S108
    }


def _confined(memory: str, pids: int) -> dict[str, Any]:
    from docker.types import LogConfig

    return {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": pids,
        # The engine's own copy of the output, on its disk.
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m", "max-file": "1"}),
    }


def together(limits: SandboxGroup, concurrency: int, run_concurrency: int, engine_memory: int) -> int:
    """Return how many containers of a task may run at once: an item each, as far as half of the memory allows.

    The task has as large a part of that as of the run's model calls in flight; the run's other tasks have the rest.
    """
    each = int(limits.memory[:-1]) * MEMORY_UNITS[limits.memory[-1]]
    return max(1, min(concurrency, engine_memory // 2 * concurrency // (each * run_concurrency)))


def task_seconds(limits: SandboxGroup, items: int, start_seconds: int = 0) -> int:
    """Return the seconds that a task may take: its items one by one, each to its limit, and one limit more.

    That is enough both where they share a container and where each has its own and there is room for one at a time.
    """
    return (items + 1) * (limits.timeout + start_seconds)


def judging_seconds(limits: SandboxGroup) -> int:
    return 2 * LAYOUT_SECONDS + limits.test_timeout


def repository_seconds(limits: SandboxGroup) -> int:
    """Return the seconds that an item with a repository may take besides: its image is built, and tests judge it."""
    return PACKAGES_SECONDS + BUILD_SECONDS + judging_seconds(limits)


def end_of(state: Mapping[str, Any], limits: SandboxGroup) -> str:
    """Return why a container's items are unfinished, from Docker's State."""
    if state.get("OOMKilled"):
        return f"the container ran out of memory (sandbox.memory = {limits.memory})"
    status = state.get("ExitCode", "unknown")
    if status == KILLED:
        # A busy engine hears of the kernel's reason after it has said that the container has ended.
        return (
            f"the container was killed (exit status {status}), most often because it ran out of memory "
            f"(sandbox.memory = {limits.memory}), before it finished the item"
        )
    return f"the container ended with exit status {status} before it finished the item"
