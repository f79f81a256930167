"""Batches of graphs for training and for several clusters at once: concatenate, select, find rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import Graphs

__all__ = ["concatenate", "rows_of", "select"]

#: Field of ``Graphs`` with the ends of observations -> fields whose rows it splits.
_POINTERS = {
    "first_stage": ("features", "stage_job", "unfinished", "stage_index", "low", "high"),
    "first_job": ("job_features",),
    "first_message": ("messages",),
}


def rows_of(graphs: Graphs, stage: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the row in a batch of one stage of each observation, int64 [B].

    Args:
        graphs: B observations.
        stage: int [B], index of the stage in each observation's arrays.
    """
    spread = int(graphs.stage_index.max(initial=0)) + 1
    owner = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.first_stage))
    rows: NDArray[np.int64] = np.searchsorted(
        owner * spread + graphs.stage_index, np.arange(graphs.num_graphs) * spread + stage
    )
    return rows


def concatenate(parts: Sequence[Graphs]) -> Graphs:
    """Concatenate batches; at least one, none empty."""
    if len(parts) == 1:
        return parts[0]
    arrays = {
        name: np.concatenate(pieces)
        for name, pieces in zip(Graphs._fields, zip(*parts, strict=True), strict=True)
    }
    # Between two parts, the pointers have no size of an observation.
    ends = np.cumsum([len(part.first_stage) for part in parts])[:-1]
    for name in _POINTERS:
        sizes = np.delete(np.diff(arrays[name]), ends - 1)
        arrays[name] = np.concatenate([[0], sizes.cumsum()])
    return Graphs(**arrays)


def select(graphs: Graphs, chosen: NDArray[np.int64]) -> Graphs:
    """Return the graphs of the observations with these indices, in this order."""
    arrays: dict[str, NDArray[Any]] = {}
    for pointer, names in _POINTERS.items():
        first = getattr(graphs, pointer)
        sizes = first[chosen + 1] - first[chosen]
        arrays[pointer] = np.concatenate([[0], sizes.cumsum()])
        rows = np.arange(arrays[pointer][-1]) + (first[chosen] - arrays[pointer][:-1]).repeat(sizes)
        arrays |= {name: getattr(graphs, name).take(rows, axis=0) for name in names}
    return Graphs(**arrays)
