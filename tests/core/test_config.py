from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import TrainConfig, changed_paths, fields_by_path, nest
from skillopt_airflow.core.errors import ConfigError

TASK: dict[str, Any] = {
    "prompt": "{{ question }}",
    "reference": "answer",
    "answer": {"from": "tags", "tag": "final"},
    "score": {"by": "number", "relative": 0.1},
}
DECLARED = {"task": TASK}


@pytest.mark.parametrize(
    ("sandbox", "image"),
    [
        ({}, "there/skillopt-sandbox:latest"),
        ({"image": "skillopt-sandbox-alfworld:latest"}, "there/skillopt-sandbox-alfworld:latest"),
        ({"image": "mine:1"}, "mine:1"),
        ({"image": "sha256:1f"}, "sha256:1f"),
    ],
)
def test_the_registry_has_the_projects_own_images(sandbox: dict[str, str], image: str) -> None:
    assert TrainConfig.from_layers({"sandbox": sandbox | {"registry": "there"}}).image == image


def test_a_switch_may_be_without_quotes_in_yaml() -> None:
    config = TrainConfig.from_layers(yaml.safe_load("model: {thinking: on, optimizer_thinking: off}"))
    assert (config.model.thinking, config.model.optimizer_thinking) == ("on", "off")


def test_every_group_is_listed() -> None:
    task = TASK | {"pictures": ["scan"], "judge": "Any spelling will do.", "alternatives": True}
    dumped = TrainConfig.from_layers(DECLARED | {"task": task}).model_dump()
    assert [f"{group}.{key}" for group, keys in dumped.items() for key in keys] == list(fields_by_path())


def test_a_task_is_stored_and_read_as_it_was_written() -> None:
    config = TrainConfig.from_layers(DECLARED)
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert TrainConfig.from_layers(config.model_dump()) == config
    assert config.model_dump()["task"] == TASK | {
        "id": None,
        "group": None,
        "files": (),
        "score": TASK["score"] | {"absolute": 0.0},
        "alternatives": False,
        "judge": None,
        "pictures": (),
    }


def test_a_group_that_is_not_there_stays_so() -> None:
    assert TrainConfig().task is None
    assert TrainConfig.from_layers(TrainConfig().model_dump(), {"task": None}).task is None
    assert TrainConfig.from_layers(DECLARED, {"task": None}).task is None


def test_a_run_overrides_a_key_of_a_rule_or_chooses_another() -> None:
    config = TrainConfig.from_layers(DECLARED)
    nearer = TrainConfig.from_layers(config.model_dump(), nest({"task.score.relative": 0.01}))
    assert changed_paths(config, nearer) == ["task.score"]
    assert changed_paths(config, config) == []
    assert changed_paths(TrainConfig(), config)[:2] == ["task.prompt", "task.reference"]
    assert nearer.model_dump()["task"]["score"] == {"by": "number", "absolute": 0.0, "relative": 0.01}
    other = TrainConfig.from_layers(config.model_dump(), nest({"task.score": {"by": "exact"}, "task.id": "key"}))
    assert changed_paths(config, other) == ["task.id", "task.score"]


def test_later_layers_win_key_by_key() -> None:
    first: dict[str, Any] = {"train": {"seed": 1, "batch_size": 5}}
    config = TrainConfig.from_layers(first, {"train": {"seed": 2}}, {"data": {"limit": 3}})
    assert (config.train.seed, config.train.batch_size, config.data.limit) == (2, 5, 3)
    assert first == {"train": {"seed": 1, "batch_size": 5}}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "train.seed": st.integers(-9, 9),
            "evaluation.gate_metric": st.sampled_from(["hard", "soft", "mixed"]),
            "evaluation.gate_mixed_weight": st.floats(0, 1),
            "evaluation.eval_test": st.booleans(),
            "model.temperature": st.none() | st.floats(0, 2),
            "data.split_ratio": st.sampled_from(["1:1:1", "10:20:30", "2:1:5:2"]),
        },
    )
)
def test_overrides_round_trip(overrides: dict[str, Any]) -> None:
    config = TrainConfig.from_layers(nest(overrides))
    dumped = config.model_dump()
    for path, value in overrides.items():
        group, key = path.split(".")
        assert dumped[group][key] == value
    assert TrainConfig.from_layers(dumped) == config
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert TrainConfig.from_layers({}, nest(overrides), {}) == config


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"optimizer.learning_rat": 2}, "optimizer.learning_rat: .* learning_rate, min_learning_rate"),
        ({"optimiser.learning_rate": 2}, "optimiser: .* train, gradient, optimizer"),
        ({"optimizer.lr_scheduler": "step"}, "optimizer.lr_scheduler = 'step': .*'constant', 'linear' or 'cosine'"),
        ({"train.seed": {"x": 1}}, "train.seed = {'x': 1}"),
        ({"train": None}, "train: .*None"),
        ({"train.batch_size": 0, "data.lim": 1}, "train.batch_size = 0: .*; data.lim: "),
        ({"optimizer.learning_rate": 1}, "min_learning_rate"),
        (
            {"optimizer.use_skill_aware_reflection": True, "optimizer.skill_update_mode": "full_rewrite_minibatch"},
            "skill_update_mode",
        ),
        ({"data.split_ratio": "2:1"}, "data.split_ratio = '2:1'"),
        ({"data.split_ratio": 7267}, "data.split_ratio = 7267: write three or four whole numbers"),
        ({"data.split_ratio": "00:1:1"}, "data.split_ratio = '00:1:1'"),
        ({"storage.prefix": "team-a"}, "storage.prefix = 'team-a': .* team-a/"),
        ({"storage.prefix": "/"}, "storage.prefix = '/'"),
        ({"model.call_timeout": float("inf")}, "model.call_timeout = inf"),
        ({"sandbox.cpus": float("nan")}, "sandbox.cpus = nan"),
        ({"model.target_conn_id": ""}, "model.target_conn_id = ''"),
        ({"sandbox.memory": "4Gi"}, "sandbox.memory = '4Gi': .* 4g"),
        ({"sandbox.memory": "0m"}, "sandbox.memory = '0m'"),
        ({"retention.trajectory_days": 700_001}, "retention.trajectory_days = 700001"),
        ({"publishing.approval_hours": 1e12}, "publishing.approval_hours = 1000000000000.0"),
        ({"regate.timezone": "Mars/Base"}, "regate.timezone"),
        ({"regate.timezone": "../etc/passwd"}, "regate.timezone"),
        ({"task": 5}, "task: .*5"),
        ({"task.promt": "x"}, "task.promt: .* prompt, reference, id"),
        ({"task": TASK | {"prompt": ""}}, "task.prompt = ''"),
        ({"task": TASK | {"pictures": "img"}}, r"task.pictures = 'img': .* \[img\]"),
        ({"task": TASK | {"files": "{{ a }}"}}, r"task.files = '{{ a }}': .* \['{{ a }}'\]"),
        ({"task": {"prompt": "x"}}, "task.reference: .* required; task.score: .* required"),
        ({"task": TASK | {"score": {"by": "eaxct"}}}, "task.score = {'by': 'eaxct'}: .*f1, contains"),
        ({"task": TASK | {"score": {"by": "number", "rel": 1}}}, "number.rel: .* by, abs"),
        ({"task": TASK | {"answer": "tags"}}, "task.answer = 'tags': .*'from'"),
        ({"model.thinking": 512, "model.max_tokens": 512}, "max_tokens = 512"),
        ({"model.optimizer_thinking": 9, "model.optimizer_max_tokens": 9}, "optimizer_max_tokens = 9"),
        ({"data.split_mode": "manifest"}, "split_manifest"),
        ({"data.split_manifest": "m.json"}, "split_mode manifest"),
        ({"search.conn_id": "skillopt_search"}, "search.conn_id = skillopt_search: .*model.harness"),
    ],
)
def test_bad_overrides_are_refused_by_their_key(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainConfig.from_layers(nest(overrides))
