"""A folder of submissions becomes the sheet that it should become.

``tests/submissions/corpus.py`` has the submissions and what is to come of
them; they go through the real sandbox.  What is about files, texts and
questions is tried on functions in this process, which is faster.
"""

import argparse
import csv
import hashlib
import inspect
import io
import json
import os
import random
import re
import shutil
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from in_process import InProcess

from coursekit_classroom.check import core
from coursekit_classroom.check.call import Outcome, Raised, call
from coursekit_classroom.check.checker import check
from coursekit_classroom.teach import (
    feedback,
    grade,
    judge,
    pages,
    programs,
    summary,
    unpack,
)
from coursekit_classroom.teach import sheet as gradebook
from coursekit_classroom.teach.collect import TWIN, apart, collect, naming
from coursekit_classroom.teach.deadline import Deadline
from coursekit_classroom.teach.grade import Batch
from coursekit_classroom.teach.judge import Task
from coursekit_classroom.teach.overrides import days_late
from coursekit_classroom.teach.plan import plan
from coursekit_classroom.teach.records import (
    STATUSES,
    Graded,
    Result,
    graded,
)
from coursekit_classroom.teach.sandbox import (
    Isolation,
    Limits,
    Sandbox,
    SandboxError,
    Usage,
    best,
)
from coursekit_classroom.teach.secret import Secret, derived
from coursekit_classroom.teach.standalone import standalone
from coursekit_classroom.teach.unpack import places
from coursekit_classroom.teach.worker import Worker
from coursekit_classroom.teach.write import (
    COLUMNS,
    Files,
    cell,
    out_of_cell,
    write_all,
)
from tests.submissions import corpus
from tests.submissions.corpus import ATTEND, MENDED, RIGHT, RIGHT_MENDED

KEY = "5e" * 32
LIMITS = Limits(cpu_s=1.0, wall_s=60.0)
ASSIGNMENT = {"page": "04_attention", "exercises": corpus.EXERCISES}


# -- what the tests share ----------------------------------------------------
class Here:
    """Stands in for a sandbox: runs in this process."""

    usage = Usage(0.0, 0.0, 0)
    left = 1.0, 1.0

    def begin(self, *_):
        pass

    def run(self, cells):
        self.space, failed = {}, {}
        for number, source in enumerate(cells):
            try:
                exec(compile(source, "<cell>", "exec"), self.space)
            except Exception as error:
                failed[number] = Raised(type(error).__name__, str(error))
        return failed

    def call(self, function, arguments, seed=0, watched=False, forbid=()):
        found = call(self.space.get(function), arguments, seed, watched)
        error = found.error
        if error is None:
            return found
        if isinstance(error, TimeoutError):
            raise SandboxError("timeout", "it took more than 1 s of CPU time")
        said = Raised(type(error).__name__, str(error))
        return Outcome(None, found.arguments, said)

    def look(self, function):
        found = self.space.get(function)
        return None if found is None else (callable(found), False)

    def close(self):
        pass


def batch(tmp_path, entries, take=Here, key=None, name="grades.csv"):
    """Grade some submissions, and write everything."""
    folder = tmp_path / "submissions"
    if not folder.exists():
        corpus.build(folder, entries)
    files = Files(tmp_path / name, tmp_path / "feedback")
    there = places(folder, None, tmp_path / "unpacked")
    asked = plan(key or Secret(KEY, {"attention": ASSIGNMENT}), there)
    isolation = best() if take is None else Isolation.NONE
    worker = Worker(isolation, LIMITS)
    if take:
        worker = InProcess(isolation, LIMITS, take)
    return Batch(asked, collect(there, None, asked.class_), files, worker)


def finished(tmp_path, entries, **options):
    """The batch, and its rows by student and exercise."""
    found = batch(tmp_path, entries, **options)
    done, whole = found.grade()
    assert whole
    written(found, done)
    return found, {(r["student"], r["exercise"]): r for r in rows(found)}


def written(found, done):
    """Write everything."""
    write_all(done, found.files, found.plan.secret.id, found.version)


def rows(found):
    text = found.files.sheet.read_text("utf8")
    return list(csv.DictReader(io.StringIO(text)))


def entry(name, attend, mended=RIGHT_MENDED):
    data = corpus.answered(attend, mended)
    return corpus.Entry(
        name, "", {f"{name}.ipynb": data}, corpus.OK, corpus.OK
    )


RIGHT_ONE = entry("ada", RIGHT)
WRONG_ONE = entry("bob", corpus.NOT_SCALED)


# -- the corpus, in the real sandbox -----------------------------------------
def can_run(one, isolation=None):
    """What only bubblewrap contains starts nowhere else."""
    return not one.needs or one.needs == (isolation or best())


class Shared(Sandbox):
    """A sandbox that goes to the next student; none of them does harm."""

    def close(self):
        if self.failure:
            super().close()


@pytest.fixture(scope="module")
def shared():
    """What examines the harmless, in one sandbox: its start takes 2 s."""
    box = Shared(limits=LIMITS)
    yield InProcess(best(), LIMITS, lambda: box)
    Sandbox.close(box)


def examiner(worker, shared):
    """What examines a student: the hostile in sandboxes of their own."""
    harmless = {one.name for one in corpus.ENTRIES if one.kind != "hostile"}
    alone = worker.grade
    return lambda student, *rest: (
        shared.grade if student in harmless else alone
    )(student, *rest)


@pytest.fixture(scope="module")
def corpus_batch(tmp_path_factory, shared):
    """The corpus, graded once: interrupted in the middle, and resumed."""
    tmp_path = tmp_path_factory.mktemp("corpus")
    entries = [one for one in corpus.ENTRIES if can_run(one)]
    first, asked = batch(tmp_path, entries, None), []
    examine = examiner(first.worker, shared)

    def until_interrupted(*args):
        if len(asked) == 25:
            raise KeyboardInterrupt
        asked.append(args[0])
        return examine(*args)

    first.worker.grade = until_interrupted
    done, whole = first.grade()
    assert not whole
    assert 5 < len(done) < len(entries)
    assert not first.files.sheet.exists()

    asked_again = []
    second = batch(tmp_path, entries, None)
    second.code = first.code  # somebody may be at work on it just now
    examine_again = examiner(second.worker, shared)

    def watched(student, *rest):
        asked_again.append(student)
        return examine_again(student, *rest)

    second.worker.grade = watched
    class_, whole = second.grade()
    assert whole
    kept = {student.student for student in done}
    assert kept.isdisjoint(asked_again)
    assert len(kept) + len(asked_again) == len(class_) == len(entries)
    written(second, class_)
    return second, entries, class_


def test_the_corpus_has_all_kinds():
    kinds = [one.kind for one in corpus.ENTRIES]
    assert len(kinds) >= 36
    for kind in ("right", "wrong", "hostile", "broken"):
        assert kinds.count(kind) >= 7
    names = [one.name for one in corpus.ENTRIES]
    assert len(names) == len(set(names))


def test_every_submission_gets_what_it_should(corpus_batch):
    found, entries, _ = corpus_batch
    sheet = {
        (r["student"], r["exercise"]): (
            r["status"],
            float(r["points"]),
            r["diagnosis"],
        )
        for r in rows(found)
    }
    wanted = {
        (one.name, id): row
        for one in entries
        for id, row in ((ATTEND, one.attend), (MENDED, one.mended))
    }
    wrong = {
        at: f"expected {row}, got {sheet.get(at)}"
        for at, row in wanted.items()
        if sheet.get(at) != row
    }
    assert wrong == {}
    assert len(sheet) == len(wanted)


def test_what_could_not_be_contained_was_left_out(corpus_batch):
    out = [one.name for one in corpus.ENTRIES if not can_run(one)]
    if out:
        pytest.skip(f"only bubblewrap contains {', '.join(out)}")
    assert len(corpus_batch[1]) == len(corpus.ENTRIES)


@pytest.mark.parametrize("isolation", [Isolation.LANDLOCK, Isolation.NONE])
def test_what_does_damage_starts_under_bubblewrap_alone(isolation):
    started = "".join(
        data.decode("latin-1")
        for one in corpus.ENTRIES
        if can_run(one, isolation)
        for data in one.files.values()
    )
    for damage in ("os.fork", "12 << 27", "/tmp/{number}", "getppid"):
        assert damage in "".join(corpus.BODIES.values())
        assert damage not in started


def test_the_sheet_says_who_used_the_library(corpus_batch):
    found, entries, _ = corpus_batch
    used = {
        r["student"]: r["used_library"]
        for r in rows(found)
        if r["exercise"] == ATTEND
    }
    wrong = [one.name for one in entries if used[one.name] != one.used]
    assert wrong == []
    assert any(used.values())
    text = (found.files.feedback / "right-library.md").read_text("utf8")
    assert "ForbiddenError: this exercise asks you to write it" in text


def test_grading_again_gives_the_same_bytes(corpus_batch, tmp_path):
    before, entries, _ = corpus_batch
    some = entries[::6]
    again = batch(tmp_path, some, None)
    class_, _ = again.grade()
    written(again, class_)
    names = {one.name for one in some}
    lines = before.files.sheet.read_bytes().splitlines(keepends=True)
    same = [
        line
        for n, line in enumerate(lines)
        if n == 0 or line.decode().partition(",")[0] in names
    ]
    assert again.files.sheet.read_bytes() == b"".join(same)
    for name in names:
        for ending in (".md", ".html"):
            one, other = (
                (b.files.feedback / (name + ending)).read_bytes()
                for b in (before, again)
            )
            assert one == other


def test_the_summary_of_the_corpus(corpus_batch):
    found, entries, _ = corpus_batch
    text = found.files.sheet.with_name("summary.md").read_text("utf8")
    n = sum("no_scale" in one.attend[2].split("+") for one in entries)
    assert n >= 2
    assert f"{n} of {len(entries)}: the scores without 1/√D\\_h" in text
    seconds = csv.DictReader(found.files.timing.open())
    assert len(list(seconds)) == len(entries)


# -- the sheet ---------------------------------------------------------------
def test_a_row_has_the_columns_of_the_contract(tmp_path):
    found, by = finished(tmp_path, [RIGHT_ONE, WRONG_ONE])
    row = by["bob", ATTEND]
    assert tuple(row) == COLUMNS
    assert row["points"] == "1.20"
    assert row["max_points"] == "6"
    assert row["diagnosis"] == "no_scale"
    assert row["isolation"] == "none"
    assert row["secret_id"] == found.plan.secret.id
    assert re.fullmatch("[0-9a-f]{64}", row["notebook_sha256"])


def test_everybody_on_the_roster_gets_rows(tmp_path):
    students = {"zoe": {"name": "Zoe"}, "ada": {"name": "Ada"}}
    key = Secret(KEY, {"a": ASSIGNMENT | {"students": students}})
    _, by = finished(tmp_path, [RIGHT_ONE], key=key)
    assert by["zoe", ATTEND]["status"] == "not attempted"
    assert by["zoe", ATTEND]["points"] == "0.00"
    assert by["ada", ATTEND]["status"] == "ok"


def test_a_name_that_a_system_has_changed_is_known(tmp_path):
    """Decomposed letters, and what the roster's file names do not have."""
    students = {"jos\u00e9": {"name": "José"}, "ada_b": {"name": "Ada B."}}
    key = Secret(KEY, {"a": ASSIGNMENT | {"students": students}})
    entries = [entry("jose\u0301", RIGHT), entry("ada b", RIGHT)]
    _, by = finished(tmp_path, entries, key=key)
    assert {s for s, _ in by} == set(students)
    assert {r["status"] for r in by.values()} == {"ok"}


CLASS = {
    "s1": {"name": "Ana Right"},
    "bob": {"name": "Bob Stone"},
    "kim-2": {"name": "Kim Álvarez Ruiz"},
    "s4": {"name": "Lee Wu"},
    "s5": {"name": "Lee Wu"},
}
HANDED_IN = [  # --names, what lies in the folder, and whose it is
    (None, "s1.ipynb", "s1"),
    (None, "BOB.ipynb", "bob"),
    (None, "bob (1).ipynb", "bob"),
    (None, "bob-1.ipynb", "bob"),
    (None, "kim-2.ipynb", "kim-2"),
    (None, "Kim-2-1/any.ipynb", "kim-2"),
    (None, "Ana Right/any.ipynb", "s1"),
    (None, "Lee Wu.ipynb", "Lee Wu"),  # there are two
    (None, "eve.ipynb", "eve"),
    ("moodle", "Ana Right_12345_assignsubmission_file_/any.ipynb", "s1"),
    ("moodle", "Bob Stone_4_assignsubmission_file/any.ipynb", "bob"),
    ("moodle", "Ana Right_12345_assignsubmission_file_any.ipynb", "s1"),
    ("moodle", "s4.ipynb", "s4"),
    ("moodle", "Eve Wrong_7_assignsubmission_file_/a.ipynb", "Eve Wrong"),
    ("canvas", "rightana_4321_987654_04_attention.ipynb", "s1"),
    ("canvas", "rightana_LATE_4321_987654_04_attention-1.ipynb", "s1"),
    ("canvas", "alvarezruizkim_11_13_any.ipynb", "kim-2"),
    ("canvas", "wronganna_11_13_any.ipynb", "wronganna"),
    (r"^hw3_(\w+)", "hw3_BOB.ipynb", "bob"),
]


@pytest.mark.parametrize(("names", "path", "student"), HANDED_IN)
def test_whose_a_submission_is(tmp_path, names, path, student):
    one = replace(RIGHT_ONE, files={path: RIGHT_ONE.files["ada.ipynb"]})
    corpus.build(tmp_path / "submissions", [one])
    pattern = naming(names) if names else None
    there = places(tmp_path / "submissions", pattern, None)
    found = collect(there, pattern, CLASS)
    assert [s for s, paths in found.students.items() if paths] == [student]
    assert set(found.students) == {*CLASS, student}


def test_without_a_roster_a_case_is_no_other_student(tmp_path):
    """And a number at the end is part of an id, a copy's is not."""
    names = ["kim-1", "kim-2", "Bob", "bob (2)", "BOB"]
    found = batch(tmp_path, [entry(name, RIGHT) for name in names])
    students = found.collected.students
    assert set(students) == {"kim-1", "kim-2", "BOB"}
    assert len(students["BOB"]) == 3


def test_who_is_on_no_roster_is_named(tmp_path, in_process, capsys):
    entries = [entry(name, RIGHT) for name in ("bob", "eve", "mallory")]
    corpus.build(tmp_path / "submissions", entries)
    graded = {"a": ASSIGNMENT | {"students": CLASS}}
    assert grade.run(command(tmp_path, assignments=graded)) == 0
    said = capsys.readouterr().out
    assert "2 submissions belong to nobody on the roster: eve, mallory" in said
    (tmp_path / "submissions" / "mallory.ipynb").unlink()
    assert grade.run(command(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "1 submission belongs to nobody on the roster: eve. " in said
    (tmp_path / "submissions" / "eve.ipynb").unlink()
    assert grade.run(command(tmp_path)) == 0
    assert "nobody" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "said"),
    [("([", "moodle, canvas or"), ("hw3_", "which has none. Put paren")],
)
def test_a_pattern_names_a_student(tmp_path, capsys, names, said):
    with pytest.raises(SystemExit):
        command(tmp_path, "--names", names)
    assert said in capsys.readouterr().err


WRONG = corpus.NOT_SCALED


@pytest.mark.parametrize(
    ("older", "newer", "seconds"),
    [
        ("04_attention", "04_attention-1", 0),
        ("04_attention", "04_attention-1", -7),  # whatever the clock says
        ("04_attention-2", "04_attention-11", 0),
        ("04_attention", "04_attention (1)", 0),
        ("b", "a", 7),
        ("a-Copy1", "a", 7),
    ],
)
def test_of_two_versions_the_newer_counts(tmp_path, older, newer, seconds):
    one = replace(
        RIGHT_ONE,
        files={
            f"ada/{older}.ipynb": corpus.answered(WRONG),
            f"ada/{newer}.ipynb": corpus.answered(RIGHT),
        },
    )
    corpus.build(tmp_path / "submissions", [one])
    at = corpus.WRITTEN + seconds
    os.utime(tmp_path / "submissions" / "ada" / f"{newer}.ipynb", (at, at))
    found, by = finished(tmp_path, [])
    row = by["ada", ATTEND]
    assert (row["status"], row["notebook"]) == ("ok", f"{newer}.ipynb")
    text = (found.files.feedback / "ada.md").read_text("utf8")
    said = f"{newer}.ipynb was handed in after {older}.ipynb"
    assert said in text.replace("\\", "")  # Markdown's
    assert "Several cells" not in text


LATE = {
    "due": "2026-10-05T12:00:00+00:00",
    "percent": 10,
    "cap": 25,
    "free": 0,
}
NOON = datetime(2026, 10, 5, 12, tzinfo=UTC).timestamp()
DAY = 86400


@pytest.mark.parametrize(
    ("names", "path", "seconds", "days", "points"),
    [
        (None, "ada.ipynb", 0, "0", "6.00"),
        (None, "ada.ipynb", 1, "1", "5.40"),
        (None, "ada.ipynb", 2 * DAY, "2", "4.80"),
        (None, "ada.ipynb", 30 * DAY, "30", "4.50"),  # the cap
        # Canvas knows whether, and the file's time how much.
        ("canvas", "ada_4_9_a.ipynb", 2 * DAY, "0", "6.00"),
        ("canvas", "ada_LATE_4_9_a.ipynb", -DAY, "1", "5.40"),
        ("canvas", "ada_LATE_4_9_a.ipynb", 2 * DAY, "2", "4.80"),
        # In a folder it has named that, and the student what is in it.
        ("canvas", "ada_LATE_4_9_/x_1_1_.ipynb", 2 * DAY, "2", "4.80"),
        ("canvas", "ada/x_1_1_.ipynb", 2 * DAY, "2", "4.80"),
        (None, "ada.ipynb", -2 * NOON, "0", "6.00"),  # before all clocks
    ],
)
def test_what_is_late_costs_points(
    tmp_path, in_process, names, path, seconds, days, points
):
    """The sheet says so, and the student's page."""
    files = {path: RIGHT_ONE.files["ada.ipynb"]}
    corpus.build(tmp_path / "submissions", [replace(RIGHT_ONE, files=files)])
    os.utime(tmp_path / "submissions" / path, (NOON + seconds,) * 2)
    said = ["--feedback", tmp_path / "feedback"]
    said += ["--names", names] if names else []
    plan = ASSIGNMENT | {"deadline": LATE}
    assert grade.run(command(tmp_path, *said, assignments={"a": plan})) == 0
    text = (tmp_path / "out" / "grades.csv").read_text("utf8")
    row = next(csv.DictReader(io.StringIO(text)))
    assert (row["exercise"], row["days_late"]) == (ATTEND, days)
    assert row["points"] == points
    off = 6 - float(points)
    assert row["late_penalty"] == f"{off:.2f}"
    page = (tmp_path / "feedback" / "ada.md").read_text("utf8")
    late = f"Handed in {days} day{'s' * (days != '1')} late: 6 points became"
    assert (late in page) == (days != "0")


@pytest.mark.parametrize("seconds", [2**40, -(2**40)])
def test_no_file_has_a_time_that_ends_the_batch(
    tmp_path, seconds, monkeypatch
):
    """As an archive may give it; not every file system keeps it."""
    path = tmp_path / "ada.ipynb"
    path.write_bytes(corpus.answered(RIGHT))
    os.utime(path, (0, 0))
    deadline = Deadline.of(LATE)
    assert days_late(path, deadline) == 0
    with pytest.raises((ValueError, OverflowError)):  # the control
        datetime.fromtimestamp(seconds, UTC)
    odd = SimpleNamespace(st_mtime=float(seconds))
    monkeypatch.setattr(Path, "stat", lambda _: odd)
    assert (days_late(path, deadline) > 1e6) == (seconds > 0)


def test_nobody_is_called_as_a_twin_would_be(tmp_path):
    """Three names, three students, though one foresees another's digits."""
    one, two = "zo\u00e9", "zoe\u0301"
    digits = hashlib.sha256(two.encode()).hexdigest()[:8]
    names = [one, two, f"{one}{TWIN}{digits}"]
    found = apart({name: [Path(name)] for name in names})
    assert sorted(p.name for (p,) in found.values()) == sorted(names)


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("ada", "ada"),
        ("=1+1", "'=1+1"),
        (" @x", "' @x"),
        ("'=1+1", "''=1+1"),
        ("＝1+1", "'＝1+1"),
        ("a;=1+1", "a;'=1+1"),  # a semicolon separates in half of Europe
        ("a; -1;b", "a;' -1;b"),
        ("a;'b", "a;''b"),
    ],
)
def test_no_id_is_a_formula_and_each_comes_back(id, shown):
    assert cell(id) == shown
    assert out_of_cell(shown) == id


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a www.x.org b", r"a www\.x.org b"),
        ("WWW.x.org", r"WWW\.x.org"),
        ("see https://x.org", r"see https\://x.org"),
        ("ada@x.org", r"ada\@x.org"),
        ("[a](b) <i>", r"\[a\](b) \<i\>"),
        ("Case 1: two. All", "Case 1: two. All"),
    ],
)
def test_no_name_becomes_a_link(name, shown):
    assert pages.plain(name) == shown


def test_the_wrong_assignment_is_refused(tmp_path, in_process, capsys):
    """Not graded as 20 exercises that nobody has attempted."""
    corpus.build(tmp_path / "submissions", [RIGHT_ONE, WRONG_ONE])
    masks = {
        "page": "05_masks",
        "exercises": [
            {"id": "masks/is_causal", "function": "is_causal", "points": 3}
        ],
    }
    args = command(tmp_path, assignments={"masks": masks})
    with pytest.raises(ValueError, match=f"masks/is_causal: got .*{ATTEND}"):
        grade.run(args)
    assert not (tmp_path / "out" / "grades.csv").exists()
    # Of one student alone it is said, and the others are graded.
    page = corpus.notebook(
        corpus.code("def is_causal(*_):\n    ...", "masks/is_causal")
    )
    (tmp_path / "submissions" / "eve.ipynb").write_bytes(page)
    assert grade.run(args) == 0
    said = capsys.readouterr().out
    assert f"look at   ada: handed in {ATTEND}, {MENDED}, of another" in said
    assert "look at   eve" not in said


def test_names_are_shown_as_the_roster_has_them(tmp_path, in_process, capsys):
    """The control: the sheet's first column has the ids."""
    folder, pages = tmp_path / "submissions", tmp_path / "feedback"
    packed(folder, f"Bob Stone_4{MOODLE}_a.zip", {"a.ipynb": GOOD})
    (folder / "x.ipynb").write_bytes(corpus.answered(WRONG))
    roster = tmp_path / "worksheet.csv"
    roster.write_text(
        "Identifier,Full name,Email address,Status,Grade\n"
        "Participant 4,Bob Stone,u4@uni.edu,Submitted,\n"
        "Participant 5,Zoe Nil,u5@uni.edu,,\n"
    )
    more = ["--names", "moodle", "--roster", roster, "--feedback", pages]
    by = graded_sheet(tmp_path, *more)
    out = capsys.readouterr().out
    names = {student: row["name"] for (student, _), row in by.items()}
    known = {"u4@uni.edu": "Bob Stone", "u5@uni.edu": "Zoe Nil"}
    assert names == known | {"x": ""}
    assert "look at   Bob Stone (u4@uni.edu), x: a notebook without" in out
    page = (pages / f"Bob Stone_4{MOODLE}_" / "feedback.md").read_text("utf8")
    assert page.startswith("# Feedback for Bob Stone\n")
    summary = (tmp_path / "out" / "summary.md").read_text("utf8")
    assert "| not attempted | 1 | Zoe Nil |" in summary
    assert "1/√D\\_h (x)" in summary
    assert "| right | 1 |  |" in summary
    sheet = tmp_path / "out" / "grades.csv"
    args = argparse.ArgumentParser()
    gradebook.add_options(args)
    gradebook.run(args.parse_args([str(sheet)]))
    wide = (tmp_path / "out" / "grades-wide.csv").read_text("utf8")
    assert "u4@uni.edu,Bob Stone," in wide
    assert "\nx,," in wide


def test_one_is_one(tmp_path, in_process, capsys):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    graded_sheet(tmp_path)
    assert capsys.readouterr().out.startswith("1 student, 2 rows: ")
    summary = (tmp_path / "out" / "summary.md").read_text("utf8")
    assert "\n1 student; of 9 points" in summary


def test_an_lms_knows_people_by_their_number(tmp_path, in_process, capsys):
    """Two of one name, whom the names alone do not tell apart."""
    data = RIGHT_ONE.files["ada.ipynb"]
    files = {
        f"Lee Wu_{n}_assignsubmission_file_/any.ipynb": data for n in (17, 18)
    }
    one = replace(RIGHT_ONE, files=files)
    corpus.build(tmp_path / "submissions", [one])
    graded = {"a": ASSIGNMENT | {"students": CLASS}}
    said = ["--names", "moodle"]
    assert grade.run(command(tmp_path, *said, assignments=graded)) == 0
    assert "roster: Lee Wu_17, Lee Wu_18." in capsys.readouterr().out
    roster = tmp_path / "worksheet.csv"
    roster.write_text(
        "Identifier,Full name,ID number,Email address,Status,Grade\n"
        "Participant 17,Lee Wu,s4,lee@uni.edu,Submitted,\n"
        "Participant 18,Lee Wu,s5,wu@uni.edu,Submitted,\n"
        "Participant 19,Zoe Late,s6,zoe@uni.edu,Submitted,\n"
    )
    assert grade.run(command(tmp_path, *said, "--roster", roster)) == 0
    assert "nobody" not in capsys.readouterr().out
    text = (tmp_path / "out" / "grades.csv").read_text("utf8")
    status = {
        row["student"]: row["status"]
        for row in csv.DictReader(io.StringIO(text))
        if row["exercise"] == ATTEND
    }
    assert {s for s, found in status.items() if found == "ok"} == {"s4", "s5"}
    assert set(status) == {*CLASS, "s6"}


def marked(data, mark):
    """A notebook with the mark of an assignment in its metadata."""
    found = json.loads(data)
    found["metadata"]["coursekit"] = {"assignment": mark}
    return json.dumps(found).encode()


MARK = Secret(KEY).mark("attention")


@pytest.mark.parametrize(
    ("mark", "status"),
    [
        (MARK, "ok"),
        (Secret(KEY[::-1]).mark("attention"), "not attempted"),
        (Secret(KEY).mark("practice"), "not attempted"),
        ("", "ok"),
        (["damaged"], "ok"),
    ],
    ids=["its own", "another key", "another name", "lost", "damaged"],
)
def test_what_was_made_for_another_assignment_gets_no_points(
    tmp_path, mark, status
):
    files = {"ada.ipynb": marked(corpus.answered(RIGHT), mark)}
    ada = replace(RIGHT_ONE, files=files)
    key = Secret(KEY, {"attention": ASSIGNMENT})
    found, by = finished(tmp_path, [ada, entry("bo", RIGHT)], key=key)
    assert by["bo", ATTEND]["status"] == "ok"
    assert by["ada", ATTEND]["status"] == status
    text = (found.files.feedback / "ada.md").read_text("utf8")
    assert ("for another assignment" in text) == (status != "ok")
    assert ("ada" in found.elsewhere.others) == (status != "ok")


def test_nothing_is_graded_if_all_was_made_for_another(tmp_path):
    """Beside a file of its own, one of another assignment harms nothing."""
    other = marked(corpus.answered(RIGHT), Secret(KEY).mark("practice"))
    ada = replace(RIGHT_ONE, files={"ada/b.ipynb": other})
    key = Secret(KEY, {"attention": ASSIGNMENT})
    with pytest.raises(ValueError, match="made with another secret or --name"):
        batch(tmp_path, [ada], key=key)
    own = marked(corpus.answered(WRONG), MARK)
    own_one = replace(ada, files={"ada/a.ipynb": own})
    corpus.build(tmp_path / "submissions", [own_one])
    _, by = finished(tmp_path, [], key=key)
    row = by["ada", ATTEND]
    assert (row["status"], row["notebook"]) == ("wrong", "a.ipynb")


BLANK_ONE = corpus.answered(corpus.STUBS[ATTEND])
BROKEN_ONE = corpus.answered("def attend_yourself(q, k, v, mask=None")
CUT_ONE = corpus.notebook(corpus.code(RIGHT_MENDED, MENDED))


@pytest.mark.parametrize(
    ("newest", "status", "name"),
    [
        (BLANK_ONE, "not attempted", "a-1.ipynb"),
        (CUT_ONE, "not attempted", ""),
        (corpus.notebook(), "not attempted", ""),
        (BROKEN_ONE, "error", "a-1.ipynb"),
    ],
    ids=["stub", "no cell", "empty", "broken"],
)
def test_what_the_newest_leaves_open_no_older_file_answers(
    tmp_path, newest, status, name
):
    files = {"ada/a.ipynb": corpus.answered(RIGHT), "ada/a-1.ipynb": newest}
    found, by = finished(tmp_path, [replace(RIGHT_ONE, files=files)])
    row = by["ada", ATTEND]
    assert (row["status"], row["notebook"]) == (status, name)
    assert row["points"] == "0.00"
    text = (found.files.feedback / "ada.md").read_text("utf8")
    said = "a-1.ipynb was handed in after a.ipynb, which doesn't count."
    assert said in text


OTHERS = corpus.notebook(corpus.code("def codes(n): ...", "positions/codes"))


@pytest.mark.parametrize(
    ("name", "newest"),
    [
        ("a-1.ipynb", OTHERS),  # two chapters, numbered
        ("b.ipynb", OTHERS),
        ("b.ipynb", corpus.notebook()),
        ("a-1.ipynb", b"{"),  # nobody knows what it was
        ("b.ipynb", CUT_ONE),
    ],
    ids=["numbered", "named", "empty", "damaged", "split"],
)
def test_another_notebook_replaces_none(tmp_path, name, newest):
    """Of two that split the exercises each answers its own."""
    only = corpus.notebook(corpus.code(RIGHT, ATTEND))
    files = {"ada/a.ipynb": only, f"ada/{name}": newest}
    found, by = finished(tmp_path, [replace(RIGHT_ONE, files=files)])
    row = by["ada", ATTEND]
    assert (row["status"], row["notebook"]) == ("ok", "a.ipynb")
    text = (found.files.feedback / "ada.md").read_text("utf8")
    assert "was handed in after" not in text


def test_any_name_of_a_file_has_a_row_and_a_page(tmp_path, in_process):
    """Bytes that are no text, control sequences, formulas, 248 letters."""
    folder = tmp_path / "submissions"
    corpus.build(folder, [RIGHT_ONE])
    data = (folder / "ada.ipynb").read_bytes()
    names = [b"b\xff", b"\x1b[31mred", b"new\nline", b"=1+1", b"x" * 248]
    names += [b"y" * 240 + b"1", b"y" * 240 + b"2"]
    for name in names:
        (folder / os.fsdecode(name + b".ipynb")).write_bytes(data)
    pages = tmp_path / "feedback"
    assert grade.run(command(tmp_path, "--feedback", pages)) == 0
    text = (tmp_path / "out" / "grades.csv").read_text("utf8")
    found = list(csv.DictReader(io.StringIO(text)))
    ids = {row["student"] for row in found}
    assert len(ids) == 1 + len(names)
    assert len(list(pages.iterdir())) == 2 * len(ids)
    assert "\x1b" not in text
    assert "'=1+1" in ids
    assert len(text.splitlines()) == 1 + len(found)


def test_any_spelling_of_the_ending_is_a_notebook(tmp_path):
    loud = entry("kim", RIGHT)
    loud = replace(loud, files={"kim.IPYNB": loud.files["kim.ipynb"]})
    _, by = finished(tmp_path, [loud])
    assert by["kim", ATTEND]["status"] == "ok"


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["hw/any.ipynb", "__MACOSX/hw/._any.ipynb"], "ok"),
        (["a.ipynb", "b.ipynb"], "unreadable"),
        (["any.pdf"], "unreadable"),
        ([], "unreadable"),
    ],
)
def test_the_notebook_in_a_zip_is_read(tmp_path, names, status):
    """Also if it is called .ipynb."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, RIGHT_ONE.files["ada.ipynb"])
    files = {f: data.getvalue() for f in ("ada/x.zip", "eve.ipynb", "lee.zip")}
    one = replace(RIGHT_ONE, files=files)
    found, by = finished(tmp_path, [one, WRONG_ONE])
    statuses = [by[name, ATTEND]["status"] for name in ("ada", "eve", "lee")]
    assert statuses == [status] * 3
    if status != "ok":
        text = (found.files.feedback / "ada.md").read_text("utf8")
        assert "Hand in the notebook itself." in text


def packed(folder, name, files, at=(2026, 10, 6, 12, 0, 0)):
    """A zip, as an LMS packs what a class has handed in."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(zipfile.ZipInfo(inside, at), data)


MOODLE = "_assignsubmission_file"
GOOD = RIGHT_ONE.files["ada.ipynb"]


@pytest.mark.parametrize(
    ("names", "files"),
    [
        ("moodle", [f"Eve_7{MOODLE}/a.ipynb", f"Lee_8{MOODLE}/a.ipynb"]),
        ("moodle", [f"Eve_7{MOODLE}_a.ipynb", f"Lee_8{MOODLE}_a.ipynb"]),
        ("moodle", [f"NLP/{n}{MOODLE}_/a.ipynb" for n in ("Eve_7", "Lee_8")]),
        ("canvas", ["Eve_7_9_a.ipynb", "Lee_LATE_8_9_a.ipynb"]),
        (None, ["__MACOSX/._x.ipynb", "Eve.ipynb", "Lee/a.ipynb"]),
    ],
)
def test_what_an_lms_packs_is_a_class(
    tmp_path, in_process, capsys, names, files
):
    """Its zip as it was downloaded, and the folder that a browser makes.

    In a folder of files alone, these are of the student whom it names.
    """
    folder = tmp_path / "submissions"
    packed(folder, "NLP-1-77.zip", dict.fromkeys(files, GOOD))
    pages = tmp_path / "feedback"
    more = ["--feedback", pages, *(["--names", names] if names else [])]
    plan = ASSIGNMENT | {"deadline": LATE}
    by = graded_sheet(tmp_path, *more, assignments={"a": plan})
    assert {s for s, _ in by} == {"Eve", "Lee"}
    assert {r["status"] for _, r in by.items()} == {"ok"}
    assert by["Lee", ATTEND]["days_late"] in ("1", "2")  # by the zip's times
    assert not [p for p in pages.rglob("*") if "NLP" in p.name]
    assert "opened    NLP-1-77.zip: it holds" in capsys.readouterr().out
    if f"{MOODLE}/" in files[0]:
        with zipfile.ZipFile(folder / "NLP-1-77.zip") as archive:
            archive.extractall(folder / "NLP-1-77")
        (folder / "NLP-1-77.zip").unlink()
        again = graded_sheet(tmp_path, *more, "--fresh")
        assert {s for s, _ in again} == {"Eve", "Lee"}


GRADESCOPE = """\
---
submission_301:
  :submitters:
  - :name: Ana Right
    :sid: '17'
    :email: s1@uni.edu
  - :name: Bob Stone
    :sid: ''
    :email: elsewhere@uni.edu
  :created_at: 2026-10-05 10:00:00.000000000 Z
  :results:
    :output: |
      :submitters:
      - :name: Lee Wu
submission_302:
  :submitters:
  - :name: Eve Wrong
    :sid: '19'
    :email: eve@uni.edu
"""


@pytest.mark.parametrize("zipped", [False, True])
def test_an_export_of_gradescope_says_who(tmp_path, zipped):
    """A group's file counts for each of them."""
    folder, top = tmp_path / "submissions", "assignment_55_export"
    files = {f"{top}/submission_{n}/a.ipynb": GOOD for n in (301, 302)}
    packed(folder, "x.zip", {f"{top}/{unpack.GRADESCOPE}": GRADESCOPE} | files)
    if not zipped:
        with zipfile.ZipFile(folder / "x.zip") as archive:
            archive.extractall(folder)
        (folder / "x.zip").unlink()
    found = collect(places(folder, None, tmp_path / "scratch"), None, CLASS)
    handed_in = {s for s, paths in found.students.items() if paths}
    assert handed_in == {"s1", "bob", "eve@uni.edu"}
    assert found.ignored == []


def test_a_pattern_that_finds_nobody_says_so(tmp_path, in_process, capsys):
    """The control: one that finds somebody."""
    folder = tmp_path / "submissions"
    packed(folder, f"Eve_7{MOODLE}_a.zip", {"a.ipynb": GOOD})
    for names, finds in (("moodle", True), ("canvas", False)):
        graded_sheet(tmp_path, "--names", names)
        said = "warning   --names finds a student in no name"
        assert (said in capsys.readouterr().out) is not finds


def test_what_a_student_packs_is_no_class(tmp_path, in_process):
    """Whatever names it gives to what is in it; nor does a zip escape."""
    folder = tmp_path / "submissions"
    names = [f"Lee_8{MOODLE}/a.ipynb", f"Lee_8{MOODLE}_a.ipynb"]
    packed(folder, f"Eve_7{MOODLE}_x.zip", dict.fromkeys(names, GOOD))
    packed(folder, "Zed.zip", dict.fromkeys(names, GOOD))
    (folder / "Kim" / names[0]).parent.mkdir(parents=True)
    (folder / "Kim" / names[0]).write_bytes(GOOD)
    (folder / "Kim" / "submission_metadata.yml").write_text("")
    there = places(folder, None, tmp_path / "scratch")
    assert there == sorted(folder.iterdir())
    for path in there:
        assert path.name.startswith(("Eve", "Kim", "Zed"))
    shutil.rmtree(folder)
    names = [f"../Bo_1{MOODLE}/a.ipynb", f"/Di_2{MOODLE}/../../a.ipynb"]
    packed(folder, "all.zip", dict.fromkeys(names, GOOD))
    places(folder, naming("moodle"), tmp_path / "scratch")
    made = {*tmp_path.rglob("a.ipynb")}
    assert len(made) == 2
    assert all(p.is_relative_to(tmp_path / "scratch") for p in made)


def test_one_student_does_not_fill_the_disk_of_a_class(tmp_path, in_process):
    """The control: another one's few bytes."""
    folder, zeros = tmp_path / "submissions", bytes(2**20)
    large = {f"Eve_7{MOODLE}/{n}.ipynb": zeros for n in range(43)}
    packed(folder, "all.zip", large | {f"Lee_8{MOODLE}/a.ipynb": GOOD})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpack, "TOTAL", 3 << 20)
        there = places(folder, naming("moodle"), tmp_path / "scratch")
        used = sum(p.stat().st_blocks for one in there for p in one.iterdir())
    assert used * 512 < 4 << 20
    by = graded_sheet(tmp_path, "--names", "moodle")
    assert by["Eve", ATTEND]["status"] == "unreadable"
    assert by["Lee", ATTEND]["status"] == "ok"


def test_moodle_takes_the_feedback_as_it_is(tmp_path, in_process):
    """It gives a student the files of a folder that is named for them."""
    data = RIGHT_ONE.files["ada.ipynb"]
    names = [f"{name}_assignsubmission_file_" for name in ("Eve_7", "Lee_8")]
    files = {f"{names[0]}/a.ipynb": data, f"{names[1]}b.ipynb": data}
    files |= {"bob.ipynb": data}  # the control
    one = replace(RIGHT_ONE, files=files)
    corpus.build(tmp_path / "submissions", [one])
    pages = tmp_path / "feedback"
    more = ["--names", "moodle", "--feedback", pages]
    assert grade.run(command(tmp_path, *more)) == 0
    for name in names:
        both = {p.name for p in (pages / name).iterdir()}
        assert both == {"feedback.html", "feedback.md"}
    assert (pages / "bob.html").is_file()


@pytest.mark.parametrize("loose", [False, True])
def test_who_hands_in_no_notebook_hears_of_it(tmp_path, in_process, loose):
    """In the folder that Moodle takes back, under the roster's id."""
    folder = tmp_path / "submissions"
    given = {"Ana Right_5": "a.py", "Bob Stone_6": "hw.pdf"}
    given |= {"Eve_7": "online.html", "Kim Álvarez Ruiz_8": "a.ipynb"}
    for who, name in given.items():
        path = folder / f"{who}{MOODLE}{'_' if loose else '/'}{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(GOOD if name == "a.ipynb" else b"")
    (folder / "notes.txt").write_text("")  # the control: nobody's
    pages = tmp_path / "feedback"
    more = ["--names", "moodle", "--feedback", pages]
    plan = {"a": ASSIGNMENT | {"students": CLASS}}
    by = graded_sheet(tmp_path, *more, assignments=plan)
    assert {s for s, _ in by} == {*CLASS, "Eve"}
    assert by["kim-2", ATTEND]["status"] == "ok"
    for who, name in list(given.items())[:3]:
        page = pages / f"{who}{MOODLE}_" / "feedback.md"
        said = page.read_text("utf8")
        assert f"{name}. Hand in the .ipynb itself" in said
    assert not (pages / "s1.md").exists()


def test_what_is_no_notebook_is_named(tmp_path, in_process, capsys):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    said = ["lea.py", "mia.rar", "_noa.ipynb", "ivo/sol.py", ".eva.ipynb"]
    said += [
        "ivo/.sol.ipynb",
        "uwe/hw.ipynb.txt",
        "bo/hw.ipynb.gz",
        "ian.pdf",
    ]
    for name in (*said, ".hidden"):
        path = tmp_path / "submissions" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert grade.run(command(tmp_path)) == 0
    deep = tmp_path / "submissions" / "lil" / "hw"
    deep.mkdir(parents=True)
    assert grade.run(command(tmp_path)) == 0
    lines = [
        line.removeprefix("ignored   ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("ignored")
    ]
    to_do = dict(line.split(": ") for line in lines)
    advice = {
        **dict.fromkeys(("lea.py", "ivo/sol.py"), "a program; ask"),
        **dict.fromkeys(("mia.rar", "bo/hw.ipynb.gz"), "an archive; "),
        **dict.fromkeys(
            ("_noa.ipynb", ".eva.ipynb", "ivo/.sol.ipynb"), "rena"
        ),
        "uwe/hw.ipynb.txt": "ends in .ipynb",
        "lil/hw": "move the notebook out of it",
        "ian.pdf": "no notebook",
    }
    assert set(to_do) == set(advice)
    assert all(text in to_do[name] for name, text in advice.items())


@pytest.mark.parametrize(
    ("student", "feedback"),
    [("summary", "out"), ("SUMMARY", "out")],
)
def test_no_page_is_written_over_another(
    tmp_path, in_process, student, feedback
):
    """The control: in a folder of its own the same student is graded."""
    corpus.build(tmp_path / "submissions", [entry(student, RIGHT)])
    folder = tmp_path / feedback
    with pytest.raises(ValueError, match="a folder of its own"):
        grade.run(command(tmp_path, "--feedback", folder))
    assert not (tmp_path / "out").exists()  # nothing was graded
    assert grade.run(command(tmp_path, "--feedback", tmp_path / "f")) == 0
    summary = (tmp_path / "out" / "summary.md").read_text("utf8")
    assert summary.startswith("# Summary of grades.csv")


def test_names_that_look_alike_are_graded_apart(tmp_path, in_process, capsys):
    """One letter, as one sign of Unicode or as two: two files, two rows."""
    one, two = "zo\u00e9", "zoe\u0301"
    folder = tmp_path / "submissions"
    folder.mkdir()
    for name, answer in ((one, RIGHT), (two, corpus.NOT_SCALED)):
        data = corpus.answered(answer)
        (folder / f"{name}.ipynb").write_bytes(data)
    if len(list(folder.iterdir())) == 1:
        pytest.skip("this file system takes them for one")
    assert grade.run(command(tmp_path)) == 0
    out = capsys.readouterr().out
    text = (tmp_path / "out" / "grades.csv").read_text("utf8")
    found = {r["student"]: r for r in csv.DictReader(io.StringIO(text))}
    (twin,) = set(found) - {one}
    assert twin.startswith(f"{one}-u")
    assert len(set(found)) == 2
    assert f"note      {twin}: a name like another's" in out
    # Alone, either is the same student.
    (folder / f"{one}.ipynb").unlink()
    assert list(collect(folder.iterdir()).students) == [one]


def test_a_long_message_is_cut_before_it_is_kept(tmp_path):
    """A megabyte for each answer would fill the disk of a large class."""
    head = "def attend_yourself(q, k, v, mask=None):\n"
    long = head + "    raise ValueError('k' * 10**6)\n"
    found, by = finished(tmp_path, [entry("eve", long)])
    assert by["eve", ATTEND]["status"] == "error"
    assert found.files.progress.path.stat().st_size < 50_000
    page = (tmp_path / "feedback" / "eve.md").read_text("utf8")
    assert "k" * 3000 in page
    assert "[cut here]" in page


def test_two_sheets_in_one_folder_do_not_meet(tmp_path, in_process):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    for name in ("grades.csv", "debug.csv"):
        args = command(tmp_path, "--out", tmp_path / "out" / name)
        assert grade.run(args) == 0
    out = {p.name for p in (tmp_path / "out").iterdir()}
    for name in ("summary.md", "summary.html", "timing.csv"):
        assert {name, f"debug-{name}"} <= out


def test_where_nothing_can_be_written_nothing_is_graded(tmp_path, in_process):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    (tmp_path / "file").write_text("")
    for out, said in (
        (tmp_path, "a sheet is a file"),
        (tmp_path / "file" / "grades.csv", "where nothing can be"),
    ):
        with pytest.raises(ValueError, match=said):
            grade.run(command(tmp_path, "--out", out))


def test_a_key_without_an_assignment_grades_nothing(tmp_path):
    with pytest.raises(ValueError, match="got one without any"):
        batch(tmp_path, [RIGHT_ONE], key=Secret(KEY))
    empty = Secret(KEY, {"a": ASSIGNMENT | {"exercises": []}})
    with pytest.raises(ValueError, match="an assignment has exercises"):
        batch(tmp_path, [RIGHT_ONE], key=empty)


def test_an_id_is_never_a_formula(tmp_path):
    _, by = finished(tmp_path, [entry("=1+1", RIGHT)])
    assert ("'=1+1", ATTEND) in by


def test_links_and_pipes_are_no_submissions(tmp_path):
    import os

    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    secret = tmp_path / "secret.ipynb"
    secret.write_bytes(corpus.answered(RIGHT))
    (tmp_path / "submissions" / "eve.ipynb").symlink_to(secret)
    os.mkfifo(tmp_path / "submissions" / "fay.ipynb")
    _, by = finished(tmp_path, [])
    for name in ("eve", "fay"):
        assert by[name, ATTEND]["status"] == "unreadable"
        assert by[name, ATTEND]["notebook_sha256"] == ""


def test_another_key_draws_other_cases(tmp_path):
    seeds = set()
    for n, secret in enumerate((KEY, "77" * 32)):
        folder = tmp_path / str(n)
        key = Secret(secret, {"a": ASSIGNMENT})
        found, _ = finished(folder, [RIGHT_ONE], key=key)
        seeds.add(found.plan.common[0].seed)
    assert len(seeds) == 2


def test_an_error_of_ours_costs_one_student_their_rows_alone(
    tmp_path, monkeypatch
):
    def stumble(paths, wanted):
        if "bob" in str(paths):
            raise ZeroDivisionError
        return read(paths, wanted)

    from coursekit_classroom.teach import judge

    read = judge.read_submission
    monkeypatch.setattr(judge, "read_submission", stumble)
    _, by = finished(tmp_path, [RIGHT_ONE, WRONG_ONE])
    assert by["bob", ATTEND]["status"] == "unreadable"
    assert by["ada", ATTEND]["status"] == "ok"


# -- time-outs ---------------------------------------------------------------
class Late(Here):
    """Takes too long, or ends, at its second call."""

    calls = 0
    status = "timeout"

    def call(self, function, arguments, seed=0, watched=False, forbid=()):
        Late.calls += 1
        if Late.calls in (2, 3):
            raise SandboxError(Late.status, "it took more than 1 s")
        return super().call(function, arguments, seed, watched, forbid)


@pytest.mark.parametrize(
    ("status", "points"),
    [("timeout", "1.20"), ("died", "1.20")],  # of 5 cases: one was right
)
def test_after_a_time_out_and_two_deaths_it_is_not_called(
    tmp_path, monkeypatch, status, points
):
    monkeypatch.setattr(Late, "calls", 0)
    monkeypatch.setattr(Late, "status", status)
    key = Secret(KEY, {"a": {"exercises": corpus.EXERCISES[:1]}})
    _, by = finished(tmp_path, [RIGHT_ONE], take=Late, key=key)
    assert by["ada", ATTEND]["status"] == status
    assert by["ada", ATTEND]["points"] == points


def test_sandboxes_of_one_exercise_share_its_limits():
    box = Here()
    session = judge.Session(lambda: box, Limits(12.0, 120.0))
    session.open()
    box.left = 5.0, 75.0
    given = []
    box.begin = lambda *left: given.append(left)
    session.open()  # another sandbox has no more
    assert given == [(5.0, 75.0)]
    box.left = -0.1, 75.0
    with pytest.raises(SandboxError, match="nothing was left"):
        session.open()
    session.begin()  # the next exercise
    session.open()
    assert given[-1] == (12.0, 120.0)


def test_a_sandbox_that_does_not_start_is_nobodys_fault(tmp_path):
    class Dead(Here):
        def run(self, cells):
            raise SandboxError("died", "no torch")

    found = batch(tmp_path, [RIGHT_ONE], Dead)
    with pytest.raises(OSError, match="does not start: no torch"):
        found.grade()


# -- progress ----------------------------------------------------------------
def counting(tmp_path, entries, **options):
    """How many are examined again."""
    found = batch(tmp_path, entries, **options)
    asked, examine = [], found.worker.grade
    found.worker.grade = lambda student, *rest: (
        asked.append(student) or examine(student, *rest)
    )
    found.grade()
    return asked


def test_who_is_graded_stays_graded(tmp_path):
    entries = [RIGHT_ONE, WRONG_ONE]
    assert counting(tmp_path, entries) == ["ada", "bob"]
    assert counting(tmp_path, entries) == []
    changed = tmp_path / "submissions" / "bob.ipynb"
    changed.write_bytes(corpus.answered(RIGHT))
    assert counting(tmp_path, entries) == ["bob"]
    other = Secret("77" * 32, {"a": ASSIGNMENT})
    assert counting(tmp_path, entries, key=other) == ["ada", "bob"]
    found = batch(tmp_path, entries)
    assert len(found.files.progress.graded()) == 2 + 1 + 2
    found.grade(fresh=True)
    assert len(found.files.progress.graded()) == 2


def test_half_a_line_of_progress_is_no_student(tmp_path):
    found, _ = finished(tmp_path, [RIGHT_ONE, WRONG_ONE])
    path = found.files.progress.path
    text = path.read_text("utf8")
    path.write_text(text[: text.rindex('{"stamp"') + 40], "utf8")
    found.files.sheet.unlink(missing_ok=True)
    assert counting(tmp_path, []) == ["bob"]
    path.write_text("[]\n{}\nnull\n", "utf8")
    found.files.sheet.unlink(missing_ok=True)
    assert counting(tmp_path, []) == ["ada", "bob"]


def test_a_record_survives_json(tmp_path):
    found, _ = finished(tmp_path, [WRONG_ONE])
    (one,) = found.files.progress.graded().values()
    assert graded(json.loads(json.dumps(one.plain()))) == one


# -- the command -------------------------------------------------------------
def command(tmp_path, *more, assignments=None):
    """Parsed arguments of `coursekit grade`."""
    key = tmp_path / "assignment-secret.txt"
    if not key.exists():
        # Of a drawn key, one in many lets a wrong answer fit no case.
        Secret(KEY, assignments or {"attention": ASSIGNMENT}, key).save()
    parser = argparse.ArgumentParser()
    grade.add_options(parser)
    words = [tmp_path / "submissions", "--secret", key]
    words += ["--out", tmp_path / "out" / "grades.csv", *more]
    return parser.parse_args(list(map(str, words)))


@pytest.fixture
def in_process(monkeypatch):
    made = partial(InProcess, take=Here)
    monkeypatch.setattr(grade, "Worker", made)


def test_the_command_writes_everything(tmp_path, in_process, capsys):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE, WRONG_ONE])
    folder = tmp_path / "feedback"
    assert grade.run(command(tmp_path, "--feedback", folder)) == 0
    said = capsys.readouterr().out
    assert "2 students, 4 rows: 3 ok, 1 wrong" in said
    out = {p.name for p in (tmp_path / "out").iterdir()}
    assert out == {
        *("grades.csv", "timing.csv", "grades.csv.progress"),
        *("summary.md", "summary.html"),
    }
    assert {p.name for p in folder.iterdir()} == {
        f"{name}.{ending}"
        for name in ("ada", "bob")
        for ending in ("md", "html")
    }


def test_an_interrupt_leaves_a_state_to_go_on_from(
    tmp_path, monkeypatch, capsys
):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE, WRONG_ONE])
    taken = []

    def interrupted():
        taken.append(1)
        if len(taken) == 2:
            raise KeyboardInterrupt
        return Here()

    made = partial(InProcess, take=interrupted)
    monkeypatch.setattr(grade, "Worker", made)
    assert grade.run(command(tmp_path)) == 130
    assert "1 of 2 students are graded" in capsys.readouterr().err
    assert not (tmp_path / "out" / "grades.csv").exists()
    assert grade.run(command(tmp_path)) == 0
    assert len(taken) == 3


@pytest.mark.parametrize(
    ("make", "more", "said"),
    [
        (False, [], "submissions are a folder: got .*submissions"),
        (True, [], "got none of either"),
        (True, ["--cpu", "0"], "above 0: got 0"),
        (True, ["--feedback", "{}/submissions/f"], "among the submissions"),
        (True, ["--assignment", "b"], "got 'b'. It has attention"),
        (True, ["--overlay", "{}/nowhere"], "got .*nowhere"),
    ],
)
def test_what_an_instructor_gets_wrong_is_said(tmp_path, make, more, said):
    if make:
        entries = [] if "none" in said else [RIGHT_ONE]
        (tmp_path / "submissions").mkdir()
        corpus.build(tmp_path / "submissions", entries)
    more = [word.format(tmp_path) for word in more]
    with pytest.raises(ValueError, match=said):
        grade.run(command(tmp_path, *more))


def test_of_several_assignments_the_notebooks_name_theirs(
    tmp_path, in_process, capsys
):
    """Most of them; without their marks the instructor has to."""
    corpus.build(tmp_path / "submissions", [RIGHT_ONE, WRONG_ONE])
    two = {"one": ASSIGNMENT, "two": ASSIGNMENT}
    args = command(tmp_path, assignments=two)
    with pytest.raises(ValueError, match="--assignment, one of one, two"):
        grade.run(args)
    key = Secret.load(args.secret)
    for student, name in (("ada", "two"), ("bob", "two"), ("eve", "one")):
        path = tmp_path / "submissions" / f"{student}.ipynb"
        path.write_bytes(marked(corpus.answered(RIGHT), key.mark(name)))
    os.mkfifo(tmp_path / "submissions" / "fay.ipynb")  # to read it never ends
    assert grade.run(args) == 0
    assert "look at   eve: handed in" in capsys.readouterr().out
    (tmp_path / "submissions" / "bob.ipynb").unlink()
    with pytest.raises(ValueError, match="--assignment, one of one, two"):
        grade.run(args)


# -- what the instructor hears of, and decides -------------------------------
def graded_sheet(tmp_path, *more, **options):
    """Grade what was handed in; the sheet's rows."""
    assert grade.run(command(tmp_path, *more, **options)) == 0
    text = (tmp_path / "out" / "grades.csv").read_text("utf8")
    found = csv.DictReader(io.StringIO(text))
    return {(r["student"], r["exercise"]): r for r in found}


def test_what_an_instructor_should_look_at_is_listed(
    tmp_path, in_process, capsys
):
    """The control: a student like any other."""
    key = Secret.load(command(tmp_path).secret)
    renamed = RIGHT.replace("scores", "s").replace("# ", "")
    long = RIGHT_MENDED.replace("weights", "w")
    stub = corpus.code(corpus.STUBS[ATTEND], ATTEND)
    new, twice = corpus.code(RIGHT), corpus.code(RIGHT, ATTEND)
    other = corpus.code(RIGHT_MENDED.replace("@ v", "@ v * 1"), MENDED)
    imports = corpus.code(corpus.IMPORTS)
    for name, data in {
        "ada": corpus.answered(RIGHT),
        "bob": corpus.answered(renamed, long),
        "eve": corpus.answered(WRONG),
        "new": corpus.notebook(imports, stub, new, other),
        "two": corpus.notebook(imports, twice, twice),
        "Lee": corpus.answered(RIGHT + "\nx = 1"),
        "lee": corpus.answered(WRONG),
    }.items():
        path = tmp_path / "submissions" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(marked(data, key.mark("attention")))
    path = tmp_path / "submissions" / "book.ipynb"
    path.write_bytes(corpus.answered(corpus.STUBS[ATTEND], other["source"]))
    graded_sheet(tmp_path)
    said = [
        line.removeprefix("look at   ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("look at")
    ]
    wanted = [
        "new: attention/attend: The cell for attend_yourself holds the stub "
        "alone, so what counts is cell 4 of new.ipynb",
        "two: attention/attend: Several cells define attend_yourself: cell 4 ",
        "Lee, lee: taken for one student",
        "Lee, eve: the same code",  # of both of Lee's, lee.ipynb counts
        "ada, bob: the same code",
        "book: a notebook without the mark",
    ]
    assert len(said) == len(wanted), said
    for line, begin in zip(said, wanted, strict=True):
        assert line.startswith(begin)


def test_what_cannot_be_read_is_told_to_both(tmp_path, in_process, capsys):
    """Until a good file of the same name comes after it."""
    folder, pages = tmp_path / "submissions", tmp_path / "pages"
    for name in ("hw.ipynb", "other.ipynb"):
        (folder / "eve" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "eve" / name).write_bytes(GOOD[: len(GOOD) // 2])
    (folder / "ada.ipynb").write_bytes(GOOD)
    graded_sheet(tmp_path, "--feedback", pages)
    (said,) = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("unread")
    ]
    assert said.startswith("unread    eve: hw.ipynb is no notebook: it is dam")
    advice = "saved or downloaded once more, or an earlier version"
    assert said.count(advice) == 2
    (folder / "eve" / "hw-1.ipynb").write_bytes(GOOD)
    by = graded_sheet(tmp_path, "--feedback", pages)
    assert by["eve", ATTEND]["status"] == "ok"
    assert "unread" not in capsys.readouterr().out
    page = (pages / "eve.md").read_text("utf8")
    assert "hw.ipynb cannot be read; what came after it counts" in page
    assert page.count("other.ipynb is no notebook") == page.count("hw.ipynb c")


def test_what_the_instructor_decides_stays(tmp_path, in_process, capsys):
    """The table is read, and never written."""
    corpus.build(tmp_path / "submissions", [RIGHT_ONE, WRONG_ONE])
    for path in (tmp_path / "submissions").iterdir():
        os.utime(path, (NOON + DAY, NOON + DAY))
    own = tmp_path / "out" / "overrides.csv"
    own.parent.mkdir()
    own.write_text(
        "\ufeffstudent;exercise;points;comment;extension\r\n"
        f"bob;{ATTEND};4,5;Explained it to me;\r\n"
        f"Ada;;;;1\r\n;;;;\r\n"
    )
    before = own.read_bytes()
    plan = {"attention": ASSIGNMENT | {"deadline": LATE}}
    pages = tmp_path / "pages"
    for more in ([], ["--fresh"]):
        by = graded_sheet(
            tmp_path, "--feedback", pages, *more, assignments=plan
        )
        row = by["bob", ATTEND]
        assert (row["points"], row["automatic"]) == ("4.50", "1.08")
        row = by["ada", ATTEND]  # the control: nothing is late for her
        assert (row["points"], row["automatic"]) == ("6.00", "")
        assert by["bob", MENDED]["points"] == "2.70"
        assert "Explained it to me" in (pages / "bob.md").read_text("utf8")
    assert own.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody,attention/attend,1,,", "line 2: an override .* got 'nobody'"),
        ("ada,attention/none,1,,", "got 'ada' and 'attention/none'"),
        ("ada,,1,,", r"got 1 for none. They are attention/attend \(6\), "),
        ("ada,attention/attend,7,,", "got 7 for attention/attend"),
        ("ada,attention/attend,nan,,", "line 2: a cell holds a number"),
        ("ada,,,,soon", "got 'soon'"),
        ("ada,,,,1\nADA,,,,2", "got another in line 3, for ada and all"),
    ],
)
def test_an_override_that_cannot_be_is_refused(tmp_path, text, said):
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    head = "student,exercise,points,comment,extension"
    (tmp_path / "overrides.csv").write_text(f"{head}\n{text}\n")
    with pytest.raises(ValueError, match=said):
        batch(tmp_path, [])


@pytest.mark.parametrize("more", [[], ["--fresh"]])
def test_a_sheet_that_was_changed_is_not_written_over(
    tmp_path, in_process, more
):
    """The control: one that was not."""
    corpus.build(tmp_path / "submissions", [RIGHT_ONE])
    graded_sheet(tmp_path)
    graded_sheet(tmp_path, *more)
    graded_sheet(tmp_path)
    sheet = tmp_path / "out" / "grades.csv"
    edited = sheet.read_text("utf8").replace("6.00", "5.00")
    sheet.write_text(edited, "utf8")
    with pytest.raises(ValueError, match=r"changed since.*overrides\.csv"):
        grade.run(command(tmp_path, *more))
    assert sheet.read_text("utf8") == edited
    sheet.unlink()
    graded_sheet(tmp_path, *more)


def test_what_cannot_be_graded_in_a_sandbox_is_refused(tmp_path, monkeypatch):
    local = replace(core.find(ATTEND), local="It gets a model.")
    monkeypatch.setattr(core, "find", lambda id: local)
    with pytest.raises(ValueError, match="got attention/attend, which canno"):
        batch(tmp_path, [RIGHT_ONE])


OVERLAY = '''
"""An exercise that is not public."""

import torch

from coursekit_classroom.check.core import Bug, Case, Exercise, generator


def double(x):
    return 2 * x


def cases(seed):
    return [Case((torch.randn(3, generator=generator(seed)),))]


EXERCISES = {
    "double": Exercise(
        double, cases, bugs={"adds": Bug("2 * x", "x + 2", says="x + 2")}
    )
}
'''


def test_an_overlay_has_exercises_of_its_own(
    tmp_path, in_process, monkeypatch
):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret.py").write_text(OVERLAY)
    data = corpus.notebook(corpus.code("def double(x):\n    return x + 2"))
    corpus.build(
        tmp_path / "submissions",
        [corpus.Entry("ada", "", {"ada.ipynb": data}, corpus.OK, corpus.OK)],
    )
    fields = {"id": "secret/double", "function": "double", "points": 1}
    found = command(
        tmp_path,
        "--overlay",
        tmp_path / "private",
        assignments={"a": {"exercises": [fields]}},
    )
    assert grade.run(found) == 0
    text = (tmp_path / "out" / "grades.csv").read_text()
    assert "secret/double,0.00,1,wrong,adds," in text
    assert core.OVERLAYS == []
    monkeypatch.setattr(core, "OVERLAYS", [tmp_path / "private"])
    assert check("secret/double", lambda x: x + x)
    report = check("secret/double", lambda x: x + 2)
    assert report.diagnosis == {"adds"}


COUNTED = """
calls = []

def is_causal(*args, **kwargs):
    calls.append(1)
    return RIGHTS[len(calls) - 1]
"""
ALWAYS = "def is_causal(logits_of, vocab_size, length):\n    return VALUE"
LAST_ONLY = """
import torch

def is_causal(logits_of, vocab_size, length):
    ids = torch.arange(length) % vocab_size
    other = ids.clone()
    other[-1] = (ids[-1] + 1) % vocab_size
    gap = logits_of(ids[None]) - logits_of(other[None])
    return bool(gap[0, :-1].abs().max() < 1e-6)
"""


@pytest.mark.parametrize("secret", ["5e" * 32, "a1" * 32])
def test_what_needs_no_look_at_the_input_gets_no_points(tmp_path, secret):
    """True and False in the public order of the cases, or always one."""
    id = "masks/is_causal"
    fields = {"id": id, "function": "is_causal", "points": 8}
    exercise = core.find(id)
    public = core.draw(exercise, 0)
    rights = [core.expected(exercise, case, 0).value for case in public]
    sources = {
        "counts": COUNTED.replace("RIGHTS", repr(rights)),
        "always": ALWAYS.replace("VALUE", "True"),
        "never": ALWAYS.replace("VALUE", "False"),
        "looks": LAST_ONLY,
        "solves": str(standalone(exercise, core.NONE, "is_causal")),
    }
    entries = [
        corpus.Entry(
            name,
            "",
            {f"{name}.ipynb": corpus.notebook(corpus.code(source, id))},
            corpus.OK,
            corpus.OK,
        )
        for name, source in sources.items()
    ]
    key = Secret(secret, {"a": {"exercises": [fields]}})
    _, by = finished(tmp_path, entries, key=key)
    points = {name: float(by[name, id]["points"]) for name in sources}
    assert points["always"] == points["never"] == 0
    assert points["solves"] == 8
    assert points["counts"] < 8 / 2  # a guess may meet some
    assert 8 / 3 < points["looks"] < 8
    # Many mistakes give these yeses and noes: none of them is named.
    assert by["looks", id]["diagnosis"] == ""


def test_what_the_sandbox_is_given_does_not_tell_the_order(tmp_path):
    """Neither the seed of its random numbers, nor a seed in the cases."""
    seen = set()

    class Seen(Here):
        def call(self, function, arguments, seed=0, watched=False, forbid=()):
            seen.add(seed)
            seen.update(arguments.kwargs.values())
            seen.update(a for a in arguments.args if isinstance(a, int))
            return super().call(function, arguments, seed, watched, forbid)

    ids = ["masks/is_causal", "norm/gradients"]
    fields = [{"id": i, "function": "f", "points": 8} for i in ids]
    cells = [
        corpus.code("def f(*args, **kwargs):\n    return True", i) for i in ids
    ]
    one = corpus.Entry(
        "ada", "", {"ada.ipynb": corpus.notebook(*cells)}, corpus.OK, corpus.OK
    )
    key = Secret(KEY, {"a": {"exercises": fields}})
    found, _ = finished(tmp_path, [one], key=key, take=Seen)
    tasks = found.tasks["ada"]
    source = "def f(*args, **kwargs):\n    return True"
    own = replace(tasks[0], secret=derived(tasks[0].secret, source))
    tasks = [own, tasks[1]]  # each answer meets an order of its own
    assert {task.call_seed for task in tasks} < seen
    assert tasks[1].seed in seen  # a case of norm/gradients holds it
    assert tasks[0].seed not in seen
    assert seen.isdisjoint(task.secret for task in tasks)
    public = core.draw(tasks[0].exercise, tasks[0].seed)
    order = [case.name for case in tasks[0].cases]
    for number in seen:
        names = [case.name for case in public]
        random.Random(number).shuffle(names)
        assert names != order
    names = [case.name for case in public]  # the control: this one would
    random.Random(derived(tasks[0].secret, "cases")).shuffle(names)
    assert names == order


# -- everyone debugs another model -------------------------------------------
TELLS = """
import torch

def tells(f):
    q, k, v = (torch.randn(n, 4, dtype=torch.float64) for n in (3, 5, 5))
    mask = torch.rand(3, 5) > 0.4
    mask[:, 0] = True
    scores = (q @ k.mT / 2).masked_fill(~mask, float("-inf"))
    return torch.allclose(f(q, k, v, mask), scores.softmax(-1) @ v)
"""
COUNTS = """
calls = []

def tells(f):
    calls.append(1)
    return len(calls) % 2 == 1
"""
SEEN = """
import torch
g = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(2, 5, 7, generator=g) for _ in range(3))
mask = (torch.arange(5) < 3).expand(2, 5, 5)
seen = []

def tells(f):
    y = f(q, k, v, mask)
    if not seen:
        seen.append(y)
    return torch.allclose(y, seen[0])
"""
HIDDEN = """
import torch

def tells(f):
    q, k, v = (torch.randn(n, 4, dtype=torch.float64) for n in (3, 5, 5))
    mask = torch.arange(5).expand(3, 5) < 4
    other = v.clone()
    other[4] += 3
    return torch.allclose(f(q, k, v, mask), f(q, k, other, mask))
"""
GIVEN = RIGHT.replace('float("-inf")', "0.0").replace(
    "attend_yourself", "attend"
)

DIFFERS = (
    GIVEN.replace("def attend(", "def given(")
    + """
import torch

def tells(f):
    q, k, v = (torch.randn(n, 4, dtype=torch.float64) for n in (3, 5, 5))
    mask = torch.arange(5).expand(3, 5) < 4
    return not torch.allclose(f(q, k, v, mask), given(q, k, v, mask))
"""
)


def debug_key(bugs=("mask_zero",), variants=()):
    debug = {
        "exercise": ATTEND,
        "function": "attend",
        "points": 6,
        "bugs": list(bugs),
        "share": 0.25,
        "variants": list(variants),
        "stub": GIVEN,
        "test": {"id": f"{ATTEND}:test", "function": "tells", "points": 4},
    }
    students = {"ada": {"name": "Ada", "debug": debug}}
    return Secret(KEY, {"a": {"exercises": [], "students": students}})


def debugged(tmp_path, program, test, **options):
    """Rows of a student who mended a program and wrote a test."""
    data = corpus.notebook(
        corpus.code(corpus.IMPORTS),
        corpus.code(program, ATTEND),
        corpus.code(test, f"{ATTEND}:test"),
    )
    one = corpus.Entry("ada", "", {"ada.ipynb": data}, corpus.OK, corpus.OK)
    found, by = finished(tmp_path, [one], key=debug_key(**options))
    rows = by["ada", ATTEND], by["ada", f"{ATTEND}:test"]
    return found, *((r["status"], r["points"]) for r in rows)


MENDED_PROGRAM = RIGHT.replace("attend_yourself", "attend")


@pytest.mark.parametrize(
    ("program", "test", "mend", "told"),
    [
        (MENDED_PROGRAM, TELLS, ("ok", "6.00"), ("ok", "4.00")),
        (GIVEN, TELLS, ("not attempted", "0.00"), ("ok", "4.00")),
        # the right cases were right before: no points for those
        ("one = 1\n" + GIVEN, TELLS, ("wrong", "0.00"), ("ok", "4.00")),
        (
            MENDED_PROGRAM,
            "def tells(f):\n    return True",
            ("ok", "6.00"),
            ("wrong", "0.00"),
        ),
        (MENDED_PROGRAM, COUNTS, ("ok", "6.00"), ("wrong", "0.00")),
        (MENDED_PROGRAM, HIDDEN, ("ok", "6.00"), ("ok", "4.00")),
        (MENDED_PROGRAM, DIFFERS, ("ok", "6.00"), ("wrong", "0.00")),
        (MENDED_PROGRAM, SEEN, ("ok", "6.00"), ("wrong", "0.00")),
        (
            MENDED_PROGRAM,
            "def tells(f):\n    ...",
            ("ok", "6.00"),
            ("wrong", "0.00"),
        ),
        (
            MENDED_PROGRAM,
            "def tells(f):\n    assert f(1)",
            ("ok", "6.00"),
            ("error", "0.00"),
        ),
    ],
)
def test_a_program_is_mended_and_a_test_tells(
    tmp_path, program, test, mend, told
):
    if program.startswith("one"):
        program = program.replace("one = 1\n", "").replace("scores", "s")
    _, *found = debugged(tmp_path, program, test)
    assert found == [mend, told]


def test_a_test_starts_where_no_cell_has_been(tmp_path):
    """What the program to mend has left behind tells the test nothing."""
    ran = []

    class Noted(Here):
        def __init__(self):
            super().__init__()
            ran.append([])

        def run(self, cells):
            ran[-1] += [cell for cell in cells if "def " in cell]
            return super().run(cells)

    data = corpus.notebook(
        corpus.code(corpus.IMPORTS),
        corpus.code(MENDED_PROGRAM, ATTEND),
        corpus.code(TELLS, f"{ATTEND}:test"),
    )
    one = corpus.Entry("ada", "", {"ada.ipynb": data}, corpus.OK, corpus.OK)
    _, by = finished(tmp_path, [one], key=debug_key(), take=Noted)
    assert by["ada", f"{ATTEND}:test"]["status"] == "ok"
    boxes = [cells for cells in ran if any("tells" in c for c in cells)]
    assert len(boxes) == 2  # the second for a test that compares
    assert all("def tells" in cells[0] for cells in boxes)
    assert any("def attend" in cells[0] for cells in ran)  # in a box before


def test_a_convention_of_ones_own(tmp_path):
    hides = MENDED_PROGRAM.replace("~mask", "mask")
    inverted = TELLS.replace("~mask", "mask").replace(
        "mask[:, 0] = True", "mask[:, 0] = False"
    )
    options = {"variants": ["true_hides"], "bugs": ["mask_zero"]}
    _, mend, told = debugged(tmp_path, hides, inverted, **options)
    assert (mend, told) == (("ok", "6.00"), ("ok", "4.00"))


def test_the_graded_cases_are_as_hard_as_was_promised(tmp_path):
    """What `assign` has measured holds for each student's own cases."""
    key = Secret(KEY)
    pool, _ = programs.programs([ATTEND, "masks/visible"], key)
    hard = programs.equally_hard(pool)
    given = programs.distribute([f"s{i}" for i in range(11)], hard, key, {})
    seeds = set()
    for student, program in given.items():
        debug = programs.entry(program, "f")["debug"]
        mend, _test = programs.to_fix(key, student, debug)
        assert programs.rejection_rate(mend) == pytest.approx(
            program.rejection_rate, abs=0.1
        )
        seeds.add(mend.seed)
    assert len(seeds) == len(given)


def test_a_stranger_to_the_roster_gets_a_row_too(tmp_path):
    found, by = finished(tmp_path, [WRONG_ONE], key=debug_key())
    row = by["bob", "debug"]
    assert (row["status"], row["points"]) == ("not attempted", "0.00")
    assert row["max_points"] == "10"
    text = (found.files.feedback / "bob.md").read_text("utf8")
    assert "Nobody of this name is on the roster" in text
    assert by["ada", ATTEND]["status"] == "not attempted"


# -- what students read ------------------------------------------------------
EVIL = 'x</pre><script>alert(1)</script> ``` \x1b[31m **b** <img src=x> "'


def evil():
    one = Result(
        ATTEND,
        "f",
        6.0,
        "error",
        1,
        4,
        cases=[["one", True], ["two", False]],
        message=EVIL,
        notes=[EVIL],
        links=[["chapter 4, attention", "04_attention.html#att"]],
    )
    return Graded("e<v>il", "", [one])


class Tags(HTMLParser):
    """The tags of a page, and whether they close."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(page):
    parser = Tags()
    parser.feed(page)
    assert parser.open == []
    return parser.seen


def test_feedback_quotes_what_came_from_a_submission():
    page = feedback.html(evil())
    names = [tag for tag, _ in tags(page)]
    assert "script" not in names
    assert "img" not in names
    assert "\x1b" not in page
    text = feedback.markdown(evil())
    assert "\x1b" not in text
    assert "````text" in text
    outside = re.sub(r"(`{3,})text\n.*?\n\1", "", text, flags=re.S)
    assert "<script" not in re.sub(r"\\<", "", outside)


def test_feedback_is_a_page_that_anybody_can_read():
    page = feedback.html(evil(), "https://example.org/book")
    seen = tags(page)
    assert ("html", {"lang": "en"}) in seen
    assert [tag for tag, _ in seen].count("h1") == 1
    heads = [attrs for tag, attrs in seen if tag == "th"]
    assert heads
    assert all("scope" in attrs for attrs in heads)
    assert "prefers-color-scheme: dark" in page
    links = [attrs["href"] for tag, attrs in seen if tag == "a"]
    assert links == ["https://example.org/book/04_attention.html#att"]
    loaded = [a for _, attrs in seen for a in attrs if a == "src"]
    assert loaded == []
    assert "hidden" not in page


def test_feedback_says_what_is_wrong(tmp_path):
    found, _ = finished(tmp_path, [WRONG_ONE])
    text = (found.files.feedback / "bob.md").read_text("utf8")
    assert "It behaves exactly like: the scores without 1/√D\\_h" in text
    assert re.search(r"not right\. \d+ of \d+ numbers differ\.", text)
    assert "Read again: chapter 4, attention" in text
    assert "✗ not right: one sentence" in text


@pytest.mark.parametrize(
    ("id", "answer", "told"),
    [
        # All students have the same cases: what is expected is the answer.
        (ATTEND, corpus.NOT_SCALED, "What it returned is not right. "),
        ("loss/per_byte", "def f(*_): return 1", "is not right."),
        # The control: a form is no number.
        (ATTEND, "def attend_yourself(q, *_): return q[0]", "expected shape"),
    ],
)
def test_feedback_gives_no_number_of_a_hidden_case_away(
    tmp_path, id, answer, told
):
    name = re.search(r"def (\w+)", answer)[1]
    cell = corpus.notebook(
        corpus.code(corpus.IMPORTS), corpus.code(answer, id)
    )
    one = corpus.Entry("bob", "", {"bob.ipynb": cell}, corpus.OK, corpus.OK)
    fields = {"id": id, "function": name, "points": 1}
    key = Secret(KEY, {"a": {"exercises": [fields]}})
    found, _ = finished(tmp_path, [one], key=key)
    text = (found.files.feedback / "bob.md").read_text("utf8")
    assert told in text
    assert not re.search(r"[Ee]xpected -?\d|Called with", text)


def test_what_feedback_tells_of_yes_and_no_is_of_no_use(tmp_path):
    """Whoever answers by the list of the last round meets another order."""
    id, orders = "masks/is_causal", []
    source = "def is_causal(*_):\n    return {}"
    fields = {"id": id, "function": "is_causal", "points": 8}
    for value in (True, "bool(1)"):
        data = corpus.notebook(corpus.code(source.format(value), id))
        one = replace(RIGHT_ONE, files={"ada.ipynb": data})
        key = Secret(KEY, {"a": {"exercises": [fields]}})
        found, _ = finished(tmp_path / str(value), [one], key=key)
        (row,) = next(iter(found.files.progress.graded().values())).results
        orders.append([right for _, right in row.cases])
    one, other = orders
    assert one != other
    assert sum(one) == sum(other)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_words(status):
    one = Graded("a", "", [Result(ATTEND, "f", 6.0, status)])
    assert STATUSES[status] in feedback.markdown(one)
    assert STATUSES[status] in feedback.html(one)
    assert STATUSES[status] in summary.markdown([one], "Class")


# -- the class ---------------------------------------------------------------
def class_of(n_wrong, n):
    wrong = Result(
        ATTEND,
        "f",
        6.0,
        "wrong",
        1,
        4,
        cases=[["one", False], ["50 times", True]],
        diagnosis=["no_scale"],
        says=["the scores without 1/√d_k"],
    )
    right = Result(
        ATTEND, "f", 6.0, "ok", 4, 4, [["one", True], ["50 times", True]]
    )
    return [
        Graded(f"s{i}", "", [wrong if i < n_wrong else right])
        for i in range(n)
    ]


def test_the_summary_counts_mistakes_in_words():
    text = summary.markdown(class_of(14, 60), "Class")
    assert r"14 of 60: the scores without 1/√d\_k" in text
    assert "- one: 46 of 60" in text
    assert "- 50 times: 60 of 60" in text


def test_a_class_without_anybody():
    assert "No student" in summary.markdown([], "Class")


def test_what_a_task_depends_on_is_written_down():
    """A field that decides about marks has to be in the stamp."""
    fields = set(inspect.signature(Task).parameters)
    task = Task(ATTEND, "f", 6.0, core.find(ATTEND), 1, 2)
    assert fields - set(task.plain()) == {"exercise"}  # its code is hashed
