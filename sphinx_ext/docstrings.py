"""How the package's docstrings read on the API page.

Chapter, source, test and difference from the paper stand in a docstring as
lines of their own, ``Chapter: 4, attention.`` Here they become fields, a key
of the bibliography a citation, and a chapter's number a link.
"""

import re

LABELS = ("Differs from the paper", "Chapter", "Source", "Test")
FIELD = re.compile(rf"^({'|'.join(LABELS)}): *(.*)$")
KEY = re.compile(r"\b([a-z]+(?:19|20)\d\d[a-z]+)\b")
WORDS = {}  # of attributes, while napoleon has them


def split_fields(lines):
    """The docstring without its fields, and the fields in order."""
    rest, fields, last = [], {}, None
    for line in lines:
        found = FIELD.match(line)
        if found:
            last = found[1]
            fields[last] = found[2]
        elif last and line.startswith(" ") and line.strip():
            fields[last] += " " + line.strip()
        else:
            last = None
            rest.append(line)
    return rest, fields


def chapter_link(text, docs):
    """``4, attention.`` as a link to chapter 4, if that is written."""
    number = re.match(r"\d+", text)
    prefix = f"book/{int(number[0]):02}_" if number else None
    for doc in docs:
        if prefix and doc.startswith(prefix):
            return f":doc:`{text.rstrip('.')} </{doc}>`"
    return text


def show_fields(app, what, name, obj, options, lines):
    """Turn the lines into fields, before napoleon reads the rest."""
    if what in ("attribute", "property"):
        # Napoleon takes the words before a colon for the attribute's type.
        WORDS[name] = list(lines)
        return
    rest, fields = split_fields(lines)
    if not fields:
        return
    while rest and not rest[-1].strip():
        rest.pop()
    lines[:] = [*rest, ""]
    for label, text in fields.items():
        if label == "Chapter":
            text = chapter_link(text, sorted(app.env.found_docs))
        elif label == "Source":
            text = KEY.sub(r":cite:t:`\1`", text)
        elif label == "Test":
            text = f"``{text.rstrip('.')}``"
        lines.append(f":{label}: {text}")
    lines.append("")


def restore_attribute(app, what, name, obj, options, lines):
    """Give an attribute its words back, after napoleon."""
    if what in ("attribute", "property"):
        lines[:] = WORDS.pop(name)


def setup(app):
    """Register with Sphinx; napoleon has the priority 500."""
    app.connect("autodoc-process-docstring", show_fields, priority=400)
    app.connect("autodoc-process-docstring", restore_attribute, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
