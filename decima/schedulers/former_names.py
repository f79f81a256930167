"""Former names of rules and of their constants: refused where a person gives them, and replaced in policy files."""

from __future__ import annotations

from workloads.errors import SchedulerError

__all__ = ["FORMER_CONSTANTS", "FORMER_RULES", "check_present", "present_name", "present_rule"]

#: Former name of a rule -> rule that replaces it.
FORMER_RULES = {
    "capped-srpt": "srpt",
    "profiled-srpt": "srpt",
    "priced-srpt": "srpt",
    "packed-srpt": "srpt",
    "adaptive-srpt": "srpt-tuned",
    "adaptive-packed-srpt": "srpt-tuned",
}
#: Former name of a constant of these rules -> its name.
FORMER_CONSTANTS = {
    "steepness": "price_in_batch",
    "stream_steepness": "price_in_stream",
    "stream_price": "least_price_in_stream",
    "thrift": "price_with_classes",
    "measured": "price_of_demand",
    "used_well": "useful_multiple",
    "unwanted": "idle_multiple",
    "staying": "source_factor",
    "worth_leaving": "leave_min_delays",
    "worth_moving": "move_min_delays",
    "uncertain": "robust_order_log_sd",
    "work_exponent": "robust_work_exponent",
    "doubtful": "exact_log_sd",
    "shares": "uncertain_shares",
    "hesitation": "source_per_log_sd",
    "waste": "coverage_exponent",
    "full_effect": "full_effect_executors",
}


def present_name(name: str) -> str:
    """Return the present name of a constant, or of a weight ``group.feature`` of a constant."""
    group, dot, feature = name.partition(".")
    return FORMER_CONSTANTS.get(group, group) + dot + feature


def present_rule(spec: str) -> str:
    """Return the present name of a rule, without its parameters."""
    name = spec.partition(":")[0]
    return FORMER_RULES.get(name, name)


def check_present(spec: str, name: str) -> None:
    """Raise SchedulerError if another rule replaces the one of this name."""
    if name in FORMER_RULES:
        raise SchedulerError(f"scheduler {spec!r}: {name} is now {FORMER_RULES[name]}")
