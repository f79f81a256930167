import re

import numpy as np

from decima.evaluation import CompareError, Comparison
from decima.evaluation.run import Decided, best_for_all, best_settings, decisions, run_scheduler, sweep, sweep_ms
from decima.evaluation.variants import ALPHAS, GRIDS, TUNED
from decima.registry import make_scheduler
from decima.schedulers import Scheduler
from simulator import Decision, Observation
from tests.cases import cases
from tests.decima.evaluation.examples import CLUSTER, OWN, conditions, run
from tests.refusal import one_line


@cases(
    "own, message",
    ("Faulty", r"Faulty on seed 5: ZeroDivisionError: .* \(own_schedulers\.py, line \d+\)$"),
    ("Idle", r"Idle on seed 5: "),
    ("Leaving", r"Leaving on seed 5: SystemExit: 3 \(own_schedulers\.py, line \d+\)$"),
)
def test_a_scheduler_that_fails_is_named_in_one_line(own: str, message: str) -> None:
    assert re.search(message, one_line(CompareError, run_scheduler, CLUSTER, conditions().sequence(5), OWN + own))


class Half(Scheduler):
    """Scheduler that gives two executors to the last schedulable stage, and leaves the other two idle."""

    def decide(self, observation: Observation) -> Decision | None:
        stage = int(observation.schedulable.nonzero()[0][-1])
        limit = observation.held(int(observation.stage_job[stage])) + 2
        return None if observation.time_ms == 0 and observation.offered == 2 else Decision(stage, limit)


def test_decisions_are_told_by_numbers_and_settings() -> None:
    compared = Comparison(conditions(num_experiments=2), {"half": Half(), "fifo": "fifo"})
    compared.run(1)
    taken = decisions(compared.conditions, 5, compared.scheduler("half", 5))
    jobs = len(compared.conditions.sequence(5))
    assert taken[:2] == [Decided(0.0, 4, jobs - 1, 0, 2), Decided(0.0, 2, -1, -1, 0)]
    told = [each for each in taken if each.job >= 0]
    assert {(each.job, each.stage) for each in told} == {(job, stage) for job in range(jobs) for stage in (0, 1)}
    record = compared.episodes["half"]
    assert [each.time_ms for each in taken] == sorted(each.time_ms for each in taken)
    assert taken[-1].time_ms <= record.end_ms
    compared = run("weighted-fair", num_experiments=1)
    fixed = compared.tuned["weighted-fair"]
    told = decisions(compared.conditions, 5, compared.scheduler("weighted-fair", 5))
    assert told == decisions(compared.conditions, 5, make_scheduler(fixed))


SEQUENCE = conditions(num_jobs=8).sequence(5)


def test_settings_of_tuned_schedulers() -> None:
    assert len(ALPHAS) == 41
    assert (ALPHAS[0], ALPHAS[10], ALPHAS[20], ALPHAS[40]) == (-2.0, -1.0, 0.0, 2.0)
    assert len({f"{alpha:g}" for alpha in ALPHAS}) == 41
    for name, grid in GRIDS.items():
        assert len(set(grid)) == len(grid)
        assert type(make_scheduler(grid[0])) is type(make_scheduler(name))
        assert all(make_scheduler(setting) for setting in grid)
        assert {f"tuned-{name}", f"tuned-{name}:once", f"tuned-{name}:makespan"} <= TUNED.keys()
    sweeps = np.full((2, 41), 9.0)
    sweeps[:, 3] = 1.0, 8.0
    sweeps[:, 7] = 4.0, 4.0
    sweeps[:, 8] = 4.0, 4.0
    assert best_for_all(sweeps) == ALPHAS[7]
    assert best_for_all(sweeps, [f"setting {place}" for place in range(41)]) == "setting 7"


def test_sweeps_and_hindsight() -> None:
    known = run_scheduler(CLUSTER, SEQUENCE, "fifo")
    settings = ("weighted-fair:-1", "weighted-fair:0.5")
    runs = dict(sweep(CLUSTER, SEQUENCE, settings, {"weighted-fair:0.5": known}))
    assert tuple(runs) == settings
    assert runs["weighted-fair:0.5"] is known
    expected = run_scheduler(CLUSTER, SEQUENCE, "weighted-fair:-1")
    assert runs["weighted-fair:-1"].completion_ms.tolist() == expected.completion_ms.tolist()
    runs = list(sweep(CLUSTER, SEQUENCE))
    best = best_settings(runs, ("jct", "makespan"))
    assert best.keys() == {"jct", "makespan"}
    for objective, (setting, record) in best.items():
        swept = sweep_ms(CLUSTER, SEQUENCE, objective)
        assert setting == GRIDS["weighted-fair"][int(swept.argmin())]
        assert swept.min() == (record.mean_jct_ms if objective == "jct" else record.makespan_ms)
    tie = [("one", runs[0][1]), ("other", runs[0][1])]
    assert best_settings(tie, ["jct"])["jct"][0] == "one"
