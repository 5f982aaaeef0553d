"""The limits of a container, as options of Docker's HostConfig."""

import signal
from collections.abc import Mapping
from typing import Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup

KILLED = 128 + signal.SIGKILL
KILOBYTE = 1024
MEGABYTE = 1024 * KILOBYTE
TMP_MEGABYTES = 64
WORK_FOLDER = "/work"
"""Folder of an item's repository."""
CORPUS_FOLDER = "/corpus"
PACKAGES_SECONDS = 1200
"""Timeout of fetching the packages of an item's image."""
BUILD_SECONDS = 600
LAYOUT_SECONDS = 120
"""Timeout of laying out a tree for its tests."""
MAX_OPEN_FILES = 1024
PIDS = 128
MAX_LOG_BYTES = 64 * KILOBYTE
"""Limit of a container's output in the task log."""
BUILD_MEMORY = "2g"
BUILD_PIDS = 256
NANO = 1_000_000_000
MEMORY_UNITS = {"k": KILOBYTE, "m": MEGABYTE, "g": KILOBYTE * MEGABYTE}


def host_options(limits: SandboxGroup, *, has_repository: bool = False) -> dict[str, Any]:
    """Return the HostConfig without mounts; a repository gets an executable folder in memory."""
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
    """Return the HostConfig of a gateway or courier without mounts; None is the engine's default network."""
    options = _closed(f"{megabytes}m", PIDS)
    return options if network is None else options | {"network_mode": network}


def build_options(limits: SandboxGroup) -> dict[str, Any]:
    """Return the HostConfig of the container that builds an item's image as root from any user's files."""
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
        # The engine's copy of the output on its disk.
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m", "max-file": "1"}),
    }


def parallel_containers(limits: SandboxGroup, concurrency: int, run_concurrency: int, engine_memory: int) -> int:
    """Return the number of one-item containers that a task may run at the same time.

    The run's tasks share half of the engine's memory in proportion to their concurrency.
    """
    each = int(limits.memory[:-1]) * MEMORY_UNITS[limits.memory[-1]]
    return max(1, min(concurrency, engine_memory // 2 * concurrency // (each * run_concurrency)))


def task_seconds(limits: SandboxGroup, items: int, start_seconds: int = 0) -> int:
    """Return the timeout of a task: enough for its items one by one, each up to its limit, and one more limit.

    It suffices for a shared container, and for one container per item where only one fits at a time.
    """
    return (items + 1) * (limits.timeout + start_seconds)


def judging_seconds(limits: SandboxGroup) -> int:
    return 2 * LAYOUT_SECONDS + limits.test_timeout


def repository_seconds(limits: SandboxGroup) -> int:
    """Return the additional seconds of an item with a repository, for its image and its tests."""
    return PACKAGES_SECONDS + BUILD_SECONDS + judging_seconds(limits)


def end_reason(state: Mapping[str, Any], limits: SandboxGroup) -> str:
    """Return the reason why a container's items are unfinished, from Docker's State."""
    if state.get("OOMKilled"):
        return f"the container ran out of memory (sandbox.memory = {limits.memory})"
    status = state.get("ExitCode", "unknown")
    if status == KILLED:
        # A busy engine may not know the kernel's reason yet when it reports the end.
        return (
            f"the container was killed (exit status {status}), most often because it ran out of memory "
            f"(sandbox.memory = {limits.memory}), before it finished the item"
        )
    return f"the container ended with exit status {status} before it finished the item"
