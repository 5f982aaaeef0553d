from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.tasks.scoring.choice_match import (
    ChoiceLetter,
    ChoiceMatch,
    choice_decision,
    choices_by_letter,
    choices_named,
    letters_named,
)

RULE = ChoiceMatch(choices="options")
RIVERS: JsonObject = {"options": ["The Nile", "The Po", "140°", "It is $x \\le 1$."]}
DIGITS: JsonObject = {"options": ["1", "2", "3", "40"]}
BY_LETTER: JsonObject = {"options": {"A": "The Nile", "B": "The Po"}}


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("B", "B", True),
        ("(B)", "b", True),
        ("B", 1, True),
        ("the po", "B", True),
        ("C:140°", "C", True),
        ("140°", "C", True),
        ("\\boxed{\\text{B}}", "B", True),
        ("It is \\(x\\le 1\\)", "D", True),
        ("**B** [the po].", "B", True),
        ("The answer is B (\\text{The Po}).", "B", True),
        ("B (The Nile)", "B", False),
        ("\\(B\\) - the po.", "B", True),
        ("The strongest statement is B, since \\(L^2(A)\\) is not", "B", True),
        ("So I would pick **B**: the Po.", "B", True),
        ("B。", "B", True),
        ("\\boxed{{B}}", "B", True),
        ("\\,B", "B", True),
        ("B ✓", "B", True),
        ("B?", "B", True),
        ("-B", "B", False),
        ("B′ + A", "B", False),
        ("`The Po`", "B", True),
        ("I choose a river", "A", False),
        ("It ends at $5, so option (B), not $6", "B", True),
        ("B The Nile", "B", False),
        ("Answer: A river in the east", "A", False),
        ("Answer: A because it is long", "A", True),
        ("**Answer:** The Po", "B", True),
        ("The final answer is the Po.", "B", True),
        ("It flows east, so answer A fits", "A", True),
        ("Of these, option I think is (B)", "B", True),
        ("A, B", "B", False),
        ("Not B: The Po", "B", False),
        ("F", "B", False),
        ("The Po or the Nile", "B", False),
        (f"the answer is {' ' * 19_000} B", "B", True),
        (f"the answer is {' ' * 19_000} ?", "B", False),
    ],
)
def test_what_is_right(answer: str, reference: JsonValue, right: bool) -> None:
    RULE.check(reference, RIVERS)
    score = RULE.score(answer, reference, RIVERS)
    assert (score.hard, score.soft) == (right, right)


def test_a_letter_with_its_own_text_is_named_alone_whatever_the_text_says() -> None:
    choices = {"A": "It is (B).", "B": "It is \\(\\mathrm{L}^2(A)\\)."}
    for form in ("{}. {}", "{}) {}", "{} {}", "{}, {}", "The answer is {}: {}"):
        assert all(choices_named(form.format(label, text), choices) == {label} for label, text in choices.items())


def test_brackets_around_a_part_of_a_text_belong_to_it() -> None:
    choices = {"A": "(x+1)(x-1)", "B": "x+1)(x-1", "C": "(0, 1]"}
    assert choices_named("A (x+1)(x-1)", choices) == choices_named("A ((x+1)(x-1))", choices) == {"A"}
    assert choices_named("C (0, 1]", choices) == choices_named("C ((0, 1])", choices) == {"C"}
    assert choices_named("B (x+1)(x-1)", choices) == frozenset()


def test_choices_may_have_their_letters_or_be_known_to_the_prompt_alone() -> None:
    assert RULE.score("the Po", "B", BY_LETTER).hard == 1.0
    assert RULE.score("the Po", "B", {"options": '["The Nile", "The Po"]'}).hard == 1.0
    assert ChoiceMatch().columns == ()
    assert ChoiceMatch().score("The answer is J.", "J", {}).hard == 1.0
    assert ChoiceMatch().score("", "J", {}).feedback.startswith("expected J; ")


@pytest.mark.parametrize(
    "choices",
    [
        {"A": "w", "B": "x", "C": None},
        {"a": "w", "b": "x"},
        {"text": ["w", "x"], "label": ["A", "B"]},
        {"text": ["w", "x"], "label": ["1", "2"]},
        [{"label": "A", "text": "w"}, {"label": "B", "text": "x"}],
        {"0": "w", "1": "x"},
        '["w", "x"]',
        "['w', 'x']",
        ' {"A": "w", "B": "x", "C": null}',
    ],
)
def test_choices_may_have_the_forms_of_public_datasets(choices: JsonValue) -> None:
    assert choices_by_letter(choices) == {"A": "w", "B": "x"}
    RULE.check("B", {"options": choices})
    assert [RULE.score(answer, "B", {"options": choices}).hard for answer in ("B", "x", "A")] == [1, 1, 0]
    # They may be numbers, too.
    assert choices_by_letter([1, 2.5, True, "x"]) == {"A": "1", "B": "2.5", "C": "true", "D": "x"}


@pytest.mark.parametrize(("reference", "letter"), [("3", "C"), (3, "C"), ("y", "C"), ("(1)", "A")])
def test_a_label_that_is_a_number_names_its_choice(reference: JsonValue, letter: str) -> None:
    """As in some questions of ARC."""
    public: JsonObject = {"options": {"text": ["w", "x", "y", "z"], "label": ["1", "2", "3", "4"]}}
    RULE.check(reference, public)
    number = str(ord(letter) - ord("A") + 1)
    for answer in (letter, number, f"({number})", f"{number}."):
        assert RULE.score(answer, reference, public).hard == 1.0
    assert RULE.score("4", reference, public).hard == 0.0


@pytest.mark.parametrize(("reference", "letter"), [(40, "D"), (0, "A"), ("2", "B")])
def test_a_number_names_the_choice_with_that_text_or_at_that_position(reference: JsonValue, letter: str) -> None:
    RULE.check(reference, DIGITS)
    assert RULE.score(letter, reference, DIGITS).hard == 1.0


@pytest.mark.parametrize(
    ("reference", "public", "said"),
    [
        ("E", RIVERS, r"A to D.*got 'E'"),
        (4, RIVERS, "expected one choice"),
        (2, DIGITS, "choice B .* of choice C"),
        (["A", "B"], RIVERS, "expected one choice"),
        ("A", {}, "options: .* got None"),
        ("A", {"options": []}, "options: expected"),
        ("A", {"options": ["x", ["y"]]}, "options: expected"),
        ("A", {"options": "['x' 'y']"}, "options: .*comma"),
        ("A", {"options": "{'text': array(['x'])}"}, "options: expected a list"),
        ("A", {"options": {"text": ["x", "y"], "label": ["A"]}}, "options: expected"),
        ("A", {"options": [{"label": "A", "text": "x"}, {"label": "A", "text": "y"}]}, "options: expected"),
        ("A", {"options": [{"answer": "x"}]}, "options: expected"),
        ("5", {"options": {"text": ["x", "y"], "label": ["1", "2"]}}, "expected one choice"),
        ("A", {"options": ["x", " "]}, "options: .*blank"),
        ("A", {"options": {"first": "x"}}, "options: expected"),
        ("A", {"options": ["x y", "xy."]}, "options: .*same text"),
    ],
)
def test_a_reference_that_is_of_no_use_is_explained(reference: JsonValue, public: JsonObject, said: str) -> None:
    with pytest.raises(DataError, match=said):
        RULE.check(reference, public)


def test_case_counts_where_it_alone_tells_choices_apart() -> None:
    choices = {"A": "At most \\(n\\).", "B": "At most \\(N\\).", "C": "At most \\(M\\)."}
    assert choices_named("At most $N$", choices) == {"B"}
    assert choices_named("at most $n$", choices) == {"A", "B"}
    assert choices_named("at most $m$", choices) == {"C"}


def test_a_letter_is_the_letter_even_where_a_text_is_one_too() -> None:
    vitamins: JsonObject = {"options": ["B", "C", "A"]}
    assert [RULE.score(answer, "C", vitamins).hard for answer in ("C", "c)", "A", "B")] == [1.0, 1.0, 0.0, 0.0]
    assert RULE.score("the answer is C", 2, vitamins).hard == 1.0


def test_feedback_names_what_was_expected_and_what_came() -> None:
    for answer, said in (("A", "A: The Nile"), ("A, B", "A, B"), ("no", '"no"')):
        feedback = RULE.score(answer, "B", RIVERS).feedback
        assert "expected B: The Po" in feedback
        assert feedback.endswith(said)


@given(st.lists(st.text("abc xyz", min_size=3, max_size=12).filter(str.strip), min_size=1, max_size=26), st.data())
def test_every_choice_is_named_by_its_letter_and_by_its_text(texts: list[str], data: st.DataObject) -> None:
    unique = list({text.replace(" ", ""): text for text in texts if len(text.replace(" ", "")) > 2}.values())
    if unique:
        choices = choices_by_letter(list(unique))
        letter = data.draw(st.sampled_from(sorted(choices)))
        assert choices_named(letter, choices) == choices_named(choices[letter], choices) == {letter}


@given(st.text(max_size=80), st.sampled_from(ascii_uppercase[:4]))
def test_any_answer_is_judged(text: str, reference: str) -> None:
    assert RULE.score(text, reference, RIVERS).hard in (0.0, 1.0)


ANGLES = {"A": "110°", "B": "125°", "C": "135°", "D": "140°"}
TRUTH = {"A": "True", "B": "False"}
LETTERS_ALONE = dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "")


@pytest.mark.parametrize(
    ("answer", "right", "choices", "decision"),
    [
        ("D:140°", "D", ANGLES, True),
        ("$140^{\\circ}$", "D", ANGLES, True),
        ("140 degrees", "D", ANGLES, True),
        ("\\text{(D)}", "D", ANGLES, True),
        ("False", "B", TRUTH, True),
        ("C, D", "CD", ANGLES, True),
        ("D", "D", LETTERS_ALONE, True),
        ("（D）", "D", LETTERS_ALONE, True),
        ("C、D", "CD", ANGLES, True),
        ("C", "CD", ANGLES, False),
        ("C, D", "D", ANGLES, False),
        ("\\boxed{E}", "D", ANGLES, False),
        ("D: 110°", "D", ANGLES, None),
        ("2.44 rad", "D", ANGLES, None),
        ("140°", "D", LETTERS_ALONE, None),
        ("As f(D) is 3, it is the widest", "D", ANGLES, None),
        ("a wide angle, see (B)", "D", ANGLES, None),
        ("I choose A: 110°", "D", ANGLES, False),
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


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("(b).", "B"),
        ("Option A is tempting.\n\nB", "B"),
        ("Answer: D\nI hope that this helps.", "D"),
        ("The answer is B.\nD) claims too much.", "B"),
        ("The answer is A. <answer>C)</answer>", "C"),
        (r"so \boxed{\mathrm{B}}", "B"),
        ("<answer>the Nile</answer>", "the Nile"),
        ("I cannot tell", "I cannot tell"),
        ("My answer: I think it is B", "B"),
        ("The answer is I.", "I"),
        ("Answer: A red bus", "Answer: A red bus"),
        ("## Answer\nA red bus", "A red bus"),
        ("Option B is wrong.\nThe answer is A by-product of it.", ""),
        ("Answer: A shows a dog", "A"),
        ("Answer: A can", "Answer: A can"),
        ("Answer: A is the only one that is red", "A"),
        ("Answer: **A** red bus", "A"),
        ("**Answer:** B) the blue bus", "B"),
        ("<answer>`b`</answer>", "B"),
        ("The answer B_1 is none", "The answer B_1 is none"),
        ("", ""),
    ],
)
def test_the_letter_that_a_response_settles_on(response: str, letter: str) -> None:
    assert ChoiceLetter().extract(response) == letter


@given(st.text(max_size=80).filter(lambda text: "<" not in text and "\\" not in text), st.sampled_from("ABCDEFGHIJ"))
def test_a_letter_on_the_last_line_is_taken(before: str, letter: str) -> None:
    assert ChoiceLetter().extract(f"{before}\n{letter}") == letter
