"""The commands ``decima replay`` of recorded episodes, ``replay-live`` and ``report`` of logs of the service."""

from __future__ import annotations

from pathlib import Path

import click

from decima.cli.console import print_line, report
from decima.cli.options import (
    ABOVE_ZERO,
    FILE,
    JSON,
    PATH,
    POLICY_FILE,
    option,
    out_option,
)


@click.command()
@option("--weights FILE.npz", POLICY_FILE, "Policy file of the network whose decisions were recorded.")
@click.argument("files", nargs=-1, required=True, type=PATH)
def replay(weights: Path | None, files: tuple[Path, ...]) -> int:
    """Replay recorded episodes, and count the episodes that match.

    FILES (JSON, gzipped or not) are episodes of the published Decima simulator, of its trained agent (with --weights;
    the network must make the same decisions) or of the public DeepRM code. Shows the first difference of each episode
    that does not match. The exit status is 0 only if all episodes match.
    """
    from simulator.parity import first_difference_in

    agent = None
    if weights is not None:
        from decima.policy.files import load_policy
        from decima.policy.parity import AgentReplay

        agent = AgentReplay(load_policy(weights))
    matching = 0
    for path in files:
        difference = first_difference_in(path, None if agent is None else agent.differences)
        matching += difference is None
        if difference is not None:
            print_line(f"{path}: {difference}")
    print_line(f"{matching} of {len(files)} episodes match")
    if agent is not None and agent.largest_difference >= 0:
        print_line(f"largest difference between probabilities: {agent.largest_difference:.2g}")
    return 0 if matching == len(files) else 1


@click.command("replay-live")
@click.argument("log", type=FILE)
@out_option("live")
@JSON
def replay_live(log: Path, out: Path, json_file: Path | None) -> None:
    """Show the jobs of the drivers of decima serve.

    LOG is the file of decima serve --log. Each driver with jobs is one episode: a row of the table, a picture of its
    schedule, and a picture of the number of its live jobs over time.
    """
    from decima.outputs import prepare_outputs
    from decima.service.log import read_log
    from decima.service.replay import live_report, replayed

    drivers = replayed(read_log(log))
    if not drivers:
        raise click.UsageError(f"{log}: no driver had a job")
    prepare_outputs(out, json_file)
    report(live_report(drivers), out, json_file)


@click.command("report")
@click.argument("log", type=FILE)
@option(
    "--timeout MS",
    ABOVE_ZERO,
    "Timeout of drivers (spark.decima.timeoutMs); answers that take longer count as late.",
    200.0,
    name="timeout_ms",
    show_default=True,
)
@JSON
def report_live(log: Path, timeout_ms: float, json_file: Path | None) -> None:
    """Summarise the log of decima serve.

    LOG is the file of decima serve --log. Shows answers per minute, times of answers, late and failed answers, refused
    connections, completion times of jobs, and the share of decisions in which the policy served another job first than
    FIFO would.
    """
    from decima.outputs import check_file
    from decima.service.log import read_log
    from decima.service.summary import summary_report

    if json_file is not None:
        check_file(json_file)
    report(summary_report(read_log(log), timeout_ms), None, json_file)
