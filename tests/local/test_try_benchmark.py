"""`make try`: what it prints and returns, with the stand-in, a server that is not ours, and benchmarks that fail."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.environment import TARGET_CONNECTION
from local.home import PROJECT, Home
from local.standin.economy import RULES
from local.try_benchmark import run, s3_client, target_model
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError, DataError, ModelUnreachable
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.trial import trial_config
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TARGET_CONNECTION, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


def tried(home: Home, benchmark: str, *settings: str, items: int = 3, skill: Path | None = None) -> int:
    return run(home, benchmark, items, Split.TRAIN, skill, settings)


def connection(base_url: str) -> str:
    """A connection with the customary key of local servers."""
    fields = {"conn_type": "pydanticai", "host": base_url, "password": "no-key"}
    return json.dumps(fields | {"extra": {"model": "openai-chat:mine"}})


@pytest.fixture
def answering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedProvider]:
    """A server behind the target's connection; the parameter is its answer's status and body."""
    status, answer = request.param

    def said(asked: Asked) -> Reply:
        return Reply(body=b'{"data": []}') if asked.method == "GET" else Reply(status, json.dumps(answer).encode())

    with ScriptedProvider(said) as server:
        monkeypatch.setenv(TARGET_CONNECTION, connection(server.base_url))
        yield server


def test_a_connection_that_is_set_to_nothing_is_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TARGET_CONNECTION, "")
    with target_model(trial_config("searchqa", [])) as model:
        assert model.is_stand_in


COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "mine",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Sure.\x1b[2J\n<answer>Ar Rayyān</answer>"},
        }
    ],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["searchqa", "livemathematicianbench", "mathverse", "babyvision"])
def test_without_a_connection_the_stand_in_answers(
    home: Home, capsys: pytest.CaptureFixture[str], benchmark: str
) -> None:
    assert tried(home, benchmark) == 0
    said = capsys.readouterr().out
    seed = benchmarks.seed_skill(benchmark).read_text(encoding="utf-8")
    assert said.count(max(seed.splitlines(), key=len)) == 1, "the skill is printed once"
    for field in ("user", "assistant", "answer", "score", "feedback", "cost"):
        assert sum(line.split(" ")[0] == field for line in said.splitlines()) == 3, field
    assert "the offline stand-in" in said
    assert "Scores     3 of 3 items: hard " in said
    assert "Cost       3 calls, " in said


@pytest.mark.engine
def test_what_the_model_writes_runs_in_containers(
    home: Home, docker_host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    assert tried(home, "spreadsheetbench", items=2) == 0
    said = capsys.readouterr().out
    assert "Harness    chat, in a sandbox container for each item" in said
    assert said.count("output.xlsx") >= 2
    assert "Scores     2 of 2 items" in said


@pytest.mark.nightly
@pytest.mark.engine
def test_a_repository_is_judged_on_the_engine_that_its_target_worked_on(
    home: Home, docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("local.try_benchmark.engine.ensure", lambda *_: docker_host)
    skill = tmp_path / "skill.md"
    skill.write_text("\n".join(RULES), encoding="utf-8")
    assert tried(home, "swebench", items=1, skill=skill) == 0
    assert "hard 1, soft 1.00" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("answering", [(200, COMPLETION)], indirect=True)
def test_a_server_of_the_users_is_asked_with_his_skill(
    home: Home, answering: ScriptedProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skill = tmp_path / "skill.md"
    skill.write_text("# Mine\n\nSay the city.\n", encoding="utf-8")
    prices = 'budget.prices={"openai-chat:mine": {"input": 1, "output": 2}}'
    assert tried(home, "searchqa", prices, "model.temperature=0.5", skill=skill) == 0
    said = capsys.readouterr().out
    asked = [request.body for request in answering.requests if request.method == "POST"]
    assert [(body["model"], body["temperature"]) for body in asked] == [("mine", 0.5)] * 3
    assert all("Say the city." in body["messages"][0]["content"] for body in asked)
    assert "Target     openai-chat:mine of connection skillopt_target" in said
    assert "Sure.\u241b[2J" in said, "what a terminal would obey is made visible"
    assert "hard 1, soft 1.00" in said
    assert "Scores     3 of 3 items: hard 0.333, soft 0.333 on average" in said
    assert "Cost       3 calls, 4500 tokens, $0.0060" in said


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("answering", [(404, {"error": {"message": "no model mine"}})], indirect=True)
def test_a_server_that_refuses_is_told_with_count_and_reason(
    home: Home, answering: ScriptedProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tried(home, "searchqa") == 1
    said = capsys.readouterr().out
    assert "No score   3 of 3 items:" in said
    assert "Most often 3 of 3 items: model_error: " in said
    assert said.count("no model mine") >= 4
    assert "Scores" not in said


def test_an_address_without_a_server_is_told_before_anything_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedProvider(lambda _: None) as server:
        monkeypatch.setenv(TARGET_CONNECTION, connection(server.base_url))
    with pytest.raises(ModelUnreachable, match=r"connection skillopt_target: no model server answers at http"):
        tried(home, "searchqa")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_from_the_command_line_it_needs_no_airflow(tmp_path: Path) -> None:
    (tmp_path / "airflow.py").write_text("raise ImportError('there is no Airflow')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT / 'include'}{os.pathsep}{PROJECT}"}
    words = ["try", "searchqa", "--items", "1", "--split", "test", "--home", str(tmp_path / "home")]
    done = subprocess.run(
        [sys.executable, "-m", "local", *words],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("searchqa: 1 item of test from sample\n")
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == []


def test_a_skill_that_is_not_there_is_named(home: Home, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.md: the skill cannot be read \(No such file or directory\)"):
        tried(home, "searchqa", skill=tmp_path / "nothing.md")
    (tmp_path / "latin1.md").write_bytes("# Müll\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin1\.md: the skill cannot be read \(not UTF-8 text\)"):
        tried(home, "searchqa", skill=tmp_path / "latin1.md")


def test_a_benchmark_that_is_not_there_is_answered_with_those_that_are(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"Available: .*searchqa"):
        tried(home, "searchqua")


@pytest.mark.parametrize(
    ("benchmark", "settings", "problem"),
    [
        ("livemathematicianbench", ("model.harness=tools", "model.max_turns=5"), "no tools; use harness chat"),
        ("searchqa", ("evaluation.judge=always",), "asks no judge"),
        ("searchqa", ("model.harness=tools", "model.max_turns=5", "search.conn_id=s"), "do not search"),
    ],
)
def test_what_a_run_refuses_is_not_tried(home: Home, benchmark: str, settings: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        tried(home, benchmark, *settings)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("model.max_turns", "should be a knob, =, and its value"),
        ("model.max_turns=[", "the value is not YAML"),
        ("model.max_turn=3", "no such key"),
        ("model.max_turns=many", "valid integer"),
    ],
)
def test_a_setting_that_is_none_is_explained(setting: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        trial_config("searchqa", [setting])


@pytest.mark.parametrize("knob", ["data.uri", "data.corpus", "data.split_manifest"])
def test_whatever_part_of_the_data_is_in_a_bucket_is_read_from_there(
    knob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"region_name": "us-east-1", "endpoint_url": "http://127.0.0.1:9"}
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_S3", json.dumps({"conn_type": "aws", "login": "key", "extra": extra}))
    mode = ["data.split_mode=manifest"] if knob == "data.split_manifest" else []
    client = s3_client(trial_config("searchqa", [f"{knob}=s3://bucket/folder", *mode]))
    assert client.meta.endpoint_url == extra["endpoint_url"]
    assert s3_client(trial_config("searchqa", [f"{knob}=folder", *mode])) is None


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template, copied as a benchmark `spelling` of the user's own; its adapter."""
    folder = tmp_path / "spelling"
    shutil.copytree(PROJECT / "benchmarks" / "_template", folder)
    (folder / benchmarks.SEED_FILE).write_text("# Spelling\n\nTry every order.\n")
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(folder))
    return folder / "adapter.py"


def changed(adapter: Path, function: str, line: str) -> int:
    """Begin a function of the adapter with another line; return that line's number."""
    lines = adapter.read_text().splitlines()
    [begin] = [number for number, text in enumerate(lines) if text.startswith(f"    def {function}(")]
    lines.insert(begin + 1, f"        {line}")
    adapter.write_text("\n".join(lines) + "\n")
    return begin + 2


@pytest.mark.slow
def test_a_scorer_that_fails_is_told_with_its_line(home: Home, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = changed(own, "score", "item.reference['word']")
    assert tried(home, "spelling", items=2) == 1
    said = capsys.readouterr().out
    assert "assistant" in said, "what came is shown all the same"
    assert said.count(f"the scorer failed: KeyError: 'word' ({own}, line {line})") == 4
    assert "No score   2 of 2 items:" in said


@pytest.mark.slow
def test_a_program_that_dies_is_told_with_its_last_words(
    home: Home, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(own, "messages", "import os; print('out of luck', flush=True); os._exit(3)")
    assert tried(home, "spelling", items=1) == 1
    assert "sandbox_error: the rollout program ended with exit status 3: out of luck" in capsys.readouterr().out


def test_a_record_that_is_none_is_told_with_its_row(home: Home, own: Path) -> None:
    line = changed(own, "item", "record['word']")
    with pytest.raises(DataError) as error:
        tried(home, "spelling")
    assert str(error.value) == f"train row 1: KeyError: 'word' ({own}, line {line})"
