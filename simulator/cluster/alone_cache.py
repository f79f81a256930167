"""Cache on disk of times of jobs alone, by digests of jobs and clusters, see ``times_alone``.

Values are plain numbers. The cache is one SQLite file in the user's cache folder, or in the folder that the environment
variable ``DECIMA_CACHE`` names; no cache is kept if the variable is empty. A file that is malformed is replaced, and a
folder that cannot be written is ignored.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cluster.times_alone import Known

if TYPE_CHECKING:
    import sqlite3

__all__ = ["AloneCache", "default_cache"]

#: Environment variable that names the folder of the cache; empty for no cache.
FOLDER_VARIABLE = "DECIMA_CACHE"
FILE_NAME = "times-alone.sqlite"
#: Maximum number of values in the cache, 100 bytes each; the oldest ones are dropped.
MOST_ROWS = 500_000
#: Time limit for the lock of another process that writes, s.
PATIENCE_S = 5.0
#: Names of SQLite's errors about a file that is not a database, is damaged, or has another table.
_MALFORMED = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")
#: Number of parameters of a query, below SQLite's limit.
_AT_ONCE = 500


def default_cache() -> AloneCache | None:
    """Return the cache of this user; None without a cache."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder == "":
        return None
    if folder is not None:
        return AloneCache(Path(folder) / FILE_NAME)
    from platformdirs import user_cache_path

    with suppress(RuntimeError):  # the user has no home folder
        return AloneCache(user_cache_path("decima") / FILE_NAME)
    return None


class AloneCache:
    """Cache of times alone in an SQLite file, which several processes may read and write at the same time.

    Values of another version of the simulator's code are not returned. No method raises an error if the file cannot be
    read or written.

    Args:
        file: path of the file; it and its folder are created by the first ``write``.
        most_rows: maximum number of values; the oldest ones are dropped.
    """

    def __init__(self, file: Path, most_rows: int = MOST_ROWS) -> None:
        self._file, self._most_rows = file, most_rows

    def read(self, cluster: str, jobs: Iterable[bytes]) -> dict[bytes, Known]:
        """Return the known values of jobs (digests) on a cluster (``cluster_text``)."""
        if not (wanted := list(jobs)):
            return {}
        import sqlite3

        times = dict[bytes, Known]()
        query = 'SELECT job, "limit", mean_ms, error FROM times WHERE cluster = ? AND job IN ({})'
        with suppress(sqlite3.Error, OSError):
            if not self._file.is_file():
                return {}
            with closing(self._connect()) as database:
                for begin in range(0, len(wanted), _AT_ONCE):
                    some = wanted[begin : begin + _AT_ONCE]
                    parameters = _cluster_digest(cluster), *some
                    rows = database.execute(query.format(",".join("?" * len(some))), parameters)
                    times |= {job: tuple(values) for job, *values in rows if _is_valid(*values)}
        return times

    def write(self, cluster: str, values: Mapping[bytes, Known]) -> None:
        """Add values of jobs (by digest) on a cluster (``cluster_text``); drop the oldest if there are too many."""
        if not values:
            return
        import sqlite3

        now = time.time()
        rows = [(_cluster_digest(cluster), job, *time, now) for job, time in values.items()]
        for _ in range(2):
            try:
                with suppress(OSError):
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                with closing(self._connect()) as database, database:
                    database.execute(
                        "CREATE TABLE IF NOT EXISTS times (cluster BLOB, job BLOB, "
                        '"limit" INTEGER, mean_ms REAL, error REAL, written REAL, PRIMARY KEY (cluster, job)) '
                        "WITHOUT ROWID"
                    )
                    database.executemany("INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?, ?, ?)", rows)
                    self._drop_oldest(database)
                return
            except sqlite3.Error as error:
                if not error.sqlite_errorname.startswith(
                    _MALFORMED
                ):  # locked, read-only, no space, and so on
                    return
                with suppress(OSError):
                    self._file.unlink()

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        return sqlite3.connect(self._file, timeout=PATIENCE_S)

    def _drop_oldest(self, database: sqlite3.Connection) -> None:
        [count] = database.execute("SELECT count(*) FROM times").fetchone()
        if count > self._most_rows:
            # A tenth more, so that not every write drops values.
            too_many = count - self._most_rows + self._most_rows // 10
            database.execute(
                "DELETE FROM times WHERE (cluster, job) IN "
                "(SELECT cluster, job FROM times ORDER BY written LIMIT ?)",
                (too_many,),
            )


def _is_valid(limit: object, mean_ms: object, error: object) -> bool:
    """Return whether values from a file have the right types and ranges."""
    are_times = all(
        isinstance(value, float) and math.isfinite(value) and value >= 0 for value in (mean_ms, error)
    )
    return are_times and isinstance(limit, int) and limit >= 1


@lru_cache(maxsize=16)
def _cluster_digest(cluster: str) -> bytes:
    """Return a digest, 16 bytes, of a cluster and of the code that computes times alone."""
    return hashlib.blake2b(_code_digest() + cluster.encode(), digest_size=16).digest()


@cache
def _code_digest() -> bytes:
    """Return a digest of the sources that times alone depend on."""
    folder = Path(__file__).parent
    sources = hashlib.blake2b()
    for name in ("alone.py", "draws.py", "known.py"):
        sources.update((folder / name).read_bytes())
    for path in sorted((folder / "engine").glob("*.py")):
        sources.update(path.read_bytes())
    return sources.digest()
