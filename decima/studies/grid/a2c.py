"""The tables of A2cScheduler (Liang et al., arXiv 1909.07820, 2020): rates, architectures, a real log."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from decima.evaluation.grid import TUNED
from decima.show.grid_report import load_name, plot_bars
from decima.studies.grid.compared import Measured, better, compared
from decima.studies.grid.study import GridStudy
from decima.studies.outcome import Outcome
from workloads.sources.swf import read_swf

__all__ = ["tables"]

A2C = "a2c"
RATES = (0.6, 0.7, 0.8, 0.9)
#: Architectures are compared at this rate, after a share of the iterations, each on a share of the sets, one at once:
#: convolutions take their time.
ARCHITECTURE_RATE, ARCHITECTURE_ITERATIONS, ARCHITECTURE_SETS, ARCHITECTURE_AT_ONCE = 0.7, 0.1, 0.05, 1
ARCHITECTURES: dict[str, dict[str, Any]] = {"fully connected": {}}
for _filters, _pooling in product((16, 32), (False, True)):
    _settings = {"network__filters": _filters, "network__kernel": 3, "network__pooling": _pooling}
    ARCHITECTURES[f"conv3-{_filters}{', pooling' if _pooling else ''}"] = _settings
#: In the order of the paper's columns.
HEURISTICS = ("random", "packer", "sjf", TUNED)
MEASURES = ("slowdown", "completion", "waiting")
#: The paper's figures that agree with its description of jobs; those of its other rates do not.
PAPER = {("rate 0.9", name, "slowdown"): at for name, at in (("random", 5.5), ("packer", 2.9), ("sjf", 1.8))}


def tables(study: GridStudy, log: Path | None, log_load: float) -> Outcome:
    """Compare actor-critic training with heuristics: slowdown, completion and waiting time.

    Args:
        study: size and surroundings.
        log: file in Standard Workload Format.
        log_load: load that the log is resampled to, percent.

    Raises:
        WorkloadError: the log cannot be read, or has too few jobs.
    """
    summary, of_log, log_load = None, None, log_load / 100
    if log is not None:  # refused before anything is trained
        summary = read_swf(log).summary()
        of_log = study.config("a2c", jobs__log=str(log), jobs__rate=None, jobs__load=log_load, grid__units=10)
        of_log.jobs.draw(of_log.grid.build(), 1, study.seed)
    config = study.config("a2c")
    learned = config.jobs.rate
    assert isinstance(learned, tuple)
    networks = study.train({A2C: config})
    at_rates = {rate: study.config("a2c", jobs__rate=rate) for rate in RATES}
    conditions = {
        f"rate {rate:g}": study.conditions(each, dict(networks), HEURISTICS)
        for rate, each in at_rates.items()
    }
    sets = max(2, round(config.episodes.sets * ARCHITECTURE_SETS))
    shapes = {
        f"a2c-{name.replace(', ', '-').replace(' ', '-')}": study.config(
            "a2c",
            share=ARCHITECTURE_ITERATIONS,
            episodes__sets=sets,
            episodes__at_once=ARCHITECTURE_AT_ONCE,
            **settings,
        )
        for name, settings in ARCHITECTURES.items()
    }
    files = dict(zip(ARCHITECTURES, study.train(shapes).values(), strict=True))
    networks |= files
    conditions["architectures"] = study.conditions(at_rates[ARCHITECTURE_RATE], files, ())
    if of_log is not None:
        networks["log"] = study.train({"a2c-log": of_log})["a2c-log"]
        conditions["log"] = study.conditions(of_log, {A2C: networks["log"]}, HEURISTICS)
    results = study.compare(conditions)
    rates = {name: row for name, row in results.items() if name.startswith("rate")}
    lower = {name: rates[name] for name in ("rate 0.6", "rate 0.7", "rate 0.8")}
    shape = next(iter(shapes.values()))
    parts = [
        Measured("Rates of arrival", rates, MEASURES, "Rate", PAPER),
        Measured(
            f"Architectures at rate {ARCHITECTURE_RATE:g}, {shape.iterations} iterations of {sets} sets",
            {"": results["architectures"]},
            MEASURES,
        ),
    ]
    notes = [
        f"{A2C} is one network, which learned at rates {', '.join(f'{rate:g}' for rate in learned)}.",
        "Of the paper's figures those are shown that agree with its description of jobs; the others do not.",
    ]
    if log is not None and summary is not None:
        parts.append(Measured(f"{log.name}, load {load_name(log_load)}", {"": results["log"]}, MEASURES))
        notes.insert(0, summary)
    else:
        notes.append("A real log is left out: --log FILE.swf.gz names one.")
    return compared(
        "a2c-tables",
        parts,
        [
            better("A2C is better than Tetris at every rate.", rates, A2C, [TUNED]),
            better("It is at least as good as SJF at rates 0.6 to 0.8.", lower, A2C, ["sjf"], or_equal=True),
        ],
        notes,
        networks,
        {"a2c-tables": partial(plot_bars, rates, MEASURES)},
    )
