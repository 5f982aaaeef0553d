import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.tasks.scoring.extraction import Boxed, Extraction, InTags, LastLine, RegexMatch

RULES = (InTags(), LastLine(), Boxed(), RegexMatch(pattern=r"= (\d+)"))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("So: <ANSWER>\n Nile \n</Answer> done.", "Nile"),
        ("<answer></answer>", ""),
        ("<final>Po</final> and <answers>Nile", "<final>Po</final> and <answers>Nile"),
        ("Let me see.\n\n The Nile \n\n", "The Nile"),
        ("\n \n", ""),
        # An echo of the instruction replaces no answer.
        ("<answer>Paris</answer>\nI put it inside <answer></answer> tags as asked.", "Paris"),
        ("<answer>Paris</answer> and not `<answer>your answer</answer>`", "Paris"),
        ("<answer>C</answer>, as <answer>[Your final answer here]</answer> says", "C"),
        ("<answer>Paris</answer>\nI used the tags <answer>, </answer>.", "Paris"),
        ("Between <answer> and </answer>: <answer>Paris", "Paris"),
        ("Here it is, in <answer></answer> tags:\n\nParis", "Paris"),
        # Without another answer, what looks like an echo is the answer.
        ("<answer>and</answer>\nIt joins two words.", "and"),
        ("<answer>...</answer>", "..."),
        ("<answer>*</answer> or rather <answer>+</answer>", "+"),
        # A single tag does not enter the answer.
        ("<answer>Paris</answer", "Paris"),
        ("<answer>Paris<answer/>", "Paris"),
        ("<answer>Paris\n\nIt is the capital.", "Paris"),
        ("```\n<answer>Paris\n```", "Paris"),
        ("Paris</answer>", "Paris"),
        ("<answer>Rome</answer> was my first thought. <answer>Par", "Rome"),
        ("<answer>", ""),
        ("I answer in `<answer>`.\nParis", "Paris"),
        # Tags and fences are spelled in several ways.
        ('<answer type="text">Paris</answer >', "Paris"),
        ("<answer><answer>Paris</answer></answer>", "Paris"),
        ("<answer>5 < 6</answer>", "5 < 6"),
        ("<answer>\n```sql\nSELECT a\nFROM b\n```\n</answer>", "SELECT a\nFROM b"),
        ("<answer>\n```\na\n```\nor\n```\nb\n```\n</answer>", "```\na\n```\nor\n```\nb\n```"),
    ],
)
def test_the_content_of_the_last_pair_of_tags_else_the_last_line(response: str, answer: str) -> None:
    assert InTags().extract(response) == answer


def test_tags_have_the_name_that_was_chosen() -> None:
    assert InTags(tag="final").extract("<answer>Po</answer><final>Nile</final>") == "Nile"
    with pytest.raises(ValidationError, match="tag"):
        InTags(tag="<final>")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{A} or rather \boxed{ C }", "C"),
        (r"\boxed{\frac{4}{5}}", r"\frac{4}{5}"),
        (r"\boxed{\left\{ x, 1 \right.}", r"\left\{ x, 1 \right."),
        (r"\boxed {7} } }", "7"),
        (r"{ \boxed{7}", "7"),
        (r"\boxed{}", ""),
        ("\\boxed{7} and so\nnot \\boxed{8", "7"),
        ("A box: \\boxed{8\nno: 9", "no: 9"),
    ],
)
def test_the_content_of_the_last_complete_box_else_the_last_line(response: str, answer: str) -> None:
    assert Boxed().extract(response) == answer


@pytest.mark.parametrize(
    ("pattern", "response", "answer"),
    [
        (r"answer: (\w+)", "answer: Po\nanswer: Nile!", "Nile"),
        (r"\d+", "1 or 22 rivers", "22"),
        (r"A: (\w+)|B: (\w+)", "A: x B: y", "y"),
        (r"answer: (\w+)", "Nile", ""),
        (r"(?m)^river: *(.*)$", "river: Po\nriver: the Nile \nthat is it", "the Nile"),
    ],
)
def test_the_last_match_of_a_pattern(pattern: str, response: str, answer: str) -> None:
    assert RegexMatch(pattern=pattern).extract(response) == answer


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(ValidationError, match=r"regular expression: '\(a': missing \)"):
        RegexMatch(pattern="(a")


@pytest.mark.parametrize("rule", RULES)
@given(response=st.text(max_size=200) | st.text("<>/answer{}\\boxed= 1\n", max_size=200))
def test_any_response_gives_an_answer_that_is_part_of_it(rule: Extraction, response: str) -> None:
    answer = rule.extract(response)
    assert answer == answer.strip()
    assert answer in response


@given(content=st.text("ab{}<\n ", max_size=30), before=st.text("ab{}\n ", max_size=30))
def test_what_is_marked_is_found_behind_any_text(content: str, before: str) -> None:
    assert InTags().extract(f"{before}<answer>{content}</answer>") == content.strip()
    balanced = content.replace("{", "").replace("}", "")
    assert Boxed().extract(f"{before}\\boxed{{{balanced}}}") == balanced.strip()
