"""The command ``decima benchmark``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from decima.cli.console import command_line, report
from decima.cli.options import (
    FILE,
    FOLDER,
    JSON,
    POLICY_FILE,
    SEEDS,
    TEXT,
    WORKERS,
    WholeRange,
    option,
    out_option,
)
from decima.progress import progress


@click.command(context_settings={"show_default": True})
@option(
    "--schedulers A,B,..",
    TEXT,
    "Schedulers to measure: names that 'decima schedulers' lists, or module:Class for your own.  "
    "[default: all shipped ones]",
)
@option(
    "--checkpoint",
    POLICY_FILE,
    "Policy file of decima train.  [default: in each setting the shipped policy of the most similar setting]",
)
@option(
    "--profiles DIR",
    FOLDER,
    "Folder of the published TPC-H profiles.  [default: their settings are left out]",
)
@option(
    "--trace", FILE, "Workload file with the DAGs of Alibaba's trace.  [default: their setting is left out]"
)
@option(
    "--settings NAME",
    TEXT,
    "Only this setting; may be given several times. A part of the settings gives no comparable score.",
    multiple=True,
)
@option(SEEDS, WholeRange(2), "Sequences in each setting; version 1 has 20.", 20)
@WORKERS
@JSON
@out_option("benchmark")
@click.pass_context
def benchmark(
    context: click.Context,
    /,
    schedulers: str | None,
    checkpoint: Path | None,
    profiles: Path | None,
    trace: Path | None,
    settings: tuple[str, ...],
    seeds: int,
    workers: int | str | None,
    json_file: Path | None,
    out: Path,
) -> None:
    """Measure schedulers in twelve fixed settings, and give each a score.

    Batches and streams of TPC-H jobs, random DAGs, DAGs of a trace, executors of four sizes, wrong estimates and
    faults, on seeds that nothing is trained or tuned on. The score is the geometric mean of the mean JCT relative
    to fair sharing. docs/benchmark.md has the scores of all shipped schedulers, and the sources of the published
    jobs and the trace. Some 4 minutes of CPU time for a rule.
    """
    from decima.evaluation.benchmark import SCHEDULERS, run_benchmark
    from decima.outputs import prepare_outputs
    from decima.show.benchmark import benchmark_report

    prepare_outputs(out, json_file)
    with progress() as update:
        comparisons = run_benchmark(
            schedulers or SCHEDULERS,
            checkpoint,
            profiles=profiles,
            trace=trace,
            settings=settings,
            seeds=seeds,
            workers=workers,
            on_step=partial(update, "running the benchmark"),
        )
    report(benchmark_report(comparisons, command_line(context)), out, json_file)
