"""Where the plugin's jar is, and how a JDK makes it from the source that lies in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from decima.outputs import atomic_path, check_file
from workloads.errors import DecimaError

__all__ = ["JAR", "SOURCES", "PluginError", "build", "javac", "read_sources", "release"]

#: Compiled for Java 8 against Spark 3.5; serves Spark 3.3 to 4.x. Its source lies in it.
JAR = Path(__file__).with_name("decima-spark.jar")
#: Where the source is worked on, in a checkout.
SOURCES = Path(__file__).parents[3] / "spark-plugin" / "src"
#: Every entry of the jar bears this time, so that the same source and compiler make the same file.
_TIME = (1980, 1, 1, 0, 0, 0)


class PluginError(DecimaError, RuntimeError):
    """The plugin cannot be compiled. The message is one line that says why."""


def read_sources() -> dict[str, bytes]:
    """Path in the jar -> source: of the checkout if this is one, else those that came with the jar."""
    files = sorted(SOURCES.rglob("*.java"))
    if files:
        return {file.relative_to(SOURCES).as_posix(): file.read_bytes() for file in files}
    with zipfile.ZipFile(JAR) as jar:
        return {name: jar.read(name) for name in jar.namelist() if name.endswith(".java")}


def javac() -> Path:
    """The Java compiler: that of ``JAVA_HOME``, or the first on the ``PATH``.

    Raises:
        PluginError: there is none.
    """
    home = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "javac"
    found = str(home) if "JAVA_HOME" in os.environ and home.is_file() else shutil.which("javac")
    if found is None:
        raise PluginError("javac is not installed; to compile the plugin needs a JDK, 9 or later")
    return Path(found)


def release(compiler: Path) -> int:
    """Of a Java compiler, such as 17; other releases may make other classes of the same source."""
    told = subprocess.run([str(compiler), "-version"], capture_output=True, text=True, check=False)
    found = re.search(r"javac (\d+)", told.stdout + told.stderr)
    return int(found.group(1)) if found else 0


def build(spark: Path, out: Path = JAR) -> Path:
    """Compile the plugin against the jars of a Spark.

    Args:
        spark: home of a Spark, with a folder ``jars``.
        out: jar to write; it holds the source, too.

    Raises:
        PluginError: there is no compiler, ``spark`` is no Spark, or it does not compile.
        OutputError: ``out`` cannot be written.
    """
    jars = spark / "jars"
    if not any(jars.glob("spark-core_*.jar")):
        raise PluginError(f"{spark}: no jars/spark-core_*.jar; expected the home of a Spark")
    check_file(out)
    compiler = javac()
    sources = read_sources()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {folder / "src" / path: text for path, text in sources.items()}
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
        classes = folder / "classes"
        command = [
            str(compiler),
            "--release",
            "8",
            "-nowarn",
            "-Xlint:none",
            "-proc:none",
            "-encoding",
            "UTF-8",
        ]
        command += ["-cp", f"{jars}/*", "-d", str(classes), *map(str, files)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            why = re.search(r"error: .*", made.stderr) or re.search(r".+", made.stderr)
            raise PluginError(f"{spark}: the plugin does not compile against it: {why and why.group()}")
        compiled = {
            file.relative_to(classes).as_posix(): file.read_bytes()
            for file in sorted(classes.rglob("*.class"))
        }
    with atomic_path(out) as path:
        manifest = f"Manifest-Version: 1.0\r\nBuild-Jdk-Spec: {release(compiler)}\r\n\r\n"
        _write_jar(path, {"META-INF/MANIFEST.MF": manifest.encode(), **compiled, **sources})
    return out


def _write_jar(path: Path, entries: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as jar:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, content)
