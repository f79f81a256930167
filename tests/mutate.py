"""Mutation testing: change the code in one place, check whether a test fails, and repeat for every place.

    pip install -c constraints.txt -e '.[dev]'
    python -m tests.mutate simulator/cluster --tests tests/simulator --no-jit --out survivors.diff

The tests run once unchanged, with coverage by test; for a change, only the tests that reach its line are run, the
shortest first. Cosmic Ray lists possible changes; one change per place is drawn. Each process works in its own copy
of the checkout and forks for each change, so that libraries are imported once. A change that makes the tests fail or
hang is killed; the others are shown. ``--save`` and ``--load`` transfer the changes to another machine, which needs
no Cosmic Ray; ``--alive`` writes survivors for another run with slower tests.
"""

import ast
import difflib
import gzip
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import click
import coverage
import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Changes that are none: decorators compile or register, and small numbers that are equal are the same.
SKIPPED = (
    *("RemoveDecorator", "NoOp", "ExceptionReplacer", "VariableReplacer", "VariableInserter"),
    *("Operator_Eq_Is", "Operator_NotEq_IsNot", "Operator_Is_Eq", "Operator_IsNot_NotEq"),
)
LIBRARIES = (
    "gymnasium", "hypothesis", "networkx", "numba", "numpy", "pandas", "pydantic", "pytest", "scipy", "simpy",
    "torch",
)  # fmt: skip


class Mutant(NamedTuple):
    """One change: a file of the checkout, the changed line, and the new text of the file."""

    file: str
    line: int
    text: str


def mutants(files: Iterable[Path], seed: int) -> Iterator[Mutant]:
    """Return one change for each place of the files that can be changed."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    draw = random.Random(seed)
    for file in files:
        text = file.read_text()
        means_nothing = _lines_without_meaning(text)
        places: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for name in sorted(each for each in operator_names() if not each.endswith(SKIPPED)):
            operator = get_operator(name)()
            positions = [place for node in ast_nodes(get_ast(text)) for place in operator.mutation_positions(node)]
            for occurrence, (start, _) in enumerate(positions):
                if start not in means_nothing:
                    places.setdefault(start, []).append((name, occurrence))
        for start, choices in sorted(places.items()):
            name, occurrence = draw.choice(choices)
            changed = mutate_code(text, get_operator(name)(), occurrence)
            if changed is not None and _compiles(changed):
                yield Mutant(str(file.relative_to(ROOT)), start[0], changed)


class _Places(set[tuple[int, int]]):
    """Places inside some ranges of a text, each from (line, column) to (line, column)."""

    def __init__(self) -> None:
        self.stretches: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def __contains__(self, place: object) -> bool:
        return any(first <= place < last for first, last in self.stretches)  # type: ignore[operator]


def _lines_without_meaning(text: str) -> _Places:
    """Return lines without effect at run time: annotations, and code for type checkers."""
    found = _Places()
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.AST | None] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            parts.append(node)
        if isinstance(node, ast.Assign) and "__all__" in ast.dump(node.targets[0]):
            parts.append(node)
        for part in parts:
            if part is not None:
                first = (part.lineno, part.col_offset)  # type: ignore[attr-defined]
                last = (part.end_lineno, part.end_col_offset)  # type: ignore[attr-defined]
                found.stretches.append((first, last))
    return found


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def prepare() -> None:
    """Initialise a process: copy the checkout, and import libraries."""
    global _folder  # goes with the process
    _folder = tempfile.TemporaryDirectory()
    copy = Path(_folder.name) / ROOT.name
    ignored = shutil.ignore_patterns(".git", ".venv", "site", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, ignore=ignored)
    # Data that lie beside the checkout, if there are any.
    (Path(_folder.name) / "shared").symlink_to(ROOT.parent / "shared")
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the package that this file is of lies in the checkout itself
    for name in LIBRARIES:
        importlib.import_module(name)


class Reached(NamedTuple):
    """The tests that run each line of the changed packages, and the duration of each test.

    Attributes:
        tests: file and line -> names (node ids) of tests.
        seconds: name of a test -> wall-clock seconds; its keys are all tests.
    """

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def by(self, mutant: Mutant, most_s: float) -> list[str]:
        """Return names of the tests that reach a change, shortest first, of at most ``most_s`` seconds together.

        A line that runs only at import (a default, a constant) is reached by the tests of the enclosing function or
        class, or else of the file.
        """
        lines = self.tests.get(mutant.file, {})
        around = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(ast.parse((ROOT / mutant.file).read_text()))
            if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
        ]
        found: set[str] = set(lines.get(mutant.line, ()))
        for first, last in [*sorted(around, key=lambda each: each[1] - each[0]), (1, 1 << 30)]:
            if not found:
                found = {name for line, names in lines.items() if first <= line <= last for name in names}
        chosen, total_s = [], 0.0
        for name in sorted(found or self.seconds, key=lambda each: self.seconds.get(each, 0.0)):
            total_s += self.seconds.get(name, 0.0)
            if chosen and total_s > most_s:
                break
            chosen.append(name)
        return chosen


class _Watch:
    """A plugin of pytest that records which test runs which line (by contexts of coverage), and the seconds of each
    test.
    """

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration


class _Choice:
    """A plugin of pytest that keeps only the chosen tests, in this order."""

    def __init__(self, names: list[str]) -> None:
        self.place = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place), key=lambda item: self.place[item.nodeid]
        )


def reached(folders: list[str], tests: list[str], limit_s: float) -> Reached | None:
    """Run the tests unchanged and return which test reaches which line; None if they fail."""
    with tempfile.NamedTemporaryFile() as answer:
        if not _pass(tests, limit_s, watch=(folders, answer.name)):
            return None
        lines, seconds = json.loads(Path(answer.name).read_text())
    return Reached({file: {int(at): names for at, names in of.items()} for file, of in lines.items()}, seconds)


def survives(mutant: Mutant, tests: list[str], limit_s: float) -> bool:
    """Return whether the tests with these names pass with this change."""
    file = Path(mutant.file)
    before = file.read_text()
    file.write_text(mutant.text)
    try:
        return _pass(list(dict.fromkeys(name.partition("::")[0] for name in tests)), limit_s, choice=tests)
    finally:
        file.write_text(before)


class _Limit:
    """Ends the process when one test has used this CPU time, s, so that the load of the machine does not matter."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    def pytest_runtest_setup(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, self.limit_s)


def _run(tests: list[str], plugins: list[Any], watch: tuple[list[str], str] | None) -> int:
    """Run pytest in this process and return its exit status."""
    # That an example fails is enough; a simpler one that fails would take minutes to find.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation",
        phases=phases,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not benchmark"]
    # Libraries are imported already.
    options += ["--hypothesis-profile=mutation", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    if watch is None:
        return int(pytest.main([*options, *tests], plugins=plugins))
    folders, answer = watch
    measured = coverage.Coverage(data_file=None, include=[f"{folder}/*" for folder in folders])
    watched = _Watch(measured)
    measured.start()
    status = int(pytest.main([*options, *tests], plugins=[*plugins, watched]))
    measured.stop()
    data = measured.get_data()
    lines = {
        os.path.relpath(file): {
            at: [name for name in names if name] for at, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    Path(answer).write_text(json.dumps([lines, watched.seconds]))
    return status


def _pass(
    tests: list[str], limit_s: float, choice: list[str] | None = None, watch: tuple[list[str], str] | None = None
) -> bool:
    """Return whether the tests pass in a fork of this process."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if watch is None:  # a test that fails on the code as it is, is shown
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        plugins: list[Any] = [] if watch else [_Limit(limit_s)]
        if choice is not None:
            plugins.append(_Choice(choice))
        os._exit(_run(tests, plugins, watch))
    until = time.monotonic() + (3600 if watch else 30 * limit_s)  # for what waits
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            # 5: the change gives other names to all chosen tests, which proves nothing.
            return os.waitstatus_to_exitcode(status) in (0, 5)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def show(survivors: list[Mutant]) -> str:
    """Return the changes that no test detected, as one diff."""
    parts = []
    for mutant in sorted(survivors):
        before = (ROOT / mutant.file).read_text().splitlines(keepends=True)
        parts += difflib.unified_diff(before, mutant.text.splitlines(keepends=True), mutant.file, mutant.file, n=1)
    return "".join(parts)


def _write(path: Path, found: list[Mutant]) -> None:
    path.write_bytes(gzip.compress(json.dumps(found).encode()))


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--tests", multiple=True, required=True, help="Tests that must notice; may be given several times.")
@click.option("--no-jit", is_flag=True, help="Run compiled code as plain Python, which spares compiling each change.")
@click.option("--most", type=int, help="Only so many changes, drawn by chance.")
@click.option("--seed", default=0)
@click.option("--processes", default=os.cpu_count() or 1)
@click.option("--limit", "limit_s", default=40.0, help="Seconds of CPU time after which a test hangs.")
@click.option("--within", "within_s", default=60.0, help="Seconds of tests that are run for one change.")
@click.option("--until", "until_s", type=float, help="Seconds after which no more changes are tried.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("survivors.diff"))
@click.option("--save", type=click.Path(path_type=Path), help="Write the changes to this file, and end.")
@click.option("--alive", type=click.Path(path_type=Path), help="Write what survives to this file, for --load.")
@click.option("--load", type=click.Path(exists=True, path_type=Path), help="Take the changes from this file.")
def main(folders, tests, no_jit, most, seed, processes, limit_s, within_s, until_s, out, save, alive, load) -> None:
    """Try changes of the code in FOLDERS and print the share that the tests detect."""
    if load is not None:
        found = [Mutant(*each) for each in json.loads(gzip.decompress(load.read_bytes()))]
    else:
        files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
        found = list(mutants(files, seed))
    random.Random(seed).shuffle(found)
    found = found[:most]
    if save is not None:
        _write(save, found)
        click.echo(f"{len(found)} changes in {save}")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    if no_jit:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    tried, survivors = Counter[str](), []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=prepare) as pool:
        watched = pool.submit(reached, [str(folder) for folder in folders], list(tests), limit_s).result()
        if watched is None:
            raise click.ClickException("the tests fail as it is")
        runs = {pool.submit(survives, mutant, watched.by(mutant, within_s), limit_s): mutant for mutant in found}
        try:
            for run in as_completed(runs, timeout=until_s):
                tried[runs[run].file] += 1
                if run.result():
                    survivors.append(runs[run])
                    click.echo(f"survives: {runs[run].file}:{runs[run].line}", err=True)
                if sum(tried.values()) % 50 == 0:
                    click.echo(f"{sum(tried.values())} tried, {len(survivors)} survive", err=True)
        except TimeoutError:
            pool.shutdown(cancel_futures=True)
    left = Counter(mutant.file for mutant in survivors)
    for file in sorted(tried):
        click.echo(f"{file}: {tried[file] - left[file]} of {tried[file]} killed")
    total = sum(tried.values())
    share = 1 - len(survivors) / max(total, 1)
    click.echo(f"{total - len(survivors)} of {total} changes killed ({share:.1%}); {len(found) - total} not tried")
    out.write_text(show(survivors))
    if alive is not None:
        _write(alive, survivors)


if __name__ == "__main__":
    main()
