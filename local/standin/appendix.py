"""The stand-in as optimizer, stage consolidate: the notes of the appendix made fewer."""

from collections import defaultdict
from typing import Any

from local.standin.directives import recognise
from local.standin.requests import ConsolidateRequest
from local.standin.words import key


def consolidate(request: ConsolidateRequest) -> dict[str, Any]:
    """A note for all that ask for the same or have the same words; above `most` the last ones share one.

    Every note with words in it is the source of exactly one.
    """
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, note in enumerate(request.notes):
        if note.strip():
            asked = sorted(recognise(note))
            groups[" ".join(asked) if asked else f"words: {key(note)}"].append(index)
    united = [(request.notes[sources[0]], sources) for sources in groups.values()]
    if request.most is not None and len(united) > request.most:
        first, rest = united[: max(request.most - 1, 0)], united[max(request.most - 1, 0) :]
        text = " ".join(note.strip() for note, _ in rest)
        united = [*first, (text, sorted(index for _, sources in rest for index in sources))]
    notes = [{"text": " ".join(note.split()), "sources": sources} for note, sources in united]
    return {"notes": notes[: request.most]}
