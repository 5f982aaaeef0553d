"""The values of a training: items, trajectories, rollouts, edits, patches."""

import hashlib
import json
import re
from collections.abc import Iterable
from enum import StrEnum
from heapq import nsmallest
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.text import Text

JsonObject = dict[str, JsonValue]
UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]


class Value(BaseModel):
    """Base of all values: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def canonical_json(value: JsonValue) -> str:
    """Return JSON with sorted keys and without whitespace, so that equal values have equal hashes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Split(StrEnum):
    """The parts of a dataset; `val` is the selection split, on which the gate decides."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    PUBLISH = "publish"
    """Optional items that only publishing uses."""
    FRESH = "fresh"
    """Items that arrive later, one partition per night; trainings don't read them."""


DATA_SPLITS = (Split.TRAIN, Split.VAL, Split.TEST)
"""The required parts of a dataset."""
ALL_DATA_SPLITS = (*DATA_SPLITS, Split.PUBLISH)


class Status(StrEnum):
    """The outcome of a rollout, which has a score if and only if its status is `scored`."""

    OK = "ok"
    TRUNCATED = "truncated"
    """The last answer was cut off at `model.max_tokens`. Without its score, a skill that makes the target ramble would
    be measured only on the other items."""
    EMPTY = "empty"
    MODEL_ERROR = "model_error"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    TOO_LONG = "too_long"
    """The prompt, or the answer with it, doesn't fit into the target's limits."""
    BUDGET = "budget"
    SANDBOX_ERROR = "sandbox_error"
    JUDGE_ERROR = "judge_error"
    """The target answered, but the judge model didn't. A retry of the task only asks the judge again."""
    DATA_ERROR = "data_error"
    """The item never ran, because its record or one of its files is unusable; see `Item.unusable`."""

    @property
    def scored(self) -> bool:
        return self in (Status.OK, Status.TRUNCATED, Status.EMPTY)


HAS_SCORE = tuple(status.value for status in Status if status.scored)
"""The statuses with a score, as strings in tables."""

FILE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
"""The names of an item's files, and of files that the target writes."""
MAX_FILES = 64
"""Limit of the target's files per item."""


def files_to_score(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted names of those of the target's files that the scorer gets."""
    return tuple(nsmallest(MAX_FILES, (name for name in names if re.fullmatch(FILE_NAME, name))))


class ItemFile(Value):
    """A file of an item: its name in the sandbox, and its path in the dataset."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    path: str = Field(min_length=1)
    """Path below the dataset's folder; `*` in its last part matches any characters."""
    sha256: str = ""
    """Hash of the content; empty until the file is stored."""
    picture: bool = False
    """True if the target sees it; `#page=3` after the path then selects a page."""
    pixels: tuple[int, int] | None = None


class ItemImage(Value):
    """The repository of an item's image, which is built on the run's sandbox image: another image, or an archive."""

    name: str = ""
    """Name of an image with a repository and its packages; the repository's tests run in this image."""
    folder: str = ""
    """Path of the repository in the named image."""
    environment: str = ""
    """Path of the packages' environment in the named image: a folder with `bin/python`."""
    tree: ItemFile | None = None
    """Archive (tar.gz) of a repository; the target works in a copy."""
    requirements: ItemFile | None = None
    """Pinned requirements of the repository in pip's format; wheels only."""
    import_roots: tuple[str, ...] = (".",)
    """Folders below the repository that are added to Python's path."""

    @model_validator(mode="after")
    def _named_or_built(self) -> Self:
        if bool(self.name) == (self.tree is not None):
            raise ValueError("an image needs either a name or a tree")
        if not bool(self.name) == self.folder.startswith("/") == self.environment.startswith("/"):
            raise ValueError("only a named image has a folder and an environment, as absolute paths")
        return self

    @property
    def files(self) -> tuple[ItemFile, ...]:
        return tuple(file for file in (self.tree, self.requirements) if file is not None)


class Item(Value):
    """One exercise of a benchmark.

    Only `public` and `files` enter a container and are visible to the target. `reference` and `reference_files` are for
    the scorer and never leave the host.
    """

    id: str = Field(min_length=1)
    public: JsonObject
    reference: JsonObject
    files: tuple[ItemFile, ...] = ()
    reference_files: tuple[ItemFile, ...] = ()
    group: str = ""
    """Name of a group of items with dependent scores, such as those on one document; empty for an independent item."""
    unusable: Text = ""
    """The reason why the record or a file is unusable. The item then has only an id, and fails without a rollout."""
    task_types: tuple[str, ...] = ()
    """Types of task for separate scores, if `data.task_type` names their field in a record."""
    image: ItemImage | None = None
    """The item's image; None for the run's sandbox image."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all fields that a rollout depends on; the rollout cache treats a changed item as a new one."""
        dumped = self.model_dump(
            mode="json",
            exclude={
                "files": {"__all__": {"path", "pixels"}},
                "reference_files": {"__all__": {"path"}},
                "image": {"tree": {"path"}, "requirements": {"path"}},
                "group": True,
                "unusable": True,
                "task_types": True,
            },
        )
        return sha256(canonical_json(dumped))


class ItemRef(NamedTuple):
    """The identity of an item when the run began; see the fields of `Item`."""

    id: str
    fingerprint: str
    group: str = ""
    unusable: str = ""
    task_types: tuple[str, ...] = ()


def items_fingerprint(fingerprints: Iterable[str]) -> str:
    """Return the SHA-256 of the sorted fingerprints; the order of the items doesn't matter."""
    return sha256(canonical_json([*sorted(fingerprints)]))


class Message(Value):
    """One turn of a conversation with the target."""

    role: Literal["system", "user", "assistant", "call", "tool"]
    """`call` is the target's call of a tool, as `name({"argument": 1})` or `$ command`, and `tool` is its result."""
    content: Text


class Trajectory(Value):
    """The target's work on one item, as reported by the sandbox."""

    item_id: str = Field(min_length=1)
    status: Status
    error: Text = ""
    lasting_error: str = Field(default="", max_length=20)
    """HTTP status or `unreadable`, for an error that retries don't fix; else empty. Not stored in tables."""
    messages: tuple[Message, ...] = Field(default=(), fail_fast=True)
    answer: Text = ""
    files: tuple[str, ...] = Field(default=(), fail_fast=True)
    # A container reports these numbers; the bounds keep them within the range of tables.
    calls: int = Field(default=0, ge=0, le=10**12)
    prompt_tokens: int = Field(default=0, ge=0, le=10**12)
    completion_tokens: int = Field(default=0, ge=0, le=10**12)
    started: float = Field(default=0.0, ge=0.0, le=1e11, allow_inf_nan=False)
    """Unix time in seconds."""
    seconds: float = Field(default=0.0, ge=0.0, le=1e11, allow_inf_nan=False)


class Verdict(Value):
    """A judge model's reply about an answer."""

    grade: Literal["correct", "incorrect", "not_attempted"]
    quote: Text
    """The part of the answer on which the grade is based, word for word."""
    reason: Text


class Grade(Verdict):
    """A verdict with a valid quote."""

    process: UnitInterval | None = None
    """The share of a known solution's steps that the answer takes, if the judge graded steps."""


class Score(Value):
    """A scorer's result: `hard` decides, `soft` gives partial credit, `feedback` explains it."""

    hard: UnitInterval
    soft: UnitInterval
    feedback: Text = ""
    grade: Grade | None = None


class Rollout(Value):
    """A trajectory and its score; a trajectory that failed has none."""

    trajectory: Trajectory
    score: Score | None

    @model_validator(mode="after")
    def _score_only_what_ran(self) -> Self:
        if (self.score is not None) != self.trajectory.status.scored:
            raise ValueError(f"a rollout has a score if and only if its status is {', '.join(HAS_SCORE)}")
        return self

    @property
    def result(self) -> "RolloutResult":
        one, score = self.trajectory, self.score
        hard, soft = (None, None) if score is None else (score.hard, score.soft)
        return RolloutResult(one.item_id, one.status, one.error, one.started, hard, soft)


class RolloutResult(NamedTuple):
    """A rollout without messages: the fields on which scores and counts are based."""

    item_id: str
    status: Status
    error: str
    started: float
    """Unix time in seconds."""
    hard: float | None
    """None, like soft, unless the status has a score."""
    soft: float | None


EditOp = Literal["append", "insert_after", "replace", "delete"]
AnyEditOp = Literal[EditOp, "rewrite", "region"]
"""`rewrite` replaces the body, `region` the inside of a protected region; analysts can't propose these two."""
SourceType = Literal["failure", "success"]


class Edit(Value):
    """One change to a skill, with its sources (paper section 3.3)."""

    op: AnyEditOp
    anchor: str = ""
    """The text of the skill to which insert_after, replace and delete refer; for region, the region's name."""
    content: str = ""
    rationale: str = ""
    support_count: int = Field(default=1, ge=1)
    """The number of items that the edit would help, or of minibatches that proposed it if no items are named."""
    item_ids: tuple[str, ...] = ()
    """The items that the edit would help, according to its analysts."""
    source_type: SourceType = "failure"
    merge_level: int = Field(default=0, ge=0)
    """Number of merges since a minibatch proposed it."""
    minibatches: tuple[str, ...] = ()
    """The minibatches that proposed it, as `<source_type>-<index>`."""


class FailurePattern(Value):
    """A recurring fault in the optimizer's words, or the scorer's, and the items that show it."""

    description: str
    item_ids: tuple[str, ...] = ()


class Note(Value):
    """A line of the skill's appendix: a reminder of a rule that the target didn't follow."""

    text: str = Field(min_length=1)
    minibatch: str
    """The minibatch that proposed it, as `<source_type>-<index>`."""


SEPARATOR = "; "


class Patch(Document):
    """Edits to apply together, in order."""

    edits: tuple[Edit, ...] = ()
    failure_patterns: tuple[FailurePattern, ...] = ()
    notes: tuple[Note, ...] = ()
    fallback: str = ""
    """The reasons why deterministic rules replaced answers of the optimizer, joined by SEPARATOR; or empty."""

    @property
    def fallbacks(self) -> tuple[str, ...]:
        return tuple(self.fallback.split(SEPARATOR)) if self.fallback else ()

    def also(self, fallback: str) -> Self:
        """Return the patch with one more fallback, if there is one."""
        return self.model_copy(update={"fallback": SEPARATOR.join(filter(None, (self.fallback, fallback)))})


class ModelCall(Value):
    """One request to a model provider, including its retries, for the usage table."""

    role: Literal["target", "optimizer", "judge"]
    stage: str
    """The call's purpose, such as rollout, evaluate, reflect, merge, rank."""
    model: str
    http_status: int
    """Status of the last attempt; 0 without an answer."""
    attempts: int = Field(ge=1)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    started: float = Field(ge=0.0)
    """Unix time in seconds."""
    seconds: float = Field(ge=0.0)
    batch: bool = False
    """True if it was part of a batch job, which costs half."""
