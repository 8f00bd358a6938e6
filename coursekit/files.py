"""Bytes: read and written whole, and text as UTF-8."""

import gzip
import json
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def read_bytes(path: str | Path) -> bytes:
    """Read a file; what ends in .xz or .gz is decompressed."""
    data = Path(path).read_bytes()
    try:
        if str(path).endswith(".xz"):
            return lzma.decompress(data)
        if str(path).endswith(".gz"):
            return gzip.decompress(data)
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(
            f"a compressed file must be whole: got {len(data)} bytes in "
            f"{path} ({error}). Fetch the file again."
        ) from None
    return data


def parse_json(data: str | bytes) -> Any:
    """Read JSON.

    Raises:
        ValueError: it is none, or nested too deeply to be read.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all: write beside it, then rename.

    Raises:
        OSError: the disk is full or the folder is missing; an older
            file of that name is then as it was.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keep a folder for this process, until the block or the process ends.

    A folder that is missing is made, and removed if it stays empty.  It is
    locked itself, since its files are replaced.  Windows has no such lock:
    nothing is refused there.

    Raises:
        OSError: it can't be made.
        ValueError: another process has it.
    """
    folder = Path(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _flock(folder):
            yield
    finally:
        with suppress(OSError):  # some of them are not empty
            for path in made:
                path.rmdir()


@contextmanager
def _flock(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        yield
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise ValueError(
            "one process at a time may work in a folder: got "
            f"{folder}, in which another is at work. Wait for it, or choose "
            "another folder."
        ) from None
    try:
        yield
    finally:
        os.close(file)


def utf8(text: str) -> bytes:
    """Turn text into UTF-8.

    Raises:
        ValueError: the text holds half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "text must be valid Unicode: got the lone surrogate "
            f"U+{ord(text[error.start]):04X} at index {error.start}. "
            "Read the file with the right encoding."
        ) from None
