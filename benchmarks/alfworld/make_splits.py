"""Write the splits of a folder of ALFWorld's games: `python benchmarks/alfworld/make_splits.py FOLDER`.

The folder has ALFWorld's download, json_2.1.1/<split>/<task>/<trial>/game.tw-pddl. The splits train, valid_seen, and
valid_unseen become train, val, and test. As in ALFWorld, games with movable receptacles or sliced objects and games
that may be unsolvable are excluded.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SPLITS = {"train": ("train", "valid_train"), "val": ("valid_seen",), "test": ("valid_unseen",)}
"""Folders of games by split."""
GAME = "game.tw-pddl"
EXCLUDED = ("movable", "Sliced")


def main(folder: Path) -> None:
    """Write <split>/items.json below the folder, and print the counts."""
    if not (folder / "json_2.1.1").is_dir():
        sys.exit(f"{folder}: no folder json_2.1.1. Name the folder that alfworld-download wrote")
    for split, sources in SPLITS.items():
        records = [
            {"id": f"{split}:{index:04}", "gamefile": str(game.relative_to(folder)), "task_type": task_type(game)}
            for index, game in enumerate(game for source in sources for game in games(folder / "json_2.1.1" / source))
        ]
        (folder / split).mkdir(exist_ok=True)
        (folder / split / "items.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{split}: {len(records)} games\n")


def games(folder: Path) -> Iterator[Path]:
    """Yield the playable games below a folder, sorted by path."""
    for game in sorted(folder.glob(f"*/*/{GAME}")):
        if (
            not any(word in str(game.relative_to(folder)) for word in EXCLUDED)
            and json.loads(game.read_bytes()).get("solvable") is True
        ):
            yield game


def task_type(game: Path) -> str:
    return game.parent.parent.name.partition("-")[0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/alfworld/make_splits.py FOLDER")
    main(Path(sys.argv[1]))
