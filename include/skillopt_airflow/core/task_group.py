"""The section `task` of a benchmark.yaml: a benchmark by its data alone, without Python (docs/tasks.md)."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny, field_serializer

from skillopt_airflow.core.config_group import Group
from skillopt_airflow.core.scoring.extraction import InTags
from skillopt_airflow.core.scoring.rules import ANSWER_RULES, SCORING_RULES, AnswerRule, ScoringRule

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


RULE_KEYS = tuple(
    f"task.{knob}.{name}.{field.alias or key}"
    for knob, rules in (("answer", ANSWER_RULES), ("score", SCORING_RULES))
    for name, rule in rules.items()
    for key, field in rule.model_fields.items()
)
"""The keys of all rules, as an error about one has them: behind the name of the rule."""
