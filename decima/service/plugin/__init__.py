"""The Spark plugin: the jar for drivers, which also contains the source, and the build of the jar with a JDK."""

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

#: Jar of the plugin and its source. It is compiled for Java 8 against Spark 3.5 and runs in Spark 3.3 to 4.x.
JAR = Path(__file__).with_name("decima-spark.jar")
#: Folder of the source in a checkout.
SOURCES = Path(__file__).parents[3] / "spark-plugin" / "src"
#: Modification time of all entries of the jar, so that the same source and compiler produce the same file.
_TIME = (1980, 1, 1, 0, 0, 0)


class PluginError(DecimaError, RuntimeError):
    """The plugin cannot be compiled. The message is one line with the reason."""


def read_sources() -> dict[str, bytes]:
    """Return the plugin's source as path in the jar -> content, from the checkout, or else from the jar."""
    files = sorted(SOURCES.rglob("*.java"))
    if files:
        return {file.relative_to(SOURCES).as_posix(): file.read_bytes() for file in files}
    with zipfile.ZipFile(JAR) as jar:
        return {name: jar.read(name) for name in jar.namelist() if name.endswith(".java")}


def javac() -> Path:
    """Return the path of the Java compiler in ``JAVA_HOME``, or else on the ``PATH``.

    Raises:
        PluginError: no compiler is installed.
    """
    home = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "javac"
    path = str(home) if "JAVA_HOME" in os.environ and home.is_file() else shutil.which("javac")
    if path is None:
        raise PluginError("javac is not installed; compiling the plugin needs a JDK, version 9 or later")
    return Path(path)


def release(compiler: Path) -> int:
    """Return the release of a Java compiler, such as 17; 0 if unknown. Class files may differ between releases."""
    told = subprocess.run([str(compiler), "-version"], capture_output=True, text=True, check=False)
    match = re.search(r"javac (\d+)", told.stdout + told.stderr)
    return int(match.group(1)) if match else 0


def build(spark: Path, out: Path = JAR) -> Path:
    """Compile the plugin against the jars of a Spark installation.

    Args:
        spark: home folder of Spark, with a folder ``jars``.
        out: jar to write.

    Raises:
        PluginError: no compiler is installed, ``spark`` is not a home folder of Spark, or the source does not compile.
        OutputError: ``out`` cannot be written.
    """
    jars = spark / "jars"
    if not any(jars.glob("spark-core_*.jar")):
        raise PluginError(f"{spark}: no jars/spark-core_*.jar; expected the home folder of Spark")
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
        options = ("--release", "8", "-nowarn", "-Xlint:none", "-proc:none", "-encoding", "UTF-8")
        paths = ("-cp", f"{jars}/*", "-d", str(classes), *map(str, files))
        made = subprocess.run([str(compiler), *options, *paths], capture_output=True, text=True, check=False)
        if made.returncode:
            why = re.search(r"error: .*", made.stderr) or re.search(r".+", made.stderr)
            raise PluginError(f"{spark}: the plugin does not compile against it: {why and why.group()}")
        made_files = sorted(classes.rglob("*.class"))
        compiled = {file.relative_to(classes).as_posix(): file.read_bytes() for file in made_files}
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
