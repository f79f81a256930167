from pathlib import Path

from decima.policy import shipped as policies
from decima.policy.files import load_actor
from decima.policy.shipped import SHIPPED


def test_policies_are_files_beside_their_module() -> None:
    assert len(SHIPPED) == 8
    folder = Path(policies.__file__).parent
    assert all(path == folder / f"{name}.npz" for name, path in SHIPPED.items())


def test_policies_that_are_there_can_be_read() -> None:
    for path in SHIPPED.values():
        if path.exists():
            assert load_actor(path).arrays["stage_head.0.weight"].size > 1000
