"""A corpus on an engine that sees none of the worker's files: a volume, filled once and mounted read-only."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from skillopt_airflow.sandbox.corpus_cache import NAME_CHARS, of_one_task
from skillopt_airflow.sandbox.tar_archive import packed_files
from skillopt_airflow.sandbox.task_workload import Corpus

CORPUS_LABEL = "skillopt.corpus"
"""The hash of the corpus that a volume holds; no task removes it."""
FOLDER = "/corpus"
COMPLETE = ".complete"
"""A file that is written last. No file of a corpus has a name like it."""

log = logging.getLogger(__name__)


def filled_volume(
    client: Any, corpus: Corpus, beside: Path, keeper: Callable[[str], AbstractContextManager[str]]
) -> str:
    """Return the engine's volume of a corpus; the worker's first task fills it, and the others wait.

    Args:
        client: of the engine.
        corpus: what it holds.
        beside: the worker's folder of temporary files.
        keeper: runs a container with a volume in `FOLDER`, through which archives reach it.
    """
    sha256 = corpus.manifest.sha256
    name = f"skillopt-corpus-{sha256[:NAME_CHARS]}"
    with of_one_task(beside, f"{name}.volume"):
        # It is the same one if it is there.
        client.create_volume(name, driver="local", labels={CORPUS_LABEL: sha256})
        with keeper(name) as container:
            if not _is_complete(client, container):
                log.info("filling the volume %s: %d bytes", name, corpus.manifest.size)
                for archive in corpus.archives():
                    client.put_archive(container, FOLDER, archive)
                client.put_archive(container, FOLDER, packed_files([(COMPLETE, b"")]))
    return name


def _is_complete(client: Any, container: str) -> bool:
    from docker.errors import NotFound

    try:
        chunks, _ = client.get_archive(container, f"{FOLDER}/{COMPLETE}")
    except NotFound:
        return False
    chunks.close()
    return True
