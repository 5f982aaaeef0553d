"""Trajectories as plain text for the optimizer, with short item numbers, cut to the room of a prompt."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from skillopt_airflow.core.values.pictures import NO_SIZES, Pictures, PictureSizes
from skillopt_airflow.core.values.text import longest_that_fits, shortened
from skillopt_airflow.core.values.types import Message, Rollout, Status, Value
from skillopt_airflow.optimizer.sections import section

MIN_CHARS = 200
"""Minimum number of characters shown of each message."""
_ENDINGS = {
    Status.TRUNCATED: "The last answer hit the token limit and ends there.",
    Status.EMPTY: "The last answer has no text.",
}


def _number(value: object) -> object:
    found = re.search(r"\d{1,9}", value) if isinstance(value, str) else None
    return value if not isinstance(value, str) else int(found[0]) if found else 0


ItemNumber = Annotated[int, BeforeValidator(_number)]
"""The number of an item in an answer, which a model may write as `Item 3`; 0 for none."""


class FollowUp(Value):
    """A question to the target about one of its trajectories, and the answer."""

    question: str
    answer: str


class Exhibits(NamedTuple):
    """Additional material for an analyst, by item id."""

    follow_ups: Mapping[str, FollowUp] = MappingProxyType({})
    """The target's answers to questions about an item's first trajectory."""
    sizes: PictureSizes = NO_SIZES
    """Sizes of the pictures that the target saw."""
    pictures: Mapping[str, Pictures] = MappingProxyType({})
    """The pictures that the analyst sees as well."""

    def labeled_pictures(self, numbers: Mapping[str, int]) -> Pictures:
        """Return the pictures with labels made of their name and their item's number."""
        return {
            f"{name} of item {numbers[item_id]}": content
            for item_id, pictures in self.pictures.items()
            for name, content in pictures.items()
        }


NO_EXHIBITS = Exhibits()


class Quote(NamedTuple):
    """A text from outside; the longest quotes are cut if a prompt has no room for all."""

    label: str
    text: str


Piece = str | Quote
"""A line of the prompt itself, or a quote."""


def numbers_of(rollouts: Sequence[Rollout]) -> dict[str, int]:
    """Return the numbers of the items in a prompt, from 1, in their order."""
    return {
        item_id: number
        for number, item_id in enumerate(dict.fromkeys(one.trajectory.item_id for one in rollouts), start=1)
    }


def item_ids_of(numbers: Mapping[str, int], chosen: Iterable[int]) -> tuple[str, ...]:
    """Return the ids of the items whose numbers an answer gives, without unknown numbers."""
    by_number = {number: item_id for item_id, number in numbers.items()}
    return tuple(by_number[number] for number in dict.fromkeys(chosen) if number in by_number)


def trajectories_section(rollouts: Sequence[Rollout], room: int, exhibits: Exhibits = NO_EXHIBITS) -> str:
    """Show the rollouts with their scores in `room` characters; samples of the same item are numbered."""
    numbers = numbers_of(rollouts)
    pieces: list[Piece] = []
    for item_id, group in groupby(rollouts, key=lambda rollout: rollout.trajectory.item_id):
        samples = list(group)
        for place, rollout in enumerate(samples, start=1):
            which = f", sample {place} of {len(samples)}" if len(samples) > 1 else ""
            pieces += _pieces(rollout, f"## Item {numbers[item_id]}{which}")
            if place == 1:
                pieces += _exhibits(item_id, exhibits)
    return quotes_section("trajectories", pieces, room)


def outcomes_section(rollouts: Sequence[Rollout], room: int) -> str:
    """Show only the first message to the target and the scorer's feedback, in `room` characters."""
    pieces: list[Piece] = []
    for number, rollout in enumerate(rollouts, start=1):
        feedback = "" if rollout.score is None else rollout.score.feedback
        pieces += [f"## Item {number}", *as_quotes(conversation(rollout)[:1]), Quote("scorer's feedback", feedback)]
    return quotes_section("trajectories", pieces, room)


def quotes_section(tag: str, pieces: Sequence[Piece], room: int) -> str:
    """Put the pieces between tags; the longest quotes keep only head and tail if there is no room for all."""
    quotes = [piece for piece in pieces if isinstance(piece, Quote)]
    own = sum(len(_fenced(piece._replace(text=""))) if isinstance(piece, Quote) else len(piece) for piece in pieces)
    most = max(MIN_CHARS, longest_that_fits([len(quote.text) for quote in quotes], room - own - len(pieces)))
    text = "\n".join(
        _fenced(piece._replace(text=shortened(piece.text, most))) if isinstance(piece, Quote) else piece
        for piece in pieces
    )
    # A quote can't end the section.
    return section(tag, text.replace(f"</{tag}>", f"< /{tag}>"))


def conversation(rollout: Rollout) -> tuple[Message, ...]:
    """Return the messages without the system message: its skill is already in the prompt."""
    return tuple(message for message in rollout.trajectory.messages if message.role != "system")


def as_quotes(messages: Sequence[Message]) -> list[Quote]:
    return [Quote(message.role, message.content) for message in messages]


def _pieces(rollout: Rollout, title: str) -> list[Piece]:
    one, score = rollout.trajectory, rollout.score
    scored = "no score" if score is None else f"hard {score.hard:g}, soft {score.soft:g}"
    ending = _ENDINGS.get(one.status)
    return [
        f"{title}: {scored}",
        *as_quotes(conversation(rollout)),
        *([ending] if ending is not None else []),
        Quote("answer as extracted", one.answer),
        *([Quote("scorer's feedback", score.feedback)] if score is not None and score.feedback.strip() else []),
    ]


def _exhibits(item_id: str, exhibits: Exhibits) -> list[Piece]:
    pieces: list[Piece] = [
        f"picture {size.name}: {size.width} x {size.height} pixels" for size in exhibits.sizes.get(item_id, ())
    ]
    if item_id in exhibits.follow_ups:
        asked = exhibits.follow_ups[item_id]
        pieces += [Quote("follow-up question", asked.question), Quote("follow-up answer", asked.answer)]
    return pieces


def _fenced(quote: Quote) -> str:
    """Put a quote between fences that are longer than any fence inside it."""
    inside = max((len(run) for run in re.findall("~{3,}", quote.text)), default=2)
    fence = "~" * (inside + 1)
    return f"{fence} {quote.label}\n{quote.text}\n{fence}"
