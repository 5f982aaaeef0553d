"""The directives that the reader obeys, and how it recognises them in the wording of a skill.

A directive is on when the last clause of the skill that speaks of it asks for it, and off when that clause negates it
or no clause speaks of it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType

from local.standin.directive import LEAVE_OUT, PREFER, Directive, directive, gap
from local.standin.subjects import SUBJECTS

_CLAUSE_END = re.compile(r"[.;:!?]\s|[.;:!?]$|\bbut\b|\bwhile\b")
_NEGATED = re.compile(
    r"(?:\b(?:do not|don't|does not|never|not|no|avoid|no longer|stop|instead of|rather than|without)"
    r"\s+(?:[\w'-]+\s+){0,2})$"
)
_TURNED_DOWN = re.compile(r"\b(?:instead of|rather than)\b")
_DOCUMENTS = r"(?:documents?|pages?|results?|snippets?|passages?|sources?|hits?)"
_COMMON_WORDS = r"(?:ordinary|common|everyday|uncapitali[sz]ed) (?:words?|nouns?)"
_OTHER_SUBJECTS = (
    *("document", "page", "result", "sentence", "snippet", "passage", "source", "hit", "title"),
    *("close", "near", "next", "beside", "around", "adjacent", "never", "not"),
)
_QUESTION = r"(?:questions?|clues?)"
_CHOICE = r"(?:choices?|options?)"


_PHRASES = (
    directive(
        "question_words",
        [
            rf"{LEAVE_OUT}{gap(60, 'document', 'page', 'quot', 'title')}"
            rf"\b(?:words?|terms?|phrases?|names?|anything|what)\b{gap(40, 'document', 'quot')}\b{_QUESTION}",
            rf"answer is (?:never|not) {gap(40, 'quot')}\b{_QUESTION}",
        ],
        [
            "Leave out words of the question: what the clue already says is not what it asks for.",
            "Never answer with a phrase that the question itself contains.",
            "Skip every candidate that only repeats words of the clue.",
        ],
        "The wrong answers repeat what the question already says.",
    ),
    directive(
        "quoted",
        [rf"{LEAVE_OUT}.{{0,50}}\bquot", r"\bquot\w+.{0,50}\b(?:is|are) (?:never|not|only|context)"],
        ["Leave out titles that the clue gives in quotation marks.", "A quoted title in the clue is never the answer."],
        "A quoted title was taken for the answer.",
    ),
    directive(
        "site_words",
        [rf"{LEAVE_OUT}.{{0,60}}\b(?:web ?sites?|sites?|boilerplate|navigation|publishers?|months?)\b"],
        [
            "Ignore names of websites, months and other boilerplate of result pages.",
            "Discard site names such as those of encyclopedias and quiz pages, and other boilerplate.",
        ],
        "Names of websites and page furniture came up as answers.",
    ),
    directive(
        "common_words",
        [
            rf"\b(?:consider|allow|accept|include|admit)\w*\b.{{0,50}}\b{_COMMON_WORDS}",
            rf"\b{_COMMON_WORDS}.{{0,20}}\b(?:can|may) (?:also )?(?:be|answer)",
        ],
        [
            "Accept ordinary words and not names alone: many clues ask for a thing.",
            "Consider common nouns as well; an answer needs no capital letter.",
        ],
        "The clue asks for a thing, and only names were looked at.",
    ),
    directive(
        "person",
        [
            r"\b(?:person|people|man|woman|he|she)\b.{0,60}\b(?:first and last|personal) names?\b",
            r"\b(?:first and last|personal) names?\b.{0,60}\b(?:person|people|man|woman|he|she)\b",
        ],
        [
            "When the clue speaks of a person, look for a first and last name.",
            "If the question says he, she or this man or woman, answer with a personal name.",
        ],
        "The clue asks for a person and got something else.",
    ),
    directive(
        "number",
        [
            r"\b(?:years?|numbers?|dates?|figures?|digits?)\b.{0,60}\bonly (?:if|when|where)\b",
            r"\b(?:if|when|unless)\b.{0,40}\basks?\b.{0,20}\b(?:years?|numbers?|dates?|how many)\b",
        ],
        [
            "Give a year or another number only if the clue asks for one.",
            "When the question asks for a year or a number, answer with digits; else leave them aside.",
        ],
        "Numbers were mixed up with names.",
    ),
)
_EVIDENCE = (
    directive(
        "titles",
        [
            rf"{PREFER}{gap(50, 'quot')}\b(?:titles?|headings?|headlines?)\b",
            r"\b(?:titles?|headings?|headlines?)\b.{0,30}\b(?:counts?|weighs?|matters?|tells?)\b.{0,12}\b(?:more|most|double)\b",
        ],
        [
            "Weigh titles more than running text: a page about the answer often carries it as its title.",
            "Look at the titles of the documents first, they count more than the text below.",
        ],
        "The expected phrase stood in a title and lost against running text.",
    ),
    directive(
        "matching_documents",
        [
            rf"{PREFER}.{{0,40}}\b{_DOCUMENTS}\b.{{0,40}}\b(?:shar|match|overlap|mention|contain|repeat|fit|cover|have)\w*\b"
            rf".{{0,40}}\b{_QUESTION}"
        ],
        [
            "Prefer documents that share the question's words; the others are about something else.",
            "Trust the pages that match most words of the clue.",
        ],
        "The answer was taken from a document that has little to do with the clue.",
    ),
    directive(
        "near_question",
        [rf"\b(?:near|close|closest|closer|next|same sentence|beside|around|adjacent)\b.{{0,60}}\b{_QUESTION}"],
        [
            "Prefer a phrase that stands close to the words of the clue.",
            "Favour candidates from the same sentence as words of the question.",
        ],
        "The expected phrase stood beside the words of the question.",
    ),
    directive(
        "recurrence",
        [
            r"\b(?:recur|repeat|appear|occur|com(?:e|es) up|name|mention|agree)\w*\b.{0,40}\b(?:across|in|by|on)\b"
            rf".{{0,12}}\b(?:several|many|multiple|different|most|two or more|various)\b.{{0,16}}\b{_DOCUMENTS}",
            rf"\b(?:recur|repeat)\w* across (?:the )?{_DOCUMENTS}",
        ],
        [
            "Prefer phrases that recur across several documents to ones that a single document repeats.",
            "Favour what is named in many different documents.",
        ],
        "One document repeated a phrase and outvoted all the others.",
    ),
    directive(
        "full_names",
        [rf"{PREFER}.{{0,40}}\b(?:full|complete|whole|fullest)\b.{{0,12}}\b(?:names?|forms?)\b"],
        [
            "Prefer full names to a part of them.",
            "Give the full name when the documents also use a part of it alone.",
        ],
        "Only a part of the expected name was given.",
    ),
    directive(
        "short",
        [
            r"\b(?:keep|make|prefer|writ|choos|giv)\w*\b.{0,30}\b(?:short|brief|concise)\b",
            r"\b(?:at most|no more than) (?:three|3|a few) words\b",
        ],
        [
            "Keep the answer short: a name or a noun, at most three words.",
            "Make it a brief phrase of no more than three words.",
        ],
        "The answer ran on beyond the name.",
    ),
    directive(
        "possessive",
        [r"\b(?:drop|strip|remov|leav|cut|omit)\w*\b.{0,30}(?:\bpossessive|'s\b|\bapostrophe)"],
        ["Drop a possessive ending from the answer.", "Strip the possessive 's before you answer."],
        "The answer differs from the expected one by its ending.",
    ),
)
_TEMPTING = (
    directive(
        "longest",
        [rf"{PREFER}.{{0,30}}\b(?:longest|lengthiest|most detailed)\b(?! {_CHOICE}\b)"],
        [
            "Answer with the longest phrase that fits, so that nothing is missing.",
            "Prefer the most detailed candidate.",
        ],
        "A longer answer cannot miss a part of the expected one.",
        tempting=True,
    ),
    directive(
        "first_document",
        [
            rf"{PREFER}.{{0,40}}\bfirst\b.{{0,20}}\b{_DOCUMENTS}\b",
            rf"\b(?:first|top)\b.{{0,12}}\b{_DOCUMENTS}\b.{{0,20}}\b(?:best|alone|only|suffices)\b",
        ],
        ["Rely on the first document only, it is the most relevant.", "Take the answer from the first result."],
        "The search engine ranks the best result first.",
        tempting=True,
    ),
    directive(
        "last_document",
        [rf"{PREFER}.{{0,40}}\b(?:last|final)\b.{{0,20}}\b{_DOCUMENTS}\b"],
        ["Rely on the last document, which sums the others up.", "Take the answer from the final result."],
        "What comes last has seen what came before.",
        tempting=True,
    ),
    directive(
        "echo_question",
        [
            rf"{PREFER}{gap(40, *_OTHER_SUBJECTS)}\b(?:words?|phrases?|terms?|names?)\b{gap(20, *_OTHER_SUBJECTS)}"
            rf"\b(?:of|from|in|repeats?|contains?|echoes) (?:the )?{_QUESTION}",
            rf"^\W*(?:repeat|echo) (?:the )?(?:words|wording|terms) of the {_QUESTION}",
        ],
        [
            "Choose a phrase that repeats the clue, so that the answer stays on its subject.",
            "Prefer names from the question, they are its subject.",
        ],
        "The answer had drifted away from the subject of the clue.",
        tempting=True,
    ),
    directive(
        "sentence",
        [r"\b(?:quot|cop|giv|answer|writ|return)\w*\b.{0,20}\b(?:whole|full|entire|complete) (?:sentence|passage)"],
        ["Quote the whole sentence that holds the answer.", "Answer with a complete sentence."],
        "A sentence shows in what sense the answer is meant.",
        tempting=True,
    ),
    directive(
        "alternatives",
        [
            r"\b(?:giv|list|nam|writ|offer|answer)\w*\b.{0,30}\b(?:two|three|several|all)\b.{0,12}"
            r"\b(?:candidates|answers|alternatives|possibilities)"
        ],
        [
            "List the two best candidates when you are not sure.",
            "Offer several possibilities, one of them will be right.",
        ],
        "The expected phrase was the runner-up.",
        tempting=True,
    ),
    directive(
        "lower_case",
        [r"\b(?:writ|giv|answer|spell)\w*\b.{0,30}\bin (?:lower[- ]case|small letters)"],
        ["Write the answer in lower case.", "Give the answer in small letters, as the scorer ignores case."],
        "Expected and given answer differ in capital letters.",
        tempting=True,
    ),
)
ON_DOCUMENTS = (*_PHRASES, *_EVIDENCE, *_TEMPTING)
"""What a skill may ask of the reader where no benchmark's subject claims the item."""
_FAMILIES = (_PHRASES, _EVIDENCE, _TEMPTING, *(subject.directives for subject in SUBJECTS))
DIRECTIVES: dict[str, Directive] = {member.name: member for family in _FAMILIES for member in family}


def siblings(name: str) -> tuple[str, ...]:
    """Return the other directives that speak of the same matter, in the order of the table."""
    family = next(family for family in _FAMILIES if DIRECTIVES[name] in family)
    return tuple(member.name for member in family if member.name != name)


def recognise(skill: str) -> frozenset[str]:
    """Return the names of the directives that a skill switches on."""
    return frozenset(name for name, on in spoken_of(skill).items() if on)


def spoken_of(skill: str) -> dict[str, bool]:
    """Return the directives that a skill speaks of, and whether it switches them on."""
    state: dict[str, bool] = {}
    for clause in _clauses(skill):
        state |= _asked(clause)
    return state


def _clauses(skill: str) -> Iterator[str]:
    for line in skill.lower().replace("’", "'").splitlines():
        yield from (clause for clause in _CLAUSE_END.split(line) if clause.strip())


@lru_cache(maxsize=4096)
def _asked(clause: str) -> MappingProxyType[str, bool]:
    """Return the directives that a clause speaks of, and whether it asks for them.

    A skill is read anew for every item, and most of its clauses were in the skill before it.
    """
    asked: dict[str, bool] = {}
    for known in DIRECTIVES.values():
        for pattern in known.patterns:
            match = pattern.search(clause)
            if match:
                negated = _NEGATED.search(clause[: match.start()]) or _TURNED_DOWN.search(match.group())
                asked[known.name] = not negated
                break
    return MappingProxyType(asked)
