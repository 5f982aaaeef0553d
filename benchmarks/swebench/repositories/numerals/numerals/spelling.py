"""Numbers in English words."""

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """Write a number between -999999 and 999999: `one hundred and five`."""
    if number < 0:
        return f"minus {in_words(-number)}"
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        joint = " and " if rest < 100 else " "
        return f"{in_words(thousands)} thousand" + (f"{joint}{in_words(rest)}" if rest else "")
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{ONES[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
    if number < 20:
        return ONES[number]
    tens, rest = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[rest]}" if rest else "")


def ordinal(number: int) -> str:
    """Write `1st`, `2nd`, `3rd`, `4th`, `11th`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}" + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
