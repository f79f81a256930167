"""The command ``decima reproduce grid``: a policy in a grid of settings. DeepRM's grids are in ``reproduce_grid``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from decima.cli.console import Tell
from decima.cli.options import (
    ABOVE_ZERO,
    COMPARISON_SEED,
    FILE,
    FOLDER,
    SEEDS,
    WORKERS,
    WholeRange,
    refuse_without_effect,
    with_options,
)
from decima.studies.settings_cells import CELLS

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["SETTINGS", "SETTINGS_TEXT", "on_settings"]

#: Sequences in each cell at full size, and at least; an interval needs two.
SEQUENCES, FEWEST = 10, 2

SETTINGS_TEXT = """Show in which settings a policy can be trusted.

Compares it with the strongest rule, with weighted fair sharing tuned in each sequence, and with fair sharing: on
batches and streams of TPC-H jobs, DAGs of a trace and random DAGs, on clusters of several sizes. The settings, called
cells, are fixed. Nothing is trained. About 10 minutes on 2 cores."""
SETTINGS = with_options(
    click.option(
        "--checkpoint",
        type=FILE,
        help="Policy file of decima train.  [default: in each cell the policy that ships for what is most like it]",
    ),
    click.option(
        "--profiles",
        metavar="DIR",
        type=FOLDER,
        help="Folder of the published TPC-H profiles.  [default: their cells are left out]",
    ),
    click.option(
        "--trace",
        type=FILE,
        help="Workload file with DAGs of a trace, from decima workload import alibaba; when its jobs arrived does not "
        "matter.  [default: their cells are left out]",
    ),
    click.option(
        "--cells",
        metavar="NAME",
        type=click.Choice(tuple(CELLS)),
        multiple=True,
        help=f"Only this cell; may be given several times. There are {', '.join(CELLS)}.",
    ),
    click.option(
        "--budget",
        type=ABOVE_ZERO,
        default=1.0,
        help=f"Size of the comparison; 1 is full size, {SEQUENCES} sequences in each cell.",
    ),
    click.option(
        *SEEDS, "seeds", type=WholeRange(FEWEST), help="Sequences in each cell, whatever the budget."
    ),
    # Seeds of training begin above.
    click.option("--seed", type=COMPARISON_SEED, default=0, help="Seed of the first sequence."),
    WORKERS,
)


def on_settings(
    name: str,
    command: str,
    tell: Tell,
    checkpoint: Path | None,
    profiles: Path | None,
    trace: Path | None,
    cells: tuple[str, ...],
    budget: float,
    seeds: int | None,
    seed: int,
    workers: int | str | None,
) -> Shown:
    """Measure the cells; what is not an option is as in ``reproduce_cluster.on_cluster``."""
    from decima.policy.files import load_actor
    from decima.studies.settings_grid import settings_grid, workloads
    from decima.studies.settings_grid_report import shown
    from decima.workers.pool import available_cpus

    sources = {CELLS[each].source for each in cells or CELLS}
    unused = {
        option for option, source in (("profiles", "published"), ("trace", "trace")) if source not in sources
    }
    refuse_without_effect(
        click.get_current_context(), dict.fromkeys(unused, "no cell that is named needs it")
    )
    if checkpoint is not None:
        load_actor(checkpoint)  # refused before the work begins
    grid = settings_grid(
        workloads(profiles, trace),
        cells,
        checkpoint=checkpoint,
        num_experiments=seeds or max(FEWEST, round(budget * SEQUENCES)),
        seed=seed,
        workers=workers or available_cpus(),
        tell=tell,
    )
    return shown(grid, command)
