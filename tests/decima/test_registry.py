"""Names of schedulers: those that learned. Classic ones and a user's own are in ``schedulers/test_schedulers.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from decima.policy.files import load_actor, load_policy
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from simulator.cluster.episode import run_episode
from tests.decima.conftest import save_small_policy
from tests.decima.evaluation.examples import CLUSTER, conditions


def test_a_policy_file_is_a_scheduler(policy: Path) -> None:
    ours = run_episode(CLUSTER, conditions().sequence(3), make_scheduler(f"decima:{policy}"))
    theirs = run_episode(CLUSTER, conditions().sequence(3), NeuralScheduler(load_policy(policy)))
    assert ours.completion_ms.tolist() == theirs.completion_ms.tolist()


def test_a_shipped_policy_goes_by_its_name(shipped: dict[str, Path]) -> None:
    for name, path in shipped.items():
        assert _weights(make_scheduler(f"decima:{name}")) == _weights(make_scheduler(f"decima:{path}"))
    assert _weights(make_scheduler("decima")) == _weights(make_scheduler("decima:general"))
    assert _weights(make_scheduler("decima")) != _weights(make_scheduler("decima:packing-tpch"))


def _weights(scheduler: Any) -> list[float]:
    return scheduler.policy.arrays["stage_head.0.weight"].ravel().tolist()  # type: ignore[no-any-return]


def test_a_policy_is_read_once_unless_it_changes(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr("decima.registry.load_actor", lambda path: read.append(path) or load_actor(path))
    first, again = (make_scheduler(f"decima:{policy}") for _ in range(2))
    assert first is not again
    assert read == [policy]
    save_small_policy(policy, seed=2)
    os.utime(policy, ns=(0, 7))
    assert _weights(make_scheduler(f"decima:{policy}")) != _weights(first)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("decima", "the policy 'general' does not come with this installation"),
        ("decima:packing-tpch", "the policy 'packing-tpch' does not come with this installation"),
        (
            "decima:",
            "the policy '' is no file, nor does it ship: expected a policy file or one of general, packing-tpch",
        ),
        ("decima:batch", "the policy 'batch' is no file, nor does it ship"),
        ("decima:no/such.npz", "the policy 'no/such.npz' is no file, nor does it ship"),
        ("decima:.", "the policy '.' is no file, nor does it ship"),
        ("decima:text.npz", "text.npz: not a policy, or cut off: expected a NumPy archive of arrays"),
        ("Decima", "unknown scheduler 'Decima' (did you mean 'decima'?): expected one of random, fifo"),
    ],
)
@pytest.mark.usefixtures("not_shipped")
def test_what_is_no_policy_is_refused_in_one_line(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npz").write_text("no policy")
    with pytest.raises(SchedulerError) as error:
        make_scheduler(spec)
    assert message in str(error.value)
    assert repr(spec) in str(error.value)
    assert "\n" not in str(error.value)


def test_nobody_who_does_not_learn_waits_for_pytorch(tmp_path: Path) -> None:
    """Nor does whoever wants help, a list, a comparison, or a decision of a policy that has learned."""
    code = """
import sys
import decima, decima.cli.main, decima.evaluation.comparison, decima.policy.shipped, decima.show.report
import decima.registry
for options in (["--help"], ["schedulers"], ["compare", "--help"],
                ["compare", "--schedulers", "fifo,decima", "--jobs", "1", "--seeds", "1", "--processes", "1"]):
    decima.cli.main.cli(options, standalone_mode=False)
print([name for name in ("torch", "torch_geometric") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "[]"
