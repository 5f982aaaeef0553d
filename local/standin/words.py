"""Words and phrases of a text: how the reader cuts documents into candidates for an answer."""

import re
import string
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_FUNCTION_WORDS = """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing down during each else ever few for from further get got had has have having he her here
    hers him his how i if in into is it its itself just like made make many may me might more most much must my no
    nor not now of off on once one only or other our out over own part said same see seen she should since so some such
    than that the their them then there these they this those through to too under until up upon us use used was we well
    were what when where which while who whom whose why will with within without would yes you your yours
"""
STOPWORDS = frozenset(_FUNCTION_WORDS.split())
_LINKS = frozenset(["of", "the", "de", "la", "le", "von", "van", "del", "da", "di", "du", "for"])
_CONTRACTION = re.compile(
    r"(?:n['’]t|['’](?:m|re|ve|ll|d)|^(?:he|she|it|that|there|what|who|let|here|how)['’]s)$", re.I
)
_POSSESSIVE = re.compile(r"['’]s?$")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def key(phrase: str) -> str:
    """Return the form in which phrases are compared: lower case, no punctuation, no articles."""
    lowered = phrase.lower().translate(_PUNCTUATION)
    return " ".join(word for word in lowered.split() if word not in ("a", "an", "the"))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a crude singular, so that `islands` in a question meets `island` in a document."""
    plain = without_possessive(word)
    return plain[:-1] if len(plain) > 3 and plain.endswith("s") and not plain.endswith("ss") else plain


def without_possessive(phrase: str) -> str:
    """Drop a possessive ending: `Georgia's` becomes `Georgia`."""
    return _POSSESSIVE.sub("", phrase)


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning."""
    return frozenset(stem(word) for word in WORD.findall(text.lower()) if not is_function_word(word))


@lru_cache(maxsize=65536)
def is_function_word(word: str) -> bool:
    """Return whether a word can be no answer by itself: articles, pronouns, contractions, single letters."""
    return word.lower() in STOPWORDS or bool(_CONTRACTION.search(word)) or (len(word) == 1 and word.isalpha())


def phrases(sentence: str) -> Iterator[str]:
    """Yield every candidate of a sentence: names, numbers, and ordinary words alone and in pairs."""
    matches = list(WORD.finditer(sentence))
    tokens = [match.group() for match in matches]
    joined = [sentence[a.end() : b.start()] == " " for a, b in pairwise(matches)] + [False]
    meant = [not is_function_word(token) for token in tokens]
    yield from _names(tokens, joined)
    for index, token in enumerate(tokens):
        if not meant[index]:
            continue
        if not token[0].isupper():
            yield token
        if joined[index] and meant[index + 1] and not (token[0].isupper() and tokens[index + 1][0].isupper()):
            yield f"{token} {tokens[index + 1]}"


def _names(tokens: Sequence[str], joined: Sequence[bool]) -> Iterator[str]:
    start = 0
    while start < len(tokens):
        end = _name_end(tokens, joined, start)
        first = next((index for index in range(start, end) if not is_function_word(tokens[index])), end)
        if first < end:
            yield " ".join(tokens[first:end])
        start = max(end, start + 1)


def _name_end(tokens: Sequence[str], joined: Sequence[bool], start: int) -> int:
    """Return the end of the run of capitalised words that begins at `start`; links may stand inside."""
    if not tokens[start][0].isupper():
        return start
    end = start + 1
    while end < len(tokens) and joined[end - 1]:
        if tokens[end][0].isupper():
            end += 1
        elif tokens[end] in _LINKS and end + 1 < len(tokens) and joined[end] and tokens[end + 1][0].isupper():
            end += 2
        else:
            break
    return end
