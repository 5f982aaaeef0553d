"""Texts that fit into a width."""


def shorten(text: str, width: int, mark: str = "...") -> str:
    """Return a text of at most so many characters; one that is cut ends with the mark, as far as that fits."""
    if len(text) <= width:
        return text
    if width <= len(mark):
        return mark[:width]
    return text[: width - len(mark)].rstrip() + mark


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken at blanks; a word that is longer than the width is broken inside."""
    lines: list[str] = []
    line = ""
    for whole in text.split():
        word = whole
        if line and len(line) + 1 + len(word) <= width:
            line += " " + word
            continue
        if line:
            lines.append(line)
        while len(word) > width:
            lines.append(word[:width])
            word = word[width:]
        line = word
    return [*lines, line] if line else lines
