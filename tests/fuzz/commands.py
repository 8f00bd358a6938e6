"""Command lines at random: one line if something is wrong, no traceback.

The words are drawn from each command's own options, with values of all kinds
and names of files that are right, wrong or damaged.  A command that takes
long gets Ctrl-C.
"""

import argparse
import importlib
import json
import os
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path

from coursekit import cli
from coursekit_classroom.kit import command as kit
from tests.fuzz import damage, folder, forked, target
from tests.submissions import corpus

CODES = (0, 1, 2, 130)
CTRL_C = (2.0, signal.SIGINT)  # seconds after which it comes
WORDS = [
    *("", "0", "1", "-1", "3", "0.5", "1e400", "nan", "9" * 30, "x", "é\n"),
    *("--", "-", "a=b", "a=1,b", "[", "4", "\udcff", "n" * 300, "4,5", "all"),
    *("2026-10-05", "masks/is_causal", "attention/attend=3", "running"),
    *("translator-de-en", "attention", "student", "moodle", "(.*)_x"),
]
FILES = [
    *(
        "text.txt",
        "run",
        "pairs.tsv",
        "class.csv",
        "ada.ipynb",
        "assignment-secret.txt",
    ),
    *("submissions", "grades.csv", "page.md", "mine.py"),
    *("garbage", "empty", "missing/x", "new", "/dev/null", "."),
]
# What attacks this machine on purpose.
ALONE = {"doctor": ["--nonsense"]}


@cache
def things() -> Path:
    """A folder with everything that a command may be given."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-things-"))
    (path / "run").mkdir()
    damage.put(path / "run", damage.run_files())
    (path / "text.txt").write_text("the ten tents. " * 60)
    (path / "pairs.tsv").write_text("the\tten\nten\tthe\n" * 9)
    (path / "class.csv").write_text(damage.ROSTERS[0])
    (path / "garbage").write_bytes(bytes(range(256)) * 3)
    (path / "empty").touch()
    (path / "submissions").mkdir()
    entry = next(e for e in corpus.ENTRIES if e.kind == "right")
    [data] = entry.files.values()
    (path / "ada.ipynb").write_bytes(data)
    (path / "submissions" / "ada.ipynb").write_bytes(data)
    plan = {"page": "04", "exercises": corpus.EXERCISES, "students": {}}
    fields = {"version": 1, "secret": "5" * 64, "assignments": {"04": plan}}
    (path / "assignment-secret.txt").write_text(json.dumps(fields))
    (path / "grades.csv").write_text("student,exercise,points,max_points\n")
    root = Path(__file__).parents[2]
    shutil.copy(root / "book" / "05_masks.md", path / "page.md")
    (path / "mine.py").write_text("x = 1\n")
    return path


@cache
def parsers() -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """The parser of each command, with its options."""
    found = {}
    for name, (_, module) in cli.COMMANDS.items():
        if name == "kit":
            continue
        home, _, part = module.partition(":")
        code = importlib.import_module(home)
        parser = argparse.ArgumentParser()
        getattr(code, f"{part}_options" if part else "add_options")(parser)
        found[(name,)] = parser
    for name, (add, _) in kit.PARTS.items():
        parser = argparse.ArgumentParser()
        add(parser)
        found["kit", name] = parser
    return found


def value(rng, action) -> str:
    """What may stand behind an option."""
    if action.choices and rng.random() < 0.7:
        return str(rng.choice([*action.choices]))
    if action.type in (int, float) and rng.random() < 0.6:
        return rng.choice(["0", "1", "2", "7", "-3", "0.5", "1e9", "10000000"])
    return rng.choice(rng.choice([WORDS, FILES, FILES]))


def words_of(rng) -> list[str]:
    """A command line."""
    command, parser = rng.choice(sorted(parsers().items(), key=lambda p: p[0]))
    words = []
    for action in parser._actions:
        required = action.required or not action.option_strings
        if rng.random() > (0.9 if required else 0.15):
            continue
        n = action.nargs if isinstance(action.nargs, int) else 1
        if action.nargs in ("*", "+"):
            n = rng.randint(1, 3)
        values = [value(rng, action) for _ in range(n)]
        words.append([*action.option_strings[-1:], *values])
    rng.shuffle(words)
    line = [*command, *(word for group in words for word in group)]
    if command[0] in ALONE:
        return [*line, *ALONE[command[0]]]
    if rng.random() < 0.05:
        line.insert(rng.randrange(len(line) + 1), rng.choice(WORDS))
    return line


def call(path: Path, words: list[str], **options) -> tuple[int, str, str]:
    """Run a command in a folder, in a process of its own."""

    def program():
        os.chdir(path)
        os.environ.pop("COURSEKIT_FIGURES", None)
        return cli.main(words)

    return forked(program, **options)


def judge(words, code, out, err):
    """Raise if it ended as no command may."""
    said = f"{words}: exit code {code}\n{out[-500:]}\n{err[-3000:]}"
    assert code in CODES, said
    assert "Traceback" not in err, said
    if code == 2:
        lines = [x for x in err.splitlines() if "coursekit: note:" not in x]
        assert len(lines) == 1, said
        assert lines[0].startswith("coursekit: error: "), said


@target
def command(rng):
    """A command with options and values at random."""
    words = words_of(rng)
    with folder() as path:
        shutil.copytree(things(), path, dirs_exist_ok=True)
        judge(words, *call(path, words, signal_after=CTRL_C))


FED = {
    "run/config.json": [
        "info run",
        "generate run",
        "train --resume --out run",
    ],
    "run/tokenizer.json": ["generate run --prompt the"],
    "assignment-secret.txt": [
        "grade submissions --secret assignment-secret.txt --out new.csv",
        "assign page.md --secret assignment-secret.txt",
    ],
    "ada.ipynb": ["check ada.ipynb"],
}


@target
def json_file(rng):
    """A command that is given JSON of another form."""
    name = rng.choice(sorted(FED))
    words = rng.choice(FED[name]).split()
    with folder() as path:
        shutil.copytree(things(), path, dirs_exist_ok=True)
        data = damage.json_bytes(rng, (path / name).read_bytes())
        (path / name).write_bytes(data)
        judge([data[:2000], *words], *call(path, words, signal_after=CTRL_C))
