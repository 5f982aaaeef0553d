# /// script
# requires-python = ">=3.11"
# dependencies = ["pillow==13.0.0"]
# ///
"""Draws the sample data set: `uv run --script benchmarks/docvqa/make_sample.py`.

Every name, number and sentence on its pages is invented here. The font is the one in Pillow (Aileron, CC0). The result
depends on Pillow's version and on SEED alone.
"""

import io
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

SEED = 42
PAGES = {"train": 30, "val": 15, "test": 30}
"""Pages of a split; each has two questions."""
FOLDER = Path(__file__).parent / "sample"
WIDTH, MARGIN, LINE = 660, 40, 30
SHADES = 16
"""Of gray: more make larger files, and are not seen."""

_FIRST = ("Ada", "Bruno", "Clara", "Doris", "Emil", "Frida", "Georg", "Hanna", "Ivo", "Jutta", "Karl", "Lena", "Milo")
_LAST = ("Renz", "Harding", "Vollmer", "Castell", "Brandt", "Okafor", "Lindqvist", "Marsh", "Petrov", "Quint", "Weller")
_TITLES = ("Dr.", "Prof.", "Mrs.", "Mr.")
_PLACES = ("Elmstead", "Marlow Bridge", "Northgate", "Saint Orin", "Velden", "Harrow Hill", "Port Lindal", "Kesselby")
_TRADES = ("Paper Mill", "Tobacco Works", "Glass Company", "Dairy", "Instrument Makers", "Seed Trading", "Foundry")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
_GOODS = (
    "Copper wire",
    "Oak boards",
    "Linseed oil",
    "Glass tubes",
    "Rye flour",
    "Sheet iron",
    "Cotton yarn",
    "Bottles",
)
_MATTERS = (
    "Repair of the north roof",
    "Delivery of spare parts",
    "Renewal of the lease",
    "Survey of the lower field",
    "Complaint about damaged crates",
    "Visit to the laboratory",
)
_DEPARTMENTS = ("Accounts", "Research", "Shipping", "Field Trials", "Maintenance", "Legal Affairs")


@dataclass(frozen=True)
class Entry:
    """A labelled value of a page."""

    label: str
    value: str
    kind: str
    rumour: str = ""
    """A sentence that speaks of the label in another connection; empty if the value's kind has none."""


@dataclass(frozen=True)
class Question:
    """A question about a page, with every spelling of its answer that counts."""

    text: str
    answers: Sequence[str]
    kind: str


@dataclass
class Page:
    """The lines of a page, from the top; a line is a list of texts with their places from the left."""

    lines: list[list[tuple[int, str]]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def add(self, *texts: str, at: Sequence[int] = (0,)) -> None:
        """Add a line of texts that begin at these pixels."""
        self.lines.append(list(zip(at, texts, strict=True)))


def _person(chance: random.Random, titled: bool) -> str:
    name = f"{chance.choice(_FIRST)} {chance.choice(_LAST)}"
    return f"{chance.choice(_TITLES)} {name}" if titled else name


def _date(chance: random.Random) -> str:
    return f"{chance.randint(1, 28)} {chance.choice(_MONTHS)} {chance.randint(1921, 1979)}"


def _money(chance: random.Random) -> str:
    return f"{chance.choice(('USD', 'EUR', 'GBP'))} {chance.randint(1100, 98000):,}.{chance.randint(10, 99)}"


def _code(chance: random.Random) -> str:
    return f"{chance.choice('ABDEHKMNPRT')}{chance.choice('ABDEHKMNPRT')}-{chance.randint(2000, 9899)}"


def _measure(chance: random.Random, unit: str, least: int = 23, most: int = 940) -> str:
    return f"{chance.randint(least, most)} {unit}"


def _entries(chance: random.Random, kind: str) -> list[Entry]:
    """Return the fields of a page of this kind."""
    earlier = chance.randint(2000, 9899)
    year = chance.randint(1921, 1979)
    if kind == "invoice":
        return [
            Entry("Invoice number", _code(chance), "code", f"Quote the invoice number, not order {earlier}"),
            Entry("Customer", _person(chance, chance.random() < 0.5), "name"),
            Entry("Due date", _date(chance), "date", f"The due date of last year was in {year}"),
            Entry("Net weight", _measure(chance, "kg"), "measure", f"A net weight below {earlier % 90 + 10} is free"),
            Entry("Total amount", _money(chance), "money", f"A total amount over {earlier} is insured"),
        ]
    if kind == "letter":
        return [
            Entry("Date", _date(chance), "date"),
            Entry("Reference number", _code(chance), "code", f"The reference number is not order {earlier}"),
            Entry("Subject", chance.choice(_MATTERS), "text", f"The subject was closed in {year}"),
            Entry("Sender", _person(chance, True), "name", "The sender was away when the clerk called"),
            Entry("Department", chance.choice(_DEPARTMENTS), "text"),
        ]
    return [
        Entry("Applicant", _person(chance, False), "text", "The applicant has to sign on page 2"),
        Entry("Date of birth", _date(chance), "date", f"Date of birth after {year} needs form {earlier}"),
        Entry("Place of work", chance.choice(_PLACES), "text", f"Proof of place of work since {year}"),
        Entry(
            "Body height",
            _measure(chance, "cm", 148, 197),
            "measure",
            f"Body height above {earlier % 80 + 110} see part 3",
        ),
        Entry("File number", _code(chance), "code"),
        Entry("Yearly income", _money(chance), "money", f"A yearly income below {earlier} is exempt"),
    ]


def _fields_page(chance: random.Random, kind: str) -> Page:
    """Return an invoice, a letter or a form: a head, sentences that lead astray, and labelled values."""
    page = Page()
    page.add(f"{chance.choice(_PLACES)} {chance.choice(_TRADES)}")
    page.add({"invoice": "INVOICE", "letter": "LETTER", "form": "APPLICATION FORM"}[kind])
    entries = _entries(chance, kind)
    asked = chance.sample(entries, 2)
    for entry in entries:
        if entry.rumour and (entry not in asked or chance.random() < 0.4):
            page.add(f"{entry.rumour}.")
    page.add("")
    for entry in chance.sample(entries, len(entries)):
        page.add(f"{entry.label}:", entry.value, at=(0, 220))
    page.add("")
    page.add(chance.choice(("Received with thanks.", "Copy for the files.", "Not valid without a stamp.")))
    for entry in asked:
        wording = "Who is the {}?" if entry.label in ("Customer", "Sender", "Applicant") else "What is the {}?"
        spellings = [entry.value]
        if entry.kind == "money":
            spellings.append(entry.value.replace(" ", ""))
        page.questions.append(Question(wording.format(entry.label.lower()), spellings, entry.kind))
    return page


def _table_page(chance: random.Random, _: str) -> Page:
    """Return a table of goods with three columns of figures."""
    page = Page()
    columns = chance.sample(["Stock", "Sold", "Ordered", "Returned"], 3)
    goods = chance.sample(_GOODS, 5)
    places = (0, 200, 330, 460)
    page.add(f"{chance.choice(_PLACES)} {chance.choice(_TRADES)}")
    page.add(f"Goods in the {chance.choice(('first', 'second', 'third'))} quarter of {chance.randint(1921, 1979)}")
    page.add("")
    page.add("Article", *columns, at=places)
    cells: dict[tuple[str, str], str] = {}
    for name in goods:
        unit = chance.choice(("kg", "boxes", "tons", ""))
        figures = [_measure(chance, unit).strip() for _ in columns]
        cells |= {(name, column): figure for column, figure in zip(columns, figures, strict=True)}
        page.add(name, *figures, at=places)
    page.add("")
    page.add(f"Counted by {_person(chance, False)}")
    for name, column in chance.sample(sorted(cells), 2):
        text = f'What is the figure under "{column}" for {name.lower()}?'
        page.questions.append(Question(text, [cells[name, column]], "table"))
    return page


_KINDS: Mapping[str, Callable[[random.Random, str], Page]] = {
    "invoice": _fields_page,
    "letter": _fields_page,
    "form": _fields_page,
    "table": _table_page,
}


def _drawn(page: Page, chance: random.Random) -> bytes:
    """Return the page as a scanner would: a little turned, not quite white, with specks and blur."""
    height = 2 * MARGIN + LINE * len(page.lines)
    paper = Image.new("L", (WIDTH, height), 255)
    draw = ImageDraw.Draw(paper)
    for number, line in enumerate(page.lines):
        font = ImageFont.load_default(size=24 if number == 0 else 19)
        for left, text in line:
            draw.text((MARGIN + left, MARGIN + LINE * number), text, fill=chance.randint(0, 60), font=font)
    paper = paper.rotate(chance.uniform(-1.2, 1.2), Image.Resampling.BICUBIC, fillcolor=255)
    draw = ImageDraw.Draw(paper)
    for _ in range(chance.randint(60, 140)):
        left, top = chance.randrange(WIDTH), chance.randrange(height)
        draw.point((left, top), fill=chance.randint(140, 220))
    paper = paper.filter(ImageFilter.GaussianBlur(chance.uniform(0.3, 0.7)))
    paper = paper.point([level * SHADES // 256 * 255 // (SHADES - 1) for level in range(256)])
    stored = io.BytesIO()
    paper.save(stored, "PNG", optimize=True)
    return stored.getvalue()


def main() -> None:
    """Write the pages, and a file of questions a split."""
    chance = random.Random(SEED)  # noqa: S311
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "pages").mkdir(parents=True)
    kinds = list(_KINDS)
    document = 0
    for split, pages in PAGES.items():
        records: list[dict[str, object]] = []
        for number in range(pages):
            document += 1
            kind = kinds[number % len(kinds)]
            page = _KINDS[kind](chance, kind)
            image = f"pages/{document:02d}.png"
            (FOLDER / image).write_bytes(_drawn(page, chance))
            records += [
                {
                    "questionId": f"{document:02d}-{place}",
                    "question": question.text,
                    "question_types": [kind],
                    "image": image,
                    "docId": document,
                    "answers": list(question.answers),
                }
                for place, question in enumerate(page.questions, start=1)
            ]
        (FOLDER / split).mkdir()
        text = json.dumps(records, ensure_ascii=False, indent=1)
        (FOLDER / split / "items.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
