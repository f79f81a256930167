"""The service behind its socket: drivers are served, and whoever talks nonsense harms nobody else."""

from __future__ import annotations

import numpy as np

from decima.registry import make_scheduler
from decima.service.protocol import Welcome
from decima.service.service import Service
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, serving
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS, served_jct_ms


def service(**options: object) -> Service:
    return Service(lambda: make_scheduler("priced-srpt"), **options)  # type: ignore[arg-type]


def test_a_driver_is_served_from_beginning_to_end() -> None:
    """Over the socket it is the same schedule."""
    from decima.service.history import History

    sequence = SEQUENCES["batch"][0]
    jobs = list(zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True))
    with serving(service(history=History(PROFILES))) as where, Client(where) as client:
        assert client.greeting == Welcome()
        spark = ScriptedSpark(jobs, client.ask, SLOTS)
        jct_ms = float(np.mean(spark.run()))
    assert jct_ms == served_jct_ms("priced-srpt", sequence, PROFILES, False)
    assert spark.tasks_started == sum(profile.num_tasks for profile in sequence.profiles)
