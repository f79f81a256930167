"""Reference work for benchmarks: CPU time of SimPy callbacks and of matrix products, in the same run.

On the machine where the bounds were chosen, a callback takes 0.8 us and a product 0.34 ms.
"""

import time

import numpy as np
import simpy

#: Number of repetitions of both; the fastest counts.
REPEATS = 5


def simpy_rate(num_callbacks: int = 230_000) -> float:
    """Return the number of ``Timeout`` callbacks that bare SimPy handles per second of CPU time."""
    environment = simpy.Environment()
    left = num_callbacks

    def go_on(_: object) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            environment.timeout(1).callbacks.append(go_on)

    started = time.process_time()
    for delay in range(50):
        environment.timeout(delay).callbacks.append(go_on)
    environment.run()
    return num_callbacks / (time.process_time() - started)


def callback_s() -> float:
    """Return the CPU time of a callback of bare SimPy, s: the unit for event-driven code."""
    return min(1 / simpy_rate(50_000) for _ in range(REPEATS))


def product_s(num_products: int = 20) -> float:
    """Return the CPU time of a product of two matrices, float32 [256, 256], s: the unit for networks."""
    matrix = np.ones((256, 256), np.float32)

    def once() -> float:
        started = time.process_time()
        for _ in range(num_products):
            matrix @ matrix
        return (time.process_time() - started) / num_products

    return min(once() for _ in range(REPEATS))
