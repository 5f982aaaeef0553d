"""The sample of a benchmark whose pictures a script draws, and the stand-in's work on it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from local.standin.reader import respond
from PIL import Image

from local.standin.stage_request import SeenTrajectory
from skillopt_airflow import benchmarks
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.types import Message, Score, Status, Trajectory


def check_made_again(main: Callable[[Path], None], committed: Path, folder: Path) -> None:
    """Check that the script makes in an empty folder what is committed."""
    main(folder)
    made = sorted(folder.rglob("*.*"))
    assert [path.relative_to(folder) for path in made] == [
        path.relative_to(committed) for path in sorted(committed.rglob("*.*"))
    ]
    for path in made:
        other = committed / path.relative_to(folder)
        if path.suffix == ".png":
            # Another release of Pillow may pack the same pixels in another way.
            assert Image.open(other).convert("RGB").tobytes() == Image.open(path).convert("RGB").tobytes()
        else:
            assert other.read_bytes() == path.read_bytes()


@dataclass(frozen=True)
class DrawnSample:
    """A benchmark's sample under its seed skill, with rules of its stand-in."""

    name: str
    benchmark: Benchmark
    rules: Mapping[str, str]
    """A rule of each directive, as a line of a skill."""

    @property
    def folder(self) -> Path:
        return benchmarks.folder(self.name) / "sample"

    @cached_property
    def seed(self) -> str:
        return benchmarks.seed_skill(self.name).read_text(encoding="utf-8")

    def records(self, split: str) -> Any:
        return json.loads((self.folder / split / "items.json").read_text("utf-8"))

    def tried(self, record: dict[str, Any], skill: str) -> tuple[SeenTrajectory, Score]:
        """What the optimizer sees of the stand-in's work on a record, and its score."""
        item = self.benchmark.item(record)
        system, user = self.benchmark.messages(item.public, skill)
        pictures = [(self.folder / file.path).read_bytes() for file in item.files]
        reply = respond(system.content, user.content, pictures)
        answer = self.benchmark.answer(reply)
        score = self.benchmark.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))
        messages = (system, user, Message(role="assistant", content=reply))
        return SeenTrajectory(item_id=item.id, feedback=score.feedback, messages=messages), score

    def accuracy(self, *names: str) -> float:
        """The share of the test items that are right under the seed with rules."""
        skill, tested = self.seed + "".join(self.rules[name] for name in names), self.records("test")
        return sum(self.tried(record, skill)[1].hard for record in tested) / len(tested)
