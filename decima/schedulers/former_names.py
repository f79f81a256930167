"""Former names of rules: refused where a person gives them, and replaced in policy files."""

__all__ = ["FORMER_RULES"]

#: Former name of a rule -> rule that replaces it.
FORMER_RULES = {
    "capped-srpt": "srpt",
    "profiled-srpt": "srpt",
    "priced-srpt": "srpt",
    "packed-srpt": "srpt",
    "adaptive-srpt": "srpt-tuned",
    "adaptive-packed-srpt": "srpt-tuned",
}
