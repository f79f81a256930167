"""Imports of commands and programs: slow modules of other projects, and number and lines of this project's modules.

A quick command spends most of its time on imports, and a person who changes one thing reads what it loads. The limits
are the numbers at the last change of this file.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.cases import cases

#: Modules of other projects that take long to import.
SLOW = {"gymnasium", "matplotlib", "networkx", "numba", "numpy", "pandas", "plotly", "pydantic", "rich", "torch"}
SLOW |= {"scipy.special", "scipy.stats", "simpy", "torch_geometric"}
#: Runs ``decima`` with the arguments, and writes the modules that it has imported to a file at the end.
PROGRAM = """
import atexit, json, pathlib, sys

file = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: file.write_text(json.dumps(
    {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
)))
from decima.cli.main import main
main()
"""
COMPARE = {"gymnasium", "numba", "numpy", "pandas", "pydantic", "rich", "scipy.special"}
#: Enough to check a file or a policy.
CHECKED = {"gymnasium", "numba", "numpy", "pydantic"}


@cases(
    "command, needed, num_modules, num_lines",
    ("--help", set(), 23, 3600),
    ("compare --help", {"gymnasium", "numpy", "pydantic"}, 31, 4550),
    ("train --help", set(), 10, 1330),
    ("schedulers", {"gymnasium", "numpy", "pydantic", "rich"}, 29, 3140),
    ("workload show", {"gymnasium", "numba", "numpy", "pydantic", "rich"}, 37, 5580),
    ("compare --workers 1 --seeds 1 --jobs 2 --executors 4 --schedulers fair,decima", COMPARE, 97, 15_760),
    ("compare --checkpoint garbage.npz", COMPARE, 96, 15_800),
    ("explain --policy garbage.npz", CHECKED, 55, 8_610),
    ("train --set start=garbage.npz --set behaviour_cloning=null --out new", CHECKED, 53, 7_910),
    ("deeprm compare --checkpoint garbage.npz", {"gymnasium", "numpy", "pydantic"}, 38, 6_240),
)
def test_a_command_imports_what_it_needs(
    command: str, needed: set[str], num_modules: int, num_lines: int, tmp_path: Path
) -> None:
    (tmp_path / "garbage.npz").write_text("garbage")
    program = [sys.executable, "-c", PROGRAM, "modules.json", *command.split()]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    if "Compiling the simulator" in done.stderr:  # once after a change of the code; loads all that is compiled
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == (2 if "garbage" in command else 0), done.stderr
    modules: dict[str, str | None] = json.loads((tmp_path / "modules.json").read_text())
    assert SLOW & modules.keys() <= needed
    check_size(modules, num_modules, num_lines)


def check_size(modules: dict[str, str | None], num_modules: int, num_lines: int) -> None:
    """Check number and lines of this project's modules among all modules, name -> file."""
    ours = [
        Path(str(file)) for name, file in modules.items() if name.split(".")[0] in ("decima", "simulator", "workloads")
    ]
    assert len(ours) <= num_modules
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in ours) <= num_lines


EPISODE = """
jobs = decima.batch_arrivals(decima.open_workload("tpch").profiles, num_jobs=2, seed=1)
decima.run_episode(decima.ClusterConfig(num_executors=4), jobs, decima.make_scheduler({!r}))
"""


@cases(
    "program, num_modules, num_lines",
    (EPISODE.format("fair"), 41, 6_700),
    (EPISODE.format("decima:embedded-batch"), 59, 9_940),
    ("decima.compare('fifo,fair', seeds=1, jobs=2, executors=5)", 61, 9_680),
)
def test_a_program_imports_what_it_needs(program: str, num_modules: int, num_lines: int, tmp_path: Path) -> None:
    modules = imported_by(program, tmp_path)
    assert not {"torch", "matplotlib", "simpy"} & modules.keys()
    check_size(modules, num_modules, num_lines)


def test_a_training_without_a_clone_imports_no_rule_to_clone(tmp_path: Path) -> None:
    few = "iterations=1, workload={'jobs': 2}, episodes={'sequences': 1}, validation={'sequences': 1}"
    modules = imported_by(f"decima.train('makespan', 'out', {few})", tmp_path)
    assert not {"decima.schedulers.srpt", "pandas", "matplotlib"} & modules.keys()
    check_size(modules, 92, 16_420)


def imported_by(program: str, folder: Path) -> dict[str, str | None]:
    """Run a program that uses decima in a folder; return the modules that it imports, name -> file."""
    code = f"""
import decima, json, sys
{program}
print(json.dumps({{name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    modules: dict[str, str | None] = json.loads(done.stdout)
    return modules
