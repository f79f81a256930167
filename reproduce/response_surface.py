"""The search that found the weights of the rule srpt-tuned: a response surface, for many weights with small effects.

Each sequence runs the current weights, and pairs of draws that lie opposite each other around them, all with the same
task noise. A quadratic function is fitted to all costs so far (Box and Wilson, JRSS B, 1951); the next weights lie half
way to its minimum. CMA-ES (``decima tune``) needs fewer episodes for a rule's few constants, not for 150 weights.

The shipped weights took 43,000 pairs of episodes, 2.3 hours of CPU time: -2.4 ± 0.4 % on 200 other sequences.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import decima
from decima.evaluation import Conditions
from decima.schedulers.parameters import parameters
from decima.schedulers.srpt_weights import has_effect
from reproduce.common import Result

#: Rule with the weights, which is the rule ``START`` while they are 0.
RULE, START = "srpt-tuned", "srpt"
#: Parameters that are not searched.
FIXED = ("jitter", "full_effect_executors")
#: Weight for a search variable of 1. It is small, since many weights add up.
WEIGHT_SCALE = 0.15
#: Bounds of the absolute values of the search variables of constants (logarithms of factors), and of weights.
MOST_FACTOR, MOST_WEIGHT = 2.0, 10.0
#: Distance from the seeds of the search to those of other sequences.
OTHER_SEEDS = 500_000


def run(
    *,
    workload: tuple[str, ...] = ("tpch", "synthetic"),
    generations: int = 24,
    sequences: int = 48,
    judged: int = 60,
    seed: int = 3_000_000,
    weights: Path = Path("reproduced/weights.json"),
    workers: int = 1,
) -> Result:
    """Search for weights on random settings, and compare them with the rule without weights on other sequences.

    Args:
        workload: Jobs of a setting: tpch, synthetic, or the folder of the published TPC-H profiles.
        generations: Number of generations of the search.
        sequences: Number of sequences in a generation, each in a setting of its own.
        judged: Number of other sequences.
        seed: Seed of the first sequence, and of the search.
        weights: File for the weights, for srpt-tuned:FILE.
        workers: Number of processes.
    """
    names = [name for name in parameters(RULE) if name not in FIXED and has_effect(name, False)]
    defaults = {name: value for name, value in parameters(START).items() if name in names}
    bounds = np.array([MOST_FACTOR if name in defaults else MOST_WEIGHT for name in names])
    search = ResponseSurface(bounds, seed)
    with ProcessPoolExecutor(workers) as pool:
        for generation in range(generations):
            first = seed + generation * sequences
            settings = [
                draw_setting(setting_seed, workload) for setting_seed in range(first, first + sequences)
            ]
            candidates = search.ask(sequences)
            schedulers = [
                [scheduler_name(names, defaults, candidate) for candidate in row] for row in candidates
            ]
            search.tell(candidates, np.log(list(pool.map(mean_jcts_s, settings, schedulers))))
        tuned = scheduler_name(names, defaults, search.centre)
        first = seed + OTHER_SEEDS
        settings = [draw_setting(setting_seed, workload) for setting_seed in range(first, first + judged)]
        jct_s = np.array(list(pool.map(mean_jcts_s, settings, [[START, RULE, tuned]] * judged)))
    weights.parent.mkdir(parents=True, exist_ok=True)
    values = {name: value for name, value in parameters(tuned).items() if name in names}
    weights.write_text(json.dumps({"rule": RULE, "parameters": values}, indent=1), encoding="utf-8")
    rows = []
    for name, column in ((f"{RULE}, shipped weights", 1), (f"{RULE}, found weights", 2)):
        change, half_width = decima.mean_interval(jct_s[:, column] / jct_s[:, 0] - 1)
        rows.append({"scheduler": name, f"vs {START}": change, f"vs {START}_ci95": half_width})
    return Result({"other sequences": pd.DataFrame(rows)})


def draw_setting(seed: int, workload: tuple[str, ...]) -> Conditions:
    """Draw a setting: a batch or a stream, on a cluster of 25 to 100 executors, with exact or with wrong estimates."""
    random = np.random.default_rng(seed)
    source = str(random.choice(workload))
    executors = int(random.choice([25, 50, 50, 50, 100]))
    knowledge = {
        "job_error": random.choice([0, 0, 0, 0.5, 1, 2]),
        "stage_error": random.choice([0, 0, 0, 0.5, 1, 2]),
        "task_count_error": random.choice([0, 0, 0, 0.3]),
        "unknown": random.choice([0, 0, 0, 0, 0.3]),
    }
    jobs = {"jobs": int(random.choice([10, 20, 20, 40]))}
    if random.uniform() > 0.4:
        load = random.choice([0.5, 0.65, 0.75, 0.85, 0.95])
        work_s = np.mean([profile.work_ms for profile in decima.open_workload(source).profiles]) / 1000
        length = int(np.exp(random.uniform(np.log(60), np.log(140))))
        jobs = {"arrivals": "poisson", "interval": work_s / (load * executors), "jobs": length}
    return decima.make_conditions(
        workload=source,
        executors=executors,
        moving_delay=float(random.choice([1, 2, 2, 2, 4])),
        knowledge={name: float(value) for name, value in knowledge.items()},
        seeds=1,
        seed=seed,
        **jobs,
    )


def scheduler_name(names: list[str], defaults: dict[str, float], variables: NDArray[np.float64]) -> str:
    """Return the rule with the weights and constants of search variables, as a scheduler's name.

    Variables of weights are scaled; those of constants, which have a default, are logarithms of factors.
    """
    values = {
        name: defaults[name] * np.exp(variable) if name in defaults else WEIGHT_SCALE * variable
        for name, variable in zip(names, variables.tolist(), strict=True)
    }
    return f"{RULE}:{','.join(f'{name}={float(value)!r}' for name, value in values.items())}"


def mean_jcts_s(setting: Conditions, schedulers: list[str]) -> list[float]:
    """Return the mean JCT of each scheduler on the sequence of a setting, s."""
    cluster, sequence = setting.cluster_of(setting.seed), setting.sequence(setting.seed)
    return [
        decima.run_episode(cluster, sequence, decima.make_scheduler(name)).mean_jct_ms / 1000
        for name in schedulers
    ]


class ResponseSurface:
    """Search for the minimum of a noisy function of many variables, each of which changes it by less than the noise.

    Each sequence has its own candidates: the centre, and pairs of points that lie opposite each other around the
    centre. Half the difference of a pair contains the slopes, its mean the curvatures. The fitted function has no
    products of variables. The fit is Bayesian: without information from the costs, slopes are 0 and all curvatures are
    equal.

    Args:
        bounds: largest absolute values of the variables, float64 [size]; the search begins at 0.
        seed: random seed.

    Attributes:
        centre: best estimate of the minimum, float64 [size].
    """

    #: Pairs of candidates of a sequence.
    PAIRS = 3
    #: Standard deviation of draws in the first generation, and the smallest one. Wide draws find the minimum of a
    #: smoother function.
    FIRST, LEAST = 0.3, 0.1
    #: Factor of the standard deviation of draws from generation to generation.
    NARROWING = 0.97
    #: Factor of the weight of a generation's costs after each further generation.
    FORGETTING = 0.97
    #: Standard deviation of the distance of the minimum from the centre, in the prior distribution.
    REACH = 0.2
    #: Share of the way from the centre to the fitted minimum for the next centre.
    DAMPING = 0.5

    def __init__(self, bounds: NDArray[np.float64], seed: int) -> None:
        self.centre, self._bounds = np.zeros(len(bounds)), bounds
        self._random = np.random.default_rng(seed)
        self._scale = self.FIRST
        # Rows of all generations, one for each pair: its centre, the distance of its points from the centre, half the
        # difference of its costs, and its mean cost minus that of the search's centre.
        self._rows = np.zeros((0, 2 * len(bounds) + 2))
        self._weights = np.zeros(0)

    def ask(self, sequences: int) -> NDArray[np.float64]:
        """Return candidates for each sequence of a generation, float64 [sequences, candidates, size]."""
        size = len(self.centre)
        distances = self._scale * self._random.standard_normal((sequences, self.PAIRS, size))
        pairs = np.stack([distances, -distances], axis=2).reshape(sequences, 2 * self.PAIRS, size)
        pairs = np.clip(self.centre + pairs, -self._bounds, self._bounds)
        return np.concatenate([np.broadcast_to(self.centre, (sequences, 1, size)), pairs], axis=1)

    def tell(self, candidates: NDArray[np.float64], costs: NDArray[np.float64]) -> None:
        """Learn the costs of candidates, float64 [sequences, candidates]. Costs of one sequence are comparable."""
        size = len(self.centre)
        one, other = candidates[:, 1::2].reshape(-1, size), candidates[:, 2::2].reshape(-1, size)
        cost, other_cost = costs[:, 1::2].ravel(), costs[:, 2::2].ravel()
        excess = (cost + other_cost) / 2 - np.repeat(costs[:, 0], self.PAIRS)
        rows = np.column_stack([(one + other) / 2, (one - other) / 2, (cost - other_cost) / 2, excess])
        self._rows = np.concatenate([self._rows, rows])
        self._weights = np.append(self.FORGETTING * self._weights, np.ones(len(rows)))
        step = np.clip(self.DAMPING * self._way_to_minimum(), -self._scale, self._scale)
        self.centre = np.clip(self.centre + step, -self._bounds, self._bounds)
        self._scale = max(self.NARROWING * self._scale, self.LEAST)

    def _way_to_minimum(self) -> NDArray[np.float64]:
        """Return the way from the centre to the minimum of the fitted function, ``slopes @ x + curvatures @ x**2``."""
        size = len(self.centre)
        centres, distances = self._rows[:, :size] - self.centre, self._rows[:, size : 2 * size]
        difference, excess = without_outliers(self._rows[:, -2]), without_outliers(self._rows[:, -1])
        # Costs of few sequences may have a mean curvature below 0; half a standard error is a small positive one.
        squares = (distances**2).sum(axis=1)
        error = excess.std() / squares.mean() / np.sqrt(len(excess))
        curvature = max(float(self._weights @ excess / (self._weights @ squares)), 0.5 * float(error), 1e-12)
        # Differences of pairs and their excess are equations of different noise; both have a noise of 1 after scaling.
        weights, noise = (
            np.sqrt(self._weights)[:, None],
            (max(difference.std(), 1e-12), max(excess.std(), 1e-12)),
        )
        of_slopes = weights * np.column_stack([distances, 2 * centres * distances]) / noise[0]
        of_curvatures = weights * np.column_stack([np.zeros_like(distances), distances**2]) / noise[1]
        equations = np.concatenate([of_slopes, of_curvatures])
        values = np.concatenate([difference / noise[0], excess / noise[1]]) * np.tile(weights[:, 0], 2)
        mean = np.append(np.zeros(size), np.full(size, curvature))
        deviation = np.append(np.full(size, 2 * curvature * self.REACH), np.full(size, 0.5 * curvature))
        precision = equations.T @ equations + np.diag(deviation**-2)
        fitted = mean + np.linalg.solve(precision, equations.T @ (values - equations @ mean))
        way: NDArray[np.float64] = -fitted[:size] / (2 * np.maximum(fitted[size:], 0.3 * curvature))
        return way


def without_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values of which the 2 % with the largest absolute values are reduced to the next one."""
    largest = np.quantile(np.abs(values), 0.98)
    return np.clip(values, -largest, largest)
