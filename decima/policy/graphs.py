"""What a network sees of any number of observations: graphs of the live jobs' stages, as flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import select

__all__ = ["NO_GUARD", "Graphs", "Guard"]

#: ``low`` and ``high``, int32 [S], of the choices that a guard leaves; both are empty where no guard acts.
Guard = tuple[NDArray[np.int32], NDArray[np.int32]]
NO_GUARD: Guard = (np.zeros(0, np.int32), np.zeros(0, np.int32))


class Graphs(NamedTuple):
    """B observations with S stages, J live jobs and M messages in all, one after the other.

    Numbers of stages and jobs count from 0 in each observation.

    Attributes:
        first_stage: int64 [B + 1]; the stages of observation b are ``first_stage[b]:first_stage[b + 1]``.
        first_job: int64 [B + 1].
        first_message: int64 [B + 1].
        features: float32 [S, F], normalised.
        job_features: float32 [J, F_job], normalised.
        stage_job: int32 [S]; the stage's job.
        unfinished: bool [S].
        place: int32 [S]; where the stage stands in the observation's arrays.
        low: int32 [S]; limits begin above it: the executors that its job (or the stage, where limits are those of
            stages) holds, or one less where waiting is a choice.
        high: int32 [S]; the largest limit; above ``low`` if and only if the stage may be chosen.
        messages: int32 [M, 3]; step, receiver, sender; in each observation ascending by step, those of a
            receiver together.
    """

    first_stage: NDArray[np.int64]
    first_job: NDArray[np.int64]
    first_message: NDArray[np.int64]
    features: NDArray[np.float32]
    job_features: NDArray[np.float32]
    stage_job: NDArray[np.int32]
    unfinished: NDArray[np.bool_]
    place: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    messages: NDArray[np.int32]

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.first_stage.size - 1

    def rows_of(self, stage: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the rows of one stage of each observation, int64 [B].

        Args:
            stage: int [B]; where the stages stand in the observations' arrays.
        """
        spread = int(self.place.max(initial=0)) + 1
        owner = np.repeat(np.arange(self.num_graphs), np.diff(self.first_stage))
        found: NDArray[np.int64] = np.searchsorted(
            owner * spread + self.place, np.arange(self.num_graphs) * spread + stage
        )
        return found

    @staticmethod
    def concatenate(parts: Sequence[Graphs]) -> Graphs:
        """All observations of ``parts``, which are not empty, in order."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, NDArray[Any]] = {}
        lengths = [part.num_graphs for part in parts]
        for name in _POINTERS:
            pieces = [getattr(part, name) for part in parts]
            starts = np.cumsum([0, *(piece[-1] for piece in pieces[:-1])])
            arrays[name] = np.concatenate([pieces[0][:1], *(piece[1:] for piece in pieces)])
            arrays[name][1:] += np.repeat(starts, lengths)
        for name in _ROWS:
            arrays[name] = np.concatenate([getattr(part, name) for part in parts])
        return Graphs(**arrays)

    def select(self, chosen: NDArray[np.int64]) -> Graphs:
        """The observations of these numbers, in this order."""
        arrays: dict[str, NDArray[Any]] = {}
        for pointer, names in _POINTERS.items():
            first = getattr(self, pointer)
            new = np.zeros(chosen.size + 1, dtype=np.int64)
            np.cumsum(first[chosen + 1] - first[chosen], out=new[1:])
            arrays[pointer] = new
            for name in names:
                rows = getattr(self, name)
                out = np.empty((int(new[-1]), *rows.shape[1:]), dtype=rows.dtype)
                select(chosen, first, new, rows, out)
                arrays[name] = out
        return Graphs(**arrays)


_POINTERS = {
    "first_stage": ("features", "stage_job", "unfinished", "place", "low", "high"),
    "first_job": ("job_features",),
    "first_message": ("messages",),
}
_ROWS = tuple(name for name in Graphs._fields if name not in _POINTERS)
