"""Results of figures: what ``run`` returns, their JSON files, and tables as Markdown.

A figure is a file of this folder with a function ``run``, whose keyword arguments are the options of
``python -m reproduce NAME``. Numbers of README and documentation are rendered from the JSON files (``render.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

import decima
from decima.evaluation.metrics import METRICS, Interval, ci95
from decima.show.style import draw_bars, legend_beside, new_axes, save_figure
from workloads import JobProfile

FOLDER = Path(__file__).parent
#: Folders of the published results and of their pictures.
RESULTS, PICTURES = FOLDER / "results", FOLDER.parent / "docs"


class Result(NamedTuple):
    """Result of a figure.

    Attributes:
        tables: name -> tidy table; the first one is the main table. A column ``X_ci95`` (``X_ci95_s`` for ``X_s``) has
            half the 95 % confidence intervals of ``X``.
        pictures: file name without suffix -> picture.
        values: name -> text of a single value, which pages show within sentences.
        formats: column -> format of its numbers, such as ``.1%``; see ``number_format`` for other columns.
    """

    tables: Mapping[str, pd.DataFrame]
    pictures: Mapping[str, Figure] = {}
    values: Mapping[str, str] = {}
    formats: Mapping[str, str] = {}

    def content(self, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the JSON file: the result, how to repeat it, and the CPU time so far, s.

        With several workers the CPU time is None, as that of the workers' processes is not known here.
        """
        used = os.times()
        cpu_s = round(used.user + used.system + used.children_user + used.children_system)
        return {
            "command": command,
            "options": options,
            "version": version(),
            "cpu_s": cpu_s if options.get("workers", 1) == 1 else None,
            "values": self.values,
            "formats": self.formats,
            "tables": {
                name: json.loads(table.to_json(orient="records")) for name, table in self.tables.items()
            },
        }

    def save(
        self, name: str, content: Mapping[str, Any], results: Path = RESULTS, pictures: Path = PICTURES
    ) -> None:
        """Write the JSON file and the pictures into these folders."""
        for folder in (results, pictures):
            folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1, ensure_ascii=False, default=str)
        (results / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        for file, picture in self.pictures.items():
            save_figure(picture, pictures / f"{file}.png")


def version() -> str:
    """Return the version of the project, with its commit in a clone of the repository."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return decima.__version__
    return f"{decima.__version__}, commit {commit}"


# ---- parts of several figures ------------------------------------------------------------------------------

#: Seed of the job streams that measure loads; no figure or training uses it.
LOAD_SEED = 4_000_000


def interval_for_load(load: float, workload: str, executors: int) -> float:
    """Find the mean time between Poisson arrivals, s, that gives a load between 0 and 1; three significant digits.

    The work of a job depends on its number of executors. Hence the load is measured under fair sharing, in a stream of
    1,000 jobs: share of the time until the last arrival in which executors run tasks.
    """
    work_s = np.mean([profile.work_ms for profile in decima.open_workload(workload).profiles]) / 1000
    interval = float(work_s / (load * executors))
    stream = {
        "workload": workload,
        "executors": executors,
        "arrivals": "poisson",
        "jobs": 1000,
        "moving_delay": 2.0,
    }
    for _ in range(5):
        runs = decima.compare(["fair"], interval=interval, seeds=1, seed=LOAD_SEED, **stream)
        interval *= float(runs["load"].iloc[0]) / load
    return float(f"{interval:.3g}")


def train(folder: Path, recipe: str, settings: Sequence[str], workload: str, workers: int) -> str:
    """Train a policy in a folder, or continue the training in it; return the policy as a scheduler's name.

    Args:
        folder: folder of the training. A complete training in it is not repeated.
        recipe: training recipe, such as ``batch``.
        settings: settings that differ from the recipe, such as ``iterations=20``.
        workload: see ``decima.train``.
        workers: number of processes.

    Raises:
        TrainingError: the folder contains a training with other settings.
        KeyboardInterrupt: Ctrl-C; the next call continues the training.
    """
    begun = (folder / "config.yaml").exists()
    trained = decima.train(
        recipe, folder, overrides=settings, workload=workload, resume=begun, workers=workers
    )
    if trained.interrupted:
        raise KeyboardInterrupt
    return f"decima:{trained.policy_file}"


def batches_and_streams(batch_jobs: int, stream_jobs: int, interval: float) -> dict[str, dict[str, Any]]:
    """Return the settings of ``decima.compare`` for batches and for streams, with a mean time between jobs in s."""
    return {
        "batches": {"jobs": batch_jobs},
        "streams": {"jobs": stream_jobs, "arrivals": "poisson", "interval": interval},
    }


def stream_settings(interval: float) -> list[str]:
    """Return settings that fit the recipe ``stream`` to a mean time between arrivals, s.

    The recipe has intervals of 19 s on average. Its horizons of returns and of advantages scale with the interval.
    """
    return [
        f"workload.interval={interval}",
        f"returns.horizon={400 * interval / 19:.6g}",
        f"critic.gae_horizon={60 * interval / 19:.6g}",
    ]


def pick(profiles: Sequence[JobProfile], chosen: NDArray[np.bool_]) -> tuple[JobProfile, ...]:
    """Return the profiles that are chosen, bool [profiles]."""
    return tuple(profile for profile, is_chosen in zip(profiles, chosen.tolist(), strict=True) if is_chosen)


def change(runs: pd.DataFrame, scheduler: str, other: str) -> str:
    """Return the relative change of the mean job completion time from another scheduler, paired by seed, as text."""
    mean, half_width = paired(runs, scheduler, other)
    return f"{mean:+.1%} ± {half_width:.1%}"


def paired(runs: pd.DataFrame, scheduler: str, other: str) -> Interval:
    """Return the relative change of the mean job completion time from another scheduler, paired by seed."""
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    return decima.paired_change(jct_s[scheduler], jct_s[other])


def over_time(steps: pd.Series[Any], edges_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average a step function over time windows: values by start time, ms; it is 0 before its first step.

    Returns float64 [len(edges_ms) - 1]; the edges of windows ascend.
    """
    times = np.append(steps.index.to_numpy(), max(edges_ms[-1], steps.index[-1]))
    area = np.concatenate([[0.0], np.cumsum(steps.to_numpy() * np.diff(times))])
    mean: NDArray[np.float64] = np.diff(np.interp(edges_ms, times, area)) / np.diff(edges_ms)
    return mean


def plot_means(table: pd.DataFrame, by: str = "") -> Figure:
    """Draw mean job completion times of ``decima.summary_table`` as bars, one group for each value of a column."""
    groups: dict[str, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        means = groups.setdefault(str(row[by]) if by else "", {})
        means[row["scheduler"]] = row["mean_jct_s"], row["mean_jct_ci95_s"]
    longest = table["scheduler"].str.len().max()
    figure, axes = new_axes(0.42 * (len(table) + len(groups)) + 0.08 * longest + 1.5, 4)
    draw_bars(axes, groups, "Average job completion time (s)")
    legend_beside(axes)
    return figure


# ---- tables as text ----------------------------------------------------------------------------------------


def number_format(column: str) -> str:
    """Return the default format of a column: that of the metric, signed percent for ``vs ..``, else one decimal."""
    if column in METRICS:
        return METRICS[column].form
    return "+.1%" if column.startswith("vs ") else ".1f"


def cell(row: Mapping[str, Any], column: str, formats: Mapping[str, str]) -> str:
    """Return a cell of a table as text: a number with its confidence interval; empty for None."""
    value, half_width = row[column], row.get(ci95(column))
    if value is None or isinstance(value, str):
        return value or ""
    form = formats.get(column) or ("" if isinstance(value, int) else number_format(column))
    return f"{value:{form}}" + ("" if half_width is None else f" ± {half_width:{form.lstrip('+')}}")


def markdown(
    rows: Iterable[Mapping[str, Any]], formats: Mapping[str, str], columns: Iterable[str] = ()
) -> str:
    """Return a Markdown table whose columns are aligned, so that it can also be read as plain text.

    Args:
        rows: values by column, as in the JSON file; all rows have the same columns.
        formats: see ``Result``.
        columns: columns to show; by default all.
    """
    rows = list(rows)
    intervals = {ci95(column) for column in rows[0]}
    columns = list(columns) or [column for column in rows[0] if column not in intervals]
    table = []
    for column in columns:
        heading = METRICS[column].heading if column in METRICS else column
        texts = [
            f"{heading} (s)" if column.endswith("_s") else heading,
            *(cell(row, column, formats) for row in rows),
        ]
        width = max(map(len, texts))
        if all(isinstance(row[column], str | None) for row in rows):
            table.append([texts[0].ljust(width), "-" * width, *(text.ljust(width) for text in texts[1:])])
        else:
            table.append(
                [texts[0].rjust(width), f"{'-' * (width - 1)}:", *(text.rjust(width) for text in texts[1:])]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*table, strict=True))
