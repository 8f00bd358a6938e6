"""The chapters that `make check` runs again."""

import subprocess
from pathlib import Path

import changed
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_chapter_changes_with_its_page_its_module_and_its_exercises():
    pages = [
        *("book/03_positions", "book/04_attention", "book/05_masks"),
        "book/further/04_attention",
    ]
    both = ["book/04_attention", "book/further/04_attention"]
    for file, expected in [
        ("book/05_masks.md", ["book/05_masks"]),
        ("book/further/04_attention.md", both[1:]),
        ("coursekit/attention.py", both),
        ("coursekit_classroom/catalogue/attention.py", both),
        ("tests/answers/attention.py", []),
        ("coursekit/fast/masks.py", []),
        ("README.md", []),
    ]:
        assert changed.changed_pages({file}, pages) == expected, file


def cloned(folder, branch="main", at=""):
    """A repository in a folder that git knows two pages of, one changed."""
    place = folder / at
    (place / "book").mkdir(parents=True)
    name = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (
        ["init", "-q", "-b", branch],
        [*name, "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (place / "book/05_masks.md").write_text("new")
    return place


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (cloned, 1),
        (lambda folder: cloned(folder, "mine"), 2),  # a single branch
        (lambda folder: cloned(folder, at="unpacked"), 2),  # in another's
        (lambda folder: folder, 2),  # an unpacked archive
        (None, 2),  # without git
    ],
)
def test_all_chapters_count_where_git_cannot_say(
    tmp_path, monkeypatch, capsys, make, expected
):
    pages = ["book/04_attention", "book/05_masks"]
    monkeypatch.setattr(changed, "ROOT", (make or cloned)(tmp_path))
    if make is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    assert len(changed.to_run(pages)) == expected
    said = "git cannot say what has changed" in capsys.readouterr().out
    assert said == (expected == 2)
