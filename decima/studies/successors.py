"""Successors of DeepRM: Chen, Xu and Wu (arXiv 1711.07440, 2017) and A2cScheduler (arXiv 1909.07820, 2020).

Chen, Xu and Wu change network, state and reward of DeepRM, and add a second machine; the claims are from their
abstract. A2cScheduler (Liang et al.) has tables by rate of arrival, by architecture, and for a real log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from decima.evaluation.grid import HEURISTIC_NAMES, LEARNED, TUNED, compare_by, load_name
from decima.learning.metrics import read_metrics
from decima.show.grid_report import plot_bars
from decima.show.style import count_iterations, draw_curve, finish_axes, legend_beside, new_axes, styles
from decima.studies.grid_study import GridStudy, Measured, better, compared
from decima.studies.outcome import Outcome
from workloads.sources.swf import read_swf

# ---- convolution, two machines -----------------------------------------------------------------------------

#: Weights alpha, beta and gamma in the reward: of jobs on machines, in visible slots, and in the backlog.
Weights = tuple[float, float, float]
_Variants = dict[str, dict[str, Any]]

#: Settings of the recipe ``cnn`` that give the network of DeepRM.
FLAT = {"network__filters": 0, "network__reshape": False}
MEASURES = ("slowdown", "completion")
LOAD = 0.7


def fig2(study: GridStudy, weights: Sequence[Weights]) -> Outcome:
    """Compare a convolution, the reshaped state and other reward weights with DeepRM."""
    variants: _Variants = {LEARNED: FLAT, "cnn": {"network__reshape": False}, "cnn, reshaped": {}}
    for alpha, beta, gamma in weights:
        reward = {"grid__machine_weights": [alpha], "grid__queue_weight": beta, "grid__backlog_weight": gamma}
        variants[f"weights {alpha:g}, {beta:g}, {gamma:g}"] = {**FLAT, **reward}
    configs = {_folder("cnn-fig2", name): study.config("cnn", **each) for name, each in variants.items()}
    files = study.train(configs)
    networks = dict(zip(variants, files.values(), strict=True))
    learned = next(iter(configs.values()))
    config = study.config("cnn", jobs__load=LOAD)
    results = study.compare([study.comparison("", config, networks)])
    curves = {name: read_metrics(path.parent / "metrics.jsonl") for name, path in networks.items()}
    return compared(
        "cnn-fig2",
        [Measured(f"Load {load_name(LOAD)}, {config.grid.visible_jobs} visible jobs", results, MEASURES)],
        [better(f"{each}: improves on DeepRM.", results, each, [LEARNED]) for each in [*variants][1:]],
        [
            "weights A, B, C: of jobs on the machine, in the visible slots and in the backlog in the reward, with "
            "DeepRM's network.",
            f"All learned at loads of {', '.join(map(load_name, learned.jobs.loads(learned.grid.build())))}.",
            "Without a convolution the reshaped state has the same inputs in another order, which makes no difference.",
            "The paper: these changes improve on DeepRM; it gives pictures.",
        ],
        networks,
        {"cnn-fig2": partial(plot_curves, curves)},
        study.sets,
        extra={"learning_curves": curves},
    )


def fig3(study: GridStudy) -> Outcome:
    """Compare a network for two machines with heuristics."""
    config = study.config("cnn", jobs__load=LOAD, grid__machines=2)
    networks = {"cnn": study.train({"cnn-fig3": config})["cnn-fig3"]}
    results = study.compare([study.comparison("", config, networks, HEURISTIC_NAMES)])
    return compared(
        "cnn-fig3",
        [Measured(f"Two machines, load {load_name(LOAD)}", results, MEASURES)],
        [better("On two machines it is better than SJF and Packer.", results, "cnn", ["sjf", "packer"])],
        ["Its actions are pairs of a visible job and a machine. The paper gives pictures."],
        networks,
        {"cnn-fig3": partial(plot_bars, compare_by(results), MEASURES)},
        study.sets,
    )


def plot_curves(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw the slowdown on validation sets over iterations, one line per network."""
    figure, axes = new_axes(7, 4)
    for name, look in styles(list(curves)).items():
        draw_curve(axes, curves[name], "validation_slowdown", label=name, **look)
    finish_axes(axes, xlabel="Iterations", ylabel="Slowdown on unseen sets", ylim=(0, None))
    count_iterations(axes)
    legend_beside(axes)
    return figure


def _folder(prefix: str, name: str) -> str:
    return f"{prefix}-{name.replace(', ', '-').replace(' ', '-')}"


# ---- actor-critic ------------------------------------------------------------------------------------------

A2C = "a2c"
RATES = (0.6, 0.7, 0.8, 0.9)
#: Comparison of architectures, kept small as convolutions are slow: rate of arrival, factors on iterations and on
#: training sets, and number of sets that run at once.
ARCHITECTURE_RATE, ARCHITECTURE_ITERATIONS, ARCHITECTURE_SETS, ARCHITECTURE_AT_ONCE = 0.7, 0.1, 0.05, 1
ARCHITECTURES: _Variants = {"fully connected": {}}
for _filters, _pooling in product((16, 32), (False, True)):
    _settings = {"network__filters": _filters, "network__kernel": 3, "network__pooling": _pooling}
    ARCHITECTURES[f"conv3-{_filters}{', pooling' if _pooling else ''}"] = _settings
#: Heuristics in the order of the paper's columns.
HEURISTICS = ("random", "packer", "sjf", TUNED)
A2C_MEASURES = ("slowdown", "completion", "waiting")
#: Results of the paper that are consistent with its description of jobs, which holds only for this rate.
PAPER = {("rate 0.9", name, "slowdown"): at for name, at in (("random", 5.5), ("packer", 2.9), ("sjf", 1.8))}


def a2c_tables(study: GridStudy, log: Path | None, log_load: float) -> Outcome:
    """Compare actor-critic training (A2C) with heuristics by slowdown, completion time and waiting time.

    Raises:
        WorkloadError: the log cannot be read, or has too few jobs.
    """
    summary, of_log, log_load = None, None, log_load / 100
    if log is not None:  # a bad log fails before the training begins
        summary = read_swf(log).summary()
        of_log = study.config("a2c", jobs__log=str(log), jobs__rate=None, jobs__load=log_load, grid__units=10)
        of_log.jobs.draw(of_log.grid.build(), 1, study.seed)
    config = study.config("a2c")
    learned = config.jobs.rate
    assert isinstance(learned, tuple)
    networks = study.train({A2C: config})
    at_rates = {rate: study.config("a2c", jobs__rate=rate) for rate in RATES}
    comparisons = [
        study.comparison(f"rate {rate:g}", each, dict(networks), HEURISTICS)
        for rate, each in at_rates.items()
    ]
    sets = max(2, round(config.episodes.sets * ARCHITECTURE_SETS))
    size = {"episodes__sets": sets, "episodes__at_once": ARCHITECTURE_AT_ONCE}
    shapes = {
        _folder("a2c", name): study.config("a2c", share=ARCHITECTURE_ITERATIONS, **size, **settings)
        for name, settings in ARCHITECTURES.items()
    }
    files = dict(zip(ARCHITECTURES, study.train(shapes).values(), strict=True))
    networks |= files
    comparisons.append(study.comparison("architectures", at_rates[ARCHITECTURE_RATE], files, ()))
    if of_log is not None:
        networks["log"] = study.train({"a2c-log": of_log})["a2c-log"]
        comparisons.append(study.comparison("log", of_log, {A2C: networks["log"]}, HEURISTICS))
    results = study.compare(comparisons)
    rates = results[results["condition"].str.startswith("rate")]
    lower = rates[rates["condition"].isin(["rate 0.6", "rate 0.7", "rate 0.8"])]
    shape = next(iter(shapes.values()))
    parts = [
        Measured("Rates of arrival", rates, A2C_MEASURES, "Rate", PAPER),
        Measured(
            f"Architectures at rate {ARCHITECTURE_RATE:g}, {shape.iterations} iterations of {sets} sets",
            results[results["condition"] == "architectures"].assign(condition=""),
            A2C_MEASURES,
        ),
    ]
    notes = [
        f"{A2C} is one network, trained at rates {', '.join(f'{rate:g}' for rate in learned)}.",
        "Only those of the paper's figures are shown that agree with its description of jobs.",
    ]
    if log is not None and summary is not None:
        of_condition = results[results["condition"] == "log"].assign(condition="")
        parts.append(Measured(f"{log.name}, load {load_name(log_load)}", of_condition, A2C_MEASURES))
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
        {"a2c-tables": partial(plot_bars, compare_by(rates), A2C_MEASURES)},
        study.sets,
    )
