"""Carbon against job completion time, for rules that shift work to hours of low carbon intensity.

The setting of PCAPS (arXiv 2502.09717): streams of 50 TPC-H jobs on 100 executors, where an hour of the signal takes a
minute. Each experiment starts at another time of the signal. The paper reports 33 % less carbon for PCAPS with the
stage probabilities of Decima.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import finish_axes, label_points, legend_beside, new_axes, styles
from reproduce.common import Result

#: Rule without signal, which the others extend.
RULE = "srpt"
SCHEDULERS = (
    *("fair", RULE, "cap:0.8", "cap:0.6", "cap:0.4", "cap:0.3", "pcaps:0.5", "greenest-first:3"),
    *("carbon-price:2", "carbon-price:5", "carbon-price:10", "carbon-price:20"),
)
#: Ranges of the slack of deadlines, as multiples of a job's time alone; schedulers for jobs with deadlines.
SLACKS = ((2.0, 4.0), (4.0, 16.0))
WITH_DEADLINES = (
    *(RULE, "least-slack", "cap:minimum=0.4,base=least-slack", "greenest-first:patience=3,base=least-slack"),
    *(f"carbon-price:{price}" for price in (5, 8, 12, 16, 20, 30, 40)),
    "carbon-slack",
)


def run(
    *,
    workload: str = "tpch",
    carbon: str = "synthetic-solar:60",
    executors: int = 100,
    jobs: int = 50,
    interval: float = 30.0,
    seeds: int = 12,
    seed: int = 7_300_000,
    workers: int = 1,
) -> Result:
    """Compare rules on streams without and with deadlines.

    Args:
        workload: Jobs: tpch, synthetic, a workload file, or the folder of the published TPC-H profiles.
        carbon: Carbon intensity over time, FILE[:SCALE].
        executors: Number of executors.
        jobs: Number of jobs in a stream.
        interval: Mean seconds between jobs.
        seeds: Number of streams.
        seed: Seed of the first stream.
        workers: Number of processes.
    """
    setting: dict[str, Any] = {
        **{
            "workload": workload,
            "arrivals": "poisson",
            "interval": interval,
            "jobs": jobs,
            "executors": executors,
        },
        **{"carbon": carbon, "seeds": seeds, "seed": seed, "workers": workers},
    }
    plain = decima.compare(SCHEDULERS, **setting)
    table = decima.summary_table(plain, against=RULE, metrics=["carbon", "executor_hours"])
    slower = decima.summary_table(plain, against=RULE, metrics=["mean_jct_s"])
    slower = slower.rename(columns={f"vs {RULE}": "JCT vs", f"vs {RULE}_ci95": "JCT vs_ci95"})
    table = table.merge(slower, on="scheduler").assign(**{"JCT vs cap": jct_against_cap(table, slower)})
    tables, values = {"carbon": table}, {}
    for least, most in SLACKS:
        name = f"slack {least:g} to {most:g}"
        runs = decima.compare(WITH_DEADLINES, deadlines=(least, most), **setting)
        columns = ["carbon", "deadline_misses", "mean_jct_s"]
        parts = [decima.summary_table(runs, metrics=[column]).set_index("scheduler") for column in columns]
        tables[name] = pd.concat(parts, axis=1).reset_index()
        values[name] = at_equal_misses(runs)
    formats = {f"vs {RULE}": "+.1%", "JCT vs": "+.1%", "JCT vs cap": "+.0%"}
    return Result(tables, {"carbon": plot(table)}, values, formats)


def jct_against_cap(carbon: pd.DataFrame, jct: pd.DataFrame) -> pd.Series[float]:
    """Return the change of mean JCTs against CAP with the same carbon, interpolated between its settings.

    It is NaN for CAP itself, and for more or less carbon than any of its settings has.
    """
    table = carbon[["scheduler", "carbon"]].assign(jct_s=jct["mean_jct_s"])
    is_cap = table["scheduler"].str.startswith("cap:")
    front = table[is_cap | (table["scheduler"] == RULE)].sort_values("carbon")
    cap_s = np.interp(table["carbon"], front["carbon"], front["jct_s"], left=np.nan, right=np.nan)
    return (table["jct_s"] / cap_s - 1).mask(is_cap)


def at_equal_misses(runs: pd.DataFrame) -> str:
    """Compare the carbon of ``carbon-slack`` with that of other rules at as many missed deadlines.

    The other rule is a mixture of two, one of which is drawn for each experiment, with the least mean carbon. If each
    rule misses more deadlines than ``carbon-slack``, it is the rule with the fewest misses.
    """
    carbon = runs.pivot_table("carbon", "seed", "scheduler")
    misses = runs.groupby("scheduler")["deadline_misses"].mean()
    ours, other_misses = misses["carbon-slack"], misses.drop("carbon-slack")
    target = max(ours, other_misses.min())
    best: tuple[float, str, pd.Series[float]] | None = None
    for fewer, more in product(other_misses.index, repeat=2):
        if other_misses[fewer] <= target <= other_misses[more]:
            gap = other_misses[more] - other_misses[fewer]
            share = (target - other_misses[fewer]) / gap if gap else 0.0
            mixed = (1 - share) * carbon[fewer] + share * carbon[more]
            if best is None or mixed.mean() < best[0]:
                best = mixed.mean(), f"{fewer} and {more}" if share else fewer, mixed
    _, rules, mixed = best
    change, half_width = decima.paired_change(carbon["carbon-slack"], mixed)
    return f"{change:+.1%} ± {half_width:.1%} against {rules}"


def plot(table: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the carbon; a line joins the settings of a rule."""
    figure, axes = new_axes(7, 4.5)
    families = table["scheduler"].str.partition(":")[0]
    for family, look in styles(families.unique()).items():
        rows = table[families == family]
        axes.plot(rows["carbon"], rows["mean_jct_s"], marker="o", label=family, **look)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    finish_axes(axes, xlabel="Carbon (g)", ylabel="Mean JCT (s)")
    legend_beside(axes)
    points = zip(table["carbon"], table["mean_jct_s"], table["scheduler"], strict=True)
    label_points(axes, {(carbon, jct_s): name.partition(":")[2] for carbon, jct_s, name in points})
    return figure
