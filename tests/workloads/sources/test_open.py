"""Workloads of all kinds are opened by name or path."""

from collections.abc import Callable
from pathlib import Path

import pytest

from workloads import Workload, WorkloadError, embedded_workload, open_workload, synthetic_profiles, write_workload


def test_embedded_and_random_workloads_have_names() -> None:
    assert open_workload() is open_workload("tpch") is embedded_workload()
    workload = open_workload("synthetic")
    assert workload is open_workload("synthetic")
    assert [job.name for job in workload.profiles] == [job.name for job in synthetic_profiles()]


def test_a_file(tmp_path: Path) -> None:
    write_workload(tmp_path / "mine.json", Workload(synthetic_profiles(3), None, "mine"))
    for name in (tmp_path / "mine.json", str(tmp_path / "mine.json")):
        assert open_workload(name).name == "mine"
        assert len(open_workload(name).profiles) == 3


def test_a_folder_of_published_profiles(shared: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "published").symlink_to(shared("tpch"))
    workload = open_workload(tmp_path / "published")
    assert (workload.name, len(workload.profiles)) == (shared("tpch").resolve().name, 6 * 22)


def test_names_go_before_folders_unless_they_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tpch").mkdir()
    assert open_workload("tpch") is embedded_workload()
    for folder in ("./tpch", Path("tpch")):
        with pytest.raises(WorkloadError, match=r"^tpch: contains no folder 2g"):
            open_workload(folder)


@pytest.mark.parametrize("name", ["alibaba", "missing/file.json", Path("gone.toml")])
def test_what_is_neither_is_told_what_there_is(name: str | Path) -> None:
    with pytest.raises(WorkloadError, match=f"^{name}: no such workload, expected tpch .*synthetic .*folder.*file$"):
        open_workload(name)
