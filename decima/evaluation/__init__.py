"""Comparison of schedulers on the same sequences with the same task noise, with confidence intervals."""

import lazy_loader

# Names in ``__init__.pyi`` are imported at their first use, as PyTorch takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

#: Default schedulers of ``decima compare``, names with commas between them.
DEFAULT_SCHEDULERS = (
    "fifo,sjf-cp,fair,naive-weighted-fair,weighted-fair,tuned-weighted-fair,priced-srpt,decima"
)
#: Default schedulers on a cluster with several executor classes.
SCHEDULERS_THAT_PACK = "fair,tuned-weighted-fair,tetris,graphene-star,packed-srpt,decima"
#: Default time that an executor needs to move to another job, s, if the workload does not state it.
MOVING_DELAY = 2.0
