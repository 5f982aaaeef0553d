import json
import re
import shutil
from pathlib import Path

import pytest

from local import npm
from local.home import PROJECT
from skillopt_airflow.core.errors import ImageMissing

INSTALLS = "mkdir -p node_modules/x86_64/vendor/x/bin && printf made > node_modules/x86_64/vendor/x/bin/tool"
FAILS = "echo EINTEGRITY >&2; exit 1"


@pytest.fixture
def cli(tmp_path: Path) -> npm.CLI:
    lock = tmp_path / "docker" / "tool" / "package-lock.json"
    lock.parent.mkdir(parents=True)
    for file in (lock, lock.with_name("package.json")):
        file.write_text("{}")
    return npm.CLI(lock, "vendor/*", ("bin/tool",))


def npm_that(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_package_is_fetched_once_and_its_wanted_files_are_staged(
    cli: npm.CLI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_that(INSTALLS, tmp_path, monkeypatch)
    npm.stage(cli, "x86_64", tmp_path / "cache", tmp_path / "target")
    npm_that(FAILS, tmp_path, monkeypatch)
    npm.stage(cli, "x86_64", tmp_path / "cache", tmp_path / "again")
    assert (tmp_path / "target/bin/tool").read_text() == (tmp_path / "again/bin/tool").read_text() == "made"
    cli.lock.write_text('{"another": "version"}')
    with pytest.raises(ImageMissing, match="EINTEGRITY"):
        npm.stage(cli, "x86_64", tmp_path / "cache", tmp_path / "newer")


def test_what_is_missing_is_named(cli: npm.CLI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_that(INSTALLS, tmp_path, monkeypatch)
    with pytest.raises(ImageMissing, match="riscv64"):
        npm.stage(cli, "riscv64", tmp_path / "cache", tmp_path / "target")
    with pytest.raises(ImageMissing, match="bin/other"):
        npm.stage(npm.CLI(cli.lock, "vendor/*", ("bin/other",)), "x86_64", tmp_path / "cache", tmp_path / "target")


def test_npm_comes_from_pypi_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert npm._npm()[1:] == ["tool", "run", "--quiet", "--from", npm.NODE, "npm"]


@pytest.mark.parametrize("cli", [npm.CODEX, npm.CLAUDE_CODE])
def test_both_clis_are_pinned_by_hash_for_both_architectures(cli: npm.CLI) -> None:
    packages = json.loads((PROJECT / cli.lock).read_text())["packages"]
    assert {name for name in packages if name} == {f"node_modules/{architecture}" for architecture in npm.CPUS}
    assert all(re.match("sha512-.{86}==$", package["integrity"]) for name, package in packages.items() if name)
    assert not any("resolved" in package for package in packages.values())
