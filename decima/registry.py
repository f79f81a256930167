"""Registry of schedulers: make heuristics, learned policies and custom schedulers from their names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from decima import policy as policies  # its names are imported on first use
from decima import schedulers
from decima.policy.parts import PartError, PolicyFileError, build_part, is_custom
from decima.schedulers.base import Decide, FunctionScheduler, Scheduler, SchedulerError
from decima.schedulers.former_names import FORMER_RULES
from decima.schedulers.guarantees import guarded, split_guarantees
from workloads.errors import WorkloadError, did_you_mean, number_in, whole_in
from workloads.reading import read_document

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor, NeuralScheduler
    from decima.schedulers.grid import GridScheduler
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "ANY_POLICY", "DEFAULT_POLICY", "GRID_SCHEDULERS", "LEARNED", "PARAMETERS", "SCHEDULERS", "UNGUARDED",
    "SchedulerError", "SchedulerLike", "load_policy", "make_grid_scheduler", "make_scheduler", "parameters",
    "policy_named", "signature", "split_names", "summary",
]  # fmt: skip

#: Name of the learned scheduler; ``decima:POLICY`` names its policy, too.
LEARNED = "decima"
#: Suffix of a learned scheduler's name that switches the guard of its policy off.
UNGUARDED = ",guard=off"
#: Names of the learned scheduler that leave the policy open.
ANY_POLICY = (LEARNED, LEARNED + UNGUARDED)
#: Policy of ``decima`` if the evaluation setting is unknown.
DEFAULT_POLICY = "general"

#: Heuristics: name on the command line -> module in ``decima.schedulers``, and class.
_PLACES = {
    "random": "baselines:RandomChoice",
    "fifo": "baselines:Fifo",
    "sjf-cp": "baselines:SjfCp",
    "fair": "fair:Fair",
    "naive-weighted-fair": "fair:NaiveWeightedFair",
    "weighted-fair": "fair:WeightedFair",
    "spark-fair": "spark:SparkFair",
    "fair-pools": "spark:FairPools",
    "srpt": "srpt:Srpt",
    "srpt-tuned": "srpt:TunedSrpt",
    "sjf-estimate": "queueing:SjfEstimate",
    "srpt-bounce": "queueing:SrptBounce",
    "seh": "queueing:Seh",
    "gittins": "queueing:Gittins",
    "las": "queueing:Las",
    "hesrpt": "queueing:HeSrpt",
    "inelastic-first": "queueing:InelasticFirst",
    "weighted-srpt": "objectives:WeightedSrpt",
    "edf": "objectives:Edf",
    "least-slack": "objectives:LeastSlack",
    "gamma-boost": "objectives:GammaBoost",
    "atc": "objectives:Atc",
    "cap": "carbon_aware:Cap",
    "pcaps": "carbon_aware:Pcaps",
    "greenest-first": "carbon_aware:GreenestFirst",
    "carbon-price": "carbon_price:CarbonPrice",
    "carbon-slack": "carbon_price:CarbonSlack",
    "tetris": "baselines:Tetris",
    "drf": "fair:Drf",
    "graphene-star": "graphene.planner:GrapheneStar",
    "graphene": "graphene.planner:Graphene",
}


class _Schedulers(Mapping[str, type[Scheduler]]):
    """Classes by name, imported when they are looked up, since all of them take half a second to import."""

    def __getitem__(self, name: str) -> type[Scheduler]:
        return _imported(_PLACES[name])  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"decima.schedulers.{module}"), name)


#: Heuristics: name on the command line -> class.
SCHEDULERS: Mapping[str, type[Scheduler]] = _Schedulers()

#: Rules on DeepRM's grid: name -> module in ``decima.schedulers``, and class.
GRID_SCHEDULERS = {
    "sjf": "grid:ShortestJobFirst",
    "packer": "grid:Packer",
    "tetris": "grid:Tetris",
    "random": "grid:RandomChoice",
}

#: Largest absolute value of a parameter; beyond it, powers of work overflow.
LARGEST_PARAMETER = 100

#: Heuristic -> its numeric parameters in the order in which they follow its name, separated by colons.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "weighted-fair": ("alpha",),
    "srpt": ("jitter",),
    "srpt-tuned": ("jitter",),
    "seh": ("frozen",),
    "gamma-boost": ("load",),
    "atc": ("lookahead",),
    "cap": ("minimum",),
    "pcaps": ("gamma",),
    "greenest-first": ("patience",),
    "carbon-price": ("seconds",),
    "carbon-slack": ("seconds",),
    "tetris": ("remaining", "fairness"),
    "graphene-star": ("alpha", "long", "fragmented"),
    "graphene": ("remaining", "fairness"),
}
#: Heuristics that wrap another scheduler: ``NAME:PARAMETER=VALUE,base=OTHER``.
WITH_BASE = ("cap", "pcaps", "greenest-first", "carbon-price", "carbon-slack")
#: Heuristic -> places (module in ``decima.schedulers``, and name) of further parameters with their defaults, which
#: ``NAME:PARAMETER=VALUE,..`` sets.
_CONSTANTS: dict[str, tuple[str, ...]] = {
    "srpt": ("srpt:CONSTANTS",),
    "srpt-tuned": ("srpt:CONSTANTS", "srpt:WEIGHTS"),
    "gamma-boost": ("priced_srpt:PricedConstants",),
    "atc": ("objectives:AtcConstants", "priced_srpt:PricedConstants"),
    "carbon-slack": ("carbon_price:CarbonSlackConstants",),
}

#: A scheduler, or anything that ``make_scheduler`` converts to one.
SchedulerLike = Union[str, "DecidesStages", "type[DecidesStages]", Decide]


def make_scheduler(spec: SchedulerLike, seed: int = 0) -> DecidesStages:
    """Make a scheduler from its name.

    Args:
        spec: a name in one of these forms; or a scheduler, a scheduler class, or a function that maps an observation
            to a decision.

            - ``NAME``: one of ``SCHEDULERS``, with parameters (``PARAMETERS``) as ``NAME:NUMBER:NUMBER..``,
              ``NAME:PARAMETER=VALUE,..`` or ``NAME:FILE.json``, a file of ``decima tune``.
            - ``decima:POLICY``: a learned policy, shipped (see ``decima.policy.shipped``) or a file; ``decima`` is
              ``decima:general``; ``,guard=off`` switches the guard off (see ``NeuralScheduler``).
            - ``module:Class``: a custom class, also from the current folder, built without arguments.
            - ``,no-later-than=1.5``, ``,floor=TENANT:SHARE+..``, ``,ceiling=TENANT:SHARE+..`` after any name add
              guarantees.
        seed: random seed of schedulers that draw random numbers.

    Raises:
        SchedulerError: there is no such scheduler, or it cannot be built.
    """
    if not isinstance(spec, str):
        return _custom_object(spec)
    if (named := split_guarantees(spec))[1]:
        return guarded(make_scheduler(named[0], seed), named[1])
    has_guard = not spec.endswith(UNGUARDED)
    name, colon, argument = spec.removesuffix(UNGUARDED).partition(":")
    if name in SCHEDULERS and not colon and has_guard:
        kind: Any = SCHEDULERS[name]
        return kind(seed) if name == "random" else kind()  # type: ignore[no-any-return]
    if name in PARAMETERS and has_guard:
        return _with_parameters(spec, name, argument)
    if name == LEARNED:
        try:
            return load_policy(argument if colon else DEFAULT_POLICY, guard=has_guard)
        except (PartError, PolicyFileError) as error:
            raise SchedulerError(f"scheduler {spec!r}: {error}") from None
    if name in FORMER_RULES:
        raise SchedulerError(f"scheduler {spec!r}: {name} is now {FORMER_RULES[name]}")
    near = did_you_mean(name, [*SCHEDULERS, LEARNED])
    module = name.removesuffix(".py")
    if not near and not colon and Path(f"{module}.py").is_file():
        near = f" (did you mean a class in that file, '{module}:CLASS'?)"
    if not (colon and has_guard) or name in SCHEDULERS or (near and not is_custom(spec)):
        known = ", ".join(map(signature, SCHEDULERS))
        raise SchedulerError(
            f"unknown scheduler {spec!r}{near}: expected one of {known}, decima, decima:POLICY or module:Class; "
            "decima compare and decima.compare know tuned-weighted-fair, too, and decima.tune gives its alpha"
        )
    return _custom_scheduler(spec)


def make_grid_scheduler(spec: str) -> GridScheduler:
    """Make a scheduler of DeepRM's grid from its name.

    Args:
        spec: one of ``GRID_SCHEDULERS``, ``tetris:KNOB`` or ``random:SEED``; or ``module:Class``, a custom class, also
            from the current folder, built without arguments, whose objects map a ``Grid`` to actions, see
            ``decima.schedulers.grid.ScoredRule``.

    Raises:
        SchedulerError: the name is unknown, or a parameter is out of range.
    """
    name, colon, argument = spec.partition(":")
    if name in GRID_SCHEDULERS:
        rule: Any = _imported(GRID_SCHEDULERS[name])
        if not colon:
            return rule()  # type: ignore[no-any-return]
        if name == "tetris" and 0 <= (knob := number_in(argument)) <= 1:
            return rule(knob)  # type: ignore[no-any-return]
        if name == "random" and (seed := whole_in(argument)) is not None and seed >= 0:
            return rule(seed)  # type: ignore[no-any-return]
        raise SchedulerError(f"{spec!r}: expected tetris:KNOB with a knob of 0 to 1, or random:SEED")
    if not is_custom(spec):
        raise SchedulerError(
            f"unknown heuristic {spec!r}: expected one of {', '.join(GRID_SCHEDULERS)}, tetris:KNOB, random:SEED or "
            "module:Class; decima deeprm compare also accepts tetris*"
        )
    try:
        scheduler = build_part(spec)
    except PartError as error:
        raise SchedulerError(f"heuristic {error}") from None
    if not callable(scheduler):
        raise SchedulerError(f"heuristic {spec!r}: expected a class whose objects map a grid to actions")
    return scheduler  # type: ignore[no-any-return]


def load_policy(policy: str | Path, guard: bool = True) -> NeuralScheduler:
    """Load a learned scheduler, ready for ``run_episode``.

    Args:
        policy: name of a shipped policy, such as ``tpch-batch`` (see ``decima.policy.shipped``), or path of a policy
            file that ``decima train`` wrote, or of the folder of the training.
        guard: whether a guard masks decisions that leave executors idle while work waits, see ``NeuralScheduler``.

    Raises:
        PolicyFileError: there is no such policy, or the file cannot be read.
        PartError: a custom part of the policy cannot be loaded.
    """
    if not isinstance(policy, str | Path):
        raise PolicyFileError(f"policy must be a name or a path, got {policy!r:.60}")
    path = policies.policy_path(policy)
    if path.is_dir():
        path = policies.policy_path(f"{path}/")
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise PolicyFileError(f"{path}: {error.strerror}") from None
    return policies.NeuralScheduler(_actor(path, changed_ns), guard=guard)


def policy_named(spec: str) -> str | None:
    """Return the policy (name or path) that a scheduler's name contains; None if it contains no policy."""
    name, colon, policy = split_guarantees(spec)[0].removesuffix(UNGUARDED).partition(":")
    return policy if colon and name == LEARNED else None


def signature(name: str) -> str:
    """Return how to write a heuristic with its parameters, such as ``seh:FROZEN``."""
    return ":".join((name, *map(str.upper, PARAMETERS.get(name, ()))))


def summary(name: str) -> str:
    """Return the first line of a heuristic's docstring, read from the source, as classes are slow to import."""
    module, _, kind = _PLACES[name].partition(":")
    source = Path(*schedulers.__path__, *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    [found] = (
        each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == kind
    )
    return (ast.get_docstring(found) or "").partition("\n")[0].replace("``", "")


def split_names(text: str) -> list[str]:
    """Split a list of scheduler names at commas, except at commas inside a name, as before ``guard=off``."""
    return [name.strip() for name in re.split(r",(?!\s*[\w-]+=)", text)]


def parameters(spec: str) -> dict[str, float]:
    """Return all parameters of a heuristic, with the values that its name contains, otherwise their defaults.

    Args:
        spec: name of a heuristic, such as ``srpt`` or ``srpt:staying=0.5``, see ``make_scheduler``.

    Raises:
        SchedulerError: unknown heuristic or parameter, or a value that is not a number.
    """
    name, colon, argument = spec.partition(":")
    if name in FORMER_RULES:
        raise SchedulerError(f"scheduler {spec!r}: {name} is now {FORMER_RULES[name]}")
    if name not in SCHEDULERS or (colon and name not in PARAMETERS):
        raise SchedulerError(f"scheduler {spec!r}: expected a heuristic{did_you_mean(name, SCHEDULERS)}")
    return _defaults(name) | (_values(spec, name, argument) if colon else {})


def _defaults(name: str) -> dict[str, float]:
    found = inspect.signature(SCHEDULERS[name]).parameters.items()
    defaults = {key: one.default for key, one in found if one.default not in (inspect.Parameter.empty, None)}
    for found in map(_imported, _CONSTANTS.get(name, ())):
        defaults |= found if isinstance(found, dict) else found()._asdict()
    return defaults


def _with_parameters(spec: str, name: str, argument: str) -> Scheduler:
    base: DecidesStages | None = None
    if name in WITH_BASE and "=" in argument:
        pairs = argument.split(",")
        bases = [each for each in pairs if each.partition("=")[0].strip() == "base"]
        if bases:
            base = make_scheduler(bases[-1].partition("=")[2].strip())
            argument = ",".join(each for each in pairs if each not in bases)
    values = {} if base is not None and not argument else _values(spec, name, argument)
    try:
        return SCHEDULERS[name](**values, **({} if base is None else {"base": base}))
    except ValueError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None


def _values(spec: str, name: str, argument: str) -> dict[str, float]:
    """Return the parameters in the part of a heuristic's name after the first colon."""
    if argument.endswith(".json"):
        values = _read_parameters(spec, name, Path(argument))
    elif "=" in argument:
        pairs = (each.partition("=") for each in argument.split(","))
        values = {key.strip(): number_in(value) for key, _, value in pairs}
    else:
        texts = argument.split(":")
        if len(texts) > len(PARAMETERS[name]):
            raise _expected(spec, name)
        values = dict(zip(PARAMETERS[name], map(number_in, texts), strict=False))
    known = _defaults(name)
    for key, value in values.items():
        if key not in known:
            near = did_you_mean(key, known)
            raise SchedulerError(f"scheduler {spec!r}: no parameter {key!r}{near}, only {', '.join(known)}")
        if not abs(value) <= LARGEST_PARAMETER:
            raise _expected(spec, name)
    return values


def _expected(spec: str, name: str) -> SchedulerError:
    most = LARGEST_PARAMETER
    return SchedulerError(f"scheduler {spec!r}: expected {signature(name)}, numbers from -{most} to {most}")


def _read_parameters(spec: str, name: str, path: Path) -> dict[str, float]:
    """Read ``rule`` and ``parameters`` from a file that ``decima tune --json`` wrote; other entries have no effect."""
    try:
        content = read_document(path, "results of decima tune")
    except WorkloadError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None
    rule, values = (content.get(key) if isinstance(content, dict) else None for key in ("rule", "parameters"))
    if rule != name or not isinstance(values, dict):
        raise SchedulerError(
            f"scheduler {spec!r}: {path}: expected the entries rule, {name!r}, and parameters"
        )
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SchedulerError(
                f"scheduler {spec!r}: {path}: parameters.{key}: expected a number, got {value!r:.60}"
            )
    return values


@lru_cache(maxsize=16)
def _actor(path: Path, changed_ns: int) -> Actor | Policy:
    """Read a policy file once per process and time of change."""
    return policies.load_actor(path)


def _custom_scheduler(spec: str) -> DecidesStages:
    try:
        scheduler = build_part(spec)
    except PartError as error:
        raise SchedulerError(f"scheduler {error}") from None
    if not _is_scheduler(scheduler):
        raise SchedulerError(
            f"scheduler {spec!r} needs the methods decide and reset of decima.schedulers.Scheduler"
        )
    return scheduler  # type: ignore[no-any-return]


def _custom_object(spec: Any) -> DecidesStages:
    if isinstance(spec, type):
        try:
            spec = spec()
        except TypeError as error:
            raise SchedulerError(
                f"scheduler {spec.__name__}: {error}; give an object instead of the class"
            ) from None
    if _is_scheduler(spec):
        return spec  # type: ignore[no-any-return]
    if callable(spec):
        return FunctionScheduler(spec)
    raise SchedulerError(
        f"a scheduler is a name, an object or class with the methods decide and reset, or a function, got {spec!r:.60}"
    )


def _is_scheduler(candidate: Any) -> bool:
    return callable(getattr(candidate, "decide", None)) and callable(getattr(candidate, "reset", None))
