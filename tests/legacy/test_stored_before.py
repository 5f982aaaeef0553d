"""What the project stored before its documents had numbers, read and continued by the code of today."""

import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from skillopt_airflow.consumer import SkillClient
from skillopt_airflow.core.budget_ledger import BudgetLedger
from skillopt_airflow.core.buffer import ReflectedItems
from skillopt_airflow.core.corpus import CorpusManifest
from skillopt_airflow.core.documents import Document, read_document
from skillopt_airflow.core.edits import EditApplyReport
from skillopt_airflow.core.errors import NewerDocument
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.looks import Look
from skillopt_airflow.core.provenance import LinesOfSkill
from skillopt_airflow.core.run_history import History
from skillopt_airflow.core.screening import Screening
from skillopt_airflow.core.service_groups import PublishingGroup
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.transfer_matrix import TransferMatrix
from skillopt_airflow.core.types import Patch, Split
from skillopt_airflow.optimizer.comparison import Comparison
from skillopt_airflow.optimizer.learning_rate import ChosenRate
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, SkillManifest
from skillopt_airflow.store.data_manifest import DataManifest
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.night_table import Night, NightIndex, Told
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.run_states import RunStates, same
from skillopt_airflow.training.answer_cache import StoredMiss, StoredReply
from skillopt_airflow.training.batch_job import BatchJob
from skillopt_airflow.training.estimate import EstimateTotals
from skillopt_airflow.training.night import LedgerRow
from skillopt_airflow.training.night_plan import Contest
from skillopt_airflow.training.night_series import NightSeries
from skillopt_airflow.training.publication import PublishContest, gate_publication, plan_publication, publish_best
from skillopt_airflow.training.reporting import write_report
from skillopt_airflow.training.rollout_plan import RolloutPlan
from skillopt_airflow.training.run_record import RunRecord
from skillopt_airflow.training.run_search import FoundAnswer
from skillopt_airflow.training.scorecard import Scorecard
from skillopt_airflow.training.seed_and_final import seed_plan
from skillopt_airflow.training.target_change import TargetChangeReport
from skillopt_airflow.training.timing import StageTiming
from tests.store.conftest import aws_variables, s3_client, s3_endpoint, store
from tests.store.test_artifacts import provenance
from tests.training.in_process import Training
from tests.training.local_store import LocalStore
from tests.training.test_nights import Nights, date, healthy

if TYPE_CHECKING:
    pass

__all__ = ["aws_variables", "s3_client", "s3_endpoint", "store"]

ARCHIVE = Path(__file__).parent / "stored.tar.xz"
PROJECT = Path(__file__).parents[2]
KEYS = ArtifactKeys("", "searchqa", "openai-chat:stand-in-target")

STORED: dict[type[Document], str] = {
    Alias: "aliases/champion.json",
    Comparison: "slow_update/epoch_02/comparison.json",
    Contest: "regate-2026-09-01-t/contest.json",
    DataManifest: "/data_manifest.json",
    EditApplyReport: "step_0001/edit_apply_report.json",
    GateDecision: "step_0001/gate.json",
    History: "history.json",
    LedgerRow: "date=2026-09-01/report.json",
    LinesOfSkill: "skills/skill_v0001.lines.json",
    Night: "date=2026-09-01/night.json",
    Patch: "step_0001/merged_patch.json",
    PublishContest: "publish/first/contest.json",
    QualityReport: "data_quality.json",
    ReflectedItems: "step_0001/reflected_items.json",
    RolloutPlan: "step_0001/plans/rollout.json",
    RunRecord: "config.json",
    RunState: "runtime_state.json",
    SkillManifest: "/manifest.json",
    StageTiming: "step_0001/timing/gate-0.json",
}
"""A key of the archive, from its end, for each kind that it holds."""
MADE: dict[type[Document], dict[str, Any]] = {
    BatchJob: {"number": 0, "plan": "p", "entries": [{"chunk": 0, "item_id": "i"}], "created": 1.0},
    BudgetLedger: {"spent": {"calls": 1, "tokens": 2, "usd": None}, "leases": {"t": {"reserved": {}, "until": 1.0}}},
    ChosenRate: {"rate": 2},
    CorpusManifest: {"files": [{"name": "a.txt", "size": 1, "sha256": "s"}], "archives": [1]},
    EstimateTotals: {
        "calls": {"target": 10},
        "tokens_likely": 100,
        "tokens_most": 200,
        "usd_likely": None,
        "usd_most": None,
    },
    Look: {
        "number": 2,
        "split": "test",
        "items": 120,
        "question": {"candidate": "c", "rival": "r", "draws": 1, "metric": "hard", "policy": "mcnemar", "alpha": 0.05},
        "run": "r",
        "publication": "p",
        "entered": "2026-11-20T00:00:00Z",
    },
    Scorecard: {
        "benchmark": "b",
        "run": "r",
        "target": "t",
        "harness": "chat",
        "split": "val",
        "metric": "hard",
        "skill": {
            "source": "seed",
            "sha256": "s",
            "hard": 1,
            "soft": 1,
            "score": 1,
            "low": 0,
            "high": 1,
            "items": 1,
            "failures": {},
        },
    },
    Screening: {
        "candidate": "s",
        "items": 2,
        "against_current": {
            "wins": 0,
            "losses": 1,
            "ties": 1,
            "score": 0.5,
            "other_score": 1,
            "delta": -0.5,
            "low": -1,
            "high": 1,
        },
        "passed": False,
    },
    NightIndex: {"nights": []},
    NightSeries: {"points": []},
    FoundAnswer: {"asked": "who", "answer": [{"title": "a page"}]},
    StoredMiss: {"unusable": "why"},
    StoredReply: {"text": "said"},
    Told: {"run": "r"},
    TransferMatrix: {
        "benchmark": "b",
        "run": "r",
        "created": "2026-11-24T00:00:00Z",
        "split": "test",
        "metric": "hard",
        "items": 2,
        "draws": 1,
        "min_coverage": 0.95,
        "skills": [{"source": "seed", "sha256": "s", "tokens": 10}],
        "cells": [
            {
                "target": "t",
                "harness": "chat",
                "skills": [
                    {
                        "score": None,
                        "low": None,
                        "high": None,
                        "items": 1,
                        "coverage": 0.5,
                        "failures": {"timeout": 1},
                        "missing": 0,
                        "reason": {"status": "timeout", "error": "", "count": 1, "items": 2, "item_id": "i"},
                        "cost": {"rollouts": 1, "calls": 1, "prompt_tokens": 10, "completion_tokens": 1, "usd": None},
                        "against_first": None,
                    }
                ],
            }
        ],
        "spent": {"calls": 2, "tokens": 11, "usd": None},
    },
    TargetChangeReport: {
        "benchmark": "b",
        "old_target": "o",
        "new_target": "n",
        "champion": "v",
        "nights": [],
        "pooled": None,
    },
}
"""The other kinds, as they were stored."""


def stored(name: str) -> LocalStore:
    """One of the archive's three stores: finished, unfinished, nights."""
    found = LocalStore()
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if member.name.startswith(f"{name}/"):
                content = archive.extractfile(member)
                assert content is not None
                found.objects[member.name.removeprefix(f"{name}/")] = content.read()
    return found


@pytest.fixture(scope="module")
def documents() -> dict[type[Document], dict[str, Any]]:
    objects = stored("finished").objects | stored("nights").objects
    found = {kind: next(body for key, body in objects.items() if key.endswith(end)) for kind, end in STORED.items()}
    return MADE | {kind: json.loads(body) for kind, body in found.items()}


def parsed(kind: type[Document], fields: dict[str, Any]) -> Document:
    return read_document(kind, json.dumps(fields).encode(), "s3://bucket/key")


def test_every_kind_is_among_them_and_on_the_page() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (PROJECT / "include").rglob("*.py")]
    kinds = {name for text in sources for name in re.findall(r"^class (\w+)\((?:\w+, )*Document\):", text, re.M)}
    assert kinds == {kind.__name__ for kind in STORED | MADE}
    page = (PROJECT / "docs" / "documents.md").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"^\| `(\w+)` \|.*?\| (\d+) \|", page, re.M))
    assert numbers == {kind.__name__: str(kind.contract) for kind in STORED | MADE}


@pytest.mark.parametrize("kind", [*STORED, *MADE], ids=lambda kind: kind.__name__)
def test_each_kind_is_read_without_a_number_with_more_and_with_less(
    kind: type[Document], documents: dict[type[Document], dict[str, Any]]
) -> None:
    fields = documents[kind]
    assert "contract" not in fields
    before = parsed(kind, fields)
    inner = {
        name: value | {"of_a_later_version": 1}
        for name, value in fields.items()
        if isinstance(getattr(before, name, None), BaseModel)
    }
    assert parsed(kind, fields | inner | {"of_a_later_version": {"a": [1]}, "contract": 1}) == before
    known = {name: value for name, value in fields.items() if name in kind.model_fields}
    required = {name: value for name, value in known.items() if kind.model_fields[name].is_required()}
    shorter = parsed(kind, required)
    assert [getattr(shorter, name) for name in required] == [getattr(before, name) for name in required]
    assert parsed(kind, before.to_json()) == before
    with pytest.raises(NewerDocument, match=f"follows contract {kind.contract + 1} of {kind.__name__}.*upgrade"):
        parsed(kind, {"contract": kind.contract + 1})


def test_a_run_with_a_knob_that_is_gone_is_read(documents: dict[type[Document], dict[str, Any]]) -> None:
    fields = documents[RunRecord]
    config = {group: knobs | {"knob_of_another_version": 1} for group, knobs in fields["config"].items()}
    assert parsed(RunRecord, fields | {"config": config | {"another_group": {}}}) == parsed(RunRecord, fields)


def test_the_concurrency_of_a_run_was_that_of_one_container(documents: dict[type[Document], dict[str, Any]]) -> None:
    fields = documents[RunRecord]
    record = parsed(RunRecord, fields)
    assert isinstance(record, RunRecord)
    config = fields["config"]
    assert (config["model"]["concurrency"], config["sandbox"]["max_containers"]) == (16, 4)
    assert record.config.model.concurrency == 64
    written_again = parsed(RunRecord, record.to_json())
    assert written_again == record


def test_the_published_skill_is_followed_replaced_and_rolled_back_to(
    store: ObjectStore,
    s3_endpoint: str,
    aws_variables: None,
    tmp_path: Path,
) -> None:
    published = {key: body for key, body in stored("finished").objects.items() if key.startswith("skills/")}
    for key, body in published.items():
        store.put_bytes(key, body)
    client = SkillClient(store.bucket, KEYS.benchmark, KEYS.target, endpoint_url=s3_endpoint, cache=tmp_path)
    artifacts = ArtifactStore(store, KEYS)
    [first] = artifacts.list_versions()
    skill, manifest = artifacts.read(first)
    followed = client.get()
    assert (followed.text, followed.version, followed.sha256) == (skill, first, manifest.sha256)
    second = artifacts.publish("# Another\n", provenance(), artifacts.champion.read()).version
    assert client.get().version == second
    artifacts.roll_back(first, "run", "worse", artifacts.champion.read())
    assert (client.get().text, client.get().sequence) == (skill, 2)
    assert {key: store.get_bytes(key) for key in published if "/versions/" in key} == {
        key: body for key, body in published.items() if "/versions/" in key
    }


@pytest.mark.slow
def test_the_report_is_written_again() -> None:
    training = Training.of()
    training.run.store = finished = stored("finished")
    before = json.loads(finished.get_bytes(training.run.keys.history))
    page = finished.get_text(training.run.keys.report)
    write_report(training.run)
    after = json.loads(finished.get_bytes(training.run.keys.history))
    gained = {"contract": History.contract, "outcomes": after["outcomes"], "test_looks": 0}
    gained["published"] = before["published"] | {"split": None, "look": None}
    assert _findings(after) == _findings(before) | gained
    assert {outcome["stage"] for outcome in after["outcomes"]} >= {"seed", "rollout", "evaluate", "test"}
    # Wordings and looks change; all curves, tables and skills do not. Items came later.
    written, items = finished.get_text(training.run.keys.report), '<section id="examples">'
    rest = "".join((written.partition(items)[0], written.partition(items)[2].partition("</section>")[2]))
    sizes = [len(re.sub("<style>.*?</style>", "", text, flags=re.DOTALL)) for text in (rest, page)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


@pytest.mark.slow
def test_the_unfinished_training_goes_on_to_its_publication() -> None:
    training = Training.of()
    kept = stored("unfinished")
    config = read_document(RunRecord, kept.get_bytes("runs/searchqa/unfinished/config.json"), "config").config
    training = Training(config, name="unfinished", store=kept)
    training.done["prepare"] = seed_plan(training.run)
    bodies = dict(kept.objects)
    training()
    assert training.run.state(training.run.timeline[-1]).step == 2
    # Nothing that was stored is asked for or rolled out again.
    assert not {"seed", "rollout"} & set(training.rollouts)
    assert {stage for stage, _ in training.models.prompts} == {"rank", "slow_update"}
    # What its first step decided stands; written again, it only gains its number. A plan may be cut otherwise by now,
    # and a state names the scores that it held.
    written = [key for key in bodies if "/step_0001/" in key and key.endswith(".json") and "/timing/" not in key]
    plans = [key for key in written if "/plans/" in key]
    for key in plans:
        assert _planned(kept.objects[key]) == _planned(bodies[key]) != [], key
    decided = sorted({*written} - {*plans})
    assert len(decided) > 8
    before = LocalStore()
    before.objects = bodies
    for key in decided:
        if key.endswith("/state.json"):
            assert same(training.run.states.read(key), RunStates(before, training.run.keys).read(key))
            continue
        now, then = (_findings(json.loads(objects[key])) for objects in (kept.objects, bodies))
        assert now | {"contract": 1} == then | {"contract": 1}, key
    artifacts = ArtifactStore(kept, KEYS)
    training.run_containers(plan_publication(training.run, artifacts, "now", PublishingGroup(gate_policy="paper")))
    withheld = gate_publication(training.run, "now")
    assert withheld.endswith("0.6667 is not better than current 0.6667; look 1 at these 3 items")
    assert write_report(training.run, withheld=withheld).withheld == withheld
    # The rows that it had and those that it made have one key, which is that of its beginning.
    assert training.run.rollout_key(Split.VAL, training.run.skill(0), 0).image == training.run.record.image


def _findings(document: Any) -> Any:
    """The document without what its findings did not include, or had by another formula."""
    if isinstance(document, list):
        return [_findings(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    new = ("low", "high", "interval", "groups", "density", "candidate_mean")
    return {key: _findings(value) for key, value in document.items() if key not in new}


def _planned(body: bytes) -> list[tuple[str, int, str]]:
    """The rollouts of a plan, however it is cut."""
    chunks = read_document(RolloutPlan, body, "plan").chunks
    return sorted((chunk.skill, chunk.draw, item_id) for chunk in chunks for item_id in chunk.item_ids)


@pytest.mark.slow
def test_what_passed_the_gate_on_the_selection_split_is_still_published() -> None:
    training = Training.of()
    training.run.store = stored("finished")
    artifacts = ArtifactStore(LocalStore(), KEYS)
    published = publish_best(training.run, artifacts, "first")
    skill, manifest = artifacts.read(published.version)
    assert skill == training.skill()
    assert manifest.publish_gate is None


@pytest.mark.slow
def test_the_next_night_follows_the_stored_one() -> None:
    nights = Nights(store=stored("nights"))
    [first] = nights.all()
    [own] = [key for key in nights.store.objects if key.endswith("date=2026-09-01/night.json")]
    before = nights.store.objects[own]
    row = nights.night(date(2), healthy(2, 6))
    assert [night.date for night in nights.all()] == [first.date, date(2)] == [date(1), date(2)]
    assert (row.night.champion, row.night.previous) == (first.champion, first.previous)
    assert nights.store.objects[own] == before
