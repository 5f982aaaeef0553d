import pytest

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.run_gates import check_groups, gates_of, publishing_rules, smallest_gains
from skillopt_airflow.core.types import Split


def config(**knobs: object) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


def test_a_training_has_two_gates_unless_candidates_are_taken_without_one() -> None:
    chosen = config(evaluation__gate_policy="confirm", publishing__gate_alpha=0.01, publishing__draws=3)
    candidates, publishing = gates_of(chosen)
    assert (candidates.rules, candidates.fewest) == (chosen.evaluation, 5)
    assert (publishing.rules.gate_policy, publishing.rules.draws, publishing.fewest) == ("mcnemar", 3, 7)
    ungated = config(evaluation__use_gate=False)
    assert [gate.knob for gate in gates_of(ungated)] == ["publishing.gate_policy"]
    assert publishing_rules(ungated.evaluation, ungated.publishing).use_gate


def test_a_gate_that_no_result_could_pass_is_refused() -> None:
    groups = {Split.TEST: [f"paper {place % 4}" for place in range(40)], Split.VAL: [""] * 40}
    with pytest.raises(ConfigError, match=r"^publishing\.gate_policy = mcnemar .* test split .*4 groups.* 5"):
        check_groups(config(), groups)
    check_groups(config(publishing__gate_alpha=0.08), groups)
    check_groups(config(), groups | {Split.TEST: ["a", "a", "", "", "", "", ""]})


def test_a_policy_that_one_large_group_leaves_without_evidence_is_refused() -> None:
    """E-values bet on a group's sum in parts of the largest one's."""
    repositories = (160, 52, 31, 24, 22, 15, 15, 13, 7, 6, 1, 1)
    groups = {Split.VAL: [f"{place}" for place, size in enumerate(repositories) for _ in range(size)]}
    groups |= {Split.TEST: [""] * 40}
    with pytest.raises(ConfigError, match=r"e_process .* 12 groups"):
        check_groups(config(evaluation__gate_policy="e_process"), groups)
    check_groups(config(evaluation__gate_policy="mcnemar"), groups)
    check_groups(config(evaluation__gate_policy="e_process"), groups | {Split.VAL: [*"abcdefghijkl"] * 20})


def test_what_each_gate_can_find_is_told_for_the_look_that_it_will_be() -> None:
    groups = {Split.VAL: [""] * 40, Split.TEST: [""] * 40}
    candidates, publishing = smallest_gains(config(), groups)
    fifth = smallest_gains(config(), groups, 5)[1]
    assert candidates.gain is not None
    assert publishing.gain is not None
    assert fifth.gain is not None
    assert candidates.gain < publishing.gain < 0.4
    assert fifth.gain > publishing.gain + 0.1
    assert "look 5" in str(fifth)
    assert "publishing.gate_policy = mcnemar, 40 items of the test split, 1 draw" in str(publishing)
    assert f"{100 * publishing.gain:.1f} points" in str(publishing)
    found = smallest_gains(config(publishing__draws=2), {Split.VAL: [], Split.TEST: [*"aabbccdd"]})[1]
    assert "8 items of the test split in 4 groups, 2 draws" in str(found)
    assert found.gain is None
    # Nothing is told of a gate of named items.
    named = config(evaluation__gate_policy="no_regression", evaluation__gate_protected_items=("a",))
    assert [gain.gate for gain in smallest_gains(named, groups)] == ["publishing.gate_policy"]
