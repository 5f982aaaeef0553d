"""The real CLIs in hardened containers without network, behind the gateway, with the stand-in as model server."""

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from openpyxl import load_workbook
from PIL import Image
from pydantic import SecretStr

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire as chat
from local.standin.economy import RULES, World
from local.standin.known_items import of_benchmark
from local.standin.stand_in import of_all_benchmarks
from skillopt_airflow import benchmarks
from skillopt_airflow.consumer import claude_code_text, skill_md
from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import ModelCall, Status, Trajectory
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.sandbox.docker.limits import host_options
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.protocols import JudgesRepository
from skillopt_airflow.tasks.task_group import TaskGroup
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.rollouts.judging import engine_test_runner, score_repository
from skillopt_airflow.training.run.run_documents import source_corpus
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, failure
from tests.rollout.harnesses.test_claude_code import COMMANDS
from tests.rollout.test_in_containers import workload
from tests.sandbox.fake_workload import FakeOperator
from tests.sandbox.small_repository import with_hashes

MODEL = "stand-in-target"
SPOKEN = {"codex": "openai", "claude_code": "anthropic"}
CLIS = [name for name, harness in HARNESSES.items() if harness.is_cli]
STAND_IN = of_all_benchmarks()
SKILL = "\n".join(
    [
        "# How to answer",
        "",
        *(f"- {rule}" for rule in RULES),
        """- A cell such as $A$1 is meant as it stands; so are $ARGUMENTS and "quotes": 'x'.""",
        "",
    ]
)
"""It has every rule that an item of the stand-in can need."""
IN_CLAUDE = Path(__file__).with_name("skill_in_claude.py")
KNOWN = [one for one in of_benchmark("searchqa") if World().nature(one.item.id).rule][:3]
*_ITEMS, _LONG = ({"id": one.item.id, "public": dict(one.item.public)} for one in KNOWN)
ITEMS: list[dict[str, Any]] = _ITEMS
LONG: dict[str, Any] = _LONG
LONG["public"]["context"] += " [DOC] words" * 15_000
"""An item whose prompt is longer than an argument of a program may be."""

Run = Callable[..., tuple[list[Trajectory], list[ModelCall]]]


@pytest.fixture
def run(cli_docker_host: str, tmp_path: Path) -> Iterator[Run]:
    """Run items as the operator does: the image of the harness, its mounts, its limits."""
    client = docker.DockerClient(base_url=cli_docker_host, timeout=300)

    def once(
        harness: HarnessName,
        base_url: str,
        items: list[dict[str, Any]],
        skill: str = SKILL,
        allowance: RemainingBudget = RemainingBudget(),  # noqa: B008 - frozen
        **settings: Any,
    ) -> Any:
        folders = {name: tmp_path / name for name in ("in", "out", "gateway")}
        for folder in folders.values():
            folder.mkdir()
            folder.chmod(0o777)
        plain: dict[str, Any] = {"benchmark": "searchqa", "model": MODEL, "max_tokens": 512, "concurrency": 1}
        plain |= {"harness": harness, "dialect": SPOKEN[harness], "call_timeout": 30, "max_attempts": 1}
        written = RolloutSettings(**plain | settings).model_dump_json()
        (folders["in"] / "settings.json").write_text(written)
        (folders["in"] / "skill.md").write_text(skill)
        (folders["in"] / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        upstream = Upstream(
            dialect=SPOKEN[harness], base_url=base_url, model=MODEL, api_key=SecretStr("sk-never-inside")
        )
        calls: list[ModelCall] = []
        socket = folders["gateway"] / "model.sock"
        limits: dict[str, Any] = {"max_attempts": 1, "call_timeout": 30, "allowance": allowance}
        with ModelGateway(upstream, socket, stage="test", on_call=calls.append, **limits):
            api = client.api
            binds = [f"{folder}:/{name}:{'ro' if name == 'in' else 'rw'}" for name, folder in folders.items()]
            container = api.create_container(
                HARNESSES[harness].image,
                host_config=api.create_host_config(binds=binds, **host_options(SandboxGroup())),
            )["Id"]
            try:
                api.start(container)
                ended = api.wait(container)["StatusCode"]
                said = api.logs(container).decode()
            finally:
                api.remove_container(container, force=True)
        assert ended == 0, said
        rows = (folders["out"] / "trajectories.jsonl").read_text().splitlines()
        return [Trajectory.model_validate_json(row) for row in rows], calls

    yield once
    client.close()


def in_chat(item: dict[str, Any], skill: str) -> str:
    messages = [message.model_dump() for message in BENCHMARK.messages(item["public"], skill)]
    return str(chat.complete({"messages": messages}, STAND_IN.reply)["choices"][0]["message"]["content"])


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_the_answers_are_those_of_the_chat_harness(
    run: Run, standin_url: str, harness: HarnessName, caplog: pytest.LogCaptureFixture
):
    items = [*ITEMS, LONG]
    trajectories, calls = run(harness, standin_url, items)

    for item, trajectory in zip(items, trajectories, strict=True):
        said = in_chat(item, SKILL)
        assert (trajectory.status, trajectory.error) == (Status.OK, "")
        assert trajectory.messages[-1].content == said
        assert trajectory.answer == BENCHMARK.answer(said)
        assert [message.role for message in trajectory.messages] == ["system", "user", "assistant"]
    # One call an item, none that the gateway had to refuse, and the trace's tokens are those that the gateway saw.
    assert "Refused" not in caplog.text
    assert [call.http_status for call in calls] == [200] * len(items)
    assert [call.prompt_tokens for call in calls] == [one.prompt_tokens for one in trajectories]
    assert [call.completion_tokens for call in calls] == [one.completion_tokens for one in trajectories]


@pytest.mark.engine
@pytest.mark.nightly
def test_a_skill_with_every_form_of_command_and_reference_runs_and_reads_nothing(cli_docker_host: str):
    """Permissions for Bash and Read are given, and the unescaped skill shows that the CLI would use them."""
    names = [f"/tmp/{name}.txt" for name in ("plain", "in quotes", "after a stop")]
    references = f'See @{names[0]}, @"{names[1]}" and so on\u3002@"{names[2]}"\n'
    commands = [form.format(f"touch /tmp/made/{number}") for number, form in enumerate(COMMANDS.values())]
    skill = "\n\n".join(["# Skill", *commands, references])
    given: dict[str, Any] = {"files": {name: f"secret of {name}" for name in names}}
    client = docker.DockerClient(base_url=cli_docker_host, timeout=300)
    found = {}
    for text in (skill, claude_code_text(skill)):
        given["skill"] = skill_md(text, "v0001-000000000000", "bench", "How to do it.")
        said = client.containers.run(
            HARNESSES["claude_code"].image,
            ["-c", IN_CLAUDE.read_text()],
            entrypoint="python3",
            environment={"GIVEN": json.dumps(given)},
            network_mode="none",
            remove=True,
        )
        ended = json.loads(said)
        found[text] = ended["made"], [name for name in names if f"secret of {name}" in ended["asked"]]
        assert "# Skill" in ended["asked"]
    client.close()
    assert found[skill] == (sorted(map(str, range(len(commands)))), names)
    assert found[claude_code_text(skill)] == ([], [])


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_the_skill_reaches_the_model_as_it_is_with_the_settings(run: Run, harness: HarnessName):
    def refuse(asked: Asked) -> Reply:
        return failure(400, "seen")

    with ScriptedProvider(refuse) as provider:
        (trajectory,), _ = run(harness, provider.base_url, ITEMS[:1], reasoning_effort="low")
        (asked,) = provider.requests
    said = json.dumps(asked.body, ensure_ascii=False)

    assert trajectory.status is Status.MODEL_ERROR
    assert "seen" in trajectory.error
    for line in SKILL.splitlines():
        assert json.dumps(line, ensure_ascii=False)[1:-1] in said
    # None of the skills that come with the CLIs is offered beside it.
    assert "skill-installer" not in said
    assert "code-review" not in said
    assert asked.body["model"] == MODEL
    effort = asked.body["reasoning"] if harness == "codex" else asked.body["output_config"]
    assert effort["effort"] == "low"
    assert asked.body["stream"] is True
    assert harness == "codex" or asked.body["max_tokens"] == 512


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
@pytest.mark.parametrize("code", [401, 402, 500])
def test_what_a_provider_does_wrong_becomes_the_status(run: Run, harness: HarnessName, code: int):
    with ScriptedProvider(lambda asked: failure(code, "refused here")) as provider:
        (trajectory,), calls = run(harness, provider.base_url, ITEMS[:1])

    assert trajectory.status is Status.MODEL_ERROR
    assert (trajectory.answer, trajectory.calls) == ("", 0)
    # The CLI leaves the retries to the gateway.
    assert len(calls) == 1


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_a_budget_ends_a_cli_too(run: Run, standin_url: str, harness: HarnessName):
    trajectories, calls = run(harness, standin_url, ITEMS, allowance=RemainingBudget(calls=1))

    assert [trajectory.status for trajectory in trajectories] == [Status.OK, Status.BUDGET]
    assert "budget.max_calls" in trajectories[1].error
    assert len(calls) == 1


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_a_workbook_is_changed_by_commands(cli_docker_host: str, standin_url: str, harness: HarnessName):
    known = next(one for one in of_benchmark("spreadsheetbench") if World().nature(one.item.id).rule)
    fake = workload(harness, SPOKEN[harness], standin_url, [known.item], SKILL, benchmark="spreadsheetbench")
    fake.public_files = known.files(known.item.files)
    FakeOperator(fake=fake, docker_url=cli_docker_host).execute({})

    (trajectory,) = fake.trajectories
    assert (trajectory.status, trajectory.files, trajectory.calls) == (Status.OK, ("output.xlsx",), 2)
    made = load_workbook(io.BytesIO(fake.left[known.item.id]["output.xlsx"]))
    [golden] = known.files(known.item.reference_files).values()
    wanted = load_workbook(io.BytesIO(golden), data_only=True)
    assert [[*sheet.values] for sheet in made] == [[*sheet.values] for sheet in wanted]


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_a_figure_is_looked_up_in_the_documents(cli_docker_host: str, standin_url: str, harness: HarnessName):
    known = next(one for one in of_benchmark("officeqa") if World().nature(one.item.id).rule)
    fake = workload(harness, SPOKEN[harness], standin_url, [known.item], SKILL, benchmark="officeqa")
    fake.corpus = source_corpus("officeqa", benchmark_config("officeqa"), None)
    FakeOperator(fake=fake, docker_url=cli_docker_host).execute({})

    (trajectory,) = fake.trajectories
    assert (trajectory.status, trajectory.answer) == (Status.OK, known.item.reference["answer"])


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_an_issue_is_resolved_in_its_repository(cli_docker_host: str, standin_url: str, harness: HarnessName):
    swebench, sample = benchmarks.load("swebench"), benchmarks.folder("swebench") / "sample"
    assert isinstance(swebench, JudgesRepository)
    records = [
        record
        for split in ("train", "val", "test")
        for record in json.loads((sample / split / "items.json").read_text("utf-8"))
    ]
    record = next(one for one in records if World().nature(one["instance_id"]).rule)
    contents = {name: (sample / record["instance"] / name).read_bytes() for name in ("repo.tar.gz", "requirements.txt")}
    item = with_hashes(swebench.item(record), contents)
    fake = workload(harness, SPOKEN[harness], standin_url, [item], SKILL, benchmark="swebench")
    fake.files_of_images = contents
    FakeOperator(fake=fake, docker_url=cli_docker_host).execute({})

    (trajectory,) = fake.trajectories
    assert (trajectory.status, trajectory.error, trajectory.files) == (Status.OK, "", ("patch.diff",))
    run = engine_test_runner(SandboxGroup(), fake.image, fake.labels, lambda _: contents, cli_docker_host)
    judged = score_repository(swebench, item, trajectory, fake.left[item.id], run)
    assert judged.score is not None
    assert judged.score.hard == 1.0, judged.score.feedback


def acting(harness: HarnessName, answer: str, action: tuple[str, dict[str, Any]] | None) -> Callable[[Asked], Reply]:
    """A model that uses one tool, if there is an action, and then answers."""

    def codex(asked: Asked) -> Reply:
        if asked.number == 1 and action:
            call = {"type": "function_call", "id": "f-1", "call_id": "c-1", "name": action[0]}
            return codex_turn(call | {"arguments": json.dumps(action[1])})
        content = [{"type": "output_text", "text": answer}]
        return codex_turn({"type": "message", "id": "m-1", "role": "assistant", "content": content})

    def claude(asked: Asked) -> Reply:
        if asked.number == 1 and action:
            start = {"type": "tool_use", "id": "toolu_1", "name": action[0], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(action[1])}
            return claude_turn(start, delta, "tool_use", 1)
        return claude_turn({"type": "text", "text": ""}, {"type": "text_delta", "text": answer}, "end_turn", 2)

    return codex if harness == "codex" else claude


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_the_server_gets_the_very_picture(cli_docker_host: str, harness: HarnessName):
    section = {"prompt": "{{ map }} Which?", "reference": "answer", "score": {"by": "exact"}, "pictures": ["map"]}
    task = TaskGroup.model_validate(section)
    item = declared_benchmark(task).item({"map": "a.png", "answer": "left"})
    [file] = item.files
    content = io.BytesIO()
    Image.effect_noise((64, 48), 90).convert("RGB").save(content, "PNG")
    # Codex has shown the picture by itself.
    look = ("Read", {"file_path": f"/in/files/0/{file.name}"}) if harness == "claude_code" else None
    with ScriptedProvider(acting(harness, "<answer>left</answer>", look)) as provider:
        fake = workload(harness, SPOKEN[harness], provider.base_url, [item], SKILL, benchmark="maps")
        fake.settings = fake.settings.model_copy(update={"task": task.model_dump(mode="json")})
        fake.public_files = {file.name: content.getvalue()}
        FakeOperator(fake=fake, docker_url=cli_docker_host).execute({})
        requests = provider.requests
    (trajectory,) = fake.trajectories
    assert (trajectory.status, trajectory.error, trajectory.answer) == (Status.OK, "", "left")
    shown = re.findall(rb'(?:base64,|"data": ?")([A-Za-z0-9+/=]{100,})', requests[-1].raw)
    assert [base64.b64decode(data) for data in shown] == [content.getvalue()]


def events(*documents: dict[str, Any]) -> Reply:
    lines = [f"event: {document['type']}\ndata: {json.dumps(document)}\n\n" for document in documents]
    return Reply(200, "".join(lines).encode(), {"content-type": "text/event-stream"})


def codex_turn(item: dict[str, Any]) -> Reply:
    usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    response = {"id": "r-1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return events(
        {"type": "response.created", "response": {"id": "r-1", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    )


def claude_turn(start: dict[str, Any], delta: dict[str, Any], stop: str, number: int) -> Reply:
    message = {"id": f"msg-{number}", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    message |= {"stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 0}}
    return events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize("harness", CLIS)
def test_commands_run_without_asking_inside_the_containers_limits(run: Run, harness: HarnessName):
    command = "id -u; touch made.txt && pwd; env | grep -i 'sk-' ; cat /proc/net/route | wc -l; python3 -c 'print(6*7)'"
    bash = ("Bash", {"command": command, "description": "x"})
    action = bash if harness == "claude_code" else ("exec_command", {"cmd": command})
    with ScriptedProvider(acting(harness, "<answer>done</answer>", action)) as provider:
        (trajectory,), calls = run(harness, provider.base_url, ITEMS[:1])

    assert (trajectory.status, trajectory.answer, trajectory.calls) == (Status.OK, "done", 2)
    assert [message.role for message in trajectory.messages] == ["system", "user", "call", "tool", "assistant"]
    uid, folder, routes, product = trajectory.messages[3].content.splitlines()[:4]
    assert (uid, routes, product) == ("10001", "1", "42")
    assert folder == "/out/files/0"
    assert trajectory.files == ("made.txt",)
    assert [call.prompt_tokens for call in calls] == [7, 7]
    assert (trajectory.prompt_tokens, trajectory.completion_tokens) == (14, 4)
