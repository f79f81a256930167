"""Interactive HTML page of a comparison: table, gains of jobs, distributions, two schedules, progress of each job."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import itertools
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from plotly.offline import get_plotlyjs

from decima.evaluation.documents import json_in_html
from decima.evaluation.explain import explain_first
from decima.policy.files import policy_path
from decima.registry import policy_named
from decima.show import explanation
from decima.show.page.gains import gains_of
from decima.show.plots import stage_places
from decima.show.style import LONG, LONG_DOT, THICK, styles
from simulator.cluster.picture import PALETTE, job_colours

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from decima.evaluation.comparison import Comparison
    from decima.evaluation.explain import Explanation
    from simulator.cluster.record import EpisodeRecord
    from workloads.job import JobProfile

#: Maximum number of points of a distribution.
MOST_POINTS = 1000
#: Line style in matplotlib -> in Plotly.
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot", LONG: "longdash", LONG_DOT: "longdashdot"}
#: Range of both axes of a DAG's picture; stages lie between 0 and 1.
FRAME = (-0.1, 1.1)


def comparison_page(
    comparison: Comparison, tables: Sequence[Table], notes: Sequence[str], made: str = ""
) -> str:
    """Return the page as HTML, for a comparison with at least one finished experiment, run with episodes kept.

    The page is self-contained and loads no other file. Data are JSON text, never markup or code. The content security
    policy allows only the two scripts of the page. One decision of the first learned policy is explained. The title of
    the first table is the title of the page.
    """
    policies = filter(None, map(policy_named, comparison.schedulers.values()))
    explained = [
        _explained(explain_first(comparison.conditions, policy_path(policy)))
        for policy in itertools.islice(policies, 1)
    ]
    script, plotly = _resource("page.js"), get_plotlyjs()
    records = list(comparison.episodes.values())
    title = str(tables[0].title)
    return Template(_resource("template.html")).substitute(
        policy=_policy(plotly, script),
        title=html.escape(title),
        made=html.escape(made),
        tables="\n".join(
            _table(table, str(table.title) if index else "") for index, table in enumerate(tables)
        ),
        notes=_list(notes),
        gains=_gains(comparison),
        explained="".join(explained),
        seed=min(comparison.finished),
        style=_resource("page.css"),
        data=_json(_data(comparison)),
        records="\n".join(
            f'<script type="text/plain" id="record-{index}">{packed_schedule(record)}</script>'
            for index, record in enumerate(records)
        ),
        plotly=plotly,
        script=script,
    )


def _data(comparison: Comparison) -> dict[str, Any]:
    """Return the data of the figures without the spans of the schedules; times are seconds."""
    episodes = comparison.episodes
    names, record = list(episodes), next(iter(episodes.values()))
    indices = {profile: index for index, profile in enumerate(dict.fromkeys(record.sequence.profiles))}
    best = comparison.best_heuristic
    first = names.index(best) if best in names else 0
    return {
        "schedulers": names,
        "first": [first, len(names) - 1 if first != len(names) - 1 else 0],
        "executors": record.config.num_executors,
        "ticks": TICKS,
        "frame": FRAME,
        "jobs": [
            {"profile": indices[profile], "arrival_s": arrival_ms / 1000}
            for profile, arrival_ms in zip(
                record.sequence.profiles, record.sequence.arrival_ms.tolist(), strict=True
            )
        ],
        "colours": [to_hex(colour) for colour in job_colours(len(record.sequence))],
        "palette": PALETTE,
        "profiles": [_profile(profile) for profile in indices],
        "records": [_record(episode) for episode in episodes.values()],
        "figures": {
            "experiments": _distribution(
                comparison.measured, "mean_jct_s", "Mean JCT of an experiment (s)", "Fraction of experiments"
            ),
            "all-jobs": _distribution(
                comparison.measured_jobs, "jct_s", "JCT of a job, all experiments (s)", "Fraction of jobs"
            ),
        },
    }


def _record(record: EpisodeRecord) -> dict[str, Any]:
    completion = [None if time != time else time / 1000 for time in record.completion_ms.tolist()]
    return {
        "end_s": record.end_ms / 1000,
        "mean_jct_s": record.mean_jct_ms / 1000,
        "completion_s": completion,
    }


def _profile(profile: JobProfile) -> dict[str, Any]:
    positions = stage_places(profile)
    return {
        "name": profile.name,
        "stages": [
            {"name": stage.name, "tasks": stage.num_tasks, "x": x, "y": y}
            for stage, (x, y) in zip(profile.stages, positions.tolist(), strict=True)
        ],
        "edges": profile.edges.tolist(),
    }


def _distribution(rows: pd.DataFrame, column: str, x: str, y: str) -> dict[str, Any]:
    """Return a Plotly figure: the empirical distribution of a column for each scheduler."""
    groups = rows.groupby("scheduler", sort=False, observed=True)[column]
    values = {str(name): mine.to_numpy() for name, mine in groups}
    traces: list[dict[str, Any]] = []
    for name, look in styles(values).items():
        ordered = np.sort(values[name][~np.isnan(values[name])])
        fraction = np.arange(1, ordered.size + 1) / max(ordered.size, 1)
        few = np.unique(np.linspace(0, ordered.size - 1, min(ordered.size, MOST_POINTS)).astype(int))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": html.escape(name, quote=False),
                "x": [*ordered[few[:1]].tolist(), *ordered[few].tolist()],
                "y": [0.0, *fraction[few].tolist()],
                "zorder": 0 if look["linewidth"] == THICK else 1,
                "line": {
                    "shape": "hv",
                    "width": look["linewidth"],
                    "color": look["color"],
                    "dash": DASHES[look["linestyle"]],
                },
            }
        )
    longest = max((trace["x"][-1] for trace in traces if trace["x"]), default=1.0)
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": x}, "range": [0, 1.03 * longest or 1.0]},
            "yaxis": {"title": {"text": y}},
        },
    }


def _explained(explained: Explanation) -> str:
    """Return the HTML section of an explained decision."""
    tables = "\n".join(_table(table, str(table.title)) for table in explanation.tables(explained))
    notes = _list(explanation.notes(explained))
    return f'<h2>A decision explained</h2>\n<ul class="note">\n{notes}\n</ul>\n{tables}'


def _gains(comparison: Comparison) -> str:
    """Return the HTML section of the jobs that gain and lose; empty if there is nothing to compare."""
    gains = gains_of(comparison)
    if gains is None:
        return ""
    heading = html.escape(f"Who gains and who loses under {gains.best}, against {gains.reference}")
    table = _table(gains.table, str(gains.table.title), gains.numbers)
    return (
        f'<h2>{heading}</h2>\n<ul class="note" id="gains-notes">\n{_list(gains.notes)}\n</ul>\n'
        f'<div class="wide tall" id="gains">{table}</div>'
    )


def _list(notes: Sequence[str]) -> str:
    return "\n".join(f"<li>{html.escape(note)}</li>" for note in notes)


def _table(table: Table, title: str, numbers: Sequence[Sequence[float | None]] = ()) -> str:
    """Convert a rich table to HTML; a styled row is the best.

    ``numbers`` are what rows are sorted by, one for each cell; None for a text or an unknown number.
    """
    heads = "".join(f"<th>{html.escape(str(column.header))}</th>" for column in table.columns)
    sort_by = numbers or [[None] * len(table.columns)] * len(table.rows)
    rows = zip(
        table.rows, zip(*(column.cells for column in table.columns), strict=True), sort_by, strict=True
    )
    body = "\n".join(
        ('<tr class="best">' if row.style else "<tr>")
        + "".join(
            ("<td>" if number is None else f'<td data-value="{number}">') + f"{html.escape(str(cell))}</td>"
            for cell, number in zip(cells, row_numbers, strict=True)
        )
        + "</tr>"
        for row, cells, row_numbers in rows
    )
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}\n<tr>{heads}</tr>\n{body}\n</table>"


def _json(content: Any) -> str:
    """Return JSON for a script block, without ``<``, which could end the block or start a comment."""
    return json_in_html(json.dumps(content, allow_nan=False, separators=(",", ":")))


def _policy(*scripts: str) -> str:
    """Return the content security policy: only these scripts, and no other sources."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rest = "style-src 'unsafe-inline'; img-src data: blob:; form-action 'none'; base-uri 'none'"
    return f"default-src 'none'; {rest}; script-src {allowed}"


def _resource(name: str) -> str:
    return files("decima.show.page").joinpath(name).read_text(encoding="utf-8")


#: Resolution of times: 1 / TICKS of the length of the episode, 4 microseconds for a quarter of an hour.
TICKS = 2**28


def packed_schedule(record: EpisodeRecord) -> str:
    """Encode tasks and moves of all executors, called spans, as base64 of gzip of little-endian uint32.

    Spans are in order of executor and start time. Columns follow each other: the number of spans of each executor, and
    for each span the time since the previous span of the executor (or since 0) and its length (in 1 / ``TICKS`` of the
    episode), its kind (0 for a move, 2 + the index of the stage over all jobs for a task), the job, the parallelism and
    the wave (both 0 for a move).
    """
    ran, end_ms = np.flatnonzero(record.task_executor >= 0), record.end_ms
    sizes = [profile.num_stages for profile in record.sequence.profiles]
    first_stage = np.concatenate([[0], np.cumsum(sizes)])
    job, none = record.task_job[ran], np.zeros(record.move_executor.size, dtype=np.int64)
    columns: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
        "executor": (record.task_executor[ran], record.move_executor),
        "start": (record.task_start_ms[ran], record.move_depart_ms),
        "finish": (record.task_finish_ms[ran], record.move_arrive_ms),
        "stage": (2 + first_stage[job] + record.task_stage[ran], none),
        "job": (job, record.move_job),
        "parallelism": (record.task_parallelism[ran], none),
        "wave": (record.task_wave[ran], none),
    }
    span: dict[str, NDArray[Any]] = {name: np.concatenate(parts) for name, parts in columns.items()}
    for name in ("start", "finish"):
        span[name] = np.rint(np.clip(span[name] / end_ms if end_ms else span[name], 0, 1) * TICKS)
    order = np.lexsort((span["finish"], span["start"], span["executor"]))
    span = {name: column[order].astype(np.int64) for name, column in span.items()}
    start, finish = span["start"], span["finish"]
    before = np.concatenate([[0], finish[:-1]])
    before[np.flatnonzero(np.diff(span["executor"], prepend=-1))] = 0
    # Rounding must not make spans overlap, even if they are shorter than a tick.
    start = np.maximum(start, before)
    counts = np.bincount(span["executor"], minlength=record.config.num_executors)
    rest = [span[name] for name in ("stage", "job", "parallelism", "wave")]
    return _base64([counts, start - before, np.maximum(finish - start, 0), *rest])


def _base64(columns: list[NDArray[np.int64]]) -> str:
    content = np.concatenate(columns).astype("<u4").tobytes()
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode("ascii")
