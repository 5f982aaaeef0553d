"""The directive, and the turns of phrase that the wordings of several have in common."""

import re
from dataclasses import dataclass

LEAVE_OUT = (
    r"\b(?:leav(?:e|ing) out|skip\w*|exclud\w+|ignor\w+|discard\w*|drop\w*|rul(?:e|ing) out|reject\w*|eliminat\w+|"
    r"disregard\w*|filter\w* out|"
    r"(?:do not|don't|never|avoid) (?:\w+ )?(?:answer|repeat|reus|use|using|echo|copy|choos|pick|giv)\w*)"
)
PREFER = (
    r"\b(?:prefer\w*|favou?r\w*|trust\w*|weigh\w*|rely\w* on|focus\w* on|prioriti[sz]\w+|rank\w*|choos\w+|pick\w*|"
    r"tak(?:e|ing)|us(?:e|ing)|look\w*|start\w*|read\w*|search\w*|giv(?:e|ing)|count\w*|"
    r"boost\w*|valu(?:e|ing)|answer\w*|emphasi[sz]\w+|check\w*|writ(?:e|ing))"
)


@dataclass(frozen=True)
class Directive:
    """Something that a skill may ask of the reader.

    `patterns` recognise it in lower-case clauses; `rules` are wordings with which the optimizer asks for it, and
    `reason` is what it says for it. A tempting directive sounds right whether or not the evidence speaks for it.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...]
    rules: tuple[str, ...]
    reason: str
    tempting: bool = False


def directive(
    name: str,
    patterns: list[str],
    rules: list[str],
    reason: str,
    *,
    tempting: bool = False,
) -> Directive:
    """Return a directive from the sources of its patterns."""
    compiled = tuple(re.compile(pattern) for pattern in patterns)
    return Directive(name, compiled, tuple(rules), reason, tempting)


def gap(most: int, *barred: str) -> str:
    """Return up to `most` characters of a clause, none of which begins a barred word."""
    return rf"(?:(?!\b(?:{'|'.join(barred)})).){{0,{most}}}" if barred else f".{{0,{most}}}"
