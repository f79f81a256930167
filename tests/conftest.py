"""Fixtures that all tests share."""

import gc
import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

os.environ["MPLBACKEND"] = "Agg"
# Tests run in parallel, so PyTorch and NumPy get one thread. They are imported later.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests neither read nor write the user's cache of times alone.
os.environ["DECIMA_CACHE"] = ""

# Hypothesis tries constants from all modules of the project that a worker has imported, which depends on the tests that
# it ran before.
providers._get_local_constants = lambda: providers.Constants()
# The suite is the same at every run, on every machine; ``--hypothesis-profile=explore`` looks for new examples.
# Deadlines of examples would only measure the load of the machine.
settings.register_profile("explore", deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("same", settings.get_profile("explore"), derandomize=True, database=None, max_examples=30)
settings.load_profile("same")

#: Published profiles, recorded episodes and traces are beside the checkout; they are not part of it.
SHARED = Path(os.environ.get("DECIMA_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_configure(config: pytest.Config) -> None:
    """Compile code that many tests need before the workers of a full run start."""
    is_worker, num_workers = hasattr(config, "workerinput"), config.getoption("numprocesses", 0)
    if is_worker or not num_workers or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    from decima.evaluation.compiling import COMPILED, compile_parts
    from decima.evaluation.conditions import Conditions
    from workloads import Workload, synthetic_profiles

    jobs = Workload(synthetic_profiles(), None, "synthetic")
    # By its name alone, the policy would be a rule for these jobs.
    schedulers = ["decima:embedded-batch" if name == "decima" else name for name in COMPILED]
    compile_parts(Conditions(jobs, num_jobs=3), schedulers, num_workers)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the modules and tests that are collected out of garbage collection, which they would make slow."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder shared by all workers of this test run; with a file lock, its contents are created once."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """``shared("tpch")`` is a path under the shared data; the test is skipped if it is missing."""

    def find(relative: str) -> Path:
        path = SHARED / relative
        if not path.exists():
            pytest.skip(f"needs {relative} of the shared data (set DECIMA_SHARED to its folder)")
        return path

    return find
