# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Writes the sample data set: `uv run --script benchmarks/officeqa/make_sample.py`.

The bulletins are those of a country that does not exist, and all figures are drawn by chance. The result depends on
SEED alone.
"""

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 42
SIZES = {"train": 60, "val": 30, "test": 60}
FOLDER = Path(__file__).parent / "sample"
COUNTRY, CURRENCY = "Republic of Veldania", "florins"
FIRST_YEAR, MONTHS = 1961, 200
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
RECEIPTS = ("Customs", "Excise", "Income tax", "Stamp duties", "Harbour dues")
EXPENDITURE = ("Roads", "Schools", "Hospitals", "Post and telegraph", "Interest on the debt")
RECEIPTS_PAGE, EXPENDITURE_PAGE, REVISIONS_PAGE = 2, 3, 4
LATER = 2
"""Months after which a bulletin may revise a figure."""
REVISED = 0.5
"""How often the figures of a question include one that was revised, where its kind may have one."""


@dataclass(frozen=True)
class Cell:
    """An item of a table in a month, both as they are numbered here."""

    item: str
    month: int

    @property
    def page(self) -> int:
        """Return the page of the month's bulletin that it stands on."""
        return RECEIPTS_PAGE if self.item in RECEIPTS else EXPENDITURE_PAGE


@dataclass(frozen=True)
class Asked:
    """A question with its answer and the figures that it rests on."""

    question: str
    answer: str
    cells: Sequence[Cell]
    kind: str


class Treasury:
    """All figures of the country, in thousands."""

    def __init__(self, chance: random.Random) -> None:
        self.first: dict[Cell, int] = {}
        self.revised: dict[Cell, int] = {}
        for item in (*RECEIPTS, *EXPENDITURE):
            level, growth = chance.uniform(2_000, 60_000), chance.uniform(1.001, 1.008)
            for month in range(MONTHS):
                amount = round(level * growth**month * chance.uniform(0.85, 1.15))
                self.first[Cell(item, month)] = amount
                if month + LATER < MONTHS and chance.random() < 0.2:
                    self.revised[Cell(item, month)] = round(amount * chance.choice((0.96, 0.98, 1.03, 1.05)))

    def final(self, cell: Cell) -> int:
        """Return the amount as it was printed last."""
        return self.revised.get(cell, self.first[cell])


def month_name(month: int) -> str:
    """Return such as `March 1964`."""
    return f"{MONTH_NAMES[month % 12]} {FIRST_YEAR + month // 12}"


def document(month: int) -> str:
    """Return the name of a month's bulletin."""
    return f"treasury_bulletin_{FIRST_YEAR + month // 12}_{month % 12 + 1:02}.txt"


def in_millions(page: int, month: int) -> bool:
    """Return whether a table of a month's bulletin counts in millions; over the years both tables change their unit."""
    year = FIRST_YEAR + month // 12
    return year >= 1969 if page == RECEIPTS_PAGE else year <= 1965 or year >= 1973


def printed(amount: int, millions: bool) -> str:
    """Return an amount as a table prints it."""
    return f"{amount / 1000:,.3f}" if millions else f"{amount:,}"


def table(title: str, unit_in_millions: bool, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown, below its title and its unit."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([title, f"In {'millions' if unit_in_millions else 'thousands'} of {CURRENCY}", "", *lines])


def bulletin(treasury: Treasury, month: int) -> str:
    """Return the text of a bulletin."""
    pages = [
        f"Treasury Bulletin of the {COUNTRY}\n{month_name(month)}\n\nReceipts stand on page {RECEIPTS_PAGE}, "
        f"expenditure on page {EXPENDITURE_PAGE}, and figures of earlier months that were revised on page "
        f"{REVISIONS_PAGE}."
    ]
    for number, (page, name, items) in enumerate(
        [(RECEIPTS_PAGE, "Receipts by source", RECEIPTS), (EXPENDITURE_PAGE, "Expenditure by purpose", EXPENDITURE)],
        start=1,
    ):
        millions = in_millions(page, month)
        amounts = {item: treasury.first[Cell(item, month)] for item in items}
        rows = [[item, printed(amount, millions)] for item, amount in amounts.items()]
        rows.append(["All together", printed(sum(amounts.values()), millions)])
        pages.append(table(f"Table {number}. {name}, {month_name(month)}", millions, ["Item", "Month"], rows))
    changed = [cell for cell in treasury.revised if cell.month == month - LATER]
    millions = in_millions(RECEIPTS_PAGE, month)
    rows = [
        [cell.item, printed(treasury.first[cell], millions), printed(treasury.revised[cell], millions)]
        for cell in changed
    ]
    revisions = table(
        f"Table 3. Revised figures of {month_name(month - LATER)}", millions, ["Item", "First", "Revised"], rows
    )
    pages.append(revisions if changed else "Table 3. Revised figures\nNone.")
    return "".join(f"--- PAGE {number} ---\n\n{page}\n\n" for number, page in enumerate(pages, start=1))


def difference(chance: random.Random, treasury: Treasury) -> Asked:
    """Ask by how much one month exceeds another."""
    item, months = chance.choice((*RECEIPTS, *EXPENDITURE)), chance.sample(range(MONTHS - LATER), 2)
    low, high = sorted((Cell(item, month) for month in months), key=treasury.final)
    question = (
        f'By how many thousands of {CURRENCY} did "{item}" in {month_name(high.month)} exceed "{item}" in '
        f"{month_name(low.month)}?"
    )
    return Asked(question, str(treasury.final(high) - treasury.final(low)), (high, low), "difference")


def together(chance: random.Random, treasury: Treasury) -> Asked:
    """Ask for the sum of three months in a row."""
    item, first = chance.choice((*RECEIPTS, *EXPENDITURE)), chance.randrange(MONTHS - LATER - 3)
    cells = [Cell(item, month) for month in range(first, first + 3)]
    names = [month_name(cell.month) for cell in cells]
    question = (
        f'How many thousands of {CURRENCY} are "{item}" in {names[0]}, "{item}" in {names[1]} and "{item}" in '
        f"{names[2]} together?"
    )
    return Asked(question, str(sum(treasury.final(cell) for cell in cells)), cells, "sum")


def mean(chance: random.Random, treasury: Treasury) -> Asked:
    """Ask for the mean of three months, rounded."""
    item, months = chance.choice((*RECEIPTS, *EXPENDITURE)), sorted(chance.sample(range(MONTHS - LATER), 3))
    cells = [Cell(item, month) for month in months]
    names = [month_name(cell.month) for cell in cells]
    question = (
        f'What is the mean of "{item}" in {names[0]}, "{item}" in {names[1]} and "{item}" in {names[2]}, in thousands '
        f"of {CURRENCY}? Round it to one decimal."
    )
    return Asked(question, f"{sum(treasury.final(cell) for cell in cells) / 3:.1f}", cells, "mean")


def growth(chance: random.Random, treasury: Treasury) -> Asked:
    """Ask for a change in percent between the same months of two years."""
    item, month = chance.choice((*RECEIPTS, *EXPENDITURE)), chance.randrange(MONTHS - LATER - 60)
    cells = (Cell(item, month), Cell(item, month + 12 * chance.randint(1, 4)))
    before, after = (treasury.final(cell) for cell in cells)
    question = (
        f'By how many percent did "{item}" in {month_name(cells[1].month)} differ from "{item}" in '
        f"{month_name(cells[0].month)}? A fall is negative. Round it to two decimals."
    )
    return Asked(question, f"{(after - before) / before * 100:.2f}", cells, "growth")


KINDS: Sequence[Callable[[random.Random, Treasury], Asked]] = (difference, together, mean, growth)


def record(number: int, asked: Asked, treasury: Treasury) -> Mapping[str, str]:
    """Return a question in the official format; its sources are what it rests on, page by page."""
    sources = [(document(cell.month), cell.page) for cell in asked.cells]
    sources += [(document(cell.month + LATER), REVISIONS_PAGE) for cell in asked.cells if cell in treasury.revised]
    return {
        "uid": f"SAMPLE{number:04}",
        "question": asked.question,
        "answer": asked.answer,
        "source_docs": "\r\n".join(f"https://example.org/veldania/{name}?page={page}" for name, page in sources),
        "source_files": "\r\n".join(name for name, _ in sources),
        "difficulty": "hard" if any(cell in treasury.revised for cell in asked.cells) else "easy",
        "kind": asked.kind,
    }


def questions(chance: random.Random, treasury: Treasury, count: int) -> list[Asked]:
    """Return questions of all kinds in turn, about figures of which some were revised, none of them twice."""
    found: dict[str, Asked] = {}
    while len(found) < count:
        wants_revised = chance.random() < REVISED
        asked = KINDS[len(found) % len(KINDS)](chance, treasury)
        if wants_revised == any(cell in treasury.revised for cell in asked.cells):
            found.setdefault(asked.question, asked)
    return list(found.values())


def main() -> None:
    """Write the corpus and the splits."""
    chance = random.Random(SEED)  # noqa: S311 - figures of a sample, not secrets
    treasury = Treasury(chance)
    shutil.rmtree(FOLDER, ignore_errors=True)
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True)
    for month in range(MONTHS):
        (corpus / document(month)).write_text(bulletin(treasury, month), encoding="utf-8")
    asked = questions(chance, treasury, sum(SIZES.values()))
    chance.shuffle(asked)
    records = [record(number, one, treasury) for number, one in enumerate(asked, start=1)]
    start = 0
    for split, size in SIZES.items():
        (FOLDER / split).mkdir()
        text = json.dumps(records[start : start + size], indent=1, ensure_ascii=False) + "\n"
        (FOLDER / split / "items.json").write_text(text, encoding="utf-8")
        start += size


if __name__ == "__main__":
    main()
