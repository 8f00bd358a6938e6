"""The items for Moodle, for Canvas (QTI 1.2), and as Markdown.

Moodle's format is that of https://docs.moodle.org/en/Moodle_XML_format; the
QTI is what Canvas imports as "QTI .zip file": a manifest and an assessment.
"""

import io
import re
import zipfile
from collections.abc import Sequence
from html import escape
from xml.etree import ElementTree as ET

from coursekit_classroom.check.report import title
from coursekit_classroom.kit import LETTERS, Item, Option

__all__ = ["FORMATS", "made", "markdown", "moodle", "qti"]

TITLE = "The Executable Transformer"
QTI = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"
PACKAGE = "http://www.imsglobal.org/xsd/imscp_v1p1"
ASSESSMENT = "assessment.xml"
FORMATS = ("markdown", "moodle", "qti")


def html(source: str) -> str:
    """A line with ``code`` and *emphasis* as HTML."""
    parts = re.split(r"`([^`]+)`", escape(source, quote=False))
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = f"<code>{part}</code>"
        else:
            parts[at] = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", part)
    return "".join(parts)


def where_to_read(item: Item) -> str:
    """Feedback that names a page and its topic."""
    return f"Read on {html(item.about)}: {title(item.read)}."


def digits(source: str) -> str:
    """A number as machines read it: ASCII, no separators."""
    return source.replace("−", "-").replace(",", "")


def add(
    parent: ET.Element, tag: str, said: str = "", **attributes: str
) -> ET.Element:
    """A new child with a text."""
    made = ET.SubElement(parent, tag, attributes)
    made.text = said or None
    return made


def written(root: ET.Element) -> str:
    """A document, indented."""
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(
        root, encoding="unicode"
    )


# -- paper -------------------------------------------------------------------
def markdown(items: Sequence[Item], key: bool = False) -> str:
    """Questions to print, or their key.

    Args:
        items: with their options in order.
        key: the right answers, each with where to read, instead.
    """
    what = "key" if key else "questions"
    lines = [f"# {TITLE}: {what}", ""]
    for number, item in enumerate(items, 1):
        if key:
            lines.append(_key_line(number, item))
            lines += [f"   - {_reason(item, o)}" for o in item.options]
            continue
        lines += [f"**{number}.** {item.question}", ""]
        if item.number is None:
            pairs = zip(LETTERS, item.options, strict=False)
            lines += [f"- ({letter}) {o.text}" for letter, o in pairs]
        else:
            lines.append("Answer: ____________")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _key_line(number: int, item: Item) -> str:
    """The right answer and its place in the book."""
    said = f"({item.key})" if item.number is None else item.key
    where = f"(`{item.name}`, {title(item.read)})"
    return f"{number}. **{said}** — {item.about} {where}"


def _reason(item: Item, option: Option) -> str:
    """Explanation that the key gives for an option."""
    why = f"*{option.wrong}*: " if option.wrong else ""
    at = item.options.index(option)
    name = f"({LETTERS[at]})" if item.number is None else option.text
    return f"{name} {why}{option.says}"


# -- Moodle ------------------------------------------------------------------
def moodle(items: Sequence[Item]) -> str:
    """A category of questions in Moodle's XML."""
    quiz = ET.Element("quiz")
    category = add(add(quiz, "question", type="category"), "category")
    add(category, "text", f"$course$/top/{TITLE}")
    for item in items:
        choice = item.number is None
        kind = "multichoice" if choice else "numerical"
        question = add(quiz, "question", type=kind)
        add(add(question, "name"), "text", f"{item.name} {item.about}")
        _moodle_text(question, "questiontext", f"<p>{html(item.question)}</p>")
        _moodle_text(
            question, "generalfeedback", f"<p>{where_to_read(item)}</p>"
        )
        add(question, "defaultgrade", "1")
        add(question, "penalty", "0")
        add(question, "hidden", "0")
        if choice:
            add(question, "single", "true")
            add(question, "shuffleanswers", "true")
            add(question, "answernumbering", "abc")
        for option in item.options:
            _moodle_answer(question, item, option)
    return written(quiz)


def _moodle_text(parent: ET.Element, tag: str, said: str) -> None:
    """A text that Moodle reads as HTML."""
    add(add(parent, tag, format="html"), "text", said)


def _moodle_answer(question: ET.Element, item: Item, option: Option) -> None:
    """One answer with its fraction and feedback."""
    fraction = "0" if option.wrong else "100"
    if item.number is None:
        answer = add(question, "answer", fraction=fraction, format="html")
        add(answer, "text", html(option.text))
    else:
        answer = add(
            question,
            "answer",
            fraction=fraction,
            format="moodle_auto_format",
        )
        add(answer, "text", digits(option.text))
    _moodle_text(answer, "feedback", html(option.says))
    if item.number is not None:
        add(answer, "tolerance", f"{item.number:.10g}")


# -- Canvas ------------------------------------------------------------------
def qti(items: Sequence[Item]) -> bytes:
    """A zip with a quiz in QTI 1.2, as Canvas imports it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, content in (
            ("imsmanifest.xml", _manifest()),
            (ASSESSMENT, _assessment(items)),
        ):
            folder.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def _manifest() -> str:
    """The list of what is in the package."""
    root = ET.Element("manifest", xmlns=PACKAGE, identifier="kit")
    add(root, "organizations")
    resource = add(
        add(root, "resources"),
        "resource",
        identifier="quiz",
        type="imsqti_xmlv1p2",
        href=ASSESSMENT,
    )
    add(resource, "file", href=ASSESSMENT)
    return written(root)


def _assessment(items: Sequence[Item]) -> str:
    """The quiz itself."""
    root = ET.Element("questestinterop", xmlns=QTI)
    quiz = add(root, "assessment", ident="kit_quiz", title=TITLE)
    section = add(quiz, "section", ident="root_section")
    for item in items:
        ident = f"item_{item.name.replace('-', '_')}"
        node = add(section, "item", ident=ident, title=item.about)
        kind = "multiple_choice" if item.number is None else "numerical"
        data = add(add(node, "itemmetadata"), "qtimetadata")
        for label, entry in (
            ("question_type", f"{kind}_question"),
            ("points_possible", "1"),
        ):
            field = add(data, "qtimetadatafield")
            add(field, "fieldlabel", label)
            add(field, "fieldentry", entry)
        _presentation(node, item)
        _processing(node, item)
        for number, option in enumerate(item.options, 1):
            feedback = add(node, "itemfeedback", ident=f"{number}_fb")
            _material(add(feedback, "flow_mat"), html(option.says))
    return written(root)


def _material(parent: ET.Element, said: str) -> None:
    """A text that Canvas reads as HTML."""
    add(add(parent, "material"), "mattext", said, texttype="text/html")


def _presentation(node: ET.Element, item: Item) -> None:
    """The question and what can be chosen or typed."""
    shown = add(node, "presentation")
    _material(shown, f"<p>{html(item.question)}</p>")
    one = {"ident": "response1", "rcardinality": "Single"}
    if item.number is not None:
        typed = add(add(shown, "response_str", **one), "render_fib")
        typed.set("fibtype", "Decimal")
        add(typed, "response_label", ident="answer1")
        return
    choices = add(add(shown, "response_lid", **one), "render_choice")
    for number, option in enumerate(item.options, 1):
        label = add(choices, "response_label", ident=str(number))
        _material(label, html(option.text))


def _processing(node: ET.Element, item: Item) -> None:
    """Response processing in QTI: feedback and points by answer."""
    process = add(node, "resprocessing")
    add(
        add(process, "outcomes"),
        "decvar",
        maxvalue="100",
        minvalue="0",
        varname="SCORE",
        vartype="Decimal",
    )
    for number, option in enumerate(item.options, 1):
        go_on = "Yes" if option.wrong else "No"
        rule = add(process, "respcondition", **{"continue": go_on})
        _condition(add(rule, "conditionvar"), item, option, number)
        if not option.wrong:
            score = {"action": "Set", "varname": "SCORE"}
            add(rule, "setvar", "100", **score)
        add(
            rule,
            "displayfeedback",
            feedbacktype="Response",
            linkrefid=f"{number}_fb",
        )


def _condition(
    parent: ET.Element, item: Item, option: Option, number: int
) -> None:
    """QTI condition: this option was chosen, or a number close to it."""
    where = {"respident": "response1"}
    if item.number is None:
        add(parent, "varequal", str(number), **where)
        return
    value = float(digits(option.text))
    either = add(parent, "or")
    add(either, "varequal", digits(option.text), **where)
    both = add(either, "and")
    add(both, "vargte", f"{value - item.number:.10g}", **where)
    add(both, "varlte", f"{value + item.number:.10g}", **where)


def made(form: str, items: Sequence[Item], key: bool = False) -> bytes:
    """The items as one of ``FORMATS``.

    Args:
        form: its name.
        items: with their options in order.
        key: whether the key is written instead, where it is apart.
    """
    if form == "qti":
        return qti(items)
    if form == "moodle":
        return moodle(items).encode()
    return markdown(items, key).encode()
