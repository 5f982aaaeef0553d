"""Makes the sample: statements of elementary number theory and combinatorics, whose truth is computed here.

`python -m benchmarks.livemathematicianbench.make_sample` writes the same files every time. A question asks for the
strongest statement that can be proved. Beside it stand a weaker one, some that claim too much, each with a
counterexample that was found, and mostly one that states nothing itself. Now and then the strongest is left out, as in
the benchmark's own files, and then the one that states nothing is right.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd, lcm
from pathlib import Path

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 24, "val": 20, "test": 40}
SEED = 42
WILDCARD = "One of the remaining options is correct, but a stronger result can be proven."
CHOICES = 5
_ASKED = "What is the strongest statement that can be proved about"
_WITH_WILDCARD = 0.85
"""Share of the items that offer the choice which states nothing itself."""
_WILDCARD_RIGHT = 9
"""The wildcard is the right choice in every item whose number is a multiple of this."""


@dataclass(frozen=True)
class Claim:
    """A statement and whether it holds, computed."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Draft:
    """A question, the strongest statement, a weaker one that follows from it, and some that claim too much."""

    question: str
    strongest: Claim
    weaker: Claim
    too_strong: tuple[Claim, ...]

    @property
    def false(self) -> list[str]:
        """Return those of the last kind that turned out to be false indeed."""
        return [claim.text for claim in self.too_strong if not claim.holds]

    @property
    def sound(self) -> bool:
        """Return whether the truths are as they should be."""
        return self.strongest.holds and self.weaker.holds and len(self.false) >= CHOICES - 2


_POLYNOMIALS: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("n^3-n", lambda n: n**3 - n),
    ("n^5-n", lambda n: n**5 - n),
    ("n^7-n", lambda n: n**7 - n),
    ("n^2-1", lambda n: n**2 - 1),
    ("n^4-1", lambda n: n**4 - 1),
    ("n^6-1", lambda n: n**6 - 1),
    ("n^3+5n", lambda n: n**3 + 5 * n),
    ("n^4-n^2", lambda n: n**4 - n**2),
    ("n^6-n^2", lambda n: n**6 - n**2),
)
_CONDITIONS = (("odd", 2), ("prime to 3", 3), ("prime to 6", 6), ("prime to 10", 10), ("prime to 15", 15))
_RELATIONS: tuple[tuple[str, Callable[[int, int, int], bool]], ...] = (
    ("differ by 1", lambda x, y, top: y - x == 1),
    ("differ by 2", lambda x, y, top: y - x == 2),
    ("have a sum above {top}", lambda x, y, top: x + y > top),
    ("divide one another", lambda x, y, top: y % x == 0),
    ("have no common divisor above 1", lambda x, y, top: gcd(x, y) == 1),
)
"""Relations of two numbers x < y up to a top."""


def divisor_of_values(rng: random.Random) -> Draft:
    """Return the greatest number that divides all values of a polynomial."""
    (formula, value_at), (said, modulus) = rng.choice(_POLYNOMIALS), rng.choice(_CONDITIONS)
    numbers = [n for n in range(2, 400) if gcd(n, modulus) == 1]
    found = gcd(*map(value_at, numbers))
    part = found // min((p for p in (2, 3, 5, 7) if found % p == 0), default=1)

    def all_divided(by: int, among: Iterable[int]) -> bool:
        return all(value_at(n) % by == 0 for n in among)

    # Values modulo `found` and the condition repeat with this period, so that one period proves the rest.
    period = [n for n in range(found * modulus) if gcd(n, modulus) == 1]
    value = rf"\({formula}\)"
    return Draft(
        rf"Let \(n > 1\) be an integer that is {said}. {_ASKED} the divisors of {value}?",
        Claim(rf"{value} has \({found}\) among its divisors.", all_divided(found, period)),
        Claim(rf"{value} is a multiple of \({part}\).", part > 1 and all_divided(part, period)),
        (
            Claim(rf"{value} always has even \({2 * found}\) among its divisors.", all_divided(2 * found, numbers)),
            Claim(
                rf"{value} has \({found}\) among its divisors for every integer \(n > 1\), no matter if it is {said}.",
                all_divided(found, range(2, 400)),
            ),
            Claim(
                rf"The divisors of {value} are exactly the divisors of \({found}\), for all such \(n\).",
                all(value_at(n) == found for n in numbers),
            ),
            Claim(
                rf"{value} has \({found}\) among its divisors if and only if \(n\) is {said}.",
                all((value_at(n) % found == 0) == (gcd(n, modulus) == 1) for n in range(2, 400)),
            ),
        ),
    )


def exponents(rng: random.Random) -> Draft:
    """Return the least exponent that takes all units to 1."""
    m = rng.randrange(8, 64)
    units = [a for a in range(1, m) if gcd(a, m) == 1]
    order = {a: next(k for k in range(1, m) if pow(a, k, m) == 1) for a in units}
    least, count = lcm(*order.values()), len(units)

    def serves(k: int, among: Iterable[int]) -> bool:
        return all(pow(a, k, m) == 1 for a in among)

    return Draft(
        rf"Let \(a\) be an integer with \(\gcd(a, {m}) = 1\). {_ASKED} the positive exponents \(k\) with "
        rf"\(a^k \equiv 1 \pmod{{{m}}}\)?",
        Claim(rf"\(k = {least}\) is among these exponents.", 1 < least < count and serves(least, units)),
        Claim(rf"\(k = {count}\) is one.", serves(count, units)),
        (
            Claim(
                rf"\(k = {least}\) is the least of these exponents for every integer \(a\) of this kind.",
                set(order.values()) == {least},
            ),
            Claim(rf"\(k = {least // 2}\) is always among these positive exponents.", serves(least // 2, units)),
            Claim(
                rf"\(k = {least}\) is among these exponents for all integers \(a\), even if \(\gcd(a, {m}) > 1\).",
                serves(least, range(m)),
            ),
            Claim(
                rf"These exponents are exactly the multiples of \({least}\), for each such integer \(a\).",
                set(order.values()) == {least},
            ),
        ),
    )


def residues(rng: random.Random) -> Draft:
    """Return how many values a power takes modulo a prime."""
    p, k = rng.choice([7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43]), rng.randrange(2, 7)
    values = [pow(x, k, p) for x in range(p)]
    count, taken = len(set(values)), rng.choice(values[2:])
    power = rf"\(x^{k}\)"
    return Draft(
        rf"Let \(x\) run through the integers. {_ASKED} the values that {power} takes modulo \({p}\)?",
        Claim(rf"{power} takes \({count}\) values modulo \({p}\).", count < p - 2),
        Claim(rf"At most \({count + 2}\) of them occur.", count + 2 < p),
        (
            Claim(rf"{power} takes every value modulo \({p}\) as \(x\) runs through the integers.", count == p),
            Claim(
                rf"{power} takes exactly \({count}\) values modulo \({p}\), each of them for equally many \(x\).",
                len({values.count(value) for value in values}) == 1,
            ),
            Claim(
                rf"{power} never takes the value \({taken}\) modulo \({p}\), and it takes all the others.",
                set(values) == set(range(p)) - {taken},
            ),
            Claim(
                rf"{power} and \(y^{k}\) have the same value modulo \({p}\) only if \(x \equiv \pm y\).",
                all(u in (v, p - v) for u in range(1, p) for v in range(1, p) if values[u] == values[v]),
            ),
        ),
    )


def amounts(rng: random.Random) -> Draft:
    """Return which amounts two kinds of stamps make up."""
    a, b = sorted(rng.sample(range(3, 17), 2))
    made = {a * i + b * j for i in range(b + 1) for j in range(a + 1)}
    missing = [amount for amount in range(1, a * b) if amount not in made]
    last = missing[-1]
    # With a run of `a` amounts that can be made up, a stamp of `a` more makes up all that follow.
    on = gcd(a, b) == 1 and made.issuperset(range(last + 1, last + 1 + a))
    return Draft(
        rf"There are stamps of \({a}\) and of \({b}\) cents. {_ASKED} the amounts of cents that stamps can make up?",
        Claim(rf"The stamps can make up amounts from \({last + 1}\) cents on.", on),
        Claim(rf"They can make up \({a * b}\) cents or more.", on and last < a * b),
        (
            Claim(rf"The stamps can make up all amounts from \({last}\) cents on, \({last}\) included.", last in made),
            Claim(rf"The stamps can make up every amount above \({b}\) cents, however large.", last <= b),
            Claim(
                rf"The stamps can make up an amount if and only if it is at least \({last + 1}\) cents.",
                made.isdisjoint(range(1, last + 1)),
            ),
            Claim(
                rf"There is exactly one amount of cents that the stamps never make up, and it is \({last}\).",
                len(missing) == 1,
            ),
        ),
    )


def pairs(rng: random.Random) -> Draft:
    """Return how large a set has to be to hold a pair of some kind."""
    top = rng.randrange(6, 13)
    template, related = rng.choice(_RELATIONS)
    said = template.format(top=top)

    def found(size: int) -> list[int]:
        """Return how many such pairs each set of that size holds."""
        sets = combinations(range(1, top + 1), size)
        return [sum(related(x, y, top) for x, y in combinations(chosen, 2)) for chosen in sets]

    least = next((size for size in range(2, top) if min(found(size)) > 0), top)
    enough, fewer = found(least), found(least - 1)
    return Draft(
        rf"Let \(A\) be a set of positive integers up to \({top}\). {_ASKED} elements of the set \(A\) that {said}?",
        Claim(rf"If the set \(A\) has \({least}\) elements, two of them {said}.", 2 < least < top and min(enough) > 0),
        Claim(rf"With \({least + 1}\) of them, two {said}.", least < top and min(found(least + 1)) > 0),
        (
            Claim(
                rf"Every set \(A\) of \({least - 1}\) elements has two elements that {said}, however it is chosen.",
                min(fewer) > 0,
            ),
            Claim(
                rf"If the set \(A\) has \({least}\) elements, every two elements of the set \(A\) {said}.",
                min(enough) == least * (least - 1) // 2,
            ),
            Claim(
                rf"Two elements of the set \(A\) {said} if and only if it has at least \({least}\) elements.",
                all(max(found(size)) == 0 for size in range(2, least)),
            ),
            Claim(
                rf"If the set \(A\) has \({least}\) elements, there are always exactly two elements of it that {said}.",
                set(enough) == {1},
            ),
        ),
    )


DRAFTS: tuple[Callable[[random.Random], Draft], ...] = (divisor_of_values, exponents, residues, amounts, pairs)


def drafts(rng: random.Random) -> Iterator[Draft]:
    """Yield sound drafts without end, each question once, a kind after the other."""
    asked: set[str] = set()
    while True:
        for make in DRAFTS:
            draft = make(rng)
            while not draft.sound or draft.question in asked:
                draft = make(rng)
            asked.add(draft.question)
            yield draft


def record(number: int, draft: Draft, rng: random.Random) -> dict[str, object]:
    """Return a draft as a record, laid out as in the benchmark's files: the right choice apart from the others."""
    wrong = rng.sample(draft.false, CHOICES - 2)
    if number % _WILDCARD_RIGHT == 0:
        right, others = WILDCARD, [draft.weaker.text, *wrong]
    elif rng.random() < _WITH_WILDCARD:
        right, others = draft.strongest.text, [draft.weaker.text, *wrong[:-1], WILDCARD]
    else:
        right, others = draft.strongest.text, [draft.weaker.text, *wrong]
    return {
        "no": number,
        "month": "sample",
        "theorem": draft.strongest.text,
        "mcq": {
            "question": draft.question,
            "correct_choice": {"label": "A", "text": right},
            "choices": lettered(rng.sample(others, len(others))),
        },
    }


def lettered(texts: Sequence[str]) -> list[dict[str, str]]:
    """Return choices from B on; A is the right one."""
    return [{"label": label, "text": text} for label, text in zip("BCDE", texts, strict=True)]


def main(folder: Path = FOLDER) -> None:
    """Write train, val and test."""
    rng = random.Random(SEED)  # noqa: S311
    made = enumerate(drafts(rng), start=1)
    records = [record(number, draft, rng) for (number, draft), _ in zip(made, range(sum(SIZES.values())), strict=False)]
    for split, size in SIZES.items():
        part, records = records[:size], records[size:]
        path = folder / split / "items.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(part, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
