"""Every object key, in one place; nothing else in the project builds one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import SourceType, Split, sha256

MAX_RUN_NAME = 120
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def run_name(dag_run_id: str) -> str:
    """A run's name inside keys and partitions: the id itself where it is safe, else a slug of it and 8 hex digits.

    The digits, of the id's hash, keep apart ids whose slugs are equal. A name's own name is the name itself.
    """
    slug = _UNSAFE.sub("-", dag_run_id).lstrip(".")
    if slug == dag_run_id and 0 < len(slug) <= MAX_RUN_NAME:
        return slug
    return f"{slug[: MAX_RUN_NAME - 9]}-{sha256(dag_run_id)[:8]}"


def scoring_name(dag_run_id: str) -> str:
    """The name of a run of the evaluation DAG: an id is unique within its DAG only, a training may have the same."""
    return run_name(f"evaluate-{dag_run_id}")


def night_name(date: str, target: str) -> str:
    """The name of a night's run (YYYY-MM-DD): the same however often the night is cleared."""
    return run_name(f"regate-{date}-{target}")


def partition_value(name: str) -> str:
    """A name as the value of a Hive partition: percent-encoded, which pyarrow and DuckDB decode by themselves."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def partition_name(value: str) -> str:
    """The name behind `partition_value`."""
    return unquote(value)


@dataclass(frozen=True)
class MomentKeys:
    """What one moment of a run writes, most often a step; `state` comes last and commits it."""

    folder: str
    """Ends with a slash."""

    @property
    def merged_patch(self) -> str:
        """The patch after aggregation."""
        return f"{self.folder}merged_patch.json"

    @property
    def ranked_edits(self) -> str:
        """The edits that selection kept, best first."""
        return f"{self.folder}ranked_edits.json"

    @property
    def learning_rate(self) -> str:
        """The learning rate that the optimizer chose, where it may."""
        return f"{self.folder}learning_rate.json"

    @property
    def applied_patch(self) -> str:
        """The edits that made the candidate, notes and rewrites included."""
        return f"{self.folder}applied_patch.json"

    @property
    def line_origins(self) -> str:
        """For each line of the candidate, the edit that wrote it."""
        return f"{self.folder}line_origins.json"

    @property
    def comparison(self) -> str:
        """The longitudinal comparison of two epochs' last skills."""
        return f"{self.folder}comparison.json"

    @property
    def reflected_items(self) -> str:
        """The items that the step's reflection is about, fixed by the first task that asks."""
        return f"{self.folder}reflected_items.json"

    def plan(self, stage: str) -> str:
        """The rollouts of a stage, cut into containers."""
        return f"{self.folder}plans/{stage}.json"

    @property
    def answers(self) -> str:
        """Prefix of the optimizer's answers."""
        return f"{self.folder}answers/"

    @property
    def candidate_skill(self) -> str:
        """The skill after the edits."""
        return f"{self.folder}candidate_skill.md"

    @property
    def edit_apply_report(self) -> str:
        """What became of each edit."""
        return f"{self.folder}edit_apply_report.json"

    @property
    def gate(self) -> str:
        """The gate's verdict."""
        return f"{self.folder}gate.json"

    @property
    def state(self) -> str:
        """The run's state after the step."""
        return f"{self.folder}state.json"

    @property
    def reflections(self) -> str:
        """Prefix of the step's reflections."""
        return f"{self.folder}reflections/"

    def reflection(self, source: SourceType, index: int) -> str:
        """The patch of one minibatch (0-based)."""
        return f"{self.reflections}{source}-{index}.json"

    @property
    def timings(self) -> str:
        """Prefix of the step's timings."""
        return f"{self.folder}timing/"

    def timing(self, stage: str, index: int) -> str:
        """Where the time of one task of a stage went (0-based map index)."""
        return f"{self.timings}{stage}-{index}.json"


@dataclass(frozen=True)
class PublicationKeys:
    """What one attempt to publish writes."""

    folder: str
    """Ends with a slash."""

    @property
    def contest(self) -> str:
        """Who competes, fixed by the first task that asks."""
        return f"{self.folder}contest.json"

    @property
    def rival_skill(self) -> str:
        """The skill that the candidate has to beat."""
        return f"{self.folder}rival_skill.md"

    @property
    def gate(self) -> str:
        """The publish gate's verdict."""
        return f"{self.folder}gate.json"


@dataclass(frozen=True)
class RunKeys:
    """What one run writes, below `<prefix>runs/<benchmark>/<run>/`."""

    prefix: str
    benchmark: str
    run: str
    """As `run_name` gives it."""

    @property
    def folder(self) -> str:
        """Prefix of all of the run's keys, with a slash at its end."""
        return f"{self.prefix}runs/{partition_value(self.benchmark)}/{self.run}/"

    @property
    def config(self) -> str:
        """The resolved configuration."""
        return f"{self.folder}config.json"

    @property
    def data_manifest(self) -> str:
        """Counts, ids and fingerprints of the splits."""
        return f"{self.folder}data_manifest.json"

    @property
    def quality(self) -> str:
        """Result of the data quality suite over the records."""
        return f"{self.folder}data_quality.json"

    @property
    def rollout_quality(self) -> str:
        """Result of the suite over the rollouts from which something is concluded."""
        return f"{self.folder}rollout_quality.json"

    @property
    def quality_page(self) -> str:
        """Both results, for people."""
        return f"{self.folder}data_quality.html"

    def items(self, split: Split) -> str:
        """The items of one split."""
        return f"{self.folder}data/{split.value}.parquet"

    @property
    def history(self) -> str:
        """One row a step."""
        return f"{self.folder}history.json"

    @property
    def contest(self) -> str:
        """Which skills a night of re-gating measures."""
        return f"{self.folder}contest.json"

    @property
    def scorecard(self) -> str:
        """What a run of the evaluation DAG measured."""
        return f"{self.folder}evaluation.json"

    @property
    def runtime_state(self) -> str:
        """The state after the newest step."""
        return f"{self.folder}runtime_state.json"

    @property
    def best_skill(self) -> str:
        """The best skill so far."""
        return f"{self.folder}best_skill.md"

    def publication(self, name: str) -> PublicationKeys:
        """What an attempt to publish the best skill writes; `name` is that of the DAG run that makes it."""
        return PublicationKeys(f"{self.folder}publish/{name}/")

    @property
    def report(self) -> str:
        """The report for people."""
        return f"{self.folder}report.html"

    def skill(self, version: int) -> str:
        """An accepted skill; 0 is the seed."""
        return f"{self.folder}skills/skill_v{version:04d}.md"

    def line_origins(self, version: int) -> str:
        """For each line of a version, the edit that wrote it."""
        return f"{self.folder}skills/skill_v{version:04d}.lines.json"

    def meta_skill(self, epoch: int) -> str:
        """The optimizer's memory after an epoch (1-based)."""
        return f"{self.folder}meta_skill/epoch_{epoch:02d}/meta_skill.md"

    def moment(self, moment: Moment) -> MomentKeys:
        """The keys of one moment."""
        return MomentKeys(f"{self.folder}{moment.name}/")

    def pod(self, name: str) -> str:
        """Prefix of what a task and its pods leave for each other; gone when the pods are."""
        return f"{self.folder}pods/{name}/"

    def step(self, number: int) -> MomentKeys:
        """The keys of one step (1-based; 0 is the seed's measurement)."""
        return MomentKeys(f"{self.folder}steps/step_{number:04d}/")


@dataclass(frozen=True)
class RegateKeys:
    """What the nights of one benchmark and target leave, below `<prefix>regate/`; `night` is written once."""

    prefix: str
    benchmark: str
    target: str

    @property
    def folder(self) -> str:
        """Prefix of all nights, with a slash at its end."""
        return f"{self.prefix}regate/{_partitions({'benchmark': self.benchmark, 'target': self.target})}"

    def _of(self, date: str) -> str:
        return f"{self.folder}{_partitions({'date': date})}"

    def night(self, date: str) -> str:
        """What a night (YYYY-MM-DD) measured."""
        return f"{self._of(date)}night.json"

    def paired(self, date: str) -> str:
        """The scores behind it, one row an item."""
        return f"{self._of(date)}paired.parquet"

    def report(self, date: str) -> str:
        """The verdict as it was when the night was settled."""
        return f"{self._of(date)}report.json"

    def told(self, champion_sha256: str) -> str:
        """Which run told that this champion declined."""
        return f"{self.folder}declined/{champion_sha256}.json"

    @staticmethod
    def targets(keys: Iterable[str], prefix: str, benchmark: str) -> list[str]:
        """The target models that have settled nights among the keys."""
        folder = f"{RegateKeys.of_benchmark(prefix, benchmark)}target="
        nights = (key for key in keys if key.startswith(folder) and key.endswith("/night.json"))
        return sorted({partition_name(key.removeprefix(folder).partition("/")[0]) for key in nights})

    @staticmethod
    def of_benchmark(prefix: str, benchmark: str) -> str:
        """Prefix of the nights of all targets."""
        return f"{prefix}regate/{_partitions({'benchmark': benchmark})}"

    def transfer(self, other: str) -> str:
        """The comparison of this target's nights with another one's, without a suffix."""
        return f"{self.folder}transfer/{partition_value(other)}"


def trajectories(
    prefix: str, *, benchmark: str, target: str, harness: str, split: Split, skill_sha256: str, draw: int
) -> str:
    """The partition of the trajectory table that holds one skill's rollouts, with a slash at its end."""
    values = {
        "benchmark": benchmark,
        "target": target,
        "harness": harness,
        "split": split.value,
        "skill": skill_sha256[:12],
        "draw": str(draw),
    }
    return f"{prefix}trajectories/{_partitions(values)}"


def item_file(prefix: str, digest: str) -> str:
    """A file of items, of all runs and benchmarks, by the hex SHA-256 of what it holds."""
    return f"{prefix}files/{digest}"


def trajectories_of(prefix: str, benchmark: str) -> str:
    """Prefix of all partitions of a benchmark's rollouts."""
    return f"{prefix}trajectories/{_partitions({'benchmark': benchmark})}"


def usage(prefix: str, *, benchmark: str, run: str) -> str:
    """The partition of the usage table that holds one run's model calls, with a slash at its end."""
    return f"{prefix}usage/{_partitions({'benchmark': benchmark, 'run': run})}"


def part(partition: str, identity: str) -> str:
    """One file of a partition."""
    return f"{partition}part-{identity}.parquet"


def batch_job(plan: str) -> str:
    """Beside a plan, by its key: the batch job that carries it out."""
    return f"{plan.removesuffix('.json')}/batch.json"


def batch_folder(plan: str, number: int) -> str:
    """Beside a plan: what one of its batch jobs (0-based) leaves, without a slash at its end."""
    return f"{plan.removesuffix('.json')}/batch-{number}"


@dataclass(frozen=True)
class VersionKeys:
    """What one published version holds; `manifest` comes last and completes it."""

    folder: str
    """Ends with a slash."""

    @property
    def best_skill(self) -> str:
        """The skill, byte for byte."""
        return f"{self.folder}best_skill.md"

    @property
    def skill_md(self) -> str:
        """The skill behind front matter, as agents load it."""
        return f"{self.folder}SKILL.md"

    @property
    def manifest(self) -> str:
        """Where the skill comes from."""
        return f"{self.folder}manifest.json"


@dataclass(frozen=True)
class ArtifactKeys:
    """What is published for one benchmark and target, below `<prefix>skills/<benchmark>/<target>/`."""

    prefix: str
    benchmark: str
    target: str

    @property
    def folder(self) -> str:
        """Prefix of versions and aliases, with a slash at its end."""
        return f"{self.prefix}skills/{partition_value(self.benchmark)}/{partition_value(self.target)}/"

    @staticmethod
    def targets(keys: Iterable[str], prefix: str, benchmark: str) -> list[str]:
        """The targets for which something of the benchmark is published, by the keys of the bucket."""
        folder = f"{prefix}skills/{partition_value(benchmark)}/"
        found = {key.removeprefix(folder).partition("/")[0] for key in keys if key.startswith(folder)}
        return sorted(partition_name(value) for value in found)

    @property
    def versions(self) -> str:
        """Prefix of all versions."""
        return f"{self.folder}versions/"

    def version(self, name: str) -> VersionKeys:
        """The keys of one version, such as `v0003-0123456789ab`."""
        return VersionKeys(f"{self.versions}{name}/")

    @property
    def champion(self) -> str:
        """The alias that deployments follow; the only object that is ever overwritten."""
        return f"{self.folder}aliases/champion.json"

    @property
    def champion_history(self) -> str:
        """Prefix of what the alias said before it was moved."""
        return f"{self.folder}aliases/champion/"

    def champion_was(self, sequence: int) -> str:
        """What the alias said after so many moves."""
        return f"{self.champion_history}{sequence:06d}.json"


def version_name(number: int, skill_sha256: str) -> str:
    """`v0003-<sha12>`."""
    return f"v{number:04d}-{skill_sha256[:12]}"


def _partitions(values: dict[str, str]) -> str:
    return "".join(f"{column}={partition_value(value)}/" for column, value in values.items())
