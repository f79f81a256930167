"""Decima, sections 5.3 and 6.2: a policy that learns from rewards alone, by the paper's training and by a shorter one.

The paper trains by REINFORCE, with 16 episodes of one job sequence, whose mean is the baseline, and with episodes that
grow longer. Its Decima is 21 % (batches) and 29 % (streams) below weighted fair sharing with the best alpha. ``ppo``
is the recipe ``batch``: PPO with a critic and GAE, on four episodes of each of several sequences; the network's inputs
have no units. For streams the recipes ``mixed`` and ``search`` train that policy further. Both start from random
weights, and know no rule. PPO takes about 35 minutes of CPU time for batches and 65 for streams. Trainings with several
seeds show how much a result depends on chance. ``embedded`` are batches of the TPC-H jobs that ship with this project.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.evaluation.metrics import Interval, ci95, mean_interval
from decima.show.style import GREY, LEGEND, finish_axes, new_figure
from reproduce.common import Result, paired, train

TUNED = "tuned-weighted-fair"
#: Kind of arrivals -> gain of the paper's Decima over tuned weighted fair sharing.
GAIN = {"batches": 0.21, "streams": 0.29}
#: Kind of arrivals -> setting of the comparison.
ARRIVALS = {
    "batches": {"jobs": 20, "seeds": 30},
    "streams": {"jobs": 200, "seeds": 10, "arrivals": "poisson", "interval": 25.0},
    "busy-streams": {"jobs": 200, "seeds": 10, "arrivals": "poisson", "interval": 14.1},
    "embedded": {"jobs": 20, "seeds": 30},
}
#: Recipe of a training by PPO -> setting with the number of executors. For batches there is only the first training;
#: for streams each of them starts with the policy of the one before.
EXECUTORS = {
    "batch": "cluster.executors",
    "mixed": "settings.executors",
    "search": "cluster.executors",
}
#: Changes of the recipe ``paper``, which is for streams, for batches.
IN_BATCHES = [
    "workload.arrivals=batch",
    "workload.jobs=20",
    "curriculum=null",
    "returns.kind=total",
    "update.entropy_start=0.01",
]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    arrivals: tuple[str, ...] = ("batches", "streams"),
    iterations: int = 1000,
    ppo_iterations: int | None = None,
    seed: int = 0,
    training_seeds: tuple[int, ...] = (0,),
    policies: Path = Path("reproduced/policies"),
    workers: int = 1,
) -> Result:
    """Train policies from nothing, and compare them with rules.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        arrivals: batches, streams, busy-streams or embedded.
        iterations: Iterations of the paper's training.
        ppo_iterations: Iterations of each training of ppo; by default those of the recipes.
        seed: Seed of the first job sequence of the comparison.
        training_seeds: Seeds of the trainings by PPO; the paper's training has the first one.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        workers: Processes.
    """
    tables, curves, rows = {}, {}, []
    for name in arrivals:
        in_streams = name.endswith("streams")
        jobs = "tpch" if name == "embedded" else workload
        first = training_seeds[0]
        trained = "streams" if in_streams else name  # one training for streams of all loads
        folder = policies / f"paper-{trained}-{first}"
        settings = [
            f"cluster.executors={executors}",
            f"seed={first}",
            *([] if in_streams else IN_BATCHES),
            f"iterations={iterations}",
        ]
        schedulers = {rule: rule for rule in ("fair", TUNED, "srpt", "srpt-tuned")}
        schedulers["paper"] = train(folder, "paper", settings, jobs, workers)
        curves[trained, "paper"] = _metrics([folder])
        trainings = [("paper", "paper", first)]
        for training_seed in training_seeds:
            label = "ppo" if training_seed == first else f"ppo, seed {training_seed}"
            trainings.append((label, "ppo", training_seed))
            folders, start = [], []
            for recipe in EXECUTORS if in_streams else ("batch",):
                kind = ("embedded" if name == "embedded" else "batches") if recipe == "batch" else recipe
                folders.append(policies / f"ppo-{kind}-{training_seed}")
                settings = [f"{EXECUTORS[recipe]}={executors}", f"seed={training_seed}", *start]
                settings += [] if ppo_iterations is None else [f"iterations={ppo_iterations}"]
                schedulers[label] = train(folders[-1], recipe, settings, jobs, workers)
                start = [f"start={schedulers[label].removeprefix('decima:')}"]
            curves[trained, label] = _metrics(folders)
        runs = decima.compare(
            schedulers, workload=jobs, executors=executors, seed=seed, workers=workers, **ARRIVALS[name]
        )
        table = decima.summary_table(runs, TUNED)
        if name in GAIN:
            table["paper"] = table["scheduler"].map({"paper": f"-{GAIN[name]:.0%}"})
        tables[name] = table
        for label, training, training_seed in trainings:
            gain = paired(runs, label, "srpt-tuned")
            rows.append(
                {
                    "arrivals": name,
                    "training": training,
                    "seed": training_seed,
                    "vs srpt-tuned": gain.mean,
                    ci95("vs srpt-tuned"): gain.half_width,
                    "CPU minutes": round(curves[trained, label]["cpu_s"].iloc[-1] / 60),
                }
            )
    tables["trainings"] = pd.DataFrame(rows)
    values = {}
    for (training, name), own in tables["trainings"].groupby(["training", "arrivals"]):
        # With several seeds, the interval is that over the trainings.
        gain = Interval(own["vs srpt-tuned"].iloc[0], own[ci95("vs srpt-tuned")].iloc[0])
        if len(own) > 1:
            gain = mean_interval(own["vs srpt-tuned"])
        values[f"{training} vs srpt-tuned, {name}"] = f"{gain.mean:+.1%} ± {gain.half_width:.1%}"
        values[f"minutes of {training}, {name}"] = f"{own['CPU minutes'].mean():.0f}"
    return Result(tables, {"paper": plot(curves)}, values)


def _metrics(folders: Sequence[Path]) -> pd.DataFrame:
    """Return the metrics of the last of successive trainings; CPU times include the earlier ones."""
    *earlier, last = (pd.read_json(folder / "metrics.jsonl", lines=True) for folder in folders)
    last["cpu_s"] += sum(metrics["cpu_s"].iloc[-1] for metrics in earlier)
    return last


def plot(curves: dict[tuple[str, str], pd.DataFrame]) -> Figure:
    """Draw the improvement in the validation over CPU time; dotted: gain of the paper."""
    names = list(dict.fromkeys(name for name, _ in curves))
    figure = new_figure(10, 4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for (arrivals, training), rows in curves.items():
            if arrivals == name:
                measured = rows.dropna(subset="improvement")
                axes.plot(measured["cpu_s"] / 60, 100 * measured["improvement"], label=training)
        if name in GAIN:
            axes.axhline(100 * GAIN[name], color=GREY, linestyle=":", label="the paper's Decima")
        axes.axhline(0, color=GREY, linestyle="-", linewidth=0.8)
        ylabel = "Shorter than tuned weighted fair (%)"
        finish_axes(axes, title=name.capitalize(), xlabel="CPU time (minutes)", ylabel=ylabel, ylim=(-50, 35))
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].legend(handles, labels, **LEGEND, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
