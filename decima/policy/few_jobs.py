"""A policy of two networks: the second one decides in states with few live jobs.

Such states are rare in batches and in busy streams, so that a network learns little about them, but streams at moderate
load consist of them. And with one live job, unlike with twenty, it often pays to leave executors idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from decima.policy.archive import checked
from decima.policy.config import PolicyConfig
from decima.policy.file_format import FEW_JOBS
from decima.policy.scheduler import Actor
from workloads.errors import PolicyFileError

if TYPE_CHECKING:
    from decima.policy.policy import Policy

__all__ = ["FewJobs", "ManyJobs", "build_both"]

Network = TypeVar("Network", bound="Actor | Policy")


class FewJobs(NamedTuple):
    """Second network of a policy.

    Attributes:
        at_most: largest number of live jobs with which it decides.
        policy: the network.
    """

    at_most: int
    policy: Actor | Policy


class ManyJobs(NamedTuple):
    """First network of a policy, which decides where the second one, which learns, does not.

    Attributes:
        more_than: it decides with more than this number of live jobs.
        policy: the network.
    """

    more_than: int
    policy: Actor

    def and_few(self, policy: Actor | Policy) -> Actor:
        """Return a policy of this network and a second one."""
        both = Actor(self.policy.config, self.policy.arrays)
        both.few_jobs = FewJobs(self.more_than, policy)
        return both


class _Head(BaseModel):
    """Entry ``FEW_JOBS`` of the JSON text in a policy file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    at_most: int = Field(ge=1, strict=True)
    config: PolicyConfig


def build_both(
    path: Path,
    entry: object,
    config: PolicyConfig,
    arrays: Mapping[str, NDArray[Any]],
    build: Callable[..., Network],
) -> Network:
    """Build a policy of two networks from the contents of its file.

    Args:
        path: path of the file, for error messages.
        entry: entry ``FEW_JOBS`` of the JSON text.
        config: configuration of the first network.
        arrays: weights of both networks by name.
        build: builds a network from its configuration, its weights, and the beginning of their names in the file.

    Raises:
        PolicyFileError: the entry or a weight is malformed, or a network has custom parts.
    """
    few = checked(path, _Head, entry, FEW_JOBS)
    if config.has_custom_parts or few.config.has_custom_parts:
        raise PolicyFileError(f"{path}: {FEW_JOBS}: expected two networks without custom parts")
    start = f"{FEW_JOBS}."
    network = build(config, {name: array for name, array in arrays.items() if not name.startswith(start)})
    of_few = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    network.few_jobs = FewJobs(few.at_most, build(few.config, of_few, start))
    return network
