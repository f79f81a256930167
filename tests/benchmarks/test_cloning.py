"""A network with the inputs ``relative`` learns the choices of the rule ``srpt-tuned`` in a minute of CPU time."""

from pathlib import Path
from typing import Any

import pytest

import decima
from tests.cases import cases

pytestmark = pytest.mark.benchmark

#: Minutes of CPU time on a busy machine, with the episodes of the rule.
MOST_CPU_S = 120.0
#: Largest increase of the mean JCT by which a clone may be behind the rule, beyond the interval.
BEHIND = 0.01


@cases(
    "recipe, cloning, arrivals",
    ("batch", {"sequences": 100}, {"jobs": 20, "seeds": 30}),
    ("stream", {"sequences": 30, "jobs": 100},
     {"jobs": 100, "seeds": 10, "arrivals": "poisson", "interval": 5.0}),
)  # fmt: skip
def test_a_clone_is_as_good_as_its_rule(
    recipe: str, cloning: dict[str, int], arrivals: dict[str, Any], tmp_path: Path
) -> None:
    settings = {
        "iterations": 1,
        "policy": {"preset": "relative", "overrides": {"wait": recipe == "stream"}},
        "behaviour_cloning": {"scheduler": "srpt-tuned", "epochs": 10, "learning_rate": 0.003} | cloning,
        "update": {"learning_rate": 1e-9, "final_learning_rate": 1e-9, "ema_decay": 0.0},
        "validation": {"sequences": 1},
    }
    if recipe == "stream":
        settings["workload"] = {"interval": [4, 5, 7]}
    trained = decima.train(recipe, tmp_path / "clone", **settings)
    runs = decima.compare(["srpt-tuned", f"decima:{trained.policy_file}"], seed=700, **arrivals)
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    clone, rule = (jct_s[name] for name in sorted(jct_s))
    change = decima.paired_change(clone, rule)
    print(f"{recipe}: {change.mean:+.2%} ± {change.half_width:.2%} after {trained.cpu_s:.0f} s of CPU time")
    assert trained.cpu_s < MOST_CPU_S
    assert change.mean - change.half_width < BEHIND
