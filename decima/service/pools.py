"""Pools of Spark's FAIR scheduler, from its ``fairscheduler.xml``, and their shares of the slots.

Slots are divided between pools as in Spark, and a scheduler decides within each pool.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.decisions import only_jobs
from decima.schedulers.spark import pool_need
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant
from workloads.errors import DecimaError
from workloads.job import WorkloadError
from workloads.reading import read_bytes

if TYPE_CHECKING:
    from decima.service.snapshot import Snapshot
    from simulator.cluster.episode import DecidesStages

__all__ = ["Pools", "PoolsError", "decide_in_pools", "divide", "read_pools"]

#: Maximum size of a file, bytes.
LARGEST = 1 << 20
PROPERTIES = ("schedulingMode", "weight", "minShare")


class PoolsError(DecimaError, ValueError):
    """A file of pools is unusable. The message is one line that names file and line."""


@dataclass(frozen=True)
class Pools:
    """Pools of Spark's FAIR scheduler.

    Attributes:
        tenants: pool name -> weight and minimum share.
        fair: names of the pools whose ``schedulingMode`` is FAIR.
    """

    tenants: dict[str, Tenant]
    fair: tuple[str, ...] = ()


@dataclass
class _Reader:
    """Handlers of the XML parser. They accept only ``allocations``, ``pool`` and properties of pools."""

    tenants: dict[str, Tenant] = field(default_factory=dict)
    fair: list[str] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _name: str = ""
    _values: dict[str, str] = field(default_factory=dict)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag)
        match self._path:
            case ["allocations"]:
                expected: set[str] = set()
            case ["allocations", "pool"]:
                expected = {"name"}
                self._name, self._values = attributes.get("name", ""), {}
                if not self._name:
                    raise ValueError("a pool without a name")
                if self._name in self.tenants:
                    raise ValueError(f"a second pool {self._name!r}")
            case ["allocations", "pool", name] if name in PROPERTIES:
                expected = set()
                if name in self._values:
                    raise ValueError(f"pool {self._name!r}: a second {name}")
                self._values[name] = ""
            case _:
                raise ValueError(f"unexpected element {tag!r}")
        if unknown := attributes.keys() - expected:
            raise ValueError(f"{tag}: unexpected attribute {min(unknown)!r}")

    def text(self, text: str) -> None:
        if len(self._path) == 3:
            self._values[self._path[-1]] += text
        elif text.strip():
            raise ValueError("text outside of a pool's properties")

    def end(self, tag: str) -> None:
        if len(self._path) == 2:
            self._add()
        self._path.pop()

    def _add(self) -> None:
        name = self._name
        values = {key: text.strip() for key, text in self._values.items()}
        mode = values.get("schedulingMode", "FIFO").upper()
        if mode not in ("FIFO", "FAIR"):
            raise ValueError(f"pool {name!r}: schedulingMode {mode!r}, expected FIFO or FAIR")
        settings = {}
        for key, usual in (("weight", "1"), ("minShare", "0")):
            text = values.get(key, usual)
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ValueError(f"pool {name!r}: {key} {text!r}, expected a whole number")
            settings[key] = int(text)
        try:
            self.tenants[name] = Tenant(name, float(settings["weight"]), settings["minShare"])
        except WorkloadError as error:
            raise ValueError(f"pool {name!r}: {error}") from None
        if mode == "FAIR":
            self.fair.append(name)


def _refuse(*_: Any) -> None:
    raise ValueError("document type and entity declarations are not allowed")


def read_pools(path: Path) -> Pools:
    """Read pools from a file in the format of Spark's ``fairscheduler.xml``.

    As in Spark, the defaults are weight 1, minimum share 0 and mode FIFO. Unlike in Spark, unknown elements and invalid
    values are errors. Document types and entities are errors too, so that nothing is expanded or loaded.

    Raises:
        PoolsError: the file cannot be read, is malformed, or has no pool.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(read_bytes(path, LARGEST), True)
    except OSError as error:
        raise PoolsError(f"{path}: {error.strerror or error}, expected Spark's fairscheduler.xml") from None
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise PoolsError(f"{path}: line {error.lineno}: not valid XML: {reason}") from None
    except (LookupError, ValueError) as error:  # a LookupError for an unknown encoding
        line = parser.CurrentLineNumber
        raise PoolsError(f"{path}: line {line}: {' '.join(str(error).split())}") from None
    if not reader.tenants:
        raise PoolsError(f"{path}: no pool, expected Spark's fairscheduler.xml")
    return Pools(reader.tenants, tuple(reader.fair))


def divide(pools: Sequence[Tenant], demand: Sequence[int], slots: int) -> list[int]:
    """Divide slots between pools by minimum shares and weights; no pool gets more than its demand.

    Source: Spark 3.5, ``FairSchedulingAlgorithm``.

    Args:
        demand: number of slots that each pool can use.

    Returns:
        Number of slots of each pool.
    """
    shares = [0] * len(pools)
    queue = [(pool_need(pool, 0), index) for index, pool in enumerate(pools) if demand[index]]
    heapq.heapify(queue)
    for _ in range(slots):
        if not queue:
            break
        _, index = queue[0]
        shares[index] += 1
        if shares[index] < demand[index]:
            heapq.heapreplace(queue, (pool_need(pools[index], shares[index]), index))
        else:
            heapq.heappop(queue)
    return shares


def decide_in_pools(snapshot: Snapshot, scheduler: DecidesStages) -> list[int] | None:
    """Commit the slots of each pool to its jobs.

    A pool below its share gets its slots immediately, although tasks of other pools may still run on them. The other
    pools do not refill these slots, so the shares hold after one task. Slots of a pool that the scheduler leaves idle
    go to the pool's ready stages in order of arrival.

    Returns:
        For each job, the number of running tasks whose slots go to another pool; None, without any commitment, if
        fewer than two pools have tasks.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    jobs, pools = snapshot.jobs, snapshot.tenants
    running, demand = [0] * len(pools), [0] * len(pools)
    for job, pool in zip(jobs, snapshot.tenant, strict=True):
        ready = sum(left for left, is_ready in zip(job.pending, job.ready, strict=True) if is_ready)
        running[pool] += sum(job.running)
        demand[pool] += sum(job.running) + ready
    if sum(map(bool, demand)) < 2:
        return None
    shares = divide(pools, demand, snapshot.config.num_executors)
    snapshot.pool_free()
    tenant = np.array(snapshot.tenant)
    for pool in sorted(range(len(pools)), key=lambda pool: pool_need(pools[pool], running[pool])):
        if (count := shares[pool] - running[pool]) > 0:
            before = snapshot.launched
            snapshot.offer(_Inside(scheduler, tenant == pool), -1, count)
            snapshot.fill(np.flatnonzero(tenant == pool).tolist(), count - (snapshot.launched - before))
    return _released(snapshot, [held - share for held, share in zip(running, shares, strict=True)])


def _released(snapshot: Snapshot, excess: list[int]) -> list[int]:
    """Return each job's number of slots to release so that no pool exceeds its share; last jobs release first."""
    released = [0] * len(snapshot.jobs)
    for index, pool in enumerate(snapshot.tenant):
        excess[pool] -= snapshot.finishing(index)  # these slots become free anyway
    for index in reversed(range(len(snapshot.jobs))):
        pool = snapshot.tenant[index]
        refilled = sum(snapshot.jobs[index].running) - snapshot.finishing(index)
        released[index] = max(0, min(excess[pool], refilled))
        excess[pool] -= released[index]
    return released


class _Inside:
    """Restricts a scheduler to stages of some jobs; ``jobs``: bool [num_jobs]."""

    def __init__(self, scheduler: DecidesStages, jobs: NDArray[np.bool_]) -> None:
        self._scheduler, self._jobs = scheduler, jobs
        self.reset = scheduler.reset
        self.probability = math.nan

    def decide(self, observation: Observation) -> Decision | None:
        """Return the scheduler's decision for one of the jobs; None without such a decision."""
        masked = only_jobs(observation, self._jobs)
        decision = self._scheduler.decide(masked) if masked.num_schedulable else None
        if decision is None or not masked.stages["schedulable"][decision.stage]:
            return None  # a scheduler that ignores the mask may choose another pool's job
        self.probability = float(getattr(self._scheduler, "probability", math.nan))
        return decision
