"""Memory that a training step frees stays in the process for the next one."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["kept_memory"]

# Of malloc.h: which settings of the C library's memory to change.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
_KEPT: list[bool] = []  # whether memory is being kept


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory in the process for a while: the next step wants it.

    A step frees what the next one asks for again.  The C library of Linux
    gives large pieces back to the operating system, which must find and
    clear each page again; where that is slow, the first steps can take twice
    as long.  Within this block nothing is given back; after it, all that is
    free.  A block within another changes nothing, nor does one on another
    system.

    Chapter: 11, training.
    Test: tests/test_memory.py::test_memory_is_kept
    """
    is_linux = sys.platform == "linux"
    library: Any = ctypes.CDLL(None) if is_linux else None
    if not hasattr(library, "mallopt") or _KEPT:
        yield
        return
    _KEPT.append(True)
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        _KEPT.clear()
        library.mallopt(M_MMAP_MAX, 65_536)
        # Where the library's own rule ends up after a few large tensors.
        library.mallopt(M_MMAP_THRESHOLD, 2**25)
        library.mallopt(M_TRIM_THRESHOLD, 2**26)
        library.malloc_trim(0)
