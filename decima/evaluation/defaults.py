"""Default schedulers, cluster and jobs of ``decima compare``. This module imports quickly."""

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
