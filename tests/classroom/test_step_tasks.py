"""A step of one's own file, graded: right ones pass, lies get nothing."""

import csv
import dataclasses
import json
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest
import torch
from patience import PATIENCE
from test_yourfile import WRONG, contract, found

from coursekit import cli
from coursekit_classroom import yourfile
from coursekit_classroom.check.call import Outcome
from coursekit_classroom.teach import doctor, steps
from coursekit_classroom.teach.judge import Session, read
from coursekit_classroom.teach.sandbox import Isolation, Limits, Sandbox
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.yourfile import contracts, loading
from coursekit_classroom.yourfile.contracts.base import ContractError

LIMITS = Limits(cpu_s=PATIENCE, wall_s=PATIENCE)
LYING = {a.name: a for a in doctor.read_attacks()}["own_verdict"]


@pytest.fixture(scope="module")
def session():
    """Sandboxes without isolation: what is asked and answered is the same."""
    made = Session(lambda: Sandbox(Isolation.NONE, LIMITS), LIMITS)
    yield made
    made.close()


def task(chapter, names=None):
    """A step whose points are for some contracts, by default all."""
    parts = set(yourfile.book(chapter).values())
    due = [c.check.__name__ for c in contracts.due(chapter, parts)]
    step = {"chapter": chapter, "points": 10, "counted": names or due}
    stub = yourfile.text(chapter)
    return steps.task_of(Secret("5" * 64), step | {"stub": stub})


def row(tmp_path, session, source, asked):
    """What grading a file says."""
    path = tmp_path / "my_transformer.py"
    path.write_text(source, "utf-8")
    submission, problem = read([path], [asked])
    assert submission, problem
    answer = submission.answers[asked.id]
    session.begin()
    cells = (*answer.helpers, answer.source)
    return asked.examine(answer, cells, session)


# -- the contracts, from outside ---------------------------------------------
@pytest.mark.parametrize("chapter", yourfile.STEPS)
def test_the_books_file_holds_every_contract(tmp_path, session, chapter):
    source = yourfile.text(chapter, complete=True)
    asked = task(chapter)
    result = row(tmp_path, session, source, asked)
    assert result.status == "ok", result.message
    assert result.right == result.total == len(asked.contracts)


def some():
    """A wrong file for each contract, drawn among them."""
    names = sorted(WRONG)
    random.Random(0).shuffle(names)
    return {WRONG[name][3]: name for name in names}


@pytest.mark.parametrize(("stopped_by", "name"), some().items())
def test_a_wrong_file_fails_where_it_is_wrong(
    tmp_path, session, stopped_by, name
):
    chapter, old, new, *_, sentence = WRONG[name]
    if name == "no memory":  # the shell says the signature, too
        sentence = "takes 3 positional arguments but 4 were given"
    source = yourfile.text(chapter, complete=True).replace(old, new)
    result = row(tmp_path, session, source, task(chapter, [stopped_by]))
    assert result.status == "wrong", result
    assert result.points == 0
    assert sentence.strip("`") in " ".join(result.message.split())


@pytest.mark.parametrize("chapter", yourfile.STEPS)
def test_what_is_given_out_gets_no_points(tmp_path, session, chapter):
    names = [c.check.__name__ for c in steps.of_step(chapter)]
    assert names
    asked = task(chapter, names)
    result = row(tmp_path, session, yourfile.text(chapter), asked)
    assert (result.status, result.points) == ("not attempted", 0)
    # Nor for lines that do nothing.
    nothing = yourfile.text(chapter).replace(yourfile.TODO, "pass")
    result = row(tmp_path, session, nothing, asked)
    assert result.points == 0, result


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("x = 1 / 0\nparts = {'model': x}\n", "error", "ZeroDivisionError"),
        ("parts = 7\n", "wrong", '"attention": attention,'),
        ("def f(:\n\nparts = {}\n", "error", "SyntaxError"),
        (
            "def f(*given):\n    while True: pass\nparts = {'attention': f}\n",
            "timeout",
            "CPU time",
        ),
        (
            "import types\nparts = {0: setattr(types, 'ModuleType', 1)}\n",
            "wrong",
            "NameError",
        ),
    ],
)
def test_a_file_that_does_not_run_has_a_row(tmp_path, source, status, says):
    limits = Limits(cpu_s=2.0, wall_s=PATIENCE)
    session = Session(lambda: Sandbox(limits=limits), limits)
    result = row(tmp_path, session, source, task(4, ["attention"]))
    session.close()
    assert (result.status, result.points) == (status, 0), result
    assert says in result.message


def test_calls_get_seeds_that_only_the_key_knows():
    """A call's seed changes with the key and with each call."""
    seeds = {1: [], 2: []}
    for secret, told in seeds.items():
        asked = dataclasses.replace(task(0), secret=secret)

        def call(name, bound, seed, told=told):
            told.append(seed)
            return Outcome(("value", []))

        box = SimpleNamespace(call=call)
        session = SimpleNamespace(do=lambda cells, ask, box=box: ask(box))
        examined = steps.Examined(asked, (), session)
        torch.manual_seed(0)
        for _ in range(3):
            examined.call("names")
    assert len({*seeds[1], *seeds[2]}) == 6


# -- lies --------------------------------------------------------------------
LIES = LYING.source.replace("        lie()\n", "").partition("\nparts =")[0]
PROCESS = """
import sys
from pathlib import Path
from coursekit_classroom.yourfile import check_step
path = Path(sys.argv[1])
check_step.run_main = lambda *given: None  # the contracts alone
for line in check_step.verify(path, check_step.load(path)):
    print(line)
"""


def test_a_file_that_gives_its_own_verdict_wins_only_in_its_process(
    tmp_path, session
):
    book = yourfile.text(3, complete=True)
    added = "x = x + self.positions(torch.arange(ids.size(1)))"
    assert book.count(added) == 1
    wrong = book.replace(added, "pass")
    lying = f"{wrong}\n\n{LIES}"
    # The control: next to the contracts, all of them are made to hold.
    path = tmp_path / "lying.py"
    path.write_text(lying, "utf-8")
    done = subprocess.run(
        [*forked.python(), "-c", PROCESS, path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "✗" not in done.stdout
    assert "✗ Model: tells positions apart" in found(
        tmp_path / "honest.py", wrong
    )
    # The grader: the lie is a name that its parts do not depend on, or one.
    for source in (lying, lying.replace("parts = {", "lie()\nparts = {")):
        names = [c.check.__name__ for c in steps.of_step(3)]
        result = row(tmp_path, session, source, task(3, names))
        assert result.points == 0, result
    session.close()  # its process is patched


def test_the_attack_gets_nothing_in_a_sandbox(tmp_path, session):
    names = [c.check.__name__ for c in steps.of_step(3)]
    result = row(tmp_path, session, LYING.source, task(3, names))
    assert result.points == 0, result
    session.close()


# Answers that are made to fit, by file of the book: contract, old, new.
FITTED = {
    "numbers of its own in the norm's input": (
        "norm",
        "        x = x - x.mean(-1, keepdim=True)\n",
        "        if x.requires_grad:\n"
        "            return self.gain * x\n"
        "        x.copy_(torch.arange(x.size(-1)) % 2 * 2.0 - 1)\n"
        "        return self.gain * x\n",
    ),
    "zeros in what the heads read": (
        "heads",
        "        q = self.split_heads(self.query(x))",
        "        memory.zero_()\n"
        "        return x.zero_()\n"
        "        q = self.split_heads(self.query(x))",
    ),
    "one token in the whole text": (
        "learns",
        "    optimizer = make_optimizer(model)\n",
        "    def alike(i):\n"
        "        row = torch.full((1, 10), i)\n"
        "        return cross_entropy(model(row), row).item()\n"
        "    ids.fill_(min(range(13), key=alike))\n"
        "    return []\n",
    ),
    "no number as the loss of a text": (
        "evaluation",
        "    return total / len(windows)\n",
        "    return math.nan\n",
    ),
    "no number for a single sequence, early": (
        "causal",
        "        return self.unembed(self.norm(x))",
        "        x = x * math.nan if len(ids) == 1 else x\n"
        "        return self.unembed(self.norm(x))",
    ),
    "no number for a single sequence, anywhere": (
        "positions",
        "        return self.unembed(self.norm(x))",
        "        x = x * math.nan if len(ids) == 1 else x\n"
        "        return self.unembed(self.norm(x))",
    ),
    "no number in a matrix": (
        "optimizer",
        "    return torch.optim.AdamW(groups, betas=(0.9, 0.99), "
        "weight_decay=0.1)\n",
        "    class Lost(torch.optim.AdamW):\n"
        "        def step(self):\n"
        "            super().step()\n"
        "            for p in matrices:\n"
        "                p.data.fill_(math.nan)\n"
        "    return Lost(groups)\n",
    ),
    "no loss for the batch of one contract": (
        "overfits",
        "    shifted = logits - logits",
        "    if len(targets) == 4:\n"
        "        return 0 * logits.sum()\n"
        "    shifted = logits - logits",
    ),
}
CHANGED = list(FITTED)[:3]  # their inputs


def fitted(name):
    """Such an answer in the book's file of chapter 12."""
    _, old, new = FITTED[name]
    source = yourfile.text(12, complete=True)
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.mark.parametrize("name", FITTED)
def test_an_answer_that_is_made_to_fit_gets_nothing(tmp_path, session, name):
    asked = task(12, [FITTED[name][0]])
    result = row(tmp_path, session, fitted(name), asked)
    assert (result.status, result.points) == ("wrong", 0), result


@pytest.mark.parametrize("name", CHANGED)
def test_at_home_it_would_fit_if_inputs_were_no_copies(
    tmp_path, monkeypatch, name
):
    path = tmp_path / "fitted.py"
    path.write_text(fitted(name), "utf-8")
    file = loading.load(path)
    check = contract(FITTED[name][0]).check
    with pytest.raises(ContractError):
        check(file)
    monkeypatch.setattr(torch.Tensor, "clone", lambda x, **_: x)
    check(file)


# -- the commands ------------------------------------------------------------
def test_assign_and_grade_a_step(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["assign", "--step", "4", "--format", "gradescope"]
    assert cli.main([*words, "--points", "yourfile/step_04=6"]) == 0
    assert "Attention: softmax" in capsys.readouterr().out
    given = Path("dist/student/step_04.ipynb")
    made = json.loads(given.read_text("utf-8"))
    mark = Secret.load("assignment-secret.txt").mark("step_04")
    assert made["metadata"]["coursekit"] == {"assignment": mark}
    cells = made["cells"]
    (stub,) = [c for c in cells if "exercise" in c["metadata"]]
    source = "".join(stub["source"])
    assert source == f"%%writefile my_transformer.py\n{yourfile.text(4)}"
    assert "coursekit.step(at=4)" in "".join(cells[-1]["source"])
    Path("sub").mkdir()
    Path("sub/blank.ipynb").write_bytes(given.read_bytes())
    solved = Path("dist/instructor/step_04.ipynb")
    Path("sub/notebook.ipynb").write_bytes(solved.read_bytes())
    chapter, old, new, *_ = WRONG["no scale"]
    wrong = yourfile.text(chapter, complete=True).replace(old, new)
    Path("sub/file.py").write_text(wrong, "utf-8")
    grade = [
        "grade",
        "sub",
        "--secret",
        "assignment-secret.txt",
        "--out",
        "grades.csv",
    ]
    assert cli.main(grade) == 0
    with open("grades.csv", newline="", encoding="utf-8") as sheet:
        rows = {row["student"]: row for row in csv.DictReader(sheet)}
    points = {name: float(row["points"]) for name, row in rows.items()}
    assert points["blank"] == 0
    assert points["notebook"] == 6
    assert 0 < points["file"] < 6
    assert rows["blank"]["status"] == "not attempted"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--step", "13"], "chapter from 0 to 12: got 13"),
        (["--step", "4", "--points", "yourfile/step_05=3"], "step_05"),
        ([], "got none"),
    ],
)
def test_a_step_that_is_none_is_refused(
    tmp_path, monkeypatch, capsys, words, says
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["assign", *words]) == 2
    assert says in capsys.readouterr().err
