"""The section `task` of benchmark.yaml, which declares a benchmark without Python (docs/tasks.md).

Each rule that extracts or scores answers is one class, and one line in a map here.
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
    """Return the annotation of a field whose type is one of the rules, by the value of a key."""
    attribute = {"from": "from_"}.get(key, key)

    def name(value: Any) -> Any:
        return value.get(key) if isinstance(value, Mapping) else getattr(value, attribute, None)

    return Annotated[
        Union[tuple(Annotated[rule, Tag(tag)] for tag, rule in rules.items())],  # noqa: UP007 - built from the map
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
        # In YAML, an unquoted template looks like a mapping.
        raise ValueError(f"write a list: [{repr(value) if '{{' in value else value}]")
    return value


def _no_mapping(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError('YAML reads braces without quotes as a mapping. Write the template as "{{ question }}"')
    return value


Columns = Annotated[tuple[Column, ...], BeforeValidator(_list)]


class TaskGroup(Group):
    """The columns of a record, the prompt template, and the rules that extract and score answers."""

    prompt: Annotated[str, Field(min_length=1), BeforeValidator(_no_mapping)]
    """Jinja template of the message to the target; its variables are the columns of a record."""
    reference: Column
    """Column of the right answer, in the format of the scoring rule."""
    id: Column | None = None
    """Column of a string or integer that is unique per record. Default: a hash of the whole record."""
    group: Column | None = None
    """Column of the group of related records, such as their document. Tests and intervals count a group as one
    observation. Default: records are independent."""
    answer: SerializeAsAny[AnswerRule] = InTags()
    """The rule that extracts the answer from a response: `from` names it, and it may have its own keys."""
    score: SerializeAsAny[ScoringRule]
    """The rule that compares the answer with the reference: `by` names it, and it may have its own keys."""
    files: Columns = ()
    """Files of an item, as paths below the data folder. Each entry is a column with a path or a list of paths, or a
    template of a path; * in a file name matches any characters. Requires harness tools, codex or claude_code."""
    pictures: Columns = ()
    """Pictures of an item that the target sees, named like `files`; `#page=3` after a path selects a page of a PDF or
    TIFF. The prompt can place them by their columns; the others come before the prompt."""
    alternatives: bool = False
    """Read a string in the reference column that starts with [ as a list of alternatives, in JSON or Python, as in
    CSV files."""

    judge: Annotated[str, Field(min_length=1)] | None = None
    """A description of agreement with the reference. A judge model then grades the answers that the scoring rule
    doesn't accept. Default: only the rule scores answers."""

    @field_serializer("answer")
    def _as_written(self, rule: AnswerRule) -> dict[str, Any]:
        """Return the rule with its key `from`, which can't be the name of a field."""
        return rule.model_dump(by_alias=True)


class _Section(Group):
    task: TaskGroup


KEYS = (
    *(f"task.{key}" for key in TaskGroup.model_fields),
    *(
        f"task.{knob}.{name}.{field.alias or key}"
        for knob, rules in (("answer", ANSWER_RULES), ("score", SCORING_RULES))
        for name, rule in rules.items()
        for key, field in rule.model_fields.items()
    ),
)
"""The keys of the section and of all rules, as errors name them: keys of a rule follow its name."""


def read_config(*layers: Mapping[str, Any]) -> "TrainConfig":
    """Like `TrainConfig.from_layers`, and also validate the section `task`."""
    # Imported here because a container reads only the section.
    from skillopt_airflow.core.config.train_config import TrainConfig

    config = TrainConfig.from_layers(*layers)
    if config.task is None:
        return config
    return config.model_copy(update={"task": task_of(config.task).model_dump(mode="json")})


def task_of(section: JsonObject) -> TaskGroup:
    """Return the section `task` of a configuration; raise ConfigError, which names each invalid key."""
    try:
        return _Section.model_validate({"task": section}).task
    except ValidationError as error:
        raise ConfigError(explain(error, KEYS)) from None
