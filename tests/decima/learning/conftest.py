"""One PyTorch thread, as in training; the reference scheduler is tuned once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from decima.policy.threads import one_thread
from tests.decima.learning.examples import sweep_once


@pytest.fixture(autouse=True)
def _one_thread_tunes_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("decima.learning.cluster.validation.sweep_ms", sweep_once)
    with one_thread():
        yield
