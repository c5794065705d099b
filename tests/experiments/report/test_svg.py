"""Pictures: axes hold what they show, and marks stand where their numbers say."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.experiments.report.svg import HEIGHT, WIDTH, Axis, Point, Series, bars, chart, legend, ticks

finite = st.floats(1e-6, 1e6)


@given(finite, finite, st.booleans())
def test_ticks_lie_between_the_ends_and_ascend(a: float, b: float, log: bool) -> None:
    low, high = sorted((a, b))
    if high < low * 1.01:
        high = low * 1.01
    found = ticks(low, high, log)
    assert 1 <= len(found) <= 16
    assert found == sorted(found)
    room = 1e-8 * (high - low)
    assert all(low - room <= one <= high + room for one in found)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_marks_lie_in_the_picture(points: list[tuple[float, float]], log_x: bool, log_y: bool) -> None:
    series = [Series("a & b", [Point(x, y, sd=y / 2) for x, y in points], style=0, line=True)]
    drawn = ElementTree.fromstring(chart("t <", Axis("x", log=log_x), Axis("y", log=log_y), series))
    circles = [one for one in drawn.iter() if one.tag == "circle"]
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= WIDTH
        assert 0 <= float(circle.attrib["cy"]) <= HEIGHT


def test_a_higher_value_stands_higher_and_a_larger_one_further_right() -> None:
    text = chart("t", Axis("x"), Axis("y"), [Series("a", [Point(0, 0), Point(1, 2)], style=0)])
    first, second = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)
    assert float(first[0]) < float(second[0])
    assert float(first[1]) > float(second[1])


def test_what_a_logarithm_cannot_show_is_left_out() -> None:
    series = [Series("a", [Point(0, 1), Point(1, 1), Point(1, float("nan"))], style=0)]
    assert chart("t", Axis("x", log=True), Axis("y"), series).count('class="mark"') == 1
    assert chart("t", Axis("x"), Axis("y"), []) == ""


def test_tags_of_marks_that_lie_on_each_other_are_written_together() -> None:
    points = [Point(0, 0, tag="2"), Point(0, 1e-4, tag="10"), Point(1, 1, tag="3")]
    text = chart("t", Axis("x"), Axis("y"), [Series("a", points, style=0)])
    assert re.findall(r'text-anchor="(?:start|end)">([\d, ]+)</text>', text)[-2:] == ["2, 10", "3"]


def test_an_axis_shows_no_less_than_its_span() -> None:
    low, high = Axis("y", span=0.5).ends([1.0, 1.001])
    assert low < 1.0 and high > 1.001 and high - low == pytest.approx(0.5)
    assert Axis("y", span=0.5).ends([1.0, 3.0]) == Axis("y").ends([1.0, 3.0])


def test_bars_are_as_long_as_their_numbers() -> None:
    text = bars("t", "n", [("a", Point(1.0, 0)), ("b", Point(2.0, 0))])
    widths = [float(one) for one in re.findall(r'<rect[^>]* width="([\d.]+)"', text)]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)


def test_styles_differ_in_shape_and_colour() -> None:
    series = [Series(f"s{i}", [Point(1, 1)], style=i) for i in range(7)]
    shapes = [legend([one]).replace(one.name, "").replace(one.ink, "") for one in series]
    assert len(set(shapes)) == len({one.ink for one in series}) == 7
