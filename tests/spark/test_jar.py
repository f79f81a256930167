"""The plugin's jar contains its source, and can be rebuilt from it."""

import re
import zipfile
from pathlib import Path

import pytest

from decima.cli.main import cli
from decima.service.plugin import JAR, PluginError, build, javac, read_sources, release
from tests.spark.harness import spark_home, why_not

#: Class files of Java 8, which every Java since then runs.
JAVA_8 = 52


def entries(jar: Path, suffix: str) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as file:
        return {name: file.read(name) for name in file.namelist() if name.endswith(suffix)}


def why_not_compiled() -> str | None:
    """Return the reason why identical classes cannot be compiled here."""
    try:
        compiler = release(javac())
    except PluginError as error:
        return str(error)
    [manifest] = entries(JAR, "MANIFEST.MF").values()
    [made] = re.findall(rb"Build-Jdk-Spec: (\d+)", manifest)
    return None if compiler == int(made) else f"needs javac {int(made)}, as the jar was made with"


def test_the_jar_holds_source_and_classes():
    # To update it: ``decima spark build --spark HOME --out decima/service/plugin/decima-spark.jar``.
    assert entries(JAR, ".java") == read_sources()
    assert {name.rpartition("/")[0] for name in read_sources()} == {"decima/spark"}
    classes = entries(JAR, ".class")
    assert "decima/spark/DecimaPlugin.class" in classes
    assert {int.from_bytes(content[6:8], "big") for content in classes.values()} == {JAVA_8}


@pytest.mark.spark
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.skipif(why_not_compiled() is not None, reason=str(why_not_compiled()))
def test_the_classes_are_those_of_the_source(tmp_path):
    made = build(spark_home(), tmp_path / "made.jar")
    assert entries(made, ".class") == entries(JAR, ".class")
    assert made.read_bytes() == JAR.read_bytes()


def test_the_command_and_an_installation_know_the_jar(monkeypatch, tmp_path, capsys):
    with_checkout = read_sources()
    monkeypatch.setattr("decima.service.plugin.SOURCES", tmp_path)
    assert read_sources() == with_checkout
    cli(["spark", "jar"], standalone_mode=False)
    assert Path(capsys.readouterr().out.strip()) == JAR
    assert JAR.is_file()


@pytest.mark.parametrize("what", ["no spark", "no javac", "other spark"])
def test_what_cannot_be_compiled(what, tmp_path, monkeypatch):
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    if what != "no spark":
        (home / "jars" / "spark-core_2.12-9.9.9.jar").write_bytes(b"")
    if what == "no javac":
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("JAVA_HOME", raising=False)
    elif what == "other spark" and why_not_compiled():
        pytest.skip(str(why_not_compiled()))
    complaints = {
        "no spark": rf"{home}: no jars/spark-core_\*\.jar; expected the home folder of Spark",
        "no javac": "javac is not installed; compiling the plugin needs a JDK, version 9 or later",
        "other spark": f"{home}: the plugin does not compile against it: error: ",
    }
    with pytest.raises(PluginError, match=complaints[what]) as caught:
        build(home, tmp_path / "out.jar")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.jar").exists()
