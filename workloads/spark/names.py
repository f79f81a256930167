"""Names of queries, from the texts that users, Spark and tools on top of Spark attach to jobs.

A name is the same in all runs of a query, so that they are pooled: whatever a text says about one run is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["group_name", "query_name", "without_run"]

#: Maximum length of a description that is used; the plugin for Spark cuts longer ones in the same way.
LONGEST_DESCRIPTION = 1024
#: Descriptions that Spark or a tool sets, and that say nothing about the query; the comments name the origin.
_NO_NAME = re.compile(
    r"broadcast exchange \(runId .*"  # broadcasts, Spark 3.0 and later
    r"|Listing leaf files and directories for \d+ paths:.*"  # file listing, Spark 2.4 and later
    r"|Job group for statement \d+",  # Livy
    re.DOTALL,
)
#: Call site, the default name of Spark's user interface: method, file and line, such as ``count at etl.py:12``.
_CALL_SITE = re.compile(r"\S+ at \S.*:-?\d+")

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: Micro-batch of a stream: name if it has one, then ids of the stream and of its run, and the number of the batch.
_MICRO_BATCH = re.compile(rf"(.*?) ?id = ({_UUID}) runId = {_UUID}(?: batch = \S+)?")
#: Batch of a stream of RDDs (Spark Streaming).
_RDD_BATCH = re.compile(
    r'Streaming job from <a href="[^"]*">\[(output operation \d+), batch time [^]]*\]</a>'
)
#: Parts of descriptions that differ between runs, with their replacement.
_RUN_PARTS = (
    (re.compile(r"(Compute snapshot for version): \d+"), r"\1"),  # Delta Lake
    (re.compile(rf"(?<!stream )(?<![0-9a-fA-F-]){_UUID}(?![0-9a-fA-F-])"), "*"),
)


def query_name(descriptions: Iterable[str], call_site: str, group: str) -> str:
    """Return the name of a query; empty if nothing names it.

    It is the first description that a user gave, else the first call site, else the job group.

    Args:
        descriptions: descriptions of the SQL execution and of its jobs, in order of preference; may be empty.
        call_site: call site of the last job; empty if unknown.
        group: job group; empty if it has none.
    """
    texts = [text for text in descriptions if text and not _NO_NAME.fullmatch(text)]
    texts_given = [text for text in texts if not _CALL_SITE.fullmatch(text)]
    names = (without_run(text) for text in (*texts_given, *texts, call_site, group))
    return next((name for name in names if name not in ("", "*")), "")


def group_name(group: str, description: str) -> str:
    """Return the job group that the application chose for a job; empty if there is none.

    Spark sets groups itself, for one run each: for broadcasts (3.0 to 3.4), batches of a stream, and statements of the
    Thrift server. The group of a stream is its name.
    """
    if group and f"runId = {group}" in description:
        return without_run(description)
    return "" if f"(runId {group})" in description or re.fullmatch(_UUID, group) else group


def without_run(text: str) -> str:
    """Return a description without line breaks and without the parts that differ between runs.

    A stream gives its name to all its batches (its id if it has no name), and a UUID becomes ``*``. Text beyond
    `LONGEST_DESCRIPTION` characters is cut.
    """
    text = " ".join(text[:LONGEST_DESCRIPTION].replace("<br/>", " ").split())
    if match := _MICRO_BATCH.fullmatch(text):
        return match[1] or f"stream {match[2]}"
    if match := _RDD_BATCH.fullmatch(text):
        return f"Streaming job, {match[1]}"
    for pattern, replacement in _RUN_PARTS:
        text = pattern.sub(replacement, text)
    return text
