"""Read sections of `key = value`."""


class ConfError(ValueError):
    """A line that is neither a section, a setting nor a comment."""


def read(text: str) -> dict[str, dict[str, str]]:
    """Return the settings by section; those before the first section are in the section "".

    A line that begins with # or ; is a comment. An indented line goes on with the value above it.
    """
    sections: dict[str, dict[str, str]] = {}
    section, key = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        if line[0].isspace() and key:
            sections[section][key] += "\n" + bare
        elif bare.startswith("[") and bare.endswith("]"):
            section, key = bare[1:-1].strip(), ""
            sections.setdefault(section, {})
        elif "=" in bare:
            key, _, value = (part.strip() for part in bare.partition("="))
            sections.setdefault(section, {})[key] = unquoted(value)
        else:
            raise ConfError(f"line {number}: {bare!r} has no =")
    return sections


def unquoted(value: str) -> str:
    """Take off one pair of equal quotes around a value."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
