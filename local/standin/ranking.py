"""The reader's scores of candidates: each directive that is on changes the weight of mentions or of whole phrases."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import wraps

from local.standin.exercise import Candidate, Exercise, Mention
from local.standin.subject import Active

_PAGE_FURNITURE = """
    wikipedia encyclopedia dictionary youtube facebook twitter amazon imdb blog home page news video videos photo
    photos online free website site web com org net www http https pdf quizlet flashcards answer answers question
    questions quiz q jeopardy trivia  github  review reviews wiki
    britannica reference definition biography facts january february march april may june july august
    september october november december jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday
    thursday friday saturday sunday history information category list times magazine book books search archive
    copyright read story article articles chapter episode guide index overview profile gazetteer travel
"""
_DOMAINS = (".com", ".org", ".net")
_SITE_WORDS = frozenset(_PAGE_FURNITURE.split())
_OF_MASSES = frozenset(
    ["titles", "matching_documents", "near_question", "first_document", "last_document", "recurrence", "full_names"]
)
_OF_QUESTION = frozenset(["question_words", "echo_question", "quoted"])
_OF_KIND = frozenset(["common_words", "number", "person"])
_OF_FORM = frozenset(["site_words", "short", "longest"])
"""The directives that each factor of a score depends on; toggling one of them leaves the others as they were."""

Factors = tuple[float, ...]
"""One a candidate."""


def _kept(found: Callable[[Exercise, Active], Factors]) -> Callable[[Exercise, Active], Factors]:
    """Keep the factors with the exercise, which is met under many sets of directives, and is forgotten with them."""

    @wraps(found)
    def known(exercise: Exercise, active: Active) -> Factors:
        name = (found.__name__, active)
        if name not in exercise.factors:
            exercise.factors[name] = found(exercise, active)
        return exercise.factors[name]

    return known


def rank(exercise: Exercise, active: Active) -> list[Candidate]:
    """Return the candidates from best to worst under the directives; those that score nothing are left out."""
    factors = zip(
        exercise.candidates,
        _masses(exercise, active & _OF_MASSES),
        _fits_of_question(exercise, active & _OF_QUESTION),
        _fits_of_kind(exercise, active & _OF_KIND),
        _fits_of_form(exercise, active & _OF_FORM),
        strict=True,
    )
    scored = ((-mass * (question * kind * form), name) for name, mass, question, kind, form in factors)
    return [exercise.candidates[name] for _, name in sorted(one for one in scored if one[0] < 0.0)]


@_kept
def _masses(exercise: Exercise, active: Active) -> Factors:
    masses = {name: _mass(exercise, candidate, active) for name, candidate in exercise.candidates.items()}
    if "full_names" in active:
        masses = _with_their_parts(exercise.candidates, masses)
    return tuple(masses.values())


def _mass(exercise: Exercise, candidate: Candidate, active: Active) -> float:
    by_document: defaultdict[int, float] = defaultdict(float)
    for mention in candidate.mentions:
        by_document[mention.document] += _weight(exercise, mention, active)
    if "recurrence" in active:
        return float(sum(weight**0.6 for weight in by_document.values()))
    return sum(by_document.values())


def _weight(exercise: Exercise, mention: Mention, active: Active) -> float:
    weight = 1.0
    if "titles" in active and mention.in_title:
        weight *= 4.0
    if "matching_documents" in active:
        weight *= 0.1 + exercise.overlap[mention.document]
    if "near_question" in active:
        weight *= 0.5 + mention.shared
    if "first_document" in active and mention.document > 0:
        weight *= 0.15
    if "last_document" in active and mention.document < len(exercise.documents) - 1:
        weight *= 0.15
    return weight


def _with_their_parts(candidates: Mapping[str, Candidate], masses: Mapping[str, float]) -> dict[str, float]:
    """Let a full name inherit from the mentions of each of its words alone."""
    grown = dict(masses)
    for name, candidate in candidates.items():
        if 2 <= len(candidate.words) <= 4:
            parts = (masses.get(word, 0.0) for word in candidate.words)
            grown[name] += 0.25 * sum(min(part, 2.0 * masses[name]) for part in parts)
    return grown


@_kept
def _fits_of_question(exercise: Exercise, active: Active) -> Factors:
    return tuple(_fit_of_question(exercise, candidate, active) for candidate in exercise.candidates.values())


@_kept
def _fits_of_kind(exercise: Exercise, active: Active) -> Factors:
    return tuple(_fit_of_kind(exercise, candidate, active) for candidate in exercise.candidates.values())


@_kept
def _fits_of_form(exercise: Exercise, active: Active) -> Factors:
    return tuple(_fit_of_form(candidate, active) for candidate in exercise.candidates.values())


def _fit_of_question(exercise: Exercise, candidate: Candidate, active: Active) -> float:
    fit = 1.0
    repeated = len(candidate.stems & exercise.question_stems)
    if "question_words" in active and repeated:
        fit *= 0.02 if repeated == len(candidate.stems) else 0.5
    if "echo_question" in active:
        fit *= 1.0 + 3.0 * repeated
    if "quoted" in active and candidate.key in exercise.quoted:
        fit *= 0.05
    return fit


def _fit_of_kind(exercise: Exercise, candidate: Candidate, active: Active) -> float:
    fit = 1.0
    if candidate.is_ordinary:
        fit *= 0.5 if "common_words" in active else 0.0
    if "number" in active:
        fit *= (4.0 if exercise.wants_number else 0.2) if candidate.has_digits else 1.0
    if "person" in active and exercise.wants_person and not candidate.is_ordinary and 2 <= len(candidate.words) <= 3:
        fit *= 1.5
    return fit


def _fit_of_form(candidate: Candidate, active: Active) -> float:
    fit = 1.0
    if "site_words" in active:
        words = candidate.spelling.lower().split()
        site_words = sum(word in _SITE_WORDS or word.endswith(_DOMAINS) for word in words)
        fit *= 0.05 if site_words == len(candidate.words) else 0.3 if site_words else 1.0
    if "short" in active and len(candidate.words) > 3:
        fit *= 0.3
    if "longest" in active:
        fit *= len(candidate.key)
    return fit
