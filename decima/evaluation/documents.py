"""Results as JSON documents: strict text, versions of the software, and the machine."""

from __future__ import annotations

import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from decima import __version__

__all__ = ["json_in_html", "json_text", "machine", "versions"]

#: Code point of a character that a browser could interpret as markup -> its escape in JSON.
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&"}


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on, by name."""
    return {"decima": __version__, "numpy": version("numpy"), "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Return platform, processor and versions, for the JSON of results."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    processors = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "platform": platform.platform(),
        "processor": next(processors, platform.processor()),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"decima": __version__, "numpy": version("numpy"), "torch": version("torch")},
    }


def json_text(content: Any) -> str:
    """Return a value as strict JSON; NaN and infinity become null."""
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_in_html(text: str) -> str:
    """Escape JSON so that it cannot end the script block of a page that contains it."""
    return text.translate(_ESCAPED)
