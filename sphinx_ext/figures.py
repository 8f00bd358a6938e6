"""Write every figure of the chapters as SVG, for slides.

    python sphinx_ext/figures.py [PAGE ...]

The chapters are run once more, with figures shown as SVG too; they land in
``_build/figures/<page>/<name>.svg``, under the names that the pages give them.
"""

import sys
from pathlib import Path

import nbformat
from jupyter_cache.executors.utils import single_nb_execution

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

ALSO_SVG = """\
from io import StringIO

import matplotlib_inline.backend_inline  # it drops encoders when imported
from IPython import get_ipython
from matplotlib.figure import Figure


def _svg(figure):
    text = StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    return text.getvalue()


_formatters = get_ipython().display_formatter.formatters
_formatters["image/svg+xml"].for_type(Figure, _svg)
"""


def figures(notebook):
    """``(name, svg)`` of each figure of an executed notebook."""
    for cell in notebooks.code_cells(notebook):
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        for output in cell.get("outputs", ()):
            svg = output.get("data", {}).get("image/svg+xml")
            if svg and "name" in figure:
                yield figure["name"], svg


def draw(root, page, timeout=300):
    """Run one page; write its figures; return their paths."""
    notebook = notebooks.read(root, page)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(ALSO_SVG))
    done = single_nb_execution(
        notebook,
        cwd=str(Path(root, page).parent.resolve()),
        timeout=timeout,
        allow_errors=False,
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    if done.err is not None:
        raise SystemExit(f"{page}: failed\n{done.exc_string}")
    folder = Path(root, "_build", "figures", Path(page).name)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = dict(figures(notebook))
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(svg, "utf8")
    return [folder / f"{name}.svg" for name in drawn]


def main(wanted):
    """Draw the pages that were named, or all."""
    root = Path(__file__).resolve().parent.parent
    for page in wanted or [page for page, _ in notebooks.chapters(root)]:
        paths = draw(root, page.removesuffix(".md"))
        print(f"{page}: {len(paths)} figures")


if __name__ == "__main__":
    main(sys.argv[1:])
