"""Which change of a file is the first whose model can be trained.

    python -m coursekit_classroom.yourfile.trial_child CHANGES OUTCOME

CHANGES is a list of sources in JSON.  Each in turn is trained for a few steps
on the beginning of the text, evaluated, and generates, until one does so
without an error.  The outcome is its place in the list, and whether it could
be trained: not if a change that never ends has ended this process.
"""

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import torch

from coursekit_classroom.yourfile import FILE
from coursekit_classroom.yourfile.child import load, train
from coursekit_classroom.yourfile.learner import ContractError

CHARACTERS = 8_000


def main(argv: list[str]) -> int:
    """Try one change after the other; 0 if there is an outcome."""
    changes, outcome = map(Path, argv)
    torch.set_num_threads(1)
    for place, source in enumerate(json.loads(changes.read_text("utf-8"))):
        outcome.write_text(json.dumps([place, False]), "utf-8")
        with redirect_stdout(io.StringIO()):
            if can_be_trained(source):
                outcome.write_text(json.dumps([place, True]), "utf-8")
                break
    return 0


def can_be_trained(source: str) -> bool:
    """Whether a file with this text ends in a loss."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, FILE)
        path.write_text(source, "utf-8")
        try:
            train(path, load(path), 0.0, CHARACTERS)
        except ContractError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
