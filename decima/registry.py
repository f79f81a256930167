"""Registry of schedulers: make heuristics, learned policies and custom schedulers from their names.

Modules of schedulers, guarantees and policies are imported when a name needs them, as all of them take half a second.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from decima import policy as policies  # its names are imported on first use
from decima import schedulers
from decima.schedulers.base import Decide, FunctionScheduler, Scheduler, SchedulerError
from decima.schedulers.former_names import FORMER_RULES, present_name
from workloads.errors import WorkloadError, did_you_mean, is_custom, number_in, whole_in
from workloads.reading import read_document

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor, NeuralScheduler
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "ANY_POLICY",
    "FALLBACK",
    "LEARNED",
    "PARAMETERS",
    "SCHEDULERS",
    "TUNED_RULES",
    "UNGUARDED",
    "SchedulerError",
    "SchedulerLike",
    "load_policy",
    "make_scheduler",
    "parameters",
    "policy_named",
    "signature",
    "split_names",
    "summary",
]  # fmt: skip

#: Name of the learned scheduler; ``decima:POLICY`` names its policy, too.
LEARNED = "decima"
#: Suffix of a learned scheduler's name that switches the guard of its policy off.
UNGUARDED = ",guard=off"
#: Names of the learned scheduler that leave the policy open.
ANY_POLICY = (LEARNED, LEARNED + UNGUARDED)
#: Rule that decides for ``decima`` where no shipped policy was trained.
FALLBACK = "srpt-tuned"


class Entry(NamedTuple):
    """A heuristic of the registry.

    Attributes:
        place: module in ``decima.schedulers``, and class.
        parameters: numeric parameters in the order in which they follow the name, separated by colons.
        constants: functions (module and name) that return further parameters with their defaults, which
            ``NAME:PARAMETER=VALUE,..`` sets.
        has_base: whether the heuristic modifies another scheduler, ``NAME:PARAMETER=VALUE,base=OTHER``.
    """

    place: str
    parameters: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    has_base: bool = False


#: Heuristics by their names on the command line.
_ENTRIES = {
    "random": Entry("baselines:RandomChoice"),
    "fifo": Entry("baselines:Fifo"),
    "sjf-cp": Entry("baselines:SjfCp"),
    "fair": Entry("fair:Fair"),
    "naive-weighted-fair": Entry("fair:NaiveWeightedFair"),
    "weighted-fair": Entry("fair:WeightedFair", ("alpha",)),
    "spark-fair": Entry("spark:SparkFair"),
    "fair-pools": Entry("spark:FairPools"),
    "srpt": Entry("srpt:Srpt", ("jitter",), ("srpt_weights:Constants",)),
    "srpt-tuned": Entry(
        "srpt:TunedSrpt", ("jitter",), ("srpt_weights:Constants", "srpt_weights:searched_weights")
    ),
    "sjf-estimate": Entry("queueing:SjfEstimate"),
    "srpt-bounce": Entry("queueing:SrptBounce"),
    "seh": Entry("queueing:Seh", ("frozen",)),
    "gittins": Entry("queueing:Gittins"),
    "las": Entry("queueing:Las"),
    "hesrpt": Entry("queueing:HeSrpt"),
    "inelastic-first": Entry("queueing:InelasticFirst"),
    "weighted-srpt": Entry("objectives:WeightedSrpt"),
    "edf": Entry("objectives:Edf"),
    "least-slack": Entry("objectives:LeastSlack"),
    "gamma-boost": Entry("objectives:GammaBoost", ("load",), ("srpt_weights:constants_of_orders",)),
    "atc": Entry(
        "objectives:Atc", ("lookahead",), ("objectives:AtcConstants", "srpt_weights:constants_of_orders")
    ),
    "atc-misses": Entry("objectives:AtcForMisses"),
    "atc-weighted": Entry("objectives:AtcForWeights"),
    "cap": Entry("carbon_aware:Cap", ("minimum",), has_base=True),
    "pcaps": Entry("carbon_aware:Pcaps", ("gamma",), has_base=True),
    "greenest-first": Entry("carbon_aware:GreenestFirst", ("patience",), has_base=True),
    "carbon-price": Entry("carbon_price:CarbonPrice", ("seconds",), has_base=True),
    "carbon-slack": Entry(
        "carbon_price:CarbonSlack", ("seconds",), ("carbon_price:CarbonSlackConstants",), has_base=True
    ),
    "tetris": Entry("baselines:Tetris", ("remaining", "fairness")),
    "drf": Entry("fair:Drf"),
    "graphene-star": Entry("graphene.planner:GrapheneStar", ("alpha", "long", "fragmented")),
    "graphene": Entry("graphene.planner:Graphene", ("remaining", "fairness")),
}
#: Heuristic -> its parameters, see ``Entry``.
PARAMETERS = {name: entry.parameters for name, entry in _ENTRIES.items() if entry.parameters}
#: Heuristics that modify another scheduler.
WITH_BASE = tuple(name for name, entry in _ENTRIES.items() if entry.has_base)
#: Rules with searched weights.
TUNED_RULES = (FALLBACK, "atc-misses", "atc-weighted")
#: Largest absolute value of a parameter; beyond it, powers of work overflow.
LARGEST_PARAMETER = 100
#: Part of a scheduler's name from which on it adds guarantees, see ``decima.schedulers.guarantees``.
_GUARANTEES = re.compile(r",(floor|ceiling|no-later-than)=")


class _Schedulers(Mapping[str, type[Scheduler]]):
    """Classes of heuristics by name, imported when they are looked up."""

    def __getitem__(self, name: str) -> type[Scheduler]:
        return _imported(_ENTRIES[name].place)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"decima.schedulers.{module}"), name)


#: Heuristics: name on the command line -> class.
SCHEDULERS: Mapping[str, type[Scheduler]] = _Schedulers()

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
    if not isinstance(spec, str):
        return _custom_object(spec)
    if _GUARANTEES.search(spec):
        from decima.schedulers.guarantees import guarded, split_guarantees

        named, guarantees = split_guarantees(spec)
        if guarantees:
            return guarded(make_scheduler(named, seed), guarantees)
    has_guard = not spec.endswith(UNGUARDED)
    name, colon, argument = spec.removesuffix(UNGUARDED).partition(":")
    _check_present(spec, name)
    if name == LEARNED:
        return _learned_scheduler(spec, argument, has_guard) if colon else SCHEDULERS[FALLBACK]()
    if name in _ENTRIES and has_guard:
        if not colon:
            kind: Any = SCHEDULERS[name]
            return kind(seed) if name == "random" else kind()  # type: ignore[no-any-return]
        if name in PARAMETERS:
            return _with_parameters(spec, name, argument)
    near = did_you_mean(name, [*_ENTRIES, LEARNED])
    module = name.removesuffix(".py")
    if not near and not colon and Path(f"{module}.py").is_file():
        near = f" (did you mean a class in that file, '{module}:CLASS'?)"
    if not (colon and has_guard) or name in _ENTRIES or (near and not is_custom(spec)):
        known = ", ".join(map(signature, _ENTRIES))
        raise SchedulerError(
            f"unknown scheduler {spec!r}{near}: expected one of {known}, decima, decima:POLICY or module:Class; "
            "decima compare and decima.compare know tuned-weighted-fair, too, and decima.tune gives its alpha"
        )
    return _custom_scheduler(spec)


def _check_present(spec: str, name: str) -> None:
    """Raise SchedulerError if another rule replaces the one of this name."""
    if name in FORMER_RULES:
        raise SchedulerError(f"scheduler {spec!r}: {name} is now {FORMER_RULES[name]}")


def _learned_scheduler(spec: str, policy: str, has_guard: bool) -> NeuralScheduler:
    from decima.policy.parts import PartError, PolicyFileError

    try:
        return load_policy(policy, guard=has_guard)
    except (PartError, PolicyFileError) as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None


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
    from decima.policy.parts import PolicyFileError

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
    name, colon, policy = _GUARANTEES.split(spec)[0].removesuffix(UNGUARDED).partition(":")
    return policy if colon and name == LEARNED else None


def signature(name: str) -> str:
    """Return how to write a heuristic with its parameters, such as ``seh:FROZEN``."""
    return ":".join((name, *map(str.upper, PARAMETERS.get(name, ()))))


def summary(name: str) -> str:
    """Return the first line of a heuristic's docstring, read from the source, as classes are slow to import."""
    module, _, kind = _ENTRIES[name].place.partition(":")
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
        spec: name of a heuristic, such as ``srpt`` or ``srpt:source_factor=0.5``, see ``make_scheduler``.

    Raises:
        SchedulerError: unknown heuristic or parameter, or a value that is not a number.
    """
    name, colon, argument = spec.partition(":")
    _check_present(spec, name)
    if name not in SCHEDULERS or (colon and name not in PARAMETERS):
        raise SchedulerError(f"scheduler {spec!r}: expected a heuristic{did_you_mean(name, SCHEDULERS)}")
    return _defaults(name) | (_values(spec, name, argument) if colon else {})


def _defaults(name: str) -> dict[str, float]:
    arguments = inspect.signature(SCHEDULERS[name]).parameters.items()
    defaults = {
        key: argument.default
        for key, argument in arguments
        if argument.default not in (inspect.Parameter.empty, None)
    }
    for constants in map(_imported, _ENTRIES[name].constants):
        values = constants()
        defaults |= values if isinstance(values, dict) else values._asdict()
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
        scheduler = SCHEDULERS[name](**values, **({} if base is None else {"base": base}))
    except ValueError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None
    if argument.endswith(".json"):
        from decima.schedulers.base import Kind

        scheduler.kind = Kind.TUNED_RULE
    return scheduler


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
            if (now := present_name(key)) in known:
                raise SchedulerError(f"scheduler {spec!r}: the parameter {key!r} is now {now!r}")
            near = did_you_mean(key, known)
            raise SchedulerError(f"scheduler {spec!r}: no parameter {key!r}{near}, only {_listed(known)}")
        if not abs(value) <= LARGEST_PARAMETER:
            raise _expected(spec, name)
    return values


def _listed(parameters: Mapping[str, float]) -> str:
    """List the names of parameters; of weights, which are many, only the number."""
    names = [name for name in parameters if "." not in name]
    weights = len(parameters) - len(names)
    return ", ".join(names) + (f" and {weights} weights" if weights else "")


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
    if FORMER_RULES.get(str(rule)) == name:
        raise SchedulerError(f"scheduler {spec!r}: {path}: the rule {rule!r} is now {name!r}; tune it again")
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
    """Build a custom class from its name and the numbers after it."""
    from decima.policy.parts import PartError, build_part

    module, kind, *texts = spec.split(":", 2)
    values, options = _numbers(spec, texts[0]) if texts else ([], {})
    try:
        scheduler = build_part(f"{module}:{kind}", object, *values, **options)
    except PartError as error:
        raise SchedulerError(f"scheduler {error}") from None
    if not _is_scheduler(scheduler):
        raise SchedulerError(
            f"scheduler {spec!r} needs the methods decide and reset of decima.schedulers.Scheduler"
        )
    return scheduler  # type: ignore[no-any-return]


def _numbers(spec: str, text: str) -> tuple[list[float], dict[str, float]]:
    """Return the arguments in the part of a custom scheduler's name after its class, in order and by name."""
    by_name = "=" in text
    pairs = [
        each.partition("=") if by_name else ("", "", each) for each in text.split("," if by_name else ":")
    ]
    numbers = []
    for _, _, value in pairs:
        whole = whole_in(value)
        numbers.append(number_in(value) if whole is None else whole)
        if not abs(numbers[-1]) < float("inf"):
            raise SchedulerError(f"scheduler {spec!r}: expected numbers after the class, got {value!r:.60}")
    if by_name:
        return [], {name.strip(): number for (name, _, _), number in zip(pairs, numbers, strict=True)}
    return numbers, {}


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
