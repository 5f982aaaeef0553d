"""A preset: settings that belong together, such as the protocol of a paper, and the scores that its authors state."""

from skillopt_airflow.core.types import JsonObject, Value


class StatedScores(Value):
    """Scores on a test split that somebody else measured; a report shows them as theirs."""

    source: str
    """The publication, and where in it."""
    target: str
    """The target model, and how it was asked."""
    seed: float
    """Mean score of what the training began with."""
    best: float
    """Mean score of the trained skill."""


class Preset(Value):
    """A file of a benchmark's folder `presets`."""

    settings: JsonObject
    """Knobs by group, over those of benchmark.yaml."""
    scores: StatedScores | None = None
