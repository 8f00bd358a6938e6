"""What a release still lacks: `make publish-check`, before a tag is pushed.

One line for each thing that has to be there, and exit code 1 until all are.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

import yaml

from coursekit_classroom.notebooks.install import published

ROOT = Path(__file__).resolve().parent.parent


def git(root, *command):
    """What git prints; empty if it fails."""
    return subprocess.run(
        ["git", "-C", str(root), *command], capture_output=True, text=True
    ).stdout.strip()


def released(root, version):
    """The date of a version in CHANGELOG.md; ``None`` without an entry."""
    text = Path(root, "CHANGELOG.md").read_text("utf8")
    found = re.search(
        rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", text, re.M
    )
    return found and datetime.date.fromisoformat(found[1])


def needed(root):
    """``(is it there, what it is and how to get it)``, in order."""
    address = published(root)
    version = address.tag.removeprefix("v")
    date = released(root, version)
    citation = yaml.safe_load(Path(root, "CITATION.cff").read_text("utf8"))
    changed = git(root, "status", "--porcelain")
    head, tagged = (
        git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        for name in ("HEAD", address.tag)
    )
    yield (
        bool(address.repository),
        "the address of the repository: put its owner and name into "
        "pyproject.toml, [project.urls] Repository",
    )
    yield (
        bool(address.site),
        "the address of the book: pyproject.toml, [project.urls] "
        "Documentation",
    )
    yield (
        date is not None,
        f"an entry of CHANGELOG.md: the heading `## {version} "
        "(YYYY-MM-DD)` over what is now `Unreleased`",
    )
    yield (
        (citation["version"], citation["date-released"])
        == (version, date and date.isoformat()),
        f"CITATION.cff: version {version} and the date of CHANGELOG.md",
    )
    yield (not changed, "a clean tree: commit or remove what `git status` has")
    yield (
        bool(head) and head == tagged,
        f"the tag of this version at this commit: git tag {address.tag}",
    )


def main(root=ROOT):
    """Print one line each; 1 if anything is missing."""
    found = list(needed(root))
    for there, what in found:
        print(f"{'ok     ' if there else 'missing'}  {what}")
    return int(not all(there for there, _ in found))


if __name__ == "__main__":
    sys.exit(main())
