import asyncio
import stat
from types import SimpleNamespace

import pytest

from include.core.types import Item
from include.rollout.program import Job
from include.rollout.settings import RolloutSettings
from include.rollout.turnstile import Turnstile
from include.sandbox.staging import allow, container_user, remove, staged


@pytest.fixture
def workload() -> SimpleNamespace:
    settings = RolloutSettings(
        benchmark="searchqa",
        dialect="openai-chat",
        model="m",
        max_tokens=10,
        concurrency=2,
        call_timeout=3,
        max_attempts=2,
    )
    public = {"question": "Which one\u2028or two?", "context": "[DOC] é"}
    items = [Item(id="a", public=public, reference={"answers": ["the-reference-answer"]})]
    return SimpleNamespace(settings=settings, skill="# Skill\r\nné", items=items, pace=None)


def test_the_program_reads_what_the_host_staged(workload):
    with staged(workload) as stage:
        job = Job.read(stage.inputs)

    assert job.settings == workload.settings
    assert job.skill == workload.skill
    assert [(item.id, item.public) for item in job.items] == [("a", workload.items[0].public)]


def test_no_reference_is_staged_and_nothing_stays(workload):
    with staged(workload) as stage:
        texts = [path.read_text() for path in stage.folder.rglob("*") if path.is_file()]
        modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (stage.folder, stage.inputs, stage.outputs)]

    assert len(texts) == 3
    assert not any("the-reference-answer" in text for text in texts)
    assert modes == [0o700, 0o755, 0o777]
    assert not stage.folder.exists()


def test_a_pace_is_staged_as_an_allowance_that_can_be_raised(workload):
    workload.pace = 3
    with staged(workload) as stage:
        assert Job.read(stage.inputs).settings == workload.settings.model_copy(update={"paced": True})
        turnstile = Turnstile(stage.socket)
        asyncio.run(turnstile.admit(2))
        allow(stage, 12)
        asyncio.run(turnstile.admit(11))
        assert [path.name for path in stage.gateway.iterdir()] == ["allowance"]
        assert stat.S_IMODE(stage.allowance.stat().st_mode) == 0o644


def test_only_a_stage_is_ever_removed(tmp_path):
    (tmp_path / "precious").mkdir()
    remove(tmp_path / "precious")
    assert (tmp_path / "precious").exists()


def test_a_socket_fits_even_when_temporary_folders_are_deep(workload, tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with staged(workload) as stage:
        assert len(str(stage.socket)) < 107


def test_a_container_never_runs_as_root():
    assert not container_user().startswith("0:")
