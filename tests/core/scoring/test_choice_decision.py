import pytest

from skillopt_airflow.core.scoring.choice_decision import choice_decision, letters_named

ANGLES = {"A": "110°", "B": "125°", "C": "135°", "D": "140°"}
TRUTH = {"A": "True", "B": "False"}
LETTERS_ALONE = dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "")


@pytest.mark.parametrize(
    ("answer", "right", "choices", "decision"),
    [
        ("D", "D", ANGLES, True),
        ("D:140°", "D", ANGLES, True),
        ("$140^{\\circ}$", "D", ANGLES, True),
        ("140 degrees", "D", ANGLES, True),
        ("\\text{(D)}", "D", ANGLES, True),
        ("D (140°)", "D", ANGLES, True),
        ("D because the angles add up", "D", ANGLES, True),
        ("False", "B", TRUTH, True),
        ("C, D", "CD", ANGLES, True),
        ("D", "D", LETTERS_ALONE, True),
        ("（D）", "D", LETTERS_ALONE, True),
        ("C、D", "CD", ANGLES, True),
        ("A", "D", ANGLES, False),
        ("A: 110°", "D", ANGLES, False),
        ("C", "CD", ANGLES, False),
        ("C, D", "D", ANGLES, False),
        ("E", "D", ANGLES, False),
        ("\\boxed{E}", "D", ANGLES, False),
        ("D: 110°", "D", ANGLES, None),
        ("2.44 rad", "D", ANGLES, None),
        ("the last one", "D", ANGLES, None),
        ("140°", "D", LETTERS_ALONE, None),
        ("As f(D) is 3, it is the widest", "D", ANGLES, None),
        ("a wide angle, see (B)", "D", ANGLES, None),
        ("I choose A: 110°", "D", ANGLES, False),
        ("\\boxed{140^\\circ}", "D", ANGLES, True),
    ],
)
def test_what_rules_are_certain_of(answer: str, right: str, choices: dict[str, str], decision: bool | None) -> None:
    assert choice_decision(answer, frozenset(right), choices) is decision


@pytest.mark.parametrize(
    ("answer", "decision"),
    [(f"A{' ' * 60_000}?", False), (f"{' ' * 60_000}D", True), (f"{'A ' * 30_000}z", None), ("the " * 15_000, None)],
    ids=["A and blanks", "blanks and D", "many letters", "many words"],
)
def test_a_long_answer_is_read_to_its_end(answer: str, decision: bool | None) -> None:
    assert choice_decision(answer, frozenset("D"), ANGLES) is decision


def test_a_value_that_two_choices_have_names_none() -> None:
    assert letters_named("0.5", {"A": "1/2", "B": "\\frac{1}{2}"}) == frozenset()
    assert letters_named("0.5", {"A": "1/2", "B": "\\frac{1}{3}"}) == {"A"}
