from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.report.sparkline import HEIGHT, WIDTH, sparkline

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
