"""Reads how far a run is, again and again while it goes on; what it read once and cannot change it does not read again.

None of a run's large columns is read: of its model calls the counts of tokens, of its rollouts the items' ids.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from skillopt_airflow.core.documents import read_document
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.gate import Action, GateDecision
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.run_history import History
from skillopt_airflow.core.state import Measured, RunState
from skillopt_airflow.core.timeline import Moment, timeline
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.items import count_items
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.run_states import RunStates
from skillopt_airflow.store.running_tables import RunningUsage
from skillopt_airflow.training.estimate import EstimateTotals
from skillopt_airflow.training.progress import CandidateScore, MomentProgress, Progress, StageProgress
from skillopt_airflow.training.run_record import RunRecord
from skillopt_airflow.training.running_stage import StageReader
from skillopt_airflow.training.spending import role_spending, together
from skillopt_airflow.training.time_left import Done, Rollouts, Seconds, time_left, usual

READERS = 8


class ProgressReader:
    """Watches one run.

    Args:
        store: where the run is.
        keys: its keys.
    """

    def __init__(self, store: ObjectStore, keys: RunKeys) -> None:
        self._store, self._keys = store, keys
        self._opened: tuple[bytes, _OpenedRun] | None = None

    def read(self, now: datetime) -> Progress | None:
        """Return how far the run is; None if it has not stored its configuration yet.

        Raises:
            StoreError: the store does not give it.
        """
        try:
            body = self._store.get_bytes(self._keys.config)
        except ObjectMissing:
            return None
        if self._opened is None or self._opened[0] != body:
            record = read_document(RunRecord, body, self._store.address(self._keys.config))
            self._opened = body, _OpenedRun(self._store, self._keys, record)
        return self._opened[1].progress(now)


@dataclass(frozen=True)
class _Reached:
    """A run at the end of a moment."""

    state: RunState
    ended: datetime
    """When that moment was over."""
    seed_ended: datetime
    seed: SplitScore
    current: SplitScore | None
    """None if it was taken without a score."""
    best: SplitScore
    moments: tuple[MomentProgress, ...]


class _OpenedRun:
    """A run under the configuration that its preparation settled."""

    def __init__(self, store: ObjectStore, keys: RunKeys, record: RunRecord) -> None:
        self._store, self._keys, self._record = store, keys, record
        self._timeline = timeline(record.config, record.steps_in_epoch)
        self._states = RunStates(store, keys)
        self._usage = RunningUsage(store, keys.prefix, keys.benchmark, keys.run)
        self._stages = StageReader(store, keys, record)
        self._reached: tuple[tuple[bytes, datetime], _Reached] | None = None
        self._estimate: EstimateTotals | None = None
        self._sizes: dict[Split, int] = {}

    def progress(self, now: datetime) -> Progress:
        """Return how far it is."""
        record, reached = self._record, self._newest()
        roles = role_spending(self._usage.sums(), record)
        history = self._history(reached)
        over = history is not None and (history.published is not None or bool(history.withheld))
        under_way = self._under_way(reached)
        # Behind the run's end there is no other moment, and what follows is stored beside it.
        begun = None if reached is None or reached.state.moment == under_way.name else reached.ended
        stage = StageProgress(name="over", moment="") if over else self._stages.read(under_way, begun)
        if stage.name == "report" and history is not None:
            stage = stage.model_copy(update={"name": "publication"})
        return Progress(
            benchmark=record.benchmark,
            run=record.run,
            began=record.created,
            config=record.config,
            total_steps=record.total_steps,
            stage=stage,
            seed=None if reached is None else reached.seed,
            current=None if reached is None else reached.current,
            best=None if reached is None else reached.best,
            moments=() if reached is None else reached.moments,
            spent=together(roles),
            roles=roles,
            estimate=self._first_estimate(),
            left=None if reached is None or over else self._left(reached, under_way, stage, now),
            stopped="" if reached is None else reached.state.stopped,
            published="" if history is None or history.published is None else history.published.version,
            withheld="" if history is None else history.withheld,
        )

    def _first_estimate(self) -> EstimateTotals | None:
        """Return what the preparation estimated, which it stores after the configuration; None until it has."""
        if self._estimate is None:
            self._estimate = self._store.find_model(self._keys.estimate, EstimateTotals)
        return self._estimate

    def _newest(self) -> _Reached | None:
        """Return where the run is; None before its seed was measured."""
        try:
            stored = self._store.get_dated(self._keys.runtime_state)
            if self._reached is None or self._reached[0] != stored:
                state = self._states.read(self._keys.runtime_state)
                self._reached = stored, self._reach(state, stored[1])
        except ObjectMissing:
            # The seed's own state is written right after that of the run.
            return None
        return self._reached[1]

    def _reach(self, state: RunState, ended: datetime) -> _Reached:
        key = self._keys.moment(self._timeline[0]).state
        seed, (_, seed_ended) = self._states.read(key), self._store.get_dated(key)
        first, current = self._score(seed.best), state.current
        # Verdicts of later moments may be left from before a step that ended otherwise when it was done again.
        last = [moment.name for moment in self._timeline].index(state.moment)
        gates = self._gates([moment for moment in self._timeline[1:-1][:last] if moment.step <= state.step])
        return _Reached(
            state=state,
            ended=ended,
            seed_ended=seed_ended,
            seed=first,
            current=self._score(current) if current.evaluation.scores else None,
            best=self._score(state.best),
            moments=_moments(gates, first, seed_ended),
        )

    def _score(self, measured: Measured) -> SplitScore:
        return SplitScore.of(measured.evaluation, self._record.config.evaluation, version=measured.version)

    def _gates(self, moments: Sequence[Moment]) -> list[tuple[Moment, GateDecision, datetime]]:
        """Return the verdicts of the moments and when they were stored, until the first that has none."""

        def read(moment: Moment) -> tuple[Moment, GateDecision, datetime] | None:
            key = self._keys.moment(moment).gate
            try:
                body, stored = self._store.get_dated(key)
            except ObjectMissing:
                return None
            return moment, read_document(GateDecision, body, self._store.address(key)), stored

        found: list[tuple[Moment, GateDecision, datetime]] = []
        with ThreadPoolExecutor(READERS) as pool:
            for one in pool.map(read, moments):
                if one is None:
                    break
                found.append(one)
        return found

    def _under_way(self, reached: _Reached | None) -> Moment:
        """Return the moment that follows; the last one if none does, or if the run was stopped."""
        if reached is None:
            return self._timeline[0]
        names = [moment.name for moment in self._timeline]
        following = names.index(reached.state.moment) + 1
        return self._timeline[-1] if reached.state.stopped else self._timeline[min(following, len(names) - 1)]

    def _history(self, reached: _Reached | None) -> History | None:
        """Return what the run's report says, if it is at its end."""
        if reached is None or reached.state.moment != self._timeline[-1].name:
            return None
        return self._store.find_model(self._keys.history, History)

    def _left(self, reached: _Reached, under_way: Moment, stage: StageProgress, now: datetime) -> Seconds | None:
        """Return how long the run still takes."""
        ahead = [one.kind for one in self._timeline[self._timeline.index(under_way) : -1]]
        done = [Done(one.kind, one.seconds) for one in reached.moments if one.seconds is not None]
        elapsed = max(0.0, (now - reached.ended).total_seconds())
        rollouts = self._rollouts_ahead(reached, stage, steps_follow="step" in ahead)
        return time_left(done, ahead, elapsed, rollouts, self._pace(reached, done))

    def _rollouts_ahead(self, reached: _Reached, stage: StageProgress, *, steps_follow: bool) -> Rollouts:
        """Return the rollouts of the run's end: the test of all skills but the seed, and the publication."""
        config, state = self._record.config, reached.state
        if state.stopped:
            return Rollouts(0, 0)
        under_way = 0 if stage.done is None or stage.planned is None else max(0, stage.planned - stage.done)
        publication = 2 * self._size(Split(config.publishing.split)) * config.publishing.draws
        if state.best.version == 0 and not steps_follow:
            publication = 0
        if state.moment == self._timeline[-1].name:
            return Rollouts(under_way, under_way + (publication if stage.name != "publication" else 0))
        rules = config.evaluation
        tested = self._size(Split.TEST) * rules.draws if rules.eval_test else 0
        now = len({one.sha256 for one in (state.current, state.best) if one.version})
        # The seed's test is a part of its own.
        most = rules.most_tested(config.train.num_epochs) - 1 if steps_follow or rules.test_each_epoch else now
        return Rollouts(tested * now, tested * most + publication)

    def _pace(self, reached: _Reached, done: Sequence[Done]) -> Seconds:
        """Return the seconds of one rollout among many: as the seed's were, and as if a step were nothing else."""
        config = self._record.config
        evaluated = self._size(Split.VAL) * config.evaluation.draws
        batch = config.train.batch_size * config.train.accumulation * config.train.rollouts_per_item
        of_seed = (reached.seed_ended - datetime.fromisoformat(self._record.created)).total_seconds() / evaluated
        steps = [one.seconds for one in done if one.kind == "step"]
        of_step = usual(steps).times(1 / (batch + evaluated), 1 / (batch + evaluated)) if steps else Seconds(0.0, 0.0)
        return Seconds(min(max(0.0, of_seed), of_step.low), max(of_seed, of_step.high))

    def _size(self, split: Split) -> int:
        """Return how many items of a split the run uses."""
        if split not in self._sizes:
            stored = count_items(self._store, self._keys.items(split))
            limit = self._record.config.evaluation.limit(split)
            self._sizes[split] = stored if limit is None else min(stored, limit)
        return self._sizes[split]


def _moments(
    gates: Sequence[tuple[Moment, GateDecision, datetime]], seed: SplitScore, seed_ended: datetime
) -> tuple[MomentProgress, ...]:
    """Return the moments with the scores after each."""
    found: list[MomentProgress] = []
    current = best = seed.score
    before = seed_ended
    for moment, decision, ended in gates:
        candidate = _candidate(decision)
        if decision.action.accepted:
            current = math.nan if candidate is None else candidate.score
        if decision.action is Action.ACCEPT_NEW_BEST:
            best = current
        seconds = (ended - before).total_seconds()
        found.append(
            MomentProgress(
                name=moment.name,
                kind=moment.kind,
                step=moment.step,
                epoch=moment.epoch,
                decision=decision,
                candidate=candidate,
                score_after=current,
                best_score=best,
                seconds=seconds if seconds >= 0 else None,
            )
        )
        before = ended
    return tuple(found)


def _candidate(decision: GateDecision) -> CandidateScore | None:
    if decision.bound is not None or decision.memory_only or decision.equal:
        return None
    if decision.candidate_mean is not None:
        return CandidateScore(decision.candidate_mean, decision.interval)
    table = decision.against_current
    return CandidateScore(table.score, decision.interval) if table.pairs else None
