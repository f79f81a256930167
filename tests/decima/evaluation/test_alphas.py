from __future__ import annotations

import numpy as np

from decima.evaluation.alphas import ALPHAS, best_alphas, best_for_all, sweep, sweep_ms
from decima.evaluation.run import run_scheduler
from tests.decima.evaluation.examples import CLUSTER, conditions

SEQUENCE = conditions(num_jobs=8).sequence(5)


def test_the_alphas_are_the_papers_sweep() -> None:
    assert len(ALPHAS) == 41
    assert (ALPHAS[0], ALPHAS[10], ALPHAS[20], ALPHAS[40]) == (-2.0, -1.0, 0.0, 2.0)
    assert len({f"{alpha:g}" for alpha in ALPHAS}) == 41


def test_a_sweep_runs_each_alpha_that_is_not_known() -> None:
    known = run_scheduler(CLUSTER, SEQUENCE, "fifo")
    runs = dict(sweep(CLUSTER, SEQUENCE, (-1.0, 0.5), {"weighted-fair:0.5": known}))
    assert list(runs) == [-1.0, 0.5]
    assert runs[0.5] is known
    expected = run_scheduler(CLUSTER, SEQUENCE, "weighted-fair:-1")
    assert runs[-1.0].completion_ms.tolist() == expected.completion_ms.tolist()


def test_hindsight_takes_the_lowest_alpha_of_those_that_are_best() -> None:
    runs = list(sweep(CLUSTER, SEQUENCE))
    best = best_alphas(runs, ("jct", "makespan"))
    assert best.keys() == {"jct", "makespan"}
    for objective, (alpha, record) in best.items():
        swept = sweep_ms(CLUSTER, SEQUENCE, objective)
        assert alpha == ALPHAS[int(swept.argmin())]
        assert swept.min() == (record.mean_jct_ms if objective == "jct" else record.makespan_ms)
    tie = [(-1.0, runs[0][1]), (1.0, runs[0][1])]
    assert best_alphas(tie, ["jct"])["jct"][0] == -1.0


def test_one_alpha_for_all_is_the_best_on_average() -> None:
    sweeps = np.full((2, 41), 9.0)
    sweeps[:, 3] = 1.0, 8.0
    sweeps[:, 7] = 4.0, 4.0
    sweeps[:, 8] = 4.0, 4.0
    assert best_for_all(sweeps) == ALPHAS[7]
