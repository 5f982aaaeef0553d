import gc
import re
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin.directives import DIRECTIVES, ON_DOCUMENTS
from local.standin.exercise import Exercise
from local.standin.ranking import rank
from local.standin.reader import answer, respond

RULE = {name: directive.rules[0] for name, directive in DIRECTIVES.items()}


def doc(title: str, text: str) -> str:
    return f"[DOC] [TLE] {title} [PAR] {text}"


def answered(question: str, documents: list[str], *names: str) -> str:
    skill = "\n".join(f"- {RULE[name]}" for name in names)
    _, prompt = BENCHMARK.messages({"question": question, "context": " ".join(documents)}, skill)
    return BENCHMARK.answer(respond(skill, prompt.content))


# Question, documents, directives on both sides, the directive, the answer without it and with it.
CASES = [
    ("Ruritania has this capital", [doc("x", "Ruritania is big. Ruritania has Strelsau.")], [], "question_words",
     "Ruritania", "Strelsau"),
    ("it has this capital", [doc("Strelsau", "near Hentzau, near Hentzau")], [], "titles", "Hentzau", "Strelsau"),
    ("it guards the harbour", [doc("x", "Hentzau and Hentzau and Hentzau"), doc("y", "harbour guards of Zenda")],
     [], "matching_documents", "Hentzau", "Zenda"),
    ("it guards the harbour", [doc("x", "Hentzau, Hentzau ... harbour, guards: Zenda, Zenda")], [],
     "near_question", "Hentzau", "Zenda"),
    ("", [doc("x", "Hentzau or Hentzau or Hentzau"), doc("y", "Zenda"), doc("z", "Zenda")], [], "recurrence",
     "Hentzau", "Zenda"),
    ("", [doc("x", "Rassendyll, Rassendyll or Rudolf Rassendyll, Rudolf Rassendyll")], [], "full_names",
     "Rassendyll", "Rudolf Rassendyll"),
    ("", [doc("x", "Hentzau and the gold, the gold, the gold")], [], "common_words", "Hentzau", "gold"),
    ("", [doc("Wikipedia", "Wikipedia on Zenda")], [], "site_words", "Wikipedia", "Zenda"),
    ("this man ruled", [doc("x", "Hentzau, Hentzau, by Rudolf Rassendyll or Rudolf Rassendyll")], [], "person",
     "Hentzau", "Rudolf Rassendyll"),
    ("in this year it fell", [doc("x", "Hentzau and Hentzau fell, 1894")], [], "number", "Hentzau", "1894"),
    ("", [doc("x", "Great New Royal Hentzau or Great New Royal Hentzau, then Zenda")], [], "short",
     "Great New Royal Hentzau", "Zenda"),
    ('he wrote "Red Castle"', [doc("x", "Red Castle, Red Castle by Hope")], [], "quoted", "Red Castle", "Hope"),
    ("", [doc("x", "Zenda's walls, Zenda's moat")], [], "possessive", "Zenda's", "Zenda"),
    ("", [doc("x", "Zenda, Zenda or Castle Hentzau")], [], "longest", "Zenda", "Castle Hentzau"),
    ("", [doc("x", "Zenda"), doc("y", "Hentzau, Hentzau")], [], "first_document", "Hentzau", "Zenda"),
    ("", [doc("x", "Zenda, Zenda"), doc("y", "Hentzau")], [], "last_document", "Zenda", "Hentzau"),
    ("where is Zenda", [doc("x", "Hentzau, Hentzau, Zenda")], [], "echo_question", "Hentzau", "Zenda"),
    ("", [doc("x", "see Zenda at night. It is dark.")], [], "sentence", "Zenda", "see Zenda at night"),
    ("", [doc("x", "Zenda, Zenda, Hentzau")], [], "alternatives", "Zenda", "Zenda or Hentzau"),
    ("", [doc("x", "Zenda")], [], "lower_case", "Zenda", "zenda"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "documents", "always", "name", "without", "with_it"), CASES, ids=[c[3] for c in CASES]
)
def test_a_directive_changes_what_it_should(
    question: str, documents: list[str], always: list[str], name: str, without: str, with_it: str
) -> None:
    assert answered(question, documents, *always) == without
    assert answered(question, documents, *always, name) == with_it


def test_every_directive_has_a_case() -> None:
    assert {case[3] for case in CASES} == {directive.name for directive in ON_DOCUMENTS}


def test_the_response_says_how_it_was_found_before_the_tags() -> None:
    response = respond(
        f"- {RULE['titles']}", "<documents>\n[DOC] [TLE] Zenda [PAR] a castle\n</documents>\n\nQuestion: q\n\n"
    )
    assert re.fullmatch(r"Ranked \d+ phrases in 1 documents; directives: titles\.\n<answer>Zenda</answer>", response)


@given(st.text(max_size=400), st.text(max_size=80), st.sets(st.sampled_from(sorted(DIRECTIVES))))
def test_any_text_is_answered_out_of_itself_and_always_alike(context: str, question: str, names: set[str]) -> None:
    active = frozenset(names) - {"alternatives", "lower_case"}
    found = answer(Exercise(context, question), active)
    assert found == answer(Exercise(context, question), active)
    assert all(word in context for word in found.split())


@given(st.text(max_size=400))
def test_a_prompt_of_any_form_gets_an_answer_in_tags(prompt: str) -> None:
    assert respond("", prompt).endswith("</answer>")


def test_what_is_worked_out_of_an_exercise_is_forgotten_with_it() -> None:
    exercise = Exercise("[DOC] Paris is the capital of France.", "What is the capital of France?")
    rank(exercise, frozenset())
    forgotten = weakref.ref(exercise)
    del exercise
    gc.collect()
    assert forgotten() is None
