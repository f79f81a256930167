"""Report of the benchmark: scores, table of settings, JSON and picture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from decima.evaluation.benchmark import FAIR, SEQUENCES, SETTINGS, VERSION, score
from decima.evaluation.comparison import Comparison
from decima.evaluation.documents import json_text, machine
from decima.evaluation.metrics import paired_change
from decima.registry import LEARNED
from decima.show.style import GREY, draw_dots, finish_axes, new_axes
from decima.show.tables import Report, table_of

#: Ticks of the logarithmic axis of scores.
TICKS = (0.5, 0.7, 1, 2, 5, 10)
#: Number of schedulers in the table of settings: those with the best scores.
SHOWN = 4


def benchmark_report(comparisons: Mapping[str, Comparison], command: str = "") -> Report:
    """Return scores, tables and JSON of complete comparisons by setting; ``command`` is recorded."""
    runs = pd.concat(
        [comparison.runs.assign(condition=name) for name, comparison in comparisons.items()],
        ignore_index=True,
    )
    settings, left_out = list(comparisons), [name for name in SETTINGS if name not in comparisons]
    scores = {name: score(runs, name) for name in runs["scheduler"].unique()}
    order = sorted(scores, key=lambda name: scores[name].mean)
    changes = {}
    for setting in settings:
        jct_s = runs[runs["condition"] == setting].pivot_table("mean_jct_s", "seed", "scheduler")
        changes[setting] = {name: paired_change(jct_s[name], jct_s[FAIR]) for name in order}
    best = [name for name in order if name != FAIR][:SHOWN]
    ratios = _ratios(runs)
    tables = [
        table_of(
            f"Score over {len(settings)} settings",
            ("Scheduler", "Score", "Slowest setting"),
            ((name, scores[name], f"{ratios[name].idxmax()} ({ratios[name].max():.2f})") for name in order),
            ".3f",
            bold={LEARNED},
        ),
        table_of(
            "Mean JCT against fair",
            ("Setting", *best),
            ((setting, *(row[name] for name in best)) for setting, row in changes.items()),
            "+.1%",
        ),
    ]
    notes = [
        f"Benchmark version {VERSION}, {len(settings)} of {len(SETTINGS)} settings, "
        f"{runs['seed'].nunique()} sequences each.",
        "Score: geometric mean over settings of the mean JCT relative to fair sharing; lower is better.",
        "In each setting: change of the mean JCT against fair; paired; ± is half a 95 % confidence interval. "
        f"Shown are the {SHOWN} best scores; --json FILE writes all.",
    ]
    if left_out:
        notes.append(
            f"Left out: {', '.join(left_out)}. A score of fewer settings is comparable to none of another set."
        )
    content = {
        "command": command,
        "machine": machine(),
        "version": VERSION,
        "complete": not left_out and runs["seed"].nunique() == SEQUENCES,
        "scores": [
            {"scheduler": name, "score": scores[name].mean, "score_ci95": scores[name].half_width}
            for name in order
        ],
        "settings": [
            {
                "name": name,
                "meaning": SETTINGS[name].meaning,
                "conditions": comparisons[name].conditions.to_dict(),
                "changes": {reference: interval._asdict() for reference, interval in changes[name].items()},
            }
            for name in settings
        ],
        "left_out": left_out,
        "runs": runs.to_dict("records"),
    }
    return Report(tables, notes, json_text(content), {"benchmark": partial(plot_scores, runs)})


def plot_scores(runs: pd.DataFrame) -> Figure:
    """Draw scores with intervals, and ticks at the relative mean JCT in each setting."""
    scores = {name: score(runs, name) for name in runs["scheduler"].unique()}
    scores = dict(sorted(scores.items(), key=lambda item: item[1].mean))
    ratios = _ratios(runs)
    figure, axes = new_axes(7, 0.35 * len(scores) + 1.5)
    for index, name in enumerate(reversed(scores)):
        axes.plot(ratios[name], np.full(len(ratios), index), "|", color=GREY)
    draw_dots(axes, scores)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    finish_axes(axes, xlabel="Mean JCT relative to fair; grey: each setting")
    return figure


def _ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean JCTs relative to fair sharing; rows are settings, columns are schedulers."""
    means = runs.pivot_table("mean_jct_s", "condition", "scheduler", sort=False)
    return means.div(means[FAIR], axis=0)
