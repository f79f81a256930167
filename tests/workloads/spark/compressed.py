"""Compress bytes as Spark's libraries do, for tests of the reader."""

from __future__ import annotations

import struct

import pytest

MAGIC, SEED = b"LZ4Block", 0x9747B28C


def lz4_block(data: bytes, *, raw: bool = False, checksum: int | None = None, size: int | None = None) -> bytes:
    """Return one block of ``LZ4BlockOutputStream``; an empty block ends a stream."""
    cramjam, xxhash = (pytest.importorskip(name, reason="needs the extra [spark]") for name in ("cramjam", "xxhash"))
    packed = data if raw or not data else bytes(cramjam.lz4.compress_block(data, store_size=False))
    checksum = xxhash.xxh32_intdigest(data, SEED) & 0x0FFFFFFF if checksum is None else checksum
    token = (0x10 if raw or not data else 0x20) | 5  # blocks of 32 KiB
    size = len(data) if size is None else size
    return struct.pack("<8sBIII", MAGIC, token, len(packed), size, checksum if data else 0) + packed


def lz4(data: bytes, block: int = 300) -> bytes:
    """Compress bytes as ``LZ4BlockOutputStream`` of lz4-java does."""
    blocks = [lz4_block(data[start : start + block]) for start in range(0, len(data), block)]
    return b"".join([*blocks, lz4_block(b"")])


def snappy_block(data: bytes) -> bytes:
    """Return one block of ``SnappyOutputStream``."""
    cramjam = pytest.importorskip("cramjam", reason="needs the extra [spark]")
    packed = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">I", len(packed)) + packed


def snappy(data: bytes, block: int = 300) -> bytes:
    """Compress bytes as ``SnappyOutputStream`` of snappy-java does."""
    blocks = [snappy_block(data[start : start + block]) for start in range(0, len(data), block)]
    return b"".join([b"\x82SNAPPY\0", struct.pack(">II", 1, 1), *blocks])


def zstd(data: bytes) -> bytes:
    """Compress bytes as two frames, as Spark ends a frame at every flush."""
    zstandard = pytest.importorskip("zstandard", reason="needs the extra [spark]")
    half = len(data) // 2
    return bytes(zstandard.compress(data[:half]) + zstandard.compress(data[half:]))
