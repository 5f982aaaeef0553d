"""Real games on the real engine, in its image: the planner solves each of them, and chance does not.

They take a quarter of an hour and an image that is compiled for minutes, so they run if SKILLOPT_TEST_PROVIDER is set,
and need the games of SKILLOPT_DATA.
"""

import json
import os
import tarfile
from pathlib import Path

import docker
import pytest

from local import image
from tests.conftest import with_images

pytestmark = [pytest.mark.engine, pytest.mark.provider]

GAMES = Path(os.environ.get("SKILLOPT_DATA", "/nowhere")) / "alfworld" / "games.tar.gz"
PLAYERS = """
import json, random, sys
from pathlib import Path
from skillopt_airflow import benchmarks

worlds = benchmarks.load_file("alfworld", "worlds")
MOST_TURNS = 50

def planned(game):
    world = worlds.open_world(game)
    world._engine.request_infos.policy_commands = True
    seen = world.opening()
    for action in world._engine.state["policy_commands"][:MOST_TURNS]:
        seen = world.act(action)
    return seen.won

def by_chance(game):
    world, chance = worlds.open_world(game), random.Random(7)
    seen = world.opening()
    for _ in range(MOST_TURNS):
        if not seen.won:
            seen = world.act(chance.choice(seen.admissible))
    return seen.won

games = [{"game.tw-pddl": path.read_bytes()} for path in sorted(Path("/games").rglob("game.tw-pddl"))]
sys.stdout = sys.stderr
results = [[planned(game), by_chance(game)] for game in games]
sys.__stdout__.write(json.dumps(results))
"""


@pytest.mark.skipif(not os.environ.get("SKILLOPT_TEST_PROVIDER"), reason="SKILLOPT_TEST_PROVIDER is not set")
@pytest.mark.skipif(not GAMES.is_file(), reason=f"{GAMES} is not there")
def test_the_planner_solves_all_games_and_chance_few(docker_host: str, tmp_path: Path) -> None:
    with_images(docker_host, "alfworld")
    with tarfile.open(GAMES) as games:
        games.extractall(tmp_path, filter="data")
    tmp_path.chmod(0o755)
    client = docker.DockerClient(base_url=docker_host, timeout=3600)
    said = client.containers.run(
        image.RECIPES["alfworld"].image,
        entrypoint=["python3", "-c", PLAYERS],
        volumes={str(tmp_path): {"bind": "/games", "mode": "ro"}},
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "noexec"},
        remove=True,
    )
    client.close()
    results = json.loads(said)
    assert len(results) == 78
    assert all(planner for planner, _ in results)
    assert sum(chance for _, chance in results) <= len(results) // 10
