"""Workloads of a cluster: jobs as DAGs of stages, their arrival times, and readers and generators of jobs.

Every source returns ``JobProfile`` objects, which are validated on construction; ``batch_arrivals``,
``poisson_arrivals`` or ``trace_arrivals`` turns them into the ``JobSequence`` that a simulator runs.

Examples:
    >>> from workloads import embedded_tpch, poisson_arrivals
    >>> jobs = poisson_arrivals(embedded_tpch(), num_jobs=3, mean_interval_ms=25_000, seed=1)
    >>> len(jobs), jobs.num_tasks > 100
    (3, True)

Malformed input raises a ``WorkloadError``, whose message is one line.
"""

import lazy_loader

# The names in ``__init__.pyi`` are imported on first use, as Numba and pandas take half a second to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
