import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.standin.directives import DIRECTIVES, ON_DOCUMENTS, recognise
from local.standin.subjects import SUBJECTS

RULES = [(name, rule) for name, directive in DIRECTIVES.items() for rule in directive.rules]
OTHER_WORDINGS = {
    "Do not answer with words that are in the question.": "question_words",
    "The answer is never a phrase from the clue.": "question_words",
    "Exclude any candidate name that appears in the question.": "question_words",
    "Prioritise headings.": "titles",
    "Titles matter more than body text.": "titles",
    "Focus on passages which match the words of the question.": "matching_documents",
    "Choose what stands next to words of the question.": "near_question",
    "Prefer names that appear in several sources.": "recurrence",
    "Use the complete name.": "full_names",
    "Common nouns may be answers.": "common_words",
    "Skip website names.": "site_words",
    "Be concise: at most three words.": "short",
    "Numbers are right only when a number is wanted.": "number",
    "Start with the first page.": "first_document",
    "Give a full sentence.": "sentence",
    "Suspect the boldest statement.": "distrust_strongest",
    "Choose the weaker of two choices.": "distrust_strongest",
    "Never choose a wildcard.": "exclude_wildcard",
    "Discard the option by which one of the others is true.": "exclude_wildcard",
    "Take the option that has the most words.": "longest_choice",
}


@pytest.mark.parametrize(("name", "rule"), RULES)
def test_every_rule_of_the_optimizer_means_its_directive_alone(name: str, rule: str) -> None:
    assert recognise(f"# Skill\n\n- {rule}\n") == {name}


def test_no_two_directives_share_a_name() -> None:
    for directives in (ON_DOCUMENTS, *(subject.directives for subject in SUBJECTS)):
        assert [DIRECTIVES[directive.name] for directive in directives] == list(directives)


@pytest.mark.parametrize("wording", OTHER_WORDINGS)
def test_other_wordings_are_recognised(wording: str) -> None:
    assert recognise(wording) == {OTHER_WORDINGS[wording]}


@pytest.mark.parametrize(
    "wording",
    [
        "Do not leave out words of the question.",
        "Never prefer full names.",
        "You should not look at the titles.",
        "Avoid answering with a complete sentence.",
        "Do not pick the longest choice.",
        "Do not distrust the strongest choice.",
        "Prefer what fits rather than the longest phrase.",
        "Do not just take the answer from the first document.",
        "Read the clue and the documents, then answer.",
        "",
    ],
)
def test_a_negated_directive_and_other_talk_are_off(wording: str) -> None:
    assert recognise(wording) == frozenset()


def test_the_last_word_on_a_directive_counts() -> None:
    assert recognise("- Prefer full names.\n- Do not prefer full names.") == frozenset()
    assert recognise("- Do not prefer full names.\n- Prefer full names.") == {"full_names"}


def test_a_rule_taken_out_is_off() -> None:
    rules = [directive.rules[0] for directive in DIRECTIVES.values()]
    skill = "\n".join(f"- {rule}" for rule in rules)
    for name, rule in zip(DIRECTIVES, rules, strict=True):
        assert name not in recognise(skill.replace(f"- {rule}", ""))


@given(st.text(max_size=300))
def test_any_text_is_a_skill(text: str) -> None:
    assert recognise(text) <= DIRECTIVES.keys()
