"""The heuristics reach the values of the published code on other job sets of the same distribution."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.schedulers.grid import GridRandomChoice, GridScheduler, GridTetris, Packer, ShortestJobFirst, play
from simulator.grid import DEEPRM, Grid, GridConfig
from tests.cases import cases
from workloads.grid_jobs import DISTRIBUTIONS, draw_jobs

#: Jobs of the public code, of the paper's text, and on 10 units as near to that as they allow.
VARIANTS = {"A": "code", "B": "paper", "C": "coarse"}


def schedulers() -> list[GridScheduler]:
    """Return the schedulers in the order of the columns."""
    return [ShortestJobFirst(), Packer(), GridTetris(0.5), GridTetris(0.05), GridTetris(0.01), GridRandomChoice(1)]


#: Variant, load in %, rate; mean slowdown and then mean completion time of each scheduler's jobs in 100 jobsets.
TABLE = """
A   10.0  0.0542   1.35  1.38  1.36  1.36  1.35  6.20    5.02  5.07  5.03  5.03  5.02 15.13
A   30.0  0.1626   2.04  2.46  2.42  2.35  2.07  6.61    6.94  7.50  7.46  7.39  6.99 16.28
A   50.0  0.2710   2.54  3.83  3.67  3.50  2.64  7.18    7.98  9.84  9.64  9.49  8.19 16.98
A   70.0  0.3794   3.14  5.37  5.06  4.47  3.22  7.58    9.96 12.99 12.62 12.04 10.21 18.65
A   90.0  0.4878   3.71  7.35  6.74  5.89  3.84  8.03   12.36 17.53 16.77 15.85 12.82 21.04
A  110.0  0.5962   4.11  9.98  9.15  7.93  4.50  8.66   14.16 22.65 21.58 20.30 15.16 23.13
A  130.0  0.7046   4.98 12.67 11.41  9.77  4.88  8.99   16.54 27.65 26.07 24.30 16.77 24.65
A  150.0  0.8130   5.77 15.18 13.32 11.29  5.94  9.88   19.05 32.32 29.85 27.74 19.68 27.12
A  170.0  0.9214   7.08 18.54 17.18 14.70  7.46 10.88   22.38 38.49 36.81 34.16 23.33 29.81
A  184.5  1.0000   8.71 21.50 20.11 17.19  9.01 11.93   26.11 44.06 42.43 39.23 27.03 33.06
B   10.0  0.1084   1.01  1.01  1.01  1.01  1.01  5.57    4.38  4.38  4.38  4.38  4.38 13.57
B   30.0  0.3252   1.15  1.17  1.17  1.16  1.15  5.27    4.52  4.54  4.54  4.54  4.53 12.48
B   50.0  0.5420   1.34  1.49  1.48  1.44  1.36  4.95    5.01  5.18  5.15  5.11  5.03 12.26
B   70.0  0.7588   1.67  2.28  2.18  2.03  1.72  5.07    5.98  6.75  6.61  6.46  6.07 12.64
B   90.0  0.9756   1.89  3.39  3.14  2.70  1.96  5.59    6.84  8.79  8.49  8.03  6.96 13.67
B   92.2  1.0000   1.98  3.68  3.37  2.88  2.07  5.59    7.10  9.37  9.02  8.47  7.29 13.88
C   10.0  0.1084   1.00  1.00  1.00  1.00  1.00  5.81    4.52  4.52  4.52  4.52  4.52 14.35
C   30.0  0.3252   1.13  1.14  1.13  1.13  1.13  5.17    4.25  4.26  4.25  4.25  4.25 12.40
C   50.0  0.5420   1.32  1.44  1.41  1.33  1.32  4.81    4.88  5.02  4.97  4.90  4.89 11.96
C   70.0  0.7588   1.59  2.09  1.87  1.66  1.59  4.92    5.90  6.55  6.29  6.02  5.90 12.56
C   90.0  0.9756   1.78  2.91  2.52  1.95  1.78  5.42    6.40  7.88  7.43  6.69  6.40 13.28
C   92.2  1.0000   1.73  2.99  2.58  1.95  1.79  5.36    6.26  7.88  7.41  6.64  6.35 13.20
"""
ROWS = {" ".join(row[:2]): row for row in (line.split() for line in TABLE.strip().splitlines())}


def deviation(of_jobs: NDArray[np.float64], expected: float) -> float:
    """Return the difference between the mean over all jobs and another 100 job sets' mean, in standard errors.

    Jobs of one set are dependent, so the error is estimated from the sets, one per row, padded with NaN.
    """
    count = np.isfinite(of_jobs).sum(axis=1)
    mean = np.nansum(of_jobs) / count.sum()
    of_sets = np.nansum(of_jobs, axis=1) - mean * count
    error = of_sets.std(ddof=1) / count.mean() * math.sqrt(1 / len(of_jobs) + 1 / 100)
    rounding = 0.005
    return max(abs(mean - expected) - rounding, 0) / error if error else math.inf


def deviations(row: list[str], sets: int) -> list[float]:
    distribution = DISTRIBUTIONS[VARIANTS[row[0]]]
    jobs = draw_jobs(distribution, rate=float(row[2]), sets=sets, seed=1)
    config = GridConfig(units=distribution.slots, semantics=DEEPRM)
    expected = [float(cell) for cell in row[3:]]
    result = []
    for number, scheduler in enumerate(schedulers()):
        record = play(Grid(config, jobs), scheduler)
        assert not record.unfinished.any()
        result += [deviation(record.slowdown(), expected[number]), deviation(record.completion, expected[number + 6])]
    return result


@cases(
    "row, sets",
    *((row, 100) for row in ("A 70.0", "A 130.0", "B 90.0", "C 92.2")),
    *(pytest.param(row, 300, marks=pytest.mark.slow) for row in ROWS),
)
def test_slowdowns_and_completion_times_are_those_of_the_public_code(row: str, sets: int) -> None:
    assert max(deviations(ROWS[row], sets)) < 4


def test_other_schedulers_would_be_noticed() -> None:
    """The other schedulers are longest job first, and best alignment instead of shortest job first."""
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=100, seed=1)
    expected = float(ROWS["A 130.0"][3])

    class LongestJobFirst(ShortestJobFirst):
        def score(self, grid: Grid) -> NDArray[np.float64]:
            return 1 / super().score(grid)

    for scheduler in (LongestJobFirst(), Packer()):
        record = play(Grid(GridConfig(semantics=DEEPRM), jobs), scheduler)
        assert deviation(record.slowdown(), expected) > 8
