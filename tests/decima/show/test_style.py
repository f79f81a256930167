from __future__ import annotations

import math

from decima.evaluation.intervals import Interval
from decima.show.style import draw_bars, new_axes, styles


def test_no_two_schedulers_look_the_same() -> None:
    names = ["fifo", "sjf-cp", "fair", "tuned-weighted-fair", "decima", "one", "two"]
    looks = styles(names)
    assert list(looks) == names
    assert len({look["color"] for look in looks.values()}) == len(names)
    assert styles(["decima"])["decima"] == looks["decima"]
    too_many = ["fifo", "sjf-cp", "fair", "naive-weighted-fair", "weighted-fair", "random", "one"]
    assert len(styles(too_many)) == 7


def test_where_colours_run_out_dots_tell_lines_apart() -> None:
    looks = styles(["tuned-weighted-fair", "priced-srpt", "decima", *"abcdefgh"])
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(looks)


def test_a_scheduler_has_one_colour_and_one_entry_in_the_legend_whatever_the_condition() -> None:
    _, axes = new_axes(4, 4)
    one, other = Interval(2.0, 0.5), Interval(1.0, math.nan)
    draw_bars(axes, {"low": {"fair": one, "mine": other}, "high": {"mine": one}}, "seconds")
    assert [bar.get_height() for bar in axes.patches] == [2, 1, 2]
    assert (
        axes.patches[1].get_facecolor() == axes.patches[2].get_facecolor() != axes.patches[0].get_facecolor()
    )
    assert axes.get_legend_handles_labels()[1] == ["fair", "mine"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["low", "high"]
