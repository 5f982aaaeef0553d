"""A case that went wrong in a way which points to directives."""

from collections.abc import Mapping
from dataclasses import dataclass

from local.standin.subject import Active, Verdict


@dataclass(frozen=True)
class SymptomCase:
    """An item that failed, and what its symptoms point to."""

    item_id: str
    symptoms: Mapping[str, bool]
    """Directives that would have helped, and whether each has to be on; empty if nothing tells."""

    def verdict(self, active: Active) -> Verdict:
        """Return whether every directive is as the symptoms ask for."""
        right = bool(self.symptoms) and all((name in active) is wanted for name, wanted in self.symptoms.items())
        return Verdict(right, float(right))
