"""Predict, then see: a question whose result opens with an answer.

    (label)=
    ::::{predict} A short title
    The question.

    :::{choice} An answer in a few words
    Feedback: why it is tempting, what is wrong with it.
    :::
    :::{choice} Another answer
    :correct:
    Yes. Why.
    :::
    ::::

Behind it stand the cells tagged ``predict`` (and ``hide-output`` or
``hide-cell``) and, in an ``{answer}``, what would give the answer away. All
that is closed until a choice is made: ``book/_static/predict.js``. Without
JavaScript it is a row of ``<details>`` elements. The choices are shown in the
order that :func:`coursekit_classroom.notebooks.plain.shuffled` gives them.

    :::::{still-there}
    ::::{question} What does one row of the embedding matrix hold?
    :::{choice} The vector of one token
    :correct:
    Yes.
    :::
    ...
    ::::
    :::::

These are questions from earlier chapters: the same, with no cells behind
them, and closed as a whole.
"""

import hashlib

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from coursekit_classroom.notebooks.plain import LETTERS, REMEMBER, shuffled

LOGGER = logging.getLogger(__name__)
CHOICES = (3, 4)
QUESTIONS = 3
# What may stand between a question and what belongs to it.
BETWEEN = (nodes.comment, nodes.target, nodes.system_message)


class predict(nodes.General, nodes.Element):  # noqa: N801  docutils' custom
    """The question, with its choices."""


class predict_choice(nodes.General, nodes.Element):  # noqa: N801
    """One choice: its label, then its feedback."""


class predict_label(nodes.General, nodes.TextElement):  # noqa: N801
    """The words of a choice."""


class predict_answer(nodes.General, nodes.Element):  # noqa: N801
    """Prose that would give the answer away."""


class still_there(nodes.General, nodes.Element):  # noqa: N801
    """Questions from earlier chapters."""


class Predict(SphinxDirective):
    """``{predict}``: a title, a question and three or four choices."""

    name_of_it, before, recalls = "predict", "Predict: ", False
    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Return the question; its followers are found by a transform."""
        node = predict(recalls=self.recalls)
        self.set_source_info(node)
        self.add_name(node)
        text, messages = self.state.inline_text(self.arguments[0], self.lineno)
        node["title"] = "".join(part.astext() for part in text)
        node += nodes.paragraph(
            "", self.before, *text, classes=["admonition-title"]
        )
        self.state.nested_parse(self.content, self.content_offset, node)
        choices = [n for n in node if isinstance(n, predict_choice)]
        places = [node.index(choice) for choice in choices]
        order = shuffled(self.arguments[0], [c["words"] for c in choices])
        for letter, place, at in zip(LETTERS, places, order, strict=False):
            node[place] = choices[at]
            node[place]["letter"] = letter
        if len(choices) not in CHOICES:
            self.complain(node, f"has {len(choices)} choices, not 3 or 4")
        if not any(choice["correct"] for choice in choices):
            self.complain(node, "has no choice that is marked :correct:")
        elif all(choice["correct"] for choice in choices):
            self.complain(node, "has no choice that is wrong")
        return [node, *messages]

    def complain(self, node, what):
        """Warn; the book is built with warnings as errors."""
        LOGGER.warning(
            "{%s} %r %s",
            self.name_of_it,
            self.arguments[0],
            what,
            location=node,
        )


class Question(Predict):
    """``{question}``: one of those in a ``{still-there}``."""

    name_of_it, before, recalls = "question", "", True


class StillThere(SphinxDirective):
    """``{still-there}``: questions from earlier chapters, to be skipped."""

    has_content = True

    def run(self):
        """Return the questions; they are closed until somebody asks."""
        node = still_there()
        self.set_source_info(node)
        self.state.nested_parse(self.content, self.content_offset, node)
        asked = sum(isinstance(n, predict) and n["recalls"] for n in node)
        if asked != QUESTIONS:
            LOGGER.warning(
                "{still-there} holds %d {question}s: got %d",
                QUESTIONS,
                asked,
                location=node,
            )
        return [node]


class Choice(SphinxDirective):
    """``{choice}``: the words of a choice, and the feedback to it."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"correct": directives.flag}  # noqa: RUF012

    def run(self):
        """Return the choice; the letter comes from the question."""
        words = self.arguments[0]
        node = predict_choice(
            correct="correct" in self.options,
            letter="",
            words=words,
            key=hashlib.sha256(words.encode()).hexdigest()[:8],
        )
        self.set_source_info(node)
        text, messages = self.state.inline_text(words, self.lineno)
        node += predict_label("", "", *text)
        feedback = nodes.container(classes=["predict-feedback"])
        self.state.nested_parse(self.content, self.content_offset, feedback)
        if not feedback.astext().strip():
            LOGGER.warning("{choice} %r has no feedback", words, location=node)
        node += feedback
        return [node, *messages]


class Answer(SphinxDirective):
    """``{answer}``: what would give the answer away."""

    has_content = True

    def run(self):
        """Return the answer; a transform checks that a question asks."""
        self.assert_has_content()
        node = predict_answer()
        self.set_source_info(node)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def is_cell(node, tagged=False):
    """True for a code cell (tagged ``predict``)."""
    if getattr(node, "attributes", {}).get("nb_element") != "cell_code":
        return False
    return not tagged or "tag_predict" in node["classes"]


class Group(SphinxTransform):
    """Group each question with the cells it closes, and report faults."""

    default_priority = 700

    def apply(self, **kwargs):
        """Group every question of the page with its followers."""
        for question in list(self.document.findall(predict)):
            self.group(question)
        for node in self.document.findall(nodes.Element):
            what = None
            if isinstance(node, predict_choice):
                what = "{choice} outside of a {predict}"
                if isinstance(node.parent, predict):
                    continue
            elif isinstance(node, predict_answer):
                what = "{answer} that no {predict} stands before"
            elif is_cell(node, tagged=True):
                what = "cell tagged predict that no {predict} stands before"
            if what and "predict-group" not in node.parent.get("classes", []):
                LOGGER.warning("%s", what, location=node)

    def group(self, question):
        """Wrap one question, its cells and its answer."""
        parent = question.parent
        start = parent.index(question)
        if not question["ids"]:
            name = "question" if question["recalls"] else "predict"
            question["ids"].append(
                nodes.make_id(f"{name} {question['title']}")
            )
        if question["recalls"]:
            parent[start] = nodes.container(classes=["predict-group"])
            parent[start] += question
            if not isinstance(parent, still_there):
                LOGGER.warning(
                    "{question} %r outside of a {still-there}",
                    question["title"],
                    location=question,
                )
            return
        closed = []
        for at, node in enumerate(parent[start + 1 :], start + 1):
            if is_cell(node, tagged=True) or isinstance(node, predict_answer):
                closed.append(at)
            elif not is_cell(node) and not isinstance(node, BETWEEN):
                break
        cells = [parent[at] for at in closed if is_cell(parent[at])]
        if not cells:
            LOGGER.warning(
                "{predict} %r: no cell tagged predict follows it",
                question["title"],
                location=question,
            )
        for cell in cells:
            if cell.get("hide_mode") not in ("all", "output", "input+output"):
                LOGGER.warning(
                    "{predict} %r: its cell is tagged neither hide-output "
                    "nor hide-cell, so it shows the result without JavaScript",
                    question["title"],
                    location=cell,
                )
        last = closed[-1] if closed else start
        box = nodes.container(classes=["predict-group"])
        members = parent[start : last + 1]
        parent[start : last + 1] = [box]
        box += members


class NamePrompts(SphinxPostTransform):
    """A cell that hides code and result apart names them apart."""

    default_priority = 200  # after MyST-NB's HideInputCells
    formats = ("html",)

    def run(self, **kwargs):
        """Give the code of a predicted cell a button text of its own."""
        for cell in self.document.findall(nodes.container):
            if is_cell(cell, tagged=True) and len(cell) == 2:
                code = cell[0]
                if isinstance(code, HideCodeCellNode):
                    code["prompt_show"] = "Show the code"
                    code["prompt_hide"] = "Hide the code"


def name_questions(app, doctree):
    """Let ``{ref}`label` `` find the title of a question."""
    labels = app.env.get_domain("std").labels
    for question in doctree.findall(predict):
        for name in question["names"]:
            labels[name] = (
                app.env.docname,
                question["ids"][0],
                question["title"],
            )


def load_script(app, pagename, templatename, context, doctree):
    """Load the script where there is a question, and nowhere else."""
    if doctree and any(doctree.findall(predict)):
        app.add_js_file("predict.js", loading_method="defer")


def visit_predict(self, node):
    """Open the box; its title is the name of the group."""
    self.body.append(
        self.starttag(node, "div", CLASS="predict admonition tip")
    )


def depart_div(self, node):
    """Close a box."""
    self.body.append("</div>\n")


def visit_still_there(self, node):
    """Open the details; they are one line until they are opened."""
    self.body.append(self.starttag(node, "details", CLASS="still-there"))
    self.body.append(f"<summary>{REMEMBER}</summary>\n")


def visit_choice(self, node):
    """Open the details of one choice."""
    attributes = {"data-choice": node["key"], "data-letter": node["letter"]}
    if node["correct"]:
        attributes["data-correct"] = ""
    self.body.append(
        self.starttag(node, "details", CLASS="predict-choice", **attributes)
    )


def depart_details(self, node):
    """Close the details."""
    self.body.append("</details>\n")


def visit_label(self, node):
    """Write letter and words."""
    letter = node.parent["letter"]
    self.body.append(
        f'<summary><span class="predict-letter">{letter}</span> '
        '<span class="predict-words">'
    )


def depart_label(self, node):
    """Close the words."""
    self.body.append("</span></summary>\n")


def visit_answer(self, node):
    """Open the details of the answer."""
    self.body.append(self.starttag(node, "details", CLASS="predict-answer"))
    self.body.append("<summary>Show the answer</summary>\n")


def setup(app):
    """Register with Sphinx."""
    app.add_node(predict, html=(visit_predict, depart_div))
    app.add_node(predict_choice, html=(visit_choice, depart_details))
    app.add_node(still_there, html=(visit_still_there, depart_details))
    app.add_node(predict_label, html=(visit_label, depart_label))
    app.add_node(predict_answer, html=(visit_answer, depart_details))
    app.add_directive("predict", Predict)
    app.add_directive("question", Question)
    app.add_directive("still-there", StillThere)
    app.add_directive("choice", Choice)
    app.add_directive("answer", Answer)
    app.add_transform(Group)
    app.add_post_transform(NamePrompts)
    app.connect("doctree-read", name_questions)
    app.connect("html-page-context", load_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
