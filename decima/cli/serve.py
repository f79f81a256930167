"""The commands ``serve``, ``report`` and ``replay-live`` of the service, ``replay`` of recorded runs, and ``spark``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from decima.cli.console import (
    INTERRUPTED,
    PATIENCE_S,
    Commands,
    command_line,
    end,
    print_line,
    progress,
    report,
)
from decima.cli.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    EXECUTORS,
    FILE,
    FLAG,
    JSON,
    NOT_NEGATIVE,
    PATH,
    POLICY_FILE,
    SEED,
    SHARE,
    TEXT,
    WholeRange,
    guarantee_options,
    guarantees_named,
    option,
    out_option,
)

PORT = WholeRange(0, 65535)


@click.command()
@option(
    "--policy NAME|FILE",
    TEXT,
    "Scheduler: a name of decima schedulers, a shipped policy, or a policy file.",
    "srpt-tuned",
    show_default=True,
)
@guarantee_options("the scheduler; tenants are Spark's pools")
@option(
    "--spark PORT|unix:PATH",
    TEXT,
    "Address for drivers: a port (0: any free port), or a Unix socket.",
    "7733",
    name="address",
    show_default=True,
)
@option("--host", TEXT, "Address to listen on.", "127.0.0.1", show_default=True)
@option("--history", FILE, "Profiles of earlier jobs: a workload file of decima workload import spark.")
@option(
    "--estimator forest|typical|FILE",
    TEXT,
    "Estimates of jobs without history: forest predicts task times from the job's DAG, learned from the jobs of "
    "--history; typical is their typical task time; FILE is a model file of decima train-estimator.",
    "forest",
    show_default=True,
)
@option("--shadow", FLAG, "Spark keeps its own order; the policy's decisions are only logged.")
@option("--slots", EXECUTORS, "Number of slots of a cluster whose executors may move between applications.")
@option(
    "--pools FILE.xml",
    PATH,
    "Spark's fairscheduler.xml: weights and minimum shares of pools, which hold under any policy.  "
    "[default: the file that the driver reads]",
    name="pools_file",
)
@option(
    "--token-file",
    PATH,
    "File with the token that drivers must send; created if it is missing.  [default: ~/.decima/token]",
)
@option("--no-token", FLAG, "Serve drivers without a token.")
@option(
    "--tokens FILE",
    PATH,
    "File of several tokens instead of one. Each line has a token, a name, requests per second and the last day "
    "of validity (or -). Page and metrics need a token too.",
    name="tokens_file",
)
@option(
    "--tls-cert FILE.pem",
    PATH,
    "Certificate chain; all ports use TLS, and page and metrics need the token too.",
)
@option("--tls-key FILE.pem", PATH, "Private key of the certificate.")
@option(
    "--log FILE.jsonl",
    PATH,
    "Write messages of drivers and decisions to this file, for decima replay-live.",
    name="log_file",
)
@option("--metrics PORT", PORT, "Serve metrics for Prometheus on this port.")
@option("--http PORT", PORT, "Serve a status page on this port.")
@option("--json-logs", FLAG, "Log to stderr as JSON lines.")
def serve(
    policy: str,
    address: str,
    host: str,
    history: Path | None,
    estimator: str,
    shadow: bool,
    slots: int | None,
    pools_file: Path | None,
    token_file: Path | None,
    no_token: bool,
    tokens_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_file: Path | None,
    metrics: int | None,
    http: int | None,
    json_logs: bool,
    **options: Any,
) -> None:
    """Schedule the jobs of a live Spark with a policy.

    Spark needs a plugin, see decima spark jar. The plugin asks this service over TCP or a Unix socket for the next
    stages and their numbers of task slots. If the service stops or hangs, Spark continues by itself. Ctrl-C or SIGTERM
    ends the service.
    """
    import asyncio
    import contextlib
    import faulthandler

    from decima.policy.archive import POLICY
    from decima.policy.shipped import SHIPPED
    from decima.registry import LEARNED, SchedulerError, make_scheduler
    from decima.service.answering import Setup, run
    from decima.service.history import History
    from decima.service.server import DEFAULT_TOKEN_FILE, logging_to_stderr, read_token
    from decima.service.service import Service, Watcher
    from simulator.cluster.config import open_estimator
    from simulator.cluster.estimates import predictor_for
    from workloads.errors import did_you_mean

    if not faulthandler.is_enabled():  # a crash in compiled code leaves a traceback
        faulthandler.enable(sys.__stderr__ or 2)
    if not (address.startswith("unix:") and len(address) > 5) and not (
        address.isascii() and address.isdigit() and len(address) < 6 and int(address) <= 65535
    ):
        raise click.UsageError(f"--spark {address!r}: expected a port or unix:PATH")
    if no_token and token_file is not None:
        raise click.UsageError("--token-file and --no-token exclude each other")
    if tokens_file is not None and (no_token or token_file is not None):
        raise click.UsageError("--tokens excludes --token-file and --no-token")
    if (tls_cert is None) is not (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other")
    is_file = policy in SHIPPED or Path(policy).is_file() or Path(policy, POLICY).is_file()
    spec = (f"{LEARNED}:{policy}" if is_file else policy) + guarantees_named(options).suffix

    try:
        make_scheduler(spec)  # raises before any other work
    except SchedulerError as error:
        near = did_you_mean(policy, SHIPPED)
        ships = "" if ":" in policy else f"; or a policy file, or one of {', '.join(SHIPPED)}{near}"
        raise click.UsageError(f"{error}{ships}") from None
    pools = None
    if pools_file is not None:
        from decima.service.pools import read_pools

        pools = read_pools(pools_file)
        if slots is not None:
            raise click.UsageError("--pools has no effect with --slots: pools belong to one application")
        for pool in pools.fair:
            print_line(
                f"pool {pool}: schedulingMode FAIR has no effect, the pool's jobs are in the policy's order",
                err=True,
            )
    fitted = open_estimator(estimator)
    if history is not None:
        from workloads.sources.open import open_workload

        past_jobs = History.of(open_workload(history), fitted)
    else:
        past_jobs = History(predictor=predictor_for(fitted, ()))
    token = "" if no_token or tokens_file is not None else read_token(token_file or DEFAULT_TOKEN_FILE)
    tokens = certificate = tls = readers = None  # ``readers``: tokens of the page and of the metrics
    if tokens_file is not None:
        from decima.service.credentials import Tokens, read_tokens

        tokens = readers = Tokens(read_tokens(tokens_file))
    if tls_cert is not None and tls_key is not None:
        from decima.service.credentials import Token, Tokens, load_certificate

        certificate = tls_cert, tls_key
        tls = load_certificate(*certificate)
        if token:
            readers = Tokens([Token.of("the token file", token)])

    def ready(where: str) -> None:
        what = f"{spec}, in the shadow" if shadow else spec
        click.echo(f"serving {what} on {where}")
        if tokens_file is not None:
            click.echo(f"tokens: {tokens_file}")
        elif not no_token:
            click.echo(f"token file: {(token_file or DEFAULT_TOKEN_FILE).expanduser()}")

    watchers: list[Watcher] = []
    with logging_to_stderr(json_logs), contextlib.ExitStack() as ends:
        if log_file is not None:
            from decima.service.log import DecisionLog

            log = DecisionLog(log_file, spec, shadow)
            ends.callback(log.close)
            watchers.append(log)
        if metrics is not None:
            with _extra("--metrics"):
                from decima.service.metrics import Metrics
            counted = Metrics()
            at, end = counted.listen(metrics, host, readers, tls)
            ends.callback(end)
            watchers.append(counted)
            click.echo(f"metrics: {at}")
        beside: Callable[[], AbstractAsyncContextManager[object]] = contextlib.nullcontext
        if http is not None:
            with _extra("--http"):
                from decima.service.page import Page
            page = Page(spec, shadow)
            beside = partial(
                page.listen, http, host, lambda at: click.echo(f"page: {at}"), readers, certificate
            )
            watchers.append(page)
        new_scheduler = partial(make_scheduler, spec)
        make_service = partial(
            Service,
            new_scheduler,
            past_jobs,
            token=token,
            tokens=tokens,
            pools=None if pools is None else pools.tenants,
            shadow=shadow,
            slots=slots,
        )
        setup = Setup(make_service, new_scheduler, address, host, certificate)
        asyncio.run(run(setup, ready, watchers, beside))


@contextmanager
def _extra(option: str) -> Iterator[None]:
    """Report a missing library of an optional feature that the block imports."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(f"{option} needs {error.name}: pip install -e '.[serve]'") from None


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


@click.group(cls=Commands)
def spark() -> None:
    """Predict the gain of other schedulers on a real Spark, and install the plugin for a policy."""


@spark.command()
def jar() -> None:
    """Print the path of the plugin for Spark 3.3 to 4.x, a value for spark.jars."""
    from decima.service.plugin import JAR

    click.echo(JAR)


@spark.command(name="build")
@option(
    "--spark HOME",
    click.Path(exists=True, file_okay=False, path_type=Path),
    "Home folder of the Spark to compile for, with a folder jars.",
    name="home",
    required=True,
)
@option("--out FILE.jar", PATH, "File to write.", "decima-spark.jar", show_default=True)
def build_(home: Path, out: Path) -> None:
    """Compile the plugin for a Spark that the shipped plugin does not support. Needs a JDK, version 9 or later."""
    from decima.service.plugin import build

    build(home, out)
    click.echo(out)


@click.command(name="what-if", context_settings={"show_default": True})
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@option(
    "--executors",
    EXECUTORS,
    "Number of task slots of the cluster.  [default: the largest number at any time in the logs]",
)
@option(
    "--moving-delay",
    NOT_NEGATIVE,
    "Delay of a slot that moves to another job, seconds.  [default: 0 if one application ran all jobs, else the "
    "executors' start-up time]",
)
@option("--policy NAME|FILE", TEXT, "Also predict decima with this policy file, or shipped policy.")
@option(
    "--unknown",
    SHARE,
    "Share of jobs without history, whose task times schedulers only estimate.",
    0.0,
)
@option(
    "--estimator forest|typical|FILE",
    TEXT,
    "Estimates of jobs without history: forest is fitted to the other queries of the logs, typical is the typical task "
    "time, FILE is a model file of decima train-estimator.",
    "forest",
)
@option("--draws", AT_LEAST_ONE, "Number of simulations of each scheduler.", 20)
@option("--seed", SEED, "Seed of the first simulation.", 0)
@option(
    "--keep-warm-up",
    FLAG,
    "Keep the jobs that an application ran one by one before the first two overlapping jobs.",
    name="keep",
)
@option("--partial", FLAG, "Keep the readable part of damaged logs.", name="damaged")
@JSON
@out_option()
@click.pass_context
def what_if(
    context: click.Context,
    /,
    logs: Sequence[Path],
    executors: int | None,
    moving_delay: float | None,
    policy: str | None,
    unknown: float,
    estimator: str,
    draws: int,
    seed: int,
    keep: bool,
    damaged: bool,
    json_file: Path | None,
    out: Path | None,
) -> None:
    """Predict the completion times of your jobs under other schedulers.

    Reads Spark's event logs in LOGS (files, folders, zip archives) and simulates their jobs at their real arrival times
    under Spark's FIFO and FAIR, weighted fair sharing, and the rules srpt and srpt-tuned. Shows the gain with its
    uncertainty. Applications that ran at the same time under one master shared a cluster; all other applications are
    predicted separately.
    """
    from decima.evaluation.spark.logged_jobs import logged_jobs, predict_held_out
    from decima.evaluation.spark.what_if import SCHEDULERS, simulate_what_if
    from decima.outputs import prepare_outputs
    from decima.registry import LEARNED, make_scheduler
    from decima.show.what_if import shown
    from simulator.cluster.config import Knowledge, open_estimator
    from workloads.spark.importing import import_event_logs

    schedulers = {**SCHEDULERS}
    if policy is not None:
        schedulers[LEARNED] = f"{LEARNED}:{policy}"
        make_scheduler(schedulers[LEARNED])  # raises before the logs are read
    knowledge = Knowledge(unknown=unknown, estimator=open_estimator(estimator))
    prepare_outputs(out, json_file)
    imported = import_event_logs(logs, partial=damaged, warm_ups=keep, name="the logs")
    logged = logged_jobs(imported, executors, None if moving_delay is None else 1000 * moving_delay)
    try:
        with progress(PATIENCE_S) as update:
            held_out = predict_held_out(imported, on_step=partial(update, "predicting runs")).with_driver()
            simulated = simulate_what_if(
                imported, held_out, logged, schedulers, draws, seed, partial(update, "simulating"), knowledge
            )
    except KeyboardInterrupt:
        end("interrupted", INTERRUPTED)
    report(shown(simulated, command_line(context), imported.notes), out, json_file)


spark.add_command(what_if)
