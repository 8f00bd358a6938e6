"""What a release needs: the check that says so, the workflows, the wheel."""

import shutil
import subprocess
from pathlib import Path

import publish_check
import pytest

ROOT = Path(__file__).resolve().parent.parent


# -- make publish-check ------------------------------------------------------
def git(root, *command):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *command], cwd=root, check=True)


def edit(root, name, old, new):
    path = root / name
    text = path.read_text("utf8")
    assert old in text, (name, old)
    path.write_text(text.replace(old, new), "utf8")


@pytest.fixture
def release(tmp_path):
    """A checkout from which version 7.3 can be released."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "7.3"\n[project.urls]\n'
        'Repository = "https://github.com/ada/book"\n'
        'Documentation = "https://ada.github.io/book/"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("# C\n\n## 7.3 (2026-12-31)\n")
    (tmp_path / "CITATION.cff").write_text(
        'version: "7.3"\ndate-released: "2026-12-31"\n'
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    git(tmp_path, "tag", "v7.3")
    return tmp_path


def missing(root):
    """The first words of what is missing."""
    return [
        what.split(":")[0]
        for there, what in publish_check.needed(root)
        if not there
    ]


def test_a_release_that_has_all_is_let_through(release, capsys):
    assert missing(release) == []
    assert publish_check.main(release) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        ("pyproject.toml", "com/ada", "com/OWNER", "the address of the rep"),
        (
            "pyproject.toml",
            "//ada",
            "//OWNER",
            "the address of the b",
        ),
        ("CHANGELOG.md", "7.3 (2026-12-31)", "Unreleased", "an entry"),
        ("CITATION.cff", "7.3", "7.2", "CITATION.cff"),
        ("CITATION.cff", "12-31", "12-30", "CITATION.cff"),
        ("pyproject.toml", '"7.3"', '"7.4"', "the tag"),
    ],
)
def test_what_a_release_lacks_is_said(release, capsys, name, old, new, what):
    edit(release, name, old, new)
    assert any(m.startswith("a clean tree") for m in missing(release))
    git(release, "commit", "-qam", "Spoiled")
    git(release, "tag", "-f", "v7.3")
    assert any(m.startswith(what) for m in missing(release))
    assert "a clean tree" not in missing(release)
    assert publish_check.main(release) == 1
    assert "missing  " in capsys.readouterr().out


def test_a_tag_of_another_commit_is_not_enough(release):
    (release / "new").touch()
    assert missing(release) == ["a clean tree"]
    git(release, "add", ".")
    git(release, "commit", "-qm", "Later")
    assert missing(release) == ["the tag of this version at this commit"]


def test_the_check_reads_this_projects_files(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    assert "the tag of this version at this commit" in missing(tmp_path)
