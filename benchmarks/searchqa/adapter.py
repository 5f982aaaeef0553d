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
    """Records with id, question, context (documents that start with `[DOC]`), and answers."""

    runs_code = False
    text_columns = ("question", "context")
    list_columns = ("answers",)

    def identity(self, record: JsonObject) -> str:
        return text_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        public: JsonObject = {key: text_at(record, key) for key in ("question", "context")}
        reference: JsonObject = {"answers": [*texts_at(record, "answers")]}
        return Item(id=self.identity(record), public=public, reference=reference)

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        context = cut_at_documents(str(public["context"]), MAX_CONTEXT_CHARS)
        prompt = _PROMPT.format(context=context, question=public["question"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def task(self, public: JsonObject) -> str:
        """Return the question without documents, which the tool finds."""
        return _TASK.format(question=public["question"])

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return a search over all documents of the item, including those that exceed MAX_CONTEXT_CHARS."""
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
        return InTags().extract(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return exact match as hard and token F1 as soft, the best over all references (SQuAD v1.1 rules)."""
        return TokenF1().score(trajectory.answer, item.reference["answers"], item.public)


def cut_at_documents(context: str, limit: int) -> str:
    """Return the leading documents that fit into `limit` characters; truncate a longer first one."""
    if len(context) <= limit:
        return context
    first = len(context) - len(context.lstrip())
    end = context.rfind(DOCUMENT_MARK, first + 1, limit + len(DOCUMENT_MARK))
    return context[: end if end > 0 else limit].rstrip()


def split_documents(context: str) -> Sequence[str]:
    parts = re.split(f"(?={re.escape(DOCUMENT_MARK)})", context)
    return [part.strip() for part in parts if part.strip()]


def best_documents(documents: Sequence[str], query: str) -> Sequence[str]:
    """Return the documents that share words with the query, best first; rare words count more."""
    wanted = _words(query)
    shared = [wanted & _words(document) for document in documents]
    documents_with = Counter(word for words in shared for word in words)
    # Sorted, because set order varies per process and changes the last digit of a sum.
    weights = [sum(1 / documents_with[word] for word in sorted(words)) for words in shared]
    best = sorted(range(len(documents)), key=lambda index: (-weights[index], index))
    return [documents[index] for index in best if weights[index] > 0][:MAX_FOUND]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


BENCHMARK = SearchQA()
