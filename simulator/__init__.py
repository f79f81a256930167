"""What happens when jobs run under a scheduler: a discrete-event simulator of Spark clusters, and DeepRM's grid.

To import this is to register its environments with Gymnasium.
"""

import lazy_loader
from gymnasium.envs.registration import register, registry

for _name, _room in (("Cluster", "simulator.cluster"), ("Grid", "simulator.grid")):
    if f"decima/{_name}-v0" not in registry:  # a module that is loaded again would be warned about
        register(
            f"decima/{_name}-v0",
            entry_point=f"{_room}.env:{_name}Env",
            vector_entry_point=f"{_room}.vector:{_name}VectorEnv",
        )

# What ``__init__.pyi`` names; it is loaded when it is asked for, as Numba and pandas take half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
