"""Data sets: those in the package, and those that are fetched."""

import gzip
import hashlib
import json
import os
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from coursekit.files import read_bytes, write_atomically


@dataclass(frozen=True)
class Dataset:
    """A text that is not ours to ship: fetched when it is asked for."""

    url: str
    """Its official address."""
    file: str
    """Its name in the cache and in the folder COURSEKIT_DATA."""
    sha256: str
    """The hash of the text, not of the compressed file."""
    terms: str
    """Terms of use."""


def datasets() -> dict[str, Dataset]:
    """Return the datasets that `load_text` and `load_pairs` know."""
    listed = json.loads(read_asset("datasets.json"))
    return {name: Dataset(**fields) for name, fields in listed.items()}


def read_asset(name: str) -> bytes:
    """Return the bytes of a file in the package's folder assets."""
    asset = resources.files("coursekit") / "assets" / name
    with resources.as_file(asset) as path:
        return read_bytes(path)


def fetch(dataset: Dataset) -> bytes:
    """Return a dataset's bytes from a folder here or from its address."""
    folders = [Path.home() / ".cache" / "coursekit"]
    if os.environ.get("COURSEKIT_DATA"):
        folders.insert(0, Path(os.environ["COURSEKIT_DATA"]))
    plain = dataset.file.removesuffix(".gz")
    for folder in folders:
        for path in (folder / plain, folder / f"{plain}.gz"):
            if path.is_file():
                return _verify(read_bytes(path), dataset, str(path))
    return _download(dataset, folders[-1] / dataset.file)


def _download(dataset: Dataset, path: Path) -> bytes:
    """Return a dataset's bytes from its address, and keep them as a file."""
    try:
        with urllib.request.urlopen(dataset.url, timeout=30) as answer:
            data = answer.read()
    except OSError as error:
        raise OSError(
            f"cannot fetch {dataset.url} ({error}). Put the file at "
            f"{path}, or name its folder in COURSEKIT_DATA."
        ) from error
    text = gzip.decompress(data) if dataset.file.endswith(".gz") else data
    _verify(text, dataset, dataset.url)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return text


def _verify(data: bytes, dataset: Dataset, origin: str) -> bytes:
    """Return the bytes if they have the dataset's hash."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != dataset.sha256:
        raise ValueError(
            f"the text must have the SHA-256 {dataset.sha256}: got "
            f"{digest} from {origin}. Remove the file and fetch it again."
        )
    return data
