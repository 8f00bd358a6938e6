"""Repairs to the built pages, and links that derive from the repository."""

import gc
import importlib
import inspect
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode, split_explicit_title

import coursekit
from coursekit_classroom.check.report import SIGN
from coursekit_classroom.notebooks.install import published
from coursekit_classroom.notebooks.plain import bibtex

TORCH_DOCS = "https://docs.pytorch.org/docs/stable/generated/{}.html"
PYTHON_DOCS = "https://docs.python.org/3/library/{}.html#{}"
PYTHON = ("abc", "collections", "pathlib", "typing")


# As Report writes it for Jupyter.
NOT_ATTEMPTED = f"<strong>{SIGN['not attempted']} not attempted</strong>"
# Where a page's exercises begin, and how they are done.
EXERCISES = re.compile(r"<h2>Exercises.*?</h2>", re.DOTALL)
NOTEBOOK = (
    '<p class="open-notebook">Write your answers in this page as a notebook: '
    "{}, or run <code>make lab</code> in a copy of the repository.</p>"
)

# A page opened as a file may not fetch others, so its search shows titles
# without excerpts.
SEARCH_A_FILE = """\
if (location.protocol === "file:")
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;"""


def repository(config):
    """The repository's address; empty until pyproject.toml has one."""
    return config.html_theme_options["repository_url"]


def take_addresses(app, config):
    """Give the theme and Sphinx the addresses of pyproject.toml.

    Without them no page has a button that would lead nowhere.
    """
    address, options = published(app.srcdir), config.html_theme_options
    options["repository_url"] = address.repository
    config.html_baseurl = address.site
    for button in ("repository", "issues", "edit_page"):
        options[f"use_{button}_button"] = bool(address.repository)
    if not address.repository:
        options["launch_buttons"] = {}

    def linkcode_resolve(domain, info):
        return source_link(address.repository, info)

    config.linkcode_resolve = linkcode_resolve


def repository_role(name, rawtext, text, lineno, inliner):
    """``{repo}`issue tracker <issues>` `` links into the repository.

    Until it has an address, this is only text.
    """
    _, title, target = split_explicit_title(text)
    url = repository(inliner.document.settings.env.config)
    if not url:
        return [nodes.Text(title)], []
    return [nodes.reference(rawtext, title, refuri=f"{url}/{target}")], []


def source_link(url, info):
    """Address of an API entry's source lines in the repository."""
    if not url:
        return None
    thing = importlib.import_module(info["module"])
    try:
        for name in info["fullname"].split("."):
            thing = getattr(thing, name)
        thing = inspect.unwrap(getattr(thing, "fget", thing))
        lines, start = inspect.getsourcelines(thing)
        path = Path(inspect.getsourcefile(thing))
    except (AttributeError, TypeError, OSError):
        return None  # a field of a dataclass, a constant
    package = Path(coursekit.__file__).parent
    file = path.relative_to(package.parent).as_posix()
    return f"{url}/blob/main/{file}#L{start}-L{start + len(lines) - 1}"


class DropBlankReports(SphinxPostTransform):
    """Drop what a check says of an exercise that nobody has written yet.

    The reader's own notebook prints it; on a page it says nothing.
    """

    default_priority = 200  # after MyST-NB has chosen the outputs
    formats = ("html",)

    def run(self, **kwargs):
        """Remove the output of each check that found nothing to check."""
        for shown in list(self.document.findall(nodes.raw)):
            if NOT_ATTEMPTED in shown.astext():
                output = shown.parent
                while "cell_output" not in output["classes"]:
                    output = output.parent
                output.parent.remove(output)


class CiteBook(SphinxDirective):
    """``{cite-book}``: how to cite the book, from what _config.yml says."""

    def run(self):
        """Return the BibTeX entry as a block of code."""
        config = self.env.config
        text = bibtex(
            title=config.html_title or config.project,
            author=config.author,
            year=config.copyright,
            url=repository(config),
        )
        return [nodes.literal_block(text, text, language="bibtex")]


def lookup(target):
    """The module that defines ``target``; ``None`` if nothing does."""
    parts = target.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for name in parts[cut:]:
            thing = getattr(thing, name, None)
            if thing is None:
                return None
        return ".".join(parts[:cut])
    return None


def find_on_api_page(env, target):
    """Anchor of the one API entry whose name ends with ``target``."""
    objects = env.get_domain("py").objects
    found = [name for name in objects if name.endswith(f".{target}")]
    return objects[found[0]] if len(found) == 1 else None


def resolve(app, env, node, contnode):
    """Link ``{py:func}`` and its kin where Sphinx alone finds no target.

    A short name leads to the API page, a name of the package to its file, a
    name of torch or Python to their documentation; a name that does not
    exist stays a warning.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") == "py":
        entry = find_on_api_page(env, target)
        if entry:
            return make_refnode(
                app.builder,
                node["refdoc"],
                entry.docname,
                entry.node_id,
                contnode,
            )
    package = target.split(".")[0]
    if node.get("refdomain") != "py" or package not in (
        *("coursekit", "torch"),
        *PYTHON,
    ):
        return None
    module = lookup(target)
    if module is None:
        return None
    if package in PYTHON:
        url = PYTHON_DOCS.format(target.rpartition(".")[0], target)
    elif package == "torch":
        url = TORCH_DOCS.format(target)
    else:
        path = module.replace(".", "/") + ".py"
        if not repository(app.config):
            return contnode
        url = f"{repository(app.config)}/blob/main/{path}"
    return nodes.reference("", "", contnode, internal=False, refuri=url)


def repair_scripts(app, pagename, templatename, context, doctree):
    """Keep one of each script, and none of Thebe's.

    sphinx-thebe and sphinx-togglebutton add their inline scripts twice, and
    a second ``const`` throws on every page.
    """
    seen, keep = set(), []
    for script in context.get("script_files", []):
        body = script.attributes.get("body") or ""
        key = (str(script.filename), body)
        if key in seen or "thebe" in (key[0] + body).lower():
            continue
        seen.add(key)
        keep.append(script)
    context["script_files"] = keep


def offer_notebook(app, pagename, templatename, context, doctree):
    """Add the download of a notebook, also without launch buttons."""
    if "kernelspec" in app.env.metadata.get(pagename, {}):
        context["ipynb_source"] = f"{pagename}.ipynb"


def withhold_sources(app, config):
    """Publish no sources with solutions where solutions are hidden.

    Nor what an earlier build has left: sources, and words to search for.
    """
    if config.hide_solutions:
        config.html_copy_source = False
        shutil.rmtree(app.outdir)
        app.outdir.mkdir()


def drop_source_button(app, pagename, templatename, context, doctree):
    """Offer no download of a source that is not published."""
    if not app.config.html_copy_source:
        for group in context.get("header_buttons", []):
            if group["label"] == "download-buttons":
                group["buttons"] = [
                    button
                    for button in group["buttons"]
                    if button["label"] != "download-source-button"
                ]


def repair_launch_links(app, pagename, templatename, context, doctree):
    """Colab and Binder cannot open a ``.md``: link the exported notebook.

    It lies on the branch ``notebooks``, which the deployment writes.
    """

    def walk(buttons):
        for button in buttons:
            walk(button.get("buttons", []))
            if button.get("text") in ("Colab", "Binder"):
                url = button["url"].replace("/main", "/notebooks", 1)
                button["url"] = url.removesuffix(".md") + ".ipynb"

    walk(context.get("header_buttons", []))


# What axe-core finds wrong in the pages' own markup, and what mends it.
MENDS = {
    # docutils: a deprecated role, and children that a list may not have
    ' role="doc-biblioentry"': "",
    '<div role="list" class="citation': '<div class="citation',
    # MyST-NB: a name that hides the text "Show code cell output"
    '<summary aria-label="Toggle hidden content">': "<summary>",
}


# What to read again: to a notebook it is a link elsewhere, or none.
READ = re.compile(
    r'<div data-read="([^"]*)">Read again: (?:<a [^>]*>)?(.*?)(?:</a>)?</div>'
)
# A formula and the sign behind it, which a browser else puts into a new line.
PUNCTUATED = re.compile(r'(<span class="math[^>]*>[^<]*</span>[.,;:!?)’”]+)')


def repair_roles(app, pagename, templatename, context, doctree):
    """Mend the names and roles that the page's text is given."""
    body = context.get("body") or ""
    for wrong, right in MENDS.items():
        body = body.replace(wrong, right)
    body = PUNCTUATED.sub(r'<span class="punctuated">\1</span>', body)
    # A check's report names a page as the chapters see it.
    up = "../" if Path(pagename).parent.name == "further" else ""
    link = rf'<div>Read again: <a href="{up}\1">\2</a></div>'
    context["body"] = READ.sub(link, body)


def name_toggles(app, pagename, templatename, context, doctree):
    """The theme's button that opens the pages below a chapter has no name."""
    make = context.get("generate_toctree_html")
    if make is None:
        return

    def named(*args, **kwargs):
        contents = make(*args, **kwargs)
        for button in contents.select("details > summary"):
            chapter = button.find_parent("li").find("a").get_text().strip()
            button["aria-label"] = f"Pages that belong to {chapter}"
        return contents

    context["generate_toctree_html"] = named


def open_notebook(app, pagename, templatename, context, doctree):
    """Say where the exercises begin how to open the page as a notebook."""
    if "ipynb_source" not in context:
        return
    source = context["pathto"](f"_sources/{pagename}.ipynb", 1)
    links = [f'<a href="{source}" download>download it</a>']
    for group in context.get("header_buttons", []):
        links[:0] = [
            f'<a href="{button["url"]}">open it in Colab</a>'
            for button in group.get("buttons", [])
            if button["text"] == "Colab"
        ]
    line = NOTEBOOK.format(", ".join(links))
    body = context.get("body") or ""
    context["body"] = EXERCISES.sub(rf"\g<0>{line}", body, count=1)


def copy_downloads(app, exception):
    """Serve the exported notebooks: on a cache hit the others are empty."""
    if exception or app.builder.format != "html":
        return
    readers = Path(app.srcdir, "_build", "readers")
    for file in readers.rglob("*.ipynb"):
        target = Path(app.outdir, "_sources", file.relative_to(readers))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def setup(app):
    """Register with Sphinx."""
    # Millions of nodes live as long as the build: looking for garbage among
    # them again and again took half of its time.
    gc.set_threshold(200_000, 50, 100)
    app.add_directive("cite-book", CiteBook)
    app.add_js_file("progress.js", loading_method="defer")
    app.add_js_file(None, body=SEARCH_A_FILE, priority=900)
    app.add_role("repo", repository_role)
    app.add_post_transform(DropBlankReports)
    app.connect("config-inited", take_addresses)
    app.connect("config-inited", withhold_sources)
    app.connect("missing-reference", resolve)
    app.connect("html-page-context", repair_scripts, priority=900)
    app.connect("html-page-context", offer_notebook)
    app.connect("html-page-context", repair_launch_links, priority=900)
    app.connect("html-page-context", drop_source_button, priority=900)
    app.connect("html-page-context", open_notebook, priority=950)
    app.connect("html-page-context", repair_roles)
    app.connect("html-page-context", name_toggles, priority=900)
    app.connect("build-finished", copy_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
