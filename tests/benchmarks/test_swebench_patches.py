import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.swebench.patches import Exclusion, candidate_patch, file_patches, is_test_file, touched_paths


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def edited(path: str) -> str:
    return f"diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


def added(path: str, mode: str = "100644") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0..2\n--- /dev/null\n+++ b/{path}\n"
        "@@ -0,0 +1 @@\n+b\n"
    )


LEFT_OUT = [
    (edited("tests/helpers.py"), Exclusion.TEST),
    (edited("pkg/test_x.py"), Exclusion.TEST),
    (edited("conftest.py"), Exclusion.TEST),
    (edited("pytest.ini"), Exclusion.CONFIGURATION),
    (edited("setup.cfg"), Exclusion.CONFIGURATION),
    (edited("pyproject.toml"), Exclusion.CONFIGURATION),
    (added("sitecustomize.py"), Exclusion.LOADED),
    (added("x.pth"), Exclusion.LOADED),
    (added("x.dist-info/entry_points.txt"), Exclusion.LOADED),
    (added("pytest.py"), Exclusion.LOADED),
    (added("unittest/__init__.py"), Exclusion.LOADED),
    (added("src/ast.py"), Exclusion.LOADED),
    (added("link", "120000"), Exclusion.LINK),
    (added("pkg/x.cpython-311.pyc"), Exclusion.BINARY),
    (edited("../x.py"), Exclusion.OUTSIDE),
    (added(".git/hooks/pre-commit"), Exclusion.OUTSIDE),
    ("diff --git a/p.png b/p.png\nindex 1..2\nBinary files a/p.png and b/p.png differ\n", Exclusion.BINARY),
    ("diff --git a/a.py b/conftest.py\nrename from a.py\nrename to conftest.py\n", Exclusion.TEST),
    ("diff --git a/tests/a.py b/b.py\nrename from tests/a.py\nrename to b.py\n", Exclusion.TEST),
    ('--- "a/conf\\164est.py"\n+++ "b/conf\\164est.py"\n@@ -1 +1 @@\n-a\n+b\n', Exclusion.TEST),
    ('diff --git a/a.py "b/conf\\164est.py"\nrename from a.py\nrename to "conf\\164est.py"\n', Exclusion.TEST),
    ('diff --git "a/conf\\164est.py" "b/conf\\164est.py"\nold mode 100644\nnew mode 100755\n', Exclusion.TEST),
]


@pytest.mark.parametrize(("diff", "reason"), LEFT_OUT, ids=[row[0].split("\n")[0] for row in LEFT_OUT])
def test_what_the_judge_brings_does_not_count(diff: str, reason: Exclusion):
    patch = candidate_patch(edited("pkg/a.py") + diff + edited("pkg/z.py"), import_roots=(".", "src"))
    assert patch.files == ("pkg/a.py", "pkg/z.py")
    assert patch.text == edited("pkg/a.py") + edited("pkg/z.py")
    assert list(patch.left_out.values()) == [reason]


@pytest.mark.parametrize(
    "path", ["src/_pytest/x.py", "pytest.py", "pkg/types.py", "pkg/testing.py", "latest.py", "contest/a.py"]
)
def test_files_of_the_repository_count_whatever_their_name_unless_the_judge_brings_them(path: str):
    assert candidate_patch(edited(path), import_roots=(".", "src")).files == (path,)
    assert candidate_patch(edited("checks/a.py"), tests=["checks/a.py"]).left_out == {"checks/a.py": Exclusion.TEST}


def test_a_diff_without_gits_headers_is_read():
    diff = "--- a/f.py\t2026-01-01\n+++ b/f.py\t2026-01-02\n@@ -1,2 +1,2 @@\n-a\n--- b\n+a\n+++ b\n"
    diff += "--- /dev/null\n+++ b/g.py\n@@ -0,0 +1 @@\n+x\n"
    first, second = file_patches(diff)
    assert (first.path, first.new) == ("f.py", False)
    assert (second.path, second.new) == ("g.py", True)


def test_gits_own_diff_is_taken_apart_and_what_remains_applies(tmp_path: Path):
    git(tmp_path, "init", "-q")
    (tmp_path / "tests").mkdir()
    (tmp_path / "a.py").write_text("a\n--- b/a.py\n\x0cform feed\nno end")
    (tmp_path / "gone.py").write_text("x\n" * 9)
    (tmp_path / "tests" / "t.py").write_text("t\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "base")
    (tmp_path / "a.py").write_text("a\n+++ b/a.py\n\x0cform feed\nno end still")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new é.py").write_text("n\n")
    (tmp_path / "tests" / "t.py").write_text("u\n")
    (tmp_path / "p.bin").write_bytes(b"\0\1\2")
    git(tmp_path, "add", "-A")
    diff = git(tmp_path, "-c", "core.quotePath=false", "diff", "--cached")
    patch = candidate_patch(diff)
    assert patch.files == ("a.py", "gone.py", "new é.py")
    assert patch.left_out == {"tests/t.py": Exclusion.TEST, "p.bin": Exclusion.BINARY}
    git(tmp_path, "reset", "-q", "--hard")
    (tmp_path / "patch.diff").write_text(patch.text)
    git(tmp_path, "apply", "patch.diff")
    assert (tmp_path / "a.py").read_text() == "a\n+++ b/a.py\n\x0cform feed\nno end still"
    assert not (tmp_path / "gone.py").exists()
    assert (tmp_path / "tests" / "t.py").read_text() == "t\n"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b/x.py", "b/x.py"),
        ('"a/tab\\there.py"', "tab\there.py"),
        ('"a/quote\\"d\\\\.py"', 'quote"d\\.py'),
        ('"a/\\303\\251.py"', "é.py"),
    ],
)
def test_names_are_read_as_git_writes_them(name: str, path: str):
    (file,) = file_patches(f"--- {name}\n+++ {name}\n@@ -1 +1 @@\n-a\n+b\n")
    assert (file.path, file.was) == (path, path)


def test_a_hunk_that_claims_more_lines_than_it_has_hides_no_file():
    lying = edited("pkg/a.py").replace("@@ -1 +1 @@", "@@ -1,99 +1,99 @@")
    patch = candidate_patch(lying + edited("conftest.py"))
    assert (patch.files, patch.left_out) == (("pkg/a.py",), {"conftest.py": Exclusion.TEST})
    assert patch.text == lying


def test_a_moved_file_is_touched_at_both_its_paths():
    diff = edited("z.py") + "diff --git a/a.py b/b.py\nrename from a.py\nrename to b.py\n"
    assert touched_paths(diff) == ("z.py", "b.py", "a.py")
    assert all(map(is_test_file, ["test/a.txt", "a/tests/b.py", "a_test.py", "tests.py"]))
    assert not any(map(is_test_file, ["testing/a.py", "attest.py", "contests/a.py", "latest_news.py", ""]))


@given(st.lists(st.sampled_from(["a.py", "pkg/b.py", "tests/c.py", "conftest.py", "setup.cfg"]), unique=True))
def test_every_file_counts_or_is_named(paths: list[str]):
    patch = candidate_patch("".join(map(edited, paths)))
    assert {*patch.files} | patch.left_out.keys() == {*paths}
    assert [file.path for file in file_patches(patch.text)] == [*patch.files]


@given(st.text())
def test_any_text_is_a_diff_of_some_files(text: str):
    patch = candidate_patch(text)
    assert candidate_patch(patch.text).text == patch.text
