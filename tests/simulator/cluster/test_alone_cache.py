"""Times of jobs alone that ship with the package or are cached on disk."""

import multiprocessing
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator import DECIMA_SIM, ClusterConfig, ExecutorClass
from simulator.cluster import alone_cache
from simulator.cluster.alone_cache import AloneCache, default_cache
from simulator.cluster.engine import solo
from simulator.cluster.engine.solo import search_all
from simulator.cluster.times_alone import TimeAlone, cluster_text, content_digest, shipped, time_alone, times_alone
from tests.simulator.cluster.build import chain, job, stage
from tests.times_alone import embedded_clusters
from workloads import JobProfile, TaskDurations, embedded_tpch

CLUSTER = cluster_text(ClusterConfig(7))
JOBS = [bytes([number]) * 16 for number in range(200)]
VALUES = {each: (1 + number, 1.5 * number, 0.1) for number, each in enumerate(JOBS)}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a cache that ``times_alone`` uses."""
    monkeypatch.setenv("DECIMA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "times-alone.sqlite"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[JobProfile]:
    """The jobs whose time was computed rather than known."""
    compute, found = solo.compute, list[JobProfile]()

    def recorded(profiles: list[JobProfile], config: ClusterConfig) -> Iterator[TimeAlone]:
        found.extend(profiles)
        yield from compute(profiles, config)

    monkeypatch.setattr(solo, "compute", recorded)
    return found


def two_stages(tasks: int = 4) -> JobProfile:
    """Return a new object each time, so that nothing is known in memory."""
    return chain(stage(tasks, 100, fresh_ms=300), stage(2, 50))


def test_values_are_kept_by_content_and_cluster(file: Path, computed: list[JobProfile]) -> None:
    first, config = time_alone(two_stages(), ClusterConfig(7)), ClusterConfig(7)
    assert file.is_file()
    assert len(computed) == 1
    assert time_alone(two_stages(), config) == first
    assert time_alone(replace(two_stages(), name="another"), replace(config, reward="makespan")) == first
    assert len(computed) == 1, "known on disk"
    others = [
        (two_stages(5), config),
        (two_stages(), ClusterConfig(8)),
        (two_stages(), replace(config, moving_delay_ms=1.0)),
        (two_stages(), replace(config, semantics=DECIMA_SIM)),
        (two_stages(), ClusterConfig(executor_classes=(ExecutorClass(7, memory=2.0),))),
        (chain(stage(4, 100, fresh_ms=301), stage(2, 50)), config),
        (job(stage(4, 100, fresh_ms=300), stage(2, 50)), config),
    ]
    for number, (profile, cluster) in enumerate(others, 2):
        time_alone(profile, cluster)
        assert len(computed) == number


def test_jobs_of_equal_content_are_computed_once(computed: list[JobProfile]) -> None:
    steps: list[tuple[int, int]] = []
    times = times_alone([two_stages(), two_stages(), two_stages(3)], ClusterConfig(7), lambda *step: steps.append(step))
    assert times[0] == times[1]
    assert len(computed) == 2
    assert steps == [(0, 2), (1, 2), (2, 2)]


def test_values_of_other_code_are_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = AloneCache(file)
    cache.write(CLUSTER, VALUES)
    assert cache.read(CLUSTER, JOBS) == VALUES
    alone_cache._cluster_digest.cache_clear()
    monkeypatch.setattr(alone_cache, "_code_digest", lambda: b"another")
    assert cache.read(CLUSTER, JOBS) == {}
    alone_cache._cluster_digest.cache_clear()


def _write(file: Path, jobs: list[bytes]) -> None:
    for each in jobs:
        AloneCache(file).write(CLUSTER, {each: VALUES[each]})


def test_processes_write_at_the_same_time(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(file, JOBS[number:40:2])) for number in range(2)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    assert AloneCache(file).read(CLUSTER, JOBS) == {each: VALUES[each] for each in JOBS[:40]}


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000, b"SQLite format 3\0" + bytes(2000)])
def test_a_malformed_file_is_replaced(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    cache = AloneCache(file)
    assert cache.read(CLUSTER, JOBS) == {}
    cache.write(CLUSTER, VALUES)
    assert cache.read(CLUSTER, JOBS) == VALUES


def test_a_damaged_or_foreign_database_is_replaced(file: Path) -> None:
    cache = AloneCache(file)
    cache.write(CLUSTER, VALUES)
    content = bytearray(file.read_bytes())
    content[len(content) // 3 :: 7] = b"\xff" * len(content[len(content) // 3 :: 7])
    file.write_bytes(content)
    assert set(cache.read(CLUSTER, JOBS).items()) <= set(VALUES.items())
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE times (name TEXT)")
    database.close()
    assert cache.read(CLUSTER, JOBS) == {}
    cache.write(CLUSTER, VALUES)
    assert cache.read(CLUSTER, JOBS) == VALUES


@pytest.mark.parametrize(
    "values", [(0, 1.0, 0.0), (1, float("nan"), 0.0), (1, -1.0, 0.0), (1, "text", 0.0), (1.5, 1.0, 0.0)]
)
def test_values_that_make_no_sense_are_ignored(file: Path, values: tuple[int, float, float]) -> None:
    cache = AloneCache(file)
    cache.write(CLUSTER, {JOBS[0]: values, JOBS[1]: VALUES[JOBS[1]]})
    assert cache.read(CLUSTER, JOBS) == {JOBS[1]: VALUES[JOBS[1]]}


def test_the_oldest_values_are_dropped(file: Path) -> None:
    cache = AloneCache(file, most_rows=100)
    for begin in range(0, 200, 20):
        cache.write(CLUSTER, {each: VALUES[each] for each in JOBS[begin : begin + 20]})
    left = cache.read(CLUSTER, JOBS)
    assert 80 <= len(left) <= 100
    assert left == {each: VALUES[each] for each in JOBS[-len(left) :]}


@pytest.mark.parametrize("place", ["file as folder", "read-only folder", "read-only file"])
def test_a_place_that_cannot_be_written_is_ignored(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    if place == "file as folder":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / "times-alone.sqlite").touch()
        (folder if place == "read-only folder" else folder / "times-alone.sqlite").chmod(0o500)
        if os.geteuid() == 0:  # no place is read-only for root
            monkeypatch.setattr(
                AloneCache, "_connect", lambda self: sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)
            )
    monkeypatch.setenv("DECIMA_CACHE", str(folder))
    assert time_alone(two_stages(), ClusterConfig(7)).mean_ms > 0
    cache = default_cache()
    assert cache is not None
    assert cache.read(CLUSTER, JOBS) == {}
    folder.chmod(0o700)


def test_the_folder_is_the_users_or_that_of_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_cache() is None, "tests have an empty variable"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DECIMA_CACHE")
    cache = default_cache()
    assert cache is not None
    cache.write(CLUSTER, VALUES)
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert (tmp_path / "decima" / "times-alone.sqlite").is_file()


def test_digests_depend_on_all_that_matters() -> None:
    profile = two_stages()
    first = profile.stages[0]
    durations = first.durations
    other_durations = [
        TaskDurations(durations.levels + 1, durations.values, durations.cells),
        TaskDurations(durations.levels, durations.values + 1, durations.cells),
        TaskDurations(durations.levels, durations.values, durations.cells[::-1]),
        TaskDurations(durations.levels, durations.values, durations.cells, mean_ms=5.0),
    ]
    others = [replace(first, durations=each) for each in other_durations]
    others += [replace(first, num_tasks=9), replace(first, cpu=0.5), replace(first, memory=0.5)]
    profiles = [profile, *(replace(profile, stages=(each, profile.stages[1])) for each in others)]
    profiles += [replace(profile, edges=np.zeros((0, 2), np.int64)), replace(profile, stages=profile.stages * 2)]
    assert len({content_digest(each) for each in profiles}) == len(profiles)
    assert content_digest(replace(profile, name="x")) == content_digest(profile)


def test_shipped_values_are_those_of_the_full_search(computed: list[JobProfile]) -> None:
    """A sample; ``python -m tests.times_alone`` computes all."""
    for number, config in enumerate(embedded_clusters()):
        values = shipped(cluster_text(config))
        assert all(content_digest(each) in values for each in embedded_tpch())
        if number % 5 == 0:
            [profile] = embedded_tpch()[7 * number % 132 :][:1]
            assert search_all([profile], config) == [time_alone(profile, config)]
    assert not computed
    assert shipped(CLUSTER) == {}
