"""The stand-in as target: answers from the documents or choices of the request, or changes its workbook, as the
skill directs."""

from local.standin import spreadsheet
from local.standin.choices import Question
from local.standin.directives import recognise
from local.standin.exercise import Candidate, Exercise
from local.standin.ranking import Active, rank
from local.standin.words import key, without_possessive


def respond(skill: str, prompt: str) -> str:
    """One line on how the answer was found, then the answer inside <answer></answer>, or a program on a workbook."""
    active = recognise(skill)
    if spreadsheet.is_workbook_task(prompt):
        return spreadsheet.reply(active, prompt)
    question = Question.of_prompt(prompt)
    if question is not None:
        picked = question.pick(active)
        return f"{picked.label} looks best among {len(question.choices)} choices.\n<answer>{picked.label}</answer>"
    exercise = Exercise.of_prompt(prompt)
    count = f"{len(exercise.candidates)} phrases in {len(exercise.documents)} documents"
    rules = ", ".join(sorted(active)) if active else "none"
    return f"Ranked {count}; directives: {rules}.\n<answer>{answer(exercise, active)}</answer>"


def answer(exercise: Exercise, active: Active) -> str:
    """What the reader answers; empty if the documents hold no candidate."""
    ranked = rank(exercise, active)
    return phrase(exercise, ranked, active) if ranked else ""


def phrase(exercise: Exercise, ranked: list[Candidate], active: Active) -> str:
    """The answer's wording for a ranking that is not empty."""
    best = [_spelled(candidate, active) for candidate in ranked[:2]]
    if "sentence" in active:
        text = _sentence_with(exercise, ranked[0])
    elif "alternatives" in active:
        text = " or ".join(best)
    else:
        text = best[0]
    return text.lower() if "lower_case" in active else text


def _spelled(candidate: Candidate, active: Active) -> str:
    return without_possessive(candidate.spelling) if "possessive" in active else candidate.spelling


def _sentence_with(exercise: Exercise, candidate: Candidate) -> str:
    sentences = (sentence.strip() for _, _, sentence in exercise.sentences())
    return next((sentence for sentence in sentences if candidate.key in key(sentence)), candidate.spelling)
