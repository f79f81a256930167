"""A card says what the policy file says."""

from __future__ import annotations

from decima.learning.cluster.card import CURVE_ROWS, policy_card

ABOUT = {
    "command": "decima train --config batch --out DIR",
    "seed": 3,
    "config": {"seed": 3, "iterations": 100},
    "iteration": 90,
    "iterations_trained": 100,
    "training_cpu_s": 600.0,
    "validation": {
        "objective": "mean jct, s",
        "sequences": 20,
        "improvement_over_tuned_weighted_fair": 0.125,
        "results": {"fair": 90.0, "tuned-weighted-fair": 80.0, "decima": 70.0},
    },
    "curve": {
        "columns": [],
        "rows": [[float(k), 100.0 - k / 4, -0.25 + k / 300] for k in range(0, 101, 2)],
    },
}


def test_a_card_has_command_seed_time_results_and_settings() -> None:
    card = policy_card("mine", ABOUT)
    assert card.startswith("# mine\n")
    assert (
        "`decima train --config batch --out DIR`, seed 3:\n10 minutes of CPU time for 100 iterations." in card
    )
    assert "after iteration 90" in card
    assert "| decima | 70.0 |" in card
    assert "That is 12.5% less" in card
    assert "iterations: 100" in card


def test_a_long_learning_curve_is_thinned_but_keeps_its_ends() -> None:
    rows = [line for line in policy_card("mine", ABOUT).splitlines() if line.endswith("% |")]
    assert len(rows) <= CURVE_ROWS + 1
    assert rows[0] == "| 0 | 100.0 | -25.0% |"
    assert rows[-1] == "| 100 | 75.0 | +8.3% |"
