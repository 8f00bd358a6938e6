"""The newcomer's run: `coursekit train` as it comes, for two minutes.

Unlike all other results it uses every core, since it answers what a newcomer
asks: how far do I get in two minutes?  The answer depends on the machine.
"""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

import torch

from coursekit.__main__ import main as coursekit
from results.record import options, record

parser = options(__doc__, minutes=2.0)


def run(*arguments: str) -> str:
    """Call the command line; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = coursekit(list(arguments))
    if code:
        raise SystemExit(code)
    return printed.getvalue()


def main() -> None:
    """Train, evaluate, write a sample."""
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        record("first_run", [0]) as metrics,
    ):
        out = str(Path(folder, "first"))
        minutes = str(args.minutes)
        lines = run("train", "--out", out, "--minutes", minutes, "--json")
        events = [json.loads(line) for line in lines.splitlines()]
        metrics["training"] = [e for e in events if e["event"] != "end"]
        metrics["evaluation"] = json.loads(run("eval", out, "--json"))
        metrics["sample"] = run(
            *("generate", out, "--prompt", "ROMEO:", "--seed", "1"),
            *("--temperature", "0.7", "--max-new-tokens", "300"),
        )


if __name__ == "__main__":
    main()
