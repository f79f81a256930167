"""The plugin in one application on Kubernetes."""

import pytest

from tests.spark.eventlog import events, launches
from tests.spark.harness import application, until, why_not
from tests.spark.kubernetes.cluster import Kubernetes
from tests.spark.policy import PolicyServer, ordered
from tests.spark.standalone import summarise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
#: Dynamic allocation as users have it on Kubernetes, which asks for at most two executors.
DYNAMIC = {
    "spark__kubernetes__container__image": "none",
    "spark__kubernetes__allocation__batch__delay": "1s",
    "spark__dynamicAllocation__enabled": "true",
    "spark__dynamicAllocation__shuffleTracking__enabled": "true",
    "spark__dynamicAllocation__maxExecutors": "2",
    "spark__dynamicAllocation__executorIdleTimeout": "30s",
}


def test_the_policy_orders_jobs_through_late_and_evicted_pods(tmp_path) -> None:
    """Pods register late, watches are closed and one pod is evicted: the order of the policy holds, no job fails."""
    server = PolicyServer(ordered("C", "A", "B"))
    with Kubernetes(tmp_path / "kubernetes", slots=1) as cluster:
        cluster.late_s = 3.0
        with application(tmp_path / "spark", server.address, master=cluster.master, **DYNAMIC) as spark:
            first = [spark.start(name, (4, 50)) for name in "BAC"]
            until(lambda: cluster.pods())
            for thread in first:
                thread.join()
            until(lambda: len(cluster.pods()) == 2)  # one waits for a slot
            assert sorted(pod["status"]["phase"] for pod in cluster.pods()) == ["Pending", "Running"]
            cluster.drop_watches(compact=True)
            [running] = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Running"]
            second = [spark.start(name, (4, 50)) for name in "DE"]
            cluster.evict(running["metadata"]["name"])
            for thread in second:
                thread.join()
            tasks = spark.tasks()
            summary = summarise(list(events(tmp_path / "spark" / "events")))
        until(lambda: not cluster.pods())
    server.close()
    assert not server.problems
    assert launches(tasks)[:12] == "CCCCAAAABBBB"
    assert sum(task.succeeded for task in tasks) == 20
    assert summary.joined == 2
    assert max(change.placed for change in cluster.changes) == 1
    assert {call.method for call in cluster.calls} >= {"GET", "POST", "DELETE"}
    assert any(change.phase == "Failed" for change in cluster.changes)
