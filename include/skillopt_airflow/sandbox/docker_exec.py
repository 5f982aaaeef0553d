"""A container that only waits, and a command in it: its exit status and output, as the engine tells them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from skillopt_airflow.sandbox.docker_container import attached, capped
from skillopt_airflow.sandbox.labels import remove_container


@contextmanager
def waiting(client: Any, image: str, seconds: int, **options: Any) -> Iterator[str]:
    """Run a container that only waits, for commands and archives, until the block ends; yield its id.

    The arguments are those of `created`.
    """
    with created(client, image, seconds, **options) as container:
        client.start(container)
        yield container


@contextmanager
def created(
    client: Any, image: str, seconds: int, *, user: str, labels: Mapping[str, str], **host: Any
) -> Iterator[str]:
    """Keep a container that is not started, for archives out of its image, until the block ends; yield its id.

    Args:
        client: the engine's low-level client.
        image: what it would run.
        seconds: after which it ends by itself once it is started.
        user: whose rights it has.
        labels: its own.
        host: limits and mounts, as the engine's host configuration takes them.
    """
    made = client.create_container(
        image,
        entrypoint=["sleep", str(seconds)],
        user=user,
        labels=labels,
        host_config=client.create_host_config(**host),
        use_config_proxy=False,
    )
    try:
        yield str(made["Id"])
    finally:
        remove_container(client, made["Id"])


@contextmanager
def temporary_volume(client: Any, labels: Mapping[str, str], memory: str | None = None) -> Iterator[str]:
    """Make a volume until the block ends; yield its name.

    Args:
        client: the engine's low-level client.
        labels: its own.
        memory: options of its mount, its size among them, if it is in the engine's memory; on its disk when None.
    """
    from docker.errors import DockerException
    from requests import RequestException

    tmpfs = {"type": "tmpfs", "device": "tmpfs", "o": f"{memory},nosuid,nodev,noexec"}
    made = client.create_volume(driver="local", driver_opts=None if memory is None else tmpfs, labels=labels)
    try:
        yield str(made["Name"])
    finally:
        # A killed task's volumes are gone by now.
        with suppress(DockerException, RequestException):
            client.remove_volume(made["Name"], force=True)


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
    with attached(client.exec_start(made["Id"], stream=True)) as frames:
        said = b"".join(capped((part for _, part in frames), most)).decode(errors="replace")
    found: Mapping[str, Any] = client.exec_inspect(made["Id"])
    return found["ExitCode"], said
