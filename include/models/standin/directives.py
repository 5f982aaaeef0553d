"""The directives that the reader obeys, and how it recognises them in the wording of a skill.

A directive is on when the last clause of the skill that speaks of it asks for it, and off when that clause negates it
or no clause speaks of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CLAUSE_END = re.compile(r"[.;:!?]\s|[.;:!?]$|\bbut\b|\bwhile\b")
_NEGATED = re.compile(
    r"(?:\b(?:do not|don't|does not|never|not|no|avoid|no longer|stop|instead of|rather than|without)"
    r"\s+(?:[\w'-]+\s+){0,2})$"
)
_TURNED_DOWN = re.compile(r"\b(?:instead of|rather than)\b")
_LEAVE_OUT = (
    r"\b(?:leav(?:e|ing) out|skip\w*|exclud\w+|ignor\w+|discard\w*|drop\w*|rul(?:e|ing) out|reject\w*|eliminat\w+|"
    r"disregard\w*|filter\w* out|"
    r"(?:do not|don't|never|avoid) (?:\w+ )?(?:answer|repeat|reus|use|using|echo|copy|choos|pick|giv)\w*)"
)
_PREFER = (
    r"\b(?:prefer\w*|favou?r\w*|trust\w*|weigh\w*|rely\w* on|focus\w* on|prioriti[sz]\w+|rank\w*|choos\w+|pick\w*|"
    r"tak(?:e|ing)|us(?:e|ing)|look\w*|start\w*|read\w*|search\w*|giv(?:e|ing)|count\w*|"
    r"boost\w*|valu(?:e|ing)|answer\w*|emphasi[sz]\w+|check\w*|writ(?:e|ing))"
)
_DOCUMENTS = r"(?:documents?|pages?|results?|snippets?|passages?|sources?|hits?)"
_COMMON_WORDS = r"(?:ordinary|common|everyday|uncapitali[sz]ed) (?:words?|nouns?)"
_OTHER_SUBJECTS = (
    *("document", "page", "result", "sentence", "snippet", "passage", "source", "hit", "title"),
    *("close", "near", "next", "beside", "around", "adjacent", "never", "not"),
)
_QUESTION = r"(?:questions?|clues?)"
_CHOICE = r"(?:choices?|options?)"
_SET_ASIDE = rf"(?:{_LEAVE_OUT}|\b(?:leav(?:e|ing)|set(?:ting)?|put(?:ting)?) aside)"
_DISTRUST = r"\b(?:distrust|mistrust|suspect|doubt|beware of|be (?:wary|suspicious|sceptical|skeptical) of)\b"


@dataclass(frozen=True)
class Directive:
    """Something that a skill may ask of the reader.

    `patterns` recognise it in lower-case clauses; `rules` are wordings with which the optimizer asks for it, and
    `reason` is what it says for it. A tempting directive sounds right whether or not the evidence speaks for it. One
    on choices speaks of the choices of a multiple-choice item; the others speak of documents.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...]
    rules: tuple[str, ...]
    reason: str
    tempting: bool = False
    on_choices: bool = False


def _directive(
    name: str,
    patterns: list[str],
    rules: list[str],
    reason: str,
    *,
    tempting: bool = False,
    on_choices: bool = False,
) -> Directive:
    compiled = tuple(re.compile(pattern) for pattern in patterns)
    return Directive(name, compiled, tuple(rules), reason, tempting, on_choices)


def _gap(most: int, *barred: str) -> str:
    """Up to `most` characters of a clause, none of which begins a barred word."""
    return rf"(?:(?!\b(?:{'|'.join(barred)})).){{0,{most}}}" if barred else f".{{0,{most}}}"


_PHRASES = (
    _directive(
        "question_words",
        [
            rf"{_LEAVE_OUT}{_gap(60, 'document', 'page', 'quot', 'title')}"
            rf"\b(?:words?|terms?|phrases?|names?|anything|what)\b{_gap(40, 'document', 'quot')}\b{_QUESTION}",
            rf"answer is (?:never|not) {_gap(40, 'quot')}\b{_QUESTION}",
        ],
        [
            "Leave out words of the question: what the clue already says is not what it asks for.",
            "Never answer with a phrase that the question itself contains.",
            "Skip every candidate that only repeats words of the clue.",
        ],
        "The wrong answers repeat what the question already says.",
    ),
    _directive(
        "quoted",
        [rf"{_LEAVE_OUT}.{{0,50}}\bquot", r"\bquot\w+.{0,50}\b(?:is|are) (?:never|not|only|context)"],
        ["Leave out titles that the clue gives in quotation marks.", "A quoted title in the clue is never the answer."],
        "A quoted title was taken for the answer.",
    ),
    _directive(
        "site_words",
        [rf"{_LEAVE_OUT}.{{0,60}}\b(?:web ?sites?|sites?|boilerplate|navigation|publishers?|months?)\b"],
        [
            "Ignore names of websites, months and other boilerplate of result pages.",
            "Discard site names such as those of encyclopedias and quiz pages, and other boilerplate.",
        ],
        "Names of websites and page furniture came up as answers.",
    ),
    _directive(
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
    _directive(
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
    _directive(
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
    _directive(
        "titles",
        [
            rf"{_PREFER}{_gap(50, 'quot')}\b(?:titles?|headings?|headlines?)\b",
            r"\b(?:titles?|headings?|headlines?)\b.{0,30}\b(?:counts?|weighs?|matters?|tells?)\b.{0,12}\b(?:more|most|double)\b",
        ],
        [
            "Weigh titles more than running text: a page about the answer often carries it as its title.",
            "Look at the titles of the documents first, they count more than the text below.",
        ],
        "The expected phrase stood in a title and lost against running text.",
    ),
    _directive(
        "matching_documents",
        [
            rf"{_PREFER}.{{0,40}}\b{_DOCUMENTS}\b.{{0,40}}\b(?:shar|match|overlap|mention|contain|repeat|fit|cover|have)\w*\b"
            rf".{{0,40}}\b{_QUESTION}"
        ],
        [
            "Prefer documents that share the question's words; the others are about something else.",
            "Trust the pages that match most words of the clue.",
        ],
        "The answer was taken from a document that has little to do with the clue.",
    ),
    _directive(
        "near_question",
        [rf"\b(?:near|close|closest|closer|next|same sentence|beside|around|adjacent)\b.{{0,60}}\b{_QUESTION}"],
        [
            "Prefer a phrase that stands close to the words of the clue.",
            "Favour candidates from the same sentence as words of the question.",
        ],
        "The expected phrase stood beside the words of the question.",
    ),
    _directive(
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
    _directive(
        "full_names",
        [rf"{_PREFER}.{{0,40}}\b(?:full|complete|whole|fullest)\b.{{0,12}}\b(?:names?|forms?)\b"],
        [
            "Prefer full names to a part of them.",
            "Give the full name when the documents also use a part of it alone.",
        ],
        "Only a part of the expected name was given.",
    ),
    _directive(
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
    _directive(
        "possessive",
        [r"\b(?:drop|strip|remov|leav|cut|omit)\w*\b.{0,30}(?:\bpossessive|'s\b|\bapostrophe)"],
        ["Drop a possessive ending from the answer.", "Strip the possessive 's before you answer."],
        "The answer differs from the expected one by its ending.",
    ),
)
_TEMPTING = (
    _directive(
        "longest",
        [rf"{_PREFER}.{{0,30}}\b(?:longest|lengthiest|most detailed)\b(?! {_CHOICE}\b)"],
        [
            "Answer with the longest phrase that fits, so that nothing is missing.",
            "Prefer the most detailed candidate.",
        ],
        "A longer answer cannot miss a part of the expected one.",
        tempting=True,
    ),
    _directive(
        "first_document",
        [
            rf"{_PREFER}.{{0,40}}\bfirst\b.{{0,20}}\b{_DOCUMENTS}\b",
            rf"\b(?:first|top)\b.{{0,12}}\b{_DOCUMENTS}\b.{{0,20}}\b(?:best|alone|only|suffices)\b",
        ],
        ["Rely on the first document only, it is the most relevant.", "Take the answer from the first result."],
        "The search engine ranks the best result first.",
        tempting=True,
    ),
    _directive(
        "last_document",
        [rf"{_PREFER}.{{0,40}}\b(?:last|final)\b.{{0,20}}\b{_DOCUMENTS}\b"],
        ["Rely on the last document, which sums the others up.", "Take the answer from the final result."],
        "What comes last has seen what came before.",
        tempting=True,
    ),
    _directive(
        "echo_question",
        [
            rf"{_PREFER}{_gap(40, *_OTHER_SUBJECTS)}\b(?:words?|phrases?|terms?|names?)\b{_gap(20, *_OTHER_SUBJECTS)}"
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
    _directive(
        "sentence",
        [r"\b(?:quot|cop|giv|answer|writ|return)\w*\b.{0,20}\b(?:whole|full|entire|complete) (?:sentence|passage)"],
        ["Quote the whole sentence that holds the answer.", "Answer with a complete sentence."],
        "A sentence shows in what sense the answer is meant.",
        tempting=True,
    ),
    _directive(
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
    _directive(
        "lower_case",
        [r"\b(?:writ|giv|answer|spell)\w*\b.{0,30}\bin (?:lower[- ]case|small letters)"],
        ["Write the answer in lower case.", "Give the answer in small letters, as the scorer ignores case."],
        "Expected and given answer differ in capital letters.",
        tempting=True,
    ),
)
_CHOICES = (
    _directive(
        "distrust_strongest",
        [
            rf"{_DISTRUST}.{{0,40}}\b(?:claims? (?:the )?(?:more|most|too much)|strongest|boldest|most sweeping)\b",
            rf"{_PREFER}.{{0,40}}\b(?:weaker|weakest|more cautious|most cautious)\b.{{0,24}}\b{_CHOICE}\b",
        ],
        [
            "Distrust a choice that claims more than the others: a theorem seldom gives all that one could wish for.",
            "Be wary of the strongest option, it often drops a condition that the result needs.",
        ],
        "The wrong choices claimed more than the expected one.",
        on_choices=True,
    ),
    _directive(
        "exclude_wildcard",
        [
            rf"{_SET_ASIDE}.{{0,40}}\b{_CHOICE}\b.{{0,60}}\b(?:another|other|others|remaining|rest)\b"
            r".{0,24}\b(?:right|correct|true)\b",
            rf"{_SET_ASIDE}.{{0,24}}\b(?:wild ?cards?|none of the above)\b",
        ],
        [
            "Leave aside choices that only say that another one is right.",
            "Exclude an option that states nothing itself, such as that one of the rest is correct.",
        ],
        "A choice was taken that states nothing itself.",
        on_choices=True,
    ),
    _directive(
        "longest_choice",
        [
            rf"{_PREFER}.{{0,30}}\b(?:longest|lengthiest|most detailed) {_CHOICE}\b",
            rf"{_PREFER}.{{0,20}}\b{_CHOICE}\b.{{0,20}}\bmost (?:words|details?)\b",
        ],
        [
            "Pick the longest choice, it was written with the most care.",
            "Prefer the option with the most details.",
        ],
        "A correct statement needs more words than a wrong one.",
        tempting=True,
        on_choices=True,
    ),
)
DIRECTIVES: dict[str, Directive] = {
    directive.name: directive for directive in (*_PHRASES, *_EVIDENCE, *_TEMPTING, *_CHOICES)
}


def recognise(skill: str) -> frozenset[str]:
    """Names of the directives that a skill switches on."""
    state: dict[str, bool] = {}
    for clause in _clauses(skill):
        state |= _asked(clause)
    return frozenset(name for name, on in state.items() if on)


def _clauses(skill: str) -> Iterator[str]:
    for line in skill.lower().replace("’", "'").splitlines():
        yield from (clause for clause in _CLAUSE_END.split(line) if clause.strip())


def _asked(clause: str) -> dict[str, bool]:
    """The directives that a clause speaks of, and whether it asks for them."""
    asked: dict[str, bool] = {}
    for directive in DIRECTIVES.values():
        for pattern in directive.patterns:
            match = pattern.search(clause)
            if match:
                negated = _NEGATED.search(clause[: match.start()]) or _TURNED_DOWN.search(match.group())
                asked[directive.name] = not negated
                break
    return asked
