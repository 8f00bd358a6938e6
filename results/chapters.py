"""Processor time and memory of each page's kernel.

The pages show both in the box "This chapter"; they are no cell outputs,
because those are compared on every machine.
"""

import ast
import sys

import nbformat
from jupyter_cache.executors.utils import single_nb_execution

from coursekit_classroom.glue import result
from results.record import ROOT, options, record

sys.path.insert(0, str(ROOT / "sphinx_ext"))

from notebooks import chapters, config

# The last cell: seconds of this process, and its greatest memory in MB
# (ru_maxrss counts kB on Linux, bytes on macOS).
PROBE = """\
import resource, sys, time
unit = 1e3 if sys.platform == "linux" else 1e6
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
print((round(time.process_time(), 1), round(peak)))
"""


parser = options(__doc__, seed=0)
parser.add_argument(
    "--pages", nargs="+", help="measure only these, keep the others"
)


def measure(page: str, notebook: nbformat.NotebookNode) -> dict[str, float]:
    """Run one page and ask its kernel what it took."""
    notebook.cells.append(nbformat.v4.new_code_cell(PROBE))
    done = single_nb_execution(
        notebook,
        cwd=str((ROOT / page).parent),
        timeout=config(ROOT)["execute"]["timeout"],
        allow_errors=False,
        extra_arguments=["--IPKernelApp.log_level=40"],  # no warning of ports
    )
    if done.err is not None:
        raise RuntimeError(f"{page} fails:\n{done.exc_string}")
    text = "".join(o.get("text", "") for o in notebook.cells[-1].outputs)
    seconds, megabytes = ast.literal_eval(text.strip().splitlines()[-1])
    print(f"{page}: {seconds} s, {megabytes} MB", flush=True)
    return {"seconds": seconds, "megabytes": megabytes}


def main() -> None:
    """Measure every page that has code, one after the other."""
    args = parser.parse_args()
    with record("chapters", [args.seed]) as metrics:
        metrics["unit"] = "processor seconds on one thread; peak MB"
        kept = result("chapters")["pages"] if args.pages else {}
        metrics["pages"] = {
            page: measure(page, notebook)
            if page not in kept or page in args.pages
            else kept[page]
            for page, notebook in chapters(ROOT)
        }


if __name__ == "__main__":
    main()
