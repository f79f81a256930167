"""The same jar on other versions of Spark.

``DECIMA_SPARKS`` is a folder with a folder per version, made by ``pip install --target FOLDER/3.3.4
pyspark==3.3.4`` (``pyspark[connect]`` from 4.0 on, for Spark Connect). Spark 4 needs a module that the Java of the
wheel lacks (jdk.incubator.vector): it runs on the Java of the compiler.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from decima.service.plugin import PluginError, javac
from tests.spark.harness import why_not

FOLDER = os.environ.get("DECIMA_SPARKS")
SPARKS = sorted(Path(FOLDER).glob("*/pyspark")) if FOLDER else []
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(not SPARKS, reason="needs other versions of Spark (set DECIMA_SPARKS to their folder)"),
]


@pytest.mark.parametrize("spark", SPARKS, ids=[spark.parent.name for spark in SPARKS])
def test_all_that_control_means_holds_there(spark: Path) -> None:
    """Order, limits, shadow mode, observations: in a child process, where this Spark is found first."""
    try:
        java = javac().resolve().parents[1]
    except PluginError as error:
        pytest.skip(str(error))
    command = [
        sys.executable, "-m", "pytest", "-n", "0", "-rA", "-m", "slow", "-k", "cluster or servers", "-o",
        "filterwarnings=",
    ]  # fmt: skip
    command += [str(Path(__file__).with_name(name)) for name in ("test_control.py", "test_servers.py")]
    environment = os.environ | {"PYTHONPATH": str(spark.parent), "DECIMA_JAVA_HOME": str(java)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(f"\n{spark.parent.name}: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"Spark {spark.parent.name}" in done.stdout
    assert re.search(r"\d+ passed", done.stdout)
