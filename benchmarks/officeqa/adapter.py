"""OfficeQA: questions that need figures from a corpus of treasury bulletins, and calculations."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import text_at
from skillopt_airflow.tasks.scoring.extraction import InTags, last_line
from skillopt_airflow.tasks.scoring.figure_match import FigureMatch

from .tools import calculate

MAX_PAGE_CHARS = 24_000
MAX_PAGES_CHARS = 80_000
SCORING = FigureMatch(relative=0.0)
"""Exact figures, as in the official headline score; tolerances of 0.001, 0.01, and 0.05 are common too."""
ANSWER_TAGS = ("answer", "final_answer")
_LEVELS = ("category", "difficulty")
"""Columns of the difficulty; newer files have the second."""
_DIVIDERS = re.compile(r"[\r\n;]+")
_PAGE = re.compile(r"[?&](?:page|pagenum|page_id)=(\d{1,6})\b")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_BULLETIN = re.compile(rf"\b({'|'.join(MONTHS)})-(\d{{4}})\b|\b(treasury_bulletin_\d{{4}}_\d{{2}}\.txt)\b")
_QUESTION = """Question on treasury bulletins: {question}

Think it through and show the calculation first. End with the answer only, on one line inside <answer></answer> tags: a
figure or a few words."""
_TASK = """{question}

The answer has to be looked up in the documents, most often in several places, and calculated."""
_CUT = "\n[{missing} characters left out]"


class OfficeQA:
    """Records of the official files: uid, question, answer, source_docs, and source_files."""

    runs_code = False
    text_columns: tuple[str, ...] = ("question",)
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        return text_at(record, "uid")

    def item(self, record: JsonObject) -> Item:
        """Return an item; the chat harness shows the pages in its sources.

        Raises:
            DataError: a column is missing or invalid.
        """
        answer = record.get("answer")
        try:
            SCORING.check(answer, {})
        except DataError as error:
            raise DataError(f"answer: {error}") from error
        public: JsonObject = {
            "question": text_at(record, "question"),
            "source_docs": [*_several(record, "source_docs")],
            "source_files": [*_several(record, "source_files")],
        }
        return Item(id=self.identity(record), public=public, reference={"answer": answer, "level": _level(record)})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the skill and the question without its pages, see `shown_files`."""
        prompt = _QUESTION.format(question=public["question"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        """Return the pages of the item's sources, truncated to the limits."""
        shown, left = [], MAX_PAGES_CHARS
        for document, number, text in _pages(public, workspace):
            page = f"<page document={document!r} number={number}>\n{_cut(text, MAX_PAGE_CHARS)}\n</page>"
            if left <= 0:
                break
            shown.append(_cut(page, left))
            left -= len(page)
        return "\n\n".join(["The pages that the answer rests on:", *shown])

    def task(self, public: JsonObject) -> str:
        return _TASK.format(question=_QUESTION.format(question=public["question"]))

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        return (*workspace.corpus.tools(), calculate)

    def answer(self, response: str) -> str:
        """Return the content of <answer> or <FINAL_ANSWER> tags, else the last line."""
        found = (InTags(tag=tag).find(response) for tag in ANSWER_TAGS)
        return next((answer for answer in found if answer is not None), last_line(response)).strip()

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        return SCORING.score(trajectory.answer, item.reference["answer"], item.public)


def _pages(public: JsonObject, workspace: Workspace) -> Iterator[tuple[str, int, str]]:
    """Yield the pages of the sources, each once.

    Raises:
        LookupError: the corpus lacks a page.
    """
    files, seen = _texts(public["source_files"]), set()
    for place, source in enumerate(_texts(public["source_docs"])):
        page = _PAGE.search(source)
        document = _bulletin(source)
        if not document:
            # Without a bulletin in the URL, documents and files correspond, or all pages are in one file.
            document = files[place] if place < len(files) else files[0] if len(files) == 1 else ""
        if page is None or not document or (document, int(page[1])) in seen:
            continue
        seen.add((document, int(page[1])))
        yield document, int(page[1]), workspace.corpus.page(document, int(page[1]))


def _bulletin(source: str) -> str:
    """Return the bulletin's file for a URL with a month or a file name, else an empty string."""
    named = _BULLETIN.search(source.lower())
    if named is None:
        return ""
    month, year, file = named.groups()
    return file if file else f"treasury_bulletin_{year}_{MONTHS.index(month) + 1:02}.txt"


def _several(record: JsonObject, column: str) -> list[str]:
    """Return the values of a list, or of a cell separated by newlines or semicolons."""
    value = record.get(column)
    if isinstance(value, list):
        return _texts(value)
    if not isinstance(value, str):
        raise DataError(f"{column}: expected a text or a list of texts, got {type(value).__name__}")
    return [part.strip() for part in _DIVIDERS.split(value) if part.strip()]


def _texts(values: object) -> list[str]:
    return [str(value).strip() for value in values] if isinstance(values, list) else []


def _level(record: JsonObject) -> str:
    return next((str(record[column]) for column in _LEVELS if record.get(column)), "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _CUT.format(missing=len(text) - limit)


BENCHMARK = OfficeQA()
