import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from local import npm
from skillopt_airflow.core.errors import ImageMissing

RELEASE = npm.Release("@example/tool@1.0.0", "", "package/bin")


def packed(folder: Path, cli: npm.CLI) -> npm.CLI:
    """A cache that holds the release already, and the CLI with the integrity of that package."""
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o700)
    kept = folder / "example-tool-1.0.0.tgz"
    with tarfile.open(kept, "w:gz") as package:
        package.add(folder / "tool", "package/bin/tool")
    releases = {name: replace(release, integrity=npm._integrity(kept)) for name, release in cli.releases.items()}
    return replace(cli, releases=releases)


def test_the_wanted_files_come_out_of_a_package_that_was_kept(tmp_path: Path):
    cli = packed(tmp_path, npm.CLI({"x86_64": RELEASE}, ("tool",)))
    npm.stage(cli, "x86_64", tmp_path, tmp_path / "target")

    assert (tmp_path / "target" / "tool").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "target" / "tool").stat().st_mode & 0o777 == 0o755


def test_what_is_missing_is_named(tmp_path: Path):
    cli = packed(tmp_path, npm.CLI({"x86_64": RELEASE}, ("other",)))
    with pytest.raises(ImageMissing, match="package/bin/other"):
        npm.stage(cli, "x86_64", tmp_path, tmp_path / "target")
    with pytest.raises(ImageMissing, match="riscv64"):
        npm.stage(cli, "riscv64", tmp_path, tmp_path / "target")


@pytest.mark.parametrize(
    ("answer", "words"), [("exit 1", "could not fetch"), ('touch "$4/x.tgz"', "something else than the pinned")]
)
def test_a_package_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, words: str
):
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    # What is kept is checked like what is fetched.
    (tmp_path / "example-tool-1.0.0.tgz").write_bytes(b"damaged")

    with pytest.raises(ImageMissing, match=words):
        npm.stage(npm.CLI({"x86_64": RELEASE}, ("tool",)), "x86_64", tmp_path, tmp_path / "target")


def test_npm_comes_from_pypi_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert npm._npm()[1:] == ["tool", "run", "--quiet", "--from", npm.NODE, "npm"]


def test_both_clis_are_pinned_for_both_architectures():
    for cli in (npm.CODEX, npm.CLAUDE_CODE):
        assert set(cli.releases) == {"x86_64", "aarch64"}
        assert all(release.spec.count("@") == 2 and release.integrity for release in cli.releases.values())
