"""A night as a chart or a list shows it: its scores, and the verdict after it."""

from pydantic import AwareDatetime

from skillopt_airflow.core.item_scores import Metric
from skillopt_airflow.core.night_verdict import Judgement
from skillopt_airflow.core.types import Value


class NightPoint(Value):
    """A night without its items."""

    date: str
    """YYYY-MM-DD, of the items."""
    run: str
    champion: str
    """Version that it measured."""
    previous: str | None
    """Version of the champion before; None if there was none, or it was the seed."""
    items: int
    metric: Metric
    scores: dict[str, float]
    """Means by role: champion, seed, previous."""
    intervals: dict[str, tuple[float, float]]
    """95 % interval of each mean by role; empty in a night that was stored without them."""
    judgement: Judgement
    settled: AwareDatetime
    """UTC."""

    @property
    def decline(self) -> float:
        """The highest of the charts of a decline; the judgement's alarm is their limit."""
        judged = self.judgement
        known = (judged.decline_to_seed, judged.decline_to_previous, judged.decline_to_promise)
        return max(evidence for evidence in known if evidence is not None)
