"""Commands, files and Python of the README and the guides work."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib.testing.compare import compare_images

from decima.cli.main import cli
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client
from tests.programs import started
from workloads import batch_arrivals, open_workload

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
START = DOCS / "start.md"
PAGES = (
    README,
    START,
    DOCS / "results.md",
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS / "how").glob("*.md")),
)
SHARED = Path(os.environ.get("DECIMA_SHARED", README.parents[1] / "shared"))
#: Root mean square of the difference of two pictures, 0 to 255. Fonts and antialiasing differ by less between versions.
TOLERANCE = 8.0
#: Makes a command quick; later options win.
FEW = {
    "decima compare": "--seeds 1 --training 1 --processes 1",
    "--jobs 200": "--jobs 20",
    "--interval 4 --jobs 100": "--jobs 20",
    "--drift": "--jobs 60 --schedulers fair,decima",
    "deeprm compare": "--sets 2",
    "reproduce fig18": "--seeds 1",
    "spark what-if": "--draws 2",
    "search.py": "iterations=1 behaviour_cloning=null episodes.sequences=1 validation.sequences=1",
    "deeprm train": "--set iterations=1 --set episodes.sets=2 --set validation.sets=2",
    "--allow-parts": "--seeds 1 --training 1 --processes 1 --jobs 5 --schedulers fair,decima",
    "decima train --config": "--processes 1 --set iterations=1 --set validation.sequences=1 "
    "--set behaviour_cloning=null --set episodes.sequences=1 --set episodes.per_sequence=2 --set workload.jobs=5",
    "--config mixed": "--set workload={} --set settings.batch_jobs=3 --set settings.stream_jobs=3 "
    "--set validation.cells=1",
    "--config few": "--set workload={} --set settings.stream_jobs=3 --set validation.cells=1",
    "--config search": "--set episodes={} --set search.pairs=2",
}


def blocks(language: str, page: Path) -> list[tuple[str, str]]:
    """Return (file name or empty, text) of the fenced blocks in a language."""
    return re.findall(rf'^```{language}(?: title="(\S+)")?\n(.*?)^```$', page.read_text(), re.M | re.S)


#: Settings of a training from Python that is over soon.
SHORT = ("iterations=1", "behaviour_cloning=null", "episodes.sequences=1", "workload.jobs=2", "validation.sequences=1")
INSTALL = blocks("sh", README)[0][1].strip().splitlines()
#: Every line once, wherever it stands; those of a page in their order. ``test_site.py`` runs the line of the website.
LINES = {
    line: page
    for page in reversed(PAGES)
    for _, text in blocks("sh", page)
    for line in text.strip().splitlines()
    if line not in INSTALL and not line.endswith("mkdocs serve")
}
OTHERS = [lines for each in PAGES if (lines := [line for line, page in LINES.items() if page == each])]
#: What takes long even so: a training and several services, several trainings, a search; every recorded query.
LONG = ("my-spark-jobs.json", "search.py", "reproduce fig18")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the files on the pages, beside the recordings."""
    for page in PAGES:
        for name, text in (block for kind in ("json", "python", "yaml", "csv") for block in blocks(kind, page)):
            if name:
                assert not (tmp_path / name).exists() or (tmp_path / name).read_text() == text
                (tmp_path / name).write_text(text)
    (tmp_path / "recordings").symlink_to(README.parent / "recordings")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]  # one of the pages' own


def with_data(line: str) -> str:
    """Return a command line of a page with the paths of the data beside the checkout."""
    if "../shared" in line and not SHARED.exists():
        pytest.skip("needs data that lie beside the checkout (set DECIMA_SHARED to their folder)")
    return line.replace("../shared", str(SHARED))


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of a page, with the environment of the tests as ``.venv``."""
    line = with_data(line).replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    if "decima serve" in line:
        return serve(line, folder)
    here = os.environ | {"PYTHONPATH": str(README.parent)}  # of the folder reproduce, which is not installed
    return subprocess.run(["bash", "-c", line], cwd=folder, env=here, capture_output=True, text=True, timeout=540)


def run_here(line: str, folder: Path) -> tuple[int, str, str]:
    """Run a single command of the project in this process, or else a shell; return exit status and output."""
    program, *words = shlex.split(with_data(line))
    if program != ".venv/bin/decima" or "serve" in words or set(line) & set("|;&<>*$"):
        done = run(line, folder)
        return done.returncode, done.stdout, done.stderr
    result = CliRunner().invoke(cli, words)
    return result.exit_code, result.stdout, result.stderr


def serve(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Serve a driver that runs a few jobs, and end."""
    sequence = batch_arrivals(open_workload().profiles[:4], 4, seed=0)
    jobs = list(zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True))
    with started(
        ["bash", "-c", f"exec {line} --spark 0 --token-file token"], cwd=folder, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if said.startswith("serving"):
            token = (folder / "token").read_text().strip()
            with Client(said.split()[-1], token=token) as client:
                ScriptedSpark(jobs, client.ask, slots=4).run()
            process.terminate()
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(line, process.returncode, said + stdout, stderr)


def test_the_first_two_lines_install_run_and_test() -> None:
    """``.ci/run`` runs exactly these two."""
    assert len(INSTALL) == 2
    assert INSTALL[0].endswith("&& .venv/bin/decima compare")
    assert INSTALL[1].endswith("&& .venv/bin/pytest")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [*README.parent.glob("*.md"), *DOCS.rglob("*.md"), *README.parent.glob("notebooks/*.ipynb")],
    ids=lambda page: page.stem,
)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """On GitHub, where the pages of the reference have no headings for classes and functions."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" not in target:
            found = page.parent / path if path else page
            assert found.exists(), target
            elsewhere = found.parent.name == "reference" or found.suffix == ".ipynb"  # anchors of the site, of Jupyter
            assert not anchor or elsewhere or anchor in anchors(found), target


def test_pages_are_read_in_minutes() -> None:
    """Words, without bars of tables and names of rendered values; the reference and the changelog have no limit."""
    guides = [page for page in DOCS.rglob("*.md") if page.parent.name != "reference" and page.name != "changelog.md"]
    limits = dict.fromkeys(guides, 1500) | {README: 600, START: 1000}
    words = {page: len(re.sub(r"<!--.*?-->|\|", " ", page.read_text()).split()) for page in limits}
    assert {page.name: count for page, count in words.items() if count > limits[page]} == {}


#: A word that a reader searches for -> page of the guides whose title or first paragraph has it.
LANDING = {
    "GNN": "network",
    "PyG": "network",
    "Gantt": "report",
    "event log": "event-logs",
    "networkx": "jobs",
    "Gymnasium": "environments",
    "deadline": "objectives",
    "reward": "reward",
    "shadow": "spark-shadow",
}


@pytest.mark.parametrize(("word", "page"), LANDING.items())
def test_a_search_leads_to_the_page_that_answers_it(word: str, page: str) -> None:
    """The website's search ranks titles first."""
    title, paragraph = (DOCS / "guides" / f"{page}.md").read_text().split("\n\n")[:2]
    assert word.lower() in f"{title} {paragraph}".lower()


def test_no_value_cuts_a_paragraph() -> None:
    """In Markdown, a comment at the beginning of a line begins a new paragraph."""
    assert [page for page in (README, *DOCS.rglob("*.md")) if "\n<!-- value" in page.read_text()] == []


@pytest.mark.pages
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(lines, marks=pytest.mark.slow) if any(word in lines[0] for word in LONG) else lines
        for lines in OTHERS
    ],
    ids=lambda lines: lines[0],
)
def test_commands_run(lines: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer experiments and iterations than on the page, and in one process, which is much faster."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for line in lines:
        few = "" if "--help" in line else " ".join(FEW[word] for word in FEW if word in line)
        code, stdout, stderr = run_here(f"{line} {few}", folder)
        assert code == 0, stderr
        assert stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("lines", OTHERS, ids=lambda lines: lines[0])
def test_commands_run_as_they_stand(lines: list[str], folder: Path) -> None:
    for line in lines:
        done = run(line, folder)
        assert done.returncode == 0, done.stderr


#: Part of a command -> its page, which shows outputs or figures of the command.
SHOWN = {
    "decima compare": README,
    "decima compare --schedulers fair,weighted-fair,mine:ShortestFirst": START,
    "decima train --config quick": START,
    "decima compare --executors 25 --moving-delay 3 --jobs 10": DOCS / "guides" / "compare.md",
    "decima spark what-if": DOCS / "guides" / "what-if.md",
    "decima explain --policy tpch-batch": DOCS / "guides" / "explain.md",
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def assert_printed(shown: str, output: str) -> None:
    """Check that an output contains what a page shows of it; the last digits may differ on another processor."""
    shown, output = " ".join(shown.split()), " ".join(output.split())
    before, words, _ = NUMBER.sub("#", output).partition(NUMBER.sub("#", shown))
    assert words, f"{shown}\nis not in\n{output}"
    printed = NUMBER.findall(output)[before.count("#") :][: words.count("#")]
    assert list(map(float, NUMBER.findall(shown))) == pytest.approx(list(map(float, printed)), rel=0.01, abs=0.15)


@pytest.mark.pages
@pytest.mark.parametrize(
    "command", [pytest.param(command, marks=pytest.mark.slow) if "train" in command else command for command in SHOWN]
)
def test_shown_results_are_those_of_the_command(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output blocks after the command's block, and the figures in the paragraph after it."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    # Text, language, code, the fence's end; and so on.
    parts = re.split(r"^```(.*)\n", f"{SHOWN[command].read_text()}", flags=re.M)
    place = next(at for at in range(2, len(parts), 4) if command in parts[at])
    output = ""
    for line in parts[place].splitlines():
        if ".venv/bin/decima" in line:
            code, stdout, stderr = run_here(line.rpartition("&& ")[2], folder)
            assert code == 0, stderr
            output += stdout
    for at in itertools.takewhile(lambda at: not parts[at - 1], range(place + 4, len(parts), 4)):
        for shown in filter(str.strip, parts[at].split("...\n")):
            assert_printed(shown, output)
    paragraph = parts[place + 2].strip().split("\n\n")[0]
    assert set(re.findall(r"\d+\.\d+", paragraph)) <= set(NUMBER.findall(output))


@pytest.mark.pages
def test_the_picture_of_commitments_is_what_its_script_draws(tmp_path: Path) -> None:
    script = DOCS / "how" / "commitments.py"
    environment = os.environ | {"PYTHONPATH": str(README.parent)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    picture = script.with_suffix(".png")
    assert compare_images(str(picture), str(tmp_path / picture.name), TOLERANCE) is None


#: Stand-in of the package of a logger, which prints the metrics.
LOGGER = """
class Run:
    summary = {}
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def define_metric(self, name, step_metric): pass
    def log(self, metrics): print(metrics["iteration"], metrics["best_improvement"])

def init(project): return Run()
def start_run(): return Run()
def log_metrics(metrics, step): print(step, metrics["best_improvement"])
def log_param(name, value): pass
"""


@pytest.mark.pages
@pytest.mark.parametrize("logger", ["mlflow", "wandb"])
def test_loggers_receive_the_metrics_of_each_iteration(logger: str, folder: Path) -> None:
    (folder / f"{logger}.py").write_text(LOGGER)
    program = folder / f"log_to_{logger}.py"
    program.write_text(program.read_text().replace("iterations=20", f"overrides={SHORT}"))
    here = os.environ | {"PYTHONPATH": str(README.parent)}
    done = subprocess.run([sys.executable, program], cwd=folder, env=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["0", "1"]


WITH_PYTHON = [page for page in PAGES if any(not name for name, _ in blocks("python", page))]


@pytest.mark.pages
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_runs(page: Path, folder: Path) -> None:
    """Blocks of a page run one after the other; a training is a short one. The README's Python draws its picture."""
    code = "\n".join(text for name, text in blocks("python", page) if not name)
    code = code.replace('out="my-policy"', f'out="my-policy", overrides={SHORT}').replace("seeds=10", "seeds=2")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout or "print(" not in code
    if page == README:
        assert compare_images(str(DOCS / "schedules.png"), str(folder / "schedules.png"), TOLERANCE) is None
