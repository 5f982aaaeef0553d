import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.gate.item_scores import ItemScore
from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Message, Rollout, Score, Status, Trajectory
from skillopt_airflow.quality.quality_report import ExpectationResult, FailingRow, QualityReport
from skillopt_airflow.report.html_pages import HEIGHT, ROWS_SHOWN, WIDTH, render, sparkline
from skillopt_airflow.report.view import MAX_CHARS, Part, example_ids, example_of
from tests.report.html_page import Page

HOSTILE = "<script>alert('1')</script><img src=x onerror=alert(1)>\"'&\x00\x07\u202e"


def report(rows: int, text: str = "plain") -> QualityReport:
    failing = tuple(FailingRow(split=text, row=row, id=f"{text} {row}", value=f"{text} value") for row in range(rows))
    missed = ExpectationResult(
        expectation="expect_it", column=text, success=False, limits=text, problem=f"{text} problem", failing=failing
    )
    met = missed.model_copy(update={"success": True, "failing": (), "problem": ""})
    return QualityReport(
        suite="records", source=text, success=False, rows={text: rows}, expectations=(missed, met), notes=(text,)
    )


def test_every_text_of_the_data_is_escaped_and_nothing_is_loaded() -> None:
    page = render(HOSTILE, HOSTILE, [report(2, HOSTILE)])
    parsed = Page(page)
    assert not {tag for tag, _, _ in parsed.elements} & {"script", "img", "link", "iframe", "form", "a"}
    names = {name for _, attributes, _ in parsed.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href")}
    assert "url(" not in page
    assert "@import" not in page
    assert parsed.text.count("<script>alert('1')</script>") >= 12
    assert not re.search(r"[\x00\x07]", page)


def test_every_row_is_there_up_to_a_limit_that_is_said() -> None:
    few, many = (Page(render("b", "r", [report(rows)])).text for rows in (ROWS_SHOWN, ROWS_SHOWN + 1))
    assert few.count("plain value") == many.count("plain value") == ROWS_SHOWN
    said = f"The first {ROWS_SHOWN} of {ROWS_SHOWN + 1} rows"
    assert said not in few
    assert said in many
    # Both results of a run have how they ended.
    passed = report(0).model_copy(update={"suite": "rollouts", "success": True})
    text = Page(render("b", "r", [report(1), passed])).text
    assert re.search(r"Records\s+✕ failed.*Rollouts\s+✓ passed", text, re.DOTALL)
    assert "plain problem" in text


SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50), st.floats(0.01, 100.0))
def test_a_line_stays_in_its_drawing_and_tells_whether_the_limit_is_reached(values: list[float], limit: float) -> None:
    svg = ElementTree.fromstring(sparkline(values, limit, "said"))
    points = [tuple(map(float, point.split(","))) for point in str(svg[1].get("points")).split()]
    assert len(points) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert ("reached" in str(svg.get("class")).split()) == (values[-1] >= limit)


def test_it_is_an_image_that_says_the_same_in_words() -> None:
    svg = sparkline([0.0, 3.0], 6.4, 'E = 20 <of> "600"')
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'E = 20 <of> "600"')
    assert "style" not in svg


PICTURE = b"\xff\xd8\xffsmall"


def rollout(said: str = "<answer>7</answer>", **trajectory: object) -> Rollout:
    messages = (
        Message(role="system", content="# Skill"),
        Message(role="user", content=f"Look: {mark('picture-1.png')} How many?"),
        Message(role="assistant", content=said),
    )
    one = Trajectory.model_validate({"item_id": "a", "status": "ok", "messages": messages, "answer": "7"} | trajectory)
    return Rollout(trajectory=one, score=Score(hard=0, soft=0, feedback="8") if one.status.scored else None)


def test_failures_and_successes_are_shown_the_first_ones_of_each() -> None:
    hard = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.0, "e": 1.0, "f": 1.0}
    assert example_ids({item: ItemScore(hard=score, soft=score) for item, score in hard.items()}) == [
        "b",
        "c",
        "a",
        "e",
    ]


def test_a_picture_stands_where_the_target_saw_it_and_the_skill_is_left_out() -> None:
    example = example_of(rollout(f"I see {mark('picture-1.png')}."), {"picture-1.png": PICTURE})
    assert example is not None
    user, assistant = example.turns
    assert user.parts == (Part(text="Look: "), Part(thumbnail=PICTURE), Part(text=" How many?"))
    assert user.parts[1].data_url.startswith("data:image/jpeg;base64,")
    # A target cannot place pictures by quoting a mark.
    assert assistant.parts == (Part(text="I see [picture: picture-1.png]."),)
    assert (example.answer, example.feedback) == ("7", "8")


def test_a_long_text_shows_its_ends() -> None:
    example = example_of(rollout("a" * MAX_CHARS + "b" * MAX_CHARS), {})
    assert example is not None
    [text] = [part.text for part in example.turns[-1].parts]
    assert (text[:3], text[-3:]) == ("aaa", "bbb")
    assert "characters left out]" in text
    # What has no score or no text any more is left out.
    assert example_of(rollout(status=Status.TIMEOUT), {}) is None
    assert example_of(rollout(messages=()), {}) is None
