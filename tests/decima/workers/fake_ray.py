"""Fake of the package ``ray``: actors live in this process, and run when their result is fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the task failed:\n  {cause!r}")
        self._cause = cause

    @property
    def cause(self) -> Any:
        return self._cause


class Died(BaseException):
    """Raised by work whose actor dies."""


class FakeRay(ModuleType):
    """A cluster with some CPUs.

    Attributes:
        options: arguments of ``init``; None before it, or after ``shutdown``.
        actors: all requested actors, in order.
        fetched: value of an object in the store -> how often it was fetched.
        timeouts: timeouts of the calls of ``wait``.
    """

    def __init__(self, cpus: int = 2, address: str = "127.0.0.1") -> None:
        super().__init__("ray")
        self.cpus, self.address = cpus, address
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.options: dict[str, Any] | None = None
        self.actors: list[FakeActor] = []
        self.fetched: Counter[Any] = Counter()
        self.timeouts: list[float | None] = []

    def is_initialized(self) -> bool:
        return self.options is not None

    def init(self, **options: Any) -> None:
        self.options = options

    def shutdown(self) -> None:
        self.options = None

    def nodes(self) -> list[dict[str, str]]:
        return [{"NodeManagerAddress": "127.0.0.1"}, {"NodeManagerAddress": self.address}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)} if self.cpus else {"memory": 1.0}

    def remote(self, num_cpus: int) -> Callable[[type], Any]:
        def request(make: type, *args: Any) -> FakeActor:
            self.actors.append(FakeActor(make, args, num_cpus))
            return self.actors[-1]

        return lambda make: SimpleNamespace(remote=lambda *args: request(make, *args))

    def put(self, value: Any) -> Any:
        return _Stored(value)

    def get(self, reference: Any) -> Any:
        if not isinstance(reference, _Call):
            self.fetched[reference.value] += 1
            return reference.value
        if not reference.actor.alive:
            raise RayError("The actor died.")
        try:
            return reference.actor.call(reference.method, reference.args)
        except Died:
            reference.actor.alive = False
            raise RayError("The actor died unexpectedly:\n\nmore of it\nout of memory") from None
        except Exception as error:
            raise RayTaskError(error) from error

    def wait(self, references: list[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
        """Return a result whose actor is dead or has a CPU; actors get CPUs in the order of their requests."""
        self.timeouts.append(timeout)
        left = self.cpus
        running = []
        for actor in self.actors:
            if actor.alive and actor.num_cpus <= left:
                left -= actor.num_cpus
                running.append(actor)
        ready = [each for each in references if not each.actor.alive or each.actor in running]
        assert ready or timeout is not None, "this would wait for ever"
        return ready[:1], [each for each in references if each not in ready[:1]]

    def kill(self, actor: FakeActor) -> None:
        actor.alive = False

    @property
    def alive(self) -> list[FakeActor]:
        return [actor for actor in self.actors if actor.alive]


class FakeActor:
    def __init__(self, make: type, args: tuple[Any, ...], num_cpus: int) -> None:
        self.make, self.args, self.num_cpus = make, args, num_cpus
        self.alive = True
        self.made: Any = None
        self.calls = 0
        self.begun, self.work = (
            SimpleNamespace(remote=lambda *args, name=name: _Call(self, name, args)) for name in ("begun", "work")
        )

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        self.made = self.made or self.make(*self.args)
        self.calls += 1
        return getattr(self.made, method)(*args)


class _Stored:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Call:
    def __init__(self, actor: FakeActor, method: str, args: tuple[Any, ...]) -> None:
        self.actor, self.method, self.args = actor, method, args
