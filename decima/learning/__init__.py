"""Training of policies: a loop with validation and checkpoints, with iterations for clusters and for grids."""

import lazy_loader

# The names in ``__init__.pyi`` are imported on first use, because importing PyTorch takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
