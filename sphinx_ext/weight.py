"""Leave out what the theme loads on every page and no page uses."""

import re
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

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


# The index of the search, for results while one types; they are off, and the
# page of the search loads its own.
SEARCH = re.compile(
    r'\s*<script src="[^"]*(?:_static/searchtools|_static/language_data'
    r'|searchindex)\.js"></script>'
)

# Font Awesome: the rules that give a class its glyph, and one font of three.
GLYPH = re.compile(r'((?:\.fa-[\w-]+::?before,?)+)\{content:"\\([0-9a-f]+)"\}')
ICON_FONT = re.compile(
    r'src:url\(([^()]*/fa-[a-z]+-\d+)\.woff2\) format\("woff2"\),'
    r'url\(\1\.ttf\) format\("truetype"\)'
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
        if page.name != "search.html":
            lighter = SEARCH.sub("", lighter)
        if lighter != text:
            page.write_text(lighter, "utf8")
    scripts = out / "_static" / "scripts"
    for unused in (*scripts.glob("fontawesome.js"), *scripts.glob("*.map")):
        unused.unlink()
    for style in (out / "_static" / "styles").glob("*.css"):
        text = style.read_text("utf8")
        if ICON_FONT.search(text):
            style.write_text(with_used_icons(style, text, out), "utf8")


def used_icons(style, out):
    """The code points of the icons that pages, scripts or styles show."""
    shown = set()
    for file in (*out.rglob("*.html"), *(out / "_static").rglob("*.js")):
        shown |= set(re.findall(r"\bfa-[\w-]+", file.read_text("utf8")))
    found = {
        int(code, 16)
        for selectors, code in GLYPH.findall(style)
        if shown & set(re.findall(r"fa-[\w-]+", selectors))
    }
    for file in (out / "_static").rglob("*.css"):  # arrows, signs of boxes
        others = GLYPH.sub("", file.read_text("utf8"))
        escaped = re.findall(r'"\\([ef][0-9a-f]{3})"', others)
        found |= {int(code, 16) for code in escaped}
        found |= {ord(sign) for sign in others if "\ue000" <= sign <= "\uf8ff"}
    return found


def with_used_icons(path, style, out):
    """The theme's style with icon fonts that hold only what is shown."""
    used = used_icons(style, out)
    for name in {match.group(1) for match in ICON_FONT.finditer(style)}:
        source = (path.parent / name).with_suffix(".ttf")
        font = TTFont(source)
        subset = Subsetter(Options(notdef_outline=True))
        subset.populate(unicodes=used)
        subset.subset(font)
        font.flavor = "woff"
        font.save(source.with_suffix(".woff"))
        for whole in (source, source.with_suffix(".woff2")):
            whole.unlink()
    return ICON_FONT.sub(r'src:url(\1.woff) format("woff")', style)


def setup(app):
    """Register with Sphinx."""
    app.connect("html-page-context", drop_styles, priority=900)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
