from .about import read_about, read_trained_on
from .compiled.choices import Choices
from .compiled.graphs import Graphs
from .config import Feature, PolicyConfig
from .distribution import Distribution
from .encoder import Embeddings, Encoder, GraphTensors, LimitHead, StageHead
from .features import JobFeature, StageFeature
from .few_jobs import FewJobs
from .files import load_actor, load_policy, policy_path
from .grid import COMPARED, GridActor, load_network
from .parts import NotFiniteError, PartError, PolicyFileError, allow_parts
from .policy import Policy
from .presets import PRESETS
from .save import save_policy
from .scheduler import Actor, Featurizer, NeuralScheduler
from .threads import one_thread

__all__ = [
    "COMPARED",
    "PRESETS",
    "Actor",
    "Choices",
    "Distribution",
    "Embeddings",
    "Encoder",
    "Feature",
    "Featurizer",
    "FewJobs",
    "GraphTensors",
    "Graphs",
    "GridActor",
    "JobFeature",
    "LimitHead",
    "NeuralScheduler",
    "NotFiniteError",
    "PartError",
    "Policy",
    "PolicyConfig",
    "PolicyFileError",
    "StageFeature",
    "StageHead",
    "allow_parts",
    "load_actor",
    "load_network",
    "load_policy",
    "one_thread",
    "policy_path",
    "read_about",
    "read_trained_on",
    "save_policy",
]
