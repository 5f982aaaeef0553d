from pathlib import Path

import pytest

from tests.core.extended import output_of

SOURCE = """
from skillopt_airflow.core.values.types import Status, Trajectory

class Echo:
    def __init__(self, settings, benchmark, base_url):
        self.told = f"{settings.harness} in {settings.dialect} by {base_url}"

    async def run(self, item, skill, workspace):
        return Trajectory(item_id=item.id, status=Status.OK, answer=self.told)

    async def aclose(self):
        pass
"""
SCRIPT = """
import asyncio, json
from pathlib import Path
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.providers import ModelConnection, check_sampling, http_upstream, for_harness
from skillopt_airflow.rollout.program import run
from skillopt_airflow.rollout.settings import RolloutSettings

config = TrainConfig.from_layers({"model": {"harness": "echo", "temperature": 0.5}})
connected = ModelConnection(conn_id="c", conn_type="pydanticai", host="http://own/v1", password="", extra={},
                      provider="openai-chat", model="m")
upstream = for_harness("echo", connected, http_upstream(connected))
try:
    check_sampling(upstream, config.model)
except ConfigError as error:
    print(error)
settings = RolloutSettings(benchmark="searchqa", harness="echo", dialect=upstream.dialect, model="m", max_tokens=9,
                           concurrency=1, call_timeout=9, max_attempts=1)
for folder in ("in", "out"): Path(folder).mkdir()
Path("in/settings.json").write_text(settings.model_dump_json())
Path("in/skill.md").write_text("skill")
Path("in/items.jsonl").write_text(json.dumps({"id": "i", "public": {}}))
asyncio.run(run(Path("in"), Path("out"), "http://gateway"))
print(config.image, json.loads(Path("out/trajectories.jsonl").read_text())["answer"], sep="; ")
"""


@pytest.mark.nightly
def test_a_harness_is_one_file_and_one_line(tmp_path: Path) -> None:
    line = """    "echo": Harness(
        "skillopt_airflow.rollout.echo:Echo", image="echo:latest", wire_format="anthropic", is_cli=True
    ),
"""
    lines = {"HARNESSES: Mapping[str, Harness] = {\n": line}
    refused, told = output_of(
        SCRIPT, tmp_path, "rollout/harnesses/echo.py", SOURCE, "core/config/harnesses.py", lines
    ).splitlines()[-2:]
    assert refused.startswith("model.temperature = 0.5: the CLI of harness echo has no option for it")
    assert told == "echo:latest; echo in anthropic by http://gateway"
