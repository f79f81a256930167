"""Policy cards: Markdown pages that describe a policy, its training, its results and its training distribution."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decima.policy.distribution import TITLES, Distribution, format_quantity
from decima.policy.file_format import TRAINED_ON
from workloads.display import count_text

__all__ = ["BEFORE", "policy_card", "previous_trainings"]

#: Key of ``about`` in a policy file: trainings of the initial policy (warm start), in order.
BEFORE = "before"
#: Key of ``about``: further text on the training.
NOTE = "note"
#: Maximum number of rows of the learning curve in a card.
CURVE_ROWS = 12
#: Numbers below this are shown with two decimals.
SMALL = 20.0


class _Training(BaseModel):
    """Fields of ``about`` in the file of an initial policy that appear in cards of policies trained from it."""

    model_config = ConfigDict(strict=True)

    command: str
    seed: int
    iterations_trained: int = Field(ge=0)
    training_cpu_s: float = Field(ge=0, allow_inf_nan=False)


def previous_trainings(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the trainings that led to a policy, in order; empty if the policy file does not describe them.

    Args:
        about: information about the training in the policy file, possibly malformed.
    """
    try:
        return [
            _Training.model_validate(training).model_dump() for training in (*about.get(BEFORE, []), about)
        ]
    except (TypeError, ValidationError):
        return []


def policy_card(name: str, about: Mapping[str, Any]) -> str:
    """Return the card of a policy as Markdown.

    Args:
        about: information in the policy file, see ``decima.policy.about.read_about``. An optional text ``note``, which
            ``decima.policy.save.add_about`` can add, is copied to the card.
    """
    validation, config = about["validation"], about["config"]
    reward = config.get("cluster", {}).get("reward", "jct")
    against = f"better than {validation['against']}"
    curve = about["curve"]["rows"]
    digits = 1 if curve[-1][1] >= SMALL else 2
    shown = sorted({*range(0, len(curve), max(1, -(-len(curve) // CURVE_ROWS))), len(curve) - 1})
    rows = [curve[row] for row in shown]
    lines = [
        f"# {name}",
        "",
        f"Trained {_origin(about['command'])}, seed {about['seed']}:",
        f"{_effort(about)}.",
        *(
            f"Its initial policy was trained {_origin(training['command'])}, seed {training['seed']}: "
            f"{_effort(training)}."
            for training in reversed(about.get(BEFORE, []))
        ),
        f"This is the policy after iteration {about['iteration']}, the best on the validation set.",
        *([] if reward == "jct" else [f"It was trained for the objective `{reward}`, not for the mean JCT."]),
        *_beginning(about),
        *_curriculum(config),
        "",
        *([about[NOTE], ""] if NOTE in about else ()),
        f"## On {validation['set']}",
        "",
        *(_cells(validation["cells"]) if "cells" in validation else _schedulers(validation, digits)),
        "",
        f"Its {validation['objective']} is {_versus(validation['improvement'])} than {validation['against']}.",
        "The best iteration was chosen on this set, so the policy may be slightly worse on others.",
        "",
        "## Learning curve",
        "",
        *_curve(validation, rows, against, digits),
        "",
        *(_distribution(Distribution.model_validate(about[TRAINED_ON])) if TRAINED_ON in about else ()),
        "## Settings",
        "",
        "```yaml",
        yaml.safe_dump(dict(config), sort_keys=False).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _code(command: str) -> str:
    """Format a command as one line of Markdown code."""
    text = " ".join(command.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _effort(training: Mapping[str, Any]) -> str:
    minutes, iterations = training["training_cpu_s"] / 60, training["iterations_trained"]
    return f"{count_text(round(minutes), 'minute')} of CPU time for {iterations} iterations"


def _versus(improvement: float) -> str:
    return f"{abs(improvement):.1%} {'better' if improvement >= 0 else 'worse'}"


def _origin(command: str) -> str:
    return f"with {_code(command)}" if command else "by `decima.train` in Python"


def _beginning(about: Mapping[str, Any]) -> list[str]:
    cloning = about["config"].get("behaviour_cloning")
    if cloning is not None:
        from decima.schedulers.former_names import present_rule

        rule = present_rule(cloning.get("scheduler") or cloning["heuristic"])
        return [f"It began as a clone of {_code(rule)}."]
    lines = [] if about.get(BEFORE) else ["It began with random weights, and learned from rewards alone."]
    if restarts := about["config"].get("restarts"):
        lines.append(
            f"After {restarts['share']:.0%} of the iterations it was the best of {restarts['seeds']} trainings with "
            "different seeds, on the validation set."
        )
    if about["config"].get("search"):
        lines.append("Direct search improved the last layers of its heads.")
    if few_jobs := about["config"].get("few_jobs"):
        lines.append(
            f"It has a second network, which decides with at most {count_text(few_jobs, 'live job')}: this training "
            "improved that network alone."
        )
    return lines


def _curriculum(config: Mapping[str, Any]) -> list[str]:
    curriculum, episodes = config.get("curriculum"), config.get("episodes", {})
    lines = []
    if batches := episodes.get("batches"):
        lines.append(f"In the first {batches:.0%} of the iterations, all jobs arrived at once.")
    if half_size := episodes.get("half_size"):
        lines.append(
            f"In the first {half_size:.0%} of the iterations, there were half of the executors and jobs."
        )
    if curriculum is None:
        return [*lines, "No training episode ended early."]
    return [
        *lines,
        f"Training episodes ended early, at first after {curriculum['start']:g} s on average, at last after "
        f"{curriculum['end']:g} s.",
    ]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return [lines[0].replace("|  |", "| |"), "|---" * len(headings) + "|", *lines[1:]]


def _schedulers(validation: Mapping[str, Any], digits: int) -> list[str]:
    """Tabulate results on the validation set: schedulers (rows) by measures (columns)."""
    shown, results = validation["shown"], validation["results"].items()
    rows = ([name, *(f"{values[name]:.{digits}f}" for name in shown)] for name, values in results)
    return _table(["scheduler", *shown], rows)


def _cells(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tabulate validation settings (rows) by schedulers (columns), with the policy's relative change."""
    names = list(cells[0]["results"])
    rows = []
    for cell in cells:
        times = [cell["results"][name] for name in names]
        shown = [f"{time_s:.{1 if time_s >= SMALL else 2}f}" for time_s in times]
        rows.append([str(cell["setting"]), *shown, f"{cell['change']:+.1%}"])
    return _table(["setting", *names, "change"], rows)


def _curve(
    validation: Mapping[str, Any], rows: Sequence[Sequence[float]], against: str, digits: int
) -> list[str]:
    """Tabulate the learning curve: objective and improvement, or with settings mean change and worst loss."""
    if "cells" in validation:
        changes = ([f"{at:.0f}", f"{mean:+.1%}", f"{-gain - mean:+.1%}"] for at, mean, gain in rows)
        return _table(["iteration", "mean change", "worst setting, beyond its interval"], changes)
    values = ([f"{at:.0f}", f"{value:.{digits}f}", f"{gain:+.1%}"] for at, value, gain in rows)
    return _table(["iteration", validation["objective"], against], values)


def _distribution(trained: Distribution) -> list[str]:
    """Tabulate the quantiles of the training distribution."""
    rows = (
        [TITLES[name], *(format_quantity(name, value) for value in spread)]
        for name, spread in trained.spreads()
        if spread != Distribution.model_fields[name].default
    )
    kind = {"batch": "Batches", "stream": "Streams", "both": "Batches and streams"}[trained.arrivals]
    return [
        "## Trained on",
        "",
        f"{kind} of jobs. `decima compare` lists what is out of this distribution.",
        "",
        *_table(["", "5 %", "median", "95 %"], rows),
        "",
    ]
