"""Fidelity of the simulator to Spark: recorded runs are predicted from task durations of other runs.

The runs of a query with a given number of executors are split into two halves, and each half predicts the other half.
The same holds for recordings of a mixture of applications that share the cluster; a mixture recorded only once is
predicted from single runs of its queries. Each prediction is repeated without one effect that the simulator models.

Further predictions put the errors into perspective. *Replay* uses a run's own task durations in order, so its error is
that of the simulator alone. *Rerun* is the mean time of the other half, close to the best possible prediction from
these durations. *From alone* predicts a mixture from single runs, which do not contain the slowdown of applications by
each other. *No driver* omits the work of the driver, which the paper's simulator does not model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from reproduce.spark.recordings import (
    Effects,
    QueryKey,
    RecordedMixture,
    Recordings,
    Run,
    Source,
    predict_mixture,
    predict_run,
    replay,
    replay_mixture,
)
from workloads.job import WorkloadError

__all__ = ["ALL", "FROM_ALONE", "PREDICTIONS", "VARIANTS", "Fidelity", "measure_fidelity"]

_T = TypeVar("_T")

ALL = "predicted"
#: Prediction of a mixture from single runs of its queries.
FROM_ALONE = "from alone"
#: Name -> effects that the prediction models.
VARIANTS: dict[str, Effects] = {
    ALL: Effects(),
    "no waves": Effects(waves=False),
    "no parallelism": Effects(parallelism=False),
    "no moving": Effects(moving=False),
    "no driver": Effects(driver=False),
}
PREDICTIONS = ("replay", "rerun", *VARIANTS, FROM_ALONE)


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Measured and predicted times of runs, ms; an unknown value is NaN.

    Args:
        executors: number of executors of a single run.
        runs: one row for each predicted run, columns

            ======================================= ======= ===============================================
            data                                    str     scale factor and layout into tasks
            query                                   str     as in q01
            run                                     str     the application's name
            real                                    float64 the query's wall time
            busy_cores                              float64 of the machine, on average; see `Run`
            replay                                  float64 from its own durations
            rerun                                   float64 mean wall time of the other half
            predicted, no waves, no parallelism,
            no driver                               float64 from the other half
            ======================================= ======= ===============================================
        replays: one row for each recorded single run; columns run, executors, real, replay.
        applications: one row for each application of a mixture; columns mixture, sharing (FIFO or FAIR), data,
            query, run (str), real (job completion time), busy_cores, replay, names of ``VARIANTS``, from alone and,
            if the mixture was recorded several times, rerun (float64).
    """

    executors: int
    runs: pd.DataFrame
    replays: pd.DataFrame
    applications: pd.DataFrame = field(default_factory=pd.DataFrame)

    def queries(self) -> pd.DataFrame:
        """Summarise the runs by data and query.

        Columns: ``runs`` (number of predicted runs), ``real`` and ``predicted`` (means, ms), and the mean absolute
        relative error of ``predicted`` and each other column of ``runs``, as ``NAME error``.
        """
        return pd.DataFrame() if self.runs.empty else _by_group(self.runs, ["data", "query"])

    def mixtures(self) -> pd.DataFrame:
        """Summarise applications by mixture.

        Columns are those of ``queries`` (``runs`` is the number of applications), ``sharing``, and ``mean JCT error``,
        the error of the mean JCT over applications.
        """
        if self.applications.empty:
            return pd.DataFrame()
        table = _by_group(self.applications, ["mixture"])
        sharing = self.applications.groupby("mixture")["sharing"].first()
        return table.assign(sharing=sharing, **{"mean JCT error": (table[ALL] / table["real"] - 1).abs()})

    def summary(self) -> pd.DataFrame:
        """Summarise absolute relative errors: one row per prediction, columns mean, p95 and max.

        The index has two levels: ``alone`` or ``sharing``, and the prediction.
        """
        kinds = {"alone": self.runs, "sharing": self.applications}
        parts = {where: _errors(table) for where, table in kinds.items() if not table.empty}
        statistics = {
            where: pd.DataFrame({"mean": part.mean(), "p95": part.quantile(0.95), "max": part.max()})
            for where, part in parts.items()
        }
        return pd.concat(statistics, names=["where", "prediction"])


def _by_group(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    groups = table.groupby(by)
    errors = pd.concat([_errors(table), table[by]], axis=1).groupby(by).mean()
    means = groups[["real", ALL]].mean()
    return pd.concat([groups.size().rename("runs"), means, errors.add_suffix(" error")], axis=1)


def _errors(table: pd.DataFrame) -> pd.DataFrame:
    """Return the absolute error of each prediction in a table, as a fraction."""
    predictions = [name for name in PREDICTIONS if name in table]
    errors: pd.DataFrame = table[predictions].div(table["real"], axis=0).sub(1).abs()
    return errors


def measure_fidelity(
    recordings: Recordings,
    executors: int = 2,
    num_seeds: int = 10,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Fidelity:
    """Predict all runs that have a counterpart, and all mixtures; a prediction averages ``num_seeds`` simulations.

    Raises ``WorkloadError`` if nothing can be predicted, or if a mixture was recorded once and one of its queries never
    alone on ``executors``.
    """
    by_query = recordings.by_query()
    pairs = [
        (run, Source(half, [other for other in runs if other.executors != executors]))
        for runs in by_query.values()
        for run, half in _other_halves([run for run in runs if run.executors == executors])
        if half
    ]
    mixtures = [pair for group in recordings.by_mixture() for pair in _other_halves(group)]
    if not pairs and not mixtures:
        raise WorkloadError(
            f"nothing to predict: expected two runs of a query with {executors} executors among the "
            f"{len(recordings.runs)} recorded runs, or a mixture of applications"
        )
    total = len(recordings.runs) + len(pairs) + len(mixtures)
    steps = itertools.count()

    def counted(rows: Iterable[_T]) -> Iterator[_T]:
        for row in rows:
            on_step(next(steps), total)
            yield row

    replays = pd.DataFrame(
        [
            {"run": run.name, "executors": run.executors, "real": run.query.wall_ms, "replay": replay(run)}
            for run in counted(recordings.runs)
        ]
    )
    runs = pd.DataFrame([_run_row(run, source, num_seeds) for run, source in counted(pairs)])
    if not runs.empty:
        runs["replay"] = runs["run"].map(dict(zip(replays["run"], replays["replay"], strict=True)))
    applications = [
        row
        for mixture, half in counted(mixtures)
        for row in _mixture_rows(mixture, half, by_query, num_seeds)
    ]
    on_step(total, total)
    return Fidelity(executors, runs, replays, pd.DataFrame(applications))


def _other_halves(items: Sequence[_T]) -> Iterator[tuple[_T, list[_T]]]:
    """Yield each item with the other half of the items; empty for a single item."""
    for index, item in enumerate(items):
        yield item, list(items[1 - index % 2 :: 2])


def _run_row(run: Run, source: Source, num_seeds: int) -> dict[str, Any]:
    return {
        **_labels(run.key),
        "run": run.name,
        "real": run.query.wall_ms,
        "busy_cores": run.busy_cores,
        "rerun": float(np.mean([other.query.wall_ms for other in source.same])),
        **{
            name: predict_run(source, run.executors, effects, num_seeds)
            for name, effects in VARIANTS.items()
            if effects.moving  # in a single run, no executor moves
        },
    }


def _mixture_rows(
    mixture: RecordedMixture,
    half: Sequence[RecordedMixture],
    by_query: Mapping[QueryKey, Sequence[Run]],
    num_seeds: int,
) -> list[dict[str, Any]]:
    """Return one row of predictions per application, from the other half of the mixture's recordings if possible."""
    alone = _sources_alone(mixture, by_query)
    if alone is None and not half:
        wanted = f"{mixture.slots} executors"
        raise WorkloadError(f"{mixture.name}: expected a single run of each of its queries with {wanted}")
    sources = alone
    if half:
        sources = [
            Source([other.runs[index] for other in half], by_query.get(run.key, ()))
            for index, run in enumerate(mixture.runs)
        ]
    columns = {
        name: predict_mixture(mixture, sources or (), effects, num_seeds, alone=not half)
        for name, effects in VARIANTS.items()
    }
    columns[FROM_ALONE] = np.full(len(mixture.runs), np.nan)
    if alone is not None:
        columns[FROM_ALONE] = predict_mixture(mixture, alone, Effects(), num_seeds, alone=True)
    if half:
        columns["rerun"] = np.mean([other.jct_ms for other in half], axis=0)
    columns["replay"] = replay_mixture(mixture)
    return [
        {
            "mixture": mixture.name,
            "sharing": mixture.sharing,
            **_labels(run.key),
            "run": run.name,
            "real": mixture.jct_ms[index],
            "busy_cores": run.busy_cores,
            **{name: jct_ms[index] for name, jct_ms in columns.items()},
        }
        for index, run in enumerate(mixture.runs)
    ]


def _sources_alone(
    mixture: RecordedMixture, by_query: Mapping[QueryKey, Sequence[Run]]
) -> list[Source] | None:
    """Return the single runs of a mixture's queries; None if one is missing.

    The cluster is one machine, on which applications slow each other down. So runs with as many executors as the
    cluster are used, even if an application holds fewer.
    """
    sources = []
    for key in mixture.keys:
        runs = by_query.get(key, ())
        same = [run for run in runs if run.executors == mixture.slots]
        if not same:
            return None
        sources.append(Source(same, [run for run in runs if run.executors != mixture.slots]))
    return sources


def _labels(key: QueryKey) -> dict[str, str]:
    return {"data": f"SF {key.scale_factor:g}, {key.layout}", "query": f"q{key.query:02d}"}
