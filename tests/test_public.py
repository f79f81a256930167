"""Public names are documented, and the examples of docstrings are correct."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import decima
import workloads
from tests.cases import cases


@cases(
    "name",
    "workloads", "workloads.job", "workloads.drawn_attributes", "workloads.sources.tpch", "decima",
    "decima.evaluation.options", "simulator.cluster.env", "simulator.cluster.pyg", "simulator.grid.env",
    "decima.gym.interface", "simulator.grid.grid", "decima.evaluation.fit", "decima.evaluation.grid",
    "decima.schedulers.grid",
)  # fmt: skip
def test_the_example_of_a_docstring(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_public_names_are_documented_and_the_citation_has_the_version() -> None:
    for name in workloads.__all__:
        assert getattr(workloads, name).__doc__, name
    assert decima.__all__ == sorted([*decima._PLACES, "__version__"])
    for name in decima._PLACES:
        assert getattr(decima, name).__doc__, name
        assert name in dir(decima)
    with pytest.raises(AttributeError, match="module 'decima' has no attribute 'tain'"):
        decima.tain  # noqa: B018
    root = Path(__file__).resolve().parents[1]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (decima.__version__, project["license"])


def test_the_reference_begins_with_all_names_of_decima() -> None:
    """Each with a link to the heading of what it is; the site is built only if all headings exist."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "index.md").read_text()
    linked = dict(re.findall(r"\[`(\w+)`\]\([\w.]*#([\w.]+)\)", page))
    public = {name: getattr(decima, name) for name in decima._PLACES}
    assert linked == {name: f"{item.__module__}.{item.__qualname__}" for name, item in public.items()}


def test_requirements_exclude_unsafe_releases_and_allow_the_pinned_ones() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pinned = [line for line in (root / "constraints.txt").read_text().splitlines() if "==" in line]
    versions = {canonicalize_name(name): version for name, version in (line.split("==") for line in pinned)}
    unsafe = {"torch": "2.9.1", "starlette": "1.5.0", "filelock": "3.20.2", "ray": "2.53.0", "pyspark": "3.5.6"}
    extras = project["optional-dependencies"].values()
    for requirement in map(Requirement, [*project["dependencies"], *(each for extra in extras for each in extra)]):
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(versions[name]), requirement
        assert name not in unsafe or not requirement.specifier.contains(unsafe[name]), requirement


def test_reports_and_pictures_need_no_extra() -> None:
    """The README's commands work after its first line, as plotly is a dependency."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    installed = {re.split("[>=]", line)[0] for line in project["dependencies"]}
    assert "plotly" in installed
    for file in (root / "decima" / "show").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for package in {name.split(".")[0] for name in names} - sys.stdlib_module_names:
                assert package in installed | {"decima", "simulator", "workloads", "PIL"}, (file, package)


@cases(
    "statement, not_loaded",
    ("import workloads, simulator", {"numba", "pandas", "pydantic", "torch", "matplotlib"}),
    ("import decima", {"numpy", "numba", "pandas", "torch", "matplotlib", "gymnasium"}),
)
def test_what_is_not_needed_is_not_loaded(statement: str, not_loaded: set[str]) -> None:
    """Importing little is fast."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not not_loaded & set(done.stdout.split())
