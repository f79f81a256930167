"""What vector environments share: a generator of seeds for each place, as that many environments would have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

__all__ = ["VECTOR_METADATA", "each_seed", "generators"]

#: An episode that is over begins anew with the next step, whose action is not looked at and whose reward is 0.
VECTOR_METADATA = {"autoreset_mode": AutoresetMode.NEXT_STEP}


def each_seed(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """The seed of each place: ``seed``, ``seed + 1``, .. if one is given.

    Raises:
        ValueError: as many seeds are given as there are no places.
    """
    if seed is None or isinstance(seed, int | np.integer):
        return [None if seed is None else int(seed) + place for place in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"expected {num_envs} seeds, got {len(seed)}")
    return list(seed)


def generators(
    seeds: Sequence[int | None], before: Sequence[np.random.Generator]
) -> list[np.random.Generator]:
    """A new generator where there is a seed or was none before."""
    return [
        before[place] if seed is None and before else seeding.np_random(seed)[0]
        for place, seed in enumerate(seeds)
    ]
