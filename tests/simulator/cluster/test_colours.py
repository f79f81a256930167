"""Colours of jobs in schedules."""

import numpy as np

from simulator.cluster.picture import PALETTE, job_colours


def test_jobs_have_the_colours_of_the_palette_in_order_of_arrival() -> None:
    colours = job_colours(2 * len(PALETTE))
    assert len(np.unique(colours[: len(PALETTE)], axis=0)) == len(PALETTE)
    assert (colours[len(PALETTE) :] == colours[: len(PALETTE)]).all()
    moves_and_idle = np.array([[0.851] * 3, [1.0] * 3])
    assert np.linalg.norm(colours[:, None, :3] - moves_and_idle, axis=-1).min() > 0.15
