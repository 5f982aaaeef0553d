"""A small repository with a bug, its tests, and changes of it, as an item with an image of its own."""

import hashlib
import io
import tarfile

from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import Item, ItemImage, JsonObject

REQUIREMENTS = b"pytest==8.3.5\npluggy==1.5.0\niniconfig==2.0.0\npackaging==24.2\n"
FILES = {
    "ledger/__init__.py": "from ledger.sums import total\n",
    "ledger/sums.py": "def total(amounts):\n    return sum(amounts[1:])\n",
    "tests/test_sums.py": "from ledger import total\n\n\ndef test_none():\n    assert total([]) == 0\n",
    "setup.cfg": "[tool:pytest]\ntestpaths = tests\n",
    "NOTES": "Sums of a ledger.\n",
}
TEST_PATCH = """diff --git a/tests/test_sums.py b/tests/test_sums.py
--- a/tests/test_sums.py
+++ b/tests/test_sums.py
@@ -4,2 +4,6 @@
 def test_none():
     assert total([]) == 0
+
+
+def test_all_the_amounts():
+    assert total([1, 2, 4]) == 7
"""
GOLD = """diff --git a/ledger/sums.py b/ledger/sums.py
--- a/ledger/sums.py
+++ b/ledger/sums.py
@@ -1,2 +1,2 @@
 def total(amounts):
-    return sum(amounts[1:])
+    return sum(amounts)
"""
RECORD: JsonObject = {
    "instance_id": "ledger__ledger-1",
    "repo": "ledger/ledger",
    "base_commit": "0" * 40,
    "patch": GOLD,
    "test_patch": TEST_PATCH,
    "problem_statement": "total() leaves out the first amount.",
    "hints_text": "sum(amounts) is enough",
    "created_at": "2026-01-01",
    "version": "1",
    "FAIL_TO_PASS": ["tests/test_sums.py::test_all_the_amounts"],
    "PASS_TO_PASS": '["tests/test_sums.py::test_none"]',
    "environment_setup_commit": "",
    "instance": "ledger__ledger-1",
    "run": {"runner": "pytest", "files": ["tests/test_sums.py"]},
}


def tree() -> bytes:
    """The archive of the files; equal at every call."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), 946_684_800
            tar.addfile(member, io.BytesIO(text.encode()))
    return body.getvalue()


CONTENTS = {"repo.tar.gz": tree(), "requirements.txt": REQUIREMENTS}


def with_hashes(item: Item, contents: dict[str, bytes]) -> Item:
    """The item as prepare stores it: its image's files have the hashes of what they hold."""
    assert item.image is not None
    held = {
        field: file.model_copy(update={"sha256": hashlib.sha256(contents[file.name]).hexdigest()})
        for field in ("tree", "requirements")
        if (file := getattr(item.image, field)) is not None
    }
    return item.model_copy(update={"image": ItemImage(**item.image.model_dump(exclude=set(held)), **held)})


def small_item() -> Item:
    """The item; its tree's archive has a hash that stays, so that its image is built once."""
    stable = {"repo.tar.gz": "".join(FILES.values()).encode(), "requirements.txt": REQUIREMENTS}
    return with_hashes(benchmarks.load("swebench").item(RECORD), stable)


def added(path: str, text: str) -> str:
    """A change that adds a file."""
    lines = text.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n{body}"


def sums(text: str) -> str:
    """A change that puts other code in the place of the module with the bug."""
    old = FILES["ledger/sums.py"].splitlines()
    new = text.splitlines()
    body = "".join(f"-{line}\n" for line in old) + "".join(f"+{line}\n" for line in new)
    head = "diff --git a/ledger/sums.py b/ledger/sums.py\n--- a/ledger/sums.py\n+++ b/ledger/sums.py\n"
    return f"{head}@@ -1,2 +1,{len(new)} @@\n{body}"
