"""A command in a running container: its exit status and output, as the engine tells them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from skillopt_airflow.sandbox.docker_container import capped


def executed(
    client: Any, container: str, command: Sequence[str], *, user: str, most: int, **options: Any
) -> tuple[int | None, str]:
    """Run a command to its end; return its exit status, None if the container ended first, and what it printed.

    Args:
        client: the engine's low-level client.
        container: a running one.
        command: program and arguments.
        user: whose rights it has.
        most: bytes of output that are kept, from the beginning.
        options: further ones of the engine's exec, such as environment and workdir.
    """
    made = client.exec_create(container, list(command), user=user, **options)
    stream = client.exec_start(made["Id"], stream=True)
    try:
        said = b"".join(capped(stream, most)).decode(errors="replace")
    finally:
        # The client leaves the connection open when the command ends, and its own `close` leaves a reader.
        with suppress(OSError, AttributeError):
            stream.close()
            stream._response.close()
    found: Mapping[str, Any] = client.exec_inspect(made["Id"])
    return found["ExitCode"], said
