"""What ``decima compare`` compares, and on what cluster, unless told otherwise. Imports nothing that takes long."""

from __future__ import annotations

__all__ = ["DEFAULT_SCHEDULERS", "MOVING_DELAY", "SCHEDULERS_THAT_PACK"]

#: Scheduler names with commas between them.
DEFAULT_SCHEDULERS = (
    "fifo,sjf-cp,fair,naive-weighted-fair,weighted-fair,tuned-weighted-fair,priced-srpt,decima"
)
#: The same where executors are of several classes.
SCHEDULERS_THAT_PACK = "fair,tuned-weighted-fair,tetris,graphene-star,packed-srpt,decima"
#: Seconds that an executor needs to move to another job, where it was not measured.
MOVING_DELAY = 2.0
