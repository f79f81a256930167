"""Table of means over the experiments of comparisons, for notebooks and scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from decima.evaluation.metrics import Interval, ci95, metrics_of, paired_change

__all__ = ["summary_table"]


def summary_table(
    runs: pd.DataFrame,
    against: str | None = None,
    metrics: Sequence[str] = ("mean_jct_s", "p95_jct_s", "utilisation"),
    by: Sequence[str] = (),
) -> pd.DataFrame:
    """Average the results of a comparison over experiments.

    Args:
        runs: result of ``decima.compare``, or several of these, concatenated; one row per scheduler and seed. Or
            results on DeepRM's grid, see ``decima.evaluation.grid.GridComparison.runs``.
        against: scheduler that the others are compared with.
        metrics: columns of ``runs`` to average; the first one is compared.
        by: further columns of ``runs`` whose values are kept apart, such as a column with the load.

    Returns:
        A row for each scheduler, and each combination of values in ``by``, in their order in ``runs``. Columns: those
        in ``by``, ``scheduler``, the metrics, and ``vs AGAINST``, the relative change of the first metric, paired by
        seed (NaN for the reference itself). Half of a 95 % confidence interval is in a column such as
        ``mean_jct_ci95_s`` or ``vs AGAINST_ci95``.

    Examples:
        >>> import decima
        >>> runs = decima.compare("fifo,fair", seeds=2, jobs=5, executors=10, workload="synthetic")
        >>> list(decima.summary_table(runs, against="fair", metrics=["makespan_s"]))
        ['scheduler', 'makespan_s', 'makespan_ci95_s', 'vs fair', 'vs fair_ci95']
    """
    rows, definitions = [], metrics_of(runs)
    for labels, group in runs.groupby(list(by), sort=False) if by else [((), runs)]:
        for name in group["scheduler"].unique():
            mine, row = group[group["scheduler"] == name], dict(zip(by, labels, strict=True))
            row["scheduler"] = name
            for metric in metrics:
                weights = mine["jobs"] if definitions[metric].per_job else None
                mean, half_width = definitions[metric].mean(mine[metric], weights)
                row[metric] = mean
                if definitions[metric].interval or metric == metrics[0]:
                    row[ci95(metric)] = half_width
            if against is not None:
                first, column = metrics[0], f"vs {against}"
                reference_runs = group[group["scheduler"] == against]
                change = Interval(math.nan, math.nan)
                if name != against:
                    weights = mine["jobs"] if definitions[first].per_job else None
                    change = paired_change(mine[first], reference_runs[first], weights)
                row[column], row[ci95(column)] = change
            rows.append(row)
    return pd.DataFrame(rows)
