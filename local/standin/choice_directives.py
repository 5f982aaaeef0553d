"""The directives on the choices of a multiple-choice item."""

from local.standin.directive import LEAVE_OUT, PREFER, directive

_CHOICE = r"(?:choices?|options?)"
_SET_ASIDE = rf"(?:{LEAVE_OUT}|\b(?:leav(?:e|ing)|set(?:ting)?|put(?:ting)?) aside)"
_DISTRUST = r"\b(?:distrust|mistrust|suspect|doubt|beware of|be (?:wary|suspicious|sceptical|skeptical) of)\b"
ON_CHOICES = (
    directive(
        "distrust_strongest",
        [
            rf"{_DISTRUST}.{{0,40}}\b(?:claims? (?:the )?(?:more|most|too much)|strongest|boldest|most sweeping)\b",
            rf"{PREFER}.{{0,40}}\b(?:weaker|weakest|more cautious|most cautious)\b.{{0,24}}\b{_CHOICE}\b",
        ],
        [
            "Distrust a choice that claims more than the others: a theorem seldom gives all that one could wish for.",
            "Be wary of the strongest option, it often drops a condition that the result needs.",
        ],
        "The wrong choices claimed more than the expected one.",
        subject="choices",
    ),
    directive(
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
        subject="choices",
    ),
    directive(
        "longest_choice",
        [
            rf"{PREFER}.{{0,30}}\b(?:longest|lengthiest|most detailed) {_CHOICE}\b",
            rf"{PREFER}.{{0,20}}\b{_CHOICE}\b.{{0,20}}\bmost (?:words|details?)\b",
        ],
        [
            "Pick the longest choice, it was written with the most care.",
            "Prefer the option with the most details.",
        ],
        "A correct statement needs more words than a wrong one.",
        tempting=True,
        subject="choices",
    ),
)
