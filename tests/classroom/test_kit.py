"""The exam bank has right keys, and is exported whole."""

import collections
import io
import math
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lxml import etree

from coursekit import cli
from coursekit_classroom import kit
from coursekit_classroom.kit import export

ROOT = Path(__file__).resolve().parents[2]
EXAM = kit.exam()
ITEMS = {item.name: item for item in EXAM}


def plain(source):
    """A line without marks of code and emphasis."""
    return re.sub(r"\*([^*]+)\*", r"\1", source).replace("`", "")


def page(item):
    """The text of the chapter that an item belongs to."""
    (path,) = (ROOT / "book").glob(f"{item.name[:2]}_*.md")
    return path.read_text("utf8")


# -- the rules ---------------------------------------------------------------
def test_each_chapter_has_four_items():
    chapters = collections.Counter(item.name[:2] for item in EXAM)
    assert chapters == {f"{n:02}": 4 for n in range(20)}
    assert len({item.ask for item in EXAM}) == 80


def problems(item):
    """What is wrong with the form of an item."""
    right = [o for o in item.options if not o.wrong]
    names = [o.wrong for o in item.options if o.wrong]
    if not 3 <= len(item.options) <= 4 or len(right) != 1:
        yield "one right option and two or three others"
    if len({o.text for o in item.options}) < len(item.options):
        yield "two options are alike"
    if len(set(names)) < len(names) or any(len(n) < 10 for n in names):
        yield "a wrong option has a misconception of its own"
    for option in item.options:
        if len(option.says) < 15 or option.says[-1] not in ".?":
            yield f"no sentence of feedback for {option.text}"
        if re.search(r"(all|none|both) of (the|these)", option.text.lower()):
            yield "a pattern that test takers know"


def test_the_form_of_the_items():
    for item in EXAM:
        assert not list(problems(item)), item.name
    told = kit.Option("All of the above", "", "short")
    assert len(list(problems(replace(EXAM[3], options=(told, told))))) > 3


def telling(items, better):
    """In how many items the right option is ahead of all others."""
    return sum(
        all(
            better(len(item.right.text), len(o.text))
            for o in item.options
            if o.wrong
        )
        for item in items
        if item.number is None
    )


def test_neither_length_nor_position_tells_the_right_option():
    chosen = [item for item in EXAM if item.number is None]
    assert telling(EXAM, lambda a, b: a > b) <= 0.3 * len(chosen)
    assert telling(EXAM, lambda a, b: a < b) <= 0.3 * len(chosen)
    told = kit.Option("a long and careful answer", "")
    others = [o for o in chosen[0].options if o.wrong]
    bad = replace(chosen[0], options=(told, *others))
    assert telling([bad], lambda a, b: a > b) == 1
    for seed in range(3):
        keys = collections.Counter(
            i.key for i in kit.exam(seed=seed) if i.number is None
        )
        assert max(keys.values()) - min(keys.values()) <= 1
        assert set(keys) == set(kit.LETTERS)


def test_another_seed_is_another_order_of_the_same_options():
    for one, other in zip(EXAM, kit.exam(seed=1), strict=True):
        assert {*one.options} == {*other.options}
        assert one.right == other.right
    assert kit.exam(seed=1) != EXAM
    assert kit.exam([4, 5]) == [i for i in EXAM if i.name[:2] in ("04", "05")]


def test_each_item_leads_to_its_chapter():
    for item in EXAM:
        where, _, label = item.read.partition("#")
        assert where.startswith(f"{item.name[:2]}_"), item.name
        assert f"\n({label})=\n" in page(item), item.name


def test_students_are_shown_a_chapter_and_no_label():
    """Moodle shows the general feedback to whoever has answered."""
    said = [
        node.findtext("text")
        for node in etree.fromstring(export.moodle(EXAM).encode()).iter(
            "generalfeedback"
        )
    ]
    assert (
        said[0] == "<p>Read on windows of a text: chapter 0, first model.</p>"
    )
    key = export.markdown(EXAM, key=True)
    assert "(`00-1`, chapter 0, first model)" in key
    for item in EXAM:
        label = item.read.partition("#")[2]
        assert not [text for text in (*said, key) if label in text]


# -- not from the pages ------------------------------------------------------
def bare(text):
    """The words of a text, without marks."""
    return " ".join(re.findall(r"[\w−.]+", text.lower()))


def copied(item, text):
    """The sentences of an item's question that stand on a page."""
    said = bare(text)
    sentences = re.split(r"(?<=[.?:]) ", item.ask)
    return [s for s in sentences if len(s.split()) > 5 and bare(s) in said]


def test_no_item_repeats_a_sentence_of_its_page():
    for item in EXAM:
        assert not copied(item, page(item)), item.name
    question = re.search(r"\{predict\} .+\n(.+)\n", page(EXAM[16]))[1]
    assert copied(replace(EXAM[16], ask=question), page(EXAM[16]))


# -- the keys ----------------------------------------------------------------
def numbers(text):
    """The numbers that are shown, each with half a unit of its last digit."""
    for found in re.findall(r"−?\d[\d,]*(?:\.\d+)?", text):
        shown = export.digits(found)
        decimals = len(shown.partition(".")[2])
        yield float(shown), 0.5 * 10**-decimals + 1e-9


def flat(value):
    """The numbers of a value."""
    if isinstance(value, (list, tuple)):
        return [n for part in value for n in flat(part)]
    return torch.as_tensor(value, dtype=torch.double).flatten().tolist()


def agrees(shown, value):
    """Whether an option shows what was computed, rounded."""
    if isinstance(value, str):
        return shown == value
    pairs = list(numbers(shown))
    found = flat(value)
    return len(pairs) == len(found) and all(
        abs(n - m) <= within
        for (n, within), m in zip(pairs, found, strict=True)
    )


def computed(item):
    """Each option of an item with the value that its expression gives."""
    scope = {"math": math, "torch": torch, "F": torch.nn.functional}
    exec(item.compute, scope)  # functions in it see one scope
    for option in item.options:
        if option.value:
            yield option, eval(option.value, scope)


@pytest.mark.parametrize("name", ITEMS)
def test_options_show_what_their_lines_compute(name):
    item = ITEMS[name]
    for option, value in computed(item):
        assert agrees(option.text, value), (option.text, value)
    if item.number is not None:
        assert all(option.value for option in item.options)


def test_most_keys_are_computed():
    keys = sum(bool(item.right.value or item.compute) for item in EXAM)
    assert keys >= 65
    assert not agrees("7.32", 7.311)
    assert agrees("(−1 0.88) and 4,256", [-1, 0.8808, 4256])
    assert not agrees("1 and 2", 1)


def test_a_wrong_number_is_not_near_the_right_one():
    for item in EXAM:
        if item.number is not None:
            key = float(export.digits(item.right.text))
            values = [float(export.digits(o.text)) for o in item.options]
            gaps = [abs(v - key) for v in values if v != key]
            assert min(gaps) > 1.2 * item.number, item.name
            value = next(v for o, v in computed(item) if not o.wrong)
            assert abs(flat(value)[0] - key) <= item.number


# -- Moodle ------------------------------------------------------------------
def text_of(node, path):
    (found,) = node.findall(path)
    return found.text


def from_moodle(document):
    """Each question as Moodle's documentation says it is read."""
    root = etree.fromstring(document.encode())
    assert root.tag == "quiz"
    category, *questions = root
    assert text_of(category, "category/text").startswith("$course$/")
    for question in questions:
        answers = []
        for answer in question.findall("answer"):
            tolerance = answer.findtext("tolerance")
            answers.append(
                (
                    text_of(answer, "text"),
                    float(answer.get("fraction")),
                    text_of(answer, "feedback/text"),
                    tolerance and float(tolerance),
                )
            )
        if question.get("type") == "multichoice":
            assert text_of(question, "single") == "true"
            assert {a.get("format") for a in question.iter("answer")} == {
                "html"
            }
        yield (
            question.get("type"),
            text_of(question, "name/text"),
            text_of(question, "questiontext/text"),
            answers,
        )


def seen(fragment):
    """The text of a piece of HTML, as a browser shows it."""
    return "".join(etree.HTML(f"<p>{fragment}</p>").itertext())


def test_moodle_reads_what_the_bank_has():
    read = list(from_moodle(export.moodle(EXAM)))
    for item, (kind, name, ask, answers) in zip(EXAM, read, strict=True):
        choice = item.number is None
        assert kind == ("multichoice" if choice else "numerical")
        assert name.split()[0] == item.name
        assert seen(ask) == plain(item.question)
        assert len(answers) == len(item.options)
        for option, answer in zip(item.options, answers, strict=True):
            shown, fraction, feedback, tolerance = answer
            assert fraction == (0 if option.wrong else 100)
            assert seen(feedback) == plain(option.says)
            assert tolerance == item.number
            if choice:
                assert seen(shown) == plain(option.text)
            else:
                assert float(shown) == float(export.digits(option.text))


# -- Canvas ------------------------------------------------------------------
# The content models of the elements that are used, as the binding of IMS
# QTI 1.2 (ASI) gives them; what Canvas does not read is left out.
QTI = """
<!ELEMENT questestinterop (assessment | (section | item)+)>
<!ATTLIST questestinterop xmlns CDATA #IMPLIED>
<!ELEMENT assessment (qtimetadata*, section+)>
<!ATTLIST assessment ident CDATA #REQUIRED title CDATA #IMPLIED>
<!ELEMENT section (qtimetadata*, (section | item)*)>
<!ATTLIST section ident CDATA #REQUIRED title CDATA #IMPLIED>
<!ELEMENT item (itemmetadata?, presentation?, resprocessing*, itemfeedback*)>
<!ATTLIST item ident CDATA #REQUIRED title CDATA #IMPLIED>
<!ELEMENT itemmetadata (qtimetadata*)>
<!ELEMENT qtimetadata (qtimetadatafield+)>
<!ELEMENT qtimetadatafield (fieldlabel, fieldentry)>
<!ELEMENT fieldlabel (#PCDATA)>
<!ELEMENT fieldentry (#PCDATA)>
<!ELEMENT presentation (material | response_lid | response_str)+>
<!ELEMENT material (mattext)+>
<!ELEMENT mattext (#PCDATA)>
<!ATTLIST mattext texttype CDATA "text/plain">
<!ELEMENT response_lid (material?, render_choice, material?)>
<!ATTLIST response_lid ident CDATA #REQUIRED
  rcardinality (Single | Multiple | Ordered) "Single">
<!ELEMENT response_str (material?, render_fib, material?)>
<!ATTLIST response_str ident CDATA #REQUIRED
  rcardinality (Single | Multiple | Ordered) "Single">
<!ELEMENT render_choice (material | response_label)+>
<!ELEMENT render_fib (material | response_label)*>
<!ATTLIST render_fib
  fibtype (String | Integer | Decimal | Scientific) "String">
<!ELEMENT response_label (#PCDATA | material)*>
<!ATTLIST response_label ident CDATA #REQUIRED>
<!ELEMENT resprocessing (outcomes, respcondition+)>
<!ELEMENT outcomes (decvar+)>
<!ELEMENT decvar EMPTY>
<!ATTLIST decvar varname CDATA "SCORE" vartype CDATA "Integer"
  minvalue CDATA #IMPLIED maxvalue CDATA #IMPLIED>
<!ELEMENT respcondition (conditionvar, setvar*, displayfeedback*)>
<!ATTLIST respcondition continue (Yes | No) "No">
<!ELEMENT conditionvar (not | and | or | varequal | vargte | varlte)+>
<!ELEMENT or (not | and | or | varequal | vargte | varlte)+>
<!ELEMENT and (not | and | or | varequal | vargte | varlte)+>
<!ELEMENT not (and | or | not | varequal | vargte | varlte)>
<!ELEMENT varequal (#PCDATA)>
<!ATTLIST varequal respident CDATA #REQUIRED>
<!ELEMENT vargte (#PCDATA)>
<!ATTLIST vargte respident CDATA #REQUIRED>
<!ELEMENT varlte (#PCDATA)>
<!ATTLIST varlte respident CDATA #REQUIRED>
<!ELEMENT setvar (#PCDATA)>
<!ATTLIST setvar varname CDATA "SCORE"
  action (Set | Add | Subtract | Multiply | Divide) "Set">
<!ELEMENT displayfeedback (#PCDATA)>
<!ATTLIST displayfeedback feedbacktype (Response | Solution | Hint) "Response"
  linkrefid CDATA #REQUIRED>
<!ELEMENT itemfeedback (flow_mat | material)+>
<!ATTLIST itemfeedback ident CDATA #REQUIRED>
<!ELEMENT flow_mat (flow_mat | material)+>
"""
NS = {"q": export.QTI}


def unpacked(data):
    """The assessment that the manifest of a package names."""
    folder = zipfile.ZipFile(io.BytesIO(data))
    manifest = etree.fromstring(folder.read("imsmanifest.xml"))
    (resource,) = manifest.iter(f"{{{export.PACKAGE}}}resource")
    assert resource.get("type") == "imsqti_xmlv1p2"
    assert {resource.get("href"), "imsmanifest.xml"} == {*folder.namelist()}
    return etree.fromstring(folder.read(resource.get("href")))


def holds(condition, given):
    """Evaluate a condition of QTI for what somebody answered."""
    kind = etree.QName(condition).localname
    if kind in ("conditionvar", "and"):
        return all(holds(c, given) for c in condition)
    if kind == "or":
        return any(holds(c, given) for c in condition)
    if kind == "varequal":
        return condition.text == given
    bound = float(condition.text)
    sign = {"vargte": 1, "varlte": -1}[kind]
    return sign * (float(given) - bound) >= 0


def answered(item, given):
    """The points and the feedback for an answer, as the format says."""
    points, feedback = 0.0, []
    for rule in item.iterfind("q:resprocessing/q:respcondition", NS):
        if not holds(rule.find("q:conditionvar", NS), given):
            continue
        for change in rule.iterfind("q:setvar", NS):
            points = float(change.text)
        for link in rule.iterfind("q:displayfeedback", NS):
            (said,) = item.iterfind(
                f"q:itemfeedback[@ident='{link.get('linkrefid')}']", NS
            )
            feedback.append("".join(said.itertext()).strip())
        if rule.get("continue") == "No":
            break
    return points, feedback


def test_canvas_reads_what_the_bank_has():
    data = export.qti(EXAM)
    assert data == export.qti(EXAM)
    root = unpacked(data)
    items = root.findall(".//q:item", NS)
    for item, node in zip(EXAM, items, strict=True):
        asked = node.findtext("q:presentation/q:material/q:mattext", "", NS)
        assert seen(asked) == plain(item.question)
        labels = node.findall(".//q:render_choice/q:response_label", NS)
        for at, option in enumerate(item.options):
            if item.number is None:
                shown = "".join(labels[at].itertext()).strip()
                assert seen(shown) == plain(option.text)
                given = labels[at].get("ident")
            else:
                given = export.digits(option.text)
            points, feedback = answered(node, given)
            assert points == (0 if option.wrong else 100)
            assert [seen(f) for f in feedback] == [plain(option.says)]
        if item.number is not None:
            key = float(export.digits(item.right.text))
            inside, outside = key + 0.9 * item.number, key + 1.1 * item.number
            assert answered(node, str(inside))[0] == 100
            assert answered(node, str(outside))[0] == 0


def test_the_package_is_valid():
    dtd = etree.DTD(io.StringIO(QTI))
    root = unpacked(export.qti(EXAM))
    for node in root.iter():  # a DTD knows no namespaces
        node.tag = etree.QName(node).localname
    assert dtd.validate(root), dtd.error_log
    rule = root.find(".//respcondition")
    rule.insert(0, rule[-1])  # feedback before its condition
    assert not dtd.validate(root)


# -- paper -------------------------------------------------------------------
def test_the_printed_questions_have_no_key():
    paper, key = export.markdown(EXAM), export.markdown(EXAM, key=True)
    for number, item in enumerate(EXAM, 1):
        assert f"**{number}.** {item.question}\n" in paper
        said = f"({item.key})" if item.number is None else item.key
        assert f"\n{number}. **{said}** — " in key
        for option in item.options:
            assert option.says not in paper
            assert option.says in key


# -- the command -------------------------------------------------------------
def test_the_command_writes_each_format(tmp_path, capsys):
    for name in export.FORMATS:
        file = tmp_path / name
        words = ["kit", "exam", "--chapters", "4,5", "--format", name]
        assert cli.main([*words, "--out", str(file)]) == 0
        assert f"{file}: 8 items, {name}" in capsys.readouterr().out
        assert file.stat().st_size > 1000
    assert cli.main(["kit", "exam", "--chapters", "4"]) == 0
    assert capsys.readouterr().out == export.markdown(kit.exam([4]))


def test_the_exercises_of_a_page_are_printed(capsys):
    page = kit.HERE.parents[1] / "book" / "04_attention.md"
    assert cli.main(["kit", "exercises", str(page)]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("attention/attend: ★ Implement: attention, 20 min")
    assert len(others) == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["exam", "--chapters", "20"], "from 0 to 19: got 20"),
        (["exam", "--chapters", "4,x"], "with commas between them: got '4,x'"),
        (["exam", "--format", "qti"], "got qti without --out"),
        (["exam", "--format", "moodle", "--key"], "got moodle"),
        (["exam", "--format", "pdf"], "invalid choice: 'pdf'"),
    ],
)
def test_wrong_input_is_refused_in_one_line(words, says, capsys):
    try:
        code = cli.main(["kit", *words])
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err
    assert code == 2
    assert says in error
    assert error.count("\n") == 1
