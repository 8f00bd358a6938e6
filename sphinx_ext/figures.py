"""Write every figure of the chapters as SVG, for slides.

    python sphinx_ext/figures.py [PAGE ...]

The chapters are run once more, with figures shown as SVG too; they land in
``_build/figures/<page>/<name>.svg``, under the names that the pages give them.
The page ``book/walk`` gets the twelve steps of its live figure, too, as SVG,
PDF and an animated GIF.
"""

import sys
from pathlib import Path

from jupyter_cache.executors.utils import single_nb_execution

sys.path.insert(0, str(Path(__file__).parent))
import notebooks
import walk_pictures

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


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
    notebooks.ask_for_svg()
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
        (folder / f"{name}.svg").write_text(HEAD + svg, "utf8")
    return [folder / f"{name}.svg" for name in drawn]


def main(wanted):
    """Draw the pages that were named, or all."""
    root = Path(__file__).resolve().parent.parent
    for page in wanted or [page for page, _ in notebooks.chapters(root)]:
        paths = draw(root, page.removesuffix(".md"))
        if Path(page).stem == "walk" and not walk_pictures.live.program():
            print("The steps of the walk need Chromium, which is missing.")
        elif Path(page).stem == "walk":
            with walk_pictures.live.chromium() as browser:
                paths += walk_pictures.draw(browser, paths[0].parent)
        print(f"{page}: {len(paths)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
