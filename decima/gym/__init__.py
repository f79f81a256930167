"""To and from Gymnasium: policies that other libraries learned become schedulers; environments that papers can cite.

To import this is to register the environments, so ``gymnasium.make("decima.gym:decima/TPCHBatch-v0")`` needs no import.
"""

import lazy_loader

import simulator  # noqa: F401  # has environments, too
from decima.gym.ids import register_environments

register_environments()
# What ``__init__.pyi`` names is loaded when it is asked for, as the simulators take a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
