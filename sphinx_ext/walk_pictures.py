"""The twelve steps of the walk for slides, as the live figure shows them."""

import base64
import io
import sys
from pathlib import Path

import pikepdf
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from results import live  # noqa: E402

SIZE = {"width": 1280, "height": 720}
SECONDS = 5  # for each step
# What a picture has no use for: controls, and hints for the pointer.
STYLE = """
:root { --pst-font-family-monospace: "Course Mono", monospace; }
body { margin: 1.5rem; font-family: "Course Sans", sans-serif; }
.walk-controls, .walk-readout, .walk-crumbs, .walk-buttons,
.walk-side > button { display: none !important; }
.walk-body { min-height: 36rem; } /* the marks below it stay in place */
.walk-transport { grid-template-columns: 1fr !important; }
"""
FACE = (
    '@font-face {{ font-family: "{}"; font-weight: {}; '
    "src: url(data:font/woff2;base64,{}) }}\n"
)
FACES = (
    ("Course Sans", "400", "course-sans"),
    ("Course Sans", "600 700", "course-sans-bold"),
    ("Course Mono", "400", "course-mono"),
)
STEP = """async step => {
  const walk = document.querySelector("live-walk");
  walk.change({step});
  // What a muted head would change is computed head by head.
  while (step === 8 && walk.effects().length < walk.sizes.head)
    await new Promise((resolve) => setTimeout(resolve));
  const text = walk.heading.textContent;
  return coursekitLive.standalone(walk.sheet.svg, text);
}"""


def faces():
    """The book's own faces, for a page that stands elsewhere."""
    fonts = ROOT / "book" / "_static" / "fonts"
    return "".join(
        FACE.format(
            family,
            weight,
            base64.b64encode((fonts / f"{name}.woff2").read_bytes()).decode(),
        )
        for family, weight, name in FACES
    )


def draw(browser, folder, steps=range(1, 13)):
    """Write the steps, or some of them.

    Args:
        browser: a running Chromium.
        folder: of ``walk-1.svg`` to ``walk-12.svg``, the picture of each
            step; ``walk.pdf`` and ``walk.gif``, where its formula, its line
            of code, its sentence and the answer stand next to it.
        steps: their numbers.

    Returns:
        The paths of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pdf, frames, paths = pikepdf.new(), [], []
    _, page = live.load_walk(browser, 1)
    page.set_viewport_size(SIZE)
    # On paper a live figure is its still picture.
    page.emulate_media(media="screen", reduced_motion="reduce")
    page.add_style_tag(content=faces() + STYLE)
    for step in steps:
        paths.append(folder / f"walk-{step}.svg")
        paths[-1].write_text(page.evaluate(STEP, step), "utf8")
        frames.append(Image.open(io.BytesIO(page.screenshot())))
        size = {name: f"{pixels}px" for name, pixels in SIZE.items()}
        printed = page.pdf(**size, print_background=True)
        pdf.pages.extend(pikepdf.open(io.BytesIO(printed)).pages)
    page.close()
    paths += [folder / "walk.pdf", folder / "walk.gif"]
    pdf.save(paths[-2])
    frames[0].save(
        paths[-1],
        save_all=True,
        append_images=frames[1:],
        duration=1000 * SECONDS,
        loop=0,
    )
    return paths
