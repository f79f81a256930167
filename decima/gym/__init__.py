"""To and from Gymnasium: policies of other libraries as schedulers, and environments that papers can cite.

An import registers the environments, so ``gymnasium.make("decima.gym:decima/TPCHBatch-v0")`` needs no import.
"""

import lazy_loader
from gymnasium.envs.registration import register, registry

import simulator  # noqa: F401  # has environments, too

#: Name -> factories of one environment and of many; a new version has a new number, and the old one stays.
IDS = {
    "decima/TPCHBatch-v0": ("decima.gym.named:tpch_batch", "decima.gym.named:tpch_batch_vector"),
    "decima/TPCHStream-v0": ("decima.gym.named:tpch_stream", "decima.gym.named:tpch_stream_vector"),
    "decima/DeepRM-v0": ("decima.gym.named:deeprm", "decima.gym.named:deeprm_vector"),
}
for _name, (_one, _many) in IDS.items():
    if _name not in registry:  # a module that is loaded again would cause a warning
        register(_name, entry_point=_one, vector_entry_point=_many)
# The names in ``__init__.pyi`` are imported when they are used, as the simulators take a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
