import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.searchqa.adapter import (
    DOCUMENT_MARK,
    MAX_FOUND,
    MAX_FOUND_CHARS,
    SearchQA,
    cut_at_documents,
    split_documents,
)
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.tasks.protocols import Workspace

ADAPTER = SearchQA()
PUBLIC = {"question": "Which?", "context": "[DOC] a [DOC] b"}
RECORD: dict[str, Any] = {"id": "1", **PUBLIC, "answers": ["The Nile", "Nile"]}


def test_a_long_context_is_cut_at_a_documents_border() -> None:
    context = "[DOC] aaa [DOC] bbb [DOC] ccc"
    for limit, kept in {29: context, 20: "[DOC] aaa [DOC] bbb", 10: "[DOC] aaa", 7: "[DOC] a"}.items():
        assert cut_at_documents(context, limit) == kept
    # Whitespace before the first document does not cost it.
    assert cut_at_documents("\n [DOC] " + "x" * 50, 20).strip() == "[DOC] " + "x" * 12


@given(st.lists(st.text("ab ", min_size=1, max_size=12), min_size=1, max_size=8), st.integers(8, 80))
def test_what_is_kept_is_a_prefix_of_whole_documents(documents: list[str], limit: int) -> None:
    context = "".join(DOCUMENT_MARK + document for document in documents)
    kept = cut_at_documents(context, limit)
    assert len(kept) <= limit
    assert context.startswith(kept)
    whole = ["".join(DOCUMENT_MARK + one for one in documents[:count]) for count in range(1, len(documents) + 1)]
    fitting = [text for text in whole if len(text) <= limit]
    if fitting:
        assert kept.rstrip() == fitting[-1].rstrip()


@pytest.mark.parametrize(
    ("answer", "hard", "soft"), [("nile", 1.0, 1.0), ("the river Nile", 0.0, 2 / 3), ("", 0.0, 0.0)]
)
def test_the_best_reference_counts(answer: str, hard: float, soft: float) -> None:
    item = ADAPTER.item(RECORD)
    assert (item.id, item.public) == ("1", PUBLIC)
    score = ADAPTER.score(item, Trajectory(item_id="1", status=Status.OK, answer=answer))
    assert (score.hard, score.soft) == (hard, pytest.approx(soft))
    assert '"The Nile" or "Nile"' in score.feedback


def test_messages_show_skill_documents_and_question_as_they_are() -> None:
    public = {"question": "Who wrote {this}?", "context": "[DOC] {braces} 100 %"}
    system, user = ADAPTER.messages(public, "# Skill {x}")
    assert (system.role, system.content) == ("system", "# Skill {x}")
    assert user.role == "user"
    assert "<documents>\n[DOC] {braces} 100 %\n</documents>" in user.content
    assert "Question: Who wrote {this}?" in user.content
    # An agent gets a tool instead of the documents.
    task = ADAPTER.task(public)
    assert "Who wrote {this}?" in task
    assert "search_documents" in task
    assert "braces" not in task


DOCUMENTS = (
    "[DOC] [TLE] London [PAR] The Tower. [DOC] [TLE] Paris [PAR] The Eiffel tower. [DOC] [TLE] Rome [PAR] The river."
)


def search(context: str, query: str) -> str:
    (tool,) = ADAPTER.tools({"question": "?", "context": context}, cast("Workspace", None))
    return asyncio.run(cast("Coroutine[None, None, str]", tool(query)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("the eiffel TOWER", ["Paris", "London", "Rome"]),
        ("tower", ["London", "Paris"]),
        ("Rome?", ["Rome"]),
        ("Madrid", []),
        ("?!", []),
    ],
)
def test_documents_are_found_by_their_words_rare_ones_first(query: str, found: list[str]) -> None:
    lines = search(DOCUMENTS, query).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("[DOC]")] == found


def test_what_is_found_is_short_and_documents_begin_at_their_marks() -> None:
    assert len(search("[DOC] tower " + "x " * 5000, "tower")) == MAX_FOUND_CHARS
    assert search("[DOC] tower " * 20, "tower").count("[DOC]") == MAX_FOUND
    assert split_documents(" a [DOC] b\n[DOC]c ") == ["a", "[DOC] b", "[DOC]c"]
    assert split_documents("without a mark") == ["without a mark"]
    assert split_documents(" ") == []
