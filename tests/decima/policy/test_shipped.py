from pathlib import Path

from decima.policy import shipped as policies
from decima.policy.files import load_actor
from decima.policy.scheduler import kind_of
from decima.policy.shipped import SHIPPED
from decima.schedulers.base import Kind


def test_policies_are_files_beside_their_module() -> None:
    assert len(SHIPPED) == 8
    folder = Path(policies.__file__).parent
    assert all(path == folder / f"{name}.npz" for name, path in SHIPPED.items())


def test_policies_that_are_there_can_be_read() -> None:
    for path in SHIPPED.values():
        if path.exists():
            actor = load_actor(path)
            assert actor.arrays["stage_head.0.weight"].size > 1000
            assert kind_of(actor.config, actor.arrays) == Kind.NETWORK
