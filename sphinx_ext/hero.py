"""Film the first page's figure for the README: ``python sphinx_ext/hero.py``.

Chromium opens the built book and swaps the word; the two pictures become
``book/_static/hero.gif``.
"""

import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from results import live  # noqa: E402

PAGE = ROOT / "_build/html/book/index.html"
GIF = ROOT / "book/_static/hero.gif"
SHOWN = 2400  # milliseconds per picture


def main():
    """Write the GIF."""
    frames = []
    with live.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(PAGE.as_uri())
        hero = page.locator("live-hero")
        hero.locator("figcaption").evaluate("caption => caption.remove()")
        for _ in range(2):
            page.wait_for_timeout(4000)  # the model loads, and bars move
            picture = Image.open(io.BytesIO(hero.screenshot()))
            frames.append(picture.quantize(64, dither=Image.Dither.NONE))
            hero.locator(".hero-swap").click()
    frames[0].save(
        GIF, save_all=True, append_images=frames[1:], duration=SHOWN, loop=0
    )


if __name__ == "__main__":
    main()
