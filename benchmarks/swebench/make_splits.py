"""Write the splits of a folder of instances: `python -m benchmarks.swebench.make_splits FOLDER`.

Each folder anywhere below it that has an instance.json is an instance. Each repository's instances
go to train, val and test by 2:1:7, at least one to train and to val, as in the reference implementation's splits.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .instance_folder import row, write_rows

PARTS = {"train": 2, "val": 1, "test": 7}
SEED = 42


def main(folder: Path) -> None:
    """Write <split>/items.json below the folder, and say how many instances each has."""
    found = sorted(path.parent for path in folder.glob("**/instance.json"))
    if not found:
        sys.exit(f"{folder}: no folder below it has an instance.json")
    try:
        rows = [row(one, folder) for one in found]
    except ValueError as error:
        sys.exit(str(error))
    for split, members in split_rows(rows).items():
        write_rows(folder / split, members)
        sys.stdout.write(f"{split}: {len(members)} instances\n")


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
    """Return how many of so many instances go to each split: by largest remainder, then one for train and for val."""
    total = sum(PARTS.values())
    found = {split: size * part // total for split, part in PARTS.items()}
    rest = sorted(PARTS, key=lambda split: -(size * PARTS[split] % total))
    for split in rest[: size - sum(found.values())]:
        found[split] += 1
    for split in ("train", "val"):
        richest = max(found, key=lambda one: found[one])
        if found[split] == 0 and found[richest] > 1:
            found[richest] -= 1
            found[split] += 1
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.swebench.make_splits FOLDER")
    main(Path(sys.argv[1]))
