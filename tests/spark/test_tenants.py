"""Quotas of tenants whose applications share a standalone cluster, with executors that move."""

import math
import signal
import time
from pathlib import Path

import pytest

from tests.decima.service.test_serve import decima_serve
from tests.spark.harness import until, why_not
from tests.spark.standalone import cluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 6
#: Tasks of the only stage of a job, and their duration, ms: work that is worth the start of an executor.
STAGE = (120, 500)


def tenants(**quotas: int) -> str:
    """Return a file of tenants, each with the application of its name."""
    return f"tenants: {{{', '.join(f'{name}: {{applications: [{name}], quota: {quotas[name]}}}' for name in quotas)}}}"


def test_applications_hold_the_quotas_of_their_tenants_and_no_more(tmp_path: Path) -> None:
    """A reload exchanges the quotas, so executors move. Each application alone could use all slots."""
    file = tmp_path / "tenants.yaml"
    file.write_text(tenants(etl=4, bi=2))
    file.chmod(0o600)
    options = ("--policy", "fifo", "--no-token", "--slots", str(SLOTS), "--tenants", str(file))
    with (
        decima_serve(*options) as (service, said),
        cluster(tmp_path / "cluster", SLOTS, int(said["spark"].rpartition(":")[2])) as running,
    ):

        def held(name: str) -> int:
            try:
                summary = running.summary(name)
            except FileNotFoundError:  # it has not begun its event log
                return 0
            return summary.joined - summary.left

        running.application("etl", STAGE)
        until(lambda: held("etl") == 4)
        time.sleep(2)  # without a quota it would take two more
        running.application("bi", STAGE)
        until(lambda: held("bi") == 2)
        file.write_text(tenants(etl=2, bi=4))
        service.send_signal(signal.SIGUSR1)
        until(lambda: (held("etl"), held("bi")) == (2, 4))
        running.end("etl", "bi")
        for name in ("etl", "bi"):
            assert running.most_held(name, killed_ms=math.inf) == 4
            summary = running.summary(name)
            assert summary.tasks > 0
            assert (summary.failed, summary.repeated) == (0, 0)
