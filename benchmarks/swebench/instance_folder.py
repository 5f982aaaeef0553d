"""Instance folders (repo.tar.gz, instance.json, run.json, requirements.txt) and their rows in a split."""

import difflib
import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = (
    "repo",
    "instance_id",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "hints_text",
    "created_at",
    "version",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
    "environment_setup_commit",
)
"""SWE-bench's columns. The last four can be empty; the two lists are JSON."""


def write_instance(
    folder: Path,
    record: Mapping[str, Any],
    tree: Mapping[str, bytes],
    run: Mapping[str, Any],
    requirements: str = "",
    executable: Sequence[str] = (),
) -> None:
    """Write a reproducible instance folder; `tree` has the files of the base commit by path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "repo.tar.gz").write_bytes(archive(tree, executable))
    for name, value in (("instance.json", record), ("run.json", run)):
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")


def archive(tree: Mapping[str, bytes], executable: Sequence[str] = ()) -> bytes:
    """Return a tar.gz without times and owners."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path in sorted(tree):
            entry = tarfile.TarInfo(f"./{path}")
            entry.size, entry.mode = len(tree[path]), 0o755 if path in executable else 0o644
            tar.addfile(entry, io.BytesIO(tree[path]))
    return packed.getvalue()


def row(folder: Path, data: Path) -> dict[str, Any]:
    """Return the row of a split for this folder, with its path below the data folder.

    Raises:
        ValueError: a file or a key is missing.
    """
    try:
        record = json.loads((folder / "instance.json").read_bytes())
        run = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}: not an instance: {error}") from None
    missing = [name for name in COLUMNS if name not in record]
    if missing or "runner" not in run or not (folder / "repo.tar.gz").is_file():
        absent = ", ".join(missing) or "repo.tar.gz, and the runner in run.json"
        raise ValueError(f"{folder}: not an instance, it lacks {absent}")
    lists = {name: as_json(record[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    kept = {name: record[name] for name in COLUMNS}
    return {**kept, **lists, "instance": folder.relative_to(data).as_posix(), "run": run}


def as_json(tests: str | list[str]) -> str:
    return tests if isinstance(tests, str) else json.dumps(tests)


def write_rows(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    (folder / "items.json").write_text(text, encoding="utf-8")


def git_diff(path: str, before: str, after: str) -> str:
    """Return the diff of a text file with git's header."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    body = "".join(lines)
    return f"diff --git a/{path} b/{path}\n{body}" if body else ""
