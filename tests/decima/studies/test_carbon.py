"""Carbon study: savings, and comparison at equal misses, from synthetic results."""

import math

import pandas as pd
import pytest

from decima.studies.carbon import OURS, at_equal_misses, plot_front, savings
from decima.studies.outcome import RULE

#: Scheduler -> carbon and mean JCT of two experiments.
RUNS = {
    "fair": ((150.0, 30.0), (130.0, 34.0)),
    RULE: ((100.0, 20.0), (80.0, 24.0)),
    "cap:0.5": ((50.0, 40.0), (40.0, 48.0)),
    "carbon-price:5": ((75.0, 22.0), (60.0, 22.0)),
    "carbon-price:50": ((10.0, 99.0), (10.0, 99.0)),
}


def runs() -> pd.DataFrame:
    rows = [
        {"scheduler": name, "seed": seed, "carbon": carbon, "mean_jct_s": jct_s, "executor_hours": 1.0}
        for name, experiments in RUNS.items()
        for seed, (carbon, jct_s) in enumerate(experiments)
    ]
    return pd.DataFrame(rows)


def test_savings_and_settings_of_carbon_rules() -> None:
    found = savings(runs())
    assert found["cap:0.5"].saved.mean == pytest.approx(-0.5)
    assert found["cap:0.5"].slower.mean == pytest.approx(1.0)
    assert math.isnan(found["cap:0.5"].versus_cap)
    # Half way between srpt (90 g, 22 s) and cap (45 g, 44 s): 67.5 g, 33 s.
    assert found["carbon-price:5"].versus_cap == pytest.approx(22 / 33 - 1)
    assert found[RULE].versus_cap == pytest.approx(0.0)
    assert math.isnan(found["carbon-price:50"].versus_cap), "CAP does not save as much"
    assert math.isnan(found["fair"].versus_cap)
    [axes] = plot_front(savings(runs())).axes
    lines = {str(line.get_label()): len(line.get_xdata()) for line in axes.lines}  # type: ignore[arg-type]
    assert lines == {"fair": 1, RULE: 1, "cap": 1, "carbon-price": 2}


def test_carbon_is_compared_at_equal_misses() -> None:
    """At 2 % misses, equal shares of 100 and 60 g give 80 g; shares 5/6 and 1/6 of 100 and 20 g give 87 g."""
    carbon_and_misses = {"least-slack": (100, 0.01), "carbon-price:5": (60, 0.03), "cap": (20, 0.07), "edf": (95, 0.02)}

    def found(ours: float) -> tuple[tuple[str, str], float, float]:
        rows = [
            {"scheduler": name, "seed": seed, "carbon": carbon + 10 * seed, "deadline_misses": misses}
            for name, (carbon, misses) in (carbon_and_misses | {OURS: (64, ours)}).items()
            for seed in range(2)
        ]
        each = at_equal_misses(pd.DataFrame(rows))
        return each.rules, each.share, each.change.mean

    rules, share, change = found(0.02)
    assert (rules, share) == (("least-slack", "carbon-price:5"), pytest.approx(0.5))
    assert change == pytest.approx(69 / 85 - 1)
    assert found(0.0) == (("least-slack", "least-slack"), 0.0, pytest.approx(69 / 105 - 1))
