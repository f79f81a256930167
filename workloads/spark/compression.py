"""Decompress event logs: gzip, zstd, and Spark's framings of LZ4 and Snappy, in bounded memory.

The first bytes of a file determine its compression. Spark's framings (of its libraries ``lz4-java`` and
``snappy-java``) are other formats than those of the commands ``lz4`` and ``snzip``.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from workloads.job import WorkloadError

try:
    import zstandard
except ImportError:  # optional, as are the others: only compressed logs need them
    zstandard = None  # type: ignore[assignment, unused-ignore]
try:
    import cramjam
    import xxhash
except ImportError:
    cramjam = xxhash = None  # type: ignore[assignment, unused-ignore]

#: Maximum size of a block before and after decompression, bytes: the largest block of the LZ4 framing.
LARGEST_BLOCK = 2**25
#: Maximum number of compressions of one file, such as gzip of a log that Spark wrote as zstd.
MOST_LAYERS = 3

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LZ4_BLOCK, _SNAPPY = b"LZ4Block", b"\x82SNAPPY\0"
#: Compressions that are only recognised: name, and how to unpack the file.
_UNSUPPORTED = {
    b"ZV": (
        "LZF",
        "let Spark write zstd (spark.eventLog.compression.codec=zstd), or unpack the file in spark-shell: "
        "java.nio.file.Files.copy(new com.ning.compress.lzf.LZFInputStream(new java.io.FileInputStream("
        '"LOG")), java.nio.file.Paths.get("UNPACKED"))',
    ),
    b"\x04\x22\x4d\x18": ("the LZ4 frame", "unpack it by: lz4 -d"),
    b"\xff\x06\x00\x00sNaPpY": ("the Snappy frame", "unpack it by: snzip -d"),
    b"BZh": ("bzip2", "unpack it by: bunzip2"),
    b"\xfd7zXZ\x00": ("xz", "unpack it by: unxz"),
    b"PK\x03\x04": ("zip", "unpack it by: unzip (only an archive of logs is read)"),
}
_LONGEST_MAGIC = 10
_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED, _LZ4_CHECKSUM = 0x9747B28C, 0x0FFFFFFF

#: Exceptions of damaged or encrypted data; EOFError if the data end early.
DAMAGE: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, zipfile.BadZipFile, RuntimeError)
if zstandard is not None:
    DAMAGE = (*DAMAGE, zstandard.ZstdError)
if cramjam is not None:
    DAMAGE = (*DAMAGE, cramjam.DecompressionError)


class UnsupportedCompressionError(WorkloadError):
    """A compression that cannot be read. The message says how to unpack the file, without its name."""


def decompressed(file: BinaryIO) -> BinaryIO:
    """Return the decompressed content of a file; the file itself if it is not compressed.

    Args:
        file: file with the method ``peek`` of `io.BufferedReader`.

    Raises:
        UnsupportedCompressionError: the compression is unknown, or needs a package that is not installed.
        EOFError, OSError, zlib.error, ..: the data are damaged, see ``DAMAGE``; also when the result is read.
    """
    stream: Any = file  # a decompressor can be read like any other file
    for _ in range(MOST_LAYERS):
        start = stream.peek(_LONGEST_MAGIC)
        if start.startswith(_GZIP):
            stream = gzip.GzipFile(fileobj=stream, mode="rb")
        elif start.startswith(_ZSTD):
            _require(zstandard, "zstd", "zstandard package")
            # Spark ends a frame at every flush.
            frames = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            stream = io.BufferedReader(frames)
        elif start.startswith(_LZ4_BLOCK):
            _require(cramjam, "LZ4", "cramjam and xxhash packages")
            stream = io.BufferedReader(_Blocks(_lz4_blocks(stream)))
        elif start.startswith(_SNAPPY):
            _require(cramjam, "Snappy", "cramjam and xxhash packages")
            stream = io.BufferedReader(_Blocks(_snappy_blocks(stream)))
        else:
            break
    start = stream.peek(_LONGEST_MAGIC)
    for magic, (name, advice) in _UNSUPPORTED.items():
        if start.startswith(magic):
            raise UnsupportedCompressionError(f"{name} compression is not supported; {advice}")
    return cast("BinaryIO", stream)


def _require(module: object, name: str, packages: str) -> None:
    if module is None:
        raise UnsupportedCompressionError(f"{name} logs need the {packages}: pip install -e '.[spark]'")


class _Blocks(io.RawIOBase):
    """Stream of the bytes of consecutive blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override, unused-ignore]
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _lz4_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of ``LZ4BlockOutputStream``, of one stream or of several that were joined.

    A block has a magic word, a token (method and block size), compressed size, size, checksum, and data. A block of
    size 0 ends a stream.
    """
    while start := file.read(1):
        header = start + _exactly(file, _LZ4_HEADER.size - 1)
        magic, token, compressed_size, size, checksum = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_BLOCK or max(compressed_size, size) > LARGEST_BLOCK:
            raise OSError("expected an LZ4 block")
        data = _exactly(file, compressed_size)
        if not size:
            continue
        method = token & 0xF0
        if method == _LZ4_COMPRESSED:
            data = bytes(cramjam.lz4.decompress_block(data, output_len=size))
        elif method != _LZ4_RAW:
            raise OSError(f"unknown method {method:#x} of an LZ4 block")
        if len(data) != size or xxhash.xxh32_intdigest(data, _LZ4_SEED) & _LZ4_CHECKSUM != checksum:
            raise OSError("the checksum of an LZ4 block is wrong")
        yield data


def _snappy_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of ``SnappyOutputStream``: a header with two versions, then sizes and blocks."""
    while start := file.read(1):
        prefix = start + _exactly(file, 3)
        if _SNAPPY.startswith(prefix):  # of the first stream, or of another one that was appended
            if _exactly(file, 12)[:4] != _SNAPPY[4:]:
                raise OSError("expected the header of a Snappy stream")
            continue
        size = int.from_bytes(prefix, "big")
        if size > LARGEST_BLOCK:
            raise OSError("expected a Snappy block")
        data = _exactly(file, size)
        if cramjam.snappy.decompress_raw_len(data) > LARGEST_BLOCK:
            raise OSError(f"a Snappy block of more than {LARGEST_BLOCK >> 20} MiB")
        yield bytes(cramjam.snappy.decompress_raw(data))


def _exactly(file: BinaryIO, count: int) -> bytes:
    """Read ``count`` bytes; raise EOFError if the file ends before."""
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data
