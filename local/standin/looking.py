"""A subject of questions on pictures: the stand-in writes down what it sees of them, and answers by that."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from local.standin.directive import Directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Case, Tool
from local.standin.transcription import transcribed, transcription


class Looking:
    """Base of such subjects: what they have in common once an item has been looked at."""

    name: str
    directives: Sequence[Directive]
    empty_advice: Sequence[tuple[str, str]]
    tools: Mapping[str, Tool] = {}
    asks: str
    """The words of a prompt that ask for the answer, behind its question."""

    @abstractmethod
    def see(self, picture: bytes) -> str:
        """Return what there is to see, as it is written down."""

    @abstractmethod
    def reply(self, question: str, seen: str, active: Active) -> str:
        """Return the end of a reply, with the answer by what was seen."""

    @abstractmethod
    def tried(self, item_id: str, question: str, seen: str, expected: str) -> Case:
        """Return the item by what was seen and expected."""

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks for an answer in this benchmark's words."""
        return self.asks in prompt

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return what is seen, then the answer."""
        seen = [self.see(picture) for picture in pictures]
        return f"{transcription(seen)}{self.reply(self._question(prompt), chr(10).join(seen), active)}"

    def shown_by(self, trajectory: SeenTrajectory) -> bool:
        """Return whether the prompt is one of this benchmark."""
        return self.speaks_of(trajectory.prompt)

    def case(self, trajectory: SeenTrajectory) -> Case | None:
        """Return the item by what the target wrote down of its pictures; None if nobody said what was expected."""
        expected = trajectory.references
        if not expected:
            return None
        seen = "\n".join(transcribed(trajectory))
        return self.tried(trajectory.item_id, self._question(trajectory.prompt), seen, expected[0])

    def _question(self, prompt: str) -> str:
        return prompt.partition(self.asks)[0]
