"""Pools of Spark's FAIR scheduler, from its ``fairscheduler.xml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from decima.service.snapshot import Share
from workloads.errors import DecimaError
from workloads.job import WorkloadError
from workloads.reading import read_bytes

__all__ = ["Pools", "PoolsError", "read_pools"]

#: Maximum size of a file, bytes.
LARGEST = 1 << 20
PROPERTIES = ("schedulingMode", "weight", "minShare")


class PoolsError(DecimaError, ValueError):
    """A file of pools is unusable. The message is one line that names file and line."""


@dataclass(frozen=True)
class Pools:
    """Pools of Spark's FAIR scheduler.

    Attributes:
        tenants: pool name -> weight and minimum share.
        fair: names of the pools whose ``schedulingMode`` is FAIR.
    """

    tenants: dict[str, Share]
    fair: tuple[str, ...] = ()


@dataclass
class _Reader:
    """Handlers of the XML parser. They accept only ``allocations``, ``pool`` and properties of pools."""

    tenants: dict[str, Share] = field(default_factory=dict)
    fair: list[str] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _name: str = ""
    _values: dict[str, str] = field(default_factory=dict)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag)
        match self._path:
            case ["allocations"]:
                expected: set[str] = set()
            case ["allocations", "pool"]:
                expected = {"name"}
                self._name, self._values = attributes.get("name", ""), {}
                if not self._name:
                    raise ValueError("a pool without a name")
                if self._name in self.tenants:
                    raise ValueError(f"a second pool {self._name!r}")
            case ["allocations", "pool", name] if name in PROPERTIES:
                expected = set()
                if name in self._values:
                    raise ValueError(f"pool {self._name!r}: a second {name}")
                self._values[name] = ""
            case _:
                raise ValueError(f"unexpected element {tag!r}")
        if unknown := attributes.keys() - expected:
            raise ValueError(f"{tag}: unexpected attribute {min(unknown)!r}")

    def text(self, text: str) -> None:
        if len(self._path) == 3:
            self._values[self._path[-1]] += text
        elif text.strip():
            raise ValueError("text outside of a pool's properties")

    def end(self, tag: str) -> None:
        if len(self._path) == 2:
            self._add()
        self._path.pop()

    def _add(self) -> None:
        name = self._name
        values = {key: text.strip() for key, text in self._values.items()}
        mode = values.get("schedulingMode", "FIFO").upper()
        if mode not in ("FIFO", "FAIR"):
            raise ValueError(f"pool {name!r}: schedulingMode {mode!r}, expected FIFO or FAIR")
        settings = {}
        for key, usual in (("weight", "1"), ("minShare", "0")):
            text = values.get(key, usual)
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ValueError(f"pool {name!r}: {key} {text!r}, expected a whole number")
            settings[key] = int(text)
        try:
            self.tenants[name] = Share(name, float(settings["weight"]), settings["minShare"])
        except WorkloadError as error:
            raise ValueError(f"pool {name!r}: {error}") from None
        if mode == "FAIR":
            self.fair.append(name)


def _refuse(*_: Any) -> None:
    raise ValueError("document type and entity declarations are not allowed")


def read_pools(path: Path) -> Pools:
    """Read pools from a file in the format of Spark's ``fairscheduler.xml``.

    As in Spark, the defaults are weight 1, minimum share 0 and mode FIFO. Unlike in Spark, unknown elements and invalid
    values are errors. Document types and entities are errors too, so that nothing is expanded or loaded.

    Raises:
        PoolsError: the file cannot be read, is malformed, or has no pool.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(read_bytes(path, LARGEST), True)
    except OSError as error:
        raise PoolsError(f"{path}: {error.strerror or error}, expected Spark's fairscheduler.xml") from None
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise PoolsError(f"{path}: line {error.lineno}: not valid XML: {reason}") from None
    except (LookupError, ValueError) as error:  # a LookupError for an unknown encoding
        line = parser.CurrentLineNumber
        raise PoolsError(f"{path}: line {line}: {' '.join(str(error).split())}") from None
    if not reader.tenants:
        raise PoolsError(f"{path}: no pool, expected Spark's fairscheduler.xml")
    return Pools(reader.tenants, tuple(reader.fair))
