import json
import re
import sys
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.edits import apply_edits
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person
from skillopt_airflow.core.values.text import (
    clean_parts,
    flaw_of_text,
    is_hidden,
    longest_that_fits,
    plain,
    shortened,
    storable,
    visible,
)
from skillopt_airflow.core.values.types import Edit, Grade, Message, Score, Status, Trajectory
from skillopt_airflow.optimizer.answers import MAX_SKILL_CHARS, clipped, flaw_of, flaw_of_note
from skillopt_airflow.optimizer.proposals import ProposedEdit, flaw_of_edit, sift

# Controls, format characters, fillers, blanks that are letters, selectors, tags, half pairs, and what is unassigned.
HIDDEN = (
    "\0\b\x1b\r\x7f\x9b\x85\xad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u200b\u200d\u200e\u2028\u2029\u202e"
    "\u2060\u2062\u2066\u2800\u3164\ud800\ue000\ufe00\ufeff\uffa0\ufff0\ufff9\uffff\U0001bca0\U0001d159\U0001d173"
    "\U000e0041\U000e0020\U000e0001\U000e0002\U000e0100\U000e01ef\U000f0000\U0003ffff"
)
ORDINARY = {
    "tabs and newlines": "a\tb\n\nc",
    "blanks": "10\u00a0km, 5\u202f%, \u3000",
    "German": "Größe – „ja“ … €",
    "decomposed": "cafe\u0301",
    "Persian": "می\u200cخواهم",
    "Hindi": "क्\u200dष श्री",
    "Malayalam at a word's end": "അവന്\u200d വന്നു",
    "Hebrew": "שָׁלוֹם",
    "Japanese": "行を探す。",
    "Korean": "안녕",
    "emoji": "✅ ⚠ 👍🏽 🇩🇪",
    "joined emoji": "👩\u200d🔬 ❤\u200d🔥",
    "mathematics": "∑ x ≤ ∞",
}


@pytest.mark.parametrize("character", HIDDEN)
def test_hidden_characters_are_refused_and_shown(character: str):
    text = f"one\ntwo{character}three"
    code = f"U+{ord(character):04X}"
    assert flaw_of_text(text) == f"has the invisible character {code} in line 2"
    shown = visible(text)
    assert not any(map(is_hidden, shown))
    assert visible(text) == f"one\ntwo{chr(0x2400 + ord(character)) if ord(character) < 32 else f'[{code}]'}three"
    shown.encode()


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_text_of_any_language_is_taken(name: str):
    assert flaw_of_text(ORDINARY[name]) == ""
    assert plain(ORDINARY[name]) == ORDINARY[name]


@pytest.mark.parametrize("text", ["می\u200c\u200d\u200cخ", "a\u200db", "a\u200cb", "✅\u200da", "👩\u200d", "\u200dक"])
def test_joiners_that_join_nothing_are_refused(text: str):
    assert "U+200" in flaw_of_text(text)


def test_what_keyboards_and_windows_write_is_left_out_also_of_answers():
    assert plain("❤\ufe0f ok ✔\ufe0e\r\n1\ufe0f\u20e3\r\n\r") == "❤ ok ✔\n1\u20e3\n\r"
    proposed = ProposedEdit.model_validate({"op": "append", "content": "a\r\nb \u2764\ufe0f"})
    assert proposed.content == "a\nb \u2764"


def test_every_character_is_either_shown_or_hidden_by_its_category():
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    wrong = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
    for character in every:
        if unicodedata.category(character) in wrong and character not in "\n\t":
            assert is_hidden(character), hex(ord(character))
    drawn = [character for character in every if not is_hidden(character)]
    assert {unicodedata.category(character) for character in drawn} == {
        *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
        *("Sm", "Sc", "Sk", "So", "Zs", "Cc"),
    }
    assert "".join(drawn).translate(dict.fromkeys(range(32, 127))).startswith("\t\n")


@given(st.text())
def test_shown_text_has_nothing_hidden(text: str):
    assert not any(map(is_hidden, visible(text)))
    assert visible(visible(text)) == visible(text)
    assert "\n" not in visible(text, kept="")


@pytest.mark.parametrize("content", [*HIDDEN, "Run ```!ls```", "- !`ls`"])
def test_every_answer_with_such_a_text_is_refused(content: str):
    text = f"Split at {content} here."
    skill = SkillDocument("# Skill\n")
    assert flaw_of(text, MAX_SKILL_CHARS)
    assert flaw_of_note(text)
    edit = ProposedEdit.model_construct(op="append", content=text)
    assert flaw_of_edit(edit, skill)
    assert flaw_of_edit(ProposedEdit.model_construct(op="append", content="x", rationale=text), skill)
    assert sift([edit], skill, 4)[0] == []
    after, report = apply_edits(skill, [Edit.model_construct(op="append", content=text, anchor="")])
    assert (after.text, report.rows[0].status) == (skill.text, "skipped")
    assert not any(map(is_hidden, clipped(text)))
    with pytest.raises(SkillError, match=r"^initial\.md: .* in line 2"):
        skill_of_person(f"# Skill\n{text}\n", "initial.md")


def test_an_edit_can_remove_a_command_but_not_put_one_together():
    skill = SkillDocument("# Skill\n\nWrite ``x`! here.\n")
    after, report = apply_edits(skill, [Edit(op="replace", anchor="``x`", content="```")])
    assert after == skill
    assert "in line 3, where Claude Code runs a command" in report.rows[0].reason
    skill = SkillDocument("# Skill\n\n- !`ls`\n- fine\n")
    edits = [Edit(op="append", content="- more"), Edit(op="delete", anchor="- !`ls`")]
    after, _ = apply_edits(skill, edits)
    assert after.text == "# Skill\n\n- fine\n- more\n"


ANY_TEXT = st.text(st.characters(categories=["Cs", "Lu", "So", "Cc"]))


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain \u00e9 \U0001f600", "plain \u00e9 \U0001f600"),
        ("high \ud83d end", "high \ufffd end"),
        ("low \ude00 end", "low \ufffd end"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("a\0b", "a\ufffdb"),
        ("\ufeffmark", "\ufeffmark"),
    ],
)
def test_half_pairs_and_nul_are_replaced_and_all_else_stays(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(ANY_TEXT)
def test_stored_text_can_be_encoded_and_is_stable(text: str) -> None:
    stored = storable(text)
    assert stored.encode().decode() == stored == storable(stored)
    assert "\0" not in stored
    assert json.loads(json.dumps(stored)) == stored


@given(ANY_TEXT)
def test_every_value_with_text_from_outside_can_be_written(text: str) -> None:
    trajectory = Trajectory(
        item_id="a", status=Status.OK, error=text, answer=text, messages=(Message(role="tool", content=text),)
    )
    score = Score(hard=1, soft=1, feedback=text, grade=Grade(grade="correct", quote=text, reason=text))
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert Score.model_validate_json(score.model_dump_json()) == score


def test_the_parts_of_a_response_are_changed_in_place() -> None:
    text, call = SimpleNamespace(content="\ud83d"), SimpleNamespace(args={"\ud83d": [1, {"a": "b\ud83d"}, None]})
    written, none = SimpleNamespace(args='{"a": "\ud83d"}'), SimpleNamespace(args=None, content=b"\xff")
    clean_parts([text, call, written, none])
    assert text.content == "\ufffd"
    assert call.args == {"\ufffd": [1, {"a": "b\ufffd"}, None]}
    assert written.args == '{"a": "\ufffd"}'
    assert (none.args, none.content) == (None, b"\xff")


@given(st.text(st.characters(exclude_characters="]")), st.integers(60, 200))
def test_a_text_has_at_most_so_many_characters_and_says_how_many_are_left_out(text: str, limit: int):
    made = shortened(text * 9, limit)
    assert len(made) <= limit
    assert (made == text * 9) == (len(text * 9) <= limit)
    if made != text * 9:
        [left_out] = re.findall(r"\n\[(\d+) characters left out\]\n", made)
        assert len(text * 9) - int(left_out) == len(made) - len(f"\n[{left_out} characters left out]\n")


@given(st.lists(st.integers(0, 99), max_size=9), st.integers(0, 500))
def test_what_fits_is_left_whole_and_the_room_is_used(lengths: list[int], room: int) -> None:
    most = longest_that_fits(lengths, room)
    used = sum(min(length, most) for length in lengths)
    assert used <= room
    if sum(lengths) <= room:
        assert used == sum(lengths)
    else:
        assert used > room - len(lengths)
