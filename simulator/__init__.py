"""Discrete-event simulators: a Spark cluster and DeepRM's grid. The import registers their Gymnasium environments."""

import lazy_loader
from gymnasium.envs.registration import register, registry

for _name, _package in (("Cluster", "simulator.cluster"), ("Grid", "simulator.grid")):
    if f"decima/{_name}-v0" not in registry:  # a module that is loaded again would cause a warning
        _many = "simulator.cluster.env:ClusterVectorEnv" if _name == "Cluster" else None
        register(f"decima/{_name}-v0", entry_point=f"{_package}.env:{_name}Env", vector_entry_point=_many)

# The names in ``__init__.pyi`` are imported on first use, as Numba and pandas take half a second to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
