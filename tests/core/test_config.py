import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import TrainConfig, changed_paths, fields_by_path, nest
from skillopt_airflow.core.errors import ConfigError

PROJECT = Path(__file__).parents[2]
GROUPS = ("training_groups", "service_groups", "resource_groups", "search_group", "config")
PATHS = sorted(fields_by_path())
SCHEMA = TrainConfig.model_json_schema()
CALLED = {
    "evaluation": ("rules",),
    "optimizer": ("rules",),
    "publishing": ("rules",),
    "sandbox": ("limits",),
}
"""What the code calls a group that it is handed alone."""
TASK: dict[str, Any] = {
    "prompt": "{{ question }}",
    "reference": "answer",
    "answer": {"from": "tags", "tag": "final"},
    "score": {"by": "number", "relative": 0.1},
}
DECLARED = {"task": TASK}


def sources() -> str:
    """All code that may read a knob: everything but the modules that define them."""
    folders = ("include", "dags", "benchmarks")
    files = [file for folder in folders for file in (PROJECT / folder).rglob("*.py")]
    groups = {PROJECT / f"include/skillopt_airflow/core/{name}.py" for name in GROUPS}
    return "\n".join(file.read_text() for file in files if file not in groups)


@pytest.mark.parametrize("path", PATHS)
def test_every_knob_is_documented_in_a_sentence(path: str) -> None:
    group, key = path.split(".")
    [definition] = re.findall(r"#/\$defs/(\w+Group)", str(SCHEMA["properties"][group]))
    assert SCHEMA["$defs"][definition]["properties"][key]["description"].endswith(".")


@pytest.mark.parametrize(
    ("sandbox", "image"),
    [
        ({}, "there/skillopt-sandbox:latest"),
        ({"image": "skillopt-sandbox-alfworld:latest"}, "there/skillopt-sandbox-alfworld:latest"),
        ({"image": "elsewhere/skillopt-sandbox:latest"}, "elsewhere/skillopt-sandbox:latest"),
        ({"image": "mine:1"}, "mine:1"),
        ({"image": "sha256:1f"}, "sha256:1f"),
    ],
)
def test_the_registry_has_the_projects_own_images(sandbox: dict[str, str], image: str) -> None:
    assert TrainConfig.from_layers({"sandbox": sandbox | {"registry": "there"}}).image == image


@pytest.mark.parametrize("knob", ["thinking", "optimizer_thinking"])
@pytest.mark.parametrize("word", ["on", "off"])
def test_a_switch_may_be_without_quotes_in_yaml(knob: str, word: str) -> None:
    config = TrainConfig.from_layers(yaml.safe_load(f"model: {{{knob}: {word}}}"))
    assert getattr(config.model, knob) == word


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
    }


def test_a_group_that_is_not_there_stays_so() -> None:
    assert TrainConfig().task is None
    assert TrainConfig.from_layers(TrainConfig().model_dump(), {"task": None}).task is None
    assert TrainConfig.from_layers(DECLARED, {"task": None}).task is None


def test_a_run_overrides_a_key_of_a_rule_or_chooses_another() -> None:
    config = TrainConfig.from_layers(DECLARED)
    nearer = TrainConfig.from_layers(config.model_dump(), nest({"task.score.relative": 0.01}))
    assert changed_paths(config, nearer) == ["task.score"]
    assert nearer.model_dump()["task"]["score"] == {"by": "number", "absolute": 0.0, "relative": 0.01}
    other = TrainConfig.from_layers(config.model_dump(), nest({"task.score": {"by": "exact"}, "task.id": "key"}))
    assert changed_paths(config, other) == ["task.id", "task.score"]


def test_every_knob_that_differs_is_named() -> None:
    one = TrainConfig.from_layers({"train": {"seed": 1}})
    assert changed_paths(one, one) == []
    assert changed_paths(one, TrainConfig()) == ["train.seed"]
    assert changed_paths(TrainConfig(), TrainConfig.from_layers(DECLARED))[:2] == ["task.prompt", "task.reference"]


def test_every_knob_is_read_somewhere() -> None:
    code = sources()
    assert [path for path in PATHS if not read_by(code, path)] == []
    assert not read_by(code, "budget.timeout")


def read_by(code: str, path: str) -> bool:
    """Whether a knob is read of its group, or of what a function that is handed the group calls it."""
    group, _, key = path.partition(".")
    names = "|".join((group, *CALLED.get(group, ())))
    return re.search(rf"\b({names})\.{key}\b", code) is not None


def test_the_defaults_are_the_papers_protocol() -> None:
    config = TrainConfig()
    assert (config.train.num_epochs, config.train.batch_size, config.train.seed) == (4, 40, 42)
    assert (config.gradient.minibatch_size, config.gradient.merge_batch_size) == (8, 8)
    assert (config.optimizer.learning_rate, config.optimizer.min_learning_rate) == (4, 2)
    assert config.optimizer.lr_scheduler == "cosine"
    assert (config.evaluation.gate_metric, config.evaluation.min_coverage) == ("hard", 0.95)
    assert (config.data.split_ratio, config.data.split_seed) == ("2:1:7", 42)


def test_later_layers_win_key_by_key() -> None:
    config = TrainConfig.from_layers(
        {"train": {"seed": 1, "batch_size": 5}}, {"train": {"seed": 2}}, {"data": {"limit": 3}}
    )
    assert (config.train.seed, config.train.batch_size, config.data.limit) == (2, 5, 3)


def test_layers_stay_as_they_are() -> None:
    first: dict[str, Any] = {"train": {"seed": 1}}
    TrainConfig.from_layers(first, {"train": {"seed": 2}})
    assert first == {"train": {"seed": 1}}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "train.seed": st.integers(-9, 9),
            "train.batch_size": st.integers(1, 99),
            "optimizer.learning_rate": st.integers(2, 99),
            "evaluation.gate_metric": st.sampled_from(["hard", "soft", "mixed"]),
            "evaluation.gate_mixed_weight": st.floats(0, 1),
            "evaluation.eval_test": st.booleans(),
            "model.temperature": st.none() | st.floats(0, 2),
            "data.split_ratio": st.sampled_from(["1:1:1", "10:20:30", "2:1:5:2"]),
            "storage.prefix": st.sampled_from(["", "team/", "a/b/"]),
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
        ({"optimizer.learning_rat": 2}, ["optimizer.learning_rat: no such key", "learning_rate, min_learning_rate"]),
        ({"optimiser.learning_rate": 2}, ["optimiser: no such key", "train, gradient, optimizer"]),
        ({"optimizer.lr_scheduler": "step"}, ["optimizer.lr_scheduler = 'step'", "'constant', 'linear' or 'cosine'"]),
        ({"train.batch_size": 0}, ["train.batch_size = 0", "greater than or equal to 1"]),
        ({"train.seed": {"x": 1}}, ["train.seed = {'x': 1}", "valid integer"]),
        ({"train.seed.x": 1}, ["train.seed = {'x': 1}", "valid integer"]),
        ({"train": 5}, ["train: expected keys and values, got 5"]),
        ({"train": None}, ["train: expected keys and values, got None"]),
        ({"optimizer.learning_rate": 1}, ["min_learning_rate must not exceed learning_rate"]),
        (
            {"optimizer.use_skill_aware_reflection": True, "optimizer.skill_update_mode": "full_rewrite_minibatch"},
            ["set skill_update_mode to patch or rewrite_from_suggestions"],
        ),
        ({"data.split_ratio": "2:1"}, ["data.split_ratio = '2:1'"]),
        ({"data.split_ratio": 7267}, ["data.split_ratio = 7267: write three or four whole numbers"]),
        ({"storage.prefix": "team-a"}, ["storage.prefix = 'team-a': write it as team-a/"]),
        ({"data.split_ratio": "2:1:5:2:1"}, ["data.split_ratio = '2:1:5:2:1'"]),
        ({"data.split_ratio": "0:1:1"}, ["every part of the ratio must be at least 1"]),
        ({"data.split_ratio": "00:1:1"}, ["every part of the ratio must be at least 1"]),
        ({"gradient.merge_batch_size": 1}, ["gradient.merge_batch_size = 1", "greater than or equal to 2"]),
        ({"model.call_timeout": float("inf")}, ["model.call_timeout = inf", "finite number"]),
        ({"sandbox.cpus": float("nan")}, ["sandbox.cpus = nan"]),
        ({"model.target_conn_id": ""}, ["model.target_conn_id = ''"]),
        ({"storage.prefix": "team"}, ["storage.prefix = 'team'"]),
        ({"storage.prefix": "/"}, ["storage.prefix = '/'"]),
        ({"sandbox.memory": "4Gi"}, ["sandbox.memory = '4Gi': write it as 512m or 4g"]),
        ({"sandbox.memory": "0m"}, ["sandbox.memory = '0m': write it as 512m or 4g"]),
        ({"retention.trajectory_days": 700_001}, ["retention.trajectory_days = 700001", "or equal to 700000"]),
        ({"publishing.approval_hours": 1e12}, ["publishing.approval_hours = 1000000000000.0", "equal to 10000000"]),
        ({"alerts.late_hours": 1e7 + 1}, ["alerts.late_hours = 10000001.0", "less than or equal to 10000000"]),
        ({"task": 5}, ["task: expected keys and values, got 5"]),
        (
            {"task.promt": "x"},
            ["task.promt: no such key; allowed here: prompt, reference, id, group, answer, score, files"],
        ),
        ({"task": TASK | {"prompt": ""}}, ["task.prompt = ''"]),
        ({"task": TASK | {"pictures": "img"}}, ["task.pictures = 'img': write a list: [img]"]),
        ({"task": TASK | {"files": "{{ a }}"}}, ["task.files = '{{ a }}': write a list: ['{{ a }}']"]),
        ({"task": {"prompt": "x"}}, ["task.reference: this key is required; task.score: this key is required"]),
        (
            {"task": TASK | {"score": {"by": "eaxct"}}},
            ["task.score = {'by': 'eaxct'}: expected", "f1, contains"],
        ),
        (
            {"task": TASK | {"score": {"by": "number", "rel": 1}}},
            ["number.rel: no such key; allowed here: by, abs"],
        ),
        ({"task": TASK | {"answer": "tags"}}, ["task.answer = 'tags': expected the key 'from' with one of: tags"]),
    ],
)
def test_bad_overrides_are_explained(overrides: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_layers(nest(overrides))
    for part in said:
        assert part in str(raised.value)


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd"])
def test_a_time_zone_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"regate\.timezone.*no time zone is called"):
        TrainConfig.from_layers({"regate": {"timezone": name}})


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"train\.batch_size = 0: .*; data\.lim: no such key"):
        TrainConfig.from_layers({"train": {"batch_size": 0}, "data": {"lim": 1}})


@pytest.mark.parametrize("path", PATHS)
def test_every_group_refuses_unknown_keys(path: str) -> None:
    with pytest.raises(ConfigError, match=f"{path}_: no such key; allowed here: .*{path.partition('.')[2]}"):
        TrainConfig.from_layers(nest({f"{path}_": 1}))


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"thinking_budget": 512, "thinking": "off"}, "thinking_budget limits what thinking = off forbids"),
        ({"thinking_budget": 512, "max_tokens": 512}, "thinking_budget is a part of max_tokens = 512"),
        ({"optimizer_thinking_budget": 9, "optimizer_thinking": "off"}, "what optimizer_thinking = off forbids"),
        ({"optimizer_thinking_budget": 9, "optimizer_max_tokens": 9}, "a part of optimizer_max_tokens = 9"),
    ],
)
def test_a_limit_to_thinking_leaves_room_for_the_answer(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainConfig.from_layers({"model": knobs})


@pytest.mark.parametrize("data", [{"split_mode": "manifest"}, {"split_manifest": "m.json"}])
def test_a_manifest_and_its_mode_need_each_other(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="split_mode manifest and split_manifest need each other"):
        TrainConfig.from_layers({"data": data})


def test_a_search_goes_by_tools() -> None:
    with pytest.raises(ConfigError, match=r"search\.conn_id = skillopt_search: .* set model\.harness to tools"):
        TrainConfig.from_layers({"search": {"conn_id": "skillopt_search"}})
    TrainConfig.from_layers({"search": {"conn_id": "skillopt_search"}, "model": {"harness": "tools", "max_turns": 8}})
