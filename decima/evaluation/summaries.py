"""One-line descriptions of all schedulers of ``decima compare``, by kind of scheduler."""

from __future__ import annotations

from decima.evaluation.variants import GRIDS, TUNED_ONCE
from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED, SCHEDULERS, UNGUARDED
from decima.schedulers.entries import TUNED_RULES
from decima.schedulers.listing import signature, summary

__all__ = ["scheduler_summaries"]


def scheduler_summaries() -> dict[str, dict[str, str]]:
    """Return heading -> name -> one-line description of all schedulers of ``decima compare``."""
    return {
        "Rules": {
            **{signature(name): summary(name) for name in SCHEDULERS if name not in TUNED_RULES},
            TUNED_ONCE: f"{signature(TUNED_ONCE)} with alpha tuned once on separate training sequences.",
            **{
                f"tuned-{name}": f"{signature(name)}, the best of {len(grid)} in each experiment: hindsight, as in "
                "the paper."
                for name, grid in GRIDS.items()
            },
            "tuned-NAME:once": "The same, tuned once on separate training sequences.",
            "tuned-NAME:makespan": "The best for the makespan, in hindsight.",
            "NAME:PARAMETER=VALUE,..": "With named parameters, for srpt also those of decima tune.",
            "NAME:PARAMETER=VALUE,base=OTHER": "cap, pcaps, greenest-first or carbon-.. around another scheduler.",
            "NAME,no-later-than=FACTOR": "With a guarantee; also floor=TENANT:SHARE+.. and ceiling=TENANT:SHARE+..",
        },
        "Rules with searched weights": {
            **{signature(name): summary(name) for name in TUNED_RULES},
            "NAME:FILE.json": "With the parameters in a file of decima tune.",
        },
        "Networks": {
            LEARNED: "A graph neural network, trained to schedule jobs like the given ones.",
            f"{LEARNED}:POLICY": f"The same with a policy file of decima train, or one of {', '.join(SHIPPED)}.",
            f"{LEARNED}:POLICY{UNGUARDED}": (
                "The same without its guard, which leaves no executor idle while work waits."
            ),
        },
    }
