"""Comparison of schedulers on the same job sequences with the same task noise (common random numbers)."""

import lazy_loader

# Names in ``__init__.pyi`` are imported on first use, since PyTorch takes seconds to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

#: Default schedulers of ``decima compare``, comma-separated.
DEFAULT_SCHEDULERS = "fifo,fair,tuned-weighted-fair,srpt,srpt-tuned,decima"
#: Default schedulers on a cluster with several executor classes.
SCHEDULERS_THAT_PACK = "fair,tuned-weighted-fair,tetris,graphene-star,srpt,srpt-tuned,decima"
#: Metric to compare by, a name of ``--show`` -> heuristics that are added to the default schedulers.
RULES_FOR = {
    "misses": "edf,atc,atc-misses",
    "weighted": "weighted-srpt,atc,atc-weighted",
    "p99": "gamma-boost",
    "carbon": "carbon-price:5,carbon-slack",
}
#: Default moving delay, s, if the workload does not state it.
MOVING_DELAY = 2.0
