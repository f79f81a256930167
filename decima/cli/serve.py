"""The command ``decima serve``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from decima.cli.console import print_line
from decima.cli.options import (
    EXECUTORS,
    FILE,
    FLAG,
    PATH,
    TEXT,
    WholeRange,
    guarantee_options,
    guarantees_named,
    option,
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
    "Estimates of jobs without history: forest predicts task times from a job's DAG and plan, learned from the jobs of "
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
    "--tenants FILE.yaml",
    PATH,
    "Tenants with quotas, weights and priorities for --slots, and their access tokens instead of one token. Page "
    "and metrics need a token too.",
    name="tenants_file",
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
@option(
    "--log-size MB",
    WholeRange(1, 1_000_000),
    "Rename the log when it has this size, and begin a new one. A file can be read without the earlier ones.",
)
@option("--log-daily", FLAG, "Rename the log when a day of local time has ended, and begin a new one.")
@option(
    "--audit FILE.jsonl",
    PATH,
    "Append a line to this file for each start and each change of policy, tenants, tokens or certificate.",
    name="audit_file",
)
@option(
    "--metrics PORT", PORT, "Serve metrics for Prometheus on this port, and /healthz and /readyz for probes."
)
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
    tenants_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_file: Path | None,
    log_size: int | None,
    log_daily: bool,
    audit_file: Path | None,
    metrics: int | None,
    http: int | None,
    json_logs: bool,
    **options: Any,
) -> None:
    """Schedule the jobs of a live Spark with a policy.

    Spark needs a plugin, see decima spark jar. The plugin asks this service over TCP or a Unix socket for the next
    stages and their numbers of task slots. If the service stops or hangs, Spark continues by itself. Ctrl-C or SIGTERM
    ends the service; after SIGHUP it opens its log again, for logrotate. After SIGUSR1 it reads policy, tenants, tokens
    and certificate again; it keeps the earlier ones if a file is malformed or the policy cannot decide.
    """
    import asyncio
    import contextlib
    import faulthandler

    from decima import __version__
    from decima.policy.file_format import POLICY
    from decima.policy.shipped import SHIPPED
    from decima.registry import LEARNED, SchedulerError, make_scheduler
    from decima.service.answering import Probe, Reload, Setup, run
    from decima.service.history import History
    from decima.service.inputs import Inputs, private_folder, read_inputs
    from decima.service.server import DEFAULT_TOKEN_FILE, logging_to_stderr
    from decima.service.service import Service, Watcher
    from simulator.cluster.estimates import predictor_for
    from simulator.cluster.estimators import open_estimator
    from workloads.errors import did_you_mean

    if not faulthandler.is_enabled():  # a crash in compiled code leaves a traceback
        faulthandler.enable(sys.__stderr__ or 2)
    if not (address.startswith("unix:") and len(address) > 5) and not (
        address.isascii() and address.isdigit() and len(address) < 6 and int(address) <= 65535
    ):
        raise click.UsageError(f"--spark {address!r}: expected a port or unix:PATH")
    if no_token and token_file is not None:
        raise click.UsageError("--token-file and --no-token exclude each other")
    if log_file is None and (log_size is not None or log_daily):
        raise click.UsageError("--log-size and --log-daily need --log")
    if (tls_cert is None) is not (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other")
    is_file = policy in SHIPPED or Path(policy).is_file() or Path(policy, POLICY).is_file()
    spec = f"{LEARNED}:{policy}" if is_file else policy
    if guarantees := guarantees_named(options):
        spec += guarantees.suffix

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
    certificate = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    has_tokens = tenants_file is not None and not no_token and token_file is None
    one_token = None if no_token or has_tokens else token_file or DEFAULT_TOKEN_FILE

    def ready(where: str) -> None:
        what = f"{spec}, in the shadow" if shadow else spec
        click.echo(f"serving {what} on {where}")
        if tenants_file is not None:
            click.echo(f"tenants: {tenants_file}")
        if one_token is not None:
            click.echo(f"token file: {one_token.expanduser()}")

    watchers: list[Watcher] = []
    accepted: list[Callable[[Inputs], object]] = []
    ended: list[Callable[[Inputs | None, str], object]] = []
    log, probe = None, Probe()
    with logging_to_stderr(json_logs), contextlib.ExitStack() as ends:
        read = partial(
            read_inputs,
            *(spec, one_token, tenants_file, certificate, ends.enter_context(private_folder())),
            has_tokens=has_tokens,
            has_slots=slots is not None,
        )
        inputs = read()
        if audit_file is not None:
            from decima.service.audit import AuditLog

            ended.append(AuditLog(audit_file, spec, inputs).ended)
        tls = readers = None  # ``readers``: tokens of the page and of the metrics
        if certificate is not None or inputs.tokens is not None:
            from decima.service.credentials import Tokens, load_certificate

            tls = None if certificate is None else load_certificate(*certificate)
            readers = Tokens.of_readers(inputs.token, inputs.tokens)
        if log_file is not None:
            from decima.service.log import DecisionLog

            log = DecisionLog(
                log_file, spec, shadow, None if log_size is None else log_size * 10**6, log_daily
            )
            ends.callback(log.close)
            watchers.append(log)
        if metrics is not None:
            with _extra("--metrics"):
                from decima.service.metrics import Metrics
            counted = Metrics()
            if log is not None:
                counted.watch_log(log)
            at, end = counted.listen(metrics, host, readers, tls, probe)
            ends.callback(end)
            watchers.append(counted)
            counted.show_inputs(__version__, spec, inputs)
            accepted.append(partial(counted.show_inputs, __version__, spec))
            ended.append(counted.reload_ended)
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
            accepted.append(page.use_inputs)
        make_service = partial(
            Service,
            history=past_jobs,
            pools=None if pools is None else pools.tenants,
            shadow=shadow,
            slots=slots,
        )

        def reloaded(new: Inputs | None, reason: str) -> None:
            for show in ended:
                show(new, reason)
            if new is None:
                return
            if tls is not None and certificate is not None:
                load_certificate(*certificate, tls)
            if readers is not None and (tokens := Tokens.of_readers(new.token, new.tokens)) is not None:
                readers.replace(tokens)
            for use in accepted:
                use(new)

        setup = Setup(make_service, inputs, address, host)
        asyncio.run(run(setup, ready, watchers, beside, probe, Reload(read, reloaded)))


@contextmanager
def _extra(option: str) -> Iterator[None]:
    """Report a missing library of an optional feature that the block imports."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(f"{option} needs {error.name}: pip install -e '.[serve]'") from None
