"""SearchQA (Dunn et al. 2017, arXiv:1704.05179): a clue, search snippets, a short answer."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import text_at, texts_at
from skillopt_airflow.tasks.scoring.extraction import InTags
from skillopt_airflow.tasks.scoring.text_match import TokenF1

MAX_CONTEXT_CHARS = 6000
DOCUMENT_MARK = "[DOC]"
MAX_FOUND = 5
MAX_FOUND_CHARS = 3000

_PROMPT = """<documents>
{context}
</documents>

Question: {question}

Think it through first. End with the answer only, inside <answer></answer> tags."""

_TASK = """Question: {question}

The tool search_documents finds documents that hold the answer.

Think it through first. End with the answer only, inside <answer></answer> tags."""


class SearchQA:
    """Items with keys id, question, context (documents behind `[DOC]` marks) and answers."""

    runs_code = False
    text_columns = ("question", "context")
    list_columns = ("answers",)

    def identity(self, record: JsonObject) -> str:
        """Return the record's `id`."""
        return text_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return one record as an item; the answers are its reference."""
        public: JsonObject = {key: text_at(record, key) for key in ("question", "context")}
        reference: JsonObject = {"answers": [*texts_at(record, "answers")]}
        return Item(id=self.identity(record), public=public, reference=reference)

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the skill as system message, then the documents and the question."""
        context = cut_at_documents(str(public["context"]), MAX_CONTEXT_CHARS)
        prompt = _PROMPT.format(context=context, question=public["question"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def task(self, public: JsonObject) -> str:
        """Return the question alone; the documents are found by the tool."""
        return _TASK.format(question=public["question"])

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return a search over all of the item's documents, also those that are too many for one message."""
        documents = split_documents(str(public["context"]))

        async def search_documents(query: str) -> str:
            """Find the documents that share the most telling words with a query, best first.

            Args:
                query: words that the documents should contain.
            """
            found = best_documents(documents, query)
            return "\n".join(found)[:MAX_FOUND_CHARS] if found else "No document has a word of this query."

        return (search_documents,)

    def answer(self, response: str) -> str:
        """Return the content of the last pair of <answer> tags; without tags, the last line that is not empty."""
        return InTags().extract(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return exact match as hard, token F1 as soft, each the best over the references (SQuAD v1.1 rules)."""
        return TokenF1().score(trajectory.answer, item.reference["answers"], item.public)


def cut_at_documents(context: str, limit: int) -> str:
    """Return as many whole leading documents as fit into `limit` characters; a longer first one is cut hard."""
    if len(context) <= limit:
        return context
    first = len(context) - len(context.lstrip())
    end = context.rfind(DOCUMENT_MARK, first + 1, limit + len(DOCUMENT_MARK))
    return context[: end if end > 0 else limit].rstrip()


def split_documents(context: str) -> Sequence[str]:
    """Return the documents of a context, each with its mark."""
    parts = re.split(f"(?={re.escape(DOCUMENT_MARK)})", context)
    return [part.strip() for part in parts if part.strip()]


def best_documents(documents: Sequence[str], query: str) -> Sequence[str]:
    """Return those that share words with the query, best first; a word counts the more, the fewer documents have it."""
    asked = _words(query)
    shared = [asked & _words(document) for document in documents]
    documents_with = Counter(word for words in shared for word in words)
    # The order of a set differs from process to process, and with it the last digit of a sum.
    weights = [sum(1 / documents_with[word] for word in sorted(words)) for words in shared]
    best = sorted(range(len(documents)), key=lambda index: (-weights[index], index))
    return [documents[index] for index in best if weights[index] > 0][:MAX_FOUND]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


BENCHMARK = SearchQA()
