"""The process in which a learner's file runs, whatever the command.

    python -m coursekit_classroom.yourfile.child NAME OPTIONS OUTCOME

calls ``main`` of the module ``check_NAME`` with the options, in JSON, and
writes the numbers that it returns.
"""

import importlib
import json
import sys
from pathlib import Path

import torch

from coursekit_classroom.yourfile.contracts.base import ContractError


def main(argv: list[str]) -> int:
    """Check a file; 0 if all is as expected, else 1."""
    name, options, outcome = argv
    torch.set_num_threads(1)
    program = importlib.import_module(f"{__package__}.check_{name}")
    try:
        passed, result = program.main(**json.loads(options))
    except ContractError as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130
    Path(outcome).write_text(json.dumps(result), "utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
