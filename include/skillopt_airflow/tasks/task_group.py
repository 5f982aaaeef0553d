"""The section `task` of a benchmark.yaml: a benchmark by its data alone, without Python (docs/tasks.md).

Rules of taking and scoring an answer have names: each is one class, and one line here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Discriminator, Field, SerializeAsAny, Tag, ValidationError, field_serializer

from skillopt_airflow.core.config.group import Group, explain
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.tasks.scoring.choice_match import ChoiceLetter, ChoiceMatch
from skillopt_airflow.tasks.scoring.extraction import Boxed, Extraction, InTags, LastLine, RegexMatch
from skillopt_airflow.tasks.scoring.figure_match import FigureMatch
from skillopt_airflow.tasks.scoring.json_fields import JsonAnswer, JsonFields, ListMatch
from skillopt_airflow.tasks.scoring.number_match import NumberMatch
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring
from skillopt_airflow.tasks.scoring.text_match import Anls, Contains, Exact, Matches, TokenF1

if TYPE_CHECKING:
    from skillopt_airflow.core.config.train_config import TrainConfig

ANSWER_RULES: Mapping[str, type[Extraction]] = {
    "tags": InTags,
    "last_line": LastLine,
    "json": JsonAnswer,
    "choice": ChoiceLetter,
    "boxed": Boxed,
    "regex": RegexMatch,
}
SCORING_RULES: Mapping[str, type[Scoring]] = {
    "exact": Exact,
    "f1": TokenF1,
    "contains": Contains,
    "number": NumberMatch,
    "figures": FigureMatch,
    "choice": ChoiceMatch,
    "anls": Anls,
    "regex": Matches,
    "list": ListMatch,
    "json": JsonFields,
}


def _one_of(rules: Mapping[str, Any], key: str) -> Any:
    """Return the annotation of a field that holds one of the rules, chosen by the value of a key."""
    attribute = {"from": "from_"}.get(key, key)

    def name(value: Any) -> Any:
        return value.get(key) if isinstance(value, Mapping) else getattr(value, attribute, None)

    return Annotated[
        Union[tuple(Annotated[rule, Tag(tag)] for tag, rule in rules.items())],  # noqa: UP007 - made from the map
        Discriminator(
            name,
            custom_error_type="unknown_rule",
            custom_error_message=f"expected the key {key!r} with one of: {', '.join(rules)}",
        ),
    ]


if TYPE_CHECKING:
    AnswerRule = Extraction
    ScoringRule = Scoring
else:
    AnswerRule = _one_of(ANSWER_RULES, "from")
    """A field of this type takes `{from: tags, tag: final}` and the like."""
    ScoringRule = _one_of(SCORING_RULES, "by")
    """A field of this type takes `{by: number, relative: 0.01}` and the like."""


Column = Annotated[str, Field(min_length=1)]


def _list(value: Any) -> Any:
    if isinstance(value, str):
        # A template begins like a mapping of YAML.
        raise ValueError(f"write a list: [{repr(value) if '{{' in value else value}]")
    return value


def _no_mapping(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError('braces without quotation marks are a mapping of YAML; write the template as "{{ question }}"')
    return value


Columns = Annotated[tuple[Column, ...], BeforeValidator(_list)]


class TaskGroup(Group):
    """The columns of a record, the prompt made of them, and how an answer is taken and scored."""

    prompt: Annotated[str, Field(min_length=1), BeforeValidator(_no_mapping)]
    """Jinja template of the message to the target; its variables are the columns of a record."""
    reference: Column
    """Column of the right answer, in the form that the rule of scoring takes."""
    id: Column | None = None
    """Column of a text or whole number that no two records share; a hash of the whole record when unset."""
    group: Column | None = None
    """Column of what a record shares with others, such as its document: tests and intervals take these for one
    observation. Records are taken as independent when unset."""
    answer: SerializeAsAny[AnswerRule] = InTags()
    """The rule that takes the answer from a response: `from` names it, and it may have keys of its own."""
    score: SerializeAsAny[ScoringRule]
    """The rule that compares the answer with the reference: `by` names it, and it may have keys of its own."""
    files: Columns = ()
    """Files of an item, as paths below the data's folder: a column that holds one or a list, or a template of one with
    {{ }}, where * in the file's name stands for any characters. They need harness tools, codex or claude_code."""
    pictures: Columns = ()
    """Pictures of an item that the target is shown, named as `files` are; `#page=3` behind a path is a page of a PDF or
    TIFF. In the prompt their columns stand for them; those that are not in the prompt come before it."""
    alternatives: bool = False
    """True if a text in the reference's column is a list of alternatives, in JSON or Python, where it begins with [:
    the cell of a CSV file can hold one in no other way."""

    judge: Annotated[str, Field(min_length=1)] | None = None
    """What counts as agreement with the reference, in words: a model then judges the answers that the rule of scoring
    does not find right. Only the rule judges when unset."""

    @field_serializer("answer")
    def _as_written(self, rule: AnswerRule) -> dict[str, Any]:
        """Return the rule with the key `from`, by which it is found again; a field cannot have that name."""
        return rule.model_dump(by_alias=True)


class _Section(Group):
    task: TaskGroup | None


KEYS = (
    *(f"task.{key}" for key in TaskGroup.model_fields),
    *(
        f"task.{knob}.{name}.{field.alias or key}"
        for knob, rules in (("answer", ANSWER_RULES), ("score", SCORING_RULES))
        for name, rule in rules.items()
        for key, field in rule.model_fields.items()
    ),
)
"""The keys of the section and of all rules, as an error about one has them: those of a rule behind its name."""


def read_config(*layers: Mapping[str, Any]) -> "TrainConfig":
    """Merge nested layers, later ones win, and validate, the section `task` included.

    Raises:
        ConfigError: naming each offending key with its path and what is allowed there.
    """
    # A container reads the section alone.
    from skillopt_airflow.core.config.train_config import TrainConfig

    config = TrainConfig.from_layers(*layers)
    task = task_of(config.task)
    return config.model_copy(update={"task": None if task is None else task.model_dump(mode="json")})


def task_of(section: JsonObject | None) -> TaskGroup | None:
    """Return the section `task` of a configuration.

    Raises:
        ConfigError: as `read_config`.
    """
    try:
        return _Section.model_validate({"task": section}).task
    except ValidationError as error:
        raise ConfigError(explain(error, KEYS)) from None
