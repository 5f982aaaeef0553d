"""Parse a unified diff of a repository, and exclude files that don't count as an answer.

Files that can make tests pass don't count: test files, conftest.py, the runner's configuration, and files that Python
or pytest loads automatically. Binary files, links, and paths outside the tree don't count either.
"""

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

from skillopt_airflow.core.values.types import Value

_GIT_HEADER = re.compile(r'diff --git (?P<old>"(?:[^"\\]|\\.)*"|a/.+?) (?P<new>"(?:[^"\\]|\\.)*"|b/.+?)$')
_HUNK = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@")
_CONFIGURATION = {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
_LOADED_BY_ITSELF = {"sitecustomize", "usercustomize"}
_RUNNERS = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments", "py"}
_IN_HUNK = (" ", "+", "-", "\\", "\n", "\r\n")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"((?:\\[0-7]{3})+)|\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LINKS = ("120000", "160000")
_COMPILED = (".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib")


class Exclusion(StrEnum):
    """Reason why a file of a diff doesn't count."""

    TEST = "test file"
    CONFIGURATION = "configuration of the test runner"
    LOADED = "loaded by Python or the test runner by itself"
    BINARY = "binary"
    LINK = "link"
    OUTSIDE = "path outside of the tree"

    @property
    def of_tests(self) -> bool:
        """True if the file affects how tests run."""
        return self in (Exclusion.TEST, Exclusion.CONFIGURATION, Exclusion.LOADED)


class FilePatch(Value):
    """One file of a diff."""

    path: str
    """New path; the old one of a deleted file."""
    was: str
    """Old path; differs for renames and copies."""
    text: str
    """Part of the diff with headers."""
    new: bool = False
    deleted: bool = False
    binary: bool = False
    link: bool = False


class CandidatePatch(Value):
    """The part of a diff that counts as an answer."""

    text: str
    """Diff of the files that count; empty if none does."""
    files: tuple[str, ...]
    left_out: dict[str, Exclusion]
    """Other paths with reasons."""


def file_patches(diff: str) -> tuple[FilePatch, ...]:
    """Return the files of a diff by git or `diff -u`, in order."""
    return tuple(_file(lines) for lines in _sections(diff))


def touched_paths(diff: str) -> tuple[str, ...]:
    """Return all paths in a diff's headers, including old paths of moved files."""
    return tuple(dict.fromkeys(path for file in file_patches(diff) for path in (file.path, file.was)))


def candidate_patch(diff: str, tests: Collection[str] = (), import_roots: Sequence[str] = (".",)) -> CandidatePatch:
    """Return the part of a diff that counts.

    `tests` are additional paths of test files. `import_roots` are folders on Python's path, relative to the tree.
    """
    kept: list[FilePatch] = []
    left_out: dict[str, Exclusion] = {}
    for file in file_patches(diff):
        reason = next(
            (why for path in (file.path, file.was) if (why := _reason(file, path, tests, import_roots))), None
        )
        if reason is None:
            kept.append(file)
        else:
            left_out[file.path] = reason
    text = "".join(file.text for file in kept)
    return CandidatePatch(text=text, files=tuple(file.path for file in kept), left_out=left_out)


def is_test_file(path: str) -> bool:
    """Return whether a file's or folder's name is that of tests."""
    *folders, name = path.lower().split("/")
    stem = name.rpartition(".")[0] or name
    named = stem.startswith("test_") or stem.endswith("_test") or stem in ("test", "tests", "conftest")
    return named or any(folder in ("test", "tests") for folder in folders)


def _reason(file: FilePatch, path: str, tests: Collection[str], import_roots: Sequence[str]) -> Exclusion | None:
    parts = path.split("/")
    if any(part in ("", "..", ".git") for part in parts):
        return Exclusion.OUTSIDE
    if file.link:
        return Exclusion.LINK
    if file.binary or path.endswith(_COMPILED) or "__pycache__" in parts:
        return Exclusion.BINARY
    if path in tests or is_test_file(path):
        return Exclusion.TEST
    if parts[-1] in _CONFIGURATION:
        return Exclusion.CONFIGURATION
    return Exclusion.LOADED if _loaded(file, path, import_roots) else None


def _loaded(file: FilePatch, path: str, import_roots: Sequence[str]) -> bool:
    parts = path.split("/")
    if path.endswith(".pth") or any(part.partition(".")[0] in _LOADED_BY_ITSELF for part in parts):
        return True
    if any(part.endswith((".egg-info", ".dist-info")) for part in parts):
        return True
    moved = file.new or file.path != file.was
    return moved and any(_shadows(path, root) for root in import_roots)


def _shadows(path: str, root: str) -> bool:
    """Return whether a file would replace a module of Python or the test runner."""
    folder = "" if root.strip("./") == "" else root.strip("/").removeprefix("./") + "/"
    if not path.startswith(folder):
        return False
    module = path.removeprefix(folder).split("/")[0].partition(".")[0]
    # The tests may run on another Python version; runners need no modules that differ between versions.
    return module in _RUNNERS or module in sys.stdlib_module_names


def _sections(diff: str) -> Iterator[list[str]]:
    """Yield each file's lines. Lines inside a hunk are never headers."""
    section: list[str] = []
    old = new = 0
    # Not splitlines, which also splits at form feeds.
    lines = re.findall(r"[^\n]*\n|[^\n]+", diff)
    for place, line in enumerate(lines):
        if (old > 0 or new > 0) and line.startswith(_IN_HUNK):
            old -= line.startswith(("-", " ", "\n", "\r\n"))
            new -= line.startswith(("+", " ", "\n", "\r\n"))
            section.append(line)
            continue
        # A hunk with too few lines ends here, as in git's recount.
        old = new = 0
        if line.startswith("diff --git ") or (_plain_header(lines, place) and not _git_open(section)):
            if section:
                yield section
            section = []
        elif section and (hunk := _HUNK.match(line)):
            old, new = (int(count) if count is not None else 1 for count in hunk.group("old", "new"))
        if section or line.startswith(("diff --git ", "--- ")):
            section.append(line)
    if section:
        yield section


def _plain_header(lines: list[str], place: int) -> bool:
    return lines[place].startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ ")


def _git_open(section: list[str]) -> bool:
    """Return whether a section with git's header has no --- line yet."""
    return (
        bool(section) and section[0].startswith("diff --git ") and not any(line.startswith("--- ") for line in section)
    )


def _file(lines: list[str]) -> FilePatch:
    head: list[str] = []
    for line in lines:
        if _HUNK.match(line):
            break
        head.append(line.rstrip("\r\n"))

    def value(prefix: str) -> str | None:
        return next((line.removeprefix(prefix) for line in head if line.startswith(prefix)), None)

    def moved(way: str) -> str | None:
        name = value(f"rename {way} ") or value(f"copy {way} ")
        return None if name is None else _unquoted(name)

    git = _GIT_HEADER.match(head[0])
    before, after = (_path(value(mark)) for mark in ("--- ", "+++ "))
    was = moved("from") or before or (_path(git["old"]) if git else after)
    path = moved("to") or after or (_path(git["new"]) if git else before)
    modes = [value(f"{kind} file mode ") or "" for kind in ("new", "deleted")] + [
        value("new mode ") or "",
        *_index(head),
    ]
    return FilePatch(
        path=path or was or "",
        was=was or path or "",
        text="".join(lines),
        new=value("new file mode ") is not None or (before is None and value("--- ") is not None),
        deleted=value("deleted file mode ") is not None or (after is None and value("+++ ") is not None),
        binary=any(line.startswith(("GIT binary patch", "Binary files ")) for line in head),
        link=any(mode in _LINKS for mode in modes),
    )


def _path(name: str | None) -> str | None:
    """Return the path of a --- or +++ line; None for /dev/null, or without the line."""
    if name is None:
        return None
    name = _unquoted(name.partition("\t")[0].strip())
    return None if name == "/dev/null" else name[2:] if name[:2] in ("a/", "b/") else name


def _unquoted(name: str) -> str:
    """Remove git's quotes and escapes from a name."""
    quoted = _QUOTED.match(name)
    if quoted is None:
        return name

    def unescape(escape: re.Match[str]) -> str:
        if escape[1] is None:
            return _ESCAPES.get(escape[2], escape[2])
        return bytes(int(code, 8) & 255 for code in escape[1].split("\\")[1:]).decode(errors="surrogateescape")

    return _ESCAPED.sub(unescape, quoted[1])


def _index(head: list[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in head if line.startswith("index ")]
