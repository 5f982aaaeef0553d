"""Makes the sample: statements of elementary number theory whose truth is computed here, one right among five.

`python -m benchmarks.livemathematicianbench.make_sample` writes the same files every time.
"""

import json
import random
from collections.abc import Callable
from math import comb, gcd, isqrt
from pathlib import Path

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 24, "val": 24, "test": 40}
SEED = 20260101
_WILDCARD = "One of the remaining options is correct, but a stronger result can be proven."
_OPEN = "No such number can be given without a further assumption."
_NONE = "None of the remaining statements is true as it stands."
Draft = tuple[str, str, list[str]]
"""Question, right statement, wrong statements."""


def divisors(number: int) -> list[int]:
    """All positive divisors."""
    return [d for d in range(1, number + 1) if number % d == 0]


def divisor_count(rng: random.Random) -> Draft:
    """How many divisors a number has."""
    number = rng.randrange(24, 180)
    count = len(divisors(number))
    question = f"Let n = {number}, and let d(n) be the number of positive divisors of n. Which statement on d(n) holds?"
    right = f"d(n) is {count}, with n itself and 1 among the divisors that are counted."
    return (
        question,
        right,
        [
            f"d(n) is exactly {count + 1}, and every divisor of n is counted twice.",
            f"d(n) is {count + 2}, with n itself and 1 among the divisors that are counted.",
            f"d(n) is always a square for each n that is not prime, so d(n) is {isqrt(count) ** 2 + 1}.",
        ],
    )


def common_divisor(rng: random.Random) -> Draft:
    """The greatest common divisor of two numbers."""
    step = rng.randrange(3, 15)
    a, b = step * rng.randrange(4, 30), step * rng.randrange(4, 30) + step
    found = gcd(a, b)
    question = f"Let a = {a} and b = {b}. Which statement on the common divisors of a and b holds?"
    right = f"The greatest of the common divisors of a and b is {found}."
    return (
        question,
        right,
        [
            f"The greatest of the common divisors of a and b is {found + 1}.",
            f"Every common divisor of a and b divides {found + 1}, and {found + 1} is the unique greatest one.",
            f"All common divisors of a and b are exactly the divisors of {found * 2 + 1}, whichever they are.",
        ],
    )


def remainder(rng: random.Random) -> Draft:
    """A power modulo a small number."""
    base, exponent, modulus = rng.randrange(2, 12), rng.randrange(5, 40), rng.randrange(5, 14)
    rest = pow(base, exponent, modulus)
    question = f"Let x be {base} to the power {exponent}. Which statement on the remainder of x modulo {modulus} holds?"
    right = f"The remainder of x modulo {modulus} is {rest}."
    return (
        question,
        right,
        [
            f"The remainder of x modulo {modulus} is {(rest + 1) % modulus}.",
            f"The remainder of every power of {base} modulo {modulus} is always {(rest + 2) % modulus}.",
            f"The remainder of x modulo {modulus} is {(rest + 3) % modulus} if and only if x is even.",
        ],
    )


def subsets(rng: random.Random) -> Draft:
    """Subsets of a given size."""
    size = rng.randrange(6, 14)
    chosen = rng.randrange(2, size - 2)
    count = comb(size, chosen)
    question = f"Let S be a set of {size} elements. Which statement on the subsets of S with {chosen} elements holds?"
    right = f"The number of subsets of S with {chosen} elements is {count}."
    return (
        question,
        right,
        [
            f"The number of subsets of S with {chosen} elements is {count + size}.",
            f"All subsets of S with {chosen} elements are exactly {count - 1} many, and each holds all.",
            f"The number of subsets of S with {chosen} elements is {comb(size, chosen - 1)}.",
        ],
    )


def primes_between(rng: random.Random) -> Draft:
    """Primes in an interval."""
    start = rng.randrange(20, 200)
    stop = start + rng.randrange(12, 40)
    count = sum(len(divisors(number)) == 2 for number in range(start, stop + 1))
    question = f"Which statement on the primes p with {start} <= p <= {stop} holds?"
    right = f"The number of primes p with {start} <= p <= {stop} is {count}."
    return (
        question,
        right,
        [
            f"The number of primes p with {start} <= p <= {stop} is {count + 1}.",
            f"Every prime p with {start} <= p <= {stop} has only prime neighbours, and there are exactly {count + 2}.",
            f"There is never a prime p with {start} <= p <= {stop} that is odd, in all {count + 3} cases.",
        ],
    )


DRAFTS: tuple[Callable[[random.Random], Draft], ...] = (
    divisor_count,
    common_divisor,
    remainder,
    subsets,
    primes_between,
)


def record(number: int, rng: random.Random) -> dict[str, object]:
    """One record, laid out as in the benchmark's files: the right choice apart from the others."""
    while True:
        question, right, wrong = DRAFTS[number % len(DRAFTS)](rng)
        last = rng.choice([_WILDCARD, _WILDCARD, _NONE, _OPEN])
        others = [*wrong, last]
        if len({right, *others}) == len(others) + 1:
            break
    rng.shuffle(others)
    labels = "BCDE"
    return {
        "no": number,
        "month": "sample",
        "mcq": {
            "question": question,
            "correct_choice": {"label": "A", "text": right},
            "choices": [{"label": label, "text": text} for label, text in zip(labels, others, strict=True)],
        },
    }


def main(folder: Path = FOLDER) -> None:
    """Write train, val and test."""
    rng, number = random.Random(SEED), 0  # noqa: S311
    for split, size in SIZES.items():
        records = []
        for _ in range(size):
            number += 1
            records.append(record(number, rng))
        path = folder / split / "items.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(records, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
