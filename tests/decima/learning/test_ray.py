"""Trainings and comparisons give the same results with any workers, also if a node is lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation.comparison import Comparison
from decima.learning import ClusterTraining, IterationReport, read_config
from decima.learning.loop import POLICY
from tests.decima.evaluation.examples import comparison
from tests.decima.learning.examples import assert_same_run
from tests.decima.workers.ray_cluster import NEEDS_RAY, client_server, ray_cluster
from tests.programs import PATIENCE_S

pytestmark = [pytest.mark.slow, NEEDS_RAY]

ITERATIONS = 10
#: Recipes with fewer iterations and episodes.
BATCH = ["behaviour_cloning.sequences=4", "validation.sequences=4", "validation.every=2", "workload.jobs=5"]


def on_clusters(out: Path, workers: int | str) -> ClusterTraining:
    config = read_config("batch", [f"iterations={ITERATIONS}", *BATCH])
    return ClusterTraining(config, out, workers=workers)


@pytest.fixture(autouse=True)
def _no_ray_remains() -> Iterator[None]:
    yield
    _shut_down()


def _shut_down() -> None:
    import ray

    ray.shutdown()


def said(out: Path) -> dict[str, Any]:
    """Return the information in a policy file without times."""
    arrays = dict(np.load(out / POLICY))
    document = json.loads(str(arrays["policy"]))
    assert document["about"].pop("training_cpu_s") > 0
    return dict(document)


def test_four_trainings_are_one(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2), ("ray", "ray:2")):
        on_clusters(tmp_path / name, workers).run()
    _shut_down()
    with ray_cluster(2) as nodes:

        def lose_one(report: IterationReport) -> None:
            if report.iteration == ITERATIONS // 2:
                nodes[0].kill()

        on_clusters(tmp_path / "lost", "ray").run(lose_one)
    for other in ("two", "ray", "lost"):
        assert_same_run(tmp_path / "one", tmp_path / other)
        assert said(tmp_path / "one") == said(tmp_path / other)


def test_a_training_through_the_client_server_gives_the_same_bits(tmp_path: Path) -> None:
    """A client in another process, as on another machine, connects with a common token."""
    train = [sys.executable, "-m", "decima", "train", "--config", "batch"]
    for setting in ("iterations=2", *BATCH):
        train += ["--set", setting]
    with client_server(tmp_path) as (address, environment):
        command = [*train, "--workers", address, "--out", str(tmp_path / "ray")]
        subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S)
    subprocess.run([*train, "--workers", "1", "--out", str(tmp_path / "one")], check=True, timeout=PATIENCE_S)
    assert_same_run(tmp_path / "one", tmp_path / "ray")


def test_a_comparison_that_loses_a_node_has_the_same_numbers() -> None:
    def begin() -> Comparison:
        return comparison("fair", "tuned-weighted-fair", "weighted-fair", "random", num_experiments=12)

    calm = begin()
    calm.run(1)
    with ray_cluster(2) as nodes:

        def lose_one(done: int, total: int) -> None:
            if done == total // 2:
                nodes[0].kill()

        stormy = begin()
        stormy.run("ray", lose_one)
    assert stormy.complete
    assert stormy.to_json() == calm.to_json()
