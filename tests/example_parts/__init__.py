"""An example package of custom parts: one of each kind, for policies and trainings.

The guide ``docs/guides/own-parts.md`` explains them.
"""

from tests.example_parts.features import LeftToStart, ShortestFirst
from tests.example_parts.learning import Better, Forgetful, PastMean
from tests.example_parts.network import LayersHead, MeanEncoder, ParabolaHead

__all__ = [
    "Better", "Forgetful", "LayersHead", "LeftToStart", "MeanEncoder", "ParabolaHead", "PastMean", "ShortestFirst",
]  # fmt: skip
