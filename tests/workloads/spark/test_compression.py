"""Compressions of event logs: framings as Spark writes them, damage, and formats that are only recognised."""

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path

import pytest

from tests.cases import cases
from tests.workloads.spark.compressed import MAGIC, lz4, lz4_block, snappy, snappy_block, zstd
from tests.workloads.spark.logs import small_log
from workloads import WorkloadError, read_event_log
from workloads.spark import compression
from workloads.spark.compression import DAMAGE, LARGEST_BLOCK, decompressed

TEXT = small_log().text
SPARK = {"lz4": lz4, "snappy": snappy, "zstd": zstd, "gz": gzip.compress, "plain": bytes}


def unpacked(data: bytes) -> bytes:
    return decompressed(io.BufferedReader(io.BytesIO(data))).read()


def refused(path: Path) -> str:
    """Return the one-line message about a log that is refused, without the folder."""
    with pytest.raises(WorkloadError) as caught:
        read_event_log(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize("name", list(SPARK))
def test_a_log_in_each_compression_of_spark(tmp_path, name):
    """The first bytes tell the compression, whatever the name of the file."""
    (tmp_path / "log").write_bytes(SPARK[name](TEXT))
    [application] = read_event_log(tmp_path / "log")
    assert [len(query.tasks) for query in application.queries] == [4]
    assert application.report.problems == ()


@pytest.mark.parametrize("name", ["lz4", "snappy", "zstd", "gz"])
def test_streams_that_were_joined_and_compressions_of_compressed_logs(name):
    compress = SPARK[name]
    large = os.urandom(300_000)
    assert unpacked(compress(large) + compress(large)) == 2 * large
    assert unpacked(compress(TEXT) + compress(b"more")) == TEXT + b"more"
    assert unpacked(gzip.compress(compress(TEXT))) == TEXT
    three = gzip.compress(gzip.compress(compress(TEXT)))
    assert unpacked(three) == TEXT
    assert unpacked(gzip.compress(three)) == compress(TEXT)  # at most three are undone


def test_blocks_of_lz4_that_did_not_get_smaller():
    assert unpacked(lz4_block(b"abc", raw=True) + lz4_block(b"defdefdefdefdefdef") + lz4_block(b"")) == (
        b"abcdefdefdefdefdefdef"
    )


def bad_lz4_blocks() -> dict[str, bytes]:
    """Return data after a good block, by the part of the message."""
    header = lambda token, packed, size: struct.pack("<8sBIII", MAGIC, token, packed, size, 0)  # noqa: E731
    return {
        "expected an LZ4 block": b"LZ4Bluck" + bytes(13),
        "expected an LZ4 block ": header(0x25, LARGEST_BLOCK + 1, 10),
        "expected an LZ4 block  ": header(0x25, 10, LARGEST_BLOCK + 1),
        "unknown method 0x40": header(0x45, 3, 3) + b"abc",
        "the checksum of an LZ4 block is wrong": lz4_block(b"abc" * 9, checksum=1),
        "the checksum of an LZ4 block is wrong ": lz4_block(b"abc" * 9, size=28),
        "the checksum of an LZ4 block is wrong  ": lz4_block(b"abc" * 9, raw=True, size=28),
        "Decompression failed": lz4_block(b"abc" * 9, size=20),
    }


@pytest.mark.parametrize("place", range(8))
def test_damaged_blocks_of_lz4(place):
    message, data = list(bad_lz4_blocks().items())[place]
    with pytest.raises(DAMAGE, match=message.strip()):
        unpacked(lz4_block(b"good") + data)


@cases(
    "data, message",
    (struct.pack(">I", LARGEST_BLOCK + 1), "expected a Snappy block"),
    (b"\x82SNAPPING" + bytes(8), "expected the header of a Snappy stream"),
    (struct.pack(">I", 5) + b"\xff\xff\xff\x7fa", "a Snappy block of more than 32 MiB"),
    (struct.pack(">I", 3) + b"\x64ab", "snappy"),
)
def test_damaged_blocks_of_snappy(data, message):
    with pytest.raises(DAMAGE, match=message):
        unpacked(snappy(b"good") + data)


@pytest.mark.parametrize("compress", [lz4, snappy, gzip.compress])
def test_a_cut_log_is_read_up_to_its_end_and_damage_is_one_line(tmp_path, compress):
    (tmp_path / "log").write_bytes(compress(TEXT + b" " * 5000)[:-5])
    [application] = read_event_log(tmp_path / "log")
    assert [len(query.tasks) for query in application.queries] == [4]
    assert "the data end early (truncated, or still being written)" in application.report.problems[0]
    whole, half = compress(TEXT), len(compress(TEXT)) // 2
    inverted = bytes(byte ^ 0xFF for byte in whole[half : half + 400])  # more than a block
    (tmp_path / "log").write_bytes(whole[:half] + inverted + whole[half + 400 :])
    assert "the data are damaged" in refused(tmp_path / "log")


def test_the_largest_block_bounds_the_memory():
    """Blocks of lz4-java have at most 32 MiB."""
    assert len(unpacked(snappy_block_stream(LARGEST_BLOCK))) == LARGEST_BLOCK
    with pytest.raises(OSError, match="more than 32 MiB"):
        unpacked(snappy_block_stream(LARGEST_BLOCK + 1))


def snappy_block_stream(size: int) -> bytes:
    return snappy(b"") + snappy_block(bytes(size))


@cases(
    "start, name, advice",
    (b"ZV", "LZF", "com.ning.compress.lzf.LZFInputStream"),
    (b"\x04\x22\x4d\x18", "the LZ4 frame", "lz4 -d"),
    (b"\xff\x06\x00\x00sNaPpY", "the Snappy frame", "snzip -d"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ\x00", "xz", "unxz"),
)
def test_compressions_that_are_only_recognised(tmp_path, start, name, advice):
    (tmp_path / "log").write_bytes(start + b"12345678")
    message = refused(tmp_path / "log")
    assert message.startswith(f" {name} compression is not supported; ")
    assert advice in message


@cases(
    "start, package, name",
    (b"\x28\xb5\x2f\xfd", "zstandard", "zstd"),
    (b"LZ4Block", "cramjam", "LZ4"),
    (b"\x82SNAPPY\0", "cramjam", "Snappy"),
)
def test_a_package_that_is_not_installed(tmp_path, monkeypatch, start, package, name):
    monkeypatch.setattr(compression, package, None)
    (tmp_path / "log").write_bytes(start + b"1234567890123456")
    message = refused(tmp_path / "log")
    assert message.startswith(f" {name} logs need the {package}")
    assert message.endswith(": pip install -e '.[spark]'")


def test_an_archive_in_an_archive_is_not_opened(tmp_path):
    small_log().write(tmp_path / "log")
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        archive.write(tmp_path / "log", "log")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.write(tmp_path / "inner.zip", "inner.zip")
    assert "unpack it by: unzip" in refused(tmp_path / "outer.zip")
