"""Names from data where room is short."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.font_manager import fontManager

from decima.outputs import visible

__all__ = ["FONTS", "plain", "shortened"]

#: For names in any script: matplotlib's own font, and those that are installed of some with more scripts.
FONTS = [
    "DejaVu Sans",
    *(
        name
        for name in (
            "Noto Sans CJK SC",
            "Noto Sans CJK JP",
            "WenQuanYi Zen Hei",
            "Arial Unicode MS",
            "Noto Sans",
        )
        if name in {font.name for font in fontManager.ttflist}
    ),
]


def plain(text: str) -> str:
    """A text that matplotlib takes for no mathematics, with control characters made visible."""
    return visible(text).replace("$", r"\$")


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Cut names to at most ``width`` letters so that different names stay different.

    Cut names keep their beginning and their end; names that then look alike keep what begins where they differ; those
    that still do are numbered.

    Args:
        names: may repeat.
        width: at least 8.
    """
    cut = {name: _middle_cut(name, width) for name in names}
    for alike in _alike(cut):
        letters = enumerate(zip(*alike, strict=False))
        differ = next((place for place, each in letters if len(set(each)) > 1), min(map(len, alike)))
        for name in alike:
            cut[name] = _cut_from(name, differ, width)
    for alike in _alike(cut):
        for number, name in enumerate(alike[1:], start=2):
            cut[name] = f"{cut[name][: width - len(f'…{number}')]}…{number}"
    return [cut[name] for name in names]


def _alike(cut: dict[str, str]) -> list[list[str]]:
    """Groups of different names that were cut to the same."""
    groups: dict[str, list[str]] = {}
    for name, short in cut.items():
        groups.setdefault(short, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _middle_cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[head + 1 - width :]}"


def _cut_from(name: str, place: int, width: int) -> str:
    """The beginning of a name, and what stands from a place on."""
    head = (width - 2) // 3
    start = max(head, min(place - 2, len(name) - (width - head - 1)))
    rest = name[start : start + width - head - 1]
    return f"{name[:head]}…{rest}" if start + len(rest) == len(name) else f"{name[:head]}…{rest[:-1]}…"
