"""Figures 4 to 7 of the DeepRM paper (HotNets 2016): slowdown by load, two objectives, learning curve, withheld jobs.

The paper has these results only as pictures. The claims are statements of its sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.grid import (
    HEURISTIC_NAMES,
    LEARNED,
    TUNED,
    Withholding,
    compare_by,
    grid_comparison,
    load_name,
    measure_sets,
)
from decima.evaluation.metrics import GRID_METRICS
from decima.learning.metrics import read_metrics
from decima.policy.grid_config import read_about
from decima.policy.threads import one_thread
from decima.schedulers.grid import play
from decima.show import style
from decima.show.grid_report import best_scheduler, plot_bars, plot_by_load
from decima.show.tables import table_of
from decima.studies.grid_study import GridStudy, Measured, better, compared
from decima.studies.outcome import Claim, Outcome
from simulator.grid.grid import Grid
from simulator.grid.record import GridRecord

#: Loads of figures 5, 6 and 7.
HIGH, MODERATE, BUSY = 1.3, 0.7, 1.1
#: Learning rate of the warm start with another objective.
AFTERWARDS = 0.002
#: Factor on the iterations of the recipe in figure 6.
LONGER = 2
#: Number of iterations after which DeepRM is better than Tetris* in the paper (section 4.3).
PASSES_TETRIS = 200
#: Relative distance to the best value at which a learning curve counts as converged.
CONVERGED = 0.05


def network_at(load: float) -> str:
    """Return the name of the training folder for a load, which all studies share."""
    return f"deeprm-{100 * load:.4g}"


def fig4(study: GridStudy, loads: Sequence[float] = ()) -> Outcome:
    """Compare slowdowns at each load, in percent, with one network trained at each."""
    comparison = grid_comparison(loads=[load / 100 for load in loads])
    loads = [load for jobs in comparison.conditions.values() for load in jobs.loads(comparison.grid)]
    configs = {load_name(load): study.config("deeprm", jobs__load=load) for load in loads}
    files = study.train({network_at(load): configs[load_name(load)] for load in loads})
    networks = {load_name(load): files[network_at(load)] for load in loads}
    results = study.compare(
        [study.comparison(name, config, {LEARNED: networks[name]}) for name, config in configs.items()]
    )
    measured = compare_by(results)
    high = results[results["condition"].isin([load_name(load) for load in loads if load > 1])]
    wins = [condition for condition, row in measured.items() if best_scheduler(row, "slowdown") == LEARNED]
    claims = [
        better("SJF performs better than Packer.", results, "sjf", ["packer"]),
        better("Tetris* outperforms both by combining their advantages.", results, TUNED, ["sjf", "packer"]),
        Claim(
            "DeepRM is comparable to and often better than all heuristics.",
            f"the best at {len(wins)} of {len(measured)} loads: {', '.join(wins) or 'none'}",
            2 * len(wins) > len(measured),
        ),
    ]
    if len(high):
        claims.append(better("DeepRM beats Tetris* at higher loads.", high, LEARNED, [TUNED]))
    return compared(
        "deeprm-fig4",
        [Measured("Slowdown against load", results, corner="Load", wide=True)],
        claims,
        ["A network was trained at each load; 184.5 % is the highest that a job in every step gives."],
        networks,
        {"deeprm-fig4": partial(plot_by_load, dict(zip(loads, measured.values(), strict=True)), "slowdown")},
        study.sets,
    )


def fig5(study: GridStudy) -> Outcome:
    """Compare networks trained for slowdown and for completion time, at a load of 130 %."""
    names = {f"{LEARNED}, for slowdown": "slowdown", f"{LEARNED}, for completion": "completion"}
    config = study.config("deeprm", jobs__load=HIGH)
    name = network_at(HIGH)
    networks = study.train({name: config})
    then = study.config(
        "deeprm",
        jobs__load=HIGH,
        grid__objective="completion",
        start=str(networks[name]),
        update__learning_rate=AFTERWARDS,
    )
    networks |= study.train({f"{name}-completion": then})
    networks = dict(zip(names, networks.values(), strict=True))
    heuristics = ("sjf", "packer", TUNED)
    results = study.compare([study.comparison("", config, networks, heuristics)])
    claims = [
        better("Tetris* outperforms the other heuristics on slowdown.", results, TUNED, ["sjf", "packer"]),
        *(
            better(
                f"DeepRM is the best on {objective} when trained for it.",
                results,
                name,
                [other for other in (*heuristics, *names) if other != name],
                objective,
            )
            for name, objective in names.items()
        ),
    ]
    measures = ("slowdown", "completion")
    return compared(
        "deeprm-fig5",
        [Measured(f"Two objectives at a load of {load_name(HIGH)}", results, measures)],
        claims,
        [
            "Tetris* is tuned for slowdown.",
            "The network for completion begins with that for slowdown: from random weights, the same number "
            "of iterations does not find the small gain of withholding long jobs.",
        ],
        networks,
        {"deeprm-fig5": partial(plot_bars, compare_by(results), measures)},
        study.sets,
    )


def fig6(study: GridStudy) -> Outcome:
    """Show the learning curve of DeepRM at a load of 70 %."""
    name = f"{network_at(MODERATE)}-long"
    config = study.config("deeprm", share=LONGER, jobs__load=MODERATE)
    networks = {LEARNED: study.train({name: config})[name]}
    curve = read_metrics(study.policies / name / "metrics.jsonl")
    measured = read_about(networks[LEARNED])["validation"]["results"]
    heuristics = {name: float(measured[name]["slowdown"]) for name in HEURISTIC_NAMES}
    results = study.compare([study.comparison("", config, networks)])
    return compared(
        "deeprm-fig6",
        [Measured(f"After training at a load of {load_name(MODERATE)}", results, ("slowdown", "completion"))],
        _learning_claims(curve, heuristics),
        [
            "The curve shows the validation sets, which selected the best network; the table shows other sets.",
            f"Each iteration learns from {'new' if config.episodes.fresh else 'the same'} {config.episodes.sets} sets "
            "of jobs; the paper's from the same 100.",
        ],
        networks,
        {"deeprm-fig6": partial(plot_learning, curve, heuristics)},
        study.sets,
        extra={"learning_curve": list(curve), "validation_slowdown": heuristics},
    )


def _learning_claims(
    curve: Sequence[Mapping[str, float]], heuristics: Mapping[str, float]
) -> Sequence[Claim]:
    judged = [row for row in curve if "validation_slowdown" in row]
    slowdown = {int(row["iteration"]): row["validation_slowdown"] for row in judged}
    last = max(slowdown)
    first = slowdown[min(slowdown)]
    passed = next((each for each, value in slowdown.items() if value < heuristics[TUNED]), None)
    least = min(slowdown.values())
    converged = next(each for each, value in slowdown.items() if value <= (1 + CONVERGED) * least)
    reached = "never" if passed is None else f"after {passed}"
    return [
        Claim(
            "Before training the policy is no better than random.",
            f"slowdown {first:.2f}; random {heuristics['random']:.2f}",
            first >= 0.95 * heuristics["random"],
        ),
        Claim(
            f"After {PASSES_TETRIS} iterations DeepRM is better than Tetris*.",
            f"{reached} of {last} iterations below Tetris*'s {heuristics[TUNED]:.2f}",
            passed <= PASSES_TETRIS if passed is not None else (None if last < PASSES_TETRIS else False),
        ),
        Claim(
            "It improves further until it converges, near 1000 iterations.",
            "it never passed"
            if passed is None
            else f"from {slowdown[passed]:.2f} to {least:.2f}; within {CONVERGED:.0%} of that after {converged}",
            None
            if last < PASSES_TETRIS
            else passed is not None and least < (1 - CONVERGED) * slowdown[passed],
        ),
    ]


def plot_learning(curve: Sequence[Mapping[str, float]], heuristics: Mapping[str, float]) -> Figure:
    """Draw slowdowns on training and validation sets, and the total reward in training, over iterations."""
    figure = style.new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    learned = [row for row in curve if "return" in row]
    own = style.styles([LEARNED])[LEARNED]
    style.draw_curve(left, learned, "slowdown", label=f"{LEARNED}, training sets", color="0.7")
    style.draw_curve(left, curve, "validation_slowdown", label=f"{LEARNED}, unseen sets", **own)
    for name, look in style.styles(heuristics).items():
        left.axhline(heuristics[name], label=name, **{**look, "linestyle": "--"})
    style.finish_axes(left, xlabel="Iterations", ylabel="Slowdown", ylim=(0, None))
    style.draw_curve(right, learned, "return_best", label="best of each set", color=style.BLUE)
    style.draw_curve(right, learned, "return", label="mean", **own)
    style.finish_axes(right, xlabel="Iterations", ylabel="Total reward of an episode")
    right.legend(loc="lower right", **style.LEGEND)
    style.legend_beside(left)
    for axes in (left, right):
        style.count_iterations(axes)
    return figure


# ---- Figure 7: withheld jobs -------------------------------------------------------------------------------

#: Least duration of long jobs, steps.
LONG = 10
#: Share of steps in which DeepRM is not work-conserving in the paper, at this load (section 4.3).
PAPER_HELD = 0.234


def fig7(study: GridStudy) -> Outcome:
    """Show withheld jobs and slowdowns by duration of jobs, at a load of 110 %."""
    name = network_at(BUSY)
    config = study.config("deeprm", jobs__load=BUSY)
    networks = {LEARNED: study.train({name: config})[name]}
    schedulers = study.comparison("", config, networks, (TUNED,)).make_schedulers("")
    jobs = config.jobs.draw(config.grid.build(), study.sets, study.seed)
    records, watched = {}, {}
    for each in (LEARNED, TUNED):
        grid = Grid(config.grid.build(), jobs)
        watched[each] = Withholding(schedulers[each], grid)
        with one_thread():
            records[each] = play(grid, watched[each])
    tables = [measure_sets(record).assign(condition="", scheduler=each) for each, record in records.items()]
    results = pd.concat(tables, ignore_index=True)
    lengths = by_length(records, watched)
    share = float(watched[LEARNED].held_steps.sum() / watched[LEARNED].steps.sum())
    return compared(
        "deeprm-fig7",
        [Measured(f"All jobs at a load of {load_name(BUSY)}", results)],
        _claims(lengths, share),
        [
            "Withheld: a visible job could start at once, and a step passes instead; each such step of a job counts."
        ],
        networks,
        {"deeprm-fig7": partial(plot_lengths, lengths)},
        study.sets,
        tables=[_table(lengths)],
        extra={"not_work_conserving": share, "by_length": lengths.reset_index().to_dict(orient="records")},
    )


def by_length(records: Mapping[str, GridRecord], watched: Mapping[str, Withholding]) -> pd.DataFrame:
    """Summarise jobs by duration, from results and withheld jobs by scheduler.

    Returns:
        One row per duration, steps; columns ``jobs`` (number of jobs) and, for each scheduler, ``NAME slowdown`` (mean)
        and ``NAME withheld`` (number of steps in which such jobs were withheld).
    """
    record = next(iter(records.values()))
    there = record.is_job
    columns = {"length": record.jobs.duration[there], "jobs": 1}
    for name, each in records.items():
        columns[f"{name} slowdown"] = GRID_METRICS["slowdown"].of(each)[there]
        columns[f"{name} withheld"] = watched[name].held[there]
    grouped = pd.DataFrame(columns).groupby("length")
    return grouped.agg(
        {column: "mean" if column.endswith("slowdown") else "sum" for column in columns if column != "length"}
    )


def _claims(lengths: pd.DataFrame, share: float) -> list[Claim]:
    held, is_long = lengths[f"{LEARNED} withheld"], np.asarray(lengths.index >= LONG)
    of_long = float(held[is_long].sum() / max(held.sum(), 1))
    slowdown = {
        (name, is_large): float(np.average(rows[f"{name} slowdown"], weights=rows["jobs"]))
        for is_large, rows in ((True, lengths[is_long]), (False, lengths[~is_long]))
        for name in (LEARNED, TUNED)
    }

    def against(is_large: bool) -> str:
        return f"{slowdown[LEARNED, is_large]:.2f}; {TUNED} {slowdown[TUNED, is_large]:.2f}"

    return [
        Claim(
            f"DeepRM is not work-conserving in {PAPER_HELD:.1%} of the steps.",
            f"in {share:.1%}",
            share > PAPER_HELD / 2,
        ),
        Claim(
            "Almost always it is large jobs that it withholds.",
            f"{of_long:.1%} of what is withheld" if held.sum() else "nothing is withheld",
            of_long > 0.9,
        ),
        Claim(
            "The slowdown of small jobs is significantly smaller than with Tetris*.",
            against(False),
            slowdown[LEARNED, False] < slowdown[TUNED, False],
        ),
        Claim(
            "That of large jobs is higher.", against(True), slowdown[LEARNED, True] > slowdown[TUNED, True]
        ),
    ]


def _table(lengths: pd.DataFrame) -> Table:
    columns = ["jobs", f"{LEARNED} withheld", f"{LEARNED} slowdown", f"{TUNED} slowdown"]
    headings = ("Steps", "Jobs", f"Withheld by {LEARNED}", f"Slowdown {LEARNED}", f"Slowdown {TUNED}")
    rows = ((length, *row) for length, row in lengths[columns].iterrows())
    return table_of("By length of job", headings, rows, (".0f", ".0f", ".2f", ".2f"))


def plot_lengths(lengths: pd.DataFrame) -> Figure:
    """Draw shares of withheld jobs and slowdowns by duration of jobs, as figures 7(a) and (b) of the paper."""
    figure = style.new_figure(10, 3.6)
    left, right = figure.subplots(1, 2)
    held = lengths[f"{LEARNED} withheld"]
    left.bar(lengths.index, held / max(held.sum(), 1), 0.8, color=style.BLACK)
    style.finish_axes(left, xlabel="Length of withheld jobs (steps)", ylabel="Fraction", ylim=(0, None))
    for place, (name, look) in enumerate(style.styles([LEARNED, TUNED]).items()):
        places = lengths.index + 0.4 * place - 0.2
        right.bar(places, lengths[f"{name} slowdown"], 0.4, label=name, color=look["color"])
    style.finish_axes(right, xlabel="Length of jobs (steps)", ylabel="Slowdown", ylim=(0, None))
    for axes in (left, right):
        axes.grid(visible=False, axis="x")
    style.legend_beside(right)
    return figure
