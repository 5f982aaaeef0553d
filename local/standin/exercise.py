"""One request to the reader: its documents and question, cut into candidate phrases with their mentions."""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from local.standin.words import content_stems, key, phrases

_REQUEST = re.compile(r"<documents>(?P<context>.*)</documents>\s*Question:(?P<question>.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_DOCUMENT = re.compile(r"\[DOC\]\s*(?:\[TLE\](?P<title>.*?))?(?:\[PAR\](?P<text>.*?))?(?=\[DOC\]|\Z)", re.DOTALL)
_SENTENCE_END = re.compile(r"\.{2,}|(?<=[a-z0-9\"')])[.!?]\s+|[;|]|\s[-–]\s")
_QUOTED = re.compile(r"[\"“”]([^\"“”]{2,60})[\"“”]")
_PERSON_CUE = re.compile(
    r"\b(?:he|she|his|her|him|who|(?:this|these) (?:[\w-]+ ){0,3}(?:man|woman|author|actor|actress|president|king|"
    r"queen|singer|poet|artist|painter|composer|writer|novelist|general|explorer|leader|senator|scientist|star|director))\b",
    re.IGNORECASE,
)
_NUMBER_CUE = re.compile(r"\b(?:(?:this|what|which) (?:\w+ )?(?:year|number|date)|how many)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Mention:
    """One occurrence of a candidate: its document, its spelling, and what stands around it."""

    document: int
    in_title: bool
    shared: float
    """Share of the question's words that its sentence has, 0 to 1."""
    spelling: str


@dataclass
class Candidate:
    """A phrase with all its mentions; `key` is the form in which phrases are compared."""

    key: str
    stems: frozenset[str]
    mentions: list[Mention] = field(default_factory=list)

    @cached_property
    def spelling(self) -> str:
        """Return the spelling that the documents use most, the earliest of equals."""
        spellings = [mention.spelling for mention in self.mentions]
        return max(dict.fromkeys(spellings), key=spellings.count)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return the words of the key."""
        return tuple(self.key.split())

    @cached_property
    def is_ordinary(self) -> bool:
        """Return whether it begins like no name and no number."""
        return not (self.spelling[0].isupper() or self.spelling[0].isdigit())

    @cached_property
    def has_digits(self) -> bool:
        """Return whether there is a digit in it."""
        return any(character.isdigit() for character in self.key)


@dataclass(frozen=True)
class Document:
    """A search result."""

    title: str
    text: str


class Exercise:
    """Documents and question of one request; parsed once, ranked under any set of directives."""

    def __init__(self, context: str, question: str) -> None:
        self.question = " ".join(question.split())
        self.question_stems = content_stems(question)
        self.quoted = frozenset(key(quote) for quote in _QUOTED.findall(question))
        self.wants_person = bool(_PERSON_CUE.search(question))
        self.wants_number = bool(_NUMBER_CUE.search(question))
        self.documents = _documents(context)
        self.overlap = [self._shared(f"{document.title} {document.text}") for document in self.documents]
        self.candidates = self._candidates()
        self.factors: dict[tuple[str, frozenset[str]], tuple[float, ...]] = {}
        """What `ranking` has worked out of it, by the factors' name and the directives that they depend on."""

    @staticmethod
    @lru_cache(maxsize=512)
    def of_prompt(prompt: str) -> "Exercise":
        """Return the exercise of a message with `<documents>` and `Question:`; other text is one document.

        A training asks the same questions under every skill, and reading them is most of the work.
        """
        match = _REQUEST.search(prompt)
        return Exercise(match["context"], match["question"]) if match else Exercise(prompt, "")

    def sentences(self) -> list[tuple[int, bool, str]]:
        """Return every sentence as document index, whether it is a title, and text."""
        return [
            (index, in_title, part)
            for index, document in enumerate(self.documents)
            for in_title, text in ((True, document.title), (False, document.text))
            for part in _SENTENCE_END.split(text)
            if part.strip()
        ]

    def _shared(self, text: str) -> float:
        return len(self.question_stems & content_stems(text)) / max(len(self.question_stems), 1)

    def _candidates(self) -> dict[str, Candidate]:
        found: dict[str, Candidate] = {}
        for document, in_title, sentence in self.sentences():
            shared = self._shared(sentence)
            for phrase in phrases(sentence):
                name = key(phrase)
                if not name:
                    continue
                if name not in found:
                    found[name] = Candidate(name, content_stems(phrase))
                found[name].mentions.append(Mention(document, in_title, shared, phrase))
        return found


def _documents(context: str) -> tuple[Document, ...]:
    documents = tuple(
        Document(" ".join((match["title"] or "").split()), " ".join((match["text"] or "").split()))
        for match in _DOCUMENT.finditer(context)
    )
    return documents if documents else (Document("", " ".join(context.split())),)
