"""Colours of jobs in pictures of schedules: bars that touch look different, to colour-blind readers too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.record import EpisodeRecord

__all__ = ["PALETTE", "busy_spans", "contrasting_colours", "job_colours"]

#: Okabe and Ito's colours and those that are farthest from them, as `_distances` tells; dark and light ones in turn.
PALETTE = (
    "#0072B2", "#E69F00", "#5B2A86", "#96C396", "#871E00", "#56B4E9", "#5A002D", "#F0E442",
    "#874B69", "#D2E196", "#781E4B", "#009E73", "#4B005A", "#CC79A7", "#B43C2D", "#6987F0",
    "#4B4BA5", "#C8BEFF", "#966987", "#A5D25A",
)  # fmt: skip
#: From linear RGB to the responses of the eye's cones, and from their cube roots to OKLab (Björn Ottosson, 2020).
TO_CONES = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
TO_OKLAB = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
#: Share of the red-green axis of OKLab that red-green colour-blind readers perceive.
RED_GREEN = 0.35
#: Colours that are nearer than this are easily confused.
NEAR = 0.15
#: Executors times instants at which neighbouring executors are compared.
MOST_CELLS = 200_000
#: Height over width of a picture.
ASPECT = 0.45
#: Jobs of longer sequences are too small for their neighbours to matter.
MOST_JOBS = 2000


def job_colours(num_jobs: int) -> NDArray[np.float64]:
    """Colour jobs by their order of arrival, whatever they do later.

    Returns:
        RGBA per job, float64 [num_jobs, 4].
    """
    return _rgba()[np.arange(num_jobs) % len(PALETTE)]


def contrasting_colours(records: Sequence[EpisodeRecord]) -> NDArray[np.float64]:
    """Colour jobs so that bars that touch differ as much as they can, on the whole over some schedules.

    Each job in turn gets the colour that differs most from those of its neighbours, weighted by the length of their
    common borders. No two jobs have one colour if these suffice.

    Args:
        records: episodes of one job sequence, at least one.

    Returns:
        RGBA per job, float64 [num_jobs, 4].
    """
    num_jobs = len(records[0].sequence)
    if num_jobs > MOST_JOBS:
        return job_colours(num_jobs)
    borders = sum((_borders(record) for record in records), np.zeros((num_jobs, num_jobs)))
    length = borders.sum(axis=1)
    confusion = np.exp(-((_distances() / NEAR) ** 2))
    colour = np.arange(num_jobs) % len(PALETTE)
    is_coloured = np.zeros(num_jobs, dtype=bool)
    used = np.zeros(len(PALETTE))
    reuse = length.max() if num_jobs <= len(PALETTE) else length.mean() / len(PALETTE)
    for _ in range(4):
        for job in np.argsort(-length, kind="stable"):
            if is_coloured[job]:
                used[colour[job]] -= 1
            nearby = np.bincount(colour, borders[job] * is_coloured, minlength=len(PALETTE))
            colour[job] = np.argmin(confusion @ nearby + reuse * used)
            used[colour[job]] += 1
            is_coloured[job] = True
    return _rgba()[colour]


def busy_spans(
    record: EpisodeRecord, gap_ms: float
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Join tasks of one job that follow each other on an executor with gaps of at most ``gap_ms``.

    Returns:
        executor [num_spans], job [num_spans], and start and end, ms [num_spans, 2]; by executor, then by start.
    """
    ran = np.flatnonzero(record.task_executor >= 0)
    order = ran[np.lexsort((record.task_start_ms[ran], record.task_executor[ran]))]
    executor, job = record.task_executor[order], record.task_job[order]
    start, finish = record.task_start_ms[order], np.minimum(record.task_finish_ms[order], record.end_ms)
    breaks = (np.diff(executor) != 0) | (np.diff(job) != 0) | (start[1:] - finish[:-1] > gap_ms)
    first = np.flatnonzero(np.concatenate([[True], breaks])[: order.size])
    last = np.append(first[1:] - 1, order.size - 1)[: first.size]
    return executor[first], job[first], np.column_stack([start[first], finish[last]])


def _borders(record: EpisodeRecord) -> NDArray[np.float64]:
    """Length of the borders between jobs in a picture that is one wide, float64 [num_jobs, num_jobs], symmetric."""
    num_jobs, end_ms = len(record.sequence), max(record.end_ms, 1.0)
    executor, job, span = busy_spans(record, gap_ms=np.inf)
    borders = np.zeros(num_jobs * num_jobs)
    if job.size:
        follows = np.flatnonzero(executor[1:] == executor[:-1])
        pairs = np.bincount(job[follows] * num_jobs + job[follows + 1], minlength=borders.size)
        borders += pairs * ASPECT / record.config.num_executors
        lanes = np.unique(executor)
        count = int(np.clip(MOST_CELLS // lanes.size, 10, 500))
        instants = (np.arange(count) + 0.5) / count
        cells = lanes[:, None] + instants
        # Keys ascend: executor by executor, each in order of time.
        last = np.searchsorted(executor + np.minimum(span[:, 0] / end_ms, 1 - 1e-9), cells, "right") - 1
        runs = (last >= 0) & (executor[last] == lanes[:, None]) & (span[last, 1] > instants * end_ms)
        beside = runs[1:] & runs[:-1] & (np.diff(lanes) == 1)[:, None]
        pairs = np.bincount((job[last[:-1]] * num_jobs + job[last[1:]])[beside], minlength=borders.size)
        borders += pairs / count
    matrix = borders.reshape(num_jobs, num_jobs)
    np.fill_diagonal(matrix, 0.0)
    return matrix + matrix.T


def _rgba() -> NDArray[np.float64]:
    digits = [[int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)] for text in PALETTE]
    return np.column_stack([np.array(digits), np.ones(len(PALETTE))])


def _distances() -> NDArray[np.float64]:
    """How different the colours look, with and without red-green blindness, float64 [colours, colours]."""
    rgb = _rgba()[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.cbrt(linear @ np.transpose(TO_CONES)) @ np.transpose(TO_OKLAB) * [1, RED_GREEN, 1]
    return np.asarray(np.linalg.norm(seen[:, None] - seen[None], axis=-1))
