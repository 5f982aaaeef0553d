"""The letters of choices that a response states as its answer, only names, or rejects.

Each word of a response becomes one character for its kind (`_KINDS`). The lead of a letter is the part of its clause
before it; its verdict is the part after it. Patterns over these characters find the letters that are rejected ("not B",
"B is too weak"), stated ("Answer: B", "I choose B", "B is correct", only `B`), labels ("B) the Nile") or only named
("see option B"). A word that `_KINDS` lacks only costs certainty: the letter next to it counts as named, and
statements take precedence over names.
"""

import re
import unicodedata
from collections.abc import Iterator
from string import ascii_uppercase
from typing import NamedTuple

_IN_WORD = "0-9A-Za-z_\u00aa-\u052f"
_NEAR = 30
"""Words before and after a letter that count. The limit keeps the time linear in the length of a response."""
HEAD_CHARS, TAIL_CHARS = 4_000, 12_000
"""Parts of a longer response that are read: models state the answer at its end or beginning."""
FONT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|boxed)\s*\{([^{}]*)\}")
"""LaTeX fonts, in which models also write choices."""
# A dollar before a digit is money, not the end of a formula.
_FORMULA = re.compile(r"\\[(\[]((?:(?!\\[()\[\]]).)*)\\[)\]]|\$+(?=\S)([^$]*)(?<=\S)\$+(?!\d)", re.DOTALL)
_IS_LETTER = re.compile(r"[\s*(\[]{0,9}([A-Za-z])[\s*)\].:]{0,9}")
_INLINE_TAG = re.compile(r"</?(?:b|i|u|em|strong|code|mark|span)>", re.IGNORECASE)
_TAG = re.compile(r"<[/|]?\w[\w|]{0,20}>")
_QUOTES = "*_`\"'“”„‘’«»「」『』"
_MARKED = re.compile(
    rf"(?<![{_IN_WORD}])[{_QUOTES}(\[{{【]{{1,6}} ?([A-Za-z])([).:]{{0,2}}) ?[{_QUOTES})\]}}】]{{1,6}}(?![{_IN_WORD}])"
)
_DECORATION = re.compile(
    rf"(?m)^[ \t]*(?:[-*•>#]{{1,6}}[ \t]+){{1,6}}|[*`\"“”„«»「」『』{{}}]+"
    rf"|(?<![{_IN_WORD}])['_]+|(?<=[{_IN_WORD}])['_]+(?![{_IN_WORD}])"
)
_GOES_ON = re.compile(
    r"(?i:it|plutôt|anstatt|statt|anziché|en|au|invece|et|y|und|e|ou|oder|non|nicht|pas|ist|est|es|weil|porque|car|parce|perché|da|и|не|and|as|because|but|by|could|due|for|from|has|if|in|instead|is|may|not|of|on|or|over|rather|should|since|than|"
    r"that|the|to|too|was|when|where|which|while|with|would|must|alone|both|are|were|all|also|here|then|will|do|have|again|can\s?(?:be|not|only)|does|\w+n't|"
    r"[a-z]{2,}[^\W_suia]s)(?![\w-])"
)
"""Words that can follow the letter A, but not the article."""
_GOES_ON_FROM_I = re.compile(r"(?:is|or|because|since|rather|over|instead)\b")
_WORD_BEHIND = re.compile(r"[^\S\n]{1,9}([a-z]|[A-Z]{2})|'")
_SINGULAR = re.compile(r"(?:is|was|does|has)(?:n't)?|[a-z]+[^\W_su]s", re.IGNORECASE)
_CONTRAST = re.compile(r"not|rather.*|instead.*|unlike|nicht|statt|pas|no|plut.*|au.*|en .*|вместо", re.IGNORECASE)
_KINDS = {
    # Fillers without a meaning, tried before all other kinds.
    "_": "no_(?:doubt|question|wonder) not_only without_(?:a_)?doubt it_turns_out turns_out",
    # All but: the exception follows ("anything but B").
    "x": "(?:all|any|every)(?:thing|_options?|_choices?)?_(?:but|except)",
    # Comparisons: the worse choice follows ("C rather than B").
    "p": "rather_than instead_of other_than as_opposed_to in_place_of over than unlike versus vs beats? "
    "outperforms trumps except excluding statt anstatt anstelle_von plutôt_que? au_lieu_de? en_lugar_de? en_vez_de? "
    "invece_di anziché em_vez_de? вместо 而非 而不是",
    # Negations after the letter (Japanese, Korean, Turkish).
    "q": "ではなく じゃなく でなく が아니라 가_아니라 이_아니라 아니라 değil",
    # None: inverts the lead.
    "s": "none nothing neither no_others?",
    # Also: another letter is stated as well.
    "a": "as_well equally also likewise ebenfalls también também anche также тоже too(?=\\s*(?:[.,;!]|$))",
    # The only one, so it is stated.
    "Y": "the_only(?!_(?:wrong|incorrect|false|invalid))",
    # Right.
    "y": "what (?:the|my)_(?:option|choice|answer|one|pick) correct- right yes best strongest ideal winner richtig- "
    "korrekt- vrai- juste bonne cert[oa] giust[oa] esatt[oa] verdadeir- верн- правильн- 正确 正確 正しい 正解 正答 对 "
    "對 맞 옳 정답 ✓ ✔ ✅ ☑",
    # Not.
    "N": "not never no non nor cannot cant isnt doesnt wont without hardly barely [a-z]+n't nicht kein- pas ne "
    "n'[a-z]+ não не нет 不 没 沒 無 ない 않 niet geen inte ikke tidak bukan không ليس नहीं",
    # Wrong, and other attributes of wrong choices.
    "n": "wrong- incorrect- inaccura- false- untrue invalid- fail- too rul[a-z]*_out out rejec- eliminat- exclud- "
    "discard- dismiss- disqualif- refut- disprov- contradict- violat- conflict- overstat- understat- overlook- "
    "unlikely implausibl- impossibl- irrelevan- mislead- inconsisten- incompat- insufficient- incomplete inadequate "
    "unsupported unrelated lack- miss(?:es|ing)? misread- misinterpret- mistak- ignor- omit- drop- forget- neglect- "
    "confus- weak- worse less lower flaw- err errors? distract- trap decoy avoid- skip- against revers- problem- "
    "poor- absurd nonsens- falsch- ausgeschlossen ausschlie- faux fausse- écart- élimin- fals[oa]- descart- errad- "
    "errat- errónea sbagliat- scart- неверн- неправильн- ошиб- исключ- 非 错 錯 误 誤 排除 間違 違 아니 틀렸 틀린 "
    "제외 오답 fout fel yanlış salah sai ✗ ✘ ❌ ✖ ×",
    # Only.
    "o": "only just merely",
    # Fits: supports a letter, and states it if no other word does.
    "f": "(?:edges|wins|stands|comes)_out remains? left true truth holds? fits? works? match(?:es)? better "
    "stronger valid accurate- satisf- "
    "survives? stands? succeeds? wins? follows supported wahr stimmt passt",
    # Hedged or supposed.
    "h": "if unless suppos- assum- might may could maybe perhaps possibl- seem- appear- look- sound- tempt- partly "
    "partially some someone many people students almost nearly first initial- original- naive- common- popular "
    "thought whether either consider- check- compar- test- try between had were even torn waver- hesitat- "
    "would(?=_have) plausible wenn falls si se если 如果 假如 もし",
    # Nouns for a choice or an answer.
    "k": "answers? options? choices? statements? letters? number alternatives? items? solution selection verdict "
    "conclusion response result final antwort- lösung- optio- auswahl réponses? choix respuestas? opción elección "
    "risposta opzione scelta resposta opção escolha alternativa ответ- вариант- 答案 选项 選項 選択肢 回答 解答 答え "
    "答 선택지 보기 답 antwoord svar cevap odpowiedź jawaban đáp_án",
    # Chooses.
    "v": "left_with accept- adopt- mak(?:es?|ing) choos- chose pick- select- opt go going went settl- vot- "
    "conclud- mark- prefer- "
    "favou?r- point[a-z]*_(?:to|at|towards) take taking stick- lean- leav- choisi- wähl- nehme elijo elig- escolho "
    "scelgo выбира- 选择 選擇 选 選 고르",
    # But: the clause before is conceded.
    "b": "but yet though although however albeit",
    # A new clause begins.
    "t": "; because since as so thus hence nonetheless nevertheless therefore then while whereas when where "
    "others? rest remaining all "
    "everything each every weil da denn aber sondern daher parce car mais donc porque pero sino perché ma quindi "
    "então portanto mas потому поэтому а но 因为 因為 所以 因此 故 但 而 ので から だから 따라서 때문",
    # Relative pronouns.
    "r": "that which who dass que che что",
    # Joins letters to a list.
    "&": "and or nor und oder et ou y o e и или 和 或 と 및 또는 [/&、]",
    # Links a letter with its verdict.
    "l": "is are was were be been being would to_be will must should can has have does do did 's c'est lautet ist "
    "est es é è является 是 为 為 は が 은 는 이 가 är er jest adalah là",
    # Prepositions.
    "i": "to of by in with on for at from about regarding",
    # Fillers, tried after all other kinds.
    "_ ": "the an? my our it us me i we you one this these those 'll 'd 'm 've clearly simply definitely certainly "
    "really most more likely probably far quite very indeed actually now here okay? say think believe know still "
    "itself der die das den ich la le el il lo у это мой я je yo その これ の です 입니다 我 的 应 應 该 該",
}
"""The words of each kind; the first kind that matches counts. `-` is any ending, `_` is whitespace."""
_LETTER = re.compile(
    rf"(?<![{_IN_WORD}])(?<!(?<!\w)-)[A-Z](?![{_IN_WORD}]|'\w|-\w|\([A-Za-z]\)|[′″^]|\s?[+×∘∪∩≤≥<>|]\s?\w)|(?<=\()[A-Za-z](?=\))"
)
_TO_MARK = 0xE000
"""Letters of choices become private-use characters, because matching the rest in lower case is much faster."""
_SIGNS = {
    "L": r"\([\ue041-\ue07a]\)|[\ue041-\ue07a]",
    "?": r"[?]+(?!\w)",
    ".": r"\n+|[.!]+(?!\w)|。+",
    "c": r"[-=]>|[:=→]|[-–—](?=\s)|—",
    ",": r"[,，()\[\]（）]",
    "w": rf"[a-z]+\([a-z\ue041-\ue07a]\)|[{_IN_WORD}]+|\S",
}
_ORDER = ("L", ".", "?", "c", ",", *_KINDS, "w")
_OPEN = re.compile(r"(?:^[_ya]*k[lc]*|(?:[kyf][_ykfwoari]{0,8}[l]*c))$")
"""A line that continues on the next one, such as `**Answer:**`."""
_LABEL = re.compile(r"[_&,ct]{0,3}k?L")
_STRONG = re.compile(r"(?:[kyf][_ykfwoari]{0,8}[lc]+|v|[yf])[_koyir]*$")
_SAID_LATER = re.compile("[_lcr]*[nqyYfh]|[_lcr]*[lr][_lcr]*N|N[_l]*[nyf]")
_BLANK = re.compile(r"[_lokray]*")


def _pattern(words: str) -> str:
    """Return a pattern that matches the words of a kind as whole words."""
    made = [word.replace("_", r"[^\S\n]+") for word in words.split()]
    made = [f"{word[:-1]}[{_IN_WORD}]*" if word.endswith("-") else word for word in made]
    return "|".join(f"{word}(?![{_IN_WORD}])" if re.search(f"[{_IN_WORD}]", word) else word for word in made)


_TOKEN = re.compile("|".join(f"({_SIGNS[key]})" if key in _SIGNS else f"({_pattern(_KINDS[key])})" for key in _ORDER))


class Word(NamedTuple):
    """One word of a response; words of kind L have letters."""

    kind: str
    text: str
    letters: frozenset[str] = frozenset()


class Statement(NamedTuple):
    """The letters of choices in a response."""

    letters: frozenset[str]
    """The letters stated last; else those named and not rejected, which are ambiguous if there are several."""
    certain: bool
    """False if the letters are only named, or others are named as well."""
    rejected: frozenset[str]
    line: int | None = None
    """The line of the last statement, from 0."""


def statement(response: str, known: frozenset[str] = frozenset(ascii_uppercase)) -> Statement:
    """Return the statement of a response about the known letters; `line` counts the lines of `head_and_tail`."""
    stated, rejected, place = frozenset[str](), set[str](), None
    weaker: dict[str, set[str]] = {"fits": set(), "label": set(), "named": set()}
    for line, words in _sentences(response):
        for role, found in _roles(words):
            letters = found & known
            if not letters:
                continue
            if role == "stated":
                stated, place = letters, line
                rejected -= letters
            elif role == "also":
                stated |= letters
            elif role == "rejected":
                stated -= letters
                rejected |= letters
            else:
                weaker[role] |= letters
    if stated:
        return Statement(stated, True, frozenset(rejected), place)
    left = [letters - rejected for letters in weaker.values()]
    letters = frozenset(next(filter(None, left), set()))
    certain = len(letters) == 1 and set().union(*left) == letters and letters != left[2]
    return Statement(letters, certain, frozenset(rejected), None)


def head_and_tail(text: str) -> str:
    """Return the beginning and the end of a long text, on separate lines; a shorter one unchanged."""
    return text if len(text) <= HEAD_CHARS + TAIL_CHARS else f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


def without_markup(text: str) -> str:
    """Return a text without Markdown and decoration, and without LaTeX fonts and delimiters around letters."""
    # Normalization can turn one character into 18.
    text = head_and_tail(unicodedata.normalize("NFKC", head_and_tail(text)))
    text = _TAG.sub(" ; ", _INLINE_TAG.sub("", text.replace("’", "'").replace("İ", "I")))
    for _ in range(2):
        text = FONT.sub(lambda font: f"({found[1]})" if (found := _IS_LETTER.fullmatch(font[1])) else font[1], text)
    text = _FORMULA.sub(_letter_alone, text)
    text = re.sub(r"(?<=[a-z])_(?=[a-z])", " ", text)
    return _DECORATION.sub("", _MARKED.sub(r"(\1)\2", text))


def _letter_alone(formula: re.Match[str]) -> str:
    """Return a one-letter formula, as in `choice $B$`, in parentheses; drop others, since `L^2(A)` isn't choice A."""
    inside = formula[1] or formula[2] or ""
    letter = _IS_LETTER.fullmatch(inside)
    return f"({letter[1]})" if letter else " ¤" + "\n" * inside.count("\n")


def _sentences(response: str) -> Iterator[tuple[int, list[Word]]]:
    text, words, line = f"{without_markup(response)}\n", list[Word](), 0
    for found in _TOKEN.finditer(_LETTER.sub(lambda letter: chr(_TO_MARK + ord(letter[0])), text).lower()):
        kind, piece = _ORDER[(found.lastindex or 0) - 1][0], found[0]
        if kind == "L":
            piece = text[found.start() : found.end()]
            kind = "_" if _is_word(text, found.start(), piece, words) else kind
        kinds = "".join(word.kind for word in words[-_NEAR:]) if kind in ",.?" else ""
        if kind == "," and piece == ")" and kinds.endswith("L") and not any(word.text == "(" for word in words[-9:]):
            kind = "c"
        if kind == "t" and piece in ("all", "each") and words and words[-1].kind == "L":
            kind = "_"
        if kind in ".?" and "\n" not in piece and _LABEL.fullmatch(kinds):
            kind = "c"
        if kind in ".?" and not ("\n" in piece and _OPEN.search(kinds)):
            yield line, [*words, Word(kind, piece)]
            words = []
        elif kind not in ".?":
            words.append(Word(kind, piece, frozenset(piece.strip("()").upper()) if kind == "L" else frozenset()))
        line += piece.count("\n")


def _is_word(text: str, start: int, piece: str, words: list[Word]) -> bool:
    """Return whether A is an article or I a pronoun, as in "A red bus", "Answer: A TREE" and "I think"."""
    led = words and (words[-1].kind == "k" or [word.kind for word in words[-2:]] == ["L", "&"])
    if piece not in ("A", "I") or (piece == "A" and led and text[start - 1] == " "):
        return False
    following = _WORD_BEHIND.match(text, start + 1)
    pattern = _GOES_ON if piece == "A" else _GOES_ON_FROM_I
    return following is not None and not (following[1] and pattern.match(text, following.start(1)))


def _joined(words: list[Word]) -> list[Word]:
    """Join lists of letters into one word, such as `A, C and option D`, but not in "so B, A is wrong"."""
    made: list[Word] = []
    for place, word in enumerate(words):
        apart = 0
        if word.kind == "L":
            apart = next((n for n, earlier in enumerate(reversed(made[-6:])) if earlier.kind not in "k_,&"), 0)
        if apart and made[-1 - apart].kind == "L" and _is_list(made, apart, words[place + 1]):
            del made[len(made) - apart :]
            made[-1] = made[-1]._replace(letters=made[-1].letters | word.letters)
        else:
            made.append(word)
    return made


def _is_list(made: list[Word], apart: int, following: Word) -> bool:
    """Return whether a list continues from the letter `apart` words before the end of `made` to the next letter."""
    between = {word.text.lower() for word in made[len(made) - apart :] if word.kind in ",&"}
    if not between & {",", "and"}:
        return bool(between) and not between & {"(", ")"}
    alone = following.text > "\u052f" and following.kind not in ".t,c&" and following.text not in "都均皆"
    # "B, option A cannot be right" isn't a list; "option B, option A" may be one.
    earlier = [word.kind for word in made[-apart - 2 : -apart]]
    noun = "k" not in earlier and any(word.kind == "k" for word in made[-apart:])
    alone = alone or (noun and between == {","} and following.kind in "Nnqyflo")
    if between & {"(", ")"} or alone or _SINGULAR.fullmatch(following.text):
        return bool(between & {"nor"})
    before = made[: len(made) - apart - 1] if len(made) < _NEAR else []
    if following.kind not in ".t,c&" and _STRONG.search("".join(word.kind for word in before)):
        return False
    contrast = any(_CONTRAST.fullmatch(word.text) for word in before) and all(word.kind in "Npk_" for word in before)
    return not (between == {","} and contrast and following.kind in ".t")


def _roles(words: list[Word]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the role of each letter in a sentence; letters in questions have none."""
    words, stated = _joined(words), False
    kinds = "".join(word.kind for word in words)
    for place, word in enumerate(words):
        if word.kind != "L" or kinds.endswith("?"):
            continue
        role = _role(kinds[max(0, place - _NEAR) : place], kinds[place + 1 : place + _NEAR], "(" in word.text)
        if role == "bare":
            # In "The answer is B, as C, while close, fails" only the first letter is stated.
            role = "named" if stated else "stated"
        stated = stated or role == "stated"
        if role and (role in ("stated", "rejected") or not word.text.strip("()").islower()):
            yield role, word.letters


def _role(before: str, after: str, marked: bool) -> str:
    """Return the role of a letter in a clause, by the kinds of the words before and after it."""
    lead = re.split("[t,&bqL]", before)[-1]
    behind_letter = before[: len(before) - len(lead)].endswith("L")
    if behind_letter and "c" in lead:
        lead, behind_letter = lead.rpartition("c")[2], False
    own = re.split("[Ltbs.&]", after)[0]
    rest = after[len(own) :]
    if rest.startswith("L"):
        own = re.sub("(?<=[,c])[^,c]+$|[nNpx][_ki]*$", "", own) if own else "w"
    verdict = _verdict(own, rest)
    if behind_letter:
        return _after_letter(lead)
    if "x" in lead:
        return "stated" if verdict == "n" else "rejected"
    if len(re.findall("N?[ns]|N|p", lead)) % 2:
        return "rejected"
    if "h" in lead:
        return "rejected" if verdict == "n" else "named"
    if _STRONG.search(lead) and not re.search("[nNsp]", lead):
        return "rejected" if re.match("[_lr]*(?:N?[ny])", own) and verdict == "n" else "stated"
    if own == "l" and rest[:1] in ".t" and re.search("[Ns].*y", before):
        return "stated"
    role = _unled(lead.rpartition("c")[2], own, verdict, rest, marked)
    is_led = not _BLANK.fullmatch(lead.replace("c", ""))
    return "fits" if role in ("stated", "bare") and is_led and not verdict else role


def _after_letter(lead: str) -> str:
    """Return the role of a letter by the words after the previous letter, as in "B, not A" and "B beats A"."""
    tail = re.search("[nNp][_ki]*$", lead)
    if tail:
        return "" if re.search("[nN]", lead[: tail.start()]) else "rejected"
    return "stated" if _STRONG.search(lead) and not re.search("[nNh]", lead) else "named"


def _unled(lead: str, own: str, verdict: str, rest: str, marked: bool) -> str:
    """Return the role of a letter whose lead doesn't decide it."""
    if verdict == "n":
        return "rejected"
    named = marked or re.search("k_*$", lead)
    if _BLANK.fullmatch(lead) or named:
        if verdict in ("y", "ya"):
            return "stated" if verdict == "y" else "also"
        if verdict in ("f", "fa"):
            return "also" if verdict == "fa" else "stated" if "o" in lead else "fits"
    if not _BLANK.fullmatch(lead):
        ends = not own.strip("_") and rest[:1] in ".t" and re.search("l[_k]*$", lead)
        return "fits" if ends else "named"
    if re.fullmatch("(?:_l)?[,_c]*", own) or (lead.endswith("_l") and own.startswith("r")):
        return "bare"
    if verdict == "w" and lead.strip("_") == "o":
        return "fits"
    if own[:1] in ("c", ",") or marked:
        return "label" if verdict != "h" else "named"
    return "named"


def _verdict(own: str, rest: str) -> str:
    """Return the kind of a letter's verdict: n, y, f or h, followed by a for "also"; w if unclear."""
    direct, *parts = own.split(",")
    if not direct.strip("_lcr"):
        direct = next((part for part in parts[:2] if _SAID_LATER.match(part)), "")
    found = re.search("[nNqyYfho]", direct)
    if not found:
        return "w" if direct.strip("_lcra") else ""
    kind, further = found[0], direct[found.end() :]
    if kind == "Y":
        return "y"
    if kind in "nNq":
        return "h" if kind == "N" and re.match("[_l]*n", further) else "n"
    if further.endswith("N"):
        return "n"
    if kind in "ho":
        return "n" if re.search("[nN]", further) else "h"
    conceded = rest.startswith("b") and re.search("[nN]", re.split("[L.]", rest)[0])
    if not _BLANK.fullmatch(direct[: found.start()].replace("c", "")) or conceded or re.search("[nNho]", further):
        return "h" if conceded or re.search("[nNho]", further) else "w"
    kind = "y" if re.match("_*k", further) else kind
    return f"{kind}a" if "a" in direct else kind
