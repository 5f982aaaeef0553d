"""Makes the sample: statements of elementary number theory and combinatorics, whose truth is computed here.

`python -m benchmarks.livemathematicianbench.make_sample` writes the same files every time. A question asks for the
strongest statement that can be proved. Beside it stand a weaker one, some that claim too much, each with a
counterexample that was found, and mostly one that states nothing itself. Now and then the strongest is left out, as in
the benchmark's own files, and then the one that states nothing is right.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd
from pathlib import Path

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 24, "val": 20, "test": 40}
SEED = 42
WILDCARD = "One of the remaining options is correct, but a stronger result can be proven."
CHOICES = 5
_ASKED = "What is the strongest statement that can be proved about"
_WITH_WILDCARD = 0.85
"""Share of the items that offer the choice which states nothing itself."""
_WILDCARD_RIGHT = 0.12
"""Share of the items in which that choice is the right one."""


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
        """Those of the last kind that turned out to be false indeed."""
        return [claim.text for claim in self.too_strong if not claim.holds]

    @property
    def sound(self) -> bool:
        """Whether the truths are as they should be."""
        return self.strongest.holds and self.weaker.holds and len(self.false) >= CHOICES - 2


def divisor_of_values(rng: random.Random) -> Draft:
    """The greatest number that divides all values of a polynomial."""
    formula, power = rng.choice(
        [
            ("n^3-n", lambda n: n**3 - n),
            ("n^5-n", lambda n: n**5 - n),
            ("n^7-n", lambda n: n**7 - n),
            ("n^2-1", lambda n: n**2 - 1),
            ("n^4-1", lambda n: n**4 - 1),
            ("n^6-1", lambda n: n**6 - 1),
            ("n^3+5n", lambda n: n**3 + 5 * n),
            ("n^4-n^2", lambda n: n**4 - n**2),
            ("n^6-n^2", lambda n: n**6 - n**2),
        ]
    )
    said, modulus = rng.choice(
        [("odd", 2), ("prime to 3", 3), ("prime to 6", 6), ("prime to 10", 10), ("prime to 15", 15)]
    )
    numbers = [n for n in range(2, 400) if gcd(n, modulus) == 1]
    found = gcd(*map(power, numbers))
    # Values and condition repeat with this period, so that one period proves the rest.
    period = found * modulus
    half = found // min((p for p in (2, 3, 5, 7) if found % p == 0), default=1)
    value = rf"\({formula}\)"
    return Draft(
        rf"Let \(n > 1\) be an integer that is {said}. {_ASKED} the divisors of {value}?",
        Claim(
            rf"{value} has \({found}\) among its divisors, while larger common divisors of these values do not exist.",
            all(power(n) % found == 0 for n in range(period) if gcd(n, modulus) == 1) and found > half > 1,
        ),
        Claim(rf"{value} is a multiple of \({half}\).", all(power(n) % half == 0 for n in numbers)),
        (
            Claim(
                rf"{value} always has \({2 * found}\) among its divisors.",
                all(power(n) % (2 * found) == 0 for n in numbers),
            ),
            Claim(
                rf"{value} has \({found}\) among its divisors for every integer \(n > 1\), no matter whether it is {said}.",
                all(power(n) % found == 0 for n in range(2, 400)),
            ),
            Claim(
                rf"The divisors of {value} are exactly the divisors of \({found}\), for all such \(n\).",
                all(power(n) == found for n in numbers),
            ),
            Claim(
                rf"{value} has \({found}\) among its divisors if and only if \(n\) is {said}.",
                all((power(n) % found == 0) == (gcd(n, modulus) == 1) for n in range(2, 400)),
            ),
        ),
    )


def exponents(rng: random.Random) -> Draft:
    """The least exponent that takes all units to 1."""
    m = rng.randrange(8, 64)
    units = [a for a in range(1, m) if gcd(a, m) == 1]
    order = {a: next(k for k in range(1, m) if pow(a, k, m) == 1) for a in units}
    least = next(k for k in range(1, m) if all(pow(a, k, m) == 1 for a in units))
    return Draft(
        rf"Let \(a\) be an integer with \(\gcd(a, {m}) = 1\). {_ASKED} the positive exponents \(k\) with "
        rf"\(a^k \equiv 1 \pmod{{{m}}}\)?",
        Claim(
            rf"\(k = {least}\) is among these exponents, and a smaller positive \(k\) fails for some integer \(a\).",
            all(least % order[a] == 0 for a in units) and least < len(units) and least > 1,
        ),
        Claim(rf"\(k = {len(units)}\) is among them.", all(pow(a, len(units), m) == 1 for a in units)),
        (
            Claim(
                rf"\(k = {least}\) is the least of these exponents for every such \(a\).",
                set(order.values()) == {least},
            ),
            Claim(
                rf"\(k = {least // 2}\) is always among these positive exponents.",
                all(pow(a, least // 2, m) == 1 for a in units),
            ),
            Claim(
                rf"\(k = {least}\) is among the exponents for all integers \(a\), and never depends on \(\gcd(a, {m})\).",
                all(pow(a, least, m) == 1 for a in range(m)),
            ),
            Claim(
                rf"The positive exponents are exactly the multiples of \({least}\), for each such \(a\).",
                set(order.values()) == {least},
            ),
        ),
    )


def residues(rng: random.Random) -> Draft:
    """How many values a power takes modulo a prime."""
    p, k = rng.choice([7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43]), rng.randrange(2, 7)
    values = [pow(x, k, p) for x in range(p)]
    count, taken = len(set(values)), rng.choice(values[2:])
    power = rf"\(x^{k}\)"
    return Draft(
        rf"Let \(x\) run through the integers. {_ASKED} the values that {power} takes modulo \({p}\)?",
        Claim(rf"{power} takes \({count}\) values modulo \({p}\) as \(x\) runs through the integers.", count < p - 3),
        Claim(rf"At most \({count + 2}\) values occur.", count <= count + 2 < p),
        (
            Claim(rf"{power} takes every value modulo \({p}\).", count == p),
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
                all(u in (v, p - v) for u in range(p) for v in range(p) if values[u] == values[v]),
            ),
        ),
    )


def amounts(rng: random.Random) -> Draft:
    """Which amounts two kinds of stamps pay."""
    a, b = sorted(rng.sample(range(3, 17), 2))
    limit = a * b
    paid = {a * i + b * j for i in range(b + 1) for j in range(a + 1)}
    unpaid = [amount for amount in range(1, limit) if amount not in paid]
    last = unpaid[-1] if gcd(a, b) == 1 else 0
    return Draft(
        rf"There are stamps of \({a}\) and of \({b}\) cents. {_ASKED} the amounts of cents that stamps can make up?",
        Claim(
            rf"The stamps can make up amounts from \({last + 1}\) cents on, but not \({last}\) cents.",
            gcd(a, b) == 1 and last == a * b - a - b,
        ),
        Claim(rf"They can make up \({limit}\) cents or more.", gcd(a, b) == 1 and last < limit),
        (
            Claim(rf"The stamps can make up all amounts from \({last}\) cents on.", last in paid),
            Claim(rf"The stamps can make up every amount above \({b}\) cents.", last <= b),
            Claim(
                rf"The stamps can make up an amount if and only if it is at least \({last + 1}\) cents.",
                all(amount not in paid for amount in range(1, last + 1)),
            ),
            Claim(
                rf"There is exactly one amount of cents that the stamps never make up, and it is \({last}\).",
                len(unpaid) == 1,
            ),
        ),
    )


def pairs(rng: random.Random) -> Draft:
    """How large a set has to be to hold a pair of some kind."""
    top = rng.randrange(6, 13)
    said, related = rng.choice(
        [
            ("differ by 1", lambda x, y: y - x == 1),
            ("differ by 2", lambda x, y: y - x == 2),
            (rf"have the sum \({top + 1}\)", lambda x, y: x + y == top + 1),
            ("divide one another", lambda x, y: y % x == 0),
            ("have no common divisor above 1", lambda x, y: gcd(x, y) == 1),
        ]
    )
    found = {
        size: [
            sum(related(*pair) for pair in combinations(chosen, 2)) for chosen in combinations(range(1, top + 1), size)
        ]
        for size in range(2, top + 1)
    }
    least = next((size for size in found if min(found[size]) > 0), 0)
    enough = found.get(least, [0])
    return Draft(
        rf"Let \(A\) be a set of positive integers up to \({top}\). {_ASKED} elements of the set \(A\) that {said}?",
        Claim(
            rf"If the set \(A\) has \({least}\) elements, two of its elements {said}; "
            rf"with \({least - 1}\) elements that may fail.",
            2 < least < top and min(enough) > 0 and min(found[least - 1]) == 0,
        ),
        Claim(rf"With \({least + 1}\) of them, two {said}.", min(found.get(least + 1, [0])) > 0),
        (
            Claim(
                rf"Every set \(A\) of \({least - 1}\) elements has two elements that {said}.",
                min(found.get(least - 1, [1])) > 0,
            ),
            Claim(
                rf"If the set \(A\) has \({least}\) elements, each two of its elements {said}.",
                min(enough) == least * (least - 1) // 2,
            ),
            Claim(
                rf"Two elements of the set \(A\) {said} if and only if it has at least \({least}\) elements.",
                all(max(found[size]) == 0 for size in found if size < least),
            ),
            Claim(
                rf"If the set \(A\) has \({least}\) elements, exactly two of all its elements {said}.",
                set(enough) == {1},
            ),
        ),
    )


DRAFTS: tuple[Callable[[random.Random], Draft], ...] = (divisor_of_values, exponents, residues, amounts, pairs)


def drafts(rng: random.Random) -> Iterator[Draft]:
    """Sound drafts without end, each question once, a kind after the other."""
    asked: set[str] = set()
    while True:
        for make in DRAFTS:
            draft = make(rng)
            while not draft.sound or draft.question in asked:
                draft = make(rng)
            asked.add(draft.question)
            yield draft


def record(number: int, draft: Draft, rng: random.Random) -> dict[str, object]:
    """A draft as a record, laid out as in the benchmark's files: the right choice apart from the others."""
    wrong = rng.sample(draft.false, CHOICES - 2)
    if rng.random() < _WILDCARD_RIGHT:
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
    """Choices from B on; A is the right one."""
    return [{"label": label, "text": text} for label, text in zip("BCDE", texts, strict=True)]


def main(folder: Path = FOLDER) -> None:
    """Write train, val and test."""
    rng = random.Random(SEED)  # noqa: S311
    made = enumerate(drafts(rng), start=1)
    records = [record(number, draft, rng) for (number, draft), _ in zip(made, range(sum(SIZES.values())), strict=False)]
    rng.shuffle(records)
    for split, size in SIZES.items():
        part, records = records[:size], records[size:]
        path = folder / split / "items.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(part, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
