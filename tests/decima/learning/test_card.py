"""A card contains the information of the policy file."""

from pathlib import Path
from typing import Any

from decima.learning.card import CURVE_ROWS, policy_card, previous_trainings
from decima.policy.about import read_about
from decima.policy.grid_config import read_about as read_about_network
from decima.policy.shipped import SHIPPED
from tests.cases import cases
from tests.decima.policy.test_files import TRAINED_ON

ABOUT: dict[str, Any] = {
    "command": "decima train --config batch --out DIR",
    "seed": 3,
    "config": {"seed": 3, "iterations": 100, "curriculum": None},
    "iteration": 90,
    "iterations_trained": 100,
    "training_cpu_s": 600.0,
    "validation": {
        "set": "20 validation sequences; times are seconds",
        "objective": "mean JCT",
        "against": "weighted fair with the best alpha of each sequence",
        "shown": ["mean JCT"],
        "results": {"fair": {"mean JCT": 90.0}, "decima": {"mean JCT": 70.0}},
        "improvement": 0.125,
    },
    "curve": {"columns": [], "rows": [[float(k), 100.0 - k / 4, -0.25 + k / 300] for k in range(0, 101, 2)]},
}


def test_a_card_has_command_seeds_and_curve() -> None:
    card = policy_card("mine", ABOUT)
    assert card.startswith("# mine\n")
    assert "`decima train --config batch --out DIR`, seed 3:\n10 minutes of CPU time for 100 iterations." in card
    assert "after iteration 90" in card
    assert "| decima | 70.0 |" in card
    assert "Its mean JCT is 12.5% better than weighted fair with the best alpha of each sequence." in card
    assert "iterations: 100" in card
    rows = [line for line in policy_card("mine", ABOUT).splitlines() if line.endswith("% |")]
    assert len(rows) <= CURVE_ROWS + 1
    assert (rows[0], rows[-1]) == ("| 0 | 100.0 | -25.0% |", "| 100 | 75.0 | +8.3% |")
    validation = {**ABOUT["validation"], "improvement": -0.054}
    assert "Its mean JCT is 5.4% worse than weighted fair" in policy_card("mine", {**ABOUT, "validation": validation})


def test_a_card_tells_curriculum_origin_and_training() -> None:
    # The last training comes first.
    assert "went on" not in policy_card("mine", ABOUT)
    first = {**ABOUT, "command": "decima train --out FIRST", "seed": 1}
    second = {**ABOUT, "seed": 2, "before": previous_trainings(first)}
    card = policy_card("mine", {**ABOUT, "before": previous_trainings(second)})
    assert (
        "10 minutes of CPU time for 100 iterations.\n"
        "Its initial policy was trained with `decima train --config batch --out DIR`, seed 2: 10 minutes of CPU time "
        "for 100 iterations.\n"
        "Its initial policy was trained with `decima train --out FIRST`, seed 1: 10 minutes" in card
    )
    from_nothing = "It began with random weights, and learned from rewards alone.\nNo training episode ended early."
    assert from_nothing in policy_card("mine", ABOUT)
    assert "It began" not in card
    config = {
        "curriculum": {"start": 500.0, "end": 5000.0, "growth": 1.0},
        "episodes": {"batches": 0.7, "half_size": 0.5},
    }
    assert (
        "In the first 70% of the iterations, all jobs arrived at once.\n"
        "In the first 50% of the iterations, there were half of the executors and jobs.\n"
        "Training episodes ended early, at first after 500 s on average, at last after 5000 s."
    ) in policy_card("mine", {**ABOUT, "config": config})
    restarted = {"restarts": {"seeds": 4, "share": 0.25}}
    assert (
        "learned from rewards alone.\n"
        "After 25% of the iterations it was the best of 4 trainings with different seeds, on the validation set.\n"
    ) in policy_card("mine", {**ABOUT, "config": restarted})
    searched = policy_card("mine", {**ABOUT, "config": {"search": {"pairs": 48}}})
    assert "Direct search improved the last layers of its heads." in searched
    second = policy_card("mine", {**ABOUT, "config": {"few_jobs": 2}})
    assert "a second network, which decides with at most 2 live jobs: this training improved that network" in second
    cloned = {"behaviour_cloning": {"scheduler": "srpt"}}
    assert "It began as a clone of `srpt`." in policy_card("mine", {**ABOUT, "config": cloned})
    assert "Trained by `decima.train` in Python, seed 3:" in policy_card("mine", {**ABOUT, "command": ""})
    assert "Trained on" not in policy_card("mine", ABOUT)
    said = {**TRAINED_ON, "arrivals": "stream", "load": [0.5, 0.75, 1.0]}
    del said["jobs"]
    card = policy_card("mine", {**ABOUT, "trained_on": said})
    assert "## Trained on\n\nStreams of jobs." in card
    assert "| | 5 % | median | 95 % |" in card
    assert "| tasks of a job | 200 | 1,000 | 2,000 |" in card
    assert "| mean task duration, s | 0.08 | 0.1 | 0.4 |" in card
    assert "| load | 50% | 75% | 100% |" in card
    assert "jobs of a batch" not in card


@cases(
    "said",
    {}, {**ABOUT, "command": 3}, {**ABOUT, "seed": None}, {**ABOUT, "training_cpu_s": float("nan")},
    {**ABOUT, "before": 3}, {**ABOUT, "before": [3]}, {**ABOUT, "before": "x"},
)  # fmt: skip
def test_a_policy_that_does_not_tell_how_it_was_made_may_be_gone_on_with(said: dict[str, Any]) -> None:
    assert previous_trainings(said) == []


@cases("command, shown", ("a\n# b\n", "`a # b`"), ("a `b`", "`` a `b` ``"), ("``<b>``", "``` ``<b>`` ```"))
def test_the_command_of_somebody_else_is_no_markup(command: str, shown: str) -> None:
    assert f"Trained with {shown}, seed 3:\n" in policy_card("mine", {**ABOUT, "command": command})


@cases("path", *SHIPPED.values(), SHIPPED["tpch-batch"].with_name("deeprm.npz"), ids=lambda path: path.stem)
def test_the_card_of_a_policy_that_ships_is_what_its_file_says(path: Path) -> None:
    about = read_about_network(path) if path.stem == "deeprm" else read_about(path)
    assert path.with_suffix(".md").read_text() == policy_card(path.stem, about)
