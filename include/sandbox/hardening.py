"""What a container may use, as options of Docker's HostConfig."""

from collections.abc import Mapping
from typing import Any

from include.core.config import SandboxGroup

MEGABYTE = 1024 * 1024
TMP_MEGABYTES = 64
MAX_OPEN_FILES = 1024
NANO = 1_000_000_000


def host_options(limits: SandboxGroup) -> dict[str, Any]:
    """Options that DockerOperator has no argument for; they win over its own."""
    from docker.types import Ulimit

    output_bytes = limits.output_mb * MEGABYTE
    return {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={TMP_MEGABYTES}m"},  # noqa: S108
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        "pids_limit": limits.pids,
        "nano_cpus": round(limits.cpus * NANO),
        # Shares beside a quota would only make containers unequal.
        "cpu_shares": None,
        "ulimits": [
            Ulimit(name="fsize", soft=output_bytes, hard=output_bytes),
            Ulimit(name="nofile", soft=MAX_OPEN_FILES, hard=MAX_OPEN_FILES),
            Ulimit(name="core", soft=0, hard=0),
        ],
    }


def end_of(state: Mapping[str, Any], limits: SandboxGroup) -> str:
    """Why a container's items are unfinished, in the user's words, from Docker's State."""
    if state.get("OOMKilled"):
        return f"the container ran out of memory (sandbox.memory = {limits.memory})"
    status = state.get("ExitCode", "unknown")
    return f"the container ended with exit status {status} before it finished the item"
