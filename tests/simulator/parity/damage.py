"""Recordings, and ways to damage them, for tests of all formats of recordings."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from simulator.parity import first_difference_in

Recording = dict[str, Any]
Shared = Callable[[str], Path]
Damage = Callable[[Recording], object]

#: Path of a number in a recording.
Place = tuple[str | int, ...]


def at(path: str, to: Any) -> Damage:
    """Set the entry at a path such as ``jobs.0.name`` to a value, or to a function of it."""
    return at_place(tuple(int(part) if part.isdigit() else part for part in path.split(".")), to)


def at_place(place: Place, to: Any) -> Damage:
    def change(episode: Recording) -> None:
        *parents, last = place
        inner: Any = episode
        for name in parents:
            inner = inner[name]
        inner[last] = to(inner[last]) if callable(to) else to

    return change


def swap(name: str, one: int, other: int) -> Damage:
    def change(episode: Recording) -> None:
        entries = episode[name]
        entries[one], entries[other] = entries[other], entries[one]

    return change


def without(*keys: str) -> Damage:
    return lambda episode: [episode.pop(key) for key in keys]


def damaged(episode: Recording, damage: Damage) -> Recording:
    """Return a changed copy of the episode."""
    result = copy.deepcopy(episode)
    damage(result)
    assert result != episode
    return result


def write(path: Path, content: Recording) -> Path:
    text = json.dumps(content, default=int).encode()  # without the compiler, some integers are NumPy's
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def refused(path: Path, differences: Any = None) -> str:
    """Return the message about a file that does not match."""
    line = first_difference_in(path, *([differences] if differences else []))
    assert line is not None
    assert "\n" not in line
    assert str(path) not in line
    return line


def numbers(value: Any, place: Place = (), aside: frozenset[str] = frozenset()) -> list[Place]:
    """Yield the paths of numbers, except under keys ``aside``."""
    if isinstance(value, dict):
        entries: Iterator[tuple[str | int, Any]] = (each for each in value.items() if each[0] not in aside)
    elif isinstance(value, list):
        entries = enumerate(value)
    else:
        return [place] if isinstance(value, int | float) and not isinstance(value, bool) else []
    return [found for key, entry in entries for found in numbers(entry, (*place, key), aside)]


def last_of_each_kind(places: list[Place]) -> list[Place]:
    """Return one path of each kind; paths of one kind differ only in list indices."""
    kinds = {tuple(part for part in place if isinstance(part, str)): place for place in places}
    assert len(kinds) > 10
    return list(kinds.values())


def unnoticed(good: Recording, places: list[Place], path: Path) -> list[Place]:
    """Return the paths of numbers whose increase by one causes no difference."""
    found = []
    for place in places:
        line = first_difference_in(write(path, damaged(good, at_place(place, lambda value: value + 1))))
        found += [place] if line is None else []
        assert "\n" not in (line or "")
    return found


def malformed(good: Recording, *optional: str) -> dict[str, tuple[bytes, str]]:
    """Return contents and expected message by file name, for any recording with required keys."""
    text = json.dumps(good).encode()
    packed = gzip.compress(text)
    required = {key: json.dumps(damaged(good, without(key))).encode() for key in good if key not in optional}
    return {
        "text.json.gz": (b"no gzip", "cannot be read: Not a gzipped file"),
        "truncated.json.gz": (packed[: len(packed) // 2], "cannot be read: Compressed file ended"),
        "half.json": (text[:-20], "Invalid JSON"),
        **{f"without-{key}.json": (content, f"{key}: Field required") for key, content in required.items()},
    }
