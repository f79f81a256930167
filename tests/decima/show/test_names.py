from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decima.show.names import plain, shortened

LONG = st.lists(st.text("ab", min_size=6, max_size=30), max_size=12)


def test_names_keep_what_tells_them_apart() -> None:
    base = "Scan parquet > WholeStageCodegen ({}) > Exchange hashpartitioning and more"
    cut = shortened([base.format(number) for number in (1, 2, 13)] + ["short"], 36)
    assert cut[3] == "short"
    assert all(str(number) in name for number, name in zip((1, 2, 13), cut, strict=False))
    assert shortened(["left-and-long-right"], 11) == ["left-…right"]
    assert len(set(shortened(["a" * 20, "a" * 30, "a" * 40], 8))) == 3


@given(LONG)
def test_cut_names_are_short_and_as_different_as_before(names: list[str]) -> None:
    cut = shortened(names, 8)
    assert all(len(name) <= 8 for name in cut)
    assert len(set(zip(names, cut, strict=True))) == len(set(names))
    assert len(set(cut)) == len(set(names))


def test_a_name_is_no_mathematics_and_no_command() -> None:
    assert plain("$x^2$\x1b") == r"\$x^2\$\x1b"
