"""Rendering a template over the columns of a record, with errors that name key, line and column."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.types import JsonObject

if TYPE_CHECKING:
    from jinja2 import Template

    from skillopt_airflow.core.prompt_environment import PromptEnvironment

WHOLE = "record"
"""The variable that holds the record itself, for columns whose names are no names of variables."""
_OF_A_TEMPLATE = (ArithmeticError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)
"""What expressions raise, and the compiler where loops are nested too deeply."""
_IN_BRACES = re.compile(r"\{[{%\s]*([^\W\d]\w*)[\s%}]*\}")
"""A name in braces of any kind, as Python's format and slips in Jinja have it."""


class PromptTemplate:
    """A Jinja template of a user's; Jinja is imported at its use, because the sandbox image does without it."""

    def __init__(self, key: str, source: str) -> None:
        """Keep the source; `key` is where it stands."""
        self._key = key
        self._source = source

    @cached_property
    def columns(self) -> frozenset[str]:
        """The variables that the template reads.

        Raises:
            ConfigError: it is no template.
        """
        from jinja2 import TemplateSyntaxError, meta

        try:
            return frozenset(meta.find_undeclared_variables(self._environment.parse(self._source)))
        except TemplateSyntaxError as error:
            problem = f"{self._key}: line {error.lineno}: no Jinja template: {str(error.message).rstrip('.')}"
            raise ConfigError(f"{problem}. {self.hint}") from error
        except RecursionError as error:
            raise ConfigError(f"{self._key}: it is nested too deeply. Split it into several expressions") from error

    @property
    def hint(self) -> str:
        """How to write a column, by the first name in braces."""
        found = _IN_BRACES.search(self._source)
        name = found[1] if found else "question"
        return f'Write a column as {{{{ {name} }}}}, or as {{{{ record["Full name"] }}}} where its name has spaces'

    def render(self, record: JsonObject) -> str:
        """Return the text for a record, of at most MOST_CHARS characters; a column that is null is missing.

        Raises:
            DataError: the record lacks a column, or has a value that the template cannot use; or the text is too large.
        """
        from jinja2 import TemplateError, UndefinedError

        present = {column: value for column, value in record.items() if value is not None}
        try:
            return self._rendered({WHOLE: present} | present)
        except UndefinedError as error:
            columns = ", ".join(present)
            raise DataError(f"{self._key}: {error.message}; the columns of the record are: {columns}") from error
        except (TemplateError, *_OF_A_TEMPLATE) as error:
            raise DataError(f"{self._key}: {type(error).__name__}: {error}") from error

    def _rendered(self, columns: Mapping[str, Any]) -> str:
        from skillopt_airflow.core.prompt_environment import MOST_WORK

        work = self._environment.work
        work.left = MOST_WORK
        return work.collected(self._template.generate(columns))

    @cached_property
    def _template(self) -> "Template":
        # Tells what is wrong with the source.
        _ = self.columns
        return self._environment.from_string(self._source)

    @cached_property
    def _environment(self) -> "PromptEnvironment":
        from skillopt_airflow.core.prompt_environment import PromptEnvironment

        return PromptEnvironment()
