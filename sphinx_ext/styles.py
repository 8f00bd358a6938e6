"""Leave out of a style sheet the rules that no page of the book needs.

The theme's holds all of Bootstrap. A rule stays if each class and id in one of
its selectors is a word of a page's markup or of a script, which may add it.
"""

import re

import tinycss2

NAMED = re.compile(r'\b(?:class|id)="([^"]*)"')
WORD = re.compile(r"[\w-]+")
NAME = re.compile(r"[.#](-?[_a-zA-Z][\w-]*)")
# What need not be, or of which one is enough; and attributes.
OPTIONAL = re.compile(r":(?:not|is|where)\([^()]*\)|\[[^\]]*\]")
NESTED = ("media", "supports")


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
    """What is left of a rule, as text."""
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
