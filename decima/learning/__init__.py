"""Reinforcement learning of policies: a training loop with validation and checkpoints, for clusters and for grids."""

import lazy_loader

# Names in ``__init__.pyi`` are imported on first use, since PyTorch takes seconds to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
