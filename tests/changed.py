"""Build and compare the chapters that differ from the branch ``main``.

    python tests/changed.py

A chapter has changed if its page, its module or its exercises have:
``book/04_attention.md``, ``coursekit/attention.py``,
``classroom/catalogue/attention.py``. It is run twice, by the build and by
nbval, which compares. The HTML is built too where the cache holds the rest of
the book, as after `make book` as long as the package has not changed.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sphinx_ext"))
import notebooks  # noqa: E402


def git(*command):
    """The lines that git prints; none if it fails."""
    done = subprocess.run(
        ["git", *command], cwd=ROOT, capture_output=True, encoding="utf8"
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files():
    """Paths that differ from where this branch left main, new ones too."""
    since = git("merge-base", "HEAD", "main") or ["HEAD"]
    return {
        *git("diff", "--name-only", "--relative", since[0]),
        *git("ls-files", "--others", "--exclude-standard"),
    }


def module_of(page):
    """``attention`` for ``book/04_attention`` and its further page."""
    return Path(page).name.partition("_")[2]


def changed_pages(files, pages):
    """Those of ``pages`` that one of the changed ``files`` belongs to."""
    paths = [Path(file) for file in files]
    modules = {
        path.stem
        for path in paths
        if path.parent.as_posix()
        in ("coursekit", "coursekit/classroom/catalogue")
    }
    return [
        page
        for page in pages
        if f"{page}.md" in files or module_of(page) in modules
    ]


def main():
    """Run, export and compare; 1 if a chapter fails or differs."""
    pages = [page for page, _ in notebooks.chapters(ROOT)]
    only = changed_pages(changed_files(), pages)
    if not only:
        print("no chapter has changed")
        return 0
    print("changed:", *only, flush=True)
    if notebooks.main(*only, root=ROOT):
        return 1
    written = [f"_build/notebooks/{page}.ipynb" for page in only]
    targets = [["compare", f"IN={' '.join(written)}"]]
    if not any(notebooks.missing(ROOT)):
        targets.insert(0, ["html"])
    return any(
        subprocess.run(
            ["make", "--no-print-directory", *target], cwd=ROOT
        ).returncode
        for target in targets
    )


if __name__ == "__main__":
    sys.exit(main())
