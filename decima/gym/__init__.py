"""Gymnasium interface: registered environments, and policies of other RL libraries as schedulers.

Importing this package registers the environments; ``gymnasium.make("decima.gym:decima/TPCHBatch-v0")`` imports it.
"""

import lazy_loader
from gymnasium.envs.registration import register, registry

import simulator  # noqa: F401  # registers its environments

#: Environment id -> factories of one environment and of a vector environment; None: Gymnasium makes one of single
#: environments. Old versions stay registered.
IDS: dict[str, tuple[str, str | None]] = {
    "decima/TPCHBatch-v0": ("decima.gym.interface:tpch_batch", "decima.gym.interface:tpch_batch_vector"),
    "decima/TPCHStream-v0": ("decima.gym.interface:tpch_stream", "decima.gym.interface:tpch_stream_vector"),
    "decima/DeepRM-v0": ("decima.gym.interface:deeprm", None),
}
for _name, (_one, _many) in IDS.items():
    if _name not in registry:  # registering again, after a reload, would warn
        register(_name, entry_point=_one, vector_entry_point=_many)
# Names in ``__init__.pyi`` are imported on first use, since the simulators take a second to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
