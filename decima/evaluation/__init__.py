"""Comparison of schedulers on the same sequences with the same task noise, with confidence intervals."""

import lazy_loader

# What ``__init__.pyi`` names; it is loaded when it is asked for, as PyTorch takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
