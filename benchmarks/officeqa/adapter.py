"""OfficeQA: questions whose answers have to be looked up in a corpus of statistical bulletins, and calculated."""

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
"""The official headline counts exact figures; it is also reported with a tolerance of 0.001, 0.01 and 0.05."""
ANSWER_TAGS = ("answer", "final_answer")
_LEVELS = ("category", "difficulty")
"""Columns of how hard a question is; the newer files have the second."""
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
    """Records with uid, question, answer, source_docs and source_files, as the official files have them."""

    runs_code = False
    text_columns: tuple[str, ...] = ("question",)
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        """Return the record's `uid`."""
        return text_at(record, "uid")

    def item(self, record: JsonObject) -> Item:
        """Return one record as an item; its sources name the pages that the chat harness shows.

        Raises:
            DataError: a column is missing, or holds something else.
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
        """Return the skill as system message, then the question; its pages follow, see `shown_files`."""
        prompt = _QUESTION.format(question=public["question"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        """Return the pages that the item's sources name, each and all of them up to a limit."""
        shown, left = [], MAX_PAGES_CHARS
        for document, number, text in _pages(public, workspace):
            page = f"<page document={document!r} number={number}>\n{_cut(text, MAX_PAGE_CHARS)}\n</page>"
            if left <= 0:
                break
            shown.append(_cut(page, left))
            left -= len(page)
        return "\n\n".join(["The pages that the answer rests on:", *shown])

    def task(self, public: JsonObject) -> str:
        """Return the question for an agent, which has to find the pages by itself."""
        return _TASK.format(question=_QUESTION.format(question=public["question"]))

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return the tools over the whole corpus, and a calculator."""
        return (*workspace.corpus.tools(), calculate)

    def answer(self, response: str) -> str:
        """Return what the last pair of <answer> or else of <FINAL_ANSWER> tags holds; without tags, the last line."""
        found = (InTags(tag=tag).find(response) for tag in ANSWER_TAGS)
        return next((answer for answer in found if answer is not None), last_line(response)).strip()

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return the official score, as hard and as soft."""
        return SCORING.score(trajectory.answer, item.reference["answer"], item.public)


def _pages(public: JsonObject, workspace: Workspace) -> Iterator[tuple[str, int, str]]:
    """Yield the pages that the sources name, each once.

    Raises:
        LookupError: the corpus lacks one; the text names it.
    """
    files, seen = _texts(public["source_files"]), set()
    for place, source in enumerate(_texts(public["source_docs"])):
        page = _PAGE.search(source)
        document = _bulletin(source)
        if not document:
            # Then the sources are listed side by side, or all are pages of one file.
            document = files[place] if place < len(files) else files[0] if len(files) == 1 else ""
        if page is None or not document or (document, int(page[1])) in seen:
            continue
        seen.add((document, int(page[1])))
        yield document, int(page[1]), workspace.corpus.page(document, int(page[1]))


def _bulletin(source: str) -> str:
    """Return the file of the bulletin that an address names by its month, or by the file; empty if it names none."""
    named = _BULLETIN.search(source.lower())
    if named is None:
        return ""
    month, year, file = named.groups()
    return file if file else f"treasury_bulletin_{year}_{MONTHS.index(month) + 1:02}.txt"


def _several(record: JsonObject, column: str) -> list[str]:
    """Return the texts of a cell, which line breaks or semicolons divide, or of a list."""
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
