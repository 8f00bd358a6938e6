"""Everything that needs a GPU, run on one: ``make gpu``.

The tests that are skipped elsewhere; ``minimal.py``, which finds the GPU by
itself; chapters 9, 11 and 12 with every tensor on it, where their bounds must
hold although their outputs differ; and the rows of the benchmark, with the
MFU of GPT-2 small.  Until it has been run, the book claims no GPU's speed.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
import torch
from jupyter_cache.executors.utils import single_nb_execution

from coursekit.data import load_text
from results.record import ROOT, options, record

sys.path.insert(0, str(ROOT / "sphinx_ext"))

from notebooks import chapters, config

PAGES = ("book/09_decoder", "book/11_training", "book/12_generation")


def python(*words: str) -> tuple[int, str]:
    """Run Python in the checkout; its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def tests(device: str) -> dict[str, Any]:
    """The tests that need the device."""
    code, said = python(
        "-m", "pytest", "tests/library/test_gpu.py", "-q", "-rs"
    )
    return {"passed": code == 0, "said": said.strip().splitlines()[-1]}


def minimal(device: str) -> dict[str, Any]:
    """The lesson's file, as a reader runs it on Shakespeare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_text(load_text("shakespeare"), encoding="utf-8")
        start = time.perf_counter()
        code, said = python("coursekit/minimal.py", str(path))
    loss = re.search(r"held-out loss: ([\d.]+)", said)
    return {
        "passed": code == 0 and loss is not None,
        "loss": float(loss[1]) if loss else said[-500:],
        "seconds": round(time.perf_counter() - start, 1),
    }


def pages(device: str) -> dict[str, Any]:
    """Run the pages with their assertions."""
    found = {}
    first = f"import torch\ntorch.set_default_device({device!r})"
    for page, notebook in chapters(ROOT):
        if page not in PAGES:
            continue
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
        done = single_nb_execution(
            notebook,
            cwd=str((ROOT / page).parent),
            timeout=config(ROOT)["execute"]["timeout"],
            allow_errors=False,
            extra_arguments=["--IPKernelApp.log_level=40"],
        )
        error = (done.exc_string or "").strip().splitlines()[-1:]
        found[page] = {
            "passed": done.err is None,
            "seconds": round(done.time or 0.0, 1),
            "error": error[0] if error else "",
        }
    return found


def bench(device: str) -> dict[str, Any]:
    """The benchmark's rows for a GPU, put into results/bench.json."""
    code, said = python("-m", "benchmarks", "--only", "GPU", "--update")
    return {"passed": code == 0, "said": said.strip().splitlines()[-40:]}


RUNS = {"tests": tests, "minimal": minimal, "pages": pages, "bench": bench}


parser = options(__doc__, device="cuda")
parser.add_argument(
    "--only", choices=[*RUNS], help="one of them; nothing is written"
)


def main() -> None:
    """Run all of it, or one part."""
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "a GPU is needed: torch.cuda.is_available() is False. "
            "Nothing was run."
        )
    if args.only:
        print(RUNS[args.only](args.device))
        return
    with record("gpu", [0]) as metrics:
        if args.device == "cuda":
            metrics["gpu"] = torch.cuda.get_device_name()
        for name, run in RUNS.items():
            metrics[name] = run(args.device)
            print(name, metrics[name], sep="\n", flush=True)


if __name__ == "__main__":
    main()
