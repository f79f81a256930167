"""Run any study by its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from decima.learning.config import Progress
from decima.show.tables import Shown
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
    setups = {"cluster": Study.of_options, "grid": GridStudy.of_options}
    if entry.setup == "part":
        setup: Any = Part(tell, frozenset(given))
    else:
        setup = setups[entry.setup](left, command=command, tell=tell)
    found: Outcome = entry.function(setup, **left)
    return found.shown(command)
