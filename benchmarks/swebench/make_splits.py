"""Write the splits of a dataset: `python -m benchmarks.swebench.make_splits [FILE] FOLDER`.

FILE has SWE-bench's rows as Parquet, JSON, or JSONL. Without it, each folder below FOLDER with an instance.json is an
instance. Each repository's instances are split 2:1:7 into train, val, and test, as in the reference implementation.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .instance_folder import COLUMNS, row, write_rows

PARTS = {"train": 2, "val": 1, "test": 7}
SEED = 42


def main(source: Path, folder: Path) -> None:
    """Write <split>/items.json below the folder, and print the counts."""
    try:
        rows = published_rows(source) if source.is_file() else rows_below(folder)
    except ValueError as error:
        sys.exit(str(error))
    for split, members in split_rows(rows).items():
        write_rows(folder / split, members)
        sys.stdout.write(f"{split}: {len(members)} instances\n")


def rows_below(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all instances below a folder.

    Raises:
        ValueError: no instances, or one lacks a file or a key.
    """
    folders = sorted(path.parent for path in folder.glob("**/instance.json"))
    if not folders:
        raise ValueError(f"{folder}: no instance.json below this folder")
    return [row(one, folder) for one in folders]


def published_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an SWE-bench file, with its twelve columns and an optional `image`.

    Raises:
        ValueError: the file is unreadable, or a row lacks a column.
    """
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet as pq

            rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
        elif file.suffix == ".jsonl":
            rows = [json.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
        else:
            rows = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: can't read it: {error}") from None
    for number, one in enumerate(rows, start=1):
        missing = [name for name in COLUMNS if name not in one]
        if missing:
            raise ValueError(f"{file}: row {number} lacks {', '.join(missing)}")
    columns = (*COLUMNS, "image")
    return [{name: one[name] for name in columns if one.get(name) is not None} for one in rows]


def split_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Split each repository's rows at random, with a fixed seed."""
    by_repository = defaultdict[str, list[Mapping[str, Any]]](list)
    for one in sorted(rows, key=lambda row: str(row["instance_id"])):
        by_repository[str(one["repo"])].append(one)
    splits: dict[str, list[Mapping[str, Any]]] = {split: [] for split in PARTS}
    chance = random.Random(SEED)  # noqa: S311
    for repository in sorted(by_repository):
        members = by_repository[repository]
        chance.shuffle(members)
        for split, count in counts(len(members)).items():
            splits[split] += members[:count]
            del members[:count]
    return splits


def counts(size: int) -> dict[str, int]:
    """Return the number of a repository's instances per split, as in SkillOpt's `envs/swebench/dataloader.py`.

    Train and val get rounded shares, and at least one each of three or more instances. Of two, train gets one.
    """
    least = int(size >= 3)
    train = max(least, round(size * PARTS["train"] / sum(PARTS.values()))) if size != 2 else 1
    val = max(least, round(size * PARTS["val"] / sum(PARTS.values())))
    return {"train": train, "val": val, "test": size - train - val}


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m benchmarks.swebench.make_splits [FILE] FOLDER")
    main(Path(sys.argv[1]), Path(sys.argv[-1]))
