"""What runs on a cluster: jobs as DAGs of stages, when they arrive, and where they come from.

Every source gives ``JobProfile`` objects, which are checked when they are built; ``batch_arrivals``,
``poisson_arrivals`` or ``trace_arrivals`` turns them into the ``JobSequence`` that a simulator runs:

>>> from workloads import embedded_tpch, poisson_arrivals
>>> jobs = poisson_arrivals(embedded_tpch(), num_jobs=3, mean_interval_ms=25_000, seed=1)
>>> len(jobs), jobs.num_tasks > 100
(3, True)

Whatever is malformed is refused with a ``WorkloadError`` of one line.
"""

import lazy_loader

# What ``__init__.pyi`` names; it is loaded when it is asked for, as Numba and pandas take half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
