"""Reasons for which executors leave an application: which of them are losses.

A loss is a removal that neither the driver nor an administrator asked for: a crash, a lost machine, a preemption, a
timeout. Executors that were released on purpose (dynamic allocation, decommissioning, end of the application) are not
lost. Spark's schedulers only write this as text, in the field ``Removed Reason``.
"""

from __future__ import annotations

import re

__all__ = ["is_loss"]

#: Cases in order of precedence: pattern, whether it is a loss. The comments name the scheduler that writes the text.
_CASES = (
    # The cloud or the cluster takes the executor away, even if its end is orderly. YARN: "Container C on host: H was
    # preempted."; Databricks: "worker decommissioned because of spot instance preemption"; Kubernetes: "The API gave
    # the following brief reason: Evicted".
    (r"preempt|evict|reclaim|\bspot\b|interruption", True),
    # YARN: "Diagnostics: Container released on a *lost* node".
    (r"lost\*? node", True),
    # All schedulers: "Executor killed by driver."
    (r"killed by driver", False),
    # Spark 3.1 and later: "Executor decommission: spark scale down", "Finished decommissioning"; standalone: "worker
    # decommissioned"; Databricks: "worker decommissioned because of kill request from HTTP endpoint".
    (r"decommission", False),
    # YARN: "Container C exited from explicit termination request."
    (r"explicit termination request", False),
    # YARN, from the diagnostics of a container: it was released, never used, or outlived its application.
    (r"killed by the applicationmaster|released by application|expired since it was unused", False),
    (r"completed application|exited after application shutdown", False),
    # Kubernetes: "The executor with id N was deleted by a user or the framework."
    (r"deleted by a user or the framework", False),
    # Kubernetes: "The executor with id N exited with exit code 0(SUCCESS)."; standalone: "Command exited with code 0".
    # An executor only ends in this way when it is told to.
    (r"exited with (exit )?code 0\b", False),
    # Mesos (before Spark 4): "Executor finished with state FINISHED", or KILLED if the driver ended it.
    (r"finished with state:? (finished|killed)", False),
    # Autoscalers of managed platforms.
    (r"\bidle\b|scal(e|ed|ing)[ -]?(down|in)\b", False),
)
_COMPILED = tuple((re.compile(pattern), lost) for pattern, lost in _CASES)


def is_loss(reason: str) -> bool:
    """Return whether an executor that was removed for ``reason`` was lost; an unknown or empty reason is a loss."""
    text = reason.lower()
    return next((lost for pattern, lost in _COMPILED if pattern.search(text)), True)
