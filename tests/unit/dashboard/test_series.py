from __future__ import annotations

import math

from headrace_dashboard.series import Series, extremes
from headrace_dashboard.views.sparkline import sparkline


def point(name: str, step: int, value: float) -> dict[str, object]:
    return {"name": name, "step": step, "value": value}


def test_a_hundred_thousand_points_become_two_per_bucket_and_keep_the_one_spike():
    values = [math.sin(i / 9000) for i in range(100_000)]
    values[61_237] = 50.0
    kept = extremes(values, 600)
    assert len(kept) <= 2 * 600 + 2
    assert 61_237 in kept
    assert (kept[0], kept[-1]) == (0, 99_999)
    assert min(values) in [values[i] for i in kept]


def test_a_short_line_keeps_every_point():
    assert extremes([3.0, 1.0, 2.0], 600) == [0, 1, 2]


def test_a_bucket_of_nothing_but_nan_is_left_out():
    values = [1.0] * 10 + [math.nan] * 10 + [2.0] * 10
    assert all(math.isfinite(values[i]) for i in extremes(values, 3))


def test_columns_share_their_steps_and_are_none_where_a_name_has_no_value():
    series = Series()
    series.add([point("a", 1, 1.0), point("a", 2, 2.0), point("b", 2, 20.0), point("c", 3, 5.0)])
    assert series.table(["a", "b", "absent"], 600) == ([1, 2], [[1.0, 2.0], [None, 20.0], [None, None]])


def test_a_zoom_takes_only_the_steps_asked_for():
    series = Series()
    series.add(point("a", step, float(step)) for step in range(1, 101))
    assert series.table(["a"], 600, first=10, last=12) == ([10, 11, 12], [[10.0, 11.0, 12.0]])


def test_a_value_that_is_not_finite_is_sent_as_none():
    series = Series()
    series.add([point("a", 1, math.nan), point("a", 2, 2.0), {"name": "a", "step": 3, "value": None}])
    assert series.table(["a"], 600) == ([1, 2, 3], [[None, 2.0, None]])


def test_a_point_that_comes_again_replaces_its_value_and_one_that_comes_late_finds_its_place():
    series = Series()
    assert series.add([point("a", 1, 1.0), point("a", 3, 3.0)]) == 2
    assert series.add([point("a", 3, 3.0)]) == 0
    assert series.add([point("a", 2, 2.0), point("a", 3, 4.0)]) == 2
    assert series.table(["a"], 600) == ([1, 2, 3], [[1.0, 2.0, 4.0]])
    assert series.since(2) == [("a", 2, 2.0), ("a", 3, 4.0)]


def test_a_sparkline_stays_in_its_box_and_ends_at_the_last_value():
    line = sparkline([float(i % 7) for i in range(1000)])
    assert line is not None
    corners = [tuple(map(float, corner.split(","))) for corner in line.points.split()]
    assert all(0 <= x <= 120 and 0 <= y <= 28 for x, y in corners)
    assert line.last == float(999 % 7)


def test_a_job_without_a_finite_value_has_no_sparkline():
    assert sparkline([]) is None
    assert sparkline([math.nan]) is None
