"""A rejected choice never counts as chosen: right values, and sentences that choose one letter and reject another."""

import random
from collections.abc import Iterator
from string import ascii_uppercase

import pytest

from skillopt_airflow.tasks.scoring.choice_match import ChoiceLetter, choice_decision, choices_named
from skillopt_airflow.tasks.scoring.choice_statement import statement

RIVERS = {"A": "The Nile", "B": "The Po", "C": "The Rhine", "D": "The Thames", "E": "The Tiber"}
MARKS = ("{}", "({})", "**{}**", "[{}]", "`{}`", '"{}"', "${}$", r"\text{{{}}}", "**({})**", "“{}”", r"\({}\)")
NOUNS = ("option", "choice", "statement", "answer", "alternative", "letter", "number", "")
CHOSEN = (
    "The answer is {c}",
    "Answer: {c}",
    "Final answer - {c}",
    "I choose {c}",
    "It's {c}",
    "{c} is correct",
    "So {c}",
    "That leaves {c}",
    "{c} it is",
    "<answer>{c}</answer>",
    "Antwort: {c}",
    "Réponse : {c}",
    "La respuesta correcta es {c}",
    "Ответ: {c}",
    "答案：{c}",
    "正确答案是{c}。",
    "答えは{c}",
    "정답: {c}",
)
REJECTED = (
    "{r} is wrong",
    "{r} drops a factor",
    "{r} can't be right",
    "{r} contradicts the text",
    "{r} has the wrong sign",
    "{r} was tempting",
    "it isn't {r}",
    "not {r}",
    "don't pick {r}",
    "we can exclude {r}",
    "nothing supports {r}",
    "{r} ist falsch",
    "la opción {r} es incorrecta",
    "вариант {r} неверен",
    "选项{r}是错误的",
    "{r}は誤りです",
)
BOTH = (
    "{c}, not {r}",
    "{c} rather than {r}",
    "{c} instead of {r}",
    "I prefer {c} to {r}",
    "Not {r} but {c}",
    "Unlike {r}, {c} is correct",
    "Anything except {r}; I say {c}",
    "While {r} seems plausible, {c} is correct",
    "If {r} were true, x would be 0, so the answer is {c}",
    "First I thought {r}, but it is {c}",
    "Answer: {r}\nWait, that fails.\nAnswer: {c}",
    "Answer: {c}\nRejected: {r}",
    "{r}: wrong\n{c}: correct",
    "Die richtige Antwort ist {c}, nicht {r}",
    "应选{c}，而不是{r}。",
    "{r}ではなく{c}が正しい。",
)


def sentences(count: int) -> Iterator[tuple[str, str, str]]:
    """Yield the chosen letter, the rejected letter and a sentence."""
    drawn = random.Random(44)
    for _ in range(count):
        (chosen, rejected), noun, mark = drawn.sample("ABCDE", 2), drawn.choice(NOUNS), drawn.choice(MARKS)
        names = {"c": mark.format(chosen), "r": f"{noun} {mark.format(rejected)}".strip()}
        one, other = drawn.choice(CHOSEN).format(**names), drawn.choice(REJECTED).format(**names)
        forms = (
            drawn.choice(BOTH).format(**names),
            one + drawn.choice((". ", "; ", " because ", ", since ", ".\n\n", " - ", ", while ")) + other,
            other + drawn.choice((". ", "; ", ". So ", ".\n\n")) + one,
        )
        yield chosen, rejected, drawn.choice(forms)


@pytest.mark.nightly
def test_a_rejected_letter_never_counts_and_the_chosen_one_does() -> None:
    missed = []
    for number, (chosen, rejected, sentence) in enumerate(sentences(6000)):
        taken, named = ChoiceLetter().extract(sentence), choices_named(sentence, RIVERS)
        assert taken != rejected, sentence
        assert named != {rejected}, sentence
        if number % 3 == 0:
            assert choice_decision(sentence, frozenset(rejected), RIVERS) is not True, sentence
        if taken != chosen or named != {chosen}:
            missed.append(sentence)
    assert len(missed) <= 6000 * 0.02, missed[:20]


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("Final answer: **(B)** because (A), (C) and (D) all fall short of it.", "B"),
        ("The correct answer is therefore **B**, as A, while close, is above the total.", "B"),
        ("eliminate A and C; B", "B"),
        ("B\n\nMercury (option A) is too hot", "B"),
        ("Answer: A. Hmm, wait. Checking again. Answer: B", "B"),
        ("Answer: B\n\nNote: answer A would be right only without friction.", "B"),
        ("My pick: B. Runner-up: C.", "B"),
        ('{"answer": "B", "rejected": ["A", "C"]}', "B"),
        ("A ✗\nC ✗\nB ✓", "B"),
        ("(A) No. (C) No. (B) Yes.", "B"),
        ("Neither A nor C accounts for the delay, which leaves B.", "B"),
        ("All options but B are wrong.", "B"),
        ("Option A isn't correct, but option B is.", "B"),
        ("The answer is\nB", "B"),
        ("Odpowiedź: B", "B"),
        ("تجربة: B", "B"),
    ],
)
def test_a_statement_wins_over_a_mention(response: str, letter: str) -> None:
    assert ChoiceLetter().extract(response) == letter
    assert choices_named(response, RIVERS) == {letter}
    assert choice_decision(response, frozenset(letter), RIVERS) is True


@pytest.mark.parametrize(
    "response",
    [
        "Not option A",
        "I rule out option A",
        "I don't think that A is right.",
        "The answer is A. No wait, A is wrong.",
        "Is it A?",
        "不是A",
        "Nothing supports A.",
    ],
)
def test_a_letter_that_is_only_rejected_scores_nothing(response: str) -> None:
    assert ChoiceLetter().extract(response) != "A"
    assert choices_named(response, RIVERS) == frozenset()
    assert choice_decision(response, frozenset("A"), RIVERS) is None


@pytest.mark.parametrize(
    "response",
    [
        "I waver between (A) and (D)",
        "At first glance A. Then D again.",
        "See option A and option D.",
        "A) 3 is odd\nD) 4",
    ],
)
def test_several_letters_without_a_statement_are_ambiguous(response: str) -> None:
    assert ChoiceLetter().extract(response) == ""
    assert choices_named(response, RIVERS) == {"A", "D"}
    assert choice_decision(response, frozenset("D"), RIVERS) is None


@pytest.mark.parametrize(
    ("response", "letters"),
    [("The answer is B and D.", "BD"), ("B, D", "BD"), ("B is correct. D is also correct.", "BD"), ("A or C", "AC")],
)
def test_several_letters_may_be_stated(response: str, letters: str) -> None:
    assert choices_named(response, RIVERS) == set(letters)


def test_a_statement_has_its_line_and_what_it_rejects() -> None:
    found = statement("I rule out C.\n\nThe answer is B, not A.\nBye.", frozenset(ascii_uppercase))
    assert (found.letters, found.rejected, found.line, found.certain) == ({"B"}, {"A", "C"}, 2, True)
