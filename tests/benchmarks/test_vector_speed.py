"""Steps per second of vector environments, relative to a single environment and to Gymnasium's vector environments.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_vector_speed.py``.
"""

import time
from typing import Any

import gymnasium
import numpy as np
import pytest

import decima.gym  # noqa: F401  # knows the names
from tests.cases import cases

pytestmark = pytest.mark.benchmark


def single_rate(name: str, num_steps: int) -> float:
    """Return the steps of one environment per second of CPU time, with the first valid action."""
    env = gymnasium.make(name, disable_env_checker=True).unwrapped
    _, info = env.reset(seed=0)
    began = time.process_time()
    for _ in range(num_steps):
        _, _, terminated, truncated, info = env.step(first(info["action_mask"]))
        if terminated or truncated:
            _, info = env.reset()
    return num_steps / (time.process_time() - began)


def vector_rate(name: str, num_envs: int, num_steps: int, mode: str | None = None) -> float:
    """Return the steps of all environments per second of CPU time."""
    kwargs = {} if mode is None else {"vectorization_mode": mode}
    envs = gymnasium.make_vec(name, num_envs=num_envs, **kwargs)  # type: ignore[arg-type]
    _, infos = envs.reset(seed=0)
    began = time.process_time()
    for _ in range(num_steps):
        *_, infos = envs.step(firsts(infos["action_mask"]))
    rate = num_envs * num_steps / (time.process_time() - began)
    envs.close()
    return rate


def first(masks: Any) -> Any:
    return np.array([mask.argmax() for mask in masks]) if isinstance(masks, tuple) else masks.argmax()


def firsts(masks: Any) -> Any:
    if isinstance(masks, tuple):
        return np.stack([mask.argmax(axis=1) for mask in masks], axis=1)
    if masks.dtype == object:  # what Gymnasium makes of a tuple
        return np.stack([first(each) for each in masks])
    return masks.argmax(axis=1)


@cases(
    "name, num_envs, least",
    ("decima/TPCHBatch-v0", 32, 0.7), ("decima/TPCHStream-v0", 32, 0.7),
)  # fmt: skip
def test_steps_of_many_against_those_of_one(name: str, num_envs: int, least: float) -> None:
    steps = 100
    vector_rate(name, num_envs, 3)  # compiles, or loads what was compiled
    rates = [
        (single_rate(name, 3000), vector_rate(name, num_envs, steps), vector_rate(name, min(num_envs, 100), 40, "sync"))
        for _ in range(3)
    ]
    one, many, sync = np.median(rates, axis=0)
    print(
        f"\n{name}, {num_envs} at once: {many:,.0f} steps/s; one: {one:,.0f}, {many / one:.1f} times; Gymnasium's "
        f"{min(num_envs, 100)} at once: {sync:,.0f}, {many / sync:.1f} times",
        end="",
    )
    assert many >= least * one
