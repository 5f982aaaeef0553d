import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.scoring.choice_letter import ChoiceLetter


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("(b).", "B"),
        ("Option A is tempting.\n\nB", "B"),
        ("The answer is (B).", "B"),
        ("Answer: D\nI hope that this helps.", "D"),
        ("A) is wrong.\nB) the Nile", "B"),
        ("The answer is B.\nD) claims too much.", "B"),
        ("Maybe option A. No, option C it is.", "C"),
        ("The answer is A. <answer>C)</answer>", "C"),
        (r"so \boxed{\mathrm{B}}", "B"),
        (r"The answer is $\boxed{B}$", "B"),
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
        ("Option B is wrong. Option A shows a dog.", "A"),
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
