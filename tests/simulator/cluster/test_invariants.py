"""Invariants on any cluster, for any jobs and any decisions."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given

from simulator import ClusterConfig
from tests.simulator.cluster.checks import check_durations, check_record, check_waves
from tests.simulator.cluster.driver import Driver, run
from tests.simulator.cluster.strategies import MANY, clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads.arrivals import JobSequence


@MANY
@given(clusters(), job_sequences(), seeds, idleness)
def test_every_task_runs_once_and_for_as_long_as_it_should(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    driver = Driver(config, sequence, seed, idle)
    record = run(driver)
    check_record(driver.cluster.record())
    if record is not None:
        assert np.isfinite(record.task_finish_ms).all()
        assert np.isfinite(record.completion_ms).all()
        check_durations(record)
        check_waves(record)


@MANY
@given(clusters(max_time=True), job_sequences(), seeds, idleness)
def test_an_episode_that_ends_early_is_the_beginning_of_the_whole(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    driver = Driver(config, sequence, seed, idle)
    record = run(driver)
    whole = run(Driver(replace(config, max_time_ms=math.inf), sequence, seed, idle))
    if record is None or whole is None:
        return
    check_record(record)
    limit_ms = config.max_time_ms if config.semantics.honour_max_time else math.inf
    assert record.end_ms == min(whole.end_ms, limit_ms)
    # At the end of the episode, some events of that time may be missing.
    begun = whole.task_start_ms < record.end_ms
    for name in ("task_start_ms", "task_executor", "task_wave", "task_parallelism"):
        assert (getattr(record, name)[begun] == getattr(whole, name)[begun]).all()
    done = whole.completion_ms < record.end_ms
    assert (record.completion_ms[done] == whole.completion_ms[done]).all()
    assert np.isnan(record.completion_ms[whole.completion_ms > record.end_ms]).all()


@MANY
@given(clusters(), job_sequences(), seeds)
def test_answering_the_last_call_never_stalls(config: ClusterConfig, sequence: JobSequence, seed: int) -> None:
    """With the paper's semantics a scheduler may idle at any time, unless no event is pending."""
    config = replace(config, semantics=replace(config.semantics, offer_idle_executors=True))
    record = Driver(config, sequence, seed, idle=1.0).run()
    assert np.isfinite(record.completion_ms).all()
