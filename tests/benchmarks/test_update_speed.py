"""CPU time of PPO's update as in a training, with compiled dense layers, against those of PyTorch.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_update_speed.py``.
"""

import time
from unittest.mock import patch

import numpy as np
import pytest
import torch

from decima.learning import PPO, read_config
from decima.learning.cluster.rollout import plan_iteration, roll_out, start_episodes
from decima.policy.encoder import DenseLayers
from decima.policy.policy import Policy
from decima.policy.threads import keep_memory, one_thread

pytestmark = pytest.mark.benchmark

CONFIG = read_config("batch")
REPEATS = 4
#: CPU time with PyTorch's dense layers over that of a training's update.
AT_LEAST = 1.15


def test_an_update_is_faster_than_with_layers_of_pytorch() -> None:
    policy = Policy(CONFIG.policy.build())
    plans = [plan for group in plan_iteration(CONFIG, 0) for plan in group]

    def update() -> float:
        learned = Policy(policy.config)
        learned.take(policy.arrays)
        begun = time.process_time()
        PPO(epochs=CONFIG.update.epochs, minibatches=CONFIG.update.minibatches).update(
            learned,
            torch.optim.Adam(learned.parameters(), lr=1e-6, fused=True),
            samples,
            advantage,
            random=np.random.default_rng(0),
            entropy_weight=0.01,
            max_gradient_norm=0.5,
        )
        return time.process_time() - begun

    keep_memory()
    with one_thread():
        samples = roll_out(policy, start_episodes(policy.config, CONFIG.conditions(), plans))
        advantage = np.random.default_rng(0).standard_normal(len(samples))
        compiled_s, torch_s = [], []
        for _ in range(REPEATS):
            compiled_s.append(update())
            with patch.object(DenseLayers, "is_compiled", return_value=False):
                torch_s.append(update())
    ratio = min(torch_s) / min(compiled_s)
    print(f"\n{min(compiled_s):.2f} s, with PyTorch {min(torch_s):.2f} s: {ratio:.2f} times as fast", end="")
    assert ratio >= AT_LEAST
