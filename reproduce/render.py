"""Render results into README and documentation, so that each number of a figure stands in one file only.

Markers in Markdown pages, whose content is replaced:

* ``<!-- result NAME -->`` .. ``<!-- end -->``: the first table of ``results/NAME.json``; ``NAME TABLE`` names another
  one, and ``NAME TABLE: COLUMN, COLUMN`` some of its columns.
* ``<!-- value NAME KEY -->`` .. ``<!-- end -->``: a value within a sentence. ``KEY`` is one of ``values``, or the texts
  of a row and a column, such as ``decima mean_jct_s``.
* ``<!-- run NAME -->`` .. ``<!-- end -->``: command, CPU time and version of the results.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from reproduce.common import FOLDER, RESULTS, cell, markdown
from workloads.errors import DecimaError

ROOT = FOLDER.parent
_MARKER = re.compile(
    r"<!-- (result|value|run) ([\w-]+)(?: ([^>]*?))? -->((?:(?!<!--).)*)<!-- end -->", re.DOTALL
)

_OPENING = re.compile(r"<!-- (?:result|value|run) ")


class RenderError(DecimaError, ValueError):
    """A marker is malformed, or names a result, table, row or value that does not exist. The message is one line."""


def pages() -> list[Path]:
    """Return the pages that may have markers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def render_pages() -> list[Path]:
    """Render all pages; return those that changed."""
    changed = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := rendered(before)) != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed


def rendered(page: str) -> str:
    """Return the text of a page with the content of its markers replaced.

    Raises:
        RenderError: a marker has no end, or names something that does not exist.
    """

    def content(marker: re.Match[str]) -> str:
        kind, name, argument, _ = marker.groups()
        text = {"result": _table, "value": _value, "run": _run}[kind](name, argument or "")
        opening = marker.group(0).partition("-->")[0] + "-->"
        return f"{opening}{text if kind == 'value' else f'{chr(10)}{text}{chr(10)}'}<!-- end -->"

    text, count = _MARKER.subn(content, page)
    if count != len(_OPENING.findall(page)):
        raise RenderError("a marker has no <!-- end --> before the next marker")
    return text


@cache
def results(name: str) -> dict[str, Any]:
    """Return the published results of a figure."""
    file = RESULTS / f"{name}.json"
    if not file.is_file():
        raise RenderError(f"{name}: no results, expected the file {file}")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _table(name: str, argument: str) -> str:
    content = results(name)
    title, _, names = argument.partition(":")
    tables = content["tables"]
    title = title.strip() or next(iter(tables))
    columns = [column.strip() for column in names.split(",") if column.strip()]
    if title not in tables or not set(columns) <= tables[title][0].keys():
        raise RenderError(
            f"{name}: no table {argument!r}, expected one of {', '.join(tables)} and its columns"
        )
    return markdown(tables[title], content["formats"], columns).replace(
        "*", r"\*"
    )  # a star would begin an emphasis


def _value(name: str, key: str) -> str:
    content = results(name)
    if key in content["values"]:
        return str(content["values"][key])
    for rows in content["tables"].values():
        for row in rows:
            label = " ".join(takewhile(lambda entry: isinstance(entry, str), row.values()))
            for column in row:
                if key == f"{label} {column}":
                    return cell(row, column, content["formats"])
    raise RenderError(f"{name}: no value {key!r}")


def _run(name: str, _: str) -> str:
    content = results(name)
    duration = ""
    if content["cpu_s"] is not None:  # unknown if the work was done by other processes
        minutes = content["cpu_s"] / 60
        duration = f" in {minutes:.{0 if minutes >= 10 else 1}f} minutes of CPU time"
    former = f", then called `{content['former_command']}`" if "former_command" in content else ""
    command = f"```sh\n{content['command']}\n```"
    return f"{command}\n\nMeasured{duration} with version {content['version']}{former}."
