"""Rules of taking an answer from a response and of scoring it, by name: each is one class, and one line here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from skillopt_airflow.core.scoring.choice_match import ChoiceLetter, ChoiceMatch
from skillopt_airflow.core.scoring.extraction import Boxed, Extraction, InTags, LastLine, RegexMatch
from skillopt_airflow.core.scoring.figure_match import FigureMatch
from skillopt_airflow.core.scoring.json_answer import JsonAnswer
from skillopt_airflow.core.scoring.json_fields import JsonFields, ListMatch
from skillopt_airflow.core.scoring.number_match import NumberMatch
from skillopt_airflow.core.scoring.scoring_rule import Scoring
from skillopt_airflow.core.scoring.text_match import Anls, Contains, Exact, Matches, TokenF1

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
