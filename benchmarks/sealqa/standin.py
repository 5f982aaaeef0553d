"""The stand-in on pages that disagree: it reads what they claim, and trusts those that the skill tells it to."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local.standin.conversation import Call, Reply
from local.standin.directive import PREFER, Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Subject, Tool, Verdict
from skillopt_airflow.core.scoring.text_match import normalize

_ASKS = "What a search finds on this question may be old, wrong, or about something else."
_QUESTION = re.compile(r"Question: Who is the (?P<office>[a-z ]+) of (?P<place>[A-Z][\w ]+?)\?")
_PAGE = re.compile(
    r"^\[\d+\]\n(?:title: .*\n)?(?:url: (?P<url>.*)\n)?(?:date: (?P<date>.*)\n)?"
    r"(?P<text>(?:(?!\[\d+\]$).*\n?)*)",
    re.MULTILINE,
)
_NAME = r"(?P<name>[A-Z]\w+ [A-Z]\w+)"
_PLACE = r"(?P<place>[A-Z]\w+ [A-Z]\w+)"
_CUT = "[...]"
_UNKNOWN = "It is not known"
_PAGES = r"(?:pages?|sources?|results?|documents?|sites?|ones?)"
ON_PAGES = (
    directive(
        "newest",
        [rf"{PREFER}.{{0,40}}\b(?:newest|latest|most recent)\b.{{0,30}}\b{_PAGES}\b"],
        [
            "Compare the dates, and trust the newest page where they disagree.",
            "Prefer the most recent of the pages that disagree.",
        ],
        "What was answered stood on an old page, and a newer one says otherwise.",
    ),
    directive(
        "official",
        [rf"{PREFER}.{{0,40}}\bofficial\b.{{0,30}}\b{_PAGES}\b"],
        [
            "Prefer official sources, such as a council's own pages, to forums and newspapers.",
            "Rely on the official page of whoever the question is about, and not on hearsay.",
        ],
        "What was answered is hearsay, and an official page says otherwise.",
    ),
    directive(
        "same_name",
        [
            rf"\b(?:check|make sure|see|verify)\w*\b.{{0,40}}\b{_PAGES}\b.{{0,60}}"
            r"\b(?:exact|same|whole|very)\w*\b.{0,30}\b(?:names?|place)\b"
        ],
        [
            "Check that a page is about exactly the place of the question: the same whole name, and not a similar one.",
            "Make sure that the page speaks of the very name that is asked for.",
        ],
        "A page was believed that is about something with a similar name.",
    ),
    directive(
        "commit",
        [
            r"\bnot known\b.{0,20}\bonly (?:if|where|when)\b",
            r"\b(?:give|name|commit to)\b.{0,20}\b(?:one|an|the best) answer\b.{0,60}\bdisagree",
        ],
        [
            "Say that it is not known only if no page tells it; that pages disagree is no reason.",
            "Give one answer also where the pages disagree.",
        ],
        "It was called unknown although a page tells it.",
    ),
    directive(
        "most_pages",
        [rf"\b(?:most|majority of) (?:of the )?{_PAGES}\b.{{0,20}}\b(?:say|agree|name|claim)"],
        ["Answer what most pages say.", "Believe whatever the majority of pages claim."],
        "The expected name stands on fewer pages than others.",
        tempting=True,
    ),
    directive(
        "name_all",
        [r"\b(?:name|list|give)\b.{0,20}\b(?:every|all)\b.{0,20}\b(?:names?|candidates?|people)\b"],
        ["Give all the names that are found.", "List every name that is found, so that none is missed."],
        "The expected name was among those that were found.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Claim:
    """A page's statement of who holds an office, and where."""

    url: str
    date: str
    place: str
    name: str

    @property
    def official(self) -> bool:
        """Return whether the page is a council's own."""
        return ".gov." in self.url


@dataclass(frozen=True)
class Found:
    """A page as the target sees it."""

    url: str
    date: str
    text: str


def found_in(text: str) -> list[Found]:
    """Return the pages of a list with numbers."""
    return [
        Found(page["url"] or "", page["date"] or "", page["text"])
        for page in _PAGE.finditer(text.partition("</documents>")[0])
    ]


def answer(question: str, pages: Sequence[Found], active: Active) -> str:
    """Return who it is by the pages that the directives trust."""
    asked = _QUESTION.search(question)
    claims = _claims(asked, pages, active) if asked else []
    names = list(dict.fromkeys(claim.name for claim in claims))
    if not names or (len(names) > 2 and "commit" not in active):
        return _UNKNOWN
    if "name_all" in active:
        return " or ".join(names)
    if "official" in active:
        claims = [claim for claim in claims if claim.official] or claims
    if "most_pages" in active:
        return Counter(claim.name for claim in claims).most_common(1)[0][0]
    return max(claims, key=lambda claim: claim.date).name if "newest" in active else claims[0].name


def _claims(asked: re.Match[str], pages: Sequence[Found], active: Active) -> list[Claim]:
    """Return what the pages claim about the office, at the place itself or at one that begins like it."""
    office, place = re.escape(asked["office"]), asked["place"]
    forms = (rf"{_NAME} is the {office} of {_PLACE}\.", rf"[Tt]he {office} of {_PLACE} is {_NAME}\.")
    claims = [
        Claim(page.url, page.date, said["place"], said["name"])
        for page in pages
        for form in forms
        for said in re.finditer(form, page.text)
    ]
    exact = "same_name" in active
    return [one for one in claims if one.place == place or (not exact and one.place.split()[0] == place.split()[0])]


def use_search(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Search with the question, open what was cut, and answer."""
    if not results:
        asked = _QUESTION.search(task)
        query = f"{asked['office']} {asked['place']}" if asked else task
        return Reply(calls=(Call("search", json.dumps({"query": query})),))
    cut = [page.url for page in found_in(results[0]) if _CUT in page.text]
    opened = len(results) - 1
    if opened < len(cut):
        return Reply(calls=(Call("open_page", json.dumps({"address": cut[opened]})),))
    return Reply(_reply(answer(task, read(results), active)))


def read(results: Sequence[str]) -> list[Found]:
    """Return the pages of a search, with the text of those that were opened."""
    texts = iter(results[1:])
    return [
        Found(page.url, page.date, next(texts, page.text) if _CUT in page.text else page.text)
        for page in found_in(results[0])
    ]


def _reply(said: str) -> str:
    return f"Going by the pages.\n<answer>{said}</answer>"


@dataclass(frozen=True)
class PagesCase:
    """A question with the pages that were seen, and who was expected."""

    item_id: str
    question: str
    pages: tuple[Found, ...]
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the expected person comes out, and nobody else."""
        said = answer(self.question, self.pages, active)
        right = normalize(said) == normalize(self.expected)
        return Verdict(right, float(right))


class Pages(Subject):
    """Questions on which pages disagree."""

    directives: Sequence[Directive] = ON_PAGES
    empty_advice: Sequence[tuple[str, str]] = (
        ("Read the pages to their end before you answer.", "A hasty reading may miss what a page says."),
        ("Stay with what worked: read, compare, answer.", "The rollouts that went well did so."),
    )
    tools: Mapping[str, Tool] = {"search": use_search}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks in this benchmark's words."""
        return _ASKS in prompt

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return who it is by the pages in the prompt."""
        return _reply(answer(prompt, found_in(prompt), active))

    def case(self, trajectory: SeenTrajectory) -> PagesCase | None:
        """Return the pages of the prompt, or those that tools found; None if nobody said what was expected."""
        if not trajectory.references:
            return None
        results = [message.content for message in trajectory.messages if message.role == "tool"]
        pages = read(results) if results else found_in(trajectory.prompt)
        return PagesCase(trajectory.item_id, trajectory.prompt, tuple(pages), trajectory.references[0])


STANDIN = Pages()
