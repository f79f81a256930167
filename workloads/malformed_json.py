"""Name the place of an error in JSON text that Python's parser accepts: a repeated key, or half a surrogate pair."""

from __future__ import annotations

import json
from collections import Counter

from workloads.errors import WorkloadError
from workloads.validation import place_name

__all__ = ["check_surrogates", "repeated_key"]

_Place = tuple[str | int, ...]


class _Repeated:
    """Placeholder for a JSON object with a repeated key."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.key = Counter(key for key, _ in pairs).most_common(1)[0][0]


def repeated_key(text: str) -> WorkloadError:
    """Return the error of a JSON text in which an object has a key twice; its message names the place."""

    def build(pairs: list[tuple[str, object]]) -> object:
        result = dict(pairs)
        return result if len(result) == len(pairs) else _Repeated(pairs)

    place = _place_of_repeated(json.loads(text, object_pairs_hook=build), ())
    assert place is not None
    return WorkloadError(f"{place_name(place)}: this key is given more than once")


def _place_of_repeated(value: object, place: _Place) -> _Place | None:
    """Return the place of the first repeated key in a value; None if it has none."""
    if isinstance(value, _Repeated):
        return (*place, value.key)
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    )
    found = (_place_of_repeated(item, (*place, key)) for key, item in entries)
    return next((inner for inner in found if inner is not None), None)


def check_surrogates(value: object, place: _Place = ()) -> None:
    """Check that no text in a JSON document, at any depth, contains half a surrogate pair.

    Raises:
        WorkloadError: a text does; the message names the place.
    """
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        where = f"{place_name(place)}: " if place else ""
        raise WorkloadError(f"{where}expected characters, got half a surrogate pair in {value!r:.60}")
    if isinstance(value, dict):
        for key, item in value.items():
            check_surrogates(key, place)
            check_surrogates(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_surrogates(item, (*place, index))
