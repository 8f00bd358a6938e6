"""A notebook's first cell, which installs the package where it is missing.

Readers' notebooks and students' have the same one.
"""

import re
from pathlib import Path

# What the package needs, and its figures. A test compares with pyproject.toml.
NEEDS = (
    *("torch", "numpy", "safetensors", "tqdm", "jaxtyping", "regex"),
    "matplotlib",
)
CELL = """\
# In Colab or another fresh notebook: install the package of the book once.
# What is there stays as it is, above all Colab's own PyTorch.
import subprocess
import sys
from importlib.util import find_spec


def install(*what):
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    subprocess.check_call([*pip, *what])


if find_spec("coursekit") is None:
    needs = "{needs}".split()
    missing = [name for name in needs if find_spec(name) is None]
    install("--no-deps", "git+{address}")
    if missing:
        install(*missing)"""
TAG = re.compile(r"\w[\w./+-]*")


def install_cell(address: str, tag: str = "") -> str:
    """The source of the cell.

    Args:
        address: of the repository, as ``git clone`` takes it.
        tag: a tag, branch or commit; empty for the main branch.

    Raises:
        ValueError: if ``tag`` cannot be the name of one.
    """
    if tag and not TAG.fullmatch(tag):
        raise ValueError(
            "a tag is what `git tag` lists, of letters, digits and -_./+: "
            f"got {tag!r}."
        )
    if tag:
        address += f"@{tag}"
    return CELL.format(address=address, needs=" ".join(NEEDS))


def address_near(place: Path) -> str:
    """The repository's address, from the ``_config.yml`` above a place.

    Empty if there is none.
    """
    import yaml  # type: ignore[import-untyped]

    for folder in place.resolve().parents:
        config = folder / "_config.yml"
        if config.is_file():
            known = yaml.safe_load(config.read_text("utf8")) or {}
            return str(known.get("repository", {}).get("url", ""))
    return ""
