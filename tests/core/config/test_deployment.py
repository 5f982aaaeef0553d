from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.config.deployment import (
    ADDRESSES,
    CONNECTIONS,
    HOST_LIMITS,
    IMAGES,
    Allowed,
    Deployment,
    address_not_allowed,
    disallowed_knobs,
    images_not_allowed,
)
from skillopt_airflow.core.config.train_config import TrainConfig, fields_by_path, nest

OWN = TrainConfig()
NOBODY = Allowed()


def asked(**knobs: Any) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


def test_what_the_benchmark_names_or_what_names_nothing_is_free_and_leaving_a_name_out_is_not() -> None:
    own = asked(data__uri="s3://team/data", sandbox__image="team/image", storage__bucket="team")
    assert disallowed_knobs(own, own, NOBODY) == []
    assert (
        disallowed_knobs(asked(train__num_epochs=1, sandbox__memory="256m", model__target="other"), OWN, NOBODY) == []
    )
    [sentence] = disallowed_knobs(OWN, asked(sandbox__conn_id="theirs"), NOBODY)
    assert sentence.startswith("sandbox.conn_id = ''")


@pytest.mark.parametrize(
    ("path", "lower", "higher"),
    [
        ("sandbox.memory", "524288k", "524289k"),
        ("sandbox.cpus", 0.5, 1.5),
        ("sandbox.code_timeout", 1, 86_400),
        ("model.concurrency", 32, 1000),
    ],
)
def test_limits_of_the_hosts_can_be_lowered_and_not_raised(path: str, lower: object, higher: object) -> None:
    assert path in HOST_LIMITS
    small, large = (TrainConfig.from_layers(nest({path: value})) for value in (lower, higher))
    assert disallowed_knobs(small, OWN, NOBODY) == []
    for allowed in (NOBODY, Allowed.model_validate("everything")):
        [sentence] = disallowed_knobs(large, OWN, allowed)
        assert sentence.startswith(f"{path} = {higher}: ")
    assert disallowed_knobs(large, large, NOBODY) == []


@pytest.mark.parametrize("path", [*CONNECTIONS, *IMAGES])
def test_a_foreign_name_is_refused_until_it_is_listed(path: str) -> None:
    kind = {"connections": CONNECTIONS, "images": IMAGES}
    [listed] = [name for name, paths in kind.items() if path in paths]
    tools = {"model.harness": "tools", "model.max_turns": 9} if path == "search.conn_id" else {}
    theirs = TrainConfig.from_layers(nest({path: "theirs"} | tools))
    [sentence] = disallowed_knobs(theirs, OWN, NOBODY)
    assert sentence.startswith(f"{path} = 'theirs': ")
    assert sentence.endswith(f"allowed.{listed} has nothing")
    assert disallowed_knobs(theirs, OWN, Allowed.model_validate({listed: ["the*"]})) == []


@pytest.mark.parametrize("key", ["bucket", "artifact_bucket"])
def test_a_foreign_bucket(key: str) -> None:
    theirs = TrainConfig.from_layers({"storage": {key: "theirs"}})
    [sentence] = disallowed_knobs(theirs, OWN, NOBODY)
    assert sentence.startswith(f"storage.{key} and storage.prefix = 's3://theirs/'")
    assert disallowed_knobs(theirs, OWN, Allowed(storage=("s3://theirs/*",))) == []
    # A prefix belongs to its bucket.
    theirs = asked(storage__prefix="a/b/")
    assert len(disallowed_knobs(theirs, OWN, Allowed(storage=("s3://skillopt/c/*",)))) == 2
    assert disallowed_knobs(theirs, OWN, Allowed(storage=("s3://skillopt/a/*", "s3://skillopt-artifacts/a/*"))) == []


@pytest.mark.parametrize(
    ("address", "free"),
    [
        ("sample", True),
        ("sample/../../../secrets", False),
        ("/etc", False),
        ("file:///etc", False),
        ("s3://theirs/data", False),
        ("s3://ours/data", True),
        ("s3://ours/../theirs", False),
        ("/srv/ours/data.json", True),
        ("/srv/ours/../theirs.json", False),
        ("file:///srv/ours/data.json", True),
        ("file://localhost/etc", False),
        ("file:///srv/ours/%2e%2e/%2e%2e/etc", False),
        ("file://localhost/srv/ours/data.json", True),
        ("gs://theirs/data", False),
    ],
)
def test_addresses_of_data(address: str, free: bool) -> None:
    allowed = Allowed(data=("s3://ours/*", "/srv/ours/*"))
    assert (not disallowed_knobs(asked(data__uri=address), OWN, allowed)) == free


@given(st.lists(st.sampled_from(["..", ".", "a", "ours"]), max_size=8))
def test_no_way_of_writing_a_path_leads_out(parts: list[str]) -> None:
    """A path that passes stays in the benchmark's folder, wherever its steps lead."""
    place: list[str] = []
    outside = False
    for part in parts:
        if part == "..":
            outside = outside or not place
            place = place[:-1]
        elif part != ".":
            place.append(part)
    refused = bool(address_not_allowed("data.uri", "/".join(parts), NOBODY))
    assert refused == outside


def test_a_skill_is_an_address_only_in_s3() -> None:
    for text in ("seed", "champion", "/ is a slash", "../ leads up", "# Answer briefly"):
        assert address_not_allowed("train.init_skill", text, NOBODY) == []
    assert address_not_allowed("skill", "s3://theirs/skill.md", NOBODY)
    assert not address_not_allowed("skill", "s3://ours/skill.md", Allowed(data=("s3://ours/*",)))


def test_an_approval_that_the_benchmark_asks_for() -> None:
    own, without = asked(publishing__approval=True), asked(publishing__approval=False)
    assert "publishing.approval = False" in disallowed_knobs(without, own, NOBODY)[0]
    assert disallowed_knobs(without, own, Allowed(unapproved=True)) == []
    assert disallowed_knobs(own, without, NOBODY) == []
    # A night rolls back without one only where the benchmark says so.
    alone = asked(publishing__approval=True, regate__on_demote="rollback")
    [sentence] = disallowed_knobs(alone, own, NOBODY)
    assert sentence.startswith("regate.on_demote = 'rollback': ")
    assert disallowed_knobs(alone, own, Allowed(unapproved=True)) == []
    assert disallowed_knobs(alone, alone, NOBODY) == []
    assert disallowed_knobs(own, alone, NOBODY) == []
    assert disallowed_knobs(asked(regate__on_demote="rollback"), OWN, NOBODY) == []


def test_every_knob_that_names_something_outside_is_known() -> None:
    """A new one belongs into one of the lists."""
    outside = ("conn_id", "image", "registry", "bucket", "uri", "corpus", "manifest")
    fixed = {"alerts.conn_id"}
    known = {*CONNECTIONS, *IMAGES, *ADDRESSES, "storage.bucket", "storage.artifact_bucket"}
    assert {path for path in fields_by_path() if path.endswith(outside)} - fixed <= known


def test_the_file_is_closed_to_unknown_keys() -> None:
    assert Deployment.model_validate({"allowed": "everything"}).allowed.connections == ("*",)
    with pytest.raises(ValidationError):
        Deployment.model_validate({"allowed": {"conections": ["a"]}})


@pytest.mark.parametrize(
    ("name", "registry", "patterns", "free"),
    [
        ("swebench/sweb.eval:latest", "", (), True),
        ("python:3.12", "", (), True),
        ("ghcr.io/other/image", "", (), False),
        ("host:5000/image", "", (), False),
        ("ghcr.io/other/image", "", ("ghcr.io/other/*",), True),
        ("swebench/sweb.eval:latest", "", ("registry.example.com/*",), False),
        ("swebench/sweb.eval:latest", "registry.example.com", ("registry.example.com/*",), True),
        ("ghcr.io/other/image", "", ("*",), True),
    ],
)
def test_images_that_records_name(name: str, registry: str, patterns: tuple[str, ...], free: bool) -> None:
    refused = images_not_allowed([name], registry, Allowed(images=patterns))
    assert [name in sentence for sentence in refused] == ([] if free else [True])
