"""How policies learn: one loop, returns, baselines, updates; ``cluster`` and ``grid`` add only what differs."""

import lazy_loader

# What ``__init__.pyi`` names; it is loaded when it is asked for, as PyTorch takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
