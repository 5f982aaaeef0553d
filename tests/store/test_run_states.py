from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.state import Measured, RunState, TrackRecord, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.run_states import RunStates, equal_states
from tests.training.local_store import LocalStore

KEYS = RunKeys("", "searchqa", "run")
FIRST = Evaluation(
    scores={"b": ItemScore(hard=1.0, soft=1 / 3), "a": ItemScore(hard=0.0, soft=0.1)},
    failures={Status.TIMEOUT: 1},
    groups={"a": "one", "of a failed item": "two"},
)
SECOND = Evaluation(scores={"a": ItemScore(hard=1.0, soft=1.0)}, cancelled=2)
STATE = seed_state(Moment(kind="seed", epoch=0, step=0), Measured(version=0, sha256="0", evaluation=FIRST)).model_copy(
    update={
        "best": Measured(version=1, sha256="1", evaluation=SECOND),
        "record": TrackRecord().with_scores(FIRST, EvaluationGroup()),
    }
)


def test_a_state_comes_back_with_its_scores_and_its_record(store: ObjectStore) -> None:
    states = RunStates(store, KEYS)
    states.write(["one", "two"], STATE)
    for key in ("one", "two"):
        read = states.read(key)
        assert equal_states(read, STATE)
        assert read.best.evaluation.scores == SECOND.scores
        assert (read.current.evaluation.scores, read.current.evaluation.groups) == (FIRST.scores, FIRST.groups)
        assert (read.current.evaluation.size, read.best.evaluation.size) == (FIRST.size, SECOND.size)
        assert states.record(read).items == STATE.record.items
    again = states.read("one")
    states.write(["three"], again)
    assert store.get_bytes("three") == store.get_bytes("one")


def test_the_document_is_as_small_with_many_items() -> None:
    sizes = []
    for items in (2, 2000):
        scores = {f"item-{number}": ItemScore(hard=1.0, soft=1.0) for number in range(items)}
        evaluation, local = Evaluation(scores=scores), LocalStore()
        seed = seed_state(Moment(kind="seed", epoch=0, step=0), Measured(version=0, sha256="", evaluation=evaluation))
        record = TrackRecord().with_scores(evaluation, EvaluationGroup())
        RunStates(local, KEYS).write(["state"], seed.model_copy(update={"record": record}))
        sizes.append(len(local.objects["state"]))
        # One for what current and best share, one for the record.
        assert len(local.list_keys("runs/searchqa/run/scores/")) == 2
    assert sizes[0] == sizes[1] < 2000


def test_what_a_state_names_is_there_before_it_and_read_once() -> None:
    local, written = LocalStore(), list[str]()
    local.before_write = written.append
    states = RunStates(local, KEYS)
    states.write(["runtime_state.json", "state.json"], STATE)
    assert written[-2:] == ["runtime_state.json", "state.json"]
    assert len(written) == 5
    states = RunStates(local, KEYS)
    state = states.read("state.json")
    first = states.record(state)
    for key in local.list_keys("runs/searchqa/run/scores/"):
        local.delete(key)
    assert states.record(state) == first


def test_states_differ_by_one_score_and_not_by_the_order_of_items() -> None:
    def with_scores(scores: dict[str, ItemScore]) -> RunState:
        evaluation = FIRST.model_copy(update={"scores": scores})
        return STATE.model_copy(update={"current": STATE.current.model_copy(update={"evaluation": evaluation})})

    assert equal_states(STATE, with_scores(dict(reversed(FIRST.scores.items()))))
    assert not equal_states(STATE, with_scores(FIRST.scores | {"a": ItemScore(hard=0.0, soft=0.2)}))
    assert not equal_states(STATE, STATE.model_copy(update={"record": TrackRecord()}))
