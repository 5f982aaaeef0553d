"""SearchQA (Dunn et al. 2017, arXiv:1704.05179): a clue, search snippets, a short answer."""

import re
import string
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.protocols import Workspace
from skillopt_airflow.core.types import Item, JsonObject, Message, Score, Trajectory

MAX_CONTEXT_CHARS = 6000
DOCUMENT_MARK = "[DOC]"
MAX_FOUND = 5
MAX_FOUND_CHARS = 3000

_PROMPT = """<documents>
{context}
</documents>

Question: {question}

Reply with the answer alone, inside <answer></answer> tags."""

_TASK = """Question: {question}

The tool search_documents finds documents that hold the answer.

Reply with the answer alone, inside <answer></answer> tags."""


class SearchQA:
    """Items with keys id, question, context (documents behind `[DOC]` marks) and answers."""

    runs_code = False
    text_columns = ("question", "context")
    list_columns = ("answers",)

    def identity(self, record: JsonObject) -> str:
        """The record's `id`.

        Raises:
            DataError: it is missing, empty or no text.
        """
        return _text(record, "id")

    def item(self, record: JsonObject) -> Item:
        """One record as an item.

        Raises:
            DataError: naming the key that is missing, empty or of the wrong type.
        """
        identity, question, context = self.identity(record), _text(record, "question"), _text(record, "context")
        answers = record.get("answers")
        if not isinstance(answers, list) or not answers or not all(isinstance(a, str) and a.strip() for a in answers):
            raise DataError("answers: expected a list of at least one non-empty text")
        return Item(id=identity, public={"question": question, "context": context}, reference={"answers": answers})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """The skill as system message, then the documents and the question."""
        context = cut_at_documents(str(public["context"]), MAX_CONTEXT_CHARS)
        prompt = _PROMPT.format(context=context, question=public["question"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def task(self, public: JsonObject) -> str:
        """The question alone; the documents are found by the tool."""
        return _TASK.format(question=public["question"])

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """A search over all of the item's documents, also those that are too many for one message."""
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
        """What the last pair of <answer> tags holds; without tags, the last line that is not empty."""
        # An opening tag without its partner, as in "inside <answer> tags:", belongs to no pair.
        tagged = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", response, re.DOTALL | re.IGNORECASE)
        if tagged:
            return str(tagged[-1]).strip()
        lines = [line.strip() for line in response.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Exact match as hard, token F1 as soft, each the best over the references (SQuAD v1.1 rules)."""
        answers = item.reference["answers"]
        references = [str(answer) for answer in answers] if isinstance(answers, list) else []
        hard = max(float(normalise(trajectory.answer) == normalise(answer)) for answer in references)
        soft = max(token_f1(trajectory.answer, answer) for answer in references)
        expected = " or ".join(f'"{answer}"' for answer in references)
        return Score(hard=hard, soft=soft, feedback=f'expected {expected}; answered "{trajectory.answer}"')


def cut_at_documents(context: str, limit: int) -> str:
    """As many whole leading documents as fit into `limit` characters; a longer first one is cut hard."""
    if len(context) <= limit:
        return context
    first = len(context) - len(context.lstrip())
    end = context.rfind(DOCUMENT_MARK, first + 1, limit + len(DOCUMENT_MARK))
    return context[: end if end > 0 else limit].rstrip()


def split_documents(context: str) -> Sequence[str]:
    """The documents of a context, each with its mark."""
    parts = re.split(f"(?={re.escape(DOCUMENT_MARK)})", context)
    return [part.strip() for part in parts if part.strip()]


def best_documents(documents: Sequence[str], query: str) -> Sequence[str]:
    """Those that share words with the query, best first; a word counts the more, the fewer documents have it."""
    asked = _words(query)
    shared = [asked & _words(document) for document in documents]
    documents_with = Counter(word for words in shared for word in words)
    # The order of a set differs from process to process, and with it the last digit of a sum.
    weights = [sum(1 / documents_with[word] for word in sorted(words)) for words in shared]
    best = sorted(range(len(documents)), key=lambda index: (-weights[index], index))
    return [documents[index] for index in best if weights[index] > 0][:MAX_FOUND]


def normalise(answer: str) -> str:
    """Lower case, without punctuation, articles and surplus blanks (SQuAD v1.1 evaluation)."""
    kept = "".join(character for character in answer.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of token precision and recall after normalisation (SQuAD v1.1 evaluation)."""
    answered, expected = normalise(answer).split(), normalise(reference).split()
    if not answered or not expected:
        return float(answered == expected)
    common = sum((Counter(answered) & Counter(expected)).values())
    return 2 * common / (len(answered) + len(expected))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _text(record: JsonObject, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{key}: expected a non-empty text, got {value!r}")
    return value


BENCHMARK = SearchQA()
