"""Real games on the real engine, in its image: the planner solves each, chance does not, and no file tells how.

They take a quarter of an hour and an image that is compiled for minutes, so they run if SKILLOPT_TEST_PROVIDER is set,
and need the games of SKILLOPT_DATA.
"""

import json
import os
import re
import sys
import tarfile
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from subprocess import run

import docker
import pytest

from local import image
from local.try_benchmark import open_sandbox
from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.sandbox.container_loop import run_workload
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.training.trial import Trial, TrialDisplay, TriedItem, first_items, skill_text, trial_config
from tests.conftest import with_images
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion

GAMES = Path(os.environ.get("SKILLOPT_DATA", "/nowhere")) / "alfworld" / "games.tar.gz"
pytestmark = [
    pytest.mark.engine,
    pytest.mark.provider,
    pytest.mark.skipif(not os.environ.get("SKILLOPT_TEST_PROVIDER"), reason="SKILLOPT_TEST_PROVIDER is not set"),
    pytest.mark.skipif(not GAMES.is_file(), reason=f"{GAMES} is not there"),
]
PLAYERS = """
import json, os, random
from multiprocessing import Pool
from pathlib import Path
from skillopt_airflow import benchmarks

worlds = benchmarks.load_file("alfworld", "worlds")
MAX_TURNS = 50

def planned(game):
    world = worlds.open_world(game)
    world._engine.request_infos.policy_commands = True
    seen = world.opening()
    # Else it would plan anew after each action.
    world._engine.request_infos.policy_commands = False
    for action in world._engine.state["policy_commands"][:MAX_TURNS]:
        seen = world.act(action)
    return seen.won

def by_chance(game):
    world, chance = worlds.open_world(game), random.Random(7)
    seen = world.opening()
    for _ in range(MAX_TURNS):
        if not seen.won:
            seen = world.act(chance.choice(seen.admissible))
    return seen.won

games = [{"game.tw-pddl": path.read_bytes()} for path in sorted(Path("/games").rglob("game.tw-pddl"))]
# The planner's library prints what it does.
told = os.dup(1)
os.dup2(2, 1)
with Pool(2) as pool:
    results = [pool.map(play, games, chunksize=1) for play in (planned, by_chance)]
os.write(told, json.dumps(results).encode())
"""


SEARCH = """
import json, os, re, sys

wanted = [text[::-1].encode() for text in json.loads(sys.argv[1])]
found, read = [], {"files": 0, "memories": 0}

def look(path, parts):
    before = b""
    for part in parts:
        found.extend(path for text in wanted if text in before + part)
        before = part[-1000:]

def parts_of(handle):
    while part := handle.read(2**20):
        yield part

def memory(process):
    with open(f"/proc/{process}/mem", "rb", 0) as handle:
        for first, last in re.findall(r"^(\\w+)-(\\w+) r.*/", open(f"/proc/{process}/maps").read(), re.MULTILINE):
            handle.seek(int(first, 16))
            yield handle.read(int(last, 16) - int(first, 16))

for folder, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/sys", "/proc", "/dev")]
    for path in (os.path.join(folder, name) for name in names):
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as handle:
                look(path, parts_of(handle))
            read["files"] += 1
        except OSError:
            pass
for process in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
    try:
        look(f"{process}/mem", memory(process))
        read["memories"] += 1
    except OSError:
        pass
print(json.dumps([found, read]))
"""


@pytest.mark.timeout(3600)
def test_the_planner_solves_all_games_and_chance_few(docker_host: str, tmp_path: Path) -> None:
    with_images(docker_host, "alfworld")
    with tarfile.open(GAMES) as games:
        games.extractall(tmp_path, filter="data")
    tmp_path.chmod(0o755)
    client = docker.DockerClient(base_url=docker_host, timeout=3600)
    container = client.containers.run(
        image.RECIPES["alfworld"].image,
        entrypoint=["python3", "-c", PLAYERS],
        volumes={str(tmp_path): {"bind": "/games", "mode": "ro"}},
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "noexec"},
        detach=True,
    )
    try:
        ended, said = container.wait(), container.logs(stdout=True, stderr=False)
    finally:
        container.remove(force=True)
        client.close()
    assert ended["StatusCode"] == 0, said
    by_planner, by_chance = json.loads(said)
    assert len(by_planner) == 78
    assert all(by_planner)
    assert sum(by_chance) <= len(by_chance) // 10


def test_nothing_in_a_container_tells_the_solution_of_a_game_that_is_played(docker_host: str, tmp_path: Path) -> None:
    with_images(docker_host, "alfworld")
    with tarfile.open(GAMES) as games:
        games.extractall(tmp_path, filter="data")
    run([sys.executable, str(benchmarks.folder("alfworld") / "make_splits.py"), str(tmp_path)], check=True)
    config = trial_config("alfworld", [f"data.uri={tmp_path}", "model.max_turns=2"])
    adapter = benchmarks.load("alfworld")
    items = first_items("alfworld", adapter, config, Split.TRAIN, 1, None)
    game = next(tmp_path.glob(f"json_2.1.1/**/{items[0].files[0].path.rpartition('json_2.1.1/')[2]}"))
    told: list[str] = []
    played: list[TriedItem] = []
    secrets = secrets_of(game)

    def searched(asked: Asked) -> Reply:
        if asked.number == 2:
            executed_in_the_container(docker_host, ["sh", "-c", 'printf %s "$0" > /tmp/told', secrets[0]])
        # Backwards, so that the search does not find itself.
        backwards = json.dumps([secret[::-1] for secret in secrets])
        told.append(executed_in_the_container(docker_host, ["python3", "-c", SEARCH, backwards]))
        return completion("<action>look</action>")

    with ScriptedProvider(searched) as provider:
        trial = Trial(
            benchmark="alfworld",
            config=config,
            adapter=adapter,
            skill=skill_text("alfworld", None),
            items=items,
            upstream=Upstream(
                conn_id="scripted", dialect="openai-chat", base_url=provider.base_url, model="stand-in-target"
            ),
            data=DataFiles.of(config.data, benchmarks.folder("alfworld"), None),
            labels={"store": str(tmp_path), "dag_run": "secrets"},
            on_row=played.append,
        )
        never = threading.Event()
        home = image.ROOT / ".local"
        run_workload(trial, lambda place: open_sandbox(home, trial, place, never, TrialDisplay()), never)
    assert [one.trajectory.calls for one in played] == [2]
    (found, read), (found_when_told, _) = map(json.loads, told)
    assert found == []
    assert read["files"] > 1000
    assert read["memories"] == 0
    assert found_when_told == ["/tmp/told"]


def secrets_of(game: Path) -> Sequence[str]:
    """Where a thing lies, what the goal asks for, and where the expert goes first."""
    problem = json.loads(game.read_bytes())["pddl_problem"]
    plan = json.loads((game.parent / "traj_data.json").read_bytes())["plan"]["high_pddl"]
    lies = re.search(r"\(inReceptacle (\S+) ", problem)
    goal = re.search(r"\(objectType \?o \w+\)", problem.partition("(:goal")[2])
    assert lies
    assert goal
    return lies[1], goal[0], plan[0]["planner_action"]["location"]


def executed_in_the_container(docker_host: str, command: Sequence[str]) -> str:
    """What a process prints that runs beside the program, as its user."""
    with closing(docker.DockerClient(base_url=docker_host)) as client:
        (container,) = client.containers.list(filters={"label": "skillopt.dag_run=secrets"})
        status, output = container.exec_run(command)
    assert status == 0, output
    return str(output.decode())
