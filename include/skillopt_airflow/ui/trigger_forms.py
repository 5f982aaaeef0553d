"""The next actions that a page offers: the DAG, and the configuration that its form in Airflow takes."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from skillopt_airflow.pipeline.dag_ids import (
    evaluate_dag_id,
    publish_dag_id,
    regate_dag_id,
    rollback_dag_id,
    transfer_dag_id,
)


class FilledForm(NamedTuple):
    """A run that somebody may trigger; Airflow decides whether they may."""

    name: str
    what: str
    """What it does."""
    dag_id: str
    conf: Mapping[str, Any]

    @property
    def slug(self) -> str:
        """Its anchor on the page."""
        return f"do-{self.name.split()[0].lower().replace('-', '')}"

    @property
    def json(self) -> str:
        """The configuration as Airflow's form takes it."""
        return json.dumps(self.conf, indent=2, ensure_ascii=False)


def forms_of(
    benchmark: str, target: str, champion: str, trained_by: str, back_to: str, overrides: Mapping[str, Any]
) -> list[FilledForm]:
    """Return what can be done with a skill.

    Args:
        benchmark: its benchmark.
        target: its model.
        champion: its version; empty if there is none, so that nothing can be done with it.
        trained_by: the run that trained it.
        back_to: the champion that it followed; empty if there is none.
        overrides: knobs that runs with its model need besides the model's name.
    """
    if not champion:
        return []
    more = {"overrides": overrides} if overrides else {}
    forms = [
        FilledForm(
            "Evaluate",
            f"Scores the champion and {back_to or 'the seed skill'} on the test split, with intervals.",
            evaluate_dag_id(benchmark),
            {"skill": champion, "compare_to": back_to or "seed", "split": "test", "model.target": target, **more},
        ),
        FilledForm(
            "Re-gate",
            "Runs a night: champion, the one before it and the seed on that night's fresh items. Give the form a "
            "logical date shortly after the night's end, such as 00:01 of the next day; midnight itself belongs to the "
            "run that the schedule makes for another night.",
            regate_dag_id(benchmark),
            {"target": target, **more},
        ),
        FilledForm(
            "Compare under other models",
            "Runs champion and seed under several models and harnesses on the same items, after an estimate. Put the "
            "models' names into the form.",
            transfer_dag_id(benchmark),
            {
                "skills": ["seed", champion],
                "targets": [target, "provider:model"],
                "overrides": {"model.target": target, **overrides},
            },
        ),
        FilledForm(
            "Publish for another model",
            "Measures the skill of the same training on another target model, and publishes it there if it passes the "
            "gate. Put the model's name into the form.",
            publish_dag_id(benchmark),
            {"run": trained_by, "target": "provider:model"},
        ),
    ]
    if back_to:
        forms.append(
            FilledForm(
                "Roll back",
                f"Moves the champion back to {back_to}, after an approval.",
                rollback_dag_id(benchmark),
                {"version": back_to, "reason": "", "leaving": champion, "model.target": target, **more},
            )
        )
    return forms
