import math

from hypothesis import given, strategies as st

from decima.evaluation.metrics import Interval
from decima.show.style import draw_bars, new_axes, plain, shortened, styles


def test_schedulers_look_different_and_names_are_plain() -> None:
    names = ["fifo", "sjf-cp", "fair", "tuned-weighted-fair", "decima", "one", "two"]
    looks = styles(names)
    assert list(looks) == names
    assert len({look["color"] for look in looks.values()}) == len(names)
    assert styles(["decima"])["decima"] == looks["decima"]
    too_many = ["fifo", "sjf-cp", "fair", "naive-weighted-fair", "weighted-fair", "random", "one"]
    assert len(styles(too_many)) == 7
    looks = styles(["tuned-weighted-fair", "priced-srpt", "decima", *"abcdefgh"])
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(looks)
    _, axes = new_axes(4, 4)
    one, other = Interval(2.0, 0.5), Interval(1.0, math.nan)
    draw_bars(axes, {"low": {"fair": one, "mine": other}, "high": {"mine": one}}, "seconds")
    assert [bar.get_height() for bar in axes.patches] == [2, 1, 2]
    assert axes.patches[1].get_facecolor() == axes.patches[2].get_facecolor() != axes.patches[0].get_facecolor()
    assert axes.get_legend_handles_labels()[1] == ["fair", "mine"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["low", "high"]
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
