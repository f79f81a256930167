"""Tables of cases for one test."""

from typing import Any

import pytest


def cases(names: str, *rows: Any, **options: Any) -> pytest.MarkDecorator:
    """Return ``pytest.mark.parametrize`` with one argument for each case; ``names`` has commas between the names."""
    return pytest.mark.parametrize(names, rows, **options)
