"""All input files are opened by ``workloads.reading``; no other code opens a file that a user can be handed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Calls that open a file or take an unchecked one, by the end of the function's name.
READS = re.compile(
    r"(^|\.)(open|fdopen|FileIO|read_text|read_bytes|load_cert_chain|load_verify_locations|JournalFileBackend)$"
    r"|(^|\.)(GzipFile|BZ2File|LZMAFile|ZipFile|TarFile|Unpickler|mmap|memmap|fromfile|loadtxt|genfromtxt|ParseFile)$"
    r"|^(np|numpy|torch|json|pickle|marshal|shelve|joblib|tomllib|yaml)\.(load|load_all|unsafe_load|full_load)$"
    r"|^pickle\.loads$|^(pd|pandas|pq|pyarrow)\.read_\w+$|ElementTree\.parse$|^super\(\)\.load$"
)
#: Modes of ``open`` that do not read.
WRITES = re.compile(r"""^['"][wax]b?['"]$""")

ONE_PLACE = "workloads/reading.py"
WRITTEN_HERE = "a file that this program, or a process that it started, has just written"
SHIPPED = "a file of the package"
SOURCES = "sources of the package"
CHECKED = "bytes or an open file of workloads.reading"
#: File -> the calls that may stay, and the reason for each.
ALLOWED: dict[str, dict[str, str]] = {
    "workloads/archive.py": {"zipfile.ZipFile(file)": CHECKED},
    "workloads/sources/alibaba.py": {"pd.read_csv(BytesIO(block)": CHECKED},
    "simulator/cluster/times_alone.py": {"SHIPPED.read_text(": SHIPPED},
    "simulator/cluster/alone_cache.py": {"(folder / name).read_bytes()": SOURCES, "path.read_bytes()": SOURCES},
    "decima/schedulers/listing.py": {"Path(__file__).parent.joinpath": SOURCES},
    "decima/schedulers/objectives.py": {"Path(__file__).with_name('atc_tuned.json')": SHIPPED},
    "decima/schedulers/srpt_weights.py": {"Path(__file__).with_name('srpt_tuned.json')": SHIPPED},
    "workloads/spark/compression.py": {"gzip.GzipFile(fileobj=stream": CHECKED},
    "workloads/spark/logfile.py": {
        "zipfile.ZipFile(_ShortReads(file))": CHECKED,
        "archive.open(self.member)": "a member of such an archive",
    },
    "workloads/spark/recorder/cluster.py": {"log.read_text(": WRITTEN_HERE},
    "workloads/spark/recorder/local.py": {"log.read_text(": WRITTEN_HERE},
    "workloads/spark/recorder/record.py": {
        "table.open('rb')": "a table that tpchgen has written",
        "cpu.read_text()": "/proc/cpuinfo",
    },
    "workloads/spark/recorder/submission.py": {
        "self._log.read_text(": WRITTEN_HERE,
        "Path(arguments[0]).read_text(": WRITTEN_HERE,
    },
    "workloads/spark/recorder/tpch.py": {"(files('workloads')": SHIPPED},
    "simulator/parity.py": {"gzip.GzipFile(fileobj=file)": CHECKED},
    "simulator/compiled.py": {
        "super().load(key)": "Numba's cache, in a folder of this user",
        "path.read_bytes()": SHIPPED,
    },
    "decima/learning/resume.py": {
        "zipfile.ZipFile(io.BytesIO(data))": CHECKED,
        "torch.load(io.BytesIO(data), map_location='cpu', weights_only=True)": CHECKED,
    },
    "decima/service/answering.py": {"pickle.loads(await stream": "messages of this program's other process"},
    "decima/service/audit.py": {"os.open(self._path, os.O_WRONLY": "a file to write"},
    "decima/service/credentials.py": {"each.load_cert_chain(cert, key": "files that workloads.reading has read before"},
    "decima/service/log.py": {"os.open(path, os.O_WRONLY": "a file to write"},
    "decima/service/page.py": {"_HTML.read_text(": SHIPPED},
    "decima/service/plugin/__init__.py": {
        "zipfile.ZipFile(JAR)": SHIPPED,
        "file.read_bytes()": "sources of the checkout, or files that javac has written",
    },
    "decima/service/server.py": {"os.open(path, os.O_WRONLY": "a file to write"},
    "decima/show/page/__init__.py": {"files('decima.show.page')": SHIPPED},
    "decima/evaluation/documents.py": {"Path('/proc/cpuinfo')": "/proc/cpuinfo"},
}


def reads(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the calls in a module that open a file for reading."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        given = [*node.args, *(each.value for each in node.keywords)]
        is_written = any(WRITES.match(ast.unparse(each)) for each in given)
        opens = READS.search(function) is not None and imported.get(function) != "workloads.reading"
        if opens and not is_written:
            yield node.lineno, ast.unparse(node)


def test_all_inputs_are_opened_in_one_place() -> None:
    found, used = [], set()
    for package in ("workloads", "simulator", "decima"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name == ONE_PLACE:
                continue
            for line, call in reads(path.read_text(encoding="utf-8")):
                reasons = [each for each in ALLOWED.get(name, {}) if call.startswith(each)]
                used |= {(name, each) for each in reasons}
                if not reasons:
                    found.append(f"{name}:{line}: {call}")
    assert found == [], "open these files by workloads.reading, or say above why not"
    unused = [(name, each) for name, calls in ALLOWED.items() for each in calls if (name, each) not in used]
    assert unused == []


def test_unchecked_ways_to_open_a_file_are_found() -> None:
    source = """
from workloads.reading import read_bytes
read_bytes(path)
open(path)
open(path, "w")
path.open()
path.open("wb")
path.read_text()
gzip.open(path)
np.load(path)
json.load(file)
pd.read_parquet(path)
builder.load(value)
tarfile.open(path)
zipfile.ZipFile(path)
zipfile.ZipFile(path, "w")
"""
    assert [line for line, _ in reads(source)] == [4, 6, 8, 9, 10, 11, 12, 14, 15]
