"""Choices that look arbitrary and are a pure function of a text."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Option = TypeVar("Option")


def fraction(*parts: str) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def pick(options: Sequence[Option], *parts: str) -> Option:
    """Return one of the options, which must not be empty."""
    return options[int(fraction(*parts) * len(options))]
