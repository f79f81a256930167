"""TPC-H for Spark: schemas and data of the tables, which tpchgen-cli generates, and the texts of the 22 queries.

The queries have the standard's validation parameters and use the common subset of Spark SQL and other engines.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from workloads.errors import DecimaError

__all__ = [
    "NUM_QUERIES",
    "SCHEMAS",
    "RecorderError",
    "generate_tables",
    "query_text",
    "tables_folder",
    "tpchgen_program",
]

NUM_QUERIES = 22

#: Table -> columns in Spark SQL; with a schema, Spark needs no job to infer it.
SCHEMAS = {
    "region": "r_regionkey BIGINT, r_name STRING, r_comment STRING",
    "nation": "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING",
    "supplier": (
        "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING, "
        "s_acctbal DECIMAL(15,2), s_comment STRING"
    ),
    "customer": (
        "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING, "
        "c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING"
    ),
    "part": (
        "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
        "p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING"
    ),
    "partsupp": (
        "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15,2), "
        "ps_comment STRING"
    ),
    "orders": (
        "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15,2), "
        "o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING"
    ),
    "lineitem": (
        "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15,2), "
        "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag STRING, "
        "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
        "l_shipmode STRING, l_comment STRING"
    ),
}


class RecorderError(DecimaError, RuntimeError):
    """A failed recording. The message is one line."""


def query_text(query: int, scale_factor: float) -> str:
    """Return the text of a query, 1 to 22; a parameter of query 11 depends on the scale factor."""
    text = (files("workloads") / "data" / "tpch_queries" / f"q{query:02d}.sql").read_text(encoding="utf-8")
    return text.replace("{fraction}", f"{0.0001 / scale_factor:.10f}")


def tables_folder(folder: Path, scale_factor: float) -> Path:
    """Return the folder of the tables of a scale factor, one parquet file each."""
    return folder / f"sf{scale_factor:g}"


def tpchgen_program() -> str:
    """Return the path of tpchgen-cli.

    Raises:
        RecorderError: tpchgen-cli is not installed.
    """
    beside_python = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside_python) if beside_python.is_file() else shutil.which("tpchgen-cli")
    if program is None:
        raise RecorderError("tpchgen-cli is not installed: pip install -e '.[spark]'")
    return program


def generate_tables(folder: Path, scale_factor: float) -> Path:
    """Generate the tables of a scale factor (1 is about 1 GB of text) unless they exist; return their folder.

    Raises:
        RecorderError: tpchgen-cli is not installed, or failed.
    """
    target = tables_folder(folder, scale_factor)
    if target.is_dir():
        return target
    program = tpchgen_program()
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [program, "parquet", "-s", f"{scale_factor:g}", "-o", str(unfinished), "--quiet"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = [table for table in SCHEMAS if not (unfinished / f"{table}.parquet").is_file()]
    if made.returncode or missing:
        reason = made.stderr.strip().splitlines()[-1:] or [f"no {', '.join(missing)}"]
        raise RecorderError(f"tpchgen-cli failed: {reason[0]}")
    unfinished.rename(target)
    return target
