"""Read NumPy archives of plain arrays, which a user can be handed; reading never executes code."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.reading import open_regular

__all__ = ["read_arrays"]

#: Maximum size of all arrays of a file together, bytes.
LARGEST = 2**27
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(path: Path, kind: str) -> dict[str, NDArray[Any]]:
    """Read named arrays of an archive as ``numpy.load`` does, and refuse any other content.

    Args:
        path: path of the file.
        kind: what the file should be, such as ``policy``, for error messages.

    Raises:
        WorkloadError: the file cannot be read, is too large, or contains anything but arrays.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > LARGEST:
                raise ValueError("too large")
            if any(member.compress_type not in _COMPRESSIONS for member in members):
                raise ValueError("a compression that NumPy does not use, and that may take any memory")
            if any(not member.filename.endswith(".npy") for member in members):
                raise ValueError("an entry is not an array")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except Exception as error:  # damaged archives raise exceptions of any type
        if isinstance(error, OSError) and error.strerror:
            raise WorkloadError(f"{path}: {error.strerror}") from None
        raise WorkloadError(
            f"{path}: not a {kind}, or truncated: expected a NumPy archive of arrays"
        ) from None


def _array(content: bytes) -> NDArray[Any]:
    """Return the array in the content of a .npy file. Its size must be as declared, before memory is taken for it."""
    stream = io.BytesIO(content)
    read_header = _HEADERS[np.lib.format.read_magic(stream)]
    shape, is_fortran, dtype = read_header(stream)
    begin = stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - begin:
        raise ValueError("a malformed array")
    return np.ndarray(shape, dtype, content, begin, order="F" if is_fortran else "C")
