"""The notebooks run, and print their committed outputs, except for cells with the tag "varies".

These cells train: their numbers depend on the last digit of an exponential, which differs between computers.
``python -m tests.test_notebooks`` runs all notebooks and stores their outputs.
"""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
VARIES = "varies"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with new outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,  # a cell takes seconds, on a busy machine minutes
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
    for before, now in zip(committed.cells, execute(path).cells, strict=True):
        assert printed(now, "stderr") == "", now.source
        if VARIES not in now.metadata.get("tags", []):
            assert printed(now, "stdout") == printed(before, "stdout"), now.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_stays_small(path: Path) -> None:
    assert path.stat().st_size < 400_000


def store(path: Path) -> None:
    """Run a notebook and store its outputs; nothing else changes."""
    metadata = nbformat.read(path, as_version=4).metadata
    notebook = execute(path)
    notebook.metadata = metadata  # the kernel adds its Python version
    for cell in notebook.cells:
        if cell.cell_type == "code":
            streams = [("stdout", printed(cell, "stdout")), ("stderr", printed(cell, "stderr"))]
            drawn = [output for output in cell.outputs if output.output_type != "stream"]
            cell.outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in streams if text]
            cell.outputs += drawn
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        sys.stdout.write(f"{notebook_path.name}\n")
        store(notebook_path)
