"""Looks of schedulers, bars, labels of points, and short names."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.colors import to_rgb

from decima.evaluation.metrics import Interval
from decima.registry import SCHEDULERS
from decima.show.style import (
    OTHERS,
    STYLES,
    count_iterations,
    draw_bars,
    draw_curve,
    draw_dots,
    finish_axes,
    label_points,
    new_axes,
    plain,
    styles,
)
from decima.show.tables import shortened

#: Distance of colours that are told apart, also by readers who confuse red and green.
APART = 0.08
NAMES = st.lists(
    st.sampled_from([*SCHEDULERS, "decima:tpch-batch", "decima:batch", "weighted-fair:-1", "my:Own", "other.py:Mine"]),
    min_size=1,
    max_size=14,
    unique=True,
)


#: Matrices from linear RGB to cone responses, and from their cube roots to OKLab (Björn Ottosson, 2020).
TO_CONES = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
TO_OKLAB = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
#: Fraction of the red-green axis of OKLab that red-green colour-blind readers perceive.
RED_GREEN = 0.35


def perceived_distance(one: str, other: str) -> float:
    rgb = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(linear @ np.transpose(TO_CONES)) @ np.transpose(TO_OKLAB) * [1, RED_GREEN, 1]
    return float(math.dist(*lab.tolist()))


def test_every_scheduler_has_a_look_of_its_own_that_colour_blind_readers_see() -> None:
    assert SCHEDULERS.keys() <= STYLES.keys()
    for one, other in itertools.combinations([*SCHEDULERS, "tuned-weighted-fair", "seh:0", "decima"], 2):
        (colour, dashes), (other_colour, other_dashes) = STYLES[one], STYLES[other]
        assert dashes != other_dashes or perceived_distance(colour, other_colour) > APART, (one, other)
    built_in = {colour for colour, _ in STYLES.values()}
    for colour in OTHERS:
        assert min(perceived_distance(colour, each) for each in built_in) > APART
    for one, other in itertools.combinations(OTHERS, 2):
        assert perceived_distance(one, other) > APART


@given(NAMES)
def test_a_scheduler_has_one_colour_in_all_pictures(names: list[str]) -> None:
    looks = styles(names)
    assert list(looks) == names
    for name, look in looks.items():
        assert look["color"] == styles([name])[name]["color"]
        if name in SCHEDULERS:
            assert (look["color"], look["linestyle"]) == STYLES[name]


@pytest.mark.parametrize(
    ("variant", "scheduler"),
    [
        ("decima:tpch-batch", "decima"),
        ("decima trained there", "decima"),
        ("decima,guard=off", "decima"),
        ("weighted-fair:-1", "weighted-fair"),
        ("fair,no-later-than=1.5", "fair"),
        ("tuned-graphene-star:once", "graphene-star"),
        ("tuned-weighted-fair:once", "weighted-fair"),
        ("deeprm, for slowdown", "deeprm"),
    ],
)
def test_variants_have_the_colour_of_their_scheduler_and_other_dashes(variant: str, scheduler: str) -> None:
    looks = styles([variant, scheduler, f"{variant}:2"])
    assert {look["color"] for look in looks.values()} == {STYLES[scheduler][0]}
    assert len({look["linestyle"] for look in looks.values()}) == 3
    assert looks[scheduler]["linestyle"] == STYLES[scheduler][1]


@given(NAMES)
def test_learned_schedulers_are_thickest_and_below(names: list[str]) -> None:
    looks = styles([*names, "decima"])
    learned = [look for name, look in looks.items() if name.startswith(("decima", "deeprm"))]
    others = [look for look in looks.values() if look not in learned]
    assert len({look["linewidth"] for look in learned}) == 1
    assert all(look["linewidth"] < learned[0]["linewidth"] - 0.5 for look in others)
    assert all(look["zorder"] > learned[0]["zorder"] for look in others)
    widths = [look["linewidth"] for look in others]
    assert widths == sorted(widths, reverse=True)


def test_bars_of_one_colour_have_patterns_and_dots_have_the_colours_of_lines() -> None:
    _, axes = new_axes(4, 4)
    one, other = Interval(2.0, 0.5), Interval(1.0, math.nan)
    draw_bars(axes, {"low": {"fair": one, "decima": other}, "high": {"decima:x": one, "decima": one}}, "seconds")
    assert [bar.get_height() for bar in axes.patches] == [2, 1, 2, 2]
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[1] == colours[2] == colours[3] != colours[0]
    hatches = [bar.get_hatch() or "" for bar in axes.patches]
    assert hatches[:2] == ["", ""]
    assert hatches[3] == hatches[1] != hatches[2]
    assert axes.get_legend_handles_labels()[1] == ["fair", "decima", "decima:x"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["low", "high"]
    _, axes = new_axes(4, 4)
    draw_dots(axes, {"fair": one, "bound": other}, {"bound": "0.35"})
    assert [line.get_color() for line in axes.lines[::1] if line.get_marker() == "o"] == [STYLES["fair"][0], "0.35"]


def test_labels_cover_neither_each_other_nor_points_and_are_not_cut() -> None:
    figure, axes = new_axes(5, 4)
    labels = {(39.5, 180.0): "decima:tpch-batch", (40.3, 179.0): "srpt", (48.6, 153.0): "a long name at the edge"}
    axes.plot(*zip(*labels, strict=True), "o")
    finish_axes(axes, xlabel="x", ylabel="y")
    label_points(axes, labels)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == list(labels.values())
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert not any(box.contains(*point) for box in boxes for point in axes.transData.transform(list(labels)))
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize(("last", "ticks"), [(0, [0]), (1, [0, 1]), (3, [0, 1, 2, 3]), (100, [0, 20, 40, 60, 80, 100])])
def test_ticks_of_iterations_are_whole_numbers(last: int, ticks: list[int]) -> None:
    figure, axes = new_axes(5, 4)
    draw_curve(axes, [{"iteration": 0, "loss": 3.0}, {"iteration": last, "loss": 2.0}][: last + 1], "loss")
    count_iterations(axes)
    figure.draw_without_rendering()
    left, right = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if left <= tick <= right] == ticks
    assert axes.lines[0].get_marker() == ("o" if last == 0 else "None")


def test_long_names_are_cut_and_names_are_plain() -> None:
    base = "Scan parquet > WholeStageCodegen ({}) > Exchange hashpartitioning and more"
    cut = shortened([base.format(number) for number in (1, 2, 13)] + ["short"], 36)
    assert cut[3] == "short"
    assert all(str(number) in name for number, name in zip((1, 2, 13), cut, strict=False))
    assert shortened(["left-and-long-right"], 11) == ["left-…right"]
    assert len(set(shortened(["a" * 20, "a" * 30, "a" * 40], 8))) == 3
    assert plain("$x^2$\x1b") == r"\$x^2\$\x1b"


LONG = st.lists(st.text("ab", min_size=6, max_size=30), max_size=12)


@given(LONG)
def test_cut_names_are_short_and_as_different_as_before(names: list[str]) -> None:
    cut = shortened(names, 8)
    assert all(len(name) <= 8 for name in cut)
    assert len(set(zip(names, cut, strict=True))) == len(set(names))
    assert len(set(cut)) == len(set(names))
