"""Nights of re-gating in this process, each behind so many nights before; their rollouts are made up.

The first night is carried out whole. Those between it and a measured one are copies of it under other dates and items,
which the project's own tables store; their rollouts are in parts as large as merges leave them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from bench import large_run
from bench.counted_store import CountedPlace, Used
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.types import ItemRef, JsonObject, Message, Rollout, Score, Split, Status, Trajectory, sha256
from skillopt_airflow.quality.fresh_items import fingerprint
from skillopt_airflow.store.artifacts import Provenance, PublishedScore, SplitScores
from skillopt_airflow.store.keys import RegateKeys, night_name
from skillopt_airflow.store.parts import LARGE_ROWS
from skillopt_airflow.training import night as nights
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.night_plan import Commands, Contest, prepare_night
from skillopt_airflow.training.night_series import write_series
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.target_change import write_target_changes

TARGET = "openai-chat:bench"
FIRST = date(2026, 1, 1)
FRESH = "fresh"
"""Bucket of the nights' items."""
MOST_CHUNKS = 1024


class Calendar:
    """The nights of one champion, of so many items each.

    Args:
        place: where a training was prepared, whose items those of the nights are like.
        items: of a night.
    """

    def __init__(self, place: CountedPlace, items: int) -> None:
        self._place, self._items = place, items
        self._done = 0
        place.client.create_bucket(Bucket=FRESH)
        run = place.open()
        layer = {"regate": {"fresh_uri": f"s3://{FRESH}"}}
        self._config = TrainConfig.from_layers(run.config.model_dump(), layer)
        for line in ("Read all of it.", large_run.RULE):
            skill = f"{run.skill(0).text}\n- {line}\n"
            run.published.publish(skill, _origin(run.ref.run), run.published.champion.read())

    def carry_out(self) -> Mapping[str, Used]:
        """Carry out the next night as the tasks of its DAG run do; return what each of them took."""
        day = self._day(self._done)
        place = replace(self._place, run=night_name(day, TARGET))
        records = [large_run.record(f"{day} {number}") for number in range(self._items)]
        place.client.put_object(Bucket=FRESH, Key=f"date={day}/items.json", Body=json.dumps(records).encode())
        used: dict[str, Used] = {}

        def task(name: str, work: Callable[[], Any]) -> Any:
            with place.metered() as used[name]:
                return work()

        refs = task(
            "prepare_night",
            lambda: prepare_night(place.open(), self._config, day, TARGET, MOST_CHUNKS, Commands("-", {})),
        )
        if isinstance(refs, str):
            raise PlatformError(refs)
        task("measure", lambda: _measure(place, refs))
        task("settle_night", lambda: _settle(place))
        task("demote", lambda: nights.demote(place.open()))
        task("question_of", lambda: nights.question_of(place.open()))
        task("tell", lambda: nights.news_of(place.open(), TARGET, nights.DECLINES))
        task("tell_stale", lambda: nights.news_of(place.open(), TARGET, nights.HARM))
        self._done += 1
        return used

    def pass_until(self, done: int) -> None:
        """Have so many nights settled in all: copies of the first one."""
        run = replace(self._place, run=night_name(self._day(0), TARGET)).open()
        table, contest = nights.night_table(run), run.store.get_model(run.keys.contest, Contest)
        first = table.read(contest.date)
        if first is None:
            raise PlatformError("no night has been carried out")
        skills = {role: run.skill(version) for version, role in contest.roles}
        like = {role: measured(run, Split.FRESH, skill) for role, skill in skills.items()}
        days = [self._day(number) for number in range(self._done, done)]
        for day in days:
            refs = _refs(day, self._items)
            own = {"date": day, "run": night_name(day, TARGET), "settled": datetime.now(UTC)}
            contents = {ref.id: fingerprint(ref.fingerprint) for ref in refs}
            table.settle(
                first.model_copy(update={**own, "contents": contents}),
                {role: _renamed(evaluation, refs) for role, evaluation in like.items()},
                run.config.evaluation.gate_mixed_weight,
            )
            _tell(run, nights.verdict_after(table.all(), run.config.regate.alpha, day))
        of_part = max(1, LARGE_ROWS // self._items)
        for some in (days[place : place + of_part] for place in range(0, len(days), of_part)):
            rows = [(ref, _rollout(ref)) for day in some for ref in _refs(day, self._items)]
            for skill in skills.values():
                run.rollouts.append(run.rollout_key(Split.FRESH, skill, 0), night_name(some[0], TARGET), rows)
        self._done = done

    @staticmethod
    def _day(number: int) -> str:
        return str(FIRST + timedelta(days=number))


def _measure(place: CountedPlace, refs: Sequence[JsonObject]) -> None:
    for ref in refs:
        large_run.chunk(place, ref)


def _settle(place: CountedPlace) -> None:
    run = place.open()
    _tell(run, nights.settle_night(run))
    write_target_changes(run, TARGET)


def _tell(run: TrainingRun, row: nights.LedgerRow) -> None:
    keys = RegateKeys(run.ref.storage.prefix, run.ref.benchmark, row.night.target)
    write_series(run.store, keys, run.config.regate.alpha, row)


def _origin(run: str) -> Provenance:
    score = PublishedScore(hard=0.5, soft=0.5, items=200, low=0.4, high=0.6)
    return Provenance(
        run=run,
        config={"evaluation": {"gate_metric": "hard"}},
        models={"target": TARGET, "optimizer": TARGET},
        harness="chat",
        data_fingerprints={},
        seed_scores=SplitScores(),
        best_scores=SplitScores(test=score),
        gate_history=(),
        lines=(),
    )


def _refs(day: str, items: int) -> list[ItemRef]:
    return [
        ItemRef(id=f"{day}-{sha256(f'{day} {place}')[:32]}", fingerprint=sha256(f"{day} {place}"))
        for place in range(items)
    ]


def _renamed(evaluation: Evaluation, refs: list[ItemRef]) -> Evaluation:
    scores = dict(zip((ref.id for ref in refs), evaluation.scores.values(), strict=True))
    return evaluation.model_copy(update={"scores": scores})


def _rollout(ref: ItemRef) -> Rollout:
    text = Message(role="assistant", content=ref.fingerprint * (large_run.CONTEXT_CHARS // 64))
    trajectory = Trajectory(item_id=ref.id, status=Status.OK, messages=(text,), answer="", calls=1)
    return Rollout(trajectory=trajectory, score=Score(hard=1.0, soft=1.0))
