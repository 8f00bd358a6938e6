"""Where the book is, here and published, and a notebook's first cell.

The addresses stand in ``pyproject.toml`` under ``[project.urls]`` and
nowhere else. The first cell installs the package from there where it is
missing; readers' notebooks and students' have the same one.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

PLACES = Path(__file__).parents[2], Path(__file__).parents[1]
PLACEHOLDER = "OWNER"
# What the package needs, and its figures. A test compares with pyproject.toml.
NEEDS = (
    *("torch", "numpy", "safetensors", "tqdm", "jaxtyping", "regex"),
    "matplotlib",
)
TAG = re.compile(r"\w[\w./+-]*")
ERROR = '''\
from importlib.util import find_spec


class NotInstalled(Exception):
    """Shown as one sentence, without a traceback."""

    def _render_traceback_(self):
        return [str(self)]
'''
CELL = """\
# In Colab or another fresh notebook: install the package of the book once.
# What is there stays as it is, above all Colab's own PyTorch.
import re
import subprocess
import sys
{error}

def install(*what):
    pip = [sys.executable, "-P", "-m", "pip", "install", "-q", "--no-color"]
    done = subprocess.run([*pip, *what], capture_output=True, text=True)
    if done.returncode:
        said = re.findall(r"(?:fatal|ERROR): (.*)", done.stderr)
        why = said[-1] if said else f"exit code {{done.returncode}}"
        raise NotInstalled(
            "The package of the book could not be installed: pip says "
            f"“{{why}}”. Check the connection to the network and run "
            "this cell again, or see {address}."
        )


if getattr(find_spec("coursekit"), "origin", None) is None:
    needs = "{needs}".split()
    missing = [name for name in needs if find_spec(name) is None]
    install("--no-deps", "git+{address}{at}")
    if missing:
        install(*missing)"""
NO_ADDRESS = """\
# Is the package of the book installed? If it is not, this says what to do.
{error}

if getattr(find_spec("coursekit"), "origin", None) is None:
    raise NotInstalled(
        "The package of the book is not installed here: run `pip install .` "
        "in a copy of the book's repository, then restart the kernel."
    )"""


@dataclass(frozen=True)
class Published:
    """Where the project is published; empty until its owner says so."""

    repository: str = ""
    """As ``git clone`` takes it."""

    site: str = ""
    """The address of the built book, which ends with a slash."""

    tag: str = ""
    """The tag of the release that these files are, or will be."""


def book_root() -> Path | None:
    """The folder that holds the book: a checkout, or the package itself."""
    return next(
        (place for place in PLACES if (place / "_config.yml").is_file()), None
    )


def published(root: str | Path) -> Published:
    """What the ``pyproject.toml`` in a folder says of the addresses.

    An address in which ``OWNER`` stands is not set.
    """
    file = Path(root, "pyproject.toml")
    if not file.is_file():
        return Published()
    project = tomllib.loads(file.read_text("utf8")).get("project", {})
    urls = project.get("urls", {})

    def address(name: str) -> str:
        url = str(urls.get(name, "")).rstrip("/")
        return "" if PLACEHOLDER in url else url

    site = address("Documentation")
    return Published(
        repository=address("Repository"),
        site=site and f"{site}/",
        tag=f"v{project['version']}" if "version" in project else "",
    )


def install_cell(address: str, tag: str = "") -> str:
    """The source of the cell.

    Args:
        address: of the repository, as ``git clone`` takes it; if it is
            empty, the cell says what to do instead.
        tag: a tag, branch or commit; empty for the main branch.

    Raises:
        ValueError: if ``tag`` cannot be the name of one.
    """
    if tag and not TAG.fullmatch(tag):
        raise ValueError(
            "a tag is what `git tag` lists, of letters, digits and -_./+: "
            f"got {tag!r}."
        )
    if not address:
        return NO_ADDRESS.format(error=ERROR)
    at = f"@{tag}" if tag else ""
    return CELL.format(
        error=ERROR, address=address, at=at, needs=" ".join(NEEDS)
    )


def address_near(place: Path) -> str:
    """The repository's address, from the book above a place.

    Empty if there is none, or if it has no address yet.
    """
    for folder in place.resolve().parents:
        if (folder / "_config.yml").is_file():
            return published(folder).repository
    return ""
