import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.skill import (
    DENSITY_WEIGHT,
    MANY_TOKENS,
    REGIONS,
    Region,
    SkillDocument,
    Span,
    density,
    has_marker,
    length_warning,
    tokens_of,
    weighted_score,
    without_markers,
)

SLOW = "<!-- SLOW_UPDATE_START -->\nkeep\n<!-- SLOW_UPDATE_END -->"
APPENDIX = "<!-- APPENDIX_START --><!-- APPENDIX_END -->"

PIECES = st.one_of(st.text(max_size=3), st.sampled_from(["\n", "\r\n", "<!--", "-->", "<!-- APPENDIX_", "START -->"]))
INSIDES = st.lists(PIECES, max_size=6).map("".join).filter(lambda text: not has_marker(text))


def test_regions_reach_from_marker_to_marker() -> None:
    document = SkillDocument(f"a\n{SLOW}\nb\n{APPENDIX}")
    assert list(document.regions.items()) == [("SLOW_UPDATE", SLOW), ("APPENDIX", APPENDIX)]
    assert document.body == "a\n"
    assert [document.text[span.start : span.end] for span in document.editable] == ["a\n", "\nb\n", ""]
    assert document.sha256 == hashlib.sha256(document.text.encode()).hexdigest()
    # Only what can be edited is found.
    document = SkillDocument(f"{SLOW}\nkeep this")
    assert document.find("keep") == Span(document.text.rindex("keep"), document.text.rindex("keep") + 4)
    assert document.find("SLOW_UPDATE_START") is None
    assert document.find("-->\nkeep") is None
    # Markers are recognized with any whitespace.
    assert has_marker("<!--\tSLOW_UPDATE_START\n-->")
    assert not has_marker("<!-- OTHER_START -->")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- SLOW_UPDATE_START -->",
        "<!-- SLOW_UPDATE_END -->",
        "<!-- SLOW_UPDATE_START --><!-- APPENDIX_START --><!-- APPENDIX_END --><!-- SLOW_UPDATE_END -->",
        APPENDIX + APPENDIX,
    ],
)
def test_a_broken_region_is_named_with_its_line(text: str) -> None:
    with pytest.raises(SkillError, match="line 3: <!-- "):
        _ = SkillDocument("one\ntwo\n" + text).protected


@pytest.mark.parametrize(
    ("between", "inside"),
    [("", ""), ("\n", ""), ("\nx\n", "x"), ("x", "x"), ("\n\n\n", "\n"), ("\na\nb\n\n", "a\nb\n")],
)
def test_a_region_is_read_without_the_newlines_at_its_markers(between: str, inside: str) -> None:
    document = SkillDocument(f"a\n<!-- APPENDIX_START -->{between}<!-- APPENDIX_END -->\nb")
    assert document.region("APPENDIX") == inside
    assert document.region("SLOW_UPDATE") is None
    assert document.with_region("APPENDIX", inside) == document, "what is in there already changes nothing"


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("a", "x", "a\n\n<!-- APPENDIX_START -->\nx\n<!-- APPENDIX_END -->\n"),
        ("a\n\n\n", "", "a\n\n<!-- APPENDIX_START -->\n<!-- APPENDIX_END -->\n"),
        (f"a\n{SLOW}", "x", f"a\n{SLOW}\n\n<!-- APPENDIX_START -->\nx\n<!-- APPENDIX_END -->\n"),
        (f"a\n{APPENDIX} b", "x", "a\n<!-- APPENDIX_START -->\nx\n<!-- APPENDIX_END --> b"),
        (f"a\n{SLOW}\n{APPENDIX}", "x", f"a\n{SLOW}\n<!-- APPENDIX_START -->\nx\n<!-- APPENDIX_END -->"),
    ],
)
def test_a_region_is_replaced_or_opened_at_the_end(text: str, inside: str, expected: str) -> None:
    assert SkillDocument(text).with_region("APPENDIX", inside).text == expected


@given(INSIDES, INSIDES, INSIDES, st.sampled_from(REGIONS), st.booleans())
def test_a_region_holds_what_was_written(body: str, former: str, inside: str, name: Region, other: bool) -> None:
    document = SkillDocument(body)
    if other:
        for region in REGIONS:
            document = document.with_region(region, former)
    changed = document.with_region(name, inside)
    assert changed.region(name) == inside
    assert {**changed.regions, name: ""} == {**document.regions, name: ""}
    assert changed.body.rstrip("\n") == document.body.rstrip("\n")
    if document.region(name) is not None:
        assert changed.with_region(name, former) == document


@pytest.mark.parametrize("text", ["a\n", f"a\n{APPENDIX}\n"])
def test_a_marker_cannot_be_written_into_a_region(text: str) -> None:
    with pytest.raises(SkillError, match="APPENDIX"):
        SkillDocument(text).with_region("APPENDIX", "x <!--SLOW_UPDATE_START--> y")


@pytest.mark.parametrize(
    ("text", "left"),
    [("a", "a"), ("a<!-- APPENDIX_END -->b", "ab"), ("<!-- APPENDIX_<!--SLOW_UPDATE_END-->END -->x", "x")],
)
def test_a_text_loses_its_markers_and_those_that_form_then(text: str, left: str) -> None:
    assert without_markers(text) == left


SKILLS = st.text(min_size=1, max_size=300).map(SkillDocument)


def test_a_token_has_about_four_characters() -> None:
    assert tokens_of(SkillDocument("x" * 400)) == 100
    assert density(0.5, SkillDocument("x" * 400)) == pytest.approx(5.0)
    assert density(0.5, SkillDocument("")) == pytest.approx(500.0)
    # A thousand tokens for a score of 1 have half of the weight.
    assert weighted_score(1.0, SkillDocument("x" * 4000)) == pytest.approx(1 + DENSITY_WEIGHT / 2)


def test_a_skill_of_more_than_2000_tokens_gets_a_warning() -> None:
    assert MANY_TOKENS == 2_000
    assert length_warning(SkillDocument("x" * 4 * MANY_TOKENS)) == ""
    assert "2,001 tokens" in length_warning(SkillDocument("x" * 4 * (MANY_TOKENS + 1)))


@given(SKILLS, SKILLS, st.floats(0.0, 1.0))
def test_density_adds_at_most_its_weight(skill: SkillDocument, other: SkillDocument, score: float) -> None:
    assert score <= weighted_score(score, skill) <= score + DENSITY_WEIGHT
    if tokens_of(skill) < tokens_of(other):
        assert weighted_score(score, skill) >= weighted_score(score, other)
