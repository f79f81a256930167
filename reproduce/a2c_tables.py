"""A2cScheduler's tables: actor-critic training on DeepRM's grid, by rate of arrival, by network, and on a real log.

The paper (Liang et al., arXiv 1909.07820, 2020) says that A2C is better than Tetris at every rate, and as good as
shortest job first (SJF) at rates 0.6 to 0.8. Only those of its numbers are shown that agree with its description of the
jobs, which holds for a rate of 0.9.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from decima.show.grid_report import plot_bars
from reproduce.common import Result
from reproduce.grid import FORMATS, TUNED, claim, compare, compare_by, means, train, training_text
from workloads.sources.swf import read_swf

RATES = (0.6, 0.7, 0.8, 0.9)
#: Heuristics in the order of the paper's columns.
HEURISTICS = ("random", "packer", "sjf", TUNED)
METRICS = ("slowdown", "completion", "waiting")
#: (rate, scheduler) -> slowdown in the paper.
PAPER = {("rate 0.9", "random"): 5.5, ("rate 0.9", "packer"): 2.9, ("rate 0.9", "sjf"): 1.8}
#: Architecture -> settings of the network; its trainings are short, as convolutions are slow.
ARCHITECTURES = {
    "fully connected": (),
    "conv3-16": ("network.filters=16", "network.kernel=3", "network.pooling=false"),
    "conv3-16, pooling": ("network.filters=16", "network.kernel=3", "network.pooling=true"),
    "conv3-32": ("network.filters=32", "network.kernel=3", "network.pooling=false"),
    "conv3-32, pooling": ("network.filters=32", "network.kernel=3", "network.pooling=true"),
}
SHORT = ("iterations=12", "episodes.sets=5", "episodes.at_once=1")
ARCHITECTURE_RATE = 0.7
#: Units of each resource for the jobs of a log.
LOG_UNITS = 10


def run(
    *,
    log: Path | None = None,
    log_load: float = 70.0,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train networks, and compare them with heuristics on unseen job sets; 26 minutes of CPU time.

    Args:
        log: Log in Standard Workload Format for the last table, which needs 6 of these minutes.
        log_load: Load in percent to which the log is resampled.
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained networks; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
    """
    values = {} if log is None else {"log": read_swf(log).summary()}  # a bad log fails before the trainings
    trainings = {"a2c": train(policies / "a2c", "a2c", training)}
    config, networks = trainings["a2c"].config, {"a2c": trainings["a2c"].policy_file}
    rates = pd.concat(
        compare(config, networks, HEURISTICS, sets=sets, seed=seed, name=f"rate {rate:g}", rate=rate)
        for rate in RATES
    )
    table = means(rates, METRICS, by=["condition"])
    table["paper"] = [PAPER.get(key) for key in zip(table["condition"], table["scheduler"], strict=True)]
    tables = {"rates": table}
    for name, settings in ARCHITECTURES.items():
        folder = policies / f"a2c-{name.replace(', ', '-').replace(' ', '-')}"
        trainings[name] = train(folder, "a2c", [*settings, *SHORT, *training])
    shapes = {name: trainings[name].policy_file for name in ARCHITECTURES}
    shape_runs = compare(config, shapes, (), sets=sets, seed=seed, rate=ARCHITECTURE_RATE)
    tables["architectures"] = means(shape_runs, METRICS)
    if log is not None:
        settings = [
            f"jobs.log={log}",
            "jobs.rate=null",
            f"jobs.load={log_load / 100!r}",
            f"grid.units={LOG_UNITS}",
        ]
        trained = trainings["log"] = train(policies / "a2c-log", "a2c", [*settings, *training])
        log_runs = compare(trained.config, {"a2c": trained.policy_file}, HEURISTICS, sets=sets, seed=seed)
        tables["log"] = means(log_runs, METRICS)
    lower = rates[rates["condition"] != "rate 0.9"]
    claims = [
        claim("A2C is better than Tetris at every rate.", rates, "a2c", [TUNED]),
        claim("It is at least as good as SJF at rates 0.6 to 0.8.", lower, "a2c", ["sjf"], or_equal=True),
    ]
    return Result(
        {**tables, "claims": pd.DataFrame(claims)},
        {"a2c-tables": plot_bars(compare_by(rates), METRICS)},
        values | {"training": training_text(trainings)},
        FORMATS,
    )
