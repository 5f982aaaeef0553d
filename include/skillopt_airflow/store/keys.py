"""All object keys. Folders and prefixes end with a slash."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import SourceType, Split, sha256

MAX_RUN_NAME = 120
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def run_name(dag_run_id: str) -> str:
    """Return a run's name in keys and partitions: a safe ID itself, otherwise its slug and 8 digits of its hash.

    The function is idempotent.
    """
    slug = _UNSAFE.sub("-", dag_run_id).lstrip(".")
    if slug == dag_run_id and 0 < len(slug) <= MAX_RUN_NAME:
        return slug
    return f"{slug[: MAX_RUN_NAME - 9]}-{sha256(dag_run_id)[:8]}"


def publication_name(dag_run_id: str, run: str) -> str:
    """Return the name of the publish DAG's attempt to publish a run."""
    name = run_name(dag_run_id)
    # The run's own name is that of the training's attempt.
    return run_name(f"publish-{name}") if name == run else name


def scoring_name(dag_run_id: str) -> str:
    """Return the name of an evaluation DAG's run, different from that of a training with the same ID."""
    return run_name(f"evaluate-{dag_run_id}")


def cell_name(run: str, place: int) -> str:
    """Return the name of a matrix cell's run by the cell's index; the first cell has the matrix's name."""
    return run_name(f"{run}-cell{place + 1}") if place else run


def night_name(date: str, target: str) -> str:
    """Return the name of a night's run (YYYY-MM-DD), which stays the same if the night is cleared."""
    return run_name(f"regate-{date}-{target}")


def partition_value(name: str) -> str:
    """Return a name percent-encoded as a Hive partition value, which pyarrow and DuckDB decode."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def target_of(folder: str) -> str:
    return unquote(folder.removeprefix("target="))


class Below:
    """An attribute that is a key below its object's `folder`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, keys: Any, owner: type) -> str:
        return f"{keys.folder}{self._name}"


@dataclass(frozen=True)
class MomentKeys:
    """Keys that one moment of a run writes, most often a step; `state` is written last and commits it."""

    folder: str

    merged_patch = Below("merged_patch.json")
    ranked_edits = Below("ranked_edits.json")
    """The selected edits, best first."""
    learning_rate = Below("learning_rate.json")
    """The learning rate, if the optimizer chose it."""
    applied_patch = Below("applied_patch.json")
    """The candidate's edits, including notes and rewrites."""
    notes = Below("notes.json")
    """The edits that add the step's notes, if these bypass the gate."""
    notes_apply_report = Below("notes_apply_report.json")
    """The outcome of each of them, numbered after the candidate's edits."""
    line_origins = Below("line_origins.json")
    comparison = Below("comparison.json")
    """The longitudinal comparison of two epochs' last skills."""
    reflected_items = Below("reflected_items.json")
    """The items of the step's reflection, fixed by the first task that reads them."""
    answers = Below("answers/")
    candidate_skill = Below("candidate_skill.md")
    edit_apply_report = Below("edit_apply_report.json")
    gate = Below("gate.json")
    history_row = Below("history_row.json")
    """The moment's row of the history, which only counts once the state is stored."""
    state = Below("state.json")
    reflections = Below("reflections/")
    timings = Below("timing/")

    def plan(self, stage: str) -> str:
        return f"{self.folder}plans/{stage}.json"

    def reflection(self, source: SourceType, index: int) -> str:
        """Return the key of a minibatch's patch (0-based)."""
        return f"{self.reflections}{source}-{index}.json"

    def timing(self, stage: str, index: int) -> str:
        """Return the key of a task's timing (0-based map index)."""
        return f"{self.timings}{stage}-{index}.json"


@dataclass(frozen=True)
class PublicationKeys:
    """Keys that one attempt to publish writes."""

    folder: str

    contest = Below("contest.json")
    """The two skills of the comparison, fixed by the first task that reads them for this candidate."""
    rival_skill = Below("rival_skill.md")
    gate = Below("gate.json")


@dataclass(frozen=True)
class RunKeys:
    """Keys that one run writes, below `<prefix>runs/<benchmark>/<run>/`."""

    prefix: str
    benchmark: str
    run: str
    """The run's `run_name`."""

    @property
    def folder(self) -> str:
        return f"{self.prefix}runs/{partition_value(self.benchmark)}/{self.run}/"

    config = Below("config.json")
    data_manifest = Below("data_manifest.json")
    quality = Below("data_quality.json")
    rollout_quality = Below("rollout_quality.json")
    """Result of the suite over the rollouts of comparisons."""
    quality_page = Below("data_quality.html")
    estimate = Below("estimate.json")
    history = Below("history.json")
    contest = Below("contest.json")
    """The skills that a night of re-gating measures."""
    runtime_state = Below("runtime_state.json")
    best_skill = Below("best_skill.md")
    report = Below("report.html")
    write_probe = Below("write_probe")

    def items(self, split: Split) -> str:
        return f"{self.folder}data/{split.value}.parquet"

    def scores(self, name: str) -> str:
        return f"{self.folder}scores/{name}.parquet"

    def in_text(self, role: str) -> str:
        """Return the key of an empty object, which exists if this role's model answers in plain text."""
        return f"{self.folder}answers_in_text/{role}"

    def publication(self, name: str) -> PublicationKeys:
        """Return the keys of an attempt to publish, by its `publication_name`."""
        return PublicationKeys(f"{self.folder}publish/{name}/")

    def budget_shares(self, account: str) -> str:
        return f"{self.folder}budget/{partition_value(account)}/"

    def skill(self, version: int) -> str:
        """Return the key of an accepted skill; 0 is the seed."""
        return f"{self.folder}skills/skill_v{version:04d}.md"

    def line_origins(self, version: int) -> str:
        return f"{self.folder}skills/skill_v{version:04d}.lines.json"

    def meta_skill(self, epoch: int) -> str:
        """Return the key of the optimizer's memory after an epoch (1-based)."""
        return f"{self.folder}meta_skill/epoch_{epoch:02d}/meta_skill.md"

    def moment(self, moment: Moment) -> MomentKeys:
        return MomentKeys(f"{self.folder}{moment.name}/")

    def sandbox(self, name: str) -> str:
        """Return the prefix of a task's temporary file transfer to its sandboxes."""
        return f"{self.folder}sandboxes/{name}/"


@dataclass(frozen=True)
class RegateKeys:
    """Keys of the nights of one benchmark and target, below `<prefix>regate/`; `night` is written once."""

    prefix: str
    benchmark: str
    target: str

    nights = Below("nights.json")
    """All nights in one document, to avoid reading them one by one."""
    contents = Below("contents.parquet")
    """The fingerprints of all nights' items, one row per item."""
    series = Below("series.json")
    """All nights' data for charts and lists."""

    @property
    def folder(self) -> str:
        return f"{self.prefix}regate/{_partitions({'benchmark': self.benchmark, 'target': self.target})}"

    def _of(self, date: str) -> str:
        return f"{self.folder}{_partitions({'date': date})}"

    def night(self, date: str) -> str:
        """Return the key of a night's measurements (YYYY-MM-DD)."""
        return f"{self._of(date)}night.json"

    def paired(self, date: str) -> str:
        return f"{self._of(date)}paired.parquet"

    def report(self, date: str) -> str:
        return f"{self._of(date)}report.json"

    def reported(self, champion_sha256: str, event: str) -> str:
        """Return the key with the run that reported an event of this champion, such as `declined`."""
        return f"{self.folder}{event}/{champion_sha256}.json"

    @staticmethod
    def targets(keys: Iterable[str], prefix: str, benchmark: str) -> list[str]:
        """Return the target models with a night among the keys."""
        folder = f"{RegateKeys.of_benchmark(prefix, benchmark)}target="
        nights = (key for key in keys if key.startswith(folder) and key.endswith("/night.json"))
        return sorted({unquote(key.removeprefix(folder).partition("/")[0]) for key in nights})

    @staticmethod
    def of_benchmark(prefix: str, benchmark: str) -> str:
        return f"{prefix}regate/{_partitions({'benchmark': benchmark})}"

    def target_change(self, other: str) -> str:
        """Return the key, without a file extension, of the report on the change from another target to this one."""
        return f"{self.folder}transfer/{partition_value(other)}"


@dataclass(frozen=True)
class MatrixKeys:
    """Keys of the matrices of one benchmark, below `<prefix>evaluations/`."""

    prefix: str
    benchmark: str

    @property
    def folder(self) -> str:
        return f"{self.prefix}evaluations/{_partitions({'benchmark': self.benchmark})}"

    def matrix(self, run: str) -> str:
        return f"{self.folder}{_partitions({'run': run})}matrix.json"

    def table(self, run: str) -> str:
        return f"{self.folder}{_partitions({'run': run})}matrix.parquet"

    def markdown(self, run: str) -> str:
        return f"{self.folder}{_partitions({'run': run})}matrix.md"

    def of_skill(self, sha256: str) -> str:
        return f"{self.folder}skills/{sha256}/"

    def naming(self, sha256: str, created: datetime, run: str) -> str:
        """Return the key of an empty object that names a matrix of a skill; keys sort by time."""
        return f"{self.of_skill(sha256)}{created:%Y%m%dT%H%M%SZ}-{run}"


def trajectories(
    prefix: str, benchmark: str, target: str, harness: str, split: Split, skill_sha256: str, sample: int
) -> str:
    """Return the prefix of one skill's rollouts in the trajectory table; 12 digits of the skill's hash suffice."""
    values = {
        "benchmark": benchmark,
        "target": target,
        "harness": harness,
        "split": split.value,
        "skill": skill_sha256[:12],
        "sample": str(sample),
    }
    return f"{prefix}trajectories/{_partitions(values)}"


def item_file(prefix: str, digest: str) -> str:
    """Return the key of an item's file, shared by all runs and benchmarks, by its SHA-256."""
    return f"{prefix}files/{digest}"


@dataclass(frozen=True)
class CorpusKeys:
    """Keys of a corpus by the hash of its files, shared by all runs and benchmarks; `manifest` is written last."""

    prefix: str
    sha256: str

    @property
    def folder(self) -> str:
        return f"{corpora_of(self.prefix)}{self.sha256}/"

    manifest = Below("manifest.json")

    def archive(self, number: int) -> str:
        """Return the key of one of the files' archives (0-based)."""
        return f"{self.folder}{number:04d}.tar"


def corpora_of(prefix: str) -> str:
    """Return the prefix of all corpora, with one folder per corpus."""
    return f"{prefix}corpora/"


def grades_of(prefix: str, benchmark: str) -> str:
    return f"{prefix}grades/{partition_value(benchmark)}/"


def searches_of(prefix: str, benchmark: str) -> str:
    """Return the prefix of a benchmark's search results, with one folder per day."""
    return f"{prefix}searches/{partition_value(benchmark)}/"


def trajectories_of(prefix: str, benchmark: str) -> str:
    return f"{prefix}trajectories/{_partitions({'benchmark': benchmark})}"


def partition_values(part: str) -> dict[str, str]:
    named = (folder.partition("=") for folder in part.split("/") if "=" in folder)
    return {column: unquote(value) for column, _, value in named}


def usage(prefix: str, *, benchmark: str, run: str) -> str:
    return f"{prefix}usage/{_partitions({'benchmark': benchmark, 'run': run})}"


def part(partition: str, identity: str, writer: str = "") -> str:
    """Return the key of one file of a partition; the name of a writer that merges its files comes first."""
    name = f"{writer}-{identity}" if writer else identity
    return f"{partition}part-{name}.parquet"


def parts_of_writer(partition: str, writer: str) -> str:
    """Return the prefix of a writer's small files; a listing has the merged one after them."""
    return f"{partition}part-{writer}-"


def closing_part(part: str) -> str:
    """Return the key of the merged file that replaces a writer's small file; empty for other files."""
    folder, _, name = part.rpartition("/")
    return f"{folder}/{'-'.join(name.split('-')[:2])}.parquet" if name.count("-") > 1 else ""


def item_refs(items: str) -> str:
    """Return the key of the IDs and fingerprints of a split's items."""
    return f"{items.removesuffix('.parquet')}.refs.parquet"


def batch_job(plan: str) -> str:
    return f"{plan.removesuffix('.json')}/batch.json"


def batch_folder(plan: str, number: int) -> str:
    """Return the prefix of a batch job's objects (0-based), without a slash at the end."""
    return f"{plan.removesuffix('.json')}/batch-{number}"


@dataclass(frozen=True)
class VersionKeys:
    """Keys of one published version; `manifest` is written last and completes it."""

    folder: str

    best_skill = Below("best_skill.md")
    """The skill, byte for byte."""
    skill_md = Below("SKILL.md")
    """The skill with front matter, for agents."""
    manifest = Below("manifest.json")


@dataclass(frozen=True)
class ArtifactKeys:
    """Keys of everything published for one benchmark and target, below `<prefix>skills/<benchmark>/<target>/`."""

    prefix: str
    benchmark: str
    target: str

    @property
    def folder(self) -> str:
        return f"{self.of_benchmark(self.prefix, self.benchmark)}{partition_value(self.target)}/"

    versions = Below("versions/")
    champion = Below("aliases/champion.json")
    """The alias that deployments follow; the only object that is ever overwritten."""
    champion_history = Below("aliases/champion/")
    named = Below("named/")
    """Prefix of empty objects with the names of all versions that the alias named or was about to name."""
    looks = Below("looks/")

    def look(self, place: int) -> str:
        """Return the key of a look by its place in the ledger (1-based)."""
        return f"{self.looks}{place:06d}.json"

    @staticmethod
    def of_benchmark(prefix: str, benchmark: str) -> str:
        """Return the prefix of a benchmark's published skills, with one folder per target."""
        return f"{prefix}skills/{partition_value(benchmark)}/"

    def version(self, name: str) -> VersionKeys:
        return VersionKeys(f"{self.versions}{name}/")

    def write_probe(self, run: str) -> str:
        return f"{self.folder}write_probe/{run}"

    def previous_alias(self, sequence: int) -> str:
        """Return the key of a previous alias by its number of earlier moves."""
        return f"{self.champion_history}{sequence:06d}.json"


def _partitions(values: dict[str, str]) -> str:
    return "".join(f"{column}={partition_value(value)}/" for column, value in values.items())
