"""The optimizer's memory from epoch to epoch, in words that it can read again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from local.standin.directives import DIRECTIVES, recognise
from skillopt_airflow.core.types import Edit
from skillopt_airflow.optimizer.epoch_steps import EpochStep

_ACCEPTED, _REJECTED, _MISSING = "- Accepted: ", "- Rejected: ", "- Still missing: "
_MOST_OF_A_KIND = 6


@dataclass(frozen=True)
class Memory:
    """Names of directives whose edits were accepted or rejected, and of those that would help what still fails."""

    accepted: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Memory":
        """Read what `text` wrote; any other wording says nothing."""
        return cls(*(_named(text, mark) for mark in (_ACCEPTED, _REJECTED, _MISSING)))

    @property
    def text(self) -> str:
        """Return a line a directive, the latest of each kind."""
        kinds = ((_ACCEPTED, self.accepted), (_REJECTED, self.rejected), (_MISSING, self.missing))
        lines = [f"{mark}{DIRECTIVES[name].rules[0]}" for mark, names in kinds for name in names[-_MOST_OF_A_KIND:]]
        return "\n".join(lines) if lines else "Nothing was accepted or rejected so far."

    def after(self, steps: Iterable[EpochStep], missing: Sequence[str]) -> "Memory":
        """Return the memory after an epoch: the last verdict counts, and what would help is not held rejected."""
        verdicts = dict.fromkeys(self.rejected, False) | dict.fromkeys(self.accepted, True)
        for step in steps:
            for edit in step.edits if was_accepted(step) or step.action == "reject" else ():
                for name in asked_by(edit):
                    verdicts.pop(name, None)
                    verdicts[name] = was_accepted(step)
                # A rule whose removal was accepted is one that has failed.
                for name in taken_out_by(edit) if was_accepted(step) else ():
                    verdicts.pop(name, None)
                    verdicts[name] = False
        accepted = tuple(name for name, good in verdicts.items() if good)
        rejected = tuple(name for name, good in verdicts.items() if not good and name not in missing)
        return Memory(accepted, rejected, tuple(missing))


def was_accepted(step: EpochStep) -> bool:
    """Return whether the candidate became the current skill."""
    return step.action.startswith("accept")


def asked_by(edit: Edit) -> list[str]:
    """Return the directives that an edit brings in, by name; a text that is all new says nothing on a single one."""
    return sorted(recognise(edit.content)) if edit.op in ("append", "insert_after", "replace") else []


def taken_out_by(edit: Edit) -> list[str]:
    """Return the directives whose rule an edit deletes or replaces by another."""
    return sorted(recognise(edit.anchor) - recognise(edit.content)) if edit.op in ("delete", "replace") else []


def _named(text: str, mark: str) -> tuple[str, ...]:
    lines = (line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark))
    return tuple(dict.fromkeys(name for line in lines for name in sorted(recognise(line))))
