"""MMRB (Multimodal Multi-image Reasoning Benchmark): questions about several pictures."""

import re
from collections.abc import Awaitable, Callable, Sequence
from string import punctuation, whitespace
from typing import Any

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.pictures import mark, picture_suffix
from skillopt_airflow.core.values.types import Item, ItemFile, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.grading import ENDS, GradingRequest
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import field_error, text_at
from skillopt_airflow.tasks.scoring.choice_match import ChoiceLetter, choices_by_letter, choices_named, stated_line
from skillopt_airflow.tasks.scoring.extraction import Boxed, Extraction, InTags, last_line
from skillopt_airflow.tasks.scoring.number_match import NumberMatch, numbers
from skillopt_airflow.tasks.scoring.scoring_rule import MAX_ANSWER_CHARS
from skillopt_airflow.tasks.scoring.text_match import Contains, normalize

EMBEDDED, PATHS, FOLDER = "images", "image_paths", "folder"
_OFFICIAL = re.compile(r"\banswer\s*\[(?P<answer>[^\[\]]*)\]", re.IGNORECASE)
_LABEL = re.compile(r"\s*\(?(?P<letter>[A-Z])[).:]\s*")
_UNNUMBERED = "<image>"
_PLACE = re.compile(rf"{_UNNUMBERED}|\{{image#\d+\}}")
"""Placeholder of a picture; in options, the number can be missing."""
_PLAIN_NUMBER = re.compile(r"[-+\d.,/%$\s]*\d[-+\d.,/%$\s]*")
_NUMBER = r"[-+$]*\.?\d[\d./%]*"
_SEVERAL_NUMBERS = re.compile(rf"[\s(\[]*{_NUMBER}(?:(?:[\s,;()\[\]]|\band\b)+{_NUMBER})+[\s).\]]*")
_REQUEST = "Reply with the answer inside <answer></answer> tags{}."


class MMRB:
    """Records with source, subtask, index, question, options, answer, and `images` or `image_paths`.

    `{image#1}` is the placeholder of the first picture. Paths are relative to the record's file.
    """

    runs_code = False
    text_columns = ("source", "subtask", "question")
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        """Return `source:subtask:index`."""
        index = record.get("index")
        if isinstance(index, bool) or not isinstance(index, int | str):
            raise field_error(("index",), "a number", index)
        return f"{text_at(record, 'source')}:{text_at(record, 'subtask')}:{index}"

    def item(self, record: JsonObject) -> Item:
        """Return an item with picture marks in place of the placeholders."""
        identity, labelled, files = self.identity(record), _options(record), _pictures(record)
        asked, unlabelled = text_at(record, "question"), _without_labels(labelled)
        question, options = _shown(asked, unlabelled, files)
        public: JsonObject = {"question": question, "options": [*options]}
        if unlabelled != labelled and _held(labelled, asked):
            public["options_in_question"] = True
        given = record.get("answer")
        answer = "" if given is None else str(given).strip()
        if not answer or (options and not choices_named(answer, choices_by_letter(public["options"], "options"))):
            raise DataError(f"answer: expected {'a choice of the options' if options else 'a text'}, got {answer!r}")
        steps = _steps(record)
        reference: JsonObject = {"answer": answer, **({"steps": steps} if steps else {})}
        return Item(id=identity, public=public, reference=reference, files=files)

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        return (Message(role="system", content=skill), Message(role="user", content=self.task(public)))

    def task(self, public: JsonObject) -> str:
        """Return the question, with its options unless it contains them."""
        choices = choices_by_letter(public["options"], "options") if public["options"] else {}
        options = "".join(f"\n({letter}) {text}" for letter, text in choices.items())
        request = _REQUEST.format(": the letter of the right option" if choices else "")
        listed = f"\n{options}" if options and "options_in_question" not in public else ""
        return f"{public['question']}{listed}\n\n{request}"

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return none, because the prompt shows the pictures."""
        return ()

    def answer(self, response: str) -> str:
        """Return the content of <answer> tags, `Answer[]`, or a box, else a stated letter, else the last line."""
        said = _said(response, ChoiceLetter())
        # "A" can be an article, as in "The answer is A Tree".
        return said if said != "A" else _said(response, Boxed(), stated_line(response))

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 for exactly the right choice, an equal number, or a matching text."""
        expected, answered = str(item.reference["answer"]), _answered(item, trajectory)
        if len(answered) > MAX_ANSWER_CHARS:
            right = False
        elif item.public["options"]:
            choices = choices_by_letter(item.public["options"], "options")
            right = choices_named(answered, choices) == choices_named(expected, choices)
        else:
            right = _agree(answered, expected)
        return Score(hard=float(right), soft=float(right), feedback=f'expected "{expected}"; answered "{answered}"')

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        """Return True, because the rules decide every answer."""
        return True

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest:
        """Ask for the steps in the response, or for the answer's correctness if the item has no steps."""
        replies = _replies(trajectory)
        known: Any = item.reference.get("steps", [])
        paths = tuple(tuple(path) for path in known)
        return GradingRequest(
            question=self.task(item.public),
            references=(str(item.reference["answer"]),),
            answer=replies[-1] if paths and replies else _answered(item, trajectory),
            paths=paths,
        )


def _options(record: JsonObject) -> list[str]:
    options = record.get("options")
    if options in (None, "", []):
        return []
    if not isinstance(options, list) or not all(isinstance(option, str) and option.strip() for option in options):
        raise field_error(("options",), "a list of texts, which is empty for an open question", options)
    return [str(option) for option in options]


def _without_labels(texts: list[str]) -> list[str]:
    """Return options without their letters if the letters are in order."""
    labels = [_LABEL.match(text) for text in texts]
    in_order = all(label and label["letter"] == chr(ord("A") + place) for place, label in enumerate(labels))
    return [text[label.end() :] for text, label in zip(texts, labels, strict=True) if label] if in_order else texts


def _steps(record: JsonObject) -> list[Any]:
    """Return the dataset's reasoning paths, with its corrections."""
    found: Any = record.get("reasoning_steps") or []
    try:
        paths = [[str(step.get("rationale_fix") or step["rationale"]) for step in path] for path in found]
    except (AttributeError, KeyError, TypeError) as error:
        raise field_error(("reasoning_steps",), "lists of steps with a rationale", found) from error
    return [path for path in paths if len(path) > len(ENDS)]


def _pictures(record: JsonObject) -> tuple[ItemFile, ...]:
    column = EMBEDDED if record.get(EMBEDDED) else PATHS
    paths, folder = record.get(column), record.get(FOLDER, "")
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise field_error((column,), "a list of pictures' paths", paths)
    below = f"{folder}/" if folder and column == PATHS else ""
    return tuple(
        ItemFile(name=f"picture-{number}{picture_suffix(str(path))}", path=f"{below}{path}".strip("/ "), picture=True)
        for number, path in enumerate(paths, start=1)
    )


def _held(options: Sequence[str], question: str) -> bool:
    """Return whether a question contains all options, like the published ones."""
    asked = _PLACE.sub(_UNNUMBERED, question)
    return all(_PLACE.sub(_UNNUMBERED, option).strip() in asked for option in options)


def _shown(question: str, options: Sequence[str], files: Sequence[ItemFile]) -> tuple[str, list[str]]:
    """Replace placeholders by picture marks; append pictures without placeholders to the question."""
    marks = {f"{{image#{number}}}": mark(file.name) for number, file in enumerate(files, start=1)}
    behind = [
        f"\nPicture {number}: {picture}"
        for number, (place, picture) in enumerate(marks.items(), start=1)
        if not any(place in text for text in (question, *options))
    ]
    shown, *choices = (_PLACE.sub(lambda place: marks.get(place[0], place[0]), text) for text in (question, *options))
    return shown + "".join(behind), choices


def _replies(trajectory: Trajectory) -> list[str]:
    return [message.content for message in trajectory.messages if message.role == "assistant"]


def _answered(item: Item, trajectory: Trajectory) -> str:
    """Return the answer; without options, a stated letter isn't one."""
    replies = _replies(trajectory)
    return trajectory.answer if item.public["options"] or not replies else _said(replies[-1], Boxed())


def _said(response: str, untagged: Extraction, otherwise: str | None = None) -> str:
    """Return the tagged answer, else the result of `untagged`, else `otherwise`, by default the last line."""
    found, official = InTags().find(response), _OFFICIAL.findall(response)
    if found is None:
        found = official[-1] if official else untagged.find(response)
    if found is None:
        found = last_line(response) if otherwise is None else otherwise
    return found.strip()


def _agree(answered: str, expected: str) -> bool:
    """Compare an open answer: numbers must be equal, and of two texts one must contain the other."""
    if _PLAIN_NUMBER.fullmatch(expected) and len(numbers(expected)) == 1:
        return bool(NumberMatch().compare(answered, expected)[0])
    if _SEVERAL_NUMBERS.fullmatch(expected) and numbers(expected):
        return _same_numbers(answered, expected)
    one, other = normalize(answered), normalize(expected)
    if not one or not other:
        return answered.strip().lower() == expected.lower() or _points_off(answered) == _points_off(expected) != ""
    told, wanted = ({number.value for number in numbers(text)} for text in (answered, expected))
    # Words are compared without punctuation, which makes 1.5 and 15 equal.
    if told and wanted and not (told <= wanted or wanted <= told):
        return False
    return any(Contains().compare(*pair)[0] for pair in ((answered, expected), (expected, answered)))


def _points_off(text: str) -> str:
    return text.strip(f"{whitespace}{punctuation}").lower()


def _same_numbers(answered: str, expected: str) -> bool:
    """Return whether two texts have the same numbers in order; `100,200` can be one number or two."""
    apart = [re.sub(r"(?<=\d),(?=\d)", ", ", text) for text in (answered, expected)]
    read = ([[number.value for number in numbers(text)] for text in texts] for texts in ([answered, expected], apart))
    return any(told == wanted for told, wanted in read)


BENCHMARK = MMRB()
