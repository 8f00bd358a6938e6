"""Build and compare the chapters that differ from the branch ``main``.

    python tests/changed.py

A chapter has changed if its page, its module or its exercises have:
``book/04_attention.md``, ``coursekit/attention.py``,
``coursekit_classroom/catalogue/attention.py``. It is run twice, and nbval
compares both runs. The HTML is built too where the cache holds the
rest of the book, as after `make book` as long as the package has not changed.
Where git cannot say what differs, all chapters count.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sphinx_ext"))
import notebooks  # noqa: E402


def git(*command):
    """The lines that git prints.

    Raises:
        OSError: if there is no git.
        subprocess.CalledProcessError: if it fails.
    """
    done = subprocess.run(
        ["git", *command],
        cwd=ROOT,
        capture_output=True,
        encoding="utf8",
        check=True,
    )
    return done.stdout.splitlines()


def changed_files():
    """Paths that differ from where this branch left main, new ones too.

    Raises:
        OSError, subprocess.CalledProcessError: if git cannot say it.
    """
    names = "refs/heads/main", "refs/remotes/origin/main"
    [prefix] = git("rev-parse", "--show-prefix") or [""]
    known = git("for-each-ref", "--format=%(refname)", *names)
    if prefix or not known:
        raise OSError("this is no clone that has the branch main")
    since = git("merge-base", "HEAD", known[0])
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
        in ("coursekit", "coursekit_classroom/catalogue")
    }
    return [
        page
        for page in pages
        if f"{page}.md" in files or module_of(page) in modules
    ]


def to_run(pages):
    """Those of ``pages`` that have changed; all if git cannot say which."""
    try:
        return changed_pages(changed_files(), pages)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or error
        print(f"git cannot say what has changed, so all has: {said}".strip())
        return pages


def main():
    """Run, export and compare; 1 if a chapter fails or differs."""
    only = to_run([page for page, _ in notebooks.chapters(ROOT)])
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
