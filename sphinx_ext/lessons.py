"""Lines of the one-file transformer, by name.

    ```{lesson} attention, Heads.forward
    :chapter: 4
    ```

Shows these parts of the learner's file as they stand after the chapter; the
lines that are new since the chapter before it are marked by a bar and named
in the head. Without ``:chapter:`` it is the chapter of the page; on a page
whose name has no number, and from chapter 15 on, the finished file. With
``:edit: name`` it shows what this edit of the finished file
(``coursekit_classroom/edits.py``) changes: new lines are marked, and those
that they replace are struck through. In readers' notebooks the lines are a
cell that runs (``notebooks.for_reader``).
"""

import re

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from coursekit_classroom.notebooks.plain import (
    FINISHED,
    chapter_of,
    lesson_text,
    names_in,
)

LOGGER = logging.getLogger(__name__)
# Pygments wraps each emphasized line; a run of lines becomes one <ins>.
MARKED = re.compile(r'<span class="hll">(.*)\n</span>')
HEAD = """\
<p class="lesson-head"><span class="lesson-file"><code>{file}</code>{after}\
</span>{new}</p>
"""
NEW = ' <span class="lesson-new">new in this chapter: {lines}</span>'
EDIT = ' <span class="lesson-new">changed: {lines}</span>'


class lesson_block(nodes.General, nodes.Element):  # noqa: N801
    """A head and the highlighted lines."""


class Lesson(SphinxDirective):
    """``{lesson}``: names of functions, classes and methods."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012
        "chapter": directives.nonnegative_int,
        "edit": directives.unchanged_required,
    }

    def run(self):
        """Return the lines; a name that does not exist is a warning."""
        from coursekit_classroom import lesson

        names = names_in(self.arguments[0])
        own = chapter_of(self.env.docname)
        chapter = FINISHED if own is None else own
        chapter = self.options.get("chapter", chapter)
        edit = self.options.get("edit")
        node = lesson_block()
        self.set_source_info(node)
        try:
            if edit:
                text, new, gone = changes(names, edit)
                node["file"] = lesson.file_of(names[0], FINISHED)
            else:
                text, gone = lesson_text(names, chapter), set()
                new = new_lines(names, chapter)
                node["file"] = lesson.file_of(names[0], chapter)
        except ValueError as error:
            LOGGER.warning("{lesson} %s", error, location=node)
            return []
        node["after"] = f" · chapter {chapter}" * (chapter < FINISHED)
        if edit:
            node["after"] = " · edited"
        node["new"] = in_words(new, text)
        marked = sorted(new | gone)
        node["tags"] = ["del" if line in gone else "ins" for line in marked]
        code = nodes.literal_block(text, text, language="python")
        code["highlight_args"] = {"hl_lines": marked}
        code["linenos"] = False
        node += code
        return [node]


def new_lines(names, chapter):
    """The numbers of the new lines, counted over all parts of a block."""
    from coursekit_classroom import lesson

    new, above = set(), 0
    for name in names:
        new |= {above + line for line in lesson.new_lines(name, chapter)}
        above += lesson.part(name, chapter).count("\n") + 3
    return new


def changes(names, edit):
    """Parts of the lesson as an edit changes them.

    Returns:
        The lines, old and new; the numbers of new ones, and of old ones.
    """
    from coursekit_classroom import lesson

    lines = []
    for name in names:
        if lines:
            lines += [(" ", ""), (" ", "")]
        lines += lesson.diff(name, edit)
    new, gone = (
        {n for n, (m, line) in enumerate(lines, 1) if m == mark and line}
        for mark in "+-"
    )
    return "\n".join(line for _, line in lines), new, gone


def in_words(new, text):
    """``line 3``, ``lines 1–4 and 7``, ``all lines``, or nothing."""
    lines = text.split("\n")
    if new >= {n for n, line in enumerate(lines, 1) if line.strip()}:
        return "all lines"
    runs = []
    for number in sorted(new):
        # A blank line does not end a run.
        between = lines[runs[-1][1] : number - 1] if runs else ["none"]
        if not any(line.strip() for line in between):
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [f"{a}–{b}" if a < b else f"{a}" for a, b in runs]
    if not words:
        return ""
    plural = "s" * (len(words) > 1 or "–" in words[0])
    *most, last = words
    return f"line{plural} " + " and ".join(
        [", ".join(most)] * bool(most) + [last]
    )


def visit_lesson(self, node):
    """Write the head; the lines follow as any code."""
    self.body.append('<div class="lesson">\n')
    new = EDIT if "edited" in node["after"] else NEW
    head = HEAD.format(
        file=node["file"],
        after=node["after"],
        new=new.format(lines=node["new"]) if node["new"] else "",
    )
    self.body.append(head)
    node["start"] = len(self.body)


def depart_lesson(self, node):
    """Say in the markup, too, which lines are new and which are replaced."""
    tags = iter(node["tags"])

    def tagged(found):
        tag = next(tags)
        return f'<{tag} class="hll">{found[1]}\n</{tag}>'

    for at in range(node["start"], len(self.body)):
        text = MARKED.sub(tagged, self.body[at])
        for tag in ("ins", "del"):
            text = text.replace(f'\n</{tag}><{tag} class="hll">', "\n")
        self.body[at] = text
    self.body.append("</div>\n")


def setup(app):
    """Register with Sphinx."""
    app.add_node(lesson_block, html=(visit_lesson, depart_lesson))
    app.add_directive("lesson", Lesson)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
