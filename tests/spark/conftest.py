"""The JVM of local Spark applications ends with the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.spark.harness import end_shared_jvm


@pytest.fixture(scope="package", autouse=True)
def _end_shared_jvm() -> Iterator[None]:
    yield
    end_shared_jvm()
