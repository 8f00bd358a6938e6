"""What every chapter carries: its place on the map, and what it costs.

```{here}
```
It runs in {cost}`time`, in {cost}`memory` of memory.
"""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

LOGGER = logging.getLogger(__name__)
COSTS = "results/chapters.json"

# The way of a text through the model: chapter and name. A list within the
# list is what one block holds.
MAP = [
    ("01_tokenizer", "Tokens"),
    ("02_embedding", "Vectors"),
    ("03_positions", "Positions"),
    [
        ("04_attention", "Attention"),
        ("05_masks", "Mask"),
        ("06_multihead", "Heads"),
        ("07_norm", "Residual, norm"),
        ("08_feedforward", "Feed-forward"),
    ],
    ("09_decoder", "The stack"),
    ("10_loss", "Loss"),
    ("11_training", "Training"),
    ("12_generation", "Generation"),
    ("13_encoder", "Encoder"),
    ("14_seq2seq", "Encoder + decoder"),
    ("15_modern", "Modern"),
    ("16_interpret", "Looking inside"),
    ("17_vision", "Vision"),
    ("18_scaling", "Scaling"),
    ("19_debugging", "Debugging"),
]


class here(nodes.General, nodes.Element):  # noqa: N801  docutils' custom
    """Stands for the map until the addresses of the pages are known."""


class Here(SphinxDirective):
    """``{here}``: the parts of the model, each a link; this one marked."""

    def run(self):
        """Return a node that :func:`draw_maps` replaces."""
        return [here()]


def draw(stages, docname, builder):
    """The map as an ordered list: a browser and a screen reader read it."""
    items = []
    for stage in stages:
        if isinstance(stage, list):
            inner = draw(stage, docname, builder)
            items.append(
                f'<li class="block"><span>in each block</span>{inner}</li>'
            )
            continue
        page, name = stage
        target = f"book/{page}"
        text = f"<b>{int(page[:2])}</b> {escape(name)}"
        if target == docname:
            items.append(f'<li><span aria-current="page">{text}</span></li>')
        elif target in builder.env.found_docs:
            link = builder.get_relative_uri(docname, target)
            items.append(f'<li><a href="{link}">{text}</a></li>')
        else:
            items.append(f"<li><span>{text}</span></li>")
    return f"<ol>{''.join(items)}</ol>"


def draw_maps(app, doctree, docname):
    """Replace each ``{here}`` by the map."""
    for node in list(doctree.findall(here)):
        html = (
            '<nav class="here" aria-label="Where this chapter stands">'
            f"{draw(MAP, docname, app.builder)}</nav>"
        )
        node.replace_self(nodes.raw("", html, format="html"))


def price(costs, page, what):
    """``time`` or ``memory`` of a page in words; ``None`` if not known."""
    cost = costs.get("metrics", {}).get("pages", {}).get(page)
    if cost is None or what not in ("time", "memory"):
        return None
    if what == "time":
        return f"{max(1, round(cost['seconds']))} seconds"
    return f"{cost['megabytes'] / 1000:.1f} GB"


class Cost(SphinxRole):
    """``{cost}`time` `` or ``{cost}`memory` ``, as measured for this page."""

    def run(self):
        """Return the number with its unit."""
        file = Path(self.env.srcdir, COSTS)
        self.env.note_dependency(str(file))
        costs = json.loads(file.read_text("utf8")) if file.exists() else {}
        text = price(costs, self.env.docname, self.text)
        if text is None:
            LOGGER.warning(
                "{cost} takes `time` or `memory` and needs %s to have this "
                "page: got %r on %s. Run `make results NAME=chapters`.",
                COSTS,
                self.text,
                self.env.docname,
                location=self.get_location(),
            )
            return [nodes.Text("?")], []
        return [nodes.inline(text, text, classes=["cost"])], []


def setup(app):
    """Register with Sphinx."""
    app.add_node(here)
    app.add_directive("here", Here)
    app.add_role("cost", Cost())
    app.connect("doctree-resolved", draw_maps)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
