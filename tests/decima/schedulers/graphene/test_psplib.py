"""Projects of PSPLIB, and files that are refused."""

import re
import sys
from pathlib import Path

import pytest

from decima.schedulers.graphene.project import ProjectFileError, read_best, read_project, read_projects
from tests.cases import cases
from tests.refusal import one_line, refusal

#: A long task at hand and one behind a short one, as in the tests of the planners, between a source and a sink.
TROUBLE = """\
************************************************************************
jobs (incl. supersource/sink ):  6
RESOURCES
  - renewable                 :  2   R
  - nonrenewable              :  0   N
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          2           2   4
   2        1          1           3
   3        1          1           6
   4        1          1           5
   5        1          1           6
   6        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  R 2
------------------------------------------------------------------------
  1      1     0       0    0
  2      1    10       6    0
  3      1     2       1    2
  4      1     1       5    0
  5      1    10       4    0
  6      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  R 2
   10    3
************************************************************************
"""


def write_projects(tmp_path: Path) -> Path:
    """Write two projects, the second with more of the first resource, and their best makespans beside the folder."""
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "a.sm").write_text(TROUBLE)
    (tmp_path / "projects" / "b.sm").write_text(TROUBLE.replace("   10    3", "   15    3"))
    (tmp_path / "best.csv").write_text("instance,best,lower_bound\na,13,13\nb,12,12\nc,7,7\n")
    return tmp_path / "projects"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_projects(tmp_path)


def test_a_project_is_read(folder: Path) -> None:
    read = read_project(folder / "a.sm")
    assert read.durations.tolist() == [0, 10, 2, 1, 10, 0]
    assert read.demands.tolist() == [[0, 0], [6, 0], [1, 2], [5, 0], [4, 0], [0, 0]]
    assert (read.capacity.tolist(), read.parents) == ([10, 3], ((), (0,), (1,), (0,), (3,), (2, 4)))
    assert list(read_projects(folder)) == ["a", "b"]


@cases("old, new, message",
        ("RESOURCEAVAILABILITIES", "", "expected an .sm file of PSPLIB"),
        ("   2        1          1           3\n", "   2        1          1           x\n", "expected an .sm file"),
        ("  5      1    10       4    0\n", "", "expected an .sm file"),
        ("   3        1          1           6\n", "   3        1          1          -1\n", "has a successor -1"),
        ("   3        1          1           6\n", "   3        1          1           7\n", "a successor 7"),
        ("  2      1    10       6    0\n", "  2      1    -5       6    0\n", "durations: expected finite numbers"),
        ("  2      1    10       6    0\n", "  2      1    10      11    0\n", "stage 1 needs 11 of resource 0"),
        ("   5        1          1           6\n", "   5        1          1           4\n", "form a cycle"),
        ("  R 1  R 2\n   10", "  R 1  N 1\n   10", "expected renewable resources only"),
        ("   5        1          1           6\n   6        1          0\n", "   5        2          1           6\n",
         "expected activities with one mode each"),
)  # fmt: skip
def test_broken_projects_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.sm"
    assert old in TROUBLE
    path.write_text(TROUBLE.replace(old, new))
    assert message in refusal(read_project, ProjectFileError, path)


@pytest.mark.parametrize("content", [b"", b"what is this?", bytes(range(256))])
def test_other_files_are_no_projects(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.sm"
    path.write_bytes(content)
    refusal(read_project, ProjectFileError, path)


def test_projects_that_take_no_time_have_no_deviation(tmp_path: Path) -> None:
    path = tmp_path / "idle.sm"
    path.write_text(re.sub(r"^(  \d      1    )..", r"\1 0", TROUBLE, flags=re.M))
    assert "expected activities with durations above 0" in refusal(read_project, ProjectFileError, path)


def test_the_package_is_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psplib", None)
    assert "pip install -e '.[packing]'" in refusal(read_project, ProjectFileError, folder / "a.sm")


@cases(
    "text, message",
    ("instance,makespan\na,3\n", "expected columns instance and best"),
    ("", "expected columns instance and best"),
    ("instance,best\na,13\nb,\n", "line 3: expected a best makespan above 0"),
    ("instance,best\na\n", "line 2: expected a best makespan above 0"),
    ("instance,best\na,0\n", "line 2: expected a best makespan above 0"),
    ("instance,best\na,short\n", "line 2: expected a best makespan above 0"),
    ("instance,best\na,1_0\n", "line 2: expected a best makespan above 0"),
)
def test_broken_makespans_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "best.csv"
    path.write_text(text)
    said = one_line(ProjectFileError, read_best, path)
    assert re.search(message, said)
    assert said.startswith(str(path))
