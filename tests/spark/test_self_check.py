"""The self-check at the start of the plugin, on a Spark whose classes differ from those that the plugin knows."""

import zipfile
from pathlib import Path

import pytest

from tests.spark.eventlog import launches
from tests.spark.harness import application, spark_home, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 4

#: Renamed method of Spark's scheduler -> failure of the self-check.
RENAMED = {
    "getSortedTaskSetQueue": "order and limits of stages 3 (2 slots), 1 (limit 1) and 2 with 5 cores: "
    "[1, 1, 1, 2, 2] instead of [3, 3, 1, 2, 2]",
    "increaseRunningTasks": "order and limits of stages 3 (2 slots), 1 (limit 1) and 2 with 5 cores: "
    "[3, 3, 3, 1, 1] instead of [3, 3, 1, 2, 2]",
    "isZombie_$eq": "java.lang.NoSuchMethodError: ",
    "resourceOffers": "java.lang.IllegalStateException: class org.apache.spark.scheduler.TaskSchedulerImpl has no "
    "resourceOffers",
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in list(RENAMED)[1:]]


def rename(method: str, folder: Path) -> Path:
    """Write the classes of Spark's scheduler that name a method, with another name of the same length, to a folder."""
    name = method.encode()
    constant = b"\x01" + len(name).to_bytes(2, "big")
    [core] = (spark_home() / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(core) as jar:
        for entry in jar.namelist():
            if entry.startswith(("org/apache/spark/scheduler/", "org/apache/spark/executor/")):
                content = jar.read(entry)
                if constant + name in content:
                    (folder / entry).parent.mkdir(parents=True, exist_ok=True)
                    (folder / entry).write_bytes(content.replace(constant + name, constant + name[:-1] + b"_"))
    return folder


@pytest.mark.parametrize("method", [next(iter(RENAMED)), *SLOW])
def test_spark_keeps_its_own_scheduler_after_a_failed_check(method: str, tmp_path: Path) -> None:
    """The log has one warning; the policy is not asked; FIFO order holds for jobs that name a pool, too."""
    server = PolicyServer(ordered("C", "B", "A"))
    classes = rename(method, tmp_path / "classes")
    with application(
        tmp_path / "app", server.address, f"local[{SLOTS}]", spark__driver__extraClassPath=classes
    ) as sleeper:
        version = sleeper.spark.version
        threads = [sleeper.start("A", (2 * SLOTS, 1500))]
        until(lambda: sleeper.running() == SLOTS)
        for count, (name, pool) in enumerate((("B", "mine"), ("C", None)), 2):
            sleeper.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            threads.append(sleeper.start(name, (2 * SLOTS, 50)))
            until(lambda count=count: sleeper.active() == count)
        for thread in threads:
            thread.join()
        assert launches(sleeper.tasks()) == "A" * 8 + "B" * 8 + "C" * 8
        [warning] = [line for line in sleeper.log().splitlines() if " spark: " in line]
    server.close()
    assert (
        f"WARN spark: not installed, Spark schedules as usual: the self-check failed with Spark {version}: " in warning
    )
    assert RENAMED[method] in warning
    assert not server.hellos
