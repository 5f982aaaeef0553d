"""Everything that an installation fetches is pinned: packages by hash, images by digest, uv by the lock."""

import re
from pathlib import Path

import pytest
import yaml

from local import compiled, image
from local.home import PROJECT

FOLDERS = (".", "bench", "docker", "examples")
LOCKS = sorted(path for folder in FOLDERS for path in (PROJECT / folder).glob("*requirements*.txt"))
BY_DIGEST = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.?\d*[a-z0-9.-]*@sha256:[0-9a-f]{64}")
"""An image by an exact version, for people, and by its digest, for engines."""
DOCKERFILES = sorted(path for folder in ("docker", "examples") for path in (PROJECT / folder).glob("*Dockerfile"))
OWN = {recipe.image for recipe in image.RECIPES.values()}


def requirements(lock: Path) -> list[str]:
    return lock.read_text(encoding="utf-8").replace("\\\n", "").splitlines()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.relative_to(PROJECT)))
def test_each_locked_package_has_one_version_and_hashes_and_no_index(lock: Path) -> None:
    assert requirements(lock)
    for line in requirements(lock):
        pinned = r"[a-z0-9-]+==[^\s;]+( ; [^#]*?)?( +--hash=sha256:[0-9a-f]{64})+"
        assert re.fullmatch(pinned, line), line[:100]


def test_each_list_of_packages_has_a_lock_that_make_writes_and_the_audit_reads() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    written = set(re.findall(r"\$\(COMPILE\) .*-o (\S+)", makefile))
    assert written == {str(lock.relative_to(PROJECT)) for lock in LOCKS}
    lists = [path for folder in FOLDERS for path in (PROJECT / folder).glob("*.in")]
    assert {str(path.relative_to(PROJECT).with_suffix(".txt")) for path in lists} == written - {
        "requirements.txt",
        "requirements-local.txt",
    }
    assert "--generate-hashes" in makefile
    assert "--no-emit-index-url" in makefile


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.relative_to(PROJECT)))
def test_a_package_has_the_same_version_in_all_locks(lock: Path) -> None:
    known = {line.split(" ")[0] for line in requirements(PROJECT / "requirements-local.txt")}
    names = {pin.partition("==")[0] for pin in known}
    own = {line.split(" ")[0] for line in requirements(lock)}
    # The games' packages are those of another image, with a numpy and a tqdm of its own choice.
    if lock.name not in ("alfworld-requirements.txt", "compiled-requirements.txt"):
        assert {pin for pin in own - known if pin.partition("==")[0] in names} == set()


def test_the_bootstrap_installs_the_uv_of_the_lock_and_checks_all_hashes() -> None:
    script = (PROJECT / "local" / "bootstrap.sh").read_text(encoding="utf-8").replace("\\\n", "")
    installs = [line for line in script.splitlines() if " pip install " in line]
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes" in line or "--no-deps --no-build-isolation --editable ." in line
    locked = [line.partition("==")[0] for line in requirements(PROJECT / "requirements-local.txt")]
    assert {"uv", "hatchling"} <= set(locked)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_each_image_starts_from_a_digest_or_from_one_of_ours_and_installs_by_hash(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    [base] = [line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE=")]
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE}"]
    assert base in OWN or BY_DIGEST.fullmatch(base)
    if path.parent.name == "docker" and base not in OWN:
        assert base == image.BASE
    for line in lines:
        if re.search(r"pip3? install|uv pip", line):
            assert "--require-hashes" in line


@pytest.mark.parametrize("path", ["docker/compose.yaml", "examples/compose.yaml"])
def test_compose_names_images_by_digest_unless_they_are_ours_or_the_readers(path: str) -> None:
    services = yaml.safe_load((PROJECT / path).read_text(encoding="utf-8"))["services"]
    for service in services.values():
        name = re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", service.get("image", ""))
        assert not name or name in OWN or name.startswith("registry.example/") or BY_DIGEST.fullmatch(name), name


def test_what_is_compiled_for_an_image_and_its_compilers_are_locked() -> None:
    locked = {line.split(" ")[0] for line in requirements(PROJECT / compiled.LOCK)}
    wanted = {recipe.compiled for recipe in image.RECIPES.values() if recipe.compiled}
    assert wanted | {compiled.COMPILERS} <= locked
    assert {"cmake", "setuptools"} <= {pin.partition("==")[0] for pin in locked}
