"""The stand-in as judge: it compares words, whatever stands between them."""

import re
from typing import Any

from local.standin.stage_request import Sections

MOST_QUOTED = 200
"""Characters of a quote."""


def judge(prompt: str) -> dict[str, Any]:
    """Return the grade of the request's answer; raise ModelError on a malformed request."""
    sections = Sections(prompt)
    references = sections.json("references", list[str])
    answer = sections.json("answer", str).strip()
    if not answer:
        return {"grade": "not_attempted", "quote": "", "reason": "There is no answer."}
    agrees = next((one for one in references if _words(one) and _words(one) == _words(answer)), None)
    if agrees is None:
        return {"grade": "incorrect", "quote": answer[:MOST_QUOTED], "reason": "It names something else."}
    return {"grade": "correct", "quote": answer[:MOST_QUOTED], "reason": f"It says what {agrees!r} says."}


def judge_steps(prompt: str) -> dict[str, Any]:
    """Return the steps all of whose words the request's answer has; raise ModelError on a malformed request."""
    sections = Sections(prompt)
    paths = sections.json("paths", list[list[str]])
    answer = sections.json("answer", str).strip()
    said = set(_words(answer))
    places = [(number, place) for number, path in enumerate(paths) for place in range(len(path))]
    taken = [(number, place) for number, place in places if said.issuperset(_words(paths[number][place]))]
    return {"taken": [{"path": path, "step": step, "quote": answer[:MOST_QUOTED]} for path, step in taken]}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
