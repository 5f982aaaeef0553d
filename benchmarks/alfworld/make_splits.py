"""Write the splits of a folder of ALFWorld's games: `python benchmarks/alfworld/make_splits.py FOLDER`.

The folder holds json_2.1.1/<split>/<task>/<trial>/game.tw-pddl, as ALFWorld's downloader leaves it. train becomes
train, valid_seen val, valid_unseen test. Games that ALFWorld leaves out are left out: those with movable receptacles or
sliced objects, and those that are not known to be solvable.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SPLITS = {"train": ("train", "valid_train"), "val": ("valid_seen",), "test": ("valid_unseen",)}
"""The games' folders, by the split that they become."""
GAME = "game.tw-pddl"
LEFT_OUT = ("movable", "Sliced")


def main(folder: Path) -> None:
    """Write <split>/items.json below the folder, and say how many games each has."""
    if not (folder / "json_2.1.1").is_dir():
        sys.exit(f"{folder}: it has no folder json_2.1.1; name the one that alfworld-download filled")
    for split, sources in SPLITS.items():
        records = [
            {"id": f"{split}:{index:04}", "gamefile": str(game.relative_to(folder)), "task_type": task_type(game)}
            for index, game in enumerate(game for source in sources for game in games(folder / "json_2.1.1" / source))
        ]
        (folder / split).mkdir(exist_ok=True)
        (folder / split / "items.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{split}: {len(records)} games\n")


def games(folder: Path) -> Iterator[Path]:
    """Yield the games below a folder that can be played, in the order of their paths."""
    for game in sorted(folder.glob(f"*/*/{GAME}")):
        if (
            not any(word in str(game.relative_to(folder)) for word in LEFT_OUT)
            and json.loads(game.read_bytes()).get("solvable") is True
        ):
            yield game


def task_type(game: Path) -> str:
    """Return the type of a game's task, which its folder's name begins with."""
    return game.parent.parent.name.partition("-")[0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/alfworld/make_splits.py FOLDER")
    main(Path(sys.argv[1]))
