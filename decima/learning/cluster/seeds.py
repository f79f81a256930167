"""Where the seeds of a training lie, and what its random numbers are for.

Experiments of ``decima compare`` have small seeds, training has billions.
"""

from __future__ import annotations

__all__ = ["CLONING", "CLONING_OFFSET", "ENDS", "RUN_SEEDS", "SETTINGS", "SHUFFLE", "VALIDATION_SEEDS"]

#: Validation sequences are the same whatever the run's seed, so that runs can be compared.
VALIDATION_SEEDS = 5_000_000
#: A run's seeds begin at (1 + its seed) times this; those for behaviour cloning, this much later.
RUN_SEEDS = 1_000_000_000
CLONING_OFFSET = 900_000_000
#: What the random numbers of a training are for, beside the episodes' choices.
ENDS, SHUFFLE, CLONING, SETTINGS = range(4)
