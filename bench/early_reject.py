"""Calls saved by early rejection on 400 SearchQA items: the same training with and without it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench import tables
from bench.checkout import checkout
from bench.real_data import SEARCHQA, need_searchqa
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.run.history import History

EPOCHS, STEPS = 2, 10
SHAPES: Mapping[str, bool] = {"bench_full": False, "bench_early": True}
HEADER = (
    "early_reject",
    "val rollouts",
    "fewer",
    "target calls",
    "optimizer calls",
    "accepted",
    "rejected",
    "best on val",
)
NOTE = (
    "400 items of SearchQA cut 2:5:1 (100 train, 250 val, 50 test; seed 42), 2 epochs of 10 steps of 10 items with "
    "slow update, 4 containers side by side, 4 items at a time in each. Both runs took the same decisions, moment by "
    "moment. Target and optimizer are the offline stand-in, which is no language model."
)


def measure() -> None:
    """Train twice on one platform.

    Raises:
        DataError: the data is missing.
        PlatformError: the two runs decided differently.
    """
    need_searchqa()
    histories: dict[str, History] = {}
    with checkout({name: _layer(early) for name, early in SHAPES.items()}) as place:
        for name in SHAPES:
            histories[name] = place.train(name, {}, EPOCHS * STEPS)
    full, early = histories.values()
    if _decisions(full) != _decisions(early):
        raise PlatformError(f"the runs decided differently: {_decisions(full)} and {_decisions(early)}")
    rows = [_row(SHAPES[name], history, full) for name, history in histories.items()]
    tables.write("early_reject", "Early rejection on SearchQA", NOTE, HEADER, rows)


def _layer(early: bool) -> dict[str, Any]:
    return {
        "data": {"uri": str(SEARCHQA), "split_mode": "ratio", "split_ratio": "2:5:1"},
        "train": {"num_epochs": EPOCHS, "steps_per_epoch": STEPS, "batch_size": 10},
        "evaluation": {"early_reject": early},
        "model": {"concurrency": 16},
    }


def _decisions(history: History) -> list[tuple[str, str]]:
    return [(moment.name, moment.action.value) for moment in history.moments]


def _row(early: bool, history: History, full: History) -> Sequence[object]:
    ran, without = (_evaluated(one) for one in (history, full))
    actions = Counter(moment.action.accepted for moment in history.moments)
    fewer = f"{1 - ran / without:.0%}" if early else ""
    calls = (history.calls("target"), history.calls("optimizer"))
    state = ("on" if early else "off", ran, fewer, *calls, actions[True], actions[False])
    return (*state, f"{history.best.score:.3f}")


def _evaluated(history: History) -> int:
    """Return the rollouts of candidates on the selection split; the stand-in needs one call each."""
    return sum(cost.calls for cost in history.costs if cost.stage == "evaluate")
