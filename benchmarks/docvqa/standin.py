"""The stand-in on scanned pages: it reads their print, and answers as carefully as the directives of the skill ask."""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local.standin.directive import PREFER, Directive, directive
from local.standin.sight import lines_of, words_in
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Subject, Tool, Verdict
from local.standin.transcription import transcribed, transcription
from skillopt_airflow.core.scoring.anls import Anls

_ASKS = re.compile(r"^Question about the page: (?P<question>.+)$", re.MULTILINE)
_FIELD = re.compile(r"\b(?:is|was) the (?P<label>[^?]+)\?")
_CELL = re.compile(r'\bunder "(?P<column>[^"]+)" for (?P<row>[^?]+)\?')
_GAP = " | "
"""Between what stands in different columns of a line."""
_WIDE = 1.0
"""Heights of a word: a blank that is wider separates columns."""
_DATE = re.compile(r"(?P<day>\d{1,2}) (?P<month>[A-Z][a-z]+) (?P<year>\d{4})")
_TITLE = re.compile(r"\b(?:Dr|Prof|Mrs|Mr)\. ?")
_CURRENCY = re.compile(r"\b(?:USD|EUR|GBP) ?(?=\d)")
_UNIT = re.compile(r"(?<=\d) ?[a-z]+\b")
_FIGURE = re.compile(r"\d[\d,.]*")
_MONTHS = {datetime.date(2000, month, 1).strftime("%B"): month for month in range(1, 13)}

ON_PAGES = (
    directive(
        "label_first",
        [r"\b(?:read|find|locat\w+|look for|start\w* (?:from|with))\b.{0,30}\blabels?\b"],
        [
            "Read the field's label first, and take the value that stands beside it.",
            "Find the label that the question names, and answer with what is printed next to it.",
        ],
        "The answer came from a sentence that only mentions what was asked, not from the field.",
    ),
    directive(
        "unit_or_currency",
        [r"\b(?:giv\w+|keep\w*|writ\w+|includ\w+|add\w*|copy)\b.{0,40}\bcurrenc(?:y|ies)\b"],
        ["Give a number with its unit or currency.", "Write the unit or currency beside a figure, as the page does."],
        "The figure is right, and its unit or currency is missing.",
    ),
    directive(
        "as_printed",
        [r"\b(?:copy|keep|repeat|giv\w+|writ\w+|spell)\b.{0,50}\b(?:as|like)\b.{0,16}\bprinted\b"],
        [
            "Copy the spelling as printed, with titles, commas and the order of a date.",
            "Keep names, dates and amounts exactly as they are printed.",
        ],
        "The value was put into another form than the page's.",
    ),
    directive(
        "row_and_column",
        [r"\brows?\b.{0,30}\bcolumns?\b"],
        [
            "In a table go to the row and then to the column that the question names.",
            "Match both the row and the heading of the column before you read a cell.",
        ],
        "The answer is a cell of the right row in another column.",
    ),
    directive(
        "round_figures",
        [r"\bround(?:ing|ed)? (?:all )?(?:figures?|numbers?|amounts?)\b"],
        ["Round figures to the next ten, small differences do not matter.", "Answer with rounded numbers."],
        "Expected and given figure are close to each other.",
        tempting=True,
    ),
    directive(
        "largest_figure",
        [rf"{PREFER}.{{0,24}}\b(?:largest|highest|greatest) (?:figure|number|amount)\b"],
        [
            "Prefer the largest figure on the page, questions are about what matters most.",
            "Take the highest number when several could be meant.",
        ],
        "Another figure of the page was expected, one that stands out.",
        tempting=True,
    ),
)


def page_text(picture: bytes) -> str:
    """Return what is printed on a page, with the columns of a line kept apart."""
    lines = []
    # Specks are read as marks that stand alone.
    words = [word for word in words_in(picture, enlarged=2) if re.search(r"\w", word.text)]
    for line in lines_of(words):
        text, right = "", 0
        for word in line:
            wide = bool(text) and word.left - right > _WIDE * max(word.height, 12)
            text += f"{_GAP if wide else ' '}{word.text}" if text else word.text
            right = word.left + word.width
        # Print that stands close is read as one word.
        lines.append(re.sub(r"(?<=\d)(?=[a-z]{2})", " ", text))
    return "\n".join(lines)


def found(question: str, page: str, active: Active) -> str:
    """Return the answer to a question on the text of a page; empty if nothing speaks of what it asks for."""
    lines = [line.split(_GAP) for line in page.splitlines()]
    cell, named = _CELL.search(question), _FIELD.search(question)
    if "largest_figure" in active and (figures := _FIGURE.findall(page)):
        value = max(figures, key=lambda figure: float(re.sub(r"\D", "", figure)))
    elif cell is not None:
        value = _in_table(lines, cell["row"], cell["column"], active)
    elif named is not None:
        value = _in_fields(lines, named["label"], active)
    else:
        value = ""
    return _formed(value, active)


def _in_table(lines: Sequence[Sequence[str]], row: str, column: str, active: Active) -> str:
    cells: Sequence[str] = next((line for line in lines if line[0].lower() == row.lower()), ("",))
    heads: Sequence[str] = next((line for line in lines if column in line), ())
    if "row_and_column" in active and column in heads and len(cells) == len(heads):
        return cells[heads.index(column)]
    return cells[-1]


def _in_fields(lines: Sequence[Sequence[str]], label: str, active: Active) -> str:
    """Return the value of a field, or what the first line that mentions it ends with."""
    whole = [" ".join(line) for line in lines]
    fields = [line for line in whole if re.match(rf"{re.escape(label)} ?:", line, re.IGNORECASE)]
    mentions = [line for line in whole if label.lower() in line.lower()]
    chosen = next(iter(fields if "label_first" in active else mentions), "")
    if chosen in fields:
        return chosen.partition(":")[2].strip()
    return chosen.rstrip(".").rpartition(" ")[2]


def _formed(value: str, active: Active) -> str:
    if "as_printed" not in active:
        value = _DATE.sub(_as_iso, _TITLE.sub("", value))
        value = re.sub(r"(?<=\d),(?=\d{3})", "", value)
    if "unit_or_currency" not in active and not _DATE.search(value):
        value = _UNIT.sub("", _CURRENCY.sub("", value))
    if "round_figures" in active:
        value = re.sub(r"(?<![-\d])\d{2,3}(?![-\d])", lambda figure: str(round(int(figure[0]), -1)), value)
    return value


def _as_iso(date: re.Match[str]) -> str:
    month = _MONTHS.get(date["month"])
    return date[0] if month is None else f"{date['year']}-{month:02d}-{int(date['day']):02d}"


@dataclass(frozen=True)
class PageCase:
    """A question with the text of its page, and the spellings that count."""

    item_id: str
    question: str
    page: str
    expected: Sequence[str]

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is one of the spellings, and how like the nearest it is."""
        answer = found(self.question, self.page, active)
        hard, soft = max(Anls().compare(answer, spelling) for spelling in self.expected)
        return Verdict(bool(hard), soft)


class Pages(Subject):
    """Questions on a scanned page."""

    directives: Sequence[Directive] = ON_PAGES
    empty_advice: Sequence[tuple[str, str]] = (
        ("Look at the whole page before you decide.", "A hasty look may miss the answer."),
        ("Stay with what worked: one question, one value.", "The rollouts that went well gave one value."),
    )
    tools: Mapping[str, Tool] = {}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks about a page."""
        return _ASKS.search(prompt) is not None

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return what the page says and the answer."""
        asks = _ASKS.search(prompt)
        if asks is None:
            return ""
        pages = [page_text(picture) for picture in pictures]
        return f"{transcription(pages)}<answer>{found(asks['question'], chr(10).join(pages), active)}</answer>"

    def case(self, trajectory: SeenTrajectory) -> PageCase | None:
        """Return the question with the text that the target read."""
        asks, pages, expected = _ASKS.search(trajectory.prompt), transcribed(trajectory), trajectory.references
        if asks is None or not pages or not expected:
            return None
        return PageCase(trajectory.item_id, asks["question"], "\n".join(pages), expected)


STANDIN = Pages()
