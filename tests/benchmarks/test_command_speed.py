"""CPU time of ``decima compare``, relative to the same episodes from Python.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_command_speed.py``. It first compiles what is not cached.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process wait for orphans of its children"),
]

#: The command's CPU time over that of the same episodes.
AT_MOST = 2.5
REPEATS = 3
COMMAND = [sys.executable, "-m", "decima", "compare", "--schedulers", "fair"]
EPISODES = """
import decima

profiles = decima.open_workload("tpch").profiles
for seed in range(20):
    jobs = decima.batch_arrivals(profiles, num_jobs=20, seed=seed)
    decima.run_episode(decima.ClusterConfig(num_executors=50), jobs, decima.make_scheduler("fair"))
"""
#: Runs the program in the arguments, and prints the CPU time of its processes, also of those that outlive it, s.
MEASURE = """
import ctypes, os, resource, subprocess, sys

SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
"""


def cpu_s(command: list[str], folder: Path) -> float:
    """Return the CPU time of a program with all its processes, s."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], cwd=folder, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def test_a_comparison_costs_little_more_than_its_episodes(tmp_path: Path) -> None:
    episodes = [sys.executable, "-c", EPISODES]
    for command in (COMMAND, episodes):
        cpu_s(command, tmp_path)  # compiles
    runs = [(cpu_s(COMMAND, tmp_path), cpu_s(episodes, tmp_path)) for _ in range(REPEATS)]
    command_s, episodes_s = map(min, zip(*runs, strict=True))
    print(
        f"\ndecima compare --schedulers fair: {command_s:.2f} s of CPU time, {command_s / episodes_s:.2f} times the "
        f"{episodes_s:.2f} s of its episodes from Python"
    )
    assert command_s <= AT_MOST * episodes_s
