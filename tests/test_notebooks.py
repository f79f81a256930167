"""The notebooks run, and print their committed outputs, except for cells with the tag "varies".

These cells train: their numbers depend on the last digit of an exponential, which differs between computers, and they
may show their progress on stderr. Tests replace a cell by the text ``fast`` in its metadata, so that a training takes
seconds instead of minutes. ``python -m tests.test_notebooks NAME..`` runs notebooks as they stand, by default
all, and stores their outputs.
"""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
VARIES = "varies"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path, *, fast: bool = False) -> nbformat.NotebookNode:
    """Return the notebook with new outputs.

    Args:
        fast: whether cells are replaced by their short variants.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells if fast else ():
        cell.source = cell.metadata.get("fast", cell.source)
    client = NotebookClient(
        notebook,
        timeout=600 if fast else None,  # a cell takes seconds, on a busy machine minutes
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER.parent)}},
    )
    client.execute()
    return notebook


def printed(cell: nbformat.NotebookNode, stream: str) -> str:
    """Return the concatenated output of a cell, which arrives in random pieces."""
    outputs = [output for output in cell.get("outputs", []) if output.output_type == "stream"]
    return "".join(output.text for output in outputs if output.name == stream)


@pytest.mark.pages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_is_committed(path: Path) -> None:
    committed = nbformat.read(path, as_version=4)
    for before, now in zip(committed.cells, execute(path, fast=True).cells, strict=True):
        if VARIES not in now.metadata.get("tags", []):
            assert printed(now, "stderr") == "", now.source
            assert printed(now, "stdout") == printed(before, "stdout"), now.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_stays_small(path: Path) -> None:
    assert path.stat().st_size < 400_000


def store(path: Path) -> None:
    """Run a notebook and store its outputs, without progress; nothing else changes."""
    metadata = nbformat.read(path, as_version=4).metadata
    notebook = execute(path)
    notebook.metadata = metadata  # the kernel adds its Python version
    for cell in notebook.cells:
        if cell.cell_type == "code":
            varies = VARIES in cell.metadata.get("tags", [])
            streams = [("stdout", printed(cell, "stdout")), ("stderr", "" if varies else printed(cell, "stderr"))]
            drawn = [output for output in cell.outputs if output.output_type != "stream"]
            cell.outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in streams if text]
            cell.outputs += drawn
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for notebook_path in [path for path in NOTEBOOKS if path.stem in sys.argv[1:] or not sys.argv[1:]]:
        sys.stdout.write(f"{notebook_path.name}\n")
        store(notebook_path)
