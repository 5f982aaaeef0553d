"""Write the splits of a data set: `python -m benchmarks.swebench.make_splits FOLDER`, or `... FILE FOLDER`.

Of a folder alone, each folder anywhere below it that has an instance.json is an instance; a file has SWE-bench's own
rows, as Parquet, JSON or JSONL. Each repository's instances go to train, val and test by 2:1:7, at least one to train
and to val, as in the reference implementation's splits.
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
    """Write <split>/items.json below the folder, and say how many instances each has."""
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
        ValueError: there is none, or one lacks a file or a key.
    """
    found = sorted(path.parent for path in folder.glob("**/instance.json"))
    if not found:
        raise ValueError(f"{folder}: no folder below it has an instance.json")
    return [row(one, folder) for one in found]


def published_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of SWE-bench, with its twelve columns and, where it is there, `image`.

    Raises:
        ValueError: it cannot be read, or a row lacks a column.
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
        raise ValueError(f"{file}: it cannot be read: {error}") from None
    for number, one in enumerate(rows, start=1):
        missing = [name for name in COLUMNS if name not in one]
        if missing:
            raise ValueError(f"{file}: row {number} lacks {', '.join(missing)}")
    kept = (*COLUMNS, "image")
    return [{name: one[name] for name in kept if one.get(name) is not None} for one in rows]


def split_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows by split, each repository's apart, by chance from a fixed seed."""
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
    """Return the number of a repository's instances in each split, as SkillOpt's `envs/swebench/dataloader.py` has it.

    Train and val have their rounded shares, and at least one of three or more instances. Of two, one is for train.
    """
    least = int(size >= 3)
    train = max(least, round(size * PARTS["train"] / sum(PARTS.values()))) if size != 2 else 1
    val = max(least, round(size * PARTS["val"] / sum(PARTS.values())))
    return {"train": train, "val": val, "test": size - train - val}


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m benchmarks.swebench.make_splits [FILE] FOLDER")
    main(Path(sys.argv[1]), Path(sys.argv[-1]))
