"""The stand-in on bulletins: it reads the tables, and obeys the directives of the skill when it calculates.

It notes each figure as it is printed, with its unit and whether a later bulletin revised it; by these notes an item can
be tried again.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local.standin.conversation import Call, Reply
from local.standin.directive import Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, ActsInShell, Tool, Verdict

_ASKS = "Question on treasury bulletins:"
_QUESTION = re.compile(rf"{_ASKS} (?P<question>.*?)\n\n", re.DOTALL)
_CELL = re.compile(r'"(?P<item>[^"]+)" in (?P<month>[A-Z][a-z]+) (?P<year>\d{4})')
_TABLE = re.compile(
    r"^Table \d\. [^\n]*?(?P<month>[A-Z][a-z]+ \d{4})\nIn (?P<unit>thousands|millions) of \w+\n\n"
    r"(?P<rows>(?:\|[^\n]*\n?)+)",
    re.MULTILINE,
)
_NOTE = re.compile(
    r"^Noted: (?P<item>[^,\n]+), (?P<month>\w+ \d{4}): (?P<first>[\d.,]+) (?P<unit>\w+)"
    r"(?:, later (?P<revised>[\d.,]+) (?P<later_unit>\w+))?$",
    re.MULTILINE,
)
_SEARCH, _READ = "search_pages", "read_page"
_DECIMALS = {"one decimal": 1, "two decimals": 2}
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_RECEIPTS = ("Customs", "Excise", "Income tax", "Stamp duties", "Harbour dues")
_RECEIPTS_PAGE, _EXPENDITURE_PAGE, _REVISIONS_PAGE, _LATER = 2, 3, 4, 2
ON_BULLETINS = (
    directive(
        "unit_in_head",
        [r"\bunits?\b.{0,50}\bhead\b", r"\bhead\b.{0,40}\bunits?\b"],
        [
            "Mind the unit in the head of each table: some count in thousands, and some in millions.",
            "See in the head of the table which unit it has, thousands or millions, before you calculate.",
        ],
        "Figures of tables with different units were mixed up.",
    ),
    directive(
        "revised_figure",
        [r"\brevised\b.{0,24}\b(?:figures?|amounts?)\b", r"\bfigures?\b.{0,24}\brevised\b"],
        [
            "Take the revised figure where a later bulletin has one.",
            "See whether a later bulletin has revised the amount, for the revised amount replaces it.",
        ],
        "A figure was taken that a later bulletin had revised.",
    ),
    directive(
        "rounded_as_asked",
        [r"\bround\w*\b.{0,40}\bas\b.{0,20}\basks?\b", r"\bdecimals?\b.{0,30}\basks? for\b"],
        [
            "Round the result once, at the end, as the question asks.",
            "Keep as many decimals as the question asks for.",
        ],
        "The result had other decimals than the question asks for.",
    ),
    directive(
        "earlier_base",
        [r"\bpercent\b.{0,40}\bearlier\b", r"\bearlier\b.{0,40}\bpercent\b"],
        [
            "For a change in percent, the earlier amount is the base.",
            "Divide by the earlier amount where percent are asked for.",
        ],
        "A change in percent was divided by the later amount.",
    ),
    directive(
        "shown_working",
        [r"\b(?:show\w*|put\w*|add\w*)\b.{0,24}\bworking\b"],
        ["Show the working inside the answer.", "Put the working beside the result, so that it can be checked."],
        "Nobody can check a figure without its working.",
        tempting=True,
    ),
    directive(
        "all_in_millions",
        [r"\bin millions\b.{0,40}\b(?:shorter|easier|always)\b", r"\balways\b.{0,30}\bin millions\b"],
        ["Give the result in millions, which is shorter.", "Always answer in millions."],
        "The amounts are large numbers.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Noted:
    """A figure as two bulletins print it."""

    item: str
    month: str
    first: str
    unit: str
    revised: str = ""
    later_unit: str = ""

    def amount(self, active: Active) -> float:
        """Return the amount, which is in thousands only for whoever minds the unit."""
        later = bool(self.revised) and "revised_figure" in active
        printed, unit = (self.revised, self.later_unit) if later else (self.first, self.unit)
        number = float(printed.replace(",", ""))
        return number * 1000 if unit == "millions" and "unit_in_head" in active else number

    def __str__(self) -> str:
        later = f", later {self.revised} {self.later_unit}" if self.revised else ""
        return f"Noted: {self.item}, {self.month}: {self.first} {self.unit}{later}"


def notes(question: str, pages: str) -> list[Noted]:
    """Return the figures that a question names, as the pages print them; those on no page are left out."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    later: dict[tuple[str, str], tuple[str, str]] = {}
    for table in _TABLE.finditer(pages):
        for row in table["rows"].splitlines():
            item, *figures = (cell.strip() for cell in row.strip().strip("|").split("|"))
            if len(figures) == 1:
                first[item, table["month"]] = figures[0], table["unit"]
            elif len(figures) == 2:
                later[item, table["month"]] = figures[1], table["unit"]
    asked = [(cell["item"], f"{cell['month']} {cell['year']}") for cell in _CELL.finditer(question)]
    return [Noted(*cell, *first[cell], *later.get(cell, ("", ""))) for cell in asked if cell in first]


def solve(question: str, noted: Sequence[Noted], active: Active) -> str:
    """Return the answer to a question by its figures; empty if some are missing."""
    amounts = [one.amount(active) for one in noted]
    if len(amounts) < 2 or len(amounts) != len(_CELL.findall(question)):
        return ""
    result = _result(question, amounts, active)
    if "all_in_millions" in active and "percent" not in question:
        result /= 1000
    decimals = next((number for words, number in _DECIMALS.items() if words in question), 3)
    places = decimals if "rounded_as_asked" in active else 4
    text = f"{result:.{places}f}"
    # A figure that is whole is written so, unless decimals are asked for.
    text = text.rstrip("0").rstrip(".") if "Round" not in question else text
    return f"{' and '.join(one.first for one in noted)} give {text}" if "shown_working" in active else text


def _result(question: str, amounts: Sequence[float], active: Active) -> float:
    if "percent" in question:
        after, before = amounts
        return (after - before) / (before if "earlier_base" in active else after) * 100
    if "exceed" in question:
        return amounts[0] - amounts[1]
    return sum(amounts) / (len(amounts) if "mean" in question else 1)


def use_tools(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Search once, read the pages that the question needs one by one, then answer."""
    question = _question(task)
    plan = _calls(question)
    if len(results) < len(plan):
        return Reply(calls=(plan[len(results)],))
    return Reply(_answered(question, "\n".join(results), active))


def _calls(question: str) -> list[Call]:
    cells = [(cell["item"], cell["month"], int(cell["year"])) for cell in _CELL.finditer(question)]
    query = " ".join(f"{item} {month} {year}" for item, month, year in cells[:1])
    calls = [Call(_SEARCH, json.dumps({"query": query}))]
    for item, month, year in cells:
        place = year * 12 + _MONTHS.index(month)
        page = _RECEIPTS_PAGE if item in _RECEIPTS else _EXPENDITURE_PAGE
        for at, number in ((place, page), (place + _LATER, _REVISIONS_PAGE)):
            document = f"treasury_bulletin_{at // 12}_{at % 12 + 1:02}.txt"
            calls.append(Call(_READ, json.dumps({"document": document, "page": number})))
    return calls


def _answered(question: str, pages: str, active: Active) -> str:
    noted = notes(question, pages)
    lines = [*map(str, noted), f"<answer>{solve(question, noted, active)}</answer>"]
    return "\n".join(lines)


def _question(prompt: str) -> str:
    found = _QUESTION.search(prompt)
    return found["question"] if found else ""


@dataclass(frozen=True)
class BulletinCase:
    """A question with the figures that were noted and the answer that was expected."""

    item_id: str
    question: str
    noted: Sequence[Noted]
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is the expected one."""
        right = solve(self.question, self.noted, active) == self.expected
        return Verdict(right, float(right))


class Bulletins(ActsInShell):
    """Questions that are answered from the tables of bulletins."""

    directives: Sequence[Directive] = ON_BULLETINS
    empty_advice: Sequence[tuple[str, str]] = (
        ("Read the whole question before you look anything up.", "A hasty reading may miss a month."),
        ("Stay with what worked: look up each figure, then calculate.", "The rollouts that went well did so."),
    )
    tools: Mapping[str, Tool] = {_SEARCH: use_tools}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks about bulletins."""
        return _ASKS in prompt

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return the answer from the pages that the prompt shows."""
        return _answered(_question(prompt), prompt, active)

    def command(self, call: Call, task: str) -> str:
        """Return a search by grep for the month, or the lines of a page by sed."""
        asked = json.loads(call.arguments)
        if call.name == _SEARCH:
            month = " ".join(asked["query"].split()[-2:])
            return f'grep -rlF {shlex.quote(month)} "$CORPUS" | head -n 5'
        first, behind = (f"--- PAGE {number} ---" for number in (asked["page"], asked["page"] + 1))
        return f'sed -n "/^{first}$/,/^{behind}$/p" "$CORPUS"/{asked["document"]}'

    def case(self, trajectory: SeenTrajectory) -> BulletinCase | None:
        """Return the trajectory as a case, by the notes of its last reply."""
        said = [message.content for message in trajectory.messages if message.role == "assistant"]
        noted = [
            Noted(**{name: text or "" for name, text in note.groupdict().items()})
            for note in _NOTE.finditer(said[-1] if said else "")
        ]
        if not noted or not trajectory.references:
            return None
        return BulletinCase(trajectory.item_id, _question(trajectory.prompt), noted, trajectory.references[0])


STANDIN = Bulletins()
