"""Names in policy files, which ``files`` and ``about`` read and ``save`` writes."""

from __future__ import annotations

__all__ = ["FEW_JOBS", "HEAD", "POLICY", "TRAINED_ON", "VERSION"]

#: Name of the policy file in the folder of a training.
POLICY = "policy.npz"
#: Name of the array with the JSON text: format version, configuration, and information about the training.
HEAD = "policy"
#: Format version.
VERSION = 1
#: Key of the network for few jobs in the JSON text, and beginning of the names of its weights, with a point.
FEW_JOBS = "few_jobs"
#: Key of the training distribution in the information about the training.
TRAINED_ON = "trained_on"
