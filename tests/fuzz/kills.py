"""Training and grading, killed at any moment and begun again.

What is there after a kill can be read, and the end is that of a run which
nobody has stopped, byte for byte.
"""

import os
import random
import shutil
import signal
import time
from functools import cache
from pathlib import Path

from coursekit.saved_models import build_model, read_config
from coursekit.weights import read_tensors
from tests.fuzz import commands, folder, target
from tests.submissions import corpus

TRAIN = (  # noqa: SIM905 (as it is typed)
    "train text.txt --out r --d-model 6 --n-heads 2 --n-layers 1 --context 7 "
    "--batch-size 3 --steps 40 --warmup-steps 2 --eval-every 5 "
    "--checkpoint-every 3 --dropout 0.1 --device cpu"
).split()
RESUME = ["train", "--out", "r", "--resume", "--device", "cpu"]


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a folder; a run's says where its text lies."""
    here = str(path.resolve().parent).encode()
    return {p.name: p.read_bytes().replace(here, b"") for p in path.iterdir()}


@cache
def trained() -> tuple[dict[str, bytes], float]:
    """The files of a run that nobody has stopped, and the seconds it took."""
    begin = time.monotonic()
    with folder() as path:
        shutil.copy(commands.things() / "text.txt", path)
        code, _, err = commands.call(path, TRAIN)
        assert code == 0, err
        return contents(path / "r"), time.monotonic() - begin


@target
def killed_training(rng):
    """Killed, then resumed, up to four times."""
    right, seconds = trained()
    with folder() as path:
        shutil.copy(commands.things() / "text.txt", path)
        for _ in range(rng.randint(1, 4)):
            began = (path / "r" / "config.json").exists()
            words = RESUME if began else TRAIN
            when = rng.uniform(0, seconds), signal.SIGKILL
            code, _, err = commands.call(path, words, signal_after=when)
            assert code in (0, -signal.SIGKILL), err
            readable(path / "r")
        began = (path / "r" / "config.json").exists()
        code, _, err = commands.call(path, RESUME if began else TRAIN)
        assert code == 0, err
        assert contents(path / "r") == right


def readable(run: Path) -> None:
    """Each file that is there is complete."""
    if (run / "config.json").exists():
        build_model(read_config(run))
        assert (run / "tokenizer.json").exists()
    for path in run.glob("*.safetensors"):
        read_tensors(path)


GRADE = [
    *(
        "grade",
        "in",
        "--secret",
        "assignment-secret.txt",
        "--out",
        "grades.csv",
    ),
    *("--feedback", "feedback"),
]


def class_of(path: Path) -> None:
    """A folder with three submissions and a key."""
    shutil.copy(commands.things() / "assignment-secret.txt", path)
    (path / "in").mkdir()
    for entry in [e for e in corpus.ENTRIES if e.kind == "right"][:3]:
        [data] = entry.files.values()
        file = path / "in" / f"{entry.name}.ipynb"
        file.write_bytes(data)
        os.utime(file, (corpus.WRITTEN,) * 2)


def sheets(path: Path) -> dict[str, bytes]:
    """What grading the same twice writes the same."""
    names = ["grades.csv", "summary.md"]
    found = {name: (path / name).read_bytes() for name in names}
    return found | contents(path / "feedback")


@cache
def graded() -> tuple[dict[str, bytes], float]:
    """The sheets of a class, and the seconds that grading took."""
    begin = time.monotonic()
    with folder() as path:
        class_of(path)
        code, _, err = commands.call(path, GRADE)
        assert code == 0, err
        return sheets(path), time.monotonic() - begin


@target
def killed_grading(rng: random.Random):
    """Killed, or stopped by Ctrl-C, and begun again."""
    right, seconds = graded()
    with folder() as path:
        class_of(path)
        how = rng.choice([signal.SIGKILL, signal.SIGINT])
        when = rng.uniform(0, seconds), how
        code, _, err = commands.call(path, GRADE, signal_after=when)
        assert code in (0, 130, -signal.SIGKILL), err
        assert "Traceback" not in err, err
        code, _, err = commands.call(path, GRADE)
        assert code == 0, err
        assert sheets(path) == right
