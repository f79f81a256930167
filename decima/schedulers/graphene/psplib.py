"""Reader of the project scheduling problem library PSPLIB, and of best known makespans."""

from __future__ import annotations

import csv
import math
from io import StringIO
from pathlib import Path

import numpy as np

from decima.schedulers.graphene import PlanError, Project
from workloads.errors import DecimaError
from workloads.reading import read_bytes

__all__ = ["ProjectFileError", "read_best", "read_project", "read_projects"]


#: Maximum size of a file, bytes.
_LONGEST = 2**26


class ProjectFileError(DecimaError, ValueError):
    """A file of projects is unusable. The message is one line that names the file."""


def read_projects(folder: Path) -> dict[str, Project]:
    """Read all ``.sm`` files of a folder; return file name without the ending -> project.

    Raises:
        ProjectFileError: the folder has no such file, or a file is malformed.
    """
    projects = {path.stem: read_project(path) for path in sorted(folder.glob("*.sm"))}
    if not projects:
        raise ProjectFileError(f"{folder}: expected .sm files of PSPLIB")
    return projects


def read_project(path: Path) -> Project:
    """Read a ``.sm`` file of PSPLIB (Kolisch and Sprecher, 1997), with one mode per activity and renewable resources.

    Raises:
        ProjectFileError: the file is not such a file, or the package psplib is missing.
    """
    try:
        from psplib import parse
    except ImportError:
        raise ProjectFileError(
            f"{path}: the package psplib is missing: pip install -e '.[packing]'"
        ) from None
    try:
        read_bytes(path, _LONGEST)  # checks that the file exists and is not a pipe
        read = parse(path)
    except OSError as error:
        raise ProjectFileError(f"{path}: {error.strerror}, expected an .sm file of PSPLIB") from None
    except (ValueError, IndexError) as error:
        raise ProjectFileError(f"{path}: expected an .sm file of PSPLIB ({error})") from None
    if not all(resource.renewable for resource in read.resources):
        raise ProjectFileError(f"{path}: expected renewable resources only")
    if any(activity.num_modes != 1 for activity in read.activities):
        raise ProjectFileError(f"{path}: expected activities with one mode each")
    parents: list[list[int]] = [[] for _ in read.activities]
    for number, activity in enumerate(read.activities):
        for successor in activity.successors:
            if not 0 <= successor < len(parents):
                raise ProjectFileError(
                    f"{path}: activity {number + 1} has a successor {successor + 1}, expected 1 to {len(parents)}"
                )
            parents[successor].append(number)
    modes = [activity.modes[0] for activity in read.activities]
    try:
        project = Project(
            np.array([mode.duration for mode in modes], np.float64),
            np.array([mode.demands for mode in modes], np.float64),
            np.array([resource.capacity for resource in read.resources], np.float64),
            parents,
        )
    except PlanError as error:
        raise ProjectFileError(f"{path}: {error}") from None
    if not project.lower_bound > 0:
        raise ProjectFileError(f"{path}: expected activities with durations above 0")
    return project


def read_best(path: Path) -> dict[str, float]:
    """Read the best known makespans from a CSV file with columns ``instance`` (project name) and ``best``.

    Raises:
        ProjectFileError: the file is not such a file.
    """
    try:
        with StringIO(read_bytes(path, _LONGEST).decode("utf-8-sig"), newline="") as file:
            rows = csv.DictReader(file)
            if not {"instance", "best"} <= set(rows.fieldnames or ()):
                raise ProjectFileError(f"{path}: expected columns instance and best")
            best = {}
            for row in rows:
                makespan = float(row["best"] or "nan")
                if not 0 < makespan < math.inf:
                    raise ProjectFileError(f"{path}, line {rows.line_num}: expected a best makespan above 0")
                best[row["instance"]] = makespan
    except OSError as error:
        raise ProjectFileError(f"{path}: {error.strerror}, expected a CSV file") from None
    except (ValueError, csv.Error) as error:
        if isinstance(error, ProjectFileError):
            raise
        raise ProjectFileError(f"{path}: {error}") from None
    return best
