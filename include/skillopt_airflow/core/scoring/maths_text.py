"""Comparing short answers of mathematics by their wording: LaTeX and plain spellings of one value are one text."""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

MAX_CHARS = 2000
"""A longer answer is compared as it stands, but for blanks and case."""
MAX_DEPTH = 12
"""Levels of nested braces that are resolved."""
MAX_DIGITS = 50
"""Characters of a number that is compared as a number."""
_SUPERSCRIPTS = str.maketrans({"²": "^2", "³": "^3", "−": "-", "–": "-"})
_INSIDE = r"\{([^{}]*)\}"
_SPELLINGS = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!>()\[\]]|\\q?quad(?![A-Za-z])|[~$]"), " "),
    # What 35° becomes when its bytes are read in a Chinese encoding; two of MathVerse's answers have it.
    (re.compile(r"\^?\s*(?:\{\s*)?\\(?:circ|degree)(?![a-z])\s*\}?|掳|º|(?<=\d)\s*degrees?\b"), "°"),
    (re.compile(r"\\leq?(?![A-Za-z])|≤"), "<="),
    (re.compile(r"\\geq?(?![A-Za-z])|≥"), ">="),
    (re.compile(r"\\infty(?![A-Za-z])|∞"), " inf "),
    (re.compile(r"\\cup(?![A-Za-z])|∪"), " U "),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])|[×⋅·]"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"π"), " pi "),
    (re.compile(r"√\s*(\d+|[A-Za-z]|\([^()]*\))"), r"\\sqrt{\1}"),
    (re.compile(r"\\(sqrt|[dtc]?frac)\s+(?=\{)"), r"\\\1"),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
)
_BRACED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"\\(?:text|mathrm|mathbf|textbf|textrm|operatorname)\s*{_INSIDE}"), lambda found: f" {found[1]} "),
    (re.compile(rf"\\sqrt{_INSIDE}"), lambda found: f"sqrt{_grouped(found[1], least=1)}"),
    (re.compile(rf"\\[dtc]?frac{_INSIDE}\s*{_INSIDE}"), lambda found: f" {_product(found[1])}/{_grouped(found[2])}"),
    (re.compile(rf"([\^_])\s*{_INSIDE}"), lambda found: f"{found[1]}{_grouped(found[2], least=2)}"),
)
_APART = re.compile(r"(?<=\d)\s+(?=\d|\.\d)")
"""Blanks that count: 1 1/2 is not 11/2, but the `14 .` of `$14$.` is 14."""
_UNIT = (
    r"(?:°[a-z]?|%|(?:(?:cubic|square)?units?|[cmk]?m|in|inch|inches|ft|feet|yd|mi|[mk]?g|lb|[m]?l|litres?|liters?|s|min|h)"
    r"(?:\^?[23])?)"
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?"
_QUANTITY = re.compile(rf"(?P<number>[-+]?{_DIGITS})(?:/(?P<below>\d+(?:\.\d+)?))?(?P<rest>(?![\d,./]).*)", re.DOTALL)
_VALUE = rf"[-+]?{_DIGITS}(?:pi|sqrt\(\d+\)|/\d+)*{_UNIT}?"
_NAMED = re.compile(rf"(?P<name>[a-z][a-z.]*)=(?P<value>(?=.){_VALUE})")


def same_maths(answer: str, expected: str) -> bool:
    r"""Return whether two texts certainly give the same value, as `\frac{4}{5}` and 0.8 do; False says nothing.

    A name before a value, as in `Area = 12 cm^2`, may be left out, the unit may not.
    """
    (whole, name, value), (wanted, asked, sought) = _read(answer), _read(expected)
    if not whole or not wanted:
        return False
    comparable = not name or not asked or name == asked
    return _same(whole, wanted) or (comparable and _same(value, sought))


def plain_maths(text: str) -> str:
    """Return a text in the spelling by which texts are compared: lower case, no blanks, no LaTeX commands."""
    if len(text) > MAX_CHARS:
        return "".join(text.lower().split())
    text = unicodedata.normalize("NFKC", text.translate(_SUPERSCRIPTS))
    for spelling, replacement in _SPELLINGS:
        text = spelling.sub(replacement, text)
    for _ in range(MAX_DEPTH):
        before = text
        for pattern, made in _BRACED:
            text = pattern.sub(made, text)
        if text == before:
            break
    return "".join(_APART.sub("_", text.replace("\\", "").lower()).split()).rstrip(".,;")


def _read(text: str) -> tuple[str, str, str]:
    """Return the whole text, the name before its value, and the value; these are empty and the text without a name."""
    plain = plain_maths(text)
    named = _NAMED.fullmatch(plain)
    return (plain, named["name"], named["value"]) if named else (plain, "", plain)


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    (number, rest), (wanted, behind) = _quantity(one), _quantity(other)
    return number is not None and number == wanted and rest == behind


def _quantity(text: str) -> tuple[Fraction | None, str]:
    """Return the number that a text begins with, and what follows, such as its unit."""
    found = _QUANTITY.fullmatch(text)
    number = found["number"].replace(",", "") if found else ""
    if found is None or not any(map(str.isdigit, number)) or len(number) > MAX_DIGITS:
        return None, text
    below = Fraction(found["below"] or "1") if len(found["below"] or "") <= MAX_DIGITS else Fraction(0)
    return (Fraction(number) / below, found["rest"]) if below else (None, text)


def _product(text: str) -> str:
    text = text.strip()
    return f"({text})" if re.search(r"(?<=.)[-+]", text) else text


def _grouped(text: str, least: int = MAX_CHARS) -> str:
    """Return a text in parentheses; a letter, or a number shorter than `least` characters, goes without."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")") and ")" not in text[:-1]:
        return text
    return text if len(text) < least and re.fullmatch(r"\d+|\w", text) else f"({text})"
