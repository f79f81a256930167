"""What happens when jobs run under a scheduler: a discrete-event simulator of Spark clusters, and DeepRM's grid."""

import lazy_loader

# What ``__init__.pyi`` names; it is loaded when it is asked for, as Numba and pandas take half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
