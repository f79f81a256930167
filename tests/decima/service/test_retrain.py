"""The script that retrains every night replaces a policy only if it is better by more than the interval."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cases import cases

SCRIPT = Path(__file__).parents[3] / "docs" / "monitoring" / "retrain.sh"
#: Stands in for decima: train writes a policy, compare the mean JCT of both policies for each of 20 seeds.
FAKE = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
options = dict(zip(sys.argv, sys.argv[1:]))
out = Path(options["--out"])
if sys.argv[1] == "train":
    out.mkdir()
    (out / "policy.npz").write_text("new")
elif sys.argv[1] == "compare":
    old, new = options["--schedulers"].split(",")
    means = {old: [10.0 + seed for seed in range(20)], new: [NEW for seed in range(20)]}
    rows = {name: {"per_seed_mean_jct_s": values} for name, values in means.items()}
    Path(options["--json"]).write_text(json.dumps({"schedulers": rows}))
"""


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("bash")), reason="needs jq and bash")
@cases(
    "new, status, kept",
    ("10.0 + seed - 0.5", 0, "new"),
    ("10.0 + seed + 0.5", 3, "old"),
    ("10.0 + seed - 0.5 + 3 * (-1) ** seed", 3, "old"),  # lower, but within the interval,
)
def test_only_a_better_policy_is_installed(tmp_path: Path, new: str, status: int, kept: str) -> None:
    fake, policy = tmp_path / "decima", tmp_path / "policy.npz"
    fake.write_text(FAKE.replace("NEW", new))
    fake.chmod(0o755)
    policy.write_text("old")
    done = subprocess.run(
        ["bash", str(SCRIPT), "a.jsonl", "b.jsonl", str(policy), "8"],
        env={**os.environ, "DECIMA": str(fake)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert policy.read_text() == kept
    assert f"mean JCT lower by {'-' if new.endswith('+ 0.5') else ''}0.5 s" in done.stdout
