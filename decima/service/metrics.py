"""Prometheus metrics of the service."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from decima.service.server import ServeError
from decima.service.service import Connected, Watcher

__all__ = ["Metrics"]

#: Upper bounds of the histogram buckets of durations, s.
BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Metrics(Watcher):
    """Counts events of the service; metric names begin with ``decima_``.

    Attributes:
        registry: the Prometheus registry of these metrics.
    """

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
        self._answer = Histogram(
            "decima_answer_seconds",
            "Time from receiving a question to its answer.",
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._policy = Histogram(
            "decima_policy_seconds", "Time spent in the policy.", buckets=BUCKETS_S, registry=registry
        )
        self._drivers = Gauge("decima_drivers", "Connected drivers.", registry=registry)
        self._jobs = Gauge("decima_jobs", "Live jobs.", registry=registry)
        self._slots = Gauge("decima_slots", "Task slots of connected drivers.", registry=registry)
        self._live: dict[int, tuple[int, int]] = {}

    def listen(self, port: int, host: str) -> tuple[str, Callable[[], None]]:
        """Serve the metrics over HTTP; port 0 takes any free port.

        Returns:
            The address, and a function that stops the server.

        Raises:
            ServeError: the port is in use.
        """
        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ServeError(
                f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}"
            ) from None

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"http://{host}:{server.server_port}/metrics", end

    def welcomed(self, driver: Connected) -> None:
        """Count a driver."""
        self._show(driver.number, (0, 0))

    def answered(self, driver: Connected) -> None:
        """Count a question and its answer."""
        assert driver.decided is not None
        assert driver.state is not None
        self._failed.inc(bool(driver.decided.failure))
        self._questions.inc()
        self._decisions.inc(len(driver.decided.choices))
        self._answer.observe(driver.took_ms / 1000)
        self._policy.observe(driver.decided.policy_ms / 1000)
        self._show(driver.number, (len(driver.state.jobs), driver.decided.slots))

    def left(self, driver: Connected) -> None:
        """Count a driver that left."""
        self._show(driver.number, None)

    def refused(self, reason: str) -> None:
        """Count a refusal."""
        self._refused.inc()

    def _show(self, driver: int, jobs_and_slots: tuple[int, int] | None) -> None:
        before = self._live.pop(driver, (0, 0))
        if jobs_and_slots is not None:
            self._live[driver] = jobs_and_slots
        now = jobs_and_slots or (0, 0)
        self._drivers.set(len(self._live))
        self._jobs.inc(now[0] - before[0])
        self._slots.inc(now[1] - before[1])
