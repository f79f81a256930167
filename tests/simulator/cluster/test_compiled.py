"""What was compiled is kept, but never longer than any of its sources stays the same."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from simulator.cluster.engine import compiled as module


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in module._SOURCES:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(module, "_HERE", tmp_path)
    return tmp_path


def test_the_same_sources_have_the_same_folder(sources: Path) -> None:
    assert module._cache_folder() == module._cache_folder()
    assert module._cache_folder().parent == sources / "__pycache__"


@pytest.mark.parametrize("name", module._SOURCES)
def test_a_change_of_any_source_has_a_folder_of_its_own(sources: Path, name: str) -> None:
    before = module._cache_folder()
    before.mkdir()
    (sources / name).write_text("changed")
    after = module._cache_folder()
    assert after != before
    assert not before.exists()


def test_a_read_only_installation_uses_the_home_folder(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "access", lambda path, mode: False)
    monkeypatch.setattr(module.Path, "home", lambda: tmp_path / "home")
    assert module._cache_folder().parent == tmp_path / "home" / ".cache" / "decima"


def test_all_modules_with_compiled_functions_are_sources() -> None:
    here = Path(module.__file__).parent
    compiling = {path.name for path in here.glob("*.py") if "import compiled" in path.read_text()}
    assert compiling == set(module._SOURCES)


def test_other_users_of_numba_keep_their_cache() -> None:
    before = numba.config.CACHE_DIR
    assert module.compiled(lambda number: number + 1)(1) == 2
    assert before == numba.config.CACHE_DIR
