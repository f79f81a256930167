from .actor import Actor, Choices
from .config import PRESETS, Feature, PolicyConfig
from .errors import NotFiniteError, PolicyFileError
from .features import Featurizer
from .files import load_actor, read_about, read_trained_on, save_policy
from .graphs import Graphs
from .policy import Policy, load_policy
from .scheduler import NeuralScheduler
from .surroundings import Surroundings

__all__ = [
    "PRESETS",
    "Actor",
    "Choices",
    "Feature",
    "Featurizer",
    "Graphs",
    "NeuralScheduler",
    "NotFiniteError",
    "Policy",
    "PolicyConfig",
    "PolicyFileError",
    "Surroundings",
    "load_actor",
    "load_policy",
    "read_about",
    "read_trained_on",
    "save_policy",
]
