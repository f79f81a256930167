"""Prometheus metrics of the service."""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from decima.service.answering import OK, STARTING, Probe
from decima.service.credentials import CHALLENGE, Tokens, check_request
from decima.service.service import MOST_APPLICATIONS, Connected, ServeError, Watcher, one_line
from decima.service.snapshot import NO_QUOTA

if TYPE_CHECKING:
    from decima.service.inputs import Inputs
    from decima.service.log import DecisionLog

__all__ = ["Metrics"]

#: Upper bounds of the histogram buckets of durations, s.
BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Maximum number of open connections; the oldest is closed for a new one.
MOST_CONNECTIONS = 50
#: Time limit for a client to send a request, s.
PATIENCE_S = 10.0
_PHRASES = {
    200: "OK",
    503: "Service Unavailable",
    401: "Unauthorized",
    403: "Forbidden",
    429: "Too Many Requests",
}


class Metrics(Watcher):
    """Counts events of the service as Prometheus metrics, whose names begin with ``decima_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._questions = Counter("decima_questions", "Questions answered.", registry=registry)
        self._decisions = Counter("decima_decisions", "Decisions made by the policy.", registry=registry)
        self._refused = Counter("decima_refused", "Connections refused.", registry=registry)
        self._failed = Counter(
            "decima_failed_decisions",
            "Questions answered with Spark's own order after a failure of the policy.",
            registry=registry,
        )
        self._late, self._lost, self._fallback = (
            Counter(name, text, ["application"], registry=registry)
            for name, text in (
                (
                    "decima_late_answers",
                    "Questions without an answer within the driver's timeout, as drivers count.",
                ),
                (
                    "decima_lost_answers",
                    "Questions whose connection ended before the answer, as drivers count.",
                ),
                (
                    "decima_fallback_seconds",
                    "Time with tasks in Spark's own order for want of an answer, as drivers count.",
                ),
            )
        )
        self._skipped = Counter(
            "decima_skipped_questions",
            "Questions answered with Spark's own order, because a decision would have delayed other drivers.",
            ["application"],
            registry=registry,
        )
        self._answer = Histogram(
            "decima_answer_seconds",
            "Time from receiving a question to its answer.",
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._policy = Histogram(
            "decima_policy_seconds", "Time spent in the policy.", buckets=BUCKETS_S, registry=registry
        )
        self._build = Gauge(
            "decima_build_info",
            "1, with the version, and the name and SHA-256 of the policy in use.",
            ["version", "policy", "policy_sha256"],
            registry=registry,
        )
        self._reload_ok = Gauge("decima_reload_ok", "Whether the last reload succeeded.", registry=registry)
        self._reload_ok.set(1)
        self._drivers = Gauge("decima_drivers", "Connected drivers.", registry=registry)
        self._jobs = Gauge("decima_jobs", "Live jobs.", registry=registry)
        self._slots = Gauge("decima_slots", "Task slots of connected drivers.", registry=registry)
        self._tenant_slots, self._tenant_pending, self._quota = (
            Gauge(name, text, ["tenant"], registry=registry)
            for name, text in (
                ("decima_tenant_slots", "Task slots of a tenant's connected drivers."),
                ("decima_tenant_pending_tasks", "Tasks of a tenant's ready stages that have not started."),
                ("decima_tenant_quota_slots", "Quota of a tenant, task slots; infinite without a quota."),
            )
        )
        self._tenant_questions = Counter(
            "decima_tenant_questions", "Questions answered, by tenant.", ["tenant"], registry=registry
        )
        #: Tenant -> number of the connection -> slots and pending tasks.
        self._by_tenant: dict[str, dict[int, tuple[int, int]]] = {}
        self._live: dict[int, tuple[int, int]] = {}
        self._names: set[str] = set()
        self._certificate: Gauge | None = None

    def show_inputs(self, version: str, policy: str, inputs: Inputs) -> None:
        """Export the version, the policy's name and digest, and the end of the certificate's validity."""
        self._build.clear()
        self._build.labels(version, one_line(policy), inputs.policy_sha256).set(1)
        self._quota.clear()
        for name, share in ({} if inputs.tenants is None else inputs.tenants.shares).items():
            self._quota.labels(name).set(share.quota if share.quota < NO_QUOTA else math.inf)
            self._show_tenant(name)
        if inputs.certificate_end is not None:
            if self._certificate is None:
                self._certificate = Gauge(
                    "decima_certificate_expiry_timestamp_seconds",
                    "End of the certificate's validity, seconds since 1970.",
                    registry=self.registry,
                )
            self._certificate.set(inputs.certificate_end.timestamp())

    def reload_ended(self, inputs: Inputs | None, reason: str) -> None:
        """Export whether the last reload succeeded."""
        self._reload_ok.set(inputs is not None)

    def watch_log(self, log: DecisionLog) -> None:
        """Export whether the live log is written, and its number of lost lines."""
        self.registry.register(_LogCollector(log))

    def listen(
        self,
        port: int,
        host: str,
        tokens: Tokens | None = None,
        tls: ssl.SSLContext | None = None,
        probe: Probe | None = None,
    ) -> tuple[str, Callable[[], None]]:
        """Serve the metrics over HTTP or HTTPS, and ``/healthz`` and ``/readyz``.

        Args:
            port: port number; 0: any free port.
            host: name or address of the interface.
            tokens: valid access tokens; None: requests need no token.
            tls: context with the certificate; None: connections are not encrypted.
            probe: decides the results of ``/healthz`` and ``/readyz``, which never need a token.

        Returns:
            URL of the metrics, and a function that stops the server.

        Raises:
            ServeError: the port is in use.
        """
        try:
            server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ServeError(f"cannot listen on {host}:{port}: {reason}") from None
        server.tls = tls
        app: Any = make_wsgi_app(self.registry)
        if tokens is not None:
            app = _with_tokens(app, tokens)
        server.set_app(app if probe is None else _with_probes(app, probe))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"{'http' if tls is None else 'https'}://{host}:{server.server_port}/metrics", end

    def welcomed(self, driver: Connected) -> None:
        """Count a driver that has connected."""
        self._show(driver.number, (0, 0))
        for counter in (self._late, self._lost, self._fallback, self._skipped):
            counter.labels(self._application(driver))  # exports 0, so that the first increase is seen
        if driver.tenant:
            self._show_tenant(driver.tenant)

    def answered(self, driver: Connected) -> None:
        """Count a question and its answer."""
        assert driver.decided is not None
        assert driver.state is not None
        self._failed.inc(bool(driver.decided.failure))
        self._questions.inc()
        self._decisions.inc(len(driver.decided.choices))
        self._answer.observe(driver.took_ms / 1000)
        self._policy.observe(driver.decided.policy_ms / 1000)
        if (missed := driver.state.missed) is not None:
            name = self._application(driver)
            self._late.labels(name).inc(missed.late)
            self._lost.labels(name).inc(missed.lost)
            self._fallback.labels(name).inc(missed.fallback_ms / 1000)
        self._show(driver.number, (len(driver.state.jobs), driver.decided.slots))
        if driver.tenant:
            pending = sum(
                stage.pending for job in driver.state.jobs for stage in job.stages if stage.state == "ready"
            )
            self._show_tenant(driver.tenant, driver.number, (driver.decided.slots, pending))
            self._tenant_questions.labels(driver.tenant).inc()

    def skipped(self, driver: Connected, reason: str) -> None:
        """Count a question that was not decided."""
        self._skipped.labels(self._application(driver)).inc()

    def left(self, driver: Connected) -> None:
        """Count a driver that has disconnected."""
        self._show(driver.number, None)
        if driver.tenant:
            self._show_tenant(driver.tenant, driver.number)

    def refused(self, reason: str) -> None:
        """Count a refused connection."""
        self._refused.inc()

    def _application(self, driver: Connected) -> str:
        """Return the value of the label ``application``: the application's name, or one value for all further names."""
        name = one_line(driver.hello.name)
        if len(self._names) < MOST_APPLICATIONS:
            self._names.add(name)
        return name if name in self._names else "other"

    def _show_tenant(self, tenant: str, driver: int = -1, figures: tuple[int, int] | None = None) -> None:
        """Export the slots and pending tasks of a tenant after those of a driver have changed; None: it has left."""
        drivers = self._by_tenant.setdefault(tenant, {})
        drivers.pop(driver, None)
        if figures is not None:
            drivers[driver] = figures
        self._tenant_questions.labels(tenant)  # exports 0, so that the first increase is seen
        self._tenant_slots.labels(tenant).set(sum(slots for slots, _ in drivers.values()))
        self._tenant_pending.labels(tenant).set(sum(pending for _, pending in drivers.values()))

    def _show(self, driver: int, jobs_and_slots: tuple[int, int] | None) -> None:
        before = self._live.pop(driver, (0, 0))
        if jobs_and_slots is not None:
            self._live[driver] = jobs_and_slots
        now = jobs_and_slots or (0, 0)
        self._drivers.set(len(self._live))
        self._jobs.inc(now[0] - before[0])
        self._slots.inc(now[1] - before[1])


class _LogCollector(Collector):
    def __init__(self, log: DecisionLog) -> None:
        self._log = log

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the live log."""
        yield GaugeMetricFamily(
            "decima_log_ok", "Whether the live log can be written.", float(self._log.is_ok)
        )
        yield CounterMetricFamily(
            "decima_log_lost_lines", "Lines of the live log that could not be written.", self._log.lost_lines
        )


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, *_: Any) -> None:
        """Write nothing: the service's log contains refusals."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. The oldest of too many connections is closed, since answers take milliseconds."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                with suppress(OSError):
                    next(iter(self._open)).shutdown(socket.SHUT_RDWR)  # ends its thread
                del self._open[next(iter(self._open))]
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. The TLS handshake runs in the connection's thread, since a client may delay it."""
        connection, peer = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, *_: Any) -> None:
        """Ignore errors of clients that disconnect or do not use TLS."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _with_tokens(app: Callable[..., Iterable[bytes]], tokens: Tokens) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that refuses requests without a valid token."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        authorization, peer = environ.get("HTTP_AUTHORIZATION", ""), environ.get("REMOTE_ADDR", "?")
        if (denied := check_request(tokens, authorization, peer, "metrics")) is None:
            return app(environ, start_response)
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if denied.status == 401:
            headers.append(("WWW-Authenticate", CHALLENGE))
        start_response(f"{denied.status} {_PHRASES[denied.status]}", headers)
        return [f"{denied}\n".encode()]

    return checked


def _with_probes(app: Callable[..., Iterable[bytes]], probe: Probe) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that answers ``/healthz`` and ``/readyz`` and passes other requests on.

    ``/readyz`` has status 200 if the answering process decides, ``/healthz`` also while the process is being started.
    """

    def probed(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path not in ("/healthz", "/readyz"):
            return app(environ, start_response)
        result = probe.check()
        is_good = result == OK or (path == "/healthz" and result == STARTING)
        status = 200 if is_good else 503
        start_response(f"{status} {_PHRASES[status]}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{result}\n".encode()]

    return probed
