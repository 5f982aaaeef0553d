"""Benchmarks that the section `task` of benchmark.yaml declares, with and without a judge model."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count

from pydantic import JsonValue

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.pictures import mark, picture_suffix
from skillopt_airflow.core.values.types import (
    FILE_NAME,
    Item,
    ItemFile,
    JsonObject,
    Message,
    Score,
    Trajectory,
    canonical_json,
    sha256,
)
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.tasks.prompt_template import PromptTemplate
from skillopt_airflow.tasks.protocols import Benchmark, Workspace
from skillopt_airflow.tasks.record_fields import field_error, name_of, short_repr, value_at, without
from skillopt_airflow.tasks.scoring.scoring_rule import MAX_ANSWER_CHARS, parse_list
from skillopt_airflow.tasks.task_group import TaskGroup

PROMPT, REFERENCE = "prompt", "reference"
ID_CHARS = 16
"""Length of the hash that serves as the id of a record without one."""
MAX_PICTURES = 50
MAX_READ_CHARS = 20_000


def declared_benchmark(task: TaskGroup) -> Benchmark:
    """Return the benchmark that the section describes; only one with files or pictures supports agents."""
    if task.judge is not None:
        return JudgedFilesTask(task) if task.files or task.pictures else JudgedDeclaredTask(task)
    return DeclaredFilesTask(task) if task.files or task.pictures else DeclaredTask(task)


class DeclaredTask:
    """Items whose public part is the rendered prompt and the columns that the scoring rule reads."""

    runs_code = False
    text_columns: tuple[str, ...] = ()
    list_columns: tuple[str, ...] = ()

    def __init__(self, task: TaskGroup) -> None:
        self._section = task

    def identity(self, record: JsonObject) -> str:
        """Return the value of the id column; the record's hash if no column is set."""
        column = self._section.id
        return sha256(canonical_json(record))[:ID_CHARS] if column is None else _name(record, column)

    def item(self, record: JsonObject) -> Item:
        task = self._section
        public: JsonObject = {PROMPT: self._prompt_of(without(record, task.reference))}
        public |= {column: _present(record, column, "task.score") for column in task.score.columns}
        reference = _span_texts(_present(record, task.reference, "task.reference"))
        try:
            reference = parse_list(reference) if task.alternatives else reference
            task.score.check(reference, public)
        except DataError as error:
            raise DataError(f"{task.reference}: {error}") from error
        group = "" if task.group is None else _name(record, task.group)
        return Item(id=self.identity(record), public=public, reference={REFERENCE: reference}, group=group)

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        return (Message(role="system", content=skill), Message(role="user", content=str(public[PROMPT])))

    def answer(self, response: str) -> str:
        return self._section.answer.extract(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        return self._section.score.score(trajectory.answer, item.reference[REFERENCE], item.public)

    def _prompt_of(self, record: JsonObject) -> str:
        return self._prompt.render(record)

    @cached_property
    def _prompt(self) -> PromptTemplate:
        return checked_prompt(self._section)


def checked_prompt(task: TaskGroup) -> PromptTemplate:
    """Return the template of a section's prompt; raise ConfigError if it shows the reference, or reads no column."""
    prompt = PromptTemplate("task.prompt", task.prompt)
    if task.reference in prompt.columns:
        raise ConfigError(
            f"task.prompt shows the target the column {task.reference}, which is the answer (task.reference). "
            "Remove it from the prompt"
        )
    if not (prompt.columns or task.files or task.pictures):
        raise ConfigError(
            f"task.prompt = {short_repr(task.prompt)}: it reads no column, so all records get the same prompt. "
            f"{prompt.hint}"
        )
    return prompt


class DeclaredFilesTask(DeclaredTask):
    """Items with pictures, which the target sees, or files, which an agent reads.

    The harness `tools` offers tools for that; agent CLIs use their own.
    """

    @property
    def needs_agent(self) -> bool:
        return bool(self._section.files)

    def item(self, record: JsonObject) -> Item:
        item = super().item(record)
        record = without(record, self._section.reference)
        paths = [path for entry in self._section.files for path in _paths("task.files", entry, record)]
        files = tuple(ItemFile(name=_plain_name(path), path=path) for path in paths)
        _check_names(files)
        if self.needs_agent and not files:
            raise DataError("task.files: the record names no file")
        pictures = [file for found in self._pictures(record).values() for file in found]
        if len(pictures) > MAX_PICTURES:
            raise DataError(f"task.pictures: an item can have {MAX_PICTURES} pictures, not {len(pictures)}")
        return item.model_copy(update={"files": (*files, *pictures)})

    def task(self, public: JsonObject) -> str:
        return str(public[PROMPT])

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        async def list_files() -> str:
            """List the names of the task's files."""
            return "\n".join(workspace.input_names())

        async def read_file(name: str, start: int = 0) -> str:
            """Read a text file of the task from a position; shows how many characters follow.

            Args:
                name: one of the names that list_files returns.
                start: the number of characters to skip.
            """
            text = workspace.read_input(name).decode("utf-8-sig", errors="replace")
            end = max(0, start) + MAX_READ_CHARS
            rest = f"\n[{len(text) - end} more characters; read on with start={end}]" if len(text) > end else ""
            return text[max(0, start) : end] + rest

        return (list_files, read_file) if self.needs_agent else ()

    def _prompt_of(self, record: JsonObject) -> str:
        marks = {entry: [mark(file.name) for file in files] for entry, files in self._pictures(record).items()}
        columns: JsonObject = {
            entry: [*found] if isinstance(record[entry], list) else found[0]
            for entry, found in marks.items()
            if entry in record and found
        }
        prompt = self._prompt.render(record | columns)
        return "\n".join((*(one for found in marks.values() for one in found if one not in prompt), prompt))

    def _pictures(self, record: JsonObject) -> dict[str, list[ItemFile]]:
        found: dict[str, list[ItemFile]] = {}
        number = count(1)
        for entry in self._section.pictures:
            has_none = "{{" not in entry and value_at(record, entry) in (None, "")
            paths = [] if has_none else _paths("task.pictures", entry, record)
            found[entry] = [
                ItemFile(name=f"picture-{next(number)}{picture_suffix(path)}", path=path, picture=True)
                for path in paths
            ]
        return found


class JudgedDeclaredTask(DeclaredTask):
    """Items whose answers a judge model grades unless the scoring rule accepts them."""

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        """Return whether the rule accepts the answer, or there is no answer."""
        return not trajectory.answer.strip() or self.score(item, trajectory).hard == 1

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest:
        """Return a request with the prompt as the question, and the section's description of agreement."""
        reference = item.reference[REFERENCE]
        right = reference if isinstance(reference, list) else [reference]
        return GradingRequest(
            question=str(item.public[PROMPT]),
            references=tuple(one if isinstance(one, str) else canonical_json(one) for one in right),
            answer=trajectory.answer,
            instructions=self._section.judge or "",
        )


class JudgedFilesTask(JudgedDeclaredTask, DeclaredFilesTask):
    """Judged items with files or pictures, which the judge doesn't see."""


def _present(record: JsonObject, column: str, key: str) -> JsonValue:
    value = value_at(record, column)
    if value is None:
        columns = ", ".join(name for name, found in record.items() if found is not None)
        problem = f"the record has no {column!r}, or it is empty; its columns: {columns}"
        raise DataError(f"{key}: {problem}. Fill it in, or remove the record")
    return value


def _span_texts(reference: JsonValue) -> JsonValue:
    """Return the texts of a reference in SQuAD's format (text and answer_start); any other reference unchanged."""
    spans = reference if isinstance(reference, list) else [reference]
    if not spans or not all(isinstance(span, dict) and span.keys() == {"text", "answer_start"} for span in spans):
        return reference
    return value_at(reference, "text")


def _name(record: JsonObject, column: str) -> str:
    return name_of(value_at(record, column), column).strip()


def _paths(key: str, entry: str, record: JsonObject) -> Iterator[str]:
    """Yield the paths that an entry of task.files or task.pictures gives: a column's values, or a rendered template."""
    if "{{" in entry:
        yield PromptTemplate(key, entry).render(record).strip("/ ")
        return
    value = _present(record, entry, key)
    for path in value if isinstance(value, list) else [value]:
        if not isinstance(path, str) or not path.strip("/ "):
            raise field_error((entry,), "the path of a file below the data folder, or a list of them", value)
        yield path.strip("/ ")


def _check_names(files: Sequence[ItemFile]) -> None:
    by_name: dict[str, str] = {}
    for file in files:
        if by_name.get(file.name) == file.path:
            raise DataError(f"task.files: {file.path!r} is named twice")
        if file.name in by_name:
            raise DataError(
                f"task.files: {by_name[file.name]!r} and {file.path!r} have the same name for the target, {file.name}, "
                "without folders and with _ for all characters except A to Z, digits, ., _ and -. Rename one"
            )
        by_name[file.name] = file.path


def _plain_name(path: str) -> str:
    """Return the file's name as the target sees it: without `*`, and with _ for special characters."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", path.rpartition("/")[2].replace("*", "")).lstrip(".")
    if not re.fullmatch(FILE_NAME, name):
        raise DataError(f"task.files: {path!r} doesn't end in a file name of 1 to 100 characters")
    return name


QUESTION, CHOICES, RIGHT = "question", "choices", "right"


class JudgedTask(DeclaredFilesTask):
    """Declared items whose reference has the question, its choices by letter, and the right letters.

    Without choices the reference is a string. A benchmark defines `decision`.
    """

    def __init__(self, task: TaskGroup, instructions: str) -> None:
        super().__init__(task)
        self._instructions = instructions

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        """Return whether a non-empty answer is right; None if the rules can't decide."""
        raise NotImplementedError

    def question_item(
        self, record: JsonObject, question: str, choices: Mapping[str, str], right: frozenset[str]
    ) -> Item:
        item = super().item(record)
        reference: JsonObject = {QUESTION: question, CHOICES: dict(choices), RIGHT: [*sorted(right)]}
        return item.model_copy(update={"reference": item.reference | reference})

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 if the rules are certain that the answer is right, else 0."""
        certain = self._certain(item, trajectory)
        doubt, right = "; the rules cannot tell whether it agrees" if certain is None else "", float(certain is True)
        feedback = f'expected "{" or ".join(_expected(item))}"; answered "{trajectory.answer}"{doubt}'
        return Score(hard=right, soft=right, feedback=feedback)

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        return self._certain(item, trajectory) is not None

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest:
        """Return a request that a judge model can answer without the picture."""
        question, choices = str(item.reference[QUESTION]), choices_of(item.reference)
        listed = "".join(f"\n{letter}. {text}" for letter, text in choices.items() if text)
        return GradingRequest(
            question=f"{question}{listed}",
            references=tuple(_expected(item)),
            answer=trajectory.answer,
            instructions=self._instructions,
        )

    def _certain(self, item: Item, trajectory: Trajectory) -> bool | None:
        answer = trajectory.answer.strip()
        return self.decision(answer, item.reference) if 0 < len(answer) <= MAX_ANSWER_CHARS else False


def choices_of(reference: JsonObject) -> dict[str, str]:
    choices = reference[CHOICES]
    return {letter: str(text) for letter, text in choices.items()} if isinstance(choices, dict) else {}


def right_letters(reference: JsonObject) -> frozenset[str]:
    right = reference[RIGHT]
    return frozenset(map(str, right)) if isinstance(right, list) else frozenset()


def _expected(item: Item) -> list[str]:
    choices, letters = choices_of(item.reference), sorted(right_letters(item.reference))
    if not letters:
        return [str(item.reference[REFERENCE])]
    return [", ".join(f"{letter}: {choices[letter]}" if choices.get(letter) else letter for letter in letters)]
