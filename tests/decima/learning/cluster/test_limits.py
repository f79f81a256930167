"""Limits on further objectives, by Lagrange multipliers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from decima.learning import ClusterTraining, read_metrics
from decima.learning.checkpoint import load_checkpoint
from decima.learning.cluster.limits import Limit, Limits, parse_limits
from decima.learning.loop import CHECKPOINT
from decima.settings import TrainingError
from tests.cases import cases
from tests.decima.learning.cluster.examples import small


@pytest.mark.parametrize(("costs", "limits", "bound"), [((1.0, 2.0), (2.0, 0.0), 1.0), ((0.0, 9.0), (5.0, 2.0), 3.0)])
def test_the_multiplier_converges_to_the_known_one(
    costs: tuple[float, float], limits: tuple[float, float], bound: float
) -> None:
    """Two actions: the cheap one exceeds the bound, the other keeps it. The optimum mixes them.

    It mixes only if both have the same Lagrangian, so the multiplier is the difference of their costs over that of what
    is limited (complementary slackness); the share of the cheap action is where the limit holds with equality.
    """
    known = (costs[1] - costs[0]) / (limits[0] - limits[1])
    learned, chosen = Limits([Limit("jct", 1.0, "fair")], rate=0.02 * bound), []
    for _ in range(4000):
        values = [cost + learned.multipliers[0] * limit for cost, limit in zip(costs, limits, strict=True)]
        action = int(np.argmin(values))
        chosen.append(action == 0)
        learned.update(np.array([[limits[action]]]), np.array([[bound]]))
    assert learned.multipliers[0] == pytest.approx(known, abs=0.05)
    assert np.mean(chosen[2000:]) == pytest.approx((bound - limits[1]) / (limits[0] - limits[1]), abs=0.02)


def test_a_limit_that_is_kept_has_no_multiplier_and_changes_no_reward() -> None:
    limits = Limits([Limit("jct", 1.0, "fair"), Limit("makespan", 1.0, "fair")], rate=1.0)
    limits.update(np.array([[90.0, 150.0], [90.0, 150.0]]), np.full((2, 2), 100.0))
    assert (limits.multipliers.tolist(), limits.excess) == ([0.0, 0.5], pytest.approx([-0.1, 0.5]))
    assert limits.reward("weighted") == "weighted+0.500000*makespan"


def test_a_training_with_a_limit_logs_its_multiplier_and_resumes(tmp_path: Path) -> None:
    """A bound at half of fair sharing cannot be kept, so the multiplier grows by each excess."""
    changes = {
        "cluster": {"reward": "weighted", "limits": ["jct<=0.5*fair", "makespan<=9*fair"]},
        "workload": {"weights": [1, 16]},
        "validation": {"every": 1},
    }
    whole = ClusterTraining(small(tmp_path, iterations=3, **changes), tmp_path / "whole")
    result = whole.run()
    rows = [row for row in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "limit_excess" in row]
    assert len(rows) == 3
    excess = [row["limit_excess"] for row in rows]
    assert min(excess) > 0
    np.testing.assert_allclose([row["limit_multiplier"] for row in rows], np.cumsum(excess))
    assert result.improvement < -10  # no policy keeps the limit
    saved = load_checkpoint(tmp_path / "whole" / CHECKPOINT).learner["limits"]
    assert saved.tolist() == pytest.approx([sum(excess), 0])

    parts = ClusterTraining(small(tmp_path, iterations=3, **changes), tmp_path / "parts")
    parts.run(lambda report: (_ for _ in ()).throw(KeyboardInterrupt) if report.iteration == 1 else None)
    again = ClusterTraining(small(tmp_path, iterations=3, **changes), tmp_path / "parts", resume=True)
    again.run()
    assert torch.equal(load_checkpoint(tmp_path / "parts" / CHECKPOINT).learner["limits"], saved)


@cases(
    "text, message",
    ("jct<1.05*fair", "cluster.limits: expected OBJECTIVE<=FACTOR*SCHEDULER, such as jct<=1.05*priced-srpt, got"),
    ("jct<=1.0.5*fair", "cluster.limits: 'jct<=1.0.5*fair': expected a number, got '1.0.5'"),
    ("jct<=0*fair", "cluster.limits: 'jct<=0*fair': expected a factor above 0"),
    ("worst<=1*fair", "cluster.limits: reward 'worst': unknown objective 'worst'"),
    ("jct<=1*fairest", "cluster.limits: unknown scheduler 'fairest'"),
)
def test_limits_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(TrainingError) as caught:
        parse_limits([text])
    assert str(caught.value).startswith(message)
