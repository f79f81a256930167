"""Colours of jobs in schedules."""

import numpy as np

from simulator import ClusterConfig, EpisodeRecord
from simulator.cluster import picture
from simulator.cluster.picture import PALETTE, contrasting_colours, job_colours
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations


def mosaic(jobs: np.ndarray) -> EpisodeRecord:
    """Return tasks of 1 s, consecutive on each executor; ``jobs`` [executors, tasks] are their jobs."""
    executors, length = jobs.shape
    order = np.argsort(jobs.ravel(), kind="stable")
    executor, place = np.divmod(order, length)
    counts = np.bincount(jobs.ravel())
    profiles = {
        count: JobProfile("job", (StageProfile(count, TaskDurations.constant(1000.0)),))
        for count in set(counts.tolist())
    }
    start = place * 1000.0
    return EpisodeRecord(
        config=ClusterConfig(num_executors=executors),
        sequence=JobSequence(tuple(profiles[count] for count in counts.tolist()), np.zeros(counts.size)),
        task_start_ms=start,
        task_finish_ms=start + 1000.0,
        task_executor=executor.astype(np.int32),
        task_wave=np.zeros(order.size, np.int8),
        task_parallelism=np.ones(order.size, np.int32),
        completion_ms=np.full(counts.size, length * 1000.0),
        move_executor=np.zeros(0, np.int32),
        move_job=np.zeros(0, np.int64),
        move_depart_ms=np.zeros(0),
        end_ms=length * 1000.0,
        num_decisions=counts.size,
    )


def number(rgba: np.ndarray) -> list[int]:
    """Return the index of each job's colour in the palette."""
    return [int(np.flatnonzero((job_colours(len(PALETTE)) == row).all(axis=1))[0]) for row in rgba]


def test_neighbours_never_have_one_colour_where_colours_repeat() -> None:
    jobs = np.random.default_rng(3).permutation(200).reshape(10, 20)
    found = np.array(number(contrasting_colours([mosaic(jobs)])))[jobs]
    distance = picture._distances()
    for one, other in ((found[1:], found[:-1]), (found[:, 1:], found[:, :-1])):
        assert (one != other).all()
        assert distance[one, other].min() > 0.1
    in_order = np.array(number(job_colours(200)))[jobs]
    assert (in_order[1:] == in_order[:-1]).any()


def test_neighbours_differ_and_the_palette_can_be_told_apart() -> None:
    distance = picture._distances()
    for jobs, least in ((len(PALETTE) // 2, 0.3), (len(PALETTE), 0.09)):
        found = number(contrasting_colours([mosaic(np.arange(jobs).reshape(-1, 1))]))
        assert len(set(found)) == jobs
        assert distance[found[1:], found[:-1]].min() > least
    one, other = np.array([[0], [1], [2]]), np.array([[0], [2], [1]])
    found = number(contrasting_colours([mosaic(one), mosaic(other)]))
    distance = picture._distances()
    assert min(distance[found[0], found[1]], distance[found[0], found[2]], distance[found[1], found[2]]) > 0.25
    distance = picture._distances()
    assert distance[~np.eye(len(PALETTE), dtype=bool)].min() > 0.055
    grey_and_white = np.array([[0.851] * 3, [1.0] * 3])
    rgb = job_colours(len(PALETTE))[:, :3]
    assert np.linalg.norm(rgb[:, None] - grey_and_white, axis=-1).min() > 0.15
    record = mosaic(np.arange(picture.MOST_JOBS + 1).reshape(1, -1))
    assert (contrasting_colours([record]) == job_colours(picture.MOST_JOBS + 1)).all()
    assert (job_colours(2 * len(PALETTE))[len(PALETTE) :] == job_colours(len(PALETTE))).all()
