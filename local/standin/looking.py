"""A subject of questions on pictures: the stand-in writes down what it sees of them, and answers by that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local.standin.directive import Directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Case, Subject, Tool
from local.standin.transcription import transcribed, transcription


@dataclass(frozen=True)
class Looking(Subject):
    """The wording of such a benchmark."""

    directives: Sequence[Directive]
    empty_advice: Sequence[tuple[str, str]]
    asks: str
    """The words of a prompt that ask for the answer, behind its question."""
    see: Callable[[bytes], str]
    """Writes down what a picture shows."""
    reply: Callable[[str, str, Active], str]
    """Ends a reply with the answer to a question by what was seen."""
    case_of: Callable[[str, str, str, str], Case]
    """Makes a case of an item's id, its question, what was seen and what was expected."""
    tools: Mapping[str, Tool] = field(default_factory=dict)

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks for an answer in this benchmark's words."""
        return self.asks in prompt

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return what is seen, then the answer."""
        seen = [self.see(picture) for picture in pictures]
        return transcription(seen) + self.reply(self._question(prompt), "\n".join(seen), active)

    def case(self, trajectory: SeenTrajectory) -> Case | None:
        """Return the item by what the target wrote down of its pictures; None if nobody said what was expected."""
        expected = trajectory.references
        if not expected:
            return None
        seen = "\n".join(transcribed(trajectory))
        return self.case_of(trajectory.item_id, self._question(trajectory.prompt), seen, expected[0])

    def _question(self, prompt: str) -> str:
        return prompt.partition(self.asks)[0]
