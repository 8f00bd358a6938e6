"""Leave out what the theme loads on every page and no page uses."""

import re
from pathlib import Path

# Half of a page's weight: a script that draws icons, which the theme's own
# style sheet draws as well, from a font.
ICONS = re.compile(r"\s*<script[^>]*scripts/fontawesome\.js[^>]*></script>")
# Thebe is off; so are its style and its settings.
THEBE = re.compile(
    r'\s*<script type="text/x-thebe-config">.*?</script>'
    r"|\s*<script>kernelName = .*?</script>",
    re.DOTALL,
)

# A megabyte that typesets formulas, where there are none.
FORMULAS = re.compile(
    r"\s*<script>window\.MathJax = [^<]*</script>"
    r"|\s*<script[^>]*/mathjax/[^>]*></script>"
)


def drop_styles(app, pagename, templatename, context, doctree):
    """Load no style sheet of Thebe's."""
    context["css_files"] = [
        style
        for style in context.get("css_files", [])
        if "thebe" not in str(getattr(style, "filename", style))
    ]


def lighten(app, exception):
    """Take the unused scripts out of the pages, and out of the folder."""
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for page in out.rglob("*.html"):
        text = page.read_text("utf8")
        lighter = THEBE.sub("", ICONS.sub("", text))
        if 'class="math' not in text:
            lighter = FORMULAS.sub("", lighter)
        if lighter != text:
            page.write_text(lighter, "utf8")
    scripts = out / "_static" / "scripts"
    for unused in (*scripts.glob("fontawesome.js"), *scripts.glob("*.map")):
        unused.unlink()


def setup(app):
    """Register with Sphinx."""
    app.connect("html-page-context", drop_styles, priority=900)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
