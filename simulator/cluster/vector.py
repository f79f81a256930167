"""Many clusters as one Gymnasium vector environment, in one process: each writes into arrays of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector.utils import batch_space, create_empty_array
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.env import ClusterEnv
from simulator.errors import ConfigError
from simulator.vector import VECTOR_METADATA, each_seed
from workloads.errors import check_whole

__all__ = ["ClusterVectorEnv"]


class ClusterVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """N episodes of ``ClusterEnv``, each exactly as one of them would be with the seed of its place.

    ``reset(seed=s)`` gives place n the seed s + n. An episode that is over begins anew with the next step (Gymnasium's
    ``AutoresetMode.NEXT_STEP``): its action is not looked at, its reward is 0, and the observation is the first of an
    episode with other jobs.

    Infos hold ``action_mask``, int8 [N, stages + 1] and int8 [N, limits]; and ``record``, the ``EpisodeRecord`` of
    episodes that just ended, where ``_record`` is true.

    Clusters have events of their own, at times of their own: nothing is shared but what is shown. So this takes about
    as long as N environments in turn, and less than N that Gymnasium puts together.

    Args:
        num_envs: N.
        copy: whether each observation has memory of its own; else the next step overwrites it.
        options: as of ``ClusterEnv``.

    Raises:
        ConfigError: no places, or as ``ClusterEnv``.
    """

    metadata = VECTOR_METADATA

    def __init__(self, num_envs: int, *, copy: bool = True, **options: Any) -> None:
        if check_whole(num_envs, "num_envs", ConfigError) < 1:
            raise ConfigError(f"expected at least one environment, got {num_envs}")
        self.num_envs, self._copy = num_envs, copy
        self.envs = [ClusterEnv(**options) for _ in range(num_envs)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._shape = (num_envs, *(self.single_action_space.shape or ()))
        self._over = np.zeros(num_envs, dtype=np.bool_)
        self._begun = False
        self._make_arrays()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes.

        Args:
            seed: of the first place, or of each.
            options: there are none.

        Raises:
            ConfigError: an unknown option, or as ``ClusterEnv.reset``.
        """
        if options:
            raise ConfigError(f"unknown option {next(iter(options))!r} of reset, expected none")
        for place, (env, each) in enumerate(zip(self.envs, each_seed(seed, self.num_envs), strict=True)):
            self._keep(place, *env.reset(seed=each))
        self._begun = True
        self._over[:] = False
        return self._shown(), self._infos({})

    def step(
        self, actions: ArrayLike
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one action in each episode, or begin it anew.

        Raises:
            ResetNeeded: there is no episode yet.
            InvalidAction: not N actions, or one out of range.
        """
        if not self._begun:
            raise ResetNeeded("there is no episode yet: call reset() first")
        chosen = np.asarray(actions)
        if chosen.shape != self._shape or not np.issubdtype(chosen.dtype, np.integer):
            raise InvalidAction(f"expected actions {self._shape}, got {chosen.dtype} {chosen.shape}")
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
        records: dict[int, Any] = {}
        for place, env in enumerate(self.envs):
            if self._over[place]:
                self._keep(place, *env.reset())
                continue
            shown, rewards[place], terminated[place], truncated[place], info = env.step(chosen[place])
            self._keep(place, shown, info)
            if "record" in info:
                records[place] = info["record"]
        self._over = terminated | truncated
        return self._shown(), rewards, terminated, truncated, self._infos(records)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which stages, then which limits, may be chosen: bool [N, stages + 1 + limits]."""
        return np.concatenate(self._masks, axis=1).astype(np.bool_)

    def _make_arrays(self) -> None:
        self._arrays: Any = create_empty_array(self.single_observation_space, self.num_envs)
        stages, limits = self.envs[0].view.action_space.nvec.tolist()
        self._masks = tuple(np.zeros((self.num_envs, size), dtype=np.int8) for size in (stages, limits))

    def _keep(self, place: int, shown: Any, info: dict[str, Any]) -> None:
        """Write what one environment shows into its row."""
        if isinstance(shown, dict):
            for name, values in shown.items():
                self._arrays[name][place] = values
        else:
            self._arrays[place] = shown
        for all_masks, mask in zip(self._masks, info["action_mask"], strict=True):
            all_masks[place] = mask

    def _shown(self) -> Any:
        arrays = self._arrays
        if not self._copy:
            return arrays
        return (
            {name: values.copy() for name, values in arrays.items()}
            if isinstance(arrays, dict)
            else arrays.copy()
        )

    def _infos(self, records: dict[int, Any]) -> dict[str, Any]:
        masks = tuple(mask.copy() for mask in self._masks) if self._copy else self._masks
        infos: dict[str, Any] = {
            "action_mask": masks,
            "_action_mask": np.ones(self.num_envs, dtype=np.bool_),
        }
        if records:
            infos["record"] = np.full(self.num_envs, None, dtype=object)
            infos["_record"] = np.zeros(self.num_envs, dtype=np.bool_)
            for place, record in records.items():
                infos["record"][place], infos["_record"][place] = record, True
        return infos
