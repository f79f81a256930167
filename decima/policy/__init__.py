"""Decima's policy: a graph neural network (GNN) that chooses the next stage and its job's parallelism limit.

Source: Decima (SIGCOMM 2019), section 5.
"""

import lazy_loader

# Names in ``__init__.pyi`` are imported on first use, since PyTorch takes seconds to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
