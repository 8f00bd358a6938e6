"""Lines of the one-file transformer, by name.

    ```{lesson} attention, Heads.forward
    :chapter: 4
    ```

Shows these parts of the learner's file as they stand after the chapter; the
lines that are new since the chapter before it are marked by a bar and named
in the head. Without ``:chapter:`` it is the page's own. In readers' notebooks
the same lines are a cell that runs (``notebooks.for_reader``).
"""

import re

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from coursekit.classroom.grading.plain import chapter_of, lesson_text, names_in

LOGGER = logging.getLogger(__name__)
FILE = "minimal.py"
# Pygments wraps each emphasized line; a run of lines becomes one <ins>.
MARKED = re.compile(r'<span class="hll">(.*)\n</span>')
HEAD = """\
<p class="lesson-head"><span class="lesson-file"><code>{file}</code> · \
chapter {chapter}</span>{new}</p>
"""
NEW = ' <span class="lesson-new">new in this chapter: {lines}</span>'


class lesson_block(nodes.General, nodes.Element):  # noqa: N801
    """A head and the highlighted lines."""


class Lesson(SphinxDirective):
    """``{lesson}``: names of functions, classes and methods."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012
        "chapter": directives.nonnegative_int,
    }

    def run(self):
        """Return the lines; a name that does not exist is a warning."""
        names = names_in(self.arguments[0])
        own = chapter_of(self.env.docname)
        chapter = self.options.get("chapter", own)
        node = lesson_block(chapter=chapter)
        self.set_source_info(node)
        try:
            if chapter is None:
                raise ValueError(
                    "needs `:chapter:` on a page whose name has no number: "
                    f"got {self.env.docname}."
                )
            text = lesson_text(names, chapter)
            new = new_lines(names, chapter)
        except ValueError as error:
            LOGGER.warning("{lesson} %s", error, location=node)
            return []
        node["new"] = in_words(new, text)
        code = nodes.literal_block(text, text, language="python")
        code["highlight_args"] = {"hl_lines": sorted(new)}
        code["linenos"] = False
        node += code
        return [node]


def new_lines(names, chapter):
    """The numbers of the new lines, counted over all parts of a block."""
    from coursekit.classroom import lesson

    new, above = set(), 0
    for name in names:
        new |= {above + line for line in lesson.new_lines(name, chapter)}
        above += lesson.part(name, chapter).count("\n") + 3
    return new


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
    new = NEW.format(lines=node["new"]) if node["new"] else ""
    self.body.append(HEAD.format(file=FILE, chapter=node["chapter"], new=new))
    node["start"] = len(self.body)


def depart_lesson(self, node):
    """Say in the markup, too, which lines are new."""
    for at in range(node["start"], len(self.body)):
        marked = MARKED.sub(r'<ins class="hll">\1\n</ins>', self.body[at])
        self.body[at] = marked.replace('\n</ins><ins class="hll">', "\n")
    self.body.append("</div>\n")


def setup(app):
    """Register with Sphinx."""
    app.add_node(lesson_block, html=(visit_lesson, depart_lesson))
    app.add_directive("lesson", Lesson)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
