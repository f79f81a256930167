"""Two processes that start simultaneously with an empty cache. This is a program, as forks inherit imported modules.

``python -m tests.simulator.cold FOLDER TIMES`` prints a line for each repetition: the number of compilations of the two
processes, and of a third one after them, and whether all results were right.
"""

import importlib
import os
import signal
import sys
from pathlib import Path

from simulator.compiled import _alone_with

FUNCTIONS = 20
HEADER = "from simulator.compiled import compiled, inner\n"
#: Source of a function, which calls the function before it, so that compiling one compiles others.
FUNCTION = """
@{kind}
def function_{number}(value):
    return {before} + {number}
"""


def write_module(folder: Path, name: str) -> None:
    """Write functions that only compiled code calls, except for the last one and each fifth."""
    source = HEADER
    for number in range(FUNCTIONS):
        kind = "compiled" if number % 5 == 4 else "inner"
        before = f"function_{number - 1}(value)" if number % 5 else "value"
        source += FUNCTION.format(kind=kind, number=number, before=before)
    (folder / f"{name}.py").write_text(source)


def use(name: str, values: list[float]) -> tuple[int, bool]:
    """Call the functions that Python may call; return the number of compilations, and whether results are right."""
    module = importlib.import_module(name)
    right = all(
        getattr(module, f"function_{number}")(value) == value + sum(range(number - 4, number + 1))
        for number in range(4, FUNCTIONS, 5)
        for value in values
    )
    functions = [getattr(module, f"function_{number}") for number in range(FUNCTIONS)]
    return sum(sum(each.stats.cache_misses.values()) for each in functions), right


def in_child(name: str, values: list[float]) -> int:
    """Use a module in a child process; return a descriptor to read the result from."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        compiled, right = use(name, values)
        os.write(writer, bytes([compiled, right]))
        os._exit(0)
    os.close(writer)
    return reader


def main(folder: Path, times: int) -> None:
    sys.path.insert(0, str(folder))
    if os.fork() == 0:
        with _alone_with(str(folder / "__pycache__" / "cold_0.lock")):
            os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    for number in range(times):
        name = f"cold_{number}"
        write_module(folder, name)
        both = [in_child(name, values) for values in ([1, 2.5], [2.5, 1])]
        found = [os.read(reader, 2) for reader in both]
        for _ in both:
            os.wait()
        found.append(os.read(in_child(name, [1, 2.5]), 2))
        os.wait()
        print(found[0][0] + found[1][0], found[2][0], all(each[1] for each in found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
