"""SKILL.md by the Agent Skills specification, in the bucket and from the consumer."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from skills_ref import read_properties, validate

from skillopt_airflow.consumer import main, skill_md
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from tests.consumer.conftest import Command, Publish, run
from tests.store.test_artifacts import provenance

DESCRIPTIONS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>\0"), min_size=1, max_size=1024)
HOSTILE = 'a: "b"\n---\n- c # d\t{e} [f] &g *h !i |j %k @l `m\' \u2028\x85\x7f\ufeff\U0001f600\\u0041 --- \u202e'


def read(document: str, name: str) -> Any:
    """The document's properties, after the reference library found it valid and PyYAML read the same."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / name
        folder.mkdir()
        (folder / "SKILL.md").write_bytes(document.encode())
        assert validate(folder) == []
        found = read_properties(folder)
    assert document.startswith("---\n")
    front = yaml.safe_load(document.split("---\n")[1])
    assert set(front) == {"name", "description", "metadata"}
    assert (front["name"], front["description"].strip()) == (found.name, found.description.strip())
    assert front["metadata"] == found.metadata
    assert 1 <= len(front["description"]) <= 1024
    return front


@given(DESCRIPTIONS.filter(str.strip))
@example(HOSTILE)
@example("---")
@example("null")
@example("x" * 1024)
def test_any_description_is_valid_and_read_as_it_was_written(description: str) -> None:
    front = read(skill_md("# Any\n", "v0001-000000000000", "any-skill", description), "any-skill")
    assert front["description"] == description


@pytest.mark.nightly
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("---\n---\n---\n")
@example("# " + "x" * 5000)
@example("<!-- " * 1000)
@example("```\n" * 1001)
@example("# <b>\n\n<i>\n")
@example("[[[[" * 5000)
@example(HOSTILE)
def test_a_skill_of_any_text_has_a_valid_description(text: str) -> None:
    document = skill_md(text, "v0001-000000000000", "any-skill", None)
    assert not re.search("[<>\0]", read(document, "any-skill")["description"])
    assert document.endswith(f"\n---\n\n{text}")


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("# Capitals\n\nAnswer with the name alone. Then stop.\n", "Capitals. Answer with the name alone."),
        ("# Answers\n\n- Read the **question** first.\n- Then answer.\n", "Answers. Read the question first."),
        ("# Snake_case `x`\n> Quoted. More.", "Snake_case x. Quoted."),
        ("# Title only\n", "Title only."),
        ("- a rule: use `x < y`\n", "a rule: use x y."),
        ("<!-- A -->\n# Tables\n<!-- B -->\nSee e.g. [the page](http://x). Done.", "Tables. See e.g. the page."),
        ("---\nname: old\n---\n# New\n\nDo it! Now.", "New. Do it!"),
        ("# Code\n\n```python\nx = 1\n```\n\nRun it\nin a shell. Look.", "Code. Run it in a shell."),
        ("# 表の読み方\n\n行を探す。列を探す。", "表の読み方. 行を探す。"),
        ("#\n\n##\n", "Instructions of any-skill."),
        ("<!-- only a comment", "Instructions of any-skill."),
        ("# #hashtag\n\n#no heading.", "#hashtag. #no heading."),
    ],
)  # fmt: skip
def test_without_a_description_it_is_the_skills_own_title_and_first_sentence(text: str, description: str) -> None:
    assert read(skill_md(text, "v1", "any-skill", None), "any-skill")["description"] == description


def test_a_benchmarks_skill_has_a_valid_name() -> None:
    names = {"My__Bench-2": "my-bench-2", "_a_": "a", "x" * 63 + "_y": "x" * 63, "null": "null", "日本": "skill"}
    for benchmark, name in names.items():
        assert skill_name(benchmark) == name
        assert read(skill_md("# Any", "1.0", name, None), name)["metadata"] == {"version": "1.0"}


def test_the_published_one_is_valid_and_a_run_with_another_description_completes_it(store: ObjectStore) -> None:
    keys = ArtifactKeys("", "my_bench", "openai-chat:m")
    artifacts = ArtifactStore(store, keys)
    first = artifacts.publish("# Capitals\n", provenance(), None, "", f"For capitals. {HOSTILE}")
    front = read(store.get_text(keys.version(first.version).skill_md), "my-bench")
    assert front["description"] == f"For capitals. {HOSTILE}"
    assert front["metadata"] == {"version": first.version}
    store.delete(keys.version(first.version).manifest)
    store.delete(keys.champion)
    again = ArtifactStore(store, keys).publish("# Capitals\n", provenance(), None, "", "Use it for cities.")
    assert again.version == first.version
    assert "For capitals" in store.get_text(keys.version(first.version).skill_md)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["files", "skill-folder", "claude-code-skill"])
def test_the_fetched_one_is_valid(publish: Publish, command: Command, tmp_path: Path, form: str) -> None:
    version = publish("# Capitals\n\nName the capital of $1.\n").version
    out = tmp_path / "my-skill"
    words = command("--out", str(out), "--as", form)
    assert run(words).returncode == 0
    front = read((out / "SKILL.md").read_text(), "my-skill")
    assert front["description"] == "Capitals. Name the capital of $1."
    assert front["metadata"] == {"version": version}
    assert run([*words, "--description", HOSTILE]).returncode == 0
    assert read((out / "SKILL.md").read_text(), "my-skill")["description"] == HOSTILE


@pytest.mark.parametrize(
    ("name", "description", "option"),
    [
        *((name, "Fine.", "--out") for name in ("Capitals_v2", "a--b", "-a", "a-", "x" * 65, "a b", "é", "ａ")),
        *(("skill", text, "--description") for text in (" \n", "x" * 1025, "a > b", "\udcff")),
    ],
)
def test_what_skill_md_cannot_have_is_refused(
    command: Command, tmp_path: Path, capsys: Any, name: str, description: str, option: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(command("--out", str(tmp_path / name), "--description", description)[2:])
    assert option in capsys.readouterr().err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("description", [" \n", "x" * 1025, "a <b> c", "a\u200b b", "\ud800"])
def test_so_is_a_description_in_the_configuration(description: str) -> None:
    with pytest.raises(ConfigError, match=r"publishing\.description"):
        TrainConfig.from_layers({"publishing": {"description": description}})
    kept = 'a: "b"\n---\n- c # d\t{e} [f] &g'
    assert TrainConfig.from_layers({"publishing": {"description": kept}}).publishing.description == kept
