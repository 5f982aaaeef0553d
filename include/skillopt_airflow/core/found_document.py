"""A document that a search finds: a page of the web, or one that an item brings with it."""

from collections.abc import Sequence

from skillopt_airflow.core.hidden_text import Text
from skillopt_airflow.core.types import Value


class FoundDocument(Value):
    """A page, by what is known of it before, or instead of, opening it."""

    title: Text = ""
    url: Text = ""
    date: Text = ""
    """As its source gives it; empty if it gives none."""
    text: Text = ""

    def as_text(self, characters: int | None = None) -> str:
        """Return a line each for what there is, the text last and cut behind so many characters."""
        lines = [f"{name}: {value}" for name in ("title", "url", "date") if (value := getattr(self, name))]
        cut = characters is not None and len(self.text) > characters
        return "\n".join((*lines, f"{self.text[:characters]} [...]" if cut else self.text)).strip()


def listed_documents(documents: Sequence[FoundDocument], characters: int | None = None) -> str:
    """Return documents one below the other, each with its number."""
    return "\n\n".join(f"[{place}]\n{one.as_text(characters)}" for place, one in enumerate(documents, 1))
