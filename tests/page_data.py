"""Published skills and nights as trainings and nights leave them, made up, for measurements and tests of the pages."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from random import Random

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.night_verdict import NightMean
from skillopt_airflow.core.gate.paired import differences, interval, paired
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.types import Split, sha256
from skillopt_airflow.store.artifacts import ArtifactStore, Provenance, PublishedScore, SplitScores
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.night_table import Contender, Night
from skillopt_airflow.training.champion.night_conclusion import LedgerRow, verdict_after, write_series

RULES = EvaluationGroup()
ALPHA = 0.05
ITEMS = 40
FIRST_NIGHT = date(2026, 10, 1)
SEED = "# Seed\n\n- Answer with the shortest span that answers the question.\n"
ADVICE = (
    "- Weigh titles more than running text: a page about the answer often carries it as its title.",
    "- Prefer documents that share the question's words; the others are about something else.",
    "- Leave out words of the question: what the clue already says is not what it asks for.",
    "- Prefer phrases that recur across several documents to ones that a single document repeats.",
    "- Give names in full, as the passage writes them.",
    "- For a `when` question answer with the year alone.",
)


def skill_text(lines: int) -> str:
    """Return a skill with so many pieces of advice."""
    return "\n".join(["# Answering questions", "", *(ADVICE[place % len(ADVICE)] for place in range(lines)), ""])


def provenance(run: str, target: str, text: str, score: float = 0.8) -> Provenance:
    """Return what a training states of a skill: the first lines are the seed's, each other one an edit's."""
    stated = PublishedScore(hard=score, soft=score, items=ITEMS, low=max(0.0, score - 0.1), high=min(1.0, score + 0.1))
    origins = tuple(
        LineOrigin(moment="steps/step_0000")
        if place < 2
        else LineOrigin(
            moment=f"steps/step_{1 + place // 2:04d}", edit=place % 2, op="append", minibatches=("failure-0",)
        )
        for place, _ in enumerate(text.split("\n"))
    )
    return Provenance(
        run=run,
        config={"evaluation": {"gate_metric": "hard"}},
        models={"target": target, "optimizer": "openai-chat:teacher"},
        harness="chat",
        data_fingerprints={Split.TEST: sha256("test")},
        seed_scores=SplitScores(test=stated.model_copy(update={"hard": 0.5, "soft": 0.5, "low": 0.4, "high": 0.6})),
        best_scores=SplitScores(test=stated, val=stated, promised=stated),
        gate_history=(),
        lines=origins,
    )


def publish(store: ObjectStore, prefix: str, benchmark: str, target: str, texts: Sequence[str]) -> ArtifactStore:
    """Publish one text after the other."""
    artifacts = ArtifactStore(store, ArtifactKeys(prefix, benchmark, target))
    for place, text in enumerate(texts):
        origin = provenance(f"manual__2026-09-{place + 1:02d}", target, text, 0.6 + 0.05 * min(place, 6))
        artifacts.publish(text, origin, artifacts.champion.read(), f"better than the one before it, look {place + 1}")
    return artifacts


def nights(
    benchmark: str, target: str, champion: Contender, previous: Contender | None, count: int, drop_at: int | None = None
) -> list[Night]:
    """Return nights that follow each other; from `drop_at` on the champion answers worse than the one before it."""
    return [_night(benchmark, target, champion, previous, place, drop_at) for place in range(count)]


def ledger(nights: Sequence[Night], alpha: float) -> list[LedgerRow]:
    """Return each night with its verdict, in the order of conclusion."""
    return [verdict_after(nights, alpha, night.date) for night in nights]


def store_nights(store: ObjectStore, keys: RegateKeys, made: Sequence[Night]) -> None:
    """Write nights as they are settled, and what pages read of them."""
    rows = ledger(made, ALPHA)
    for row in rows:
        store.put_model(keys.night(row.night.date), row.night)
        store.put_model(keys.report(row.night.date), row)
    write_series(store, keys, ALPHA, rows[-1])


def contender(artifacts: ArtifactStore, version: str) -> Contender:
    """Return a published version as a night names it."""
    return Contender(version=version, sha256=artifacts.read(version).manifest.sha256)


def _night(
    benchmark: str, target: str, champion: Contender, previous: Contender | None, place: int, drop_at: int | None
) -> Night:
    day = FIRST_NIGHT + timedelta(days=place)
    random = Random(f"{benchmark}{target}{place}")
    right = 0.8 if drop_at is None or place < drop_at else 0.4
    found = {"champion": _evaluation(random, right), "seed": _evaluation(random, 0.5)}
    if previous is not None:
        found["previous"] = _evaluation(random, 0.72)
    rivals = [role for role in ("seed", "previous") if role in found]
    against = {role: paired(found["champion"], found[role], RULES) for role in rivals}
    means = {role: NightMean.of(differences(found["champion"], found[role], RULES), {}) for role in rivals}
    return Night(
        benchmark=benchmark,
        target=target,
        date=f"{day}",
        run=f"regate-{day}",
        champion=champion,
        seed=Contender(version="", sha256=sha256(SEED)),
        previous=previous,
        items=ITEMS,
        metric="hard",
        scores={role: one.gate_mean(RULES) for role, one in found.items()},
        against_seed=against["seed"],
        against_previous=against.get("previous"),
        settled=datetime(day.year, day.month, day.day, 3, tzinfo=UTC) + timedelta(days=1),
        means=means,
        intervals={role: interval(one, RULES) for role, one in found.items()},
    )


def _evaluation(random: Random, right: float) -> Evaluation:
    drawn = {f"item-{place:03d}": float(random.random() < right) for place in range(ITEMS)}
    return Evaluation(scores={item: ItemScore(hard=score, soft=score) for item, score in drawn.items()})
