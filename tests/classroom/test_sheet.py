"""A grade sheet becomes what a gradebook imports, and a roster is read.

What Canvas and Moodle export is written down here as they write it: their
importers' rules are checked by code of its own, on Python's csv alone.
"""

import argparse
import csv
import re

import pytest

from coursekit_classroom.teach import sheet
from coursekit_classroom.teach.collect import recognize
from coursekit_classroom.teach.roster import read_roster
from coursekit_classroom.teach.write import COLUMNS, table

# As Canvas's gradebook exports them: a row of points, perhaps one on manual
# posting, the test student at the end, read-only columns on the right.
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Essay (77),Current Score
    Points Possible,,,,,10,(read only)
,,,,,Manual Posting,
"Right, Ana",4321,1017,aright,CS 1-01,8,80
"Stone, Bob",4322,1018,bstone,CS 1-01,,
"Wu, Lee",4323,1019,lwu1,CS 1-02,9,90
"Wu, Lee",4324,1020,lwu2,CS 1-02,9,90
"Student, Test",4399,,0f3a,CS 1-01,,
"""
# As Moodle's assignment gives out its grading worksheet.
WORKSHEET = """\
Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade,\
Grade can be changed,Last modified (submission),Last modified (grade),\
Feedback comments
Participant 301,Ana Right,aright,ana@uni.edu,Submitted for grading,,13.00,\
Yes,"Monday, 5 October 2026, 11:59 PM",-,
Participant 302,Bob Stone,bstone,bob@uni.edu,No submission,,13.00,Yes,-,-,
Participant 303,Lee Wu,lwu1,lee@uni.edu,Submitted for grading,4.00,13.00,\
Yes,-,"Tuesday, 6 October 2026, 8:00 AM","Well, well"
Participant 304,Lee Wu,lwu2,wu@uni.edu,Submitted for grading,,13.00,Yes,-,-,
"""
# As Moodle's gradebook exports a course.
COURSE = """\
First name,Last name,ID number,Institution,Department,Email address,\
Assignment: Essay (Real),Course total (Real),Last downloaded from this course
Ana,Right,,,,ana@uni.edu,7.00,7.00,1790000000
Bob,Stone,17,,,bob@uni.edu,-,-,1790000000
"""
POINTS = {  # of the two exercises, 8 and 5
    "aright": (8, 2.5),
    "lwu1": (4, 0),
    "lwu2": (1.6, 5),
    "=eve": (8, 5),
}


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "utf8")
    return path


@pytest.fixture
def grades(tmp_path):
    """What `coursekit grade` writes of four students."""
    rows = [
        [
            *(("'" if id[0] == "=" else "") + id, f"masks/{exercise}"),
            *(f"{points:.2f}", most, "wrong", "", "", "", "landlock"),
            *("key", "1", "a.ipynb", late, "0.00"),
        ]
        for id, both in POINTS.items()
        for exercise, points, most, late in zip(
            ("a", "b"), both, ("8", "5"), (0, 2), strict=True
        )
    ]
    return written(tmp_path, "grades.csv", table(COLUMNS, rows))


def made(grades, *more):
    """Run the command; the rows that it has written."""
    parser = argparse.ArgumentParser()
    sheet.add_options(parser)
    args = parser.parse_args([str(grades), *map(str, more)])
    assert sheet.run(args) == 0
    path = grades.with_name(f"grades-{args.format}.csv")
    with path.open(newline="", encoding="utf8") as file:
        return list(csv.reader(file))


# -- rosters -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "system", "names", "numbers"),
    [
        (
            CANVAS,
            "canvas",
            {
                "aright": "Ana Right",
                "bstone": "Bob Stone",
                "lwu1": "Lee Wu",
                "lwu2": "Lee Wu",
            },
            ["4321", "4322", "4323", "4324"],
        ),
        (
            CANVAS.replace(",SIS User ID,SIS Login ID,", ",,,"),
            "canvas",
            {
                "4321": "Ana Right",
                "4322": "Bob Stone",
                "4323": "Lee Wu",
                "4324": "Lee Wu",
            },
            ["4321", "4322", "4323", "4324"],
        ),
        (
            WORKSHEET,
            "moodle",
            {
                "aright": "Ana Right",
                "bstone": "Bob Stone",
                "lwu1": "Lee Wu",
                "lwu2": "Lee Wu",
            },
            ["301", "302", "303", "304"],
        ),
        (
            COURSE,  # not everybody has an ID number
            "moodle",
            {"ana@uni.edu": "Ana Right", "bob@uni.edu": "Bob Stone"},
            ["", ""],
        ),
    ],
    ids=["canvas", "canvas without SIS", "worksheet", "course"],
)
def test_an_export_is_a_roster(tmp_path, text, system, names, numbers):
    roster = read_roster(written(tmp_path, "class.csv", text))
    assert roster.system == system
    assert roster.names() == names
    assert [one.number for one in roster.members] == numbers


# -- what is imported --------------------------------------------------------
def as_canvas_reads(rows):
    """The grades that Canvas would take, by its user id.

    The rules of lib/gradebook_importer.rb: names in the first columns, the
    section last of these, a row of points, students by ID.
    """
    head, *rest = rows
    assert "Student" in head[0]
    assert "ID" in head[1]
    student_columns = 3
    if re.search(r"SIS\s+User\s+ID", head[2]):
        assert re.search(r"SIS\s+Login\s+ID", head[3])
        student_columns = 5
    assert "Section" in head[student_columns - 1]
    titles = head[student_columns:]
    assert not any(re.search("Current|Final|Override", t) for t in titles)
    possible, found = None, {}
    for row in rest:
        assert len(row) == len(head)
        if "Points Possible" in row[0]:
            possible = dict(zip(titles, row[student_columns:], strict=True))
        else:
            found[row[1] or row[3]] = row[student_columns:]
    return possible, found


def test_canvas_takes_it_back(tmp_path, grades, capsys):
    roster = written(tmp_path, "canvas.csv", CANVAS)
    title = "Homework 2 (1234)"
    more = ("--roster", roster, "--format", "canvas", "--title", title)
    rows = made(grades, *more)
    assert as_canvas_reads(rows) == (
        {title: "13"},
        {
            "4321": ["10.50"],
            "4322": [""],
            "4323": ["4.00"],
            "4324": ["6.60"],
        },
    )
    assert rows[2][:5] == ["Right, Ana", "4321", "1017", "aright", "CS 1-01"]
    said = capsys.readouterr().out
    assert "1 submission belongs to nobody on the roster: =eve." in said
    assert "on the roster, and without a row in grades.csv: Bob Stone." in said
    with pytest.raises(AssertionError):  # the control: the wide one is none
        as_canvas_reads(made(grades, "--roster", roster))


def test_canvas_finds_a_login_of_our_own_roster(tmp_path, grades):
    roster = written(tmp_path, "own.csv", "id,name\naright,Ana Right\n")
    rows = made(grades, "--roster", roster, "--format", "canvas")
    assert as_canvas_reads(rows)[1] == {"aright": ["10.50"]}


def test_moodle_takes_its_worksheet_back(tmp_path, grades):
    """Every cell as it was, but for the grades."""
    roster = written(tmp_path, "worksheet.csv", WORKSHEET)
    rows = made(grades, "--roster", roster, "--format", "moodle")
    before = list(csv.reader(WORKSHEET.splitlines()))
    at = before[0].index("Grade")
    got = ["Grade", "10.50", "", "4.00", "6.60"]
    assert [row[at] for row in rows] == got
    for row, was in zip(rows, before, strict=True):
        assert row[:at] + row[at + 1 :] == was[:at] + was[at + 1 :]
    wanted = {"Identifier", "Grade", "Last modified (grade)"}
    assert wanted <= set(rows[0])


@pytest.mark.parametrize("title", ["Maximum Grade", "Maximum grade"])
def test_moodle_passes_over_what_is_above_its_maximum(tmp_path, grades, title):
    """So a worksheet for other points is refused, or converted."""
    text = WORKSHEET.replace("13.00", "100,00")
    text = text.replace("Maximum Grade", title)
    text = re.sub("(100,00)", r'"\1"', text)
    roster = written(tmp_path, "worksheet.csv", text)
    more = ("--roster", roster, "--format", "moodle")
    with pytest.raises(ValueError, match=r"of 13 points, .* says 100,00"):
        made(grades, *more)
    rows = made(grades, *more, "--out-of", 100)
    assert [row[5] for row in rows[1:]] == ["80.77", "", "30.77", "50.77"]


def test_two_of_one_name_are_told_apart_by_number(tmp_path, grades):
    """As they stand in a sheet that was made without a roster."""
    text = grades.read_text("utf8")
    for id, other in (("lwu1", "Lee Wu_303"), ("lwu2", "Lee Wu_304")):
        text = text.replace(id, other)
    grades.write_text(text, "utf8")
    roster = written(tmp_path, "worksheet.csv", WORKSHEET)
    rows = made(grades, "--roster", roster, "--format", "moodle")
    at = rows[0].index("Grade")
    assert [row[at] for row in rows[1:]] == ["10.50", "", "4.00", "6.60"]
    for id, other in (
        ("Lee Wu_303", "wulee_4323"),
        ("Lee Wu_304", "eve_4324"),
    ):
        text = text.replace(id, other)  # the second is somebody else
    grades.write_text(text, "utf8")
    roster = written(tmp_path, "canvas.csv", CANVAS)
    rows = made(grades, "--roster", roster, "--format", "canvas")
    assert [row[-1] for row in rows[2:]] == ["10.50", "", "4.00", ""]


def test_moodles_gradebook_gets_who_and_what(tmp_path, grades):
    text = COURSE.replace("Ana,Right,,", "Ana,Right,aright,")
    roster = written(tmp_path, "course.csv", text)
    rows = made(grades, "--roster", roster, "--format", "moodle")
    names = ["First name", "Last name", "ID number", "Email address"]
    assert rows[:2] == [
        [*names, "grades"],
        ["Ana", "Right", "aright", "ana@uni.edu", "10.50"],
    ]
    assert [row[-1] for row in rows[2:]] == [""]


def test_a_line_for_each_student(tmp_path, grades):
    rows = made(grades)
    assert rows[:3] == [
        ["id", "name", "masks/a", "masks/b", "total", "days_late"],
        ["", "points possible", "8", "5", "13", ""],
        ["aright", "", "8.00", "2.50", "10.50", "2"],
    ]
    assert rows[-1][0] == "'=eve"
    roster = written(tmp_path, "canvas.csv", CANVAS)
    rows = made(grades, "--roster", roster)
    assert [row[1] for row in rows[2:]] == [
        *("Ana Right", "Bob Stone", "Lee Wu", "Lee Wu")
    ]
    assert rows[3][2:] == ["", "", "", ""]


@pytest.mark.parametrize("encoding", ["utf8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_spreadsheet_may_save_it_again(grades, encoding, end):
    """With semicolons, decimal commas and blank lines; also a roster."""
    before = made(grades)
    rows = list(csv.reader(grades.read_text("utf8").splitlines()))
    rows = [[re.sub(r"^(\d+)\.", r"\1,", c) for c in row] for row in rows]
    lines = [*map(";".join, rows), ";" * len(rows[0]), ""]
    grades.write_bytes(end.join(lines).encode(encoding))
    assert made(grades) == before
    roster = "id;name\naright;Ana\n;\n\n".replace("\n", end)
    path = grades.with_name("class.csv")
    path.write_bytes(roster.encode(encoding))
    assert read_roster(path).names() == {"aright": "Ana"}


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (None, ["--format", "canvas"], "got no --roster"),
        (None, ["--format", "moodle"], "got no --roster"),
        (None, ["--out-of", "0"], "above 0: got 0"),
        (None, ["--out", "{}"], "not written over"),
        ("a,b\n1,2\n", [], "is no sheet"),
        ("student,exercise,points,max_points\n", [], "has none"),
    ],
)
def test_what_is_wrong_is_said(grades, text, more, said):
    if text is not None:
        grades.write_text(text)
    with pytest.raises(ValueError, match=said):
        made(grades, *(word.format(grades) for word in more))


def test_a_worksheet_is_not_written_over(tmp_path, grades):
    roster = written(tmp_path, "worksheet.csv", WORKSHEET)
    with pytest.raises(ValueError, match="a table that is read is not"):
        made(grades, "--format", "moodle", "--roster", roster, "--out", roster)
    assert roster.read_text("utf8") == WORKSHEET


def test_an_id_is_nobodys_in_another_column(tmp_path, grades):
    """The login of one is the number of the other: the login counts."""
    rows = "student,exercise,points,max_points\n1001,a/b,3,4\n7,a/b,1,4\n"
    path = written(tmp_path, "own.csv", rows)
    roster = written(
        tmp_path,
        "canvas.csv",
        "Student,ID,SIS User ID,SIS Login ID,Section\n"
        '"Right, Ana",5,s5,1001,A\n"Wrong, Bob",1001,s6,7,A\n',
    )
    people, strangers = sheet.who_is_who(
        sheet.read_grades(path), read_roster(roster)
    )
    assert {one.name: name for one, name in people} == {
        "Ana Right": "1001",
        "Bob Wrong": "7",
    }
    assert strangers == []


def test_a_name_is_found_by_its_letters():
    """A sheet that was graded without a roster has what Canvas wrote."""
    known = {"aright": {"name": "Ana Right"}}
    assert recognize("rightana", known, ()) == "aright"
