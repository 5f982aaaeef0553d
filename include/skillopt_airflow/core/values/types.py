"""The values that flow through a training: items, trajectories, rollouts, edits, patches."""

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
    """Base of all values: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def canonical_json(value: JsonValue) -> str:
    """Write a value as JSON with sorted keys and no blanks, so that equal values hash alike."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Split(StrEnum):
    """The parts of a data set; `val` is the selection split that the gate looks at."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    PUBLISH = "publish"
    """Items that only publishing looks at, where the data set has them."""
    FRESH = "fresh"
    """Items that came in later, a partition a night; no part of the data set that a training reads."""


DATA_SPLITS = (Split.TRAIN, Split.VAL, Split.TEST)
"""The parts that every data set of a training has."""
ALL_DATA_SPLITS = (*DATA_SPLITS, Split.PUBLISH)
"""Those, and the one that it may have besides."""


class Status(StrEnum):
    """The outcome of a rollout; it has a score exactly if it is `scored`."""

    OK = "ok"
    TRUNCATED = "truncated"
    """The last answer was cut off at `model.max_tokens`. It is scored by what it holds: otherwise a skill that makes
    the target ramble would be measured only on the items where it does not."""
    EMPTY = "empty"
    """The target answered without any text, and left no files. It is scored as such."""
    MODEL_ERROR = "model_error"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    TOO_LONG = "too_long"
    """The prompt, or the answer with it, doesn't fit into the target's limits."""
    BUDGET = "budget"
    SANDBOX_ERROR = "sandbox_error"
    JUDGE_ERROR = "judge_error"
    """The target has answered, but the model that was to judge the answer has not. It is asked again, without another
    rollout, when the task is tried again."""
    DATA_ERROR = "data_error"
    """The item's record or one of its files is of no use, so that it never ran; see `Item.unusable`."""

    @property
    def scored(self) -> bool:
        return self in (Status.OK, Status.TRUNCATED, Status.EMPTY)


HAS_SCORE = tuple(status.value for status in Status if status.scored)
"""The statuses with a score, as tables hold them."""

FILE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
"""A plain name of a file: an item's own, or one that the target made."""
MAX_FILES = 64
"""Files that the target may leave for one item."""


def files_to_score(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, sorted, of the files that a scorer can get among all that the target left for an item."""
    return tuple(nsmallest(MAX_FILES, (name for name in names if re.fullmatch(FILE_NAME, name))))


class ItemFile(Value):
    """A file of an item: its plain name for whoever works with it, and where the data set keeps it."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    path: str = Field(min_length=1)
    """Below the data set's folder: that of the splits, or that of the one file. `*` in its last part fits any name."""
    sha256: str = ""
    """Hash of the content; empty until the file is stored."""
    picture: bool = False
    """True if it is shown to the target; `#page=3` behind the path is one page of it then."""
    pixels: tuple[int, int] | None = None
    """Width and height of a stored picture."""


class ItemImage(Value):
    """The source of the image that an item runs in, built on the run's sandbox image: another image, or an archive."""

    name: str = ""
    """Name of an image that holds a repository and its packages; its tests run in that image itself."""
    folder: str = ""
    """Where the repository lies in a named image."""
    environment: str = ""
    """Where the environment of its packages lies in a named image: a folder with `bin/python`."""
    tree: ItemFile | None = None
    """Archive, tar.gz, of the files of a repository; the target works in a copy of them."""
    requirements: ItemFile | None = None
    """Pinned requirements of that repository, as pip reads them; wheels only."""
    import_roots: tuple[str, ...] = (".",)
    """Folders below the repository that are on Python's path."""

    @model_validator(mode="after")
    def _named_or_built(self) -> Self:
        if bool(self.name) == (self.tree is not None):
            raise ValueError("an image has either a name or a tree that it is built from")
        if not bool(self.name) == self.folder.startswith("/") == self.environment.startswith("/"):
            raise ValueError("a named image, and no other, has folder and environment, from the root on")
        return self

    @property
    def files(self) -> tuple[ItemFile, ...]:
        return tuple(file for file in (self.tree, self.requirements) if file is not None)


class Item(Value):
    """One exercise of a benchmark.

    `public` and `files` are what the target may see and all of an item that enters a container;
    `reference` and `reference_files` are what the scorer needs and never leave the host.
    """

    id: str = Field(min_length=1)
    public: JsonObject
    reference: JsonObject
    files: tuple[ItemFile, ...] = ()
    reference_files: tuple[ItemFile, ...] = ()
    group: str = ""
    """What it shares with the items of the same group, such as a document, a problem's family or a repository: their
    scores are not independent. Empty for an item of its own."""
    unusable: Text = ""
    """Why its record or one of its files is of no use; it then has nothing but an id, and fails without a rollout."""
    task_types: tuple[str, ...] = ()
    """Types of task by which scores are told, too, where `data.task_type` names their field in a record."""
    image: ItemImage | None = None
    """The image that it runs in; the run's sandbox image when None."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that a rollout depends on: a changed item is another item to the rollout cache."""
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
    """An item by its id, and what it was when the run began."""

    id: str
    fingerprint: str
    group: str = ""
    unusable: str = ""
    """See `Item.unusable`."""
    task_types: tuple[str, ...] = ()
    """See `Item.task_types`."""


def items_fingerprint(fingerprints: Iterable[str]) -> str:
    """Return the SHA-256 over the sorted fingerprints of items: equal if the items are, in whatever order."""
    return sha256(canonical_json([*sorted(fingerprints)]))


class Message(Value):
    """One turn of a conversation with the target."""

    role: Literal["system", "user", "assistant", "call", "tool"]
    """A `call` is the target's call of a tool, as `name({"argument": 1})` or as `$ command`, and `tool` its result."""
    content: Text


class Trajectory(Value):
    """The target's work on one item, as the sandbox reports it."""

    item_id: str = Field(min_length=1)
    status: Status
    error: Text = ""
    lasting_error: str = Field(default="", max_length=20)
    """Kind of an error that no retry mends, an HTTP status or `unreadable`; empty for any other. No table keeps it."""
    messages: tuple[Message, ...] = Field(default=(), fail_fast=True)
    answer: Text = ""
    files: tuple[str, ...] = Field(default=(), fail_fast=True)
    """Names of the files that the target left for the scorer."""
    # A container says these numbers: what is within their bounds, a table can hold.
    calls: int = Field(default=0, ge=0, le=10**12)
    prompt_tokens: int = Field(default=0, ge=0, le=10**12)
    completion_tokens: int = Field(default=0, ge=0, le=10**12)
    started: float = Field(default=0.0, ge=0.0, le=1e11, allow_inf_nan=False)
    """Unix time in seconds."""
    seconds: float = Field(default=0.0, ge=0.0, le=1e11, allow_inf_nan=False)


class Verdict(Value):
    """A judge's words on an answer."""

    grade: Literal["correct", "incorrect", "not_attempted"]
    quote: Text
    """The part of the answer that the grade rests on, as it stands there."""
    reason: Text


class Grade(Verdict):
    """A verdict that counts."""

    process: UnitInterval | None = None
    """The share of a known way's steps that the answer takes, if those were asked about."""


class Score(Value):
    """A scorer's verdict: `hard` decides, `soft` gives partial credit, `feedback` explains it."""

    hard: UnitInterval
    soft: UnitInterval
    feedback: Text = ""
    grade: Grade | None = None
    """The judge's words, if a model decided it and not the rules."""


class Rollout(Value):
    """A trajectory and its score; a trajectory that failed has none."""

    trajectory: Trajectory
    score: Score | None

    @model_validator(mode="after")
    def _score_only_what_ran(self) -> Self:
        if (self.score is not None) != self.trajectory.status.scored:
            raise ValueError(f"a rollout has a score exactly if its status is {', '.join(HAS_SCORE)}")
        return self

    @property
    def result(self) -> "RolloutResult":
        """Return the rollout without what was said."""
        one, score = self.trajectory, self.score
        hard, soft = (None, None) if score is None else (score.hard, score.soft)
        return RolloutResult(one.item_id, one.status, one.error, one.started, hard, soft)


class RolloutResult(NamedTuple):
    """A rollout without what was said: all that scores and counts rest on."""

    item_id: str
    status: Status
    error: str
    started: float
    """Unix time in seconds."""
    hard: float | None
    """None, like soft, unless the status has a score."""
    soft: float | None


EditOp = Literal["append", "insert_after", "replace", "delete"]
"""Operations that a step's edits may perform."""
AnyEditOp = Literal[EditOp, "rewrite", "region"]
"""rewrite writes the body anew, region the inside of a protected region; analysts cannot propose these two."""
SourceType = Literal["failure", "success"]


class Edit(Value):
    """One change to a skill, with where it came from (paper section 3.3)."""

    op: AnyEditOp
    anchor: str = ""
    """The text of the skill that insert_after, replace and delete refer to; of region the region's name."""
    content: str = ""
    """The text that the edit brings in."""
    rationale: str = ""
    support_count: int = Field(default=1, ge=1)
    """The number of items that the edit answers for, or else of minibatches that proposed it."""
    item_ids: tuple[str, ...] = ()
    """The items that the edit answers for, as its analysts named them."""
    source_type: SourceType = "failure"
    merge_level: int = Field(default=0, ge=0)
    """0 as a minibatch proposed it, n after n levels of merging."""
    minibatches: tuple[str, ...] = ()
    """The minibatches that proposed it, as `<source_type>-<index>`."""


class FailurePattern(Value):
    """A fault that a minibatch shows, in the optimizer's words or else the scorer's, and the items that show it."""

    description: str
    item_ids: tuple[str, ...] = ()


class Note(Value):
    """A rule of the skill that the target failed to carry out; a line of the skill's appendix."""

    text: str = Field(min_length=1)
    minibatch: str
    """The minibatch that proposed it, as `<source_type>-<index>`."""


SEPARATOR = "; "


class Patch(Document):
    """Edits that are meant to be applied together, in order."""

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
    """One request to a model provider, tries included, for the usage table."""

    role: Literal["target", "optimizer", "judge"]
    stage: str
    """The call's purpose, such as rollout, evaluate, reflect, merge, rank."""
    model: str
    http_status: int
    """Status of the last try; 0 if no answer came."""
    attempts: int = Field(ge=1)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    started: float = Field(ge=0.0)
    """Unix time in seconds."""
    seconds: float = Field(ge=0.0)
    batch: bool = False
    """True if it was part of a batch job, which costs half."""
