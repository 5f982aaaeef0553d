from types import SimpleNamespace

import pytest

from include.core.config import CLI_HARNESSES, TrainConfig
from include.training.workload import ChunkWorkload


@pytest.mark.parametrize("runs_code", [False, True])
@pytest.mark.parametrize("harness", ["chat", "tools", "codex", "claude_code"])
def test_whatever_executes_a_models_words_gets_one_container_an_item(harness: str, runs_code: bool) -> None:
    config = TrainConfig.from_layers({"model": {"harness": harness}})
    run = SimpleNamespace(config=config, benchmark=SimpleNamespace(runs_code=runs_code))
    workload = ChunkWorkload.__new__(ChunkWorkload)
    object.__setattr__(workload, "run", run)

    assert workload.one_item_each is (runs_code or harness in CLI_HARNESSES)
