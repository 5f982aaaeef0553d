"""The files that worlds are made of, kept from everything else in the container.

They tell where things are and what the goal is. So they are read once, before the first item begins, and removed; from
then on they are in memory that no other process of the container's user may read.
"""

import ctypes
import shutil
from collections.abc import Mapping
from pathlib import Path

PR_SET_DUMPABLE = 4
"""Number of the option of prctl(2)."""


def take(folder: Path) -> Mapping[int, Mapping[str, bytes]]:
    """Return the content of a folder with a folder an item, by the item's index and the file's name, and remove it.

    It is empty where there is no such folder, because the items are no sessions.
    """
    if not folder.is_dir():
        return {}
    hide_memory()
    taken = {int(item.name): {file.name: file.read_bytes() for file in item.iterdir()} for item in folder.iterdir()}
    shutil.rmtree(folder)
    return taken


def hide_memory() -> None:
    """Close this process to others of its user: its memory, its open files, its environment (ptrace(2), proc(5))."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed, so that worlds would not be sealed")
