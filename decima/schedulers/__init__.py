"""Scheduling rules. A rule chooses the stage that runs next and its job's parallelism limit."""

import lazy_loader

# Names in ``__init__.pyi`` are imported on first use, since a rule does not need the others.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
