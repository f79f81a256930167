"""Run any study by its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from decima.learning.config import Progress
from decima.show.shown import Shown
from decima.studies.catalogue import STUDIES
from decima.studies.grid.study import GridStudy
from decima.studies.outcome import Outcome, Part
from decima.studies.study import Study

__all__ = ["run_study"]


def run_study(
    name: str,
    values: Mapping[str, Any],
    command: str = "",
    tell: Progress = lambda what, done, total: None,
    given: Collection[str] = (),
) -> Shown:
    """Run a study.

    Args:
        name: of ``STUDIES``.
        values: of all options of its command, by their names.
        command: command line, which the results hold.
        tell: progress callback.
        given: names of options whose values are not the defaults.

    Returns:
        Tables, notes, JSON and pictures.
    """
    entry, left = STUDIES[name], dict(values)
    setup: Any
    if entry.setup == "part":
        setup = Part(tell, frozenset(given))
    else:
        make = Study.of_options if entry.setup == "cluster" else GridStudy.of_options
        setup = make(left, command=command, tell=tell)
    find: Callable[..., Outcome] = entry.function
    return find(setup, **left).shown(command)
