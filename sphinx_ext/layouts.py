"""Matplotlib lays out each text of a figure once, in the book's build.

To encode a figure, it goes over it several times and lays out its texts each
time, which is a third of the work.  This changes a private function of the
version that is locked, so it is for the build's kernels alone.
"""

from operator import attrgetter

from matplotlib.text import Text

# All that a layout depends on; where the text stands is not among it.
LOOK = attrgetter(
    *("_text", "_horizontalalignment", "_verticalalignment"),
    *("_multialignment", "_linespacing", "_rotation_mode"),
    *("_usetex", "_parse_math"),
)
MOST = 10_000  # of a page's texts


def remember():
    """From now on, texts that look the same are laid out once."""
    lay_out, known = Text._get_layout, {}

    def layout(text, renderer):
        if text.get_wrap():  # its lines do depend on where it stands
            return lay_out(text, renderer)
        key = (
            LOOK(text),
            text.get_rotation(),
            hash(text.get_fontproperties()),
            text.get_figure(root=True).dpi,
        )
        if key not in known and len(known) < MOST:
            known[key] = lay_out(text, renderer)
        return known.get(key) or lay_out(text, renderer)

    Text._get_layout = layout
