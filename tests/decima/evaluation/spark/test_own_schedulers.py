"""Simulated schedulers that reproduce Spark's own, and the tuned one."""

from dataclasses import replace

from decima.evaluation.spark import SPARKS_OWN, as_simulated, tuned
from decima.evaluation.sweeps import sweep_ms
from decima.evaluation.variants import GRIDS
from simulator.cluster.config import PAPER, SPARK, ClusterConfig
from tests.cases import cases
from tests.decima.evaluation.examples import CLUSTER, conditions

ONE_APPLICATION, SEVERAL = ClusterConfig(4, moving_delay_ms=0.0), ClusterConfig(4, moving_delay_ms=1.0)
#: Each application orders its stages as Spark does, under any scheduler of the executors.
BY_NUMBER = replace(PAPER, longest_path_first=False)


@cases(
    "cluster, name, spec, semantics, expected",
    (ONE_APPLICATION, "Spark FIFO", "fifo", SPARK, "fifo"),
    (ONE_APPLICATION, "Spark FAIR", "fair", SPARK, "spark-fair"),
    (ONE_APPLICATION, "fair", "fair", PAPER, "fair"),
    (ONE_APPLICATION, "decima", "decima", PAPER, "decima"),
    (SEVERAL, "Spark FAIR", "fair", BY_NUMBER, "fair"),
    (SEVERAL, "Spark FIFO", "fifo", BY_NUMBER, "fifo"),
    (SEVERAL, "decima", "decima", BY_NUMBER, "decima"),
)
def test_sparks_own_order_is_simulated_inside_of_one_application(
    cluster: ClusterConfig, name: str, spec: str, semantics: object, expected: str
) -> None:
    simulated, scheduler = as_simulated(cluster, name, spec)
    assert (simulated.semantics, scheduler) == (semantics, expected)
    assert simulated.moving_delay_ms == cluster.moving_delay_ms


def test_weighted_fair_is_tuned_on_the_sequences_given() -> None:
    schedulers = {**SPARKS_OWN, "weighted fair": "weighted-fair"}
    sequences = [conditions().sequence(seed) for seed in (7, 8)]
    found, setting = tuned(schedulers, CLUSTER, sequences)
    best = sum(sweep_ms(CLUSTER, each) for each in sequences).argmin()
    assert setting == GRIDS["weighted-fair"][best]
    assert found == {**SPARKS_OWN, "weighted fair": setting}
    assert tuned(SPARKS_OWN, CLUSTER, []) == (SPARKS_OWN, "")
