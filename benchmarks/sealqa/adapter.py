"""SealQA (Pham et al. 2025, arXiv:2506.01062): questions with conflicting, old, or misleading search results."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject, Message, sha256
from skillopt_airflow.tasks.corpus import FoundDocument, listed_documents
from skillopt_airflow.tasks.declared_task import JudgedTask
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import field_error, text_at
from skillopt_airflow.tasks.scoring.scoring_rule import parse_list
from skillopt_airflow.tasks.scoring.text_match import Exact, same_words
from skillopt_airflow.tasks.task_group import TaskGroup

DOCUMENTS = ("12_docs", "20_docs", "30_docs", "search_results")
"""Columns of documents; the first non-empty one is used."""
TEXTS = ("text", "content", "snippet", "description")
"""Alternative keys of a document's text."""
ABOUT = {
    "freshness": "How fast the answer changes",
    "question_types": "Kind of question",
    "effective_year": "The answer is that of",
    "search_results": "Search results",
}
SNIPPET_CHARS = 300
ID_CHARS = 16
_PROMPT = """Question: {{ question }}{{ about }}

What a search finds on this question may be old, wrong, or about something else.

Think it through first. End with the answer only, inside <answer></answer> tags; if no one can know it, say so there."""
_AGREEMENT = """The answer is correct if it has all that matters of the reference and nothing that contradicts it.
Order, case, punctuation and more words do not matter, nor do doubts, as long as one answer is given. A number agrees to
the last digit of the reference. A list that lacks an entry or has a wrong one is incorrect, and so are several answers
of which one is right. It is not attempted if it neither gives the reference nor contradicts it: "it is not known"."""
_TASK = TaskGroup(prompt=_PROMPT, reference="answer", score=Exact())


class SealQA(JudgedTask):
    """Published records of seal_0, seal_hard, and longseal."""

    text_columns = ("question", "answer")
    searches = True

    def identity(self, record: JsonObject) -> str:
        """Return a hash of the question, because records have no ids and row numbers change between releases."""
        return sha256(" ".join(text_at(record, "question").split()))[:ID_CHARS]

    def item(self, record: JsonObject) -> Item:
        """Return an item without the URLs of the evidence, which would reveal the answer.

        Raises:
            DataError: a key is missing or invalid.
        """
        documents = _documents(record)
        about = "".join(f"\n{name}: {text}" for key, name in ABOUT.items() if (text := _about(record, key)))
        question = text_at(record, "question").strip()
        item = self.question_item(
            {**record, "about": about, "question": question}, f"{question}{about}", {}, frozenset()
        )
        shown: Any = [one.model_dump() for one in documents]
        return item.model_copy(update={"id": self.identity(record), "public": item.public | {"documents": shown}})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        documents = _shown(public)
        before = f"<documents>\n{listed_documents(documents)}\n</documents>\n\n" if documents else ""
        return (Message(role="system", content=skill), Message(role="user", content=before + self.task(public)))

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return tools that search (the web or the item's documents) and open pages."""
        documents = _shown(public)

        async def search(query: str) -> str:
            """Search the web: title, address, date and the beginning of each page that is found, best first.

            Args:
                query: words that the pages should contain.
            """
            found = await workspace.search(query, documents)
            return listed_documents(found, SNIPPET_CHARS) if found else "Nothing was found."

        async def open_page(address: str) -> str:
            """Read a page that a search found.

            Args:
                address: the page's address, as the search gives it.
            """
            return await workspace.open_page(address, documents)

        return (search, open_page)

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        """Return True if words and numbers equal the reference's, else None for the judge."""
        return True if same_words(answer, str(reference["reference"])) else None


def _documents(record: JsonObject) -> list[FoundDocument]:
    for column in DOCUMENTS:
        value = _parsed(record, column)
        if isinstance(value, list) and value:
            return [_document(column, entry) for entry in value]
    return []


def _document(column: str, entry: Any) -> FoundDocument:
    if isinstance(entry, str):
        return FoundDocument(text=entry)
    if not isinstance(entry, dict):
        raise field_error((column,), "a list of documents with title, url, date and text", entry)
    fields = {key: _text(entry.get(key)) for key in ("title", "url", "date")}
    return FoundDocument(**fields, text=next((text for key in TEXTS if (text := _text(entry.get(key)))), ""))


def _about(record: JsonObject, key: str) -> str:
    """Return short metadata of a question; search results count only if they aren't documents."""
    value = _parsed(record, key)
    if not isinstance(value, list):
        return _text(value)
    return ", ".join(_text(entry) for entry in value) if key not in DOCUMENTS else ""


def _parsed(record: JsonObject, key: str) -> Any:
    """Return a value, with a list in a string parsed."""
    try:
        return parse_list(record.get(key))
    except DataError as error:
        raise DataError(f"{key}: {error}") from error


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _shown(public: JsonObject) -> list[FoundDocument]:
    documents = public["documents"]
    return [FoundDocument.model_validate(one) for one in documents] if isinstance(documents, list) else []


BENCHMARK = SealQA(_TASK, _AGREEMENT)
