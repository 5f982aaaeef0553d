"""Makes the sample: invented harbour towns, and pages about who holds an office there, of which most are of no use.

`python -m benchmarks.sealqa.make_sample` writes the same records every time.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 60, "val": 30, "test": 60}
SEED = 42
FIRST = ("Alma", "Bruno", "Clea", "Doran", "Edda", "Fenno", "Greta", "Hale", "Ines", "Joris", "Kaja", "Ludo", "Mirre")
LAST = ("Ashwick", "Brandt", "Corven", "Dellamy", "Eskil", "Farrow", "Grend", "Hollis", "Ivarsen", "Jessop", "Kestrel")
TOWNS = ("Brindle", "Carrow", "Dunmere", "Elsted", "Fallow", "Garrick", "Hestle", "Inver", "Jarrow", "Keld", "Lorn")
PLACES = ("Quay", "Bay", "Haven", "Point", "Sands")
OFFICES = ("harbour master", "lighthouse keeper", "mayor", "ferry captain", "head librarian", "museum director")
TODAY = date(2026, 6, 1)
NEWER = 0.6
"""Share of misleading pages that are newer than the right one."""
PADDING = (
    "The town lies where the river meets the sea, and the tide decides when its boats go out. ",
    "On market days the square is full before eight, and the bakery behind the church sells out first. ",
    "The old rope works became a hall for concerts, and the cranes were painted green. ",
    "Two bridges lead to the island, one of them for walkers alone, and in winter both may be closed. ",
)
CLAIMS = ("{name} is the {office} of {place}.", "The {office} of {place} is {name}.")


@dataclass(frozen=True)
class Page:
    """A document; `text` is told by `said`."""

    kind: str
    place: str
    name: str
    day: date


@dataclass(frozen=True)
class Case:
    """A question, and the people and places that its pages may name."""

    office: str
    place: str
    namesake: str
    right: str
    others: tuple[str, ...]

    @property
    def question(self) -> str:
        """Return the question as it is asked."""
        return f"Who is the {self.office} of {self.place}?"


def main(folder: Path = FOLDER) -> None:
    """Write the records of all splits."""
    rng = random.Random(SEED)  # noqa: S311
    asked = [(office, f"{town} {place}") for office, town, place in product(OFFICES, TOWNS, PLACES)]
    rng.shuffle(asked)
    for split, size in SIZES.items():
        records = [record(KINDS[number % len(KINDS)], *asked.pop(), rng) for number in range(size)]
        (folder / split).mkdir(parents=True, exist_ok=True)
        text = json.dumps(records, indent=1, ensure_ascii=False)
        (folder / split / "items.json").write_text(f"{text}\n", encoding="utf-8")


def record(kind: "Kind", office: str, place: str, rng: random.Random) -> dict[str, object]:
    """Return a record in the columns of SealQA."""
    people = [f"{first} {last}" for first, last in product(FIRST, LAST)]
    right, *others = rng.sample(people, 5)
    town, _, ending = place.partition(" ")
    namesake = f"{town} {rng.choice([one for one in PLACES if one != ending])}"
    case = Case(office, place, namesake, right, tuple(others))
    documents = [told(page, case, rng) for page in kind.pages(case, rng)]
    documents += [aside(case.place, rng), aside(case.namesake, rng)]
    rng.shuffle(documents)
    return {
        "question": case.question,
        "answer": right,
        "freshness": kind.freshness,
        "question_types": [kind.name],
        "effective_year": str(TODAY.year),
        "search_results": documents,
    }


def outdated(case: Case, rng: random.Random) -> Sequence[Page]:
    """Return old pages that agree, and a new one."""
    old = case.others[0]
    return (
        Page("official", case.place, case.right, ago(rng, 10, 60)),
        Page("official", case.place, old, ago(rng, 900, 1100)),
        Page("news", case.place, old, ago(rng, 700, 890)),
        Page("news", case.place, old, ago(rng, 400, 690)),
    )


def rumoured(case: Case, rng: random.Random) -> Sequence[Page]:
    """Return an official page, and others, mostly newer, of people who heard something."""
    heard = case.others[0]
    return (
        Page("official", case.place, case.right, ago(rng, 100, 200)),
        Page("forum", case.place, heard, ago(rng, 210, 300)),
        Page("forum", case.place, heard, recent(rng)),
        Page("news", case.place, case.right, ago(rng, 210, 300)),
    )


def namesake(case: Case, rng: random.Random) -> Sequence[Page]:
    """Return pages of the town, and others, mostly newer, of a town with nearly the same name."""
    other = case.others[0]
    return (
        Page("official", case.place, case.right, ago(rng, 100, 200)),
        Page("official", case.namesake, other, recent(rng)),
        Page("news", case.namesake, other, ago(rng, 210, 400)),
        Page("news", case.namesake, other, ago(rng, 210, 400)),
    )


def changing(case: Case, rng: random.Random) -> Sequence[Page]:
    """Return pages of an office that many people had, one after the other."""
    return (
        Page("official", case.place, case.right, ago(rng, 10, 60)),
        *(
            Page("official" if years % 2 else "news", case.place, name, ago(rng, 365 * years, 365 * years + 200))
            for years, name in enumerate(case.others[:3], 1)
        ),
    )


@dataclass(frozen=True)
class Kind:
    """The reason why a question is hard, in the words of SealQA."""

    name: str
    freshness: str
    pages: Callable[[Case, random.Random], Sequence[Page]]


KINDS = (
    Kind("temporal tracking", "slow-changing", outdated),
    Kind("conflicting sources", "slow-changing", rumoured),
    Kind("entity disambiguation", "slow-changing", namesake),
    Kind("temporal tracking", "fast-changing", changing),
)


def ago(rng: random.Random, least: int, most: int) -> date:
    """Return a day between so many days ago."""
    return TODAY - timedelta(days=rng.randint(least, most))


def recent(rng: random.Random) -> date:
    """Return a day that is mostly after the last of the right page."""
    return ago(rng, 1, 90) if rng.random() < NEWER else ago(rng, 210, 300)


def told(page: Page, case: Case, rng: random.Random) -> dict[str, str]:
    """Return a page as a document; what it claims may stand far below its beginning."""
    slug = page.place.lower().replace(" ", "-")
    claim = rng.choice(CLAIMS).format(name=page.name, office=case.office, place=page.place)
    number = rng.randint(1000, 9999)
    title, url = {
        "official": (f"Council of {page.place}: who we are", f"https://www.{slug}.gov.example/{number}"),
        "news": (f"The {page.place} Courier", f"https://courier.example/{slug}/{number}"),
        "forum": (f"Heard in {page.place}?", f"https://forum.gossip.example/{slug}/{number}"),
    }[page.kind]
    padding = rng.sample(PADDING, 4)
    before = "".join(padding[: rng.randint(0, 4)])
    text = f"{before}{claim[0].upper()}{claim[1:]} {padding[0]}".strip()
    return {"title": title, "url": url, "date": page.day.isoformat(), "text": text}


def aside(place: str, rng: random.Random) -> dict[str, str]:
    """Return a page that has nothing to do with the question."""
    slug = place.lower().replace(" ", "-")
    url = f"https://walks.example/{slug}/{rng.randint(1000, 9999)}"
    return {
        "title": f"A walk around {place}",
        "url": url,
        "date": ago(rng, 1, 900).isoformat(),
        "text": "".join(rng.sample(PADDING, 3)).strip(),
    }


if __name__ == "__main__":
    main()
