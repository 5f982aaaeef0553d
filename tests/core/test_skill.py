import hashlib

import pytest

from include.core.errors import SkillError
from include.core.skill import SkillDocument, Span, has_marker

SLOW = "<!-- SLOW_UPDATE_START -->\nkeep\n<!-- SLOW_UPDATE_END -->"
APPENDIX = "<!-- APPENDIX_START --><!-- APPENDIX_END -->"


def test_regions_reach_from_marker_to_marker() -> None:
    document = SkillDocument(f"a\n{SLOW}\nb\n{APPENDIX}")
    assert document.protected_texts() == (SLOW, APPENDIX)
    assert [document.text[span.start : span.end] for span in document.editable] == ["a\n", "\nb\n", ""]
    assert document.sha256 == hashlib.sha256(document.text.encode()).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "<!-- SLOW_UPDATE_START -->",
        "<!-- SLOW_UPDATE_END -->",
        "<!-- SLOW_UPDATE_START --><!-- APPENDIX_END -->",
        "<!-- SLOW_UPDATE_START --><!-- APPENDIX_START --><!-- APPENDIX_END --><!-- SLOW_UPDATE_END -->",
        APPENDIX + APPENDIX,
    ],
)
def test_a_broken_region_is_named_with_its_line(text: str) -> None:
    with pytest.raises(SkillError, match="line 3: <!-- "):
        _ = SkillDocument("one\ntwo\n" + text).protected


def test_find_sees_editable_text_only() -> None:
    document = SkillDocument(f"{SLOW}\nkeep this")
    assert document.find("keep") == Span(document.text.rindex("keep"), document.text.rindex("keep") + 4)
    assert document.find("SLOW_UPDATE_START") is None
    assert document.find("-->\nkeep") is None


def test_markers_are_recognised_with_any_blanks() -> None:
    assert has_marker("x <!--APPENDIX_END--> y")
    assert has_marker("<!--\tSLOW_UPDATE_START\n-->")
    assert not has_marker("<!-- OTHER_START -->")
