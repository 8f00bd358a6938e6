"""What ``coursekit kit task`` runs in a process of its own, for one file.

    python -m coursekit.classroom.yourfile.task_child FILE SECONDS OUTCOME

writes which contract stops the file, and the loss of its model all the same.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch

from coursekit.classroom.yourfile.child import load, train, verify
from coursekit.classroom.yourfile.learner import ContractError


def main(argv: list[str]) -> int:
    """Check and train one file; 0 if there is an outcome."""
    name, seconds, outcome = argv
    torch.set_num_threads(1)
    path = Path(name).absolute()
    found: dict[str, object] = {"stopped": "", "loss": None, "steps": 0}
    said = io.StringIO()
    try:
        file = load(path)
        with redirect_stdout(said):
            try:
                for _ in verify(path, file):
                    pass
            except ContractError as error:
                title, _, reason = str(error).partition("\n")
                found["stopped"] = title.removeprefix("✗ ")
                found["reason"] = " ".join(reason.split())
            found["loss"] = train(path, file, float(seconds))[1]
    except ContractError as error:
        found["stopped"] = found["stopped"] or str(error).partition("\n")[0]
    if steps := re.search(r"Training for ([\d,]+) steps", said.getvalue()):
        found["steps"] = int(steps[1].replace(",", ""))
    Path(outcome).write_text(json.dumps(found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
