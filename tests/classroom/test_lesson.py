"""The file of every chapter: it runs, it learns, it looks at no answer."""

import contextlib
import io
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch

from coursekit import minimal
from coursekit_classroom import lesson, stages
from coursekit_classroom.edits import EDITS
from coursekit_classroom.notebooks import plain
from results.ladder import CONTROLS, RUNGS, build
from results.take_away import MODELS

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = range(lesson.LAST_CHAPTER + 1)
TEXT = (
    "ROMEO:\nBut soft! What light through yonder window breaks?\n"
    "It is the east, and Juliet is the sun. Arise, fair sun, and kill\n"
    "the envious moon, who is already sick and pale with grief.\n"
) * 20


def make(file, vocab_size, chapter):
    """A small model of a chapter's file, with distinct sizes."""
    if chapter < 2:
        return file.Model(vocab_size, 11)
    if chapter < 9:
        return file.Model(vocab_size, 11, 28)
    return file.GPT(vocab_size, 11, 28, n_heads=4, n_blocks=3)


# -- the cells of readers' notebooks -----------------------------------------
def lessons():
    """What each ``{lesson}`` of the book names: parts, chapter, edit."""
    for path in sorted((ROOT / "book").rglob("*.md")):
        text = path.read_text("utf8")
        if "{lesson}" in text:
            name = path.relative_to(ROOT).with_suffix("").as_posix()
            page = plain.Page(None, name, nbformat.v4.new_notebook())
            for _, said in plain.cut(text, "lesson"):
                if said:
                    yield name, page.lesson(said)


def test_each_lesson_is_a_cell_that_runs():
    """By itself; a page's cells and other lessons may define what it uses."""
    known = {("book/15_modern", "rotate")}  # the lesson before defines it
    found = list(lessons())
    assert len(found) > 40
    for page, said in found:
        names = {name for where, name in known if where == page}
        exec(plain.lesson_cell(*said, names), {"__name__": "cell"})


def test_a_lesson_brings_what_the_finished_file_lacks():
    """Chapter 6 takes `Head` out again, which chapter 5's model uses."""
    cell = plain.lesson_cell(["Model.forward"], 5)
    assert "class Head(nn.Module)" in cell
    [imported] = re.findall("from coursekit.minimal import (.*)", cell)
    assert "Head" not in imported.split(", ")
    assert not hasattr(minimal, "Head")  # the control
    # What is still there is imported: it need not be said once more.
    assert "class Block" not in plain.lesson_cell(["GPT"], 9)


# -- each chapter's file -----------------------------------------------------
@cache
def start(chapter):
    """Held-out loss of a chapter's model before training."""
    torch.manual_seed(0)
    file = lesson.load(chapter)
    tokenizer = file.CharTokenizer(TEXT)
    ids = torch.tensor(tokenizer.encode(TEXT))
    model = build(file, len(tokenizer.vocabulary), chapter)
    return file.evaluate(model, ids[len(ids) * 9 // 10 :])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_file_runs_and_learns(chapter, tmp_path, monkeypatch):
    source, n = re.subn(r"steps=2000\)", "steps=15)", lesson.text(chapter))
    assert n == 1
    source = source.replace("[None, :1], 500", "[None, :1], 70")
    (tmp_path / "my_transformer.py").write_text(source, "utf8")
    (tmp_path / "text.txt").write_text(TEXT, "utf8")
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "text.txt")])
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(tmp_path / "my_transformer.py"), {}, "__main__")
    first, sample = out.getvalue().split("\n", 1)
    loss = float(re.search(r"held-out loss: ([\d.]+)", first)[1])
    assert loss < start(max(0, chapter - 1)) - 0.01
    assert len(sample) == 72
    assert set(sample) <= set(TEXT)


def test_chapter_12_and_later_have_the_whole_file():
    whole = Path(minimal.__file__).read_text("utf8")
    assert lesson.text(12) == lesson.text(19) == whole
    assert lesson.text(11) != whole


def test_the_files_are_formatted_and_import_what_they_use(tmp_path):
    for chapter in CHAPTERS:
        file = tmp_path / f"chapter_{chapter}.py"
        file.write_text(lesson.text(chapter), "utf8")
    config = f"--config={Path(__file__).parents[2] / 'pyproject.toml'}"
    ruff = [sys.executable, "-m", "ruff"]
    commands = [["format", "--check", config], ["check", config]]
    for command in commands:
        done = run([*ruff, *command, "."], tmp_path)
        assert done.returncode == 0, done.stdout
    # The control: an import that nobody needs, and a line too long.
    planted = f"import os\n{lesson.text(4)}x = {'1 + ' * 30}1\n"
    (tmp_path / "planted.py").write_text(planted, "utf8")
    for command in commands:
        assert run([*ruff, *command, "."], tmp_path).returncode == 1


def run(command, folder):
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_earlier_form_is_used():
    defined = {
        name
        for name, thing in vars(stages).items()
        if getattr(thing, "__module__", "") == stages.__name__
    }
    used = {
        f"{name}{form}"
        for name, forms in lesson.FORMS.items()
        for form in forms.values()
        if isinstance(form, int) and name != "script"
    }
    assert defined == used


def test_what_chapter_12_adds_is_taken_back_everywhere():
    whole = Path(minimal.__file__).read_text("utf8")
    for new, _ in lesson.UNCACHE:
        assert new in whole
    assert "past" in lesson.text(12)
    for chapter in range(12):
        assert "past" not in lesson.text(chapter)


# -- no model sees an answer -------------------------------------------------
def leak(file, chapter):
    """How far a later token changes earlier logits, and later ones."""
    torch.manual_seed(0)
    model = make(file, 13, chapter).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape))
    ids = torch.randint(13, (3, 11))
    changed = ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 13
    difference = (model(ids) - model(changed)).abs().amax((0, 2))
    return difference[:5].max().item(), difference[5:].tolist()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_token_sees_a_later_one(chapter):
    before, after = leak(lesson.load(chapter), chapter)
    assert before == 0.0
    assert after[0] > 1e-3
    looks = chapter >= 4
    assert all((x > 1e-9) == looks for x in after[1:])


@pytest.mark.parametrize("chapter", range(4, 13))
@pytest.mark.parametrize(
    "edit",
    [
        ("    scores = scores.masked_fill(~mask, -math.inf)\n", ""),
        (".tril(n_keys - n_queries)", ".tril(n_keys - n_queries + 1)"),
    ],
    ids=["no mask", "off by one"],
)
def test_a_wrong_mask_is_noticed(chapter, edit):
    before, _ = leak(lesson.load(chapter, [edit]), chapter)
    assert before > 1e-6


# -- what is new -------------------------------------------------------------
def common(a, b):
    """Length of the longest common subsequence, by the textbook's table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else best
    return table[-1][-1]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_exactly_the_changed_lines_are_new(chapter):
    for name in lesson.parts(chapter):
        now = lesson.part(name, chapter).splitlines()
        filled = [i for i, line in enumerate(now, 1) if line.strip()]
        marked = lesson.new_lines(name, chapter)
        before = []
        if chapter and name in lesson.parts(chapter - 1):
            before = lesson.part(name, chapter - 1).splitlines()
        before = [line for line in before if line.strip()]
        kept = [now[i - 1] for i in filled if i not in marked]
        assert marked <= set(filled)
        # What is not marked was there, in this order, and no more was.
        assert common(kept, before) == len(kept), name
        lines = [now[i - 1] for i in filled]
        assert len(kept) == common(lines, before), name


def test_what_chapter_11_adds_by_hand():
    part = lesson.part("train", 11).splitlines()
    new = [part[i - 1].strip() for i in sorted(lesson.new_lines("train", 11))]
    assert "nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in new
    assert 'group["lr"] = learning_rate(step, steps)' in new
    assert "loss.backward()" not in new
    assert lesson.new_lines("attention", 11) == set()
    assert lesson.new_lines("learning_rate", 11) == set(range(1, 7))


def test_a_method_is_a_part_too():
    method = lesson.part("GPT.forward", 12)
    assert method.startswith("    def forward(self, ids, past=None):")
    assert method.endswith("# (B, T, V)")
    assert "past" not in lesson.part("GPT.forward", 9)
    n = len(lesson.part("GPT.forward", 9).splitlines())
    assert lesson.new_lines("GPT.forward", 9) == set(range(1, n + 1))


# -- errors ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "received"),
    [
        (lambda: lesson.parts(-1), "got -1"),
        (lambda: lesson.text(-1), "got -1"),
        (lambda: lesson.load(-2), "got -2"),
        (lambda: lesson.part("GPT", 8), "got 'GPT'"),
        (lambda: lesson.part("nope", 8), "got 'nope'"),
        (lambda: lesson.part("GPT.nope", 9), "got 'GPT.nope'"),
        (lambda: lesson.part("merge.nope", 9), "got 'merge.nope'"),
        (lambda: lesson.part("Head", 6), "got 'Head'"),
        (lambda: lesson.new_lines("GPT", 3), "got 'GPT'"),
        (lambda: lesson.load(4, [("no such text", "")]), "got 0 times"),
        (lambda: lesson.load(4, [("self.query", "")]), r"got \d times"),
    ],
)
def test_errors_say_what_they_received(call, received):
    with pytest.raises(ValueError, match=received):
        call()


def test_an_edit_changes_one_module_alone():
    edited = lesson.load(4, [("/ math.sqrt(q.size(-1))", "")])
    plain = lesson.load(4)
    q = torch.ones(1, 1, 4)
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert torch.equal(edited.attention(q, q, q, mask), q)
    assert plain.attention is not lesson.load(4).attention
    assert edited.__name__ == "coursekit_classroom.lesson.chapter_4"
    assert "sqrt" in lesson.text(4)


# -- the results that are made of edits --------------------------------------
def test_each_rung_is_one_chapter():
    chapters = [chapter for _, _, chapter in RUNGS]
    assert chapters == sorted(set(chapters))
    sizes = []
    for _, _, chapter in RUNGS:
        model = build(lesson.load(chapter), 67, chapter)
        sizes.append(sum(p.numel() for p in model.parameters()))
    assert len(set(sizes)) == len(sizes)
    # No chapter that changes the model is left out: 5 opens the mask, and
    # in 10 to 12 training and generation change.
    changed = [
        k
        for k in range(1, 10)
        if lesson.new_lines("GPT" if k > 8 else "Model", k)
    ]
    assert chapters == [0, *changed]


@pytest.mark.parametrize(
    ("chapter", "edits"),
    [(chapter, edits) for _, chapter, edits in CONTROLS]
    + [(9, edits) for _, _, edits in MODELS],
)
def test_the_edits_of_results_apply(chapter, edits):
    """Exactly once each, or load would raise; what is left still runs."""
    torch.manual_seed(0)
    ids = torch.randint(13, (2, 7))
    out = make(lesson.load(chapter, edits), 13, chapter)(ids)
    torch.manual_seed(0)
    ids = torch.randint(13, (2, 7))
    whole = make(lesson.load(chapter), 13, chapter)(ids)
    assert out.shape == whole.shape == (2, 7, 13)
    assert torch.equal(out, whole) == (edits == [])


# -- edits, and the second file ----------------------------------------------
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_runs(edit):
    model = lesson.load(12, EDITS[edit]).GPT(13, 11, 24, n_heads=4, n_blocks=3)
    model(torch.tensor([[2, 3, 5]]))


@pytest.mark.parametrize("make", ["CharTokenizer", "BPETokenizer"])
def test_no_token_of_a_text_is_the_one_that_hides(make):
    file = lesson.load(12, EDITS["masked_language_model"])
    text = "to be\nor not\n" * 20
    tokenizer = getattr(file, make)(text, *[270][: make == "BPETokenizer"])
    ids = torch.tensor(tokenizer.encode(text))
    assert tokenizer.decode(ids.tolist()) == text
    inputs, targets, hidden = file.get_batch(ids, 50, 7)
    assert torch.equal(inputs == 0, hidden)
    assert torch.equal(inputs[~hidden], targets[~hidden])
    assert 0 < hidden.float().mean() < 0.3


def test_an_edit_as_a_diff():
    lines = lesson.diff("GPT.forward", "no_mask")
    before = [line for mark, line in lines if mark != "+"]
    after = [line for mark, line in lines if mark != "-"]
    assert before == lesson.part("GPT.forward", 12).splitlines()
    assert [mark for mark, _ in lines if mark != " "] == ["-", "+"]
    new = "        mask = torch.ones(1, end, dtype=torch.bool)"
    assert [line for line in after if line not in before] == [new]
    # A part that the edit does not change has no marks; others don't exist.
    assert {mark for mark, _ in lesson.diff("Block", "no_mask")} == {" "}
    with pytest.raises(ValueError, match="needs the part"):
        lesson.diff("Blob", "no_mask")
    with pytest.raises(ValueError, match="an edit is one of"):
        lesson.diff("GPT", "no_masks")


def test_chapters_13_and_14_write_the_second_file():
    assert lesson.file_of("Encoder", 13) == "minimal_seq2seq.py"
    assert "memory_mask" in lesson.part("DecoderBlock.forward", 14)
    with pytest.raises(ValueError, match="after chapter 13 the file has"):
        lesson.part("DecoderBlock", 13)
    for name, chapter in [("train", 13), ("train", 15), ("Block", 14)]:
        assert lesson.file_of(name, chapter) == "minimal.py"
    assert "pairs" in lesson.part("train", 14)
    assert "pairs" not in lesson.part("train", 13)
    every = range(1, len(lesson.part("Encoder", 13).splitlines()) + 1)
    assert len(lesson.new_lines("Encoder", 13)) > 0.8 * len(every)
    assert lesson.new_lines("Encoder", 14) == set()
