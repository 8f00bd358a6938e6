"""Data sets: those in the package, those that are fetched, and made dates."""

import datetime
import gzip
import hashlib
import json
import os
import random
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
    """What it may be used for."""


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
    found = hashlib.sha256(data).hexdigest()
    if found != dataset.sha256:
        raise ValueError(
            f"the text must have the SHA-256 {dataset.sha256}: got "
            f"{found} from {origin}. Remove the file and fetch it again."
        )
    return data


MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun")
DATE_FORMATS = (
    "{d} {month} {y}",
    "{d} {mon} {y}",
    "{d}{th} {month} {y}",
    "the {d}{th} of {month}, {y}",
    "{d}{th} of {mon} {y}",
    "{month} {d}, {y}",
    "{mon} {d}, {y}",
    "{month} {d}{th}, {y}",
    "{month} the {d}{th}, {y}",
    "{weekday}, {d} {month} {y}",
    "{weekday}, {month} {d}, {y}",
    "{y} {month} {d}",
    "{y}, {mon} {d}{th}",
    "{d}.{m}.{y}",  # with dots the day comes first,
    "{m}/{d}/{y}",  # with slashes the month
)


def date_pairs(n: int, seed: int) -> list[tuple[str, str]]:
    """Make dates as people write them, with the ISO form as the target.

    ("the 3rd of March, 1987", "1987-03-03"): a task for an encoder and
    a decoder that fits on a page, with a right answer for each input.

    Args:
        n: pairs to make, 0 or more.
        seed: the same seed gives the same pairs.

    Returns:
        (human, ISO 8601) pairs of days from 1900 to 2099.

    Chapter: 14, encoder and decoder together.
    """
    rng = random.Random(seed)
    first = datetime.date(1900, 1, 1).toordinal()
    last = datetime.date(2099, 12, 31).toordinal()
    pairs = []
    for _ in range(n):
        day = datetime.date.fromordinal(rng.randint(first, last))
        human = rng.choice(DATE_FORMATS).format(
            d=day.day,
            m=day.month,
            y=day.year,
            th=_ordinal_suffix(day.day),
            month=MONTHS[day.month - 1],
            mon=MONTHS[day.month - 1][:3],
            weekday=DAYS[day.weekday()] + "day",
        )
        pairs.append((human, day.isoformat()))
    return pairs


def _ordinal_suffix(day: int) -> str:
    """Return st, nd, rd or th: the 1st, the 11th, the 21st."""
    if day in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
