"""The result of ``pip install`` of the built package, outside of the checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build", reason="needs build of the extra [test]")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("decima", "simulator", "workloads")
#: Most of their time is for compiling; the first line of the README compares all schedulers.
COMMANDS = (
    "compare --seeds 1 --schedulers fair,decima",
    "deeprm compare --sets 2",
    "train --config batch --set iterations=1 --set episodes.sequences=1 --set validation.sequences=1 "
    "--set behaviour_cloning=null --out trained",
    "compare --seeds 1 --schedulers fair,decima --checkpoint trained/policy.npz",
)


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    # Nothing of the tests' own environment is to be seen.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment | more, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pythons() -> list[object]:
    """Return the supported Python versions."""
    found: list[object] = []
    for version in ("3.11", "3.12", "3.13"):
        ours = ".".join(map(str, sys.version_info[:2])) == version
        program = sys.executable if ours else f"python{version}"
        try:
            there = subprocess.run([program, "--version"], capture_output=True, timeout=600).returncode == 0
        except OSError:
            there = False
        skip = pytest.mark.skipif(not there, reason=f"no python{version} here")
        found.append(pytest.param(program, id=version, marks=skip))
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of the tracked and new files."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--outdir", out, ".", cwd=source)
    return out


def tracked() -> list[str]:
    names = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def of_the_packages() -> set[str]:
    return {name for name in tracked() if name.split("/")[0] in PACKAGES}


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    assert names == of_the_packages()
    assert "decima/service/plugin/decima-spark.jar" in names


def test_the_source_distribution_holds_the_same(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {member.name.partition("/")[2] for member in file if member.isfile()}
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert names - made == of_the_packages() | {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}


def test_the_package_index_can_show_the_readme(built: Path) -> None:
    """It knows no other file: links and pictures need addresses."""
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=built)
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        readme = file.read(name).decode()
    targets = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text()))
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "<!--" not in readme


@pytest.mark.parametrize("python", pythons())
def test_it_installs_and_runs_away_from_the_checkout(python: str, built: Path, tmp_path: Path) -> None:
    """Dependencies are already installed by the README's first line."""
    [wheel] = built.glob("*.whl")
    run(python, "-m", "venv", "env", cwd=tmp_path)
    programs, ours = tmp_path / "env" / "bin", python == sys.executable
    install = ["install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", wheel]
    if ours:
        [packages] = (tmp_path / "env").glob("lib/*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        install.append("--no-deps")
    run(programs / "pip", *install, cwd=tmp_path)
    told = run(programs / "python", "-c", "import decima; print(decima.__file__)", cwd=tmp_path)
    assert Path(told.strip()).is_relative_to(tmp_path)
    for command in COMMANDS if ours else COMMANDS[:1]:
        assert run(programs / "decima", *command.split(), cwd=tmp_path).strip()
    assert (tmp_path / "trained" / "policy.npz").exists() == ours
