"""The directives on programs that change workbooks."""

from local.standin.directive import directive

ON_WORKBOOKS = (
    directive(
        "values",
        [r"\b(?:writ\w+|put\w*|stor\w+|enter\w*) .{0,40}\bvalues?\b"],
        [
            "Write values into the cells, never formulas, since nothing calculates them.",
            "Put calculated values where you would like to put a formula.",
        ],
        "Formulas were written, which nothing calculates.",
        subject="workbooks",
    ),
    directive(
        "text_numbers",
        [r"\b(?:turn\w*|convert\w*|pars\w+|treat\w*|read\w*) .{0,30}\btexts?\b.{0,40}\bnumbers?\b"],
        [
            "Turn texts that hold numbers into numbers before you calculate with them.",
            "Convert texts such as 1,200 into numbers first.",
        ],
        "Numbers that are stored as texts were passed over.",
        subject="workbooks",
    ),
    directive(
        "day_first",
        [r"\bdates?\b.{0,60}\bday\b.{0,20}\bfirst\b", r"\bday\b.{0,12}\bfirst\b.{0,30}\bdates?\b"],
        [
            "Read dates that are texts with the day first.",
            "In dates such as 03/04/2024 the day comes first.",
        ],
        "Day and month of dates were mixed up.",
        subject="workbooks",
    ),
    directive(
        "answer_start",
        [r"\b(?:first|top left|upper left) cell of the answer (?:position|range)\b"],
        [
            "Start writing at the first cell of the answer position.",
            "Put the first result into the top left cell of the answer position.",
        ],
        "The results began in another row than the answer position.",
        subject="workbooks",
    ),
    directive(
        "plain_texts",
        [r"\b(?:strip\w*|trim\w*|without) .{0,24}\b(?:blanks?|spaces)\b"],
        [
            "Compare texts without the blanks around them and whatever their case.",
            "Strip blanks and lower the case before you compare texts.",
        ],
        "Rows were missed whose texts differ in blanks or case.",
        subject="workbooks",
    ),
    directive(
        "header_row",
        [r"\bhea(?:der|ding)s?\b.{0,16}\b(?:above|over)\b.{0,24}\bresults?\b"],
        ["Write a header above the results.", "Put a heading over the results, so that they explain themselves."],
        "Nothing says what the results are.",
        tempting=True,
        subject="workbooks",
    ),
    directive(
        "whole_numbers",
        [r"\bround\w*\b.{0,30}\b(?:whole|integers?)\b"],
        ["Round results to whole numbers.", "Round what you calculate to integers, which are easier to read."],
        "The results have more digits than anybody reads.",
        tempting=True,
        subject="workbooks",
    ),
)
