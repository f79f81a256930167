"""Imports of each command: slow modules of other projects, and number and lines of the modules of this project.

A quick command spends most of its time on imports. The limits are the numbers at the last change of this file.
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
FAIR = "compare --workers 1 --seeds 1 --jobs 2 --executors 4 --schedulers fair"
COMPARE = {"gymnasium", "numba", "numpy", "pandas", "pydantic", "rich", "scipy.special", "simpy"}
#: Enough to check a file or a policy.
CHECKED = {"gymnasium", "numba", "numpy", "pydantic"}


@cases(
    "command, needed, num_modules, num_lines",
    ("--help", set(), 18, 3600),
    ("compare --help", {"gymnasium", "numpy", "pydantic"}, 39, 7400),
    ("train --help", set(), 18, 3600),
    ("schedulers", {"gymnasium", "numba", "numpy", "pydantic", "rich"}, 37, 6700),
    ("workload show", {"gymnasium", "numba", "numpy", "pydantic", "rich"}, 45, 8400),
    (FAIR, COMPARE, 92, 18_300),
    (f"{FAIR},decima", COMPARE, 113, 24_600),
    ("compare --workload missing.json", COMPARE, 87, 17_700),
    ("compare --checkpoint garbage.npz", COMPARE, 104, 22_500),
    ("explain --policy garbage.npz", CHECKED, 66, 13_300),
    ("train --set start=garbage.npz --set behaviour_cloning=null --out new", CHECKED, 76, 15_800),
    ("deeprm compare --checkpoint garbage.npz", CHECKED, 42, 8_800),
)
def test_a_command_imports_what_it_needs(
    command: str, needed: set[str], num_modules: int, num_lines: int, tmp_path: Path
) -> None:
    (tmp_path / "garbage.npz").write_text("garbage")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "modules.json", *command.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == (2 if "missing" in command or "garbage" in command else 0), done.stderr
    modules: dict[str, str | None] = json.loads((tmp_path / "modules.json").read_text())
    assert SLOW & modules.keys() <= needed
    ours = [
        Path(str(file)) for name, file in modules.items() if name.split(".")[0] in ("decima", "simulator", "workloads")
    ]
    assert len(ours) <= num_modules
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in ours) <= num_lines
