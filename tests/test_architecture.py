"""The layering of packages, checked by imports: one direction, no cycle, short chains."""

import ast
import importlib
from collections import Counter
from functools import cache
from pathlib import Path

from tests.cases import cases

ROOT = Path(__file__).parents[1]
#: A room imports rooms of its own floor's lower neighbours only: those that stand before it here.
ROAD = (
    "workloads", "simulator", "decima.outputs", "decima.settings", "decima.progress", "decima.schedulers", "decima.gym",
    "decima.policy", "decima.workers", "decima.registry", "decima.evaluation", "decima.learning", "decima.show",
    "decima.service", "decima.cli", "decima.__main__",
)  # fmt: skip
#: Nor do these know each other.
APART = (("simulator.cluster", "simulator.grid"),)
MOST_IN_A_CHAIN = 15
MOST_IN_DECIMA = 15


@cache
def modules() -> dict[str, Path]:
    """Return name -> file of every module of the three packages."""
    files = [file for top in ("workloads", "simulator", "decima") for file in (ROOT / top).rglob("*.py")]
    return {".".join(_parts(file)): file for file in files}


def _parts(file: Path) -> tuple[str, ...]:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imports(module: str, inside: bool) -> frozenset[str]:
    """Return the project's modules that a module imports at run time, including imports in functions if ``inside``."""
    found = set()
    pending: list[tuple[ast.AST, bool]] = [(tree(module), False)]
    while pending:
        node, in_function = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if inside or not in_function:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules() else name.rpartition(".")[0] for name in names}
        statements = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
        pending += [(child, in_function) for child in statements]
    return frozenset(found & modules().keys() - {module})


def room(module: str) -> str:
    """The room that a module lies in."""
    return next((each for each in ROAD if module == each or module.startswith(f"{each}.")), module)


def within(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")


def test_no_arrow_runs_up() -> None:
    for module in modules():
        here = room(module)
        for other in imports(module, True):
            if here in ROAD and room(other) in ROAD:
                assert ROAD.index(room(other)) <= ROAD.index(here), f"{module} imports {other}"
            for one, two in APART:
                assert not (within(module, one) and within(other, two)), f"{module} imports {other}"
                assert not (within(module, two) and within(other, one)), f"{module} imports {other}"


def test_no_circle_and_no_long_chain() -> None:
    longest: dict[str, list[str]] = {}

    def chain(module: str, above: tuple[str, ...]) -> list[str]:
        assert module not in above, f"a circle: {' -> '.join((*above, module))}"
        if module not in longest:
            below = [chain(other, (*above, module)) for other in imports(module, False)]
            longest[module] = [module, *max(below, key=len, default=[])]
        return longest[module]

    best = max((chain(module, ()) for module in modules()), key=len)
    assert len(best) <= MOST_IN_A_CHAIN, " -> ".join(best)


def test_no_constant_of_a_module_has_two_values() -> None:
    for name in modules():
        found = Counter(
            each.id
            for statement in tree(name).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            for each in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(each, ast.Name)
        )
        assert {each for each, count in found.items() if count > 1} == set(), name


def loaded_with(module: str) -> frozenset[str]:
    """Return a module and all modules that its import loads."""
    loaded, pending = {module}, [module]
    while pending:
        new = imports(pending.pop(), False) - loaded
        loaded |= new
        pending += new
    return frozenset(loaded)


def test_an_import_in_a_function_spares_a_module() -> None:
    # Else it would stand at the top.
    for module in modules():
        late = imports(module, True) - imports(module, False)
        assert not late & loaded_with(module), module


def test_few_modules_are_directly_in_decima() -> None:
    doorstep = [path for path in (ROOT / "decima").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert len(doorstep) <= MOST_IN_DECIMA, sorted(path.name for path in doorstep)


@cases("package", "simulator", "workloads", *(f"decima.{each}" for each in ("evaluation", "learning", "policy")))
def test_what_a_package_exports_is_there(package: str) -> None:
    exporting = importlib.import_module(package)
    assert exporting.__all__
    for name in exporting.__all__:
        assert hasattr(exporting, name), name
