"""Leave out what the theme loads and no page uses; the text comes first.

A page is painted before its scripts run, its letters come along with its
styles, and formulas are typeset a few at a time, so that it answers meanwhile.
"""

import json
import re
from pathlib import Path

import styles
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

# Half of a page's weight: a script that draws icons, which the theme's own
# style sheet draws as well, from a font.
ICONS = re.compile(r"\s*<script[^>]*scripts/fontawesome\.js[^>]*></script>")
# A megabyte that typesets formulas, where there are none.
FORMULAS = re.compile(
    r"\s*<script>window\.MathJax = [^<]*</script>"
    r"|\s*<script[^>]*/mathjax/[^>]*></script>"
)


# Scripts for which a page would wait, and what is fetched before its styles.
BLOCKING = re.compile(r'<script (?=(?:data-[\w-]+="[^"]*" )?src=)')
PRELOADED = re.compile(r'\s*<link rel="preload" as="script"[^>]*>')
# A few words that the page's own lines write to.
OPTIONS = re.compile(
    r'<script src="[^"]*/documentation_options\.js[^"]*"></script>'
)
# Formulas: after the text has been painted, and a few at a time. MathJax comes
# in parts: as one file, its evaluation alone would hold up a phone for long.
MATHJAX = re.compile(
    r'<script defer="defer" src="([^"]*/mathjax/[^"]*)"></script>'
)
PARTS = (
    *("core", "input/tex", "output/chtml"),
    "a11y/assistive-mml",  # a screen reader's formula
)
TYPESET = """\
<script>{
  let done;
  MathJax.loader = {load: [PARTS]};
  MathJax.startup = {promise: new Promise(resolve => done = resolve),
    ready() { setTimeout(MathJax.startup.defaultReady); },  // a pause between
    async pageReady() {
      const formulas = [...document.querySelectorAll(".math")];
      let few = 1;  // or as many as take 6 ms: 24 on a phone
      while (formulas.length) {
        const began = performance.now();
        await MathJax.typesetPromise(formulas.splice(0, few));
        few = performance.now() - began < 6 ? 2 * few : 1;
        await new Promise(resolve => setTimeout(resolve));
      }
      // A wide one scrolls: whoever has no mouse has to reach it.
      for (const e of document.querySelectorAll("mjx-container[display]"))
        e.tabIndex = 0;
      done();
    }};
  const script = document.createElement("script");
  script.src = "SOURCE";
  const start = () => setTimeout(() => document.head.append(script));
  addEventListener("load", () => {
    const known = PerformanceObserver.supportedEntryTypes;
    if (!known.includes("paint")) return start();
    new PerformanceObserver((_, watch) => { watch.disconnect(); start(); })
      .observe({type: "paint", buffered: true});
  });
}</script>""".replace("[PARTS]", json.dumps(PARTS))
# Else the text is seen in another face first. A page that was opened as a file
# may not ask for it this way.
FACES = """\
<script>if (location.protocol !== "file:")
  for (const face of ["course-sans", "course-sans-bold"])
    document.head.append(Object.assign(document.createElement("link"), {
      rel: "preload", as: "font", type: "font/woff2", crossOrigin: "",
      href: document.documentElement.dataset.content_root
        + `_static/fonts/${face}.woff2`}));</script>"""

# The color of a reader who has chosen none, before a script says it: a change
# of it later is a second look at every style, and a flash in the dark.
UNKNOWN = 'localStorage.getItem("theme") || "auto"'
SYSTEM = """\
localStorage.getItem("theme") ||
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")\
"""

# The index of the search, for results while one types; they are off, and the
# page of the search loads its own.
SEARCH = re.compile(
    r'\s*<script src="[^"]*(?:_static/searchtools|_static/language_data'
    r'|searchindex)\.js"></script>'
)

# Style sheets of which the book needs a part.
WHOLE = (
    *("styles/pydata-sphinx-theme.css", "sphinx-design.min.css"),
    "mystnb.*.css",
)

# Font Awesome: the rules that give a class its glyph, and one font of three.
GLYPH = re.compile(r'((?:\.fa-[\w-]+::?before,?)+)\{content:"\\([0-9a-f]+)"\}')
ICON_FONT = re.compile(
    r'src:url\(([^()]*/fa-[a-z]+-\d+)\.woff2\) format\("woff2"\),'
    r'url\(\1\.ttf\) format\("truetype"\)'
)


def restart(app):
    """Let each style sheet be copied again, whole: Sphinx overwrites none."""
    for pattern in WHOLE:
        for style in Path(app.outdir, "_static").glob(pattern):
            style.unlink()


def lighten(app, exception):
    """Take the unused scripts out of the pages, and out of the folder."""
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    options = (out / "_static" / "documentation_options.js").read_text("utf8")
    inline = f"<script>{options}</script>"
    for page in out.rglob("*.html"):
        text = page.read_text("utf8")
        lighter = ICONS.sub("", text)
        lighter = lighter.replace(UNKNOWN, SYSTEM)
        if 'class="math' not in text:
            lighter = FORMULAS.sub("", lighter)
        if page.name != "search.html":
            lighter = PRELOADED.sub("", SEARCH.sub("", lighter))
            lighter = OPTIONS.sub(lambda _: inline, lighter)
            lighter = BLOCKING.sub("<script defer ", lighter)
            lighter = MATHJAX.sub(
                lambda script: TYPESET.replace("SOURCE", script[1]), lighter
            )
            if FACES not in lighter:  # else it was not written again
                lighter = lighter.replace("</title>", f"</title>{FACES}", 1)
        if lighter != text:
            page.write_text(lighter, "utf8")
    scripts = out / "_static" / "scripts"
    for unused in (*scripts.glob("fontawesome.js"), *scripts.glob("*.map")):
        unused.unlink()
    for style in (out / "_static" / "styles").glob("*.css"):
        text = style.read_text("utf8")
        if ICON_FONT.search(text):
            style.write_text(with_used_icons(style, text, out), "utf8")
    words = styles.words(out)
    for pattern in WHOLE:
        for style in (out / "_static").glob(pattern):
            text = styles.needed(style.read_text("utf8"), words)
            style.write_text(text, "utf8")
    styles.join(out)


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
    app.connect("builder-inited", restart, priority=100)
    # The theme writes the colors of code when a build has finished, too.
    app.connect("build-finished", lighten, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
