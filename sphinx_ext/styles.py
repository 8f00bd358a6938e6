"""Leave out of a style sheet the rules that no page of the book needs.

The theme's holds all of Bootstrap. A rule stays if each class and id in one of
its selectors is a word of a page's markup or of a script, which may add it.

And make one of the eleven that a page asks for: it is painted when the last of
them has come, and each takes a request, one of them two after one another.
"""

import hashlib
import posixpath
import re

import tinycss2

NAMED = re.compile(r'\b(?:class|id)="([^"]*)"')
WORD = re.compile(r"[\w-]+")
NAME = re.compile(r"[.#](-?[_a-zA-Z][\w-]*)")
# What need not be, or of which one is enough; and attributes.
OPTIONAL = re.compile(r":(?:not|is|where)\([^()]*\)|\[[^\]]*\]")
NESTED = ("media", "supports")
LINK = re.compile(
    r'\s*<link\b(?=[^>]*\brel="stylesheet")[^>]*'
    r'\bhref="([^"]*\b_static/)([^"?]*)[^"]*"[^>]*>'
)
IMPORT = re.compile(r'@import\s+"([^":]*)";')
URL = re.compile(r"""\burl\((["']?)(?![a-z]+:|#|/)([^"'()]+)\1\)""")
ONE = re.compile(r"one-[0-9a-f]{8}\.css")


def words(out):
    """Every class and id of the built pages, and every word of scripts."""
    found = set()
    for page in out.rglob("*.html"):
        found.update(*map(str.split, NAMED.findall(page.read_text("utf8"))))
    for script in (out / "_static").rglob("*.js"):
        found.update(WORD.findall(script.read_text("utf8")))
    return found


def needed(style, words):
    """A style sheet without what the words don't ask for."""
    rules = tinycss2.parse_stylesheet(
        style, skip_comments=True, skip_whitespace=True
    )
    return "".join(kept(rule, words) for rule in rules)


def separated(prelude):
    """The selectors of a rule; a comma within brackets is of one of them."""
    found = [[]]
    for token in prelude:
        if token == ",":
            found.append([])
        else:
            found[-1].append(token)
    return map(tinycss2.serialize, found)


def names(selector):
    """The classes and ids that a selector cannot do without."""
    before = ""
    while before != selector:  # what is optional may hold more of it
        before, selector = selector, OPTIONAL.sub("", selector)
    return set(NAME.findall(selector))


def kept(rule, words):
    """Text of a rule without what no page uses."""
    if rule.type == "qualified-rule":
        selectors = [
            selector
            for selector in separated(rule.prelude)
            if names(selector) <= words
        ]
        content = tinycss2.serialize(rule.content)
        return f"{','.join(selectors)}{{{content}}}" if selectors else ""
    if rule.type == "at-rule" and rule.lower_at_keyword in NESTED:
        inner = needed(tinycss2.serialize(rule.content), words)
        head = f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}"
        return f"{head}{{{inner}}}" if inner else ""
    return rule.serialize()


def joined(static, name):
    """A style sheet with those that it imports, seen from ``_static``."""
    folder = posixpath.dirname(name)

    def here(path):
        return posixpath.normpath(posixpath.join(folder, path))

    text = URL.sub(
        lambda url: f"url({url[1]}{here(url[2])}{url[1]})",
        (static / name).read_text("utf8"),
    )
    return IMPORT.sub(lambda found: joined(static, here(found[1])), text)


def as_one(static, names):
    """The name of a style sheet that holds these, which its first line says.

    A page that was not written again names the one of an earlier build.
    """
    if len(names) == 1 and ONE.fullmatch(names[0]):
        head = (static / names[0]).read_text("utf8").partition("\n")[0]
        names = head.split()[1:-1]
    text = "\n".join(joined(static, name) for name in names)
    text = f"/* {' '.join(names)} */\n{text}"
    name = f"one-{hashlib.sha256(text.encode()).hexdigest()[:8]}.css"
    (static / name).write_text(text, "utf8")
    return name


def join(out):
    """Join each page's style sheets into one, and remove unused files."""
    static, made = out / "_static", {}
    earlier = {path.name for path in static.glob("one-*.css")}
    for page in out.rglob("*.html"):
        text = page.read_text("utf8")
        links = LINK.findall(text)
        names = tuple(name for _, name in links)
        if not names or static in page.parents:  # a template of the theme's
            continue
        if names not in made:
            made[names] = as_one(static, names)
        if names != (made[names],):
            start = LINK.search(text).start()
            href = links[0][0] + made[names]
            page.write_text(
                f'{text[:start]}\n<link rel="stylesheet" href="{href}">'
                + LINK.sub("", text[start:]),
                "utf8",
            )
    for name in earlier - set(made.values()):
        (static / name).unlink()
