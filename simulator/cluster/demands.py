"""Check that a cluster has executors for all stages of its jobs."""

from __future__ import annotations

from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence
from workloads.errors import ConfigError

__all__ = ["check_demands"]


def check_demands(config: ClusterConfig, sequence: JobSequence) -> None:
    """Check that the cluster can run all stages of a sequence.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    for job, profile in enumerate(sequence.profiles):
        for index, stage in enumerate(profile.stages):
            if not any(executor_class.fits(stage) for executor_class in config.executor_classes):
                raise ConfigError(
                    f"no executor class can run stage {index} of job {job} ({profile.name}), which needs"
                    f" cpu {stage.cpu:g} and memory {stage.memory:g}"
                )
