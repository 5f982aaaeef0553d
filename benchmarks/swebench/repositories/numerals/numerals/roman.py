"""Roman numerals from 1 to 3999."""

LETTERS = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip


def to_roman(number: int) -> str:
    """Write a number; ValueError outside of 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"{number} has no Roman numeral")
    written = ""
    for value, letters in LETTERS:
        written += letters * (number // value)
        number %= value
    return written


def from_roman(text: str) -> int:
    """Read a numeral in either case; ValueError for anything that `to_roman` would not write."""
    rest = text.strip().upper()
    total = 0
    for value, letters in LETTERS:
        while rest.startswith(letters):
            total += value
            rest = rest[len(letters) :]
    if rest or total == 0 or total > 3999 or to_roman(total) != text.strip().upper():
        raise ValueError(f"{text!r} is no Roman numeral")
    return total
