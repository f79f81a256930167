"""The strategies reach their corner cases."""

import pytest
from hypothesis import Phase, find, settings

from tests.workloads.strategies import job_profiles, job_sequences
from workloads.job import JobProfile

#: Settings to find one example, without making it small.
FAST = settings(phases=[Phase.generate], max_examples=150, database=None)


def is_triangle(job: JobProfile) -> bool:
    """Return whether some parent is also a grandparent."""
    return any(set(job.children[a]) & set(job.children[b]) for a in range(job.num_stages) for b in job.children[a])


CORNERS = {
    "a triangle": is_triangle,
    "edges against the numbering": lambda job: any(parent > child for parent, child in job.edges),
    "several levels": lambda job: any(stage.durations.levels.size > 1 for stage in job.stages),
    "zero durations": lambda job: any(stage.durations.spread[0] == 0.0 for stage in job.stages),
    "a wave without measurements": lambda job: any(
        (stage.durations.cells[..., 0] == stage.durations.cells[..., 1]).any() for stage in job.stages
    ),
    "several parts": lambda job: sum(not parents for parents in job.parents) > 1,
}


@pytest.mark.parametrize("corner", CORNERS)
def test_job_profiles_reach(corner: str) -> None:
    find(job_profiles(), CORNERS[corner], settings=FAST)


def test_job_sequences_repeat_profiles_and_arrivals() -> None:
    find(job_sequences(), lambda jobs: len(jobs) > len(set(jobs.profiles)), settings=FAST)
    find(job_sequences(), lambda jobs: len(jobs) > 1 and jobs.arrival_ms[0] == jobs.arrival_ms[1], settings=FAST)
