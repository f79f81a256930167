"""Registry of schedulers: make heuristics, learned policies and custom schedulers from their names.

Modules of schedulers, guarantees and policies are imported when a name needs them, as all of them take half a second.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Union

import simulator  # its names are imported on first use
from decima.schedulers.base import Decide, Scheduler, SchedulerError
from decima.schedulers.entries import ENTRIES, PARAMETERS, SCHEDULERS

if TYPE_CHECKING:
    from decima.schedulers.guarantees import Guarantees
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence

__all__ = [
    "ANY_POLICY", "FALLBACK", "LEARNED", "SCHEDULERS", "UNGUARDED", "SchedulerError", "SchedulerLike",
    "make_scheduler", "policy_named", "run_episode", "split_guarantees", "split_names",
]  # fmt: skip

#: Name of the learned scheduler; ``decima:POLICY`` names its policy, too.
LEARNED = "decima"
#: Suffix of a learned scheduler's name that switches the guard of its policy off.
UNGUARDED = ",guard=off"
#: Names of the learned scheduler that leave the policy open.
ANY_POLICY = (LEARNED, LEARNED + UNGUARDED)
#: Rule that decides for ``decima`` where no shipped policy was trained.
FALLBACK = "srpt-tuned"
#: Part of a scheduler's name from which on it adds guarantees, see ``decima.schedulers.guarantees``.
_GUARANTEES = re.compile(r",(floor|ceiling|no-later-than)=")
#: A scheduler, or anything that ``make_scheduler`` converts to one.
SchedulerLike = Union[str, "DecidesStages", "type[DecidesStages]", Decide]


def make_scheduler(spec: SchedulerLike, seed: int = 0) -> DecidesStages:
    """Make a scheduler from its name.

    Args:
        spec: a name in one of these forms; or a scheduler, a scheduler class, or a function that maps an observation
            to a decision.

            - ``NAME``: one of ``SCHEDULERS``, with parameters (``PARAMETERS``) as ``NAME:NUMBER:NUMBER..``,
              ``NAME:PARAMETER=VALUE,..`` or ``NAME:FILE.json``, a file of ``decima tune``.
            - ``decima:POLICY``: a learned policy, shipped (see ``decima.policy.shipped``) or a file; ``,guard=off``
              switches the guard off (see ``NeuralScheduler``). ``decima`` alone is the rule ``FALLBACK``: which policy
              was trained for the jobs and the cluster, only a comparison knows.
            - ``module:Class``: a custom class, also from the current folder; ``module:Class:NUMBER:NUMBER..`` and
              ``module:Class:PARAMETER=NUMBER,..`` give numbers to its constructor.
            - ``,no-later-than=1.5``, ``,floor=TENANT:SHARE+..``, ``,ceiling=TENANT:SHARE+..`` after any name add
              guarantees.
        seed: random seed of schedulers that draw random numbers.

    Raises:
        SchedulerError: there is no such scheduler, or it cannot be built.
    """
    if isinstance(spec, Scheduler):
        return spec
    if not isinstance(spec, str):
        from decima.registry.custom import scheduler_of_object

        return scheduler_of_object(spec)
    named, guarantees = split_guarantees(spec)
    if guarantees:
        from decima.schedulers.guarantees import guarded

        return guarded(make_scheduler(named, seed), guarantees)
    has_guard = not spec.endswith(UNGUARDED)
    name, colon, argument = spec.removesuffix(UNGUARDED).partition(":")
    if name == LEARNED and colon:
        from decima.registry.policies import learned_scheduler

        return learned_scheduler(spec, argument, has_guard)
    if name == LEARNED:
        return SCHEDULERS[FALLBACK]()
    if name in ENTRIES and has_guard:
        if not colon:
            kind: Any = SCHEDULERS[name]
            return kind(seed) if name == "random" else kind()  # type: ignore[no-any-return]
        if name in PARAMETERS:
            from decima.registry.parameters import rule_with_parameters

            return rule_with_parameters(spec, name, argument)
    from decima.registry.custom import scheduler_of_class

    return scheduler_of_class(spec)


def run_episode(config: ClusterConfig, sequence: JobSequence, scheduler: SchedulerLike) -> EpisodeRecord:
    """Run a sequence of jobs under a scheduler, see ``simulator.run_episode``.

    Args:
        config: the cluster.
        sequence: the jobs and their arrival times.
        scheduler: name, object, class or function of an observation, see ``make_scheduler``. Schedulers that draw
            random numbers use the seed of the sequence.

    Raises:
        ConfigError: an argument has a wrong type, or no executor class can run some stage.
        SchedulerError: there is no such scheduler, or it cannot be built.
        SchedulingError: a decision cannot be carried out, or the episode stalls because all executors stay idle.
    """
    return simulator.run_episode(config, sequence, make_scheduler(scheduler, getattr(sequence, "seed", 0)))


def policy_named(spec: str) -> str | None:
    """Return the policy (name or path) that a scheduler's name contains; None if it contains no policy."""
    name, colon, policy = _GUARANTEES.split(spec)[0].removesuffix(UNGUARDED).partition(":")
    return policy if colon and name == LEARNED else None


def split_guarantees(spec: str) -> tuple[str, Guarantees | None]:
    """Split a scheduler's name into the name without guarantees, and the guarantees; None without guarantees.

    Raises:
        SchedulerError: the guarantees are malformed or invalid.
    """
    if not _GUARANTEES.search(spec):
        return spec, None
    from decima.schedulers.guarantees import parse_guarantees

    return parse_guarantees(spec)


def split_names(text: str) -> list[str]:
    """Split a list of scheduler names at commas, except at commas inside a name, as before ``guard=off``."""
    return [name.strip() for name in re.split(r",(?!\s*[\w-]+=)", text)]
