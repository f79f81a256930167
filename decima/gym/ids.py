"""The names of environments, as texts: what is behind them is imported when one is made."""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

__all__ = ["IDS", "register_environments"]

#: Name -> what makes one, and what makes many at once; a new version has a new number, and the old one stays.
IDS = {
    "decima/TPCHBatch-v0": ("decima.gym.named:tpch_batch", "decima.gym.named:tpch_batch_vector"),
    "decima/TPCHStream-v0": ("decima.gym.named:tpch_stream", "decima.gym.named:tpch_stream_vector"),
    "decima/DeepRM-v0": ("decima.gym.named:deeprm", "decima.gym.named:deeprm_vector"),
}


def register_environments() -> None:
    """Make them known to ``gymnasium.make`` and ``gymnasium.make_vec``."""
    for name, (entry_point, vector_entry_point) in IDS.items():
        if name not in registry:  # a module that is loaded again would be warned about
            register(name, entry_point=entry_point, vector_entry_point=vector_entry_point)
