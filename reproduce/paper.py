"""Decima, sections 5.3 and 6.2: a policy that learns from rewards alone, by the paper's training and by a shorter one.

The paper trains by REINFORCE, with 16 episodes of one job sequence, whose mean is the baseline, and with episodes that
grow longer. Its Decima is 21 % (batches) and 29 % (streams) below weighted fair sharing with the best alpha. ``ppo``
is the recipe ``batch``: PPO with a critic and GAE, on four episodes of each of several sequences; the network's inputs
have no units. For streams the recipes ``mixed``, ``search`` and ``few`` train that policy further. Both start from
random weights, and know no rule; no guard changes the decisions of ``ppo``. PPO takes about 35 minutes of CPU time for
batches and 80 for streams. Trainings with several seeds show how much a result depends on chance. ``embedded`` and
``embedded-streams`` have the TPC-H jobs that ship with this project.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.evaluation.metrics import Interval, ci95, mean_interval
from decima.policy.scheduler import NeuralScheduler
from decima.show.style import GREY, LEGEND, finish_axes, new_figure
from reproduce.common import Result, paired, train

TUNED, BEST = "tuned-weighted-fair", "srpt-tuned"
#: First policy by PPO, with decisions drawn from its probabilities instead of the most likely ones.
SAMPLED = "ppo, sampled"
#: Changes of the recipe ``paper``, which is for streams, for batches.
IN_BATCHES = [
    "workload.arrivals=batch",
    "workload.jobs=20",
    "curriculum=null",
    "returns.kind=total",
    "update.entropy_start=0.01",
]
#: Changes of the recipe ``few`` for a first training, in batches.
FEW_BATCHES = ["settings.batches=1", "iterations=70", "update.learning_rate=0.001"]
#: Training -> its recipe, and changes of it.
TRAININGS: dict[str, tuple[str, list[str]]] = {
    "paper-batches": ("paper", IN_BATCHES),
    "paper-streams": ("paper", []),
    "paper-embedded": ("paper", IN_BATCHES),
    "ppo-batches": ("batch", []),
    "ppo-mixed": ("mixed", []),
    "ppo-search": ("search", []),
    "ppo-few-batches": ("few", FEW_BATCHES),
    "ppo-few": ("few", []),
    "ppo-embedded": ("batch", []),
    "ppo-embedded-mixed": ("mixed", []),
    "ppo-embedded-search": ("search", ["workload.interval=[4, 5]"]),
}


class Arrivals(NamedTuple):
    """Kind of arrivals.

    Attributes:
        conditions: conditions of the comparison with rules.
        ppo: trainings by PPO, each of which starts with the policy of the one before.
        paper: the paper's training, if there is one.
        embedded: whether the jobs are those that ship with this project.
        gain: gain of the paper's Decima over tuned weighted fair sharing; None for other jobs than the paper's.
    """

    conditions: dict[str, Any]
    ppo: tuple[str, ...]
    paper: str | None = None
    embedded: bool = False
    gain: float | None = None


FOR_STREAMS = ("ppo-batches", "ppo-mixed", "ppo-search", "ppo-few-batches", "ppo-few")
FOR_EMBEDDED_STREAMS = ("ppo-embedded", "ppo-embedded-mixed", "ppo-embedded-search")
STREAMS = {"jobs": 200, "seeds": 10, "arrivals": "poisson"}
ARRIVALS = {
    "batches": Arrivals({"jobs": 20, "seeds": 30}, ("ppo-batches",), "paper-batches", gain=0.21),
    "streams": Arrivals(STREAMS | {"interval": 25.0}, FOR_STREAMS, "paper-streams", gain=0.29),
    "busy-streams": Arrivals(STREAMS | {"interval": 14.1}, FOR_STREAMS, "paper-streams"),
    "embedded": Arrivals({"jobs": 20, "seeds": 30}, ("ppo-embedded",), "paper-embedded", embedded=True),
    "embedded-streams": Arrivals(STREAMS | {"interval": 5.0}, FOR_EMBEDDED_STREAMS, embedded=True),
}
#: Conditions of a longer comparison in streams, without the rules that are slow to tune.
LONG = {"jobs": 1000, "seeds": 12}


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    arrivals: tuple[Literal["batches", "streams", "busy-streams", "embedded", "embedded-streams"], ...] = (
        "batches",
        "streams",
    ),
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
        arrivals: batches, streams, busy-streams, embedded or embedded-streams.
        iterations: Iterations of the paper's training.
        ppo_iterations: Iterations of each training of ppo; by default those of the recipes.
        seed: Seed of the first job sequence of the comparison.
        training_seeds: Seeds of the trainings by PPO; the paper's training has the first one.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        workers: Processes.
    """
    tables, curves, rows = {}, {}, []
    first, *others = training_seeds
    for name in arrivals:
        kind = ARRIVALS[name]
        seeds = {} if kind.paper is None else {"paper": first}
        seeds |= {"ppo": first} | {f"ppo, seed {other}": other for other in others}
        jobs = "tpch" if kind.embedded else workload
        schedulers: dict[str, Any] = {rule: rule for rule in ("fair", TUNED, "srpt", BEST)}
        minutes = {}
        for label, training_seed in seeds.items():
            folders: list[Path] = []
            start: list[str] = []
            for training in [kind.paper] if label == "paper" else kind.ppo:
                recipe, changes = TRAININGS[training]
                section = "settings" if recipe in ("mixed", "few") else "cluster"
                settings = [f"{section}.executors={executors}", f"seed={training_seed}", *changes, *start]
                number = iterations if recipe == "paper" else ppo_iterations
                settings += [] if number is None else [f"iterations={number}"]
                folders.append(policies / f"{training}-{training_seed}")
                policy = train(folders[-1], recipe, settings, jobs, workers)
                start = [f"start={policy.removeprefix('decima:')}"]
            schedulers[label] = f"{policy},guard=off"
            if label == "ppo":
                actor = decima.load_policy(policy.removeprefix("decima:")).policy
                schedulers[SAMPLED] = NeuralScheduler(actor, sample_seed=0, guard=False)
            # The same trainings are drawn once. The validation of those for few jobs has other sequences.
            drawn = next(each for each in arrivals if ARRIVALS[each].ppo == kind.ppo)
            curves[drawn, label] = _metrics(folders[:3])
            minutes[label] = _metrics(folders)["cpu_s"].iloc[-1] / 60
        shared = {"workload": jobs, "executors": executors, "seed": seed, "workers": workers}
        runs = decima.compare(schedulers, **shared, **kind.conditions)
        table = decima.summary_table(runs[~runs["scheduler"].str.startswith("ppo, seed")], TUNED)
        if kind.gain is not None:
            table["paper"] = table["scheduler"].map({"paper": f"-{kind.gain:.0%}"})
        tables[name] = table
        if name.endswith("streams"):
            rivals = {label: schedulers[label] for label in (BEST, *seeds)}
            runs = decima.compare(rivals, **shared, **kind.conditions | LONG)
        for label, training_seed in seeds.items():
            gain = paired(runs, label, BEST)
            rows.append(
                {
                    "arrivals": name,
                    "training": label.partition(",")[0],
                    "seed": training_seed,
                    f"vs {BEST}": gain.mean,
                    ci95(f"vs {BEST}"): gain.half_width,
                    "CPU minutes": round(minutes[label]),
                }
            )
    tables["trainings"] = pd.DataFrame(rows)
    values = {}
    for (training, name), own in tables["trainings"].groupby(["training", "arrivals"]):
        # With several seeds, the interval is that over the trainings.
        gain = Interval(own[f"vs {BEST}"].iloc[0], own[ci95(f"vs {BEST}")].iloc[0])
        if len(own) > 1:
            gain = mean_interval(own[f"vs {BEST}"])
        values[f"{training} vs {BEST}, {name}"] = f"{gain.mean:+.1%} ± {gain.half_width:.1%}"
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
    labels = list(dict.fromkeys(training for _, training in curves))
    figure = new_figure(1.5 + 2.8 * len(names), 4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for (arrivals, training), rows in curves.items():
            if arrivals == name:
                measured = rows.dropna(subset="improvement")
                colour = f"C{labels.index(training)}"
                axes.plot(measured["cpu_s"] / 60, 100 * measured["improvement"], colour, label=training)
        gain = ARRIVALS[name].gain
        if gain is not None:
            axes.axhline(100 * gain, color=GREY, linestyle=":", label="the paper's Decima")
        axes.axhline(0, color=GREY, linestyle="-", linewidth=0.8)
        title, ylabel = name.capitalize().replace("-", " "), "Shorter than tuned weighted fair (%)"
        finish_axes(axes, title=title, xlabel="CPU time (minutes)", ylabel=ylabel, ylim=(-50, 35))
    panels[-1].legend(
        *panels[0].get_legend_handles_labels(), **LEGEND, loc="upper left", bbox_to_anchor=(1, 1)
    )
    return figure
