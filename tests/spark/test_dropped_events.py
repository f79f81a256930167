"""Events that Spark's listener bus drops, since a queue is full: no job stays for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.harness import application, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
WAVES, AT_ONCE = 3, 8


def test_a_job_ends_whose_end_was_dropped(tmp_path: Path) -> None:
    """The queue of the plugin has room for one event; queries and Spark jobs without a query end at the same time."""
    server = PolicyServer(ordered())
    conf = {
        "spark__scheduler__listenerbus__eventqueue__decima__capacity": 1,
        "spark__decima__timeoutMs": 30_000,
    }
    with application(tmp_path / "app", server.address, "local[4]", **conf) as sleeper:
        context = sleeper.spark.sparkContext
        jvm = context._jvm.org.apache.spark.api.java.JavaSparkContext(context._jsc.sc())
        for _ in range(WAVES):
            threads = [sleeper.start(f"query {number}", (8, 1)) for number in range(AT_ONCE)]
            for _ in range(AT_ONCE):
                assert jvm.parallelize(list(range(8)), 8).count() == 8
            for thread in threads:
                thread.join()
        ended = len(server.states)
        until(lambda: not server.states[-1].jobs)
        assert "Dropping event from queue decima" in sleeper.log()
    left = {job.id for state in server.states[ended:] for job in state.jobs}
    print(f"{len(left)} jobs were left")
    server.close()
    assert not server.problems
