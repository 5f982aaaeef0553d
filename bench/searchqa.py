"""A training on the 400 SearchQA items of the paper's training split, with the stand-in as target and optimizer."""

from collections import Counter
from statistics import mean

from bench import tables
from bench.checkout import checkout
from bench.real_data import SEARCHQA, need_searchqa
from skillopt_airflow.core.gate.policies import Action

STEPS = 2
EPOCHS = 4
HEADER = ("figure", "value")
NOTE = (
    "400 items of SearchQA cut 2:1:7 (80 train, 40 val, 280 test; seed 42), 4 epochs of 2 steps, default settings. "
    "Target and optimizer are the offline stand-in, which is no language model: the scores show that the loop works."
)


def measure() -> None:
    """Train once.

    Raises:
        DataError: the data is missing.
    """
    need_searchqa()
    layer = {
        "data": {"uri": str(SEARCHQA), "split_mode": "ratio"},
        "train": {"num_epochs": EPOCHS, "steps_per_epoch": STEPS},
    }
    with checkout({"bench_searchqa": layer}) as place:
        history = place.train("bench_searchqa", {}, EPOCHS * STEPS)
    actions = Counter(step.action for step in history.steps)
    seconds = [step.seconds for step in history.steps]
    rows = [
        *((f"exact match on test, {name}", f"{score.hard:.3f}") for name, score in history.test.items()),
        ("exact match on val, seed", f"{history.seed.score:.3f}"),
        ("exact match on val, best", f"{history.best.score:.3f}"),
        ("steps accepted", actions[Action.ACCEPT] + actions[Action.ACCEPT_NEW_BEST]),
        ("steps rejected", actions[Action.REJECT]),
        *((f"{role} calls", history.calls(role)) for role in ("optimizer", "target")),
        *(
            (f"seconds a step, {part}", f"{mean(getattr(step, part) for step in seconds):.1f}")
            for part in ("wall", "model", "container", "own", "airflow")
        ),
    ]
    tables.write("searchqa", "Training on SearchQA", NOTE, HEADER, rows)
