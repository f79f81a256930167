"""Pools of a ``fairscheduler.xml`` on a real Spark: their shares hold."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from decima.registry import make_scheduler
from decima.service.service import Service
from tests.decima.service.serving import serving
from tests.spark.eventlog import Task
from tests.spark.harness import Sleeper, application, until, why_not
from workloads.spark.recorder.cluster import free_port

pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 8
TASK_MS = 400
XML = """<allocations>
  <pool name="prod"><minShare>4</minShare></pool>
  <pool name="etl"><weight>3</weight><schedulingMode>FAIR</schedulingMode></pool>
</allocations>"""
#: Slots of each pool by Spark's FAIR algorithm, with tasks in all of them; no file names the pool ``adhoc``.
SHARES = {"prod": 4, "etl": 3, "adhoc": 1}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module", params=["plugin", pytest.param("stock", marks=pytest.mark.slow)])
def sleeper(request, tmp_path_factory, port: int) -> Iterator[Sleeper]:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "fairscheduler.xml").write_text(XML)
    conf = {
        "spark__scheduler__mode": "FAIR",
        "spark__scheduler__allocation__file": f"file://{folder}/fairscheduler.xml",
        "spark__decima__timeoutMs": 30_000,
        "spark__decima__retryMs": 300,
    }
    if request.param == "stock":
        conf["spark__plugins"] = ""
    with application(folder / "app", f"127.0.0.1:{port}", f"local[{SLOTS}]", **conf) as sleeper:
        yield sleeper


def start(sleeper: Sleeper, pool: str, name: str, tasks: int) -> threading.Thread:
    context = sleeper.spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", pool)
    try:
        return sleeper.start(name, (tasks, TASK_MS))
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)


def run(sleeper: Sleeper, run_name: str) -> tuple[dict[str, float], dict[str, str]]:
    """Run two jobs in each pool.

    Returns:
        For each pool, the mean number of running tasks while all pools have tasks, and the order of its launches.
    """
    known = len(sleeper.tasks())
    threads = [sleeper.start("before", (SLOTS, 1500))]
    until(lambda: sleeper.running() == SLOTS)
    for pool, share in SHARES.items():
        threads += [start(sleeper, pool, f"{pool} {half} {run_name}", 6 * share) for half in (1, 2)]
    for thread in threads:
        thread.join()
    pools = {pool: [task for task in sleeper.tasks()[known:] if task.job.startswith(pool)] for pool in SHARES}
    begin = max(tasks[0].launched for tasks in pools.values()) + 2 * TASK_MS
    end = min(tasks[-1].launched for tasks in pools.values())
    assert begin < end, "the pools ran one after the other"
    busy = {pool: sum(overlap(task, begin, end) for task in tasks) for pool, tasks in pools.items()}
    means = {pool: SLOTS * ms / sum(busy.values()) for pool, ms in busy.items()}
    return means, {pool: "".join(task.job.split()[1] for task in tasks) for pool, tasks in pools.items()}


def overlap(task: Task, begin: int, end: int) -> int:
    return max(0, min(task.finished, end) - max(task.launched, begin))


@pytest.mark.parametrize("policy", ["absent", "shadow"])
def test_pools_of_the_file_hold_where_spark_keeps_its_order(sleeper: Sleeper, port: int, policy: str) -> None:
    """Minimum share, weights, and FAIR or FIFO between the jobs of a pool; a pool that no file names has weight 1."""
    with ExitStack() as ends:
        if policy == "shadow":
            if not sleeper.spark.sparkContext.getConf().get("spark.plugins"):
                pytest.skip("has no plugin")
            serve(ends, sleeper, port, Service(lambda: make_scheduler("fifo"), shadow=True))
        shares, order = run(sleeper, policy)
    print(shares, order)
    assert shares == pytest.approx(SHARES, abs=0.5)
    assert len(set(order["prod"][:24])) == 1, "the pool is FIFO"
    assert len(set(order["etl"][:18])) == 2, "the pool is FAIR"


@pytest.mark.parametrize("policy", ["srpt", "fifo"])
def test_pools_of_the_file_hold_under_a_policy(sleeper: Sleeper, port: int, policy: str) -> None:
    """The driver sends what it has read. The jobs of the pools come one after the other to a busy cluster."""
    if not sleeper.spark.sparkContext.getConf().get("spark.plugins"):
        pytest.skip("has no plugin")
    with ExitStack() as ends:
        serve(ends, sleeper, port, Service(lambda: make_scheduler(policy)))
        shares, order = run(sleeper, policy)
    print(shares, order)
    assert shares == pytest.approx(SHARES, abs=0.5)
    if policy == "fifo":
        assert len(set(order["etl"][:18])) == 1, "the policy orders inside of a pool"


def serve(ends: ExitStack, sleeper: Sleeper, port: int, service: Service) -> None:
    """Serve until the end, once the driver has connected."""
    known = len(sleeper.log())
    ends.enter_context(serving(service, str(port)))
    until(lambda: "INFO spark: policy at" in sleeper.log()[known:])
