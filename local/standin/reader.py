"""The stand-in as target: answers from the documents of the request, or as its subject does, as the skill directs."""

from collections.abc import Sequence

from local.standin.directives import recognise
from local.standin.exercise import Candidate, Exercise
from local.standin.ranking import rank
from local.standin.subject import Active
from local.standin.subjects import SUBJECTS
from local.standin.words import key, without_possessive


def respond(skill: str, prompt: str, pictures: Sequence[bytes] = ()) -> str:
    """Return a line on how the answer was found and the answer in <answer></answer>, or what the subject says."""
    return respond_to(recognise(skill), prompt, pictures)


def respond_to(active: Active, prompt: str, pictures: Sequence[bytes] = ()) -> str:
    """Return the answer under these directives."""
    subject = next((subject for subject in SUBJECTS if subject.speaks_of(prompt)), None)
    if subject is not None:
        return subject.respond(active, prompt, pictures)
    exercise = Exercise.of_prompt(prompt)
    count = f"{len(exercise.candidates)} phrases in {len(exercise.documents)} documents"
    rules = ", ".join(sorted(active)) if active else "none"
    return f"Ranked {count}; directives: {rules}.\n<answer>{answer(exercise, active)}</answer>"


def answer(exercise: Exercise, active: Active) -> str:
    """Return what the reader answers; empty if the documents hold no candidate."""
    ranked = rank(exercise, active)
    return phrase(exercise, ranked, active) if ranked else ""


def phrase(exercise: Exercise, ranked: list[Candidate], active: Active) -> str:
    """Return the answer's wording for a ranking that is not empty."""
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
