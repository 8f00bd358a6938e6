"""Live figures: a still one that comes alive where there is JavaScript.

    ```{live} attention
    :model: captions
    :text: a dog runs
    ```

Behind it stands the code cell that draws the still figure. Its picture stays
where there is no script, and until the model is there; its caption and its
code stay always. The element, ``<live-attention>``, is one of those in
``coursekit_classroom/live/js/figures``.
"""

import json
import shutil
from pathlib import Path
from posixpath import dirname, relpath

from docutils import nodes
from docutils.parsers.rst import directives
from predict import BETWEEN, is_cell
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import coursekit
from coursekit_classroom import live
from coursekit_classroom.live import probe, train

LOGGER = logging.getLogger(__name__)
SCRIPT = "live.js"
WALK = "book/walk"  # the page to which the hero leads, if the book has it
FOLDER = "_static/live"
# What each figure needs: a model, its tokenizer alone, or neither.
KINDS = {
    "hero": "model",
    "attention": "model",
    "scores": "model",
    "next-token": "model",
    "beam": "model",
    "translator": "model",
    "bpe": "tokenizer",
    "positions": None,
    "checkpoint": None,
    "temperature": "model",
    "calculator": None,
    "depth": None,
    "probe": None,
    "walk": "model",
    "train": None,
}
NUMBERS = (
    *("layer", "head", "temperature", "seed", "beams", "steps"),
    *("step", "query", "key", "block", "token", "residual", "times"),
)
WORDS = ("preset", "norm", "program", "shows")


class live_figure(nodes.General, nodes.Element):  # noqa: N801  docutils' custom
    """The element around a still figure's cell."""


class Live(SphinxDirective):
    """``{live}``: which figure, of which model, on which text."""

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "model": directives.unchanged_required,
        "text": directives.unchanged_required,
        "swap": directives.unchanged_required,
        "examples": directives.unchanged_required,  # texts, " | " between
        **dict.fromkeys(WORDS, directives.unchanged_required),
        **dict.fromkeys(NUMBERS, float),
    }

    def run(self):
        """Return the element; a transform puts the cell into it."""
        kind, *_ = self.arguments
        node = live_figure(kind=kind, options=dict(self.options))
        self.set_source_info(node)
        if kind not in KINDS:
            complain(node, f"must be one of {', '.join(KINDS)}")
        elif (KINDS[kind] is None) == ("model" in self.options):
            need = "needs a" if KINDS[kind] else "takes no"
            complain(node, f"{need} :model:")
        return [node]


def complain(node, what):
    """Warn; the book is built with warnings as errors."""
    LOGGER.warning("{live} %s %s", node["kind"], what, location=node)


class Enclose(SphinxTransform):
    """Move the cell that draws the still figure into its element."""

    default_priority = 690  # before predictions are grouped

    def apply(self, **kwargs):
        """Enclose the next cell of each live figure of the page."""
        for figure in list(self.document.findall(live_figure)):
            parent = figure.parent
            for node in parent[parent.index(figure) + 1 :]:
                if is_cell(node):
                    parent.remove(node)
                    figure += node
                    break
                if not isinstance(node, BETWEEN):
                    break
            if not len(figure):
                complain(figure, "has no code cell behind it, with a figure")


def write_script(app):
    """Bundle the figures' scripts, which needs no Node."""
    if app.builder.format == "html":
        path = Path(app.outdir, "_static", SCRIPT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(live.bundle(), "utf8")


def find_models(app, doctree, docname):
    """Export what a page's figures need, and tell them where it lies."""
    if app.builder.format != "html":
        return
    for node in doctree.findall(live_figure):
        name, need = node["options"].get("model"), KINDS.get(node["kind"])
        here = dirname(docname) or "."
        if node["kind"] == "train":
            node["engine"] = relpath(f"{FOLDER}/{training_script(app)}", here)
        if node["kind"] == "probe":
            node["recorded"] = json.dumps(probe.recorded())
        if not name or not need:
            continue
        try:
            file = exported(app, name, need == "tokenizer")
        except ValueError as error:
            complain(node, str(error))
            continue
        if node["kind"] in ("hero", "walk"):
            examples = examples_of(coursekit.find_model(name))
            node["vocabulary"] = json.dumps(examples.get("words", {}))
        if node["kind"] == "hero":
            node["prompts"] = prompts(examples)
            if WALK in app.env.found_docs:
                node["walk"] = app.builder.get_relative_uri(docname, WALK)
        node["address"] = relpath(f"{FOLDER}/{file}", here)


def examples_of(folder):
    """Examples for a model: prompts, and words by kind."""
    path = folder / "examples.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def prompts(examples):
    """Prompts of a model's examples as JSON, for the hero's chips."""
    wanted = ("name", "prompt", "words", "head")
    chips = examples.get("chips", [])
    return json.dumps([{key: chip[key] for key in wanted} for chip in chips])


def exported(app, name, only_tokenizer):
    """The name of a model's script, which is written once a build."""
    known = app.__dict__.setdefault("live_models", {})
    key = f"{name}-tokenizer" if only_tokenizer else name
    if key not in known:
        model, tokenizer = coursekit.load(name)
        folder = Path(app.outdir, FOLDER)
        for old in folder.glob(f"{key}-????????.js"):
            old.unlink()
        path = live.export(
            None if only_tokenizer else model, tokenizer, folder, key
        )
        known[key] = path.name
        terms = coursekit.find_model(name) / "LICENSE"
        if terms.exists():  # some weights have terms of their own
            shutil.copy(terms, folder / f"{name}.LICENSE")
    return known[key]


def training_script(app):
    """The name of the script that trains, which is written once a build."""
    if "live_training" not in app.__dict__:
        folder = Path(app.outdir, FOLDER)
        for old in folder.glob("train-????????.js"):
            old.unlink()
        app.live_training = train.export(folder).name
    return app.live_training


def load_script(app, pagename, templatename, context, doctree):
    """Load the script where there is a live figure, and nowhere else."""
    if doctree and any(doctree.findall(live_figure)):
        app.add_js_file(SCRIPT, loading_method="defer")


def visit_html(self, node):
    """Open the element."""
    attributes = {
        name: f"{value:g}" if name in NUMBERS else value
        for name, value in node["options"].items()
        if name != "model"
    }
    if "address" in node:
        attributes["model"] = node["address"]
    attributes |= {
        name: node[name]
        for name in ("prompts", "walk", "vocabulary", "engine", "recorded")
        if name in node
    }
    tag = f"live-{node['kind']}"
    self.body.append(
        self.starttag(node, tag, CLASS="live-figure", **attributes)
    )


def depart_html(self, node):
    """Close the element."""
    self.body.append(f"</live-{node['kind']}>\n")


def keep(self, node):
    """Elsewhere there is the still figure alone."""


def setup(app):
    """Register with Sphinx."""
    still = dict.fromkeys(("latex", "text", "man"), (keep, keep))
    app.add_node(live_figure, html=(visit_html, depart_html), **still)
    app.add_directive("live", Live)
    app.add_transform(Enclose)
    app.connect("builder-inited", write_script)
    app.connect("doctree-resolved", find_models)
    app.connect("html-page-context", load_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
