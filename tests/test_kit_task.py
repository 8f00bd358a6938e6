"""One changed line of a student's file: drawn, predicted, run, explained."""

import ast
import hashlib
import json
import re
from functools import cache

import pytest

from coursekit import cli
from coursekit.classroom import yourfile
from coursekit.classroom.kit import task
from coursekit.classroom.yourfile import trial_child


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_transformer.py"
    path.write_text(yourfile.text(0, complete=True), "utf8")
    return path


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """The changes of a chapter's file; two tests look at them all."""

    @cache
    def found(chapter):
        path = tmp_path_factory.mktemp("task") / "my_transformer.py"
        path.write_text(yourfile.text(chapter, complete=True), "utf8")
        return task.options(path)

    return found


# -- the change --------------------------------------------------------------
@pytest.mark.parametrize("chapter", yourfile.STEPS)
def test_the_change_is_in_a_part_of_the_chapters_step(options, chapter):
    source = yourfile.text(chapter, complete=True)
    labels = yourfile.PARTS
    asked = {labels.get(name) for name in yourfile.STEPS[chapter]}
    spans = {
        node.name: range(node.lineno, node.end_lineno + 1)
        for node in ast.parse(source).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    names = {
        name for name, part in yourfile.book(chapter).items() if part in asked
    }
    names |= {"Head", "Block"} & spans.keys()  # which are no part alone
    plain = ast.unparse(ast.parse(source))
    for change in options(chapter):
        assert any(change.line in spans[name] for name in names)
        assert plain != change.source
        assert ast.parse(change.source)


def test_students_get_different_changes_and_each_the_same_again(file):
    found = {s: task.ordered(file, s)[0] for s in "abcdefghijkl"}
    assert len({(c.line, c.after) for c in found.values()}) >= 3
    assert found["a"] == task.ordered(file, "a")[0]
    assert any(task.ordered(file, s, 1)[0] != c for s, c in found.items())


@pytest.mark.usefixtures("forked_children")
def test_a_change_that_ends_in_an_error_is_not_drawn(tmp_path, monkeypatch):
    """Swapped sizes, what never ends, and what leaves are passed over."""
    path = tmp_path / "my_transformer.py"
    source = yourfile.text(2, complete=True)
    path.write_text(source, "utf8")
    sizes = source.replace(
        "nn.Linear(d_model, vocab_size", "nn.Linear(vocab_size, d_model"
    )
    assert sizes != source
    endings = [sizes, "import os\nos._exit(0)\n", source]
    made = [task.Change(n, "", "", text) for n, text in enumerate(endings)]
    monkeypatch.setattr(task, "ordered", lambda *_: made)
    assert task.drawn(path, "a") == made[2]
    monkeypatch.setattr(task, "ordered", lambda *_: made[:2])
    with pytest.raises(ValueError, match="a file that trains: got"):
        task.drawn(path, "a")


@pytest.mark.parametrize("chapter", [1, 2])
def test_a_dozen_changes_train(options, chapter):
    """In the two chapters that have the fewest."""
    tried = (trial_child.can_be_trained(c.source) for c in options(chapter))
    trained = failed = 0
    while trained < 12 or not failed:  # the control: some cannot
        good = next(tried)
        trained, failed = trained + good, failed + (not good)


@pytest.mark.parametrize("chapter", yourfile.STEPS)
def test_neighbors_rarely_get_the_same_change(options, chapter):
    """Of the changes of each chapter there are a dozen at least."""
    found = options(chapter)
    assert len({change.source for change in found}) == len(found)
    assert len(found) >= 12
    plain = ast.unparse(ast.parse(yourfile.text(chapter, complete=True)))
    for change in found:
        assert ast.unparse(ast.parse(change.source)) != plain, change


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "x = x + self.norm(y)",
            {
                "x - self.norm(y)",
                "x",
                "self.norm(y)",
                "y",
                "self.norm(y) * 2",
                "self.norm(y) / 2",
            },
        ),
        ("a = 0.5 / b", {"0.5 * b", "0.5", "1.0 / b", "0.25 / b"}),
        ("a = f(-b, bias=False)", {"b", "True"}),
        ("a = p.mean(0) == 2", {"p.mean(0) != 2", "p.sum"}),
        ("a = (p - q).abs()", {"p - q", "p + q", "p"}),
        ("a = torch.exp(p)", {"p"}),
        ("a = f(b, c, g=d)", {"f(c, b, g=d)", "f(b, c)"}),
        ("a = b[:, :-1], b[:, 1:]", {"(b[:, 1:], b[:, :-1])", "1:", ":-1"}),
        ("if not a in b:\n    c += d", {"a in b", "c = d", "c += 1"}),
        ("if a not in b:\n    c.step()", {"a in b", "pass"}),
        ("while len(a) < b:\n    a = b", {"len(a) <= b", "len(a) < b // 2"}),
        ("for a in b.items():\n    a = b", {"reversed(b.items())"}),
        ("super().__init__()", set()),
        ("a = f(b)", set()),  # the control: nothing to change
    ],
)
def test_what_becomes_of_a_line(line, expected):
    found = {
        ast.unparse(other)
        for node in ast.walk(ast.parse(line))
        for other in (*task.others(node), *task.more(node))
    }
    assert found == expected


# -- the prediction ----------------------------------------------------------
def test_a_prediction_is_kept_with_its_hash(file, capsys):
    words = ["kit", "task", str(file), "--student", "a"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert cli.main([*words, "--predict", "0.25"]) == 0
    out = capsys.readouterr().out
    kept = json.loads(file.with_name("my_transformer.task.json").read_text())
    assert kept["expected"] == 0.25
    assert kept["file"] == hashlib.sha256(file.read_bytes()).hexdigest()
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False)
    where = file.with_name("my_transformer.task.json")
    assert out.startswith(f"{shown}kept in {where}; send your teacher")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert out.endswith(f" before the run:\n{digest}\n")


@pytest.mark.parametrize(
    ("prepare", "words", "says"),
    [
        ("", ["--run"], "a prediction comes before the run"),
        ("edit", ["--run"], "the file is that of the prediction"),
        ("report", ["--predict", "1"], "a prediction is made before the run"),
        ("", ["--predict", "nan"], "a difference in nats: got nan"),
        ("break", [], "a task needs a file that runs"),
        ("empty", [], "where none can be changed"),
        ("stub", [], "is still to be written"),
    ],
)
@pytest.mark.usefixtures("forked_children")
def test_what_cannot_be_done_is_refused(file, capsys, prepare, words, says):
    if prepare == "edit":
        task.predict(file, "a", 0.1)
        file.write_text(file.read_text("utf8") + "# later\n", "utf8")
    elif prepare == "report":
        file.with_name("my_transformer.task.md").write_text("")
    elif prepare == "break":
        file.write_text("def f(:\n")
    elif prepare == "stub":
        file.write_text(yourfile.text(0), "utf8")
    elif prepare == "empty":
        file.write_text("x = 1\n")
    assert cli.main(["kit", "task", str(file), "--student", "a", *words]) == 2
    assert says in capsys.readouterr().err


# -- the run -----------------------------------------------------------------
@pytest.mark.usefixtures("forked_children")
def test_the_run_measures_both_files(file, monkeypatch):
    """The change is set here: a loss with `+` for `-` is told by its sign."""
    source = file.read_text("utf8")
    old = "log_softmax(-1)"
    assert source.count(old) == 1
    line = source[: source.index(old)].count("\n") + 1
    change = task.Change(
        line, old, "log_softmax(-2)", source.replace(old, "log_softmax(-2)")
    )
    monkeypatch.setattr(task, "drawn", lambda *_: change)
    digest = task.predict(file, "a", -0.5)
    text = task.run(file, "a", seconds=2)
    assert file.with_name("my_transformer.task.md").read_text("utf8") == text
    assert f"SHA-256 `{digest}`" in text
    assert "| **predicted** | **-0.500** |" in text
    losses = re.findall(r"steps\) \| ([\d.]+) \|", text)
    plain, changed = map(float, losses)
    assert 2.4 < plain < 3.5  # between the best table and a blind guess
    assert changed > plain
    assert "Stopped by: Loss: " in text
    assert text.count("\n1. ") == text.count("\n3. ") == 1
    assert f"{plain:.3f} without, {changed:.3f} with" in text


def test_the_questions_have_the_runs_own_numbers():
    change = task.Change(7, "a - b", "a + b", "")
    made = task.Prediction("", "", 0.125, "", "")
    plain = {"loss": 2.0, "stopped": "", "steps": 300}
    other = {"loss": None, "stopped": "Loss", "steps": 0, "reason": "Why."}
    asked = task.questions(change, made, plain, other)
    assert "+0.12" in asked[0].ask
    assert "2.000 without, no loss with" in asked[0].answer
    assert asked[1].answer == "Loss. Why."
    assert "e^2.00 = 7.4" in asked[2].answer  # by hand: 7.389
    assert "ln 66 = 4.19" in asked[2].answer
