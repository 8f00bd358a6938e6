"""``coursekit assign``: from chapters to what students get, and a secret."""

import argparse
import inspect
import random
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from coursekit_classroom import yourfile
from coursekit_classroom.check import core
from coursekit_classroom.check.report import title
from coursekit_classroom.notebooks.declared import declared
from coursekit_classroom.notebooks.install import address_near, install_cell
from coursekit_classroom.teach import steps
from coursekit_classroom.teach.deadline import Deadline, read_due
from coursekit_classroom.teach.exports import (
    VISIBILITIES,
    write_gradescope,
    write_nbgrader,
    write_otter,
)
from coursekit_classroom.teach.handout import (
    Handout,
    Writer,
    amendments,
    instructor_notebook,
    read_handout,
    student_notebook,
    write,
)
from coursekit_classroom.teach.plan import overlay
from coursekit_classroom.teach.programs import (
    distribute,
    entered,
    entry,
    equally_hard,
    mutant,
    programs,
)
from coursekit_classroom.teach.roster import (
    Member,
    read_roster,
    safe_name,
)
from coursekit_classroom.teach.secret import SECRET_FILE, Secret

FORMATS = ("nbgrader", "otter", "gradescope")
PRIVATE = (  # what the other commands read and write, as the page calls it
    *("dist/", "submissions/", "feedback/", "grades*", "overrides.csv"),
    *("timing.csv", "summary.*", "worksheet.csv", "roster.csv"),
)
DEBUG = "debug"  # the name of the assignment in which everyone fixes another


# -- the command -------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit assign``."""
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        help="a chapter: book/04_attention.md",
    )
    parser.add_argument(
        "--step",
        action="extend",
        nargs="+",
        type=int,
        metavar="K",
        help="chapters whose step in the student's own file, "
        "my_transformer.py, is an assignment of its own, 0 to 12",
    )
    parser.add_argument(
        "--secret",
        default=SECRET_FILE,
        metavar="FILE",
        help="from it come the hidden cases: keep it to yourself; made if "
        f"there is none [default: {SECRET_FILE}]",
    )
    parser.add_argument(
        "--out",
        default="dist",
        metavar="DIR",
        help="where the notebooks go [default: dist]",
    )
    parser.add_argument(
        "--roster",
        metavar="CSV",
        help="columns id,name, or as Canvas or Moodle exports it: each "
        "student gets a program to fix",
    )
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        metavar="ID",
        help="the exercises to give out [default: all of the pages]",
    )
    parser.add_argument(
        "--assess",
        action="extend",
        nargs="+",
        metavar="ID",
        help="exercises that are assessed: with a convention that the "
        "secret draws, if they have any (`all` for all)",
    )
    parser.add_argument(
        "--points",
        action="extend",
        nargs="+",
        metavar="ID=N",
        help="what an exercise is worth [default: as the page says]",
    )
    parser.add_argument(
        "--due",
        metavar="DATE",
        help="2026-10-05, until the end of the day, or 2026-10-05T18:00, in "
        "this computer's time zone",
    )
    parser.add_argument(
        "--late",
        type=float,
        metavar="PERCENT",
        help="what each day after --due takes off the points [default: 0]",
    )
    parser.add_argument(
        "--late-cap",
        type=float,
        metavar="PERCENT",
        help="what --late takes off at most [default: 100]",
    )
    parser.add_argument(
        "--late-days",
        type=int,
        metavar="N",
        help="days after --due for which nothing is taken off [default: 0]",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="of the assignment, for two that are made from one page "
        "[default: the page's]",
    )
    parser.add_argument(
        "--overlay",
        metavar="DIR",
        help="your folder with exercises and pages that are not public",
    )
    parser.add_argument(
        "--format",
        action="extend",
        nargs="+",
        choices=FORMATS,
        help="what is written for other graders [default: all of them]",
    )
    parser.add_argument(
        "--visibility",
        choices=list(VISIBILITIES),
        default="after_due_date",
        help="when students see their results on Gradescope [default: "
        "after_due_date]",
    )
    parser.add_argument(
        "--tag",
        default="",
        help="the tag of your repository from which the notebooks install "
        "the package, where it is missing [default: the main branch]",
    )


def run(args: argparse.Namespace) -> int:
    """Make an assignment: notebooks for students and for you, and exports.

    student/ is for students. instructor/, nbgrader/, otter/ and gradescope.zip
    hold solutions or the secret: keep them.
    """
    if not args.pages and not args.roster and not args.step:
        raise ValueError(
            "an assignment is made from chapters, for a roster or from a "
            "step: got none. Try `coursekit assign book/04_attention.md`."
        )
    torch.set_num_threads(1)  # the tensors are small
    folder = Path(args.overlay) if args.overlay else None
    with overlay(args.overlay):
        pages = [find_page(page, folder) for page in args.pages]
        class_ = read_roster(args.roster).members if args.roster else []
        terms = Terms.of(args, pages, folder)
        secret = open_secret(Path(args.secret), terms.out)
        for page in terms.pages:
            for line in make(page, secret, terms):
                print(line)
            enroll(secret.assignments[terms.name_of(page)], class_)
        for chapter in args.step or ():
            for line in make_step(chapter, secret, terms):
                print(line)
            enroll(secret.assignments[step_name(chapter)], class_)
        if class_ and (args.pages or not args.step):
            for line in make_debug(class_, secret, terms):
                print(line)
        secret.save()
    print(f"secret     {args.secret} (keep it: from it come the hidden cases)")
    keep_out_of_git(Path(args.secret))
    return 0


@dataclass(frozen=True)
class Terms:
    """What an instructor has said about an assignment."""

    pages: Sequence[Path]
    out: Path
    folder: Path | None
    """The overlay."""

    only: Collection[str]
    """The ids of the exercises that are given out; empty for all."""

    assess: Collection[str]
    points: Mapping[str, float]
    deadline: Deadline | None
    late: Mapping[str, float]
    """Of the deadline's fields, those that were given."""

    install: str
    """The first cell of each notebook."""

    formats: Collection[str]
    """Of FORMATS."""

    visibility: str
    """Of the results on Gradescope."""

    name: str = ""
    """Of the assignment, if it isn't the page's."""

    @classmethod
    def of(
        cls, args: argparse.Namespace, pages: Sequence[Path], folder: Any
    ) -> "Terms":
        """What the command line says.

        Raises:
            ValueError: if it names an exercise that no page has, or says
                something that cannot be.
        """
        pairs = [split_points(text) for text in args.points or ()]
        known = [
            {item.declared.id for item in read_handout(page, folder).items}
            for page in pages
        ]
        ids = set().union(*known, map(steps.id_of, args.step or ()))
        asked = (
            ("--only", args.only or ()),
            ("--assess", set(args.assess or ()) - {"all"}),
            ("--points", [id for id, _ in pairs]),
        )
        for option, given in asked:
            refuse_unknown(option, given, ids)
        if args.name is not None and len(pages) != 1:
            raise ValueError(
                "--name is for an assignment of one page: got "
                f"{args.name!r} for {len(pages)} pages. Leave it out."
            )
        if args.name is not None and safe_name(args.name) != args.name:
            raise ValueError(
                "--name may have up to 100 letters, digits and -_.@+, and "
                f"begins with a letter or digit: got {args.name!r}. Write "
                f"{safe_name(args.name) or 'exam-1'!r}."
            )
        said = {"percent": args.late, "cap": args.late_cap}
        said |= {"free": args.late_days}
        late = {name: n for name, n in said.items() if n is not None}
        if late and not args.due:
            raise ValueError(
                "what is late is so after a date: got --late without --due."
            )
        only = set(args.only or ())
        taken = [
            page
            for page, has in zip(pages, known, strict=True)
            if not only or only & has
        ]
        return cls(
            taken,
            Path(args.out),
            folder,
            only,
            set(args.assess or ()),
            dict(pairs),
            Deadline(read_due(args.due), **late) if args.due else None,
            late,
            first_cell(pages, args.tag),
            args.format or FORMATS,
            args.visibility,
            args.name or "",
        )

    @property
    def due(self) -> str:
        """When it is due, as the first cell of a notebook says it."""
        return f"\n\n**{self.deadline.in_words()}**" if self.deadline else ""

    def kept(self, name: str, secret: Secret) -> "Terms":
        """The same, with what a late day cost when the notebooks went out.

        Raises:
            ValueError: if another price is asked for now.
        """
        if self.deadline is None or name not in secret.assignments:
            return self
        was = secret.assignments[name].get("deadline", {})
        none = {"percent": 0, "cap": 100, "free": 0}
        before = {part: was.get(part, n) for part, n in none.items()}
        if before != {**before, **self.late}:
            raise ValueError(
                "what being late costs stays, since notebooks may be out that "
                f"say it: got another --late, and {name} has --late "
                f"{before['percent']:g} --late-cap {before['cap']:g} "
                f"--late-days {before['free']}. Give --due alone, or another "
                "--name."
            )
        return replace(self, deadline=replace(self.deadline, **before))

    def name_of(self, page: Path) -> str:
        """What the assignment is called.

        A chapter and the page that goes deeper have the same file name.
        """
        if [other.stem for other in self.pages].count(page.stem) > 1:
            return f"{page.resolve().parent.name}-{page.stem}"
        return self.name or page.stem

    def read(self, page: Path, **more: Any) -> Handout:
        """The exercises of a page that are given out."""
        found = read_handout(
            page,
            self.folder,
            only=self.only,
            points=self.points,
            assess=self.assess,
            **more,
        )
        found.page = self.name_of(page)
        found.install = self.install
        found.due = self.due
        return found


def split_points(text: str) -> tuple[str, float]:
    """``attention/attend=10`` as an id and a number.

    Raises:
        ValueError: if it is no such thing, or no number above 0.
    """
    id, _, number = text.partition("=")
    try:
        points = float(number)
    except ValueError:
        points = 0
    if not 0 < points < 1000:
        raise ValueError(
            "--points takes an id and a number above 0, "
            f"attention/attend=10: got {text!r}."
        )
    return id, int(points) if points.is_integer() else points


def refuse_unknown(
    option: str, asked: Iterable[str], known: Collection[str]
) -> None:
    """Refuse exercises that no page has.

    Raises:
        ValueError: if there are any.
    """
    if unknown := set(asked) - set(known):
        raise ValueError(
            f"{option} takes exercises of the pages: got "
            f"{', '.join(sorted(unknown))}, and they have "
            f"{', '.join(sorted(known)) or 'none'}."
        )


def find_page(name: str, folder: Path | None) -> Path:
    """A page's file, which may lie in the overlay."""
    places = [Path(name)]
    if folder is not None:
        places += [folder / name, folder / f"{name}.md"]
    for path in places:
        if path.is_file():
            return path
    raise ValueError(
        f"a page is a chapter's file: got {name}, which does not exist here. "
        "The chapters lie in the folder book/ of the repository: run this "
        "there, or give the path of one."
    )


def first_cell(pages: Iterable[Path], tag: str) -> str:
    """What installs the package, or says how where no address is known."""
    near = [*pages, Path.cwd() / "_config.yml"]
    return install_cell(next(filter(None, map(address_near, near)), ""), tag)


def enroll(assignment: dict[str, Any], class_: Iterable[Member]) -> None:
    """Have a row for everybody on the roster, whether they hand in or not."""
    for one in class_:
        assignment["students"].setdefault(one.id, one.entry())


def open_secret(path: Path, out: Path) -> Secret:
    """The instructor's secret, new if there is none yet."""
    for public in ("student", "students"):
        if path.resolve().is_relative_to((out / public).resolve()):
            raise ValueError(
                f"the secret is not for students: got --secret "
                f"{path}, which lies among what they get. Put it elsewhere."
            )
    if path.exists():
        return Secret.load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Secret.create(path)


def keep_out_of_git(secret: Path) -> None:
    """Have git pass over the secret and what goes with it."""
    file = secret.with_name(".gitignore")
    text = file.read_text("utf8") if file.exists() else ""
    known = {line.strip("/") for line in text.split()}
    names = [n for n in (secret.name, *PRIVATE) if n.strip("/") not in known]
    if names:
        text = "\n/".join([text.rstrip("\n"), *names]).lstrip("\n")
        file.write_text(f"{text}\n", "utf8")
        print(f"git        passes over what is private ({file})")


# -- the same for all --------------------------------------------------------
def make(page: Path, secret: Secret, terms: Terms) -> Iterator[str]:
    """Write everything about one chapter, and enter it into the secret."""
    out, name = terms.out, terms.name_of(page)
    terms = terms.kept(name, secret)
    variants = {
        item.declared.id: draw_variants(item.declared.id, secret)
        for item in terms.read(page).items
        if item.declared.kind == "assessed"
    }
    ours = terms.read(page, variants=variants, instructor=True)
    theirs = terms.read(page, variants=variants)
    ours.mark = theirs.mark = secret.mark(name)
    given = [  # besides the stubs
        cell.source
        for item in theirs.items
        for cell in item.cells
        if cell.kind == "code" and not cell.exercise
    ]
    plan = {
        "page": page.stem,
        "exercises": [
            {
                "id": item.declared.id,
                "function": item.declared.function,
                "points": item.declared.points,
                "kind": item.declared.kind,
                "variants": sorted(item.variants),
                "stub": item.declared.stub,
            }
            for item in theirs.items
            if not item.exercise.local
        ],
        "setup": [*theirs.setup, *given],
    }
    enter(secret, name, plan, terms)
    path = write(student_notebook(theirs), out / "student" / f"{name}.ipynb")
    yield f"student    {path}"
    made = instructor_notebook(ours, secret.id)
    path = write(made, out / "instructor" / f"{name}.ipynb")
    yield f"instructor {path}"
    yield from export(theirs, secret, terms)
    if terms.deadline:
        yield f"due        {terms.deadline.in_words()}"
    for item in theirs.items:
        if reason := item.exercise.local:
            yield f"note: {item.declared.id} is not graded: {reason}"
    yield from at_stake(theirs)


def export(handout: Handout, secret: Secret, terms: Terms) -> Iterator[str]:
    """Write an assignment for other graders."""
    out, name = terms.out, handout.page
    if "nbgrader" in terms.formats:
        path = write_nbgrader(handout, secret, out / "nbgrader")
        yield f"nbgrader   {path}"
    if "otter" in terms.formats:
        path = write_otter(handout, secret, out / "otter")
        yield f"otter      {path}"
    if "gradescope" in terms.formats:
        target = out / "gradescope" / f"{name}.zip"
        if len(terms.pages) == 1:
            target = out / "gradescope.zip"
        yield zipped(name, secret, target, terms)


def zipped(name: str, secret: Secret, path: Path, terms: Terms) -> str:
    """Write an assignment for Gradescope."""
    write_gradescope(name, secret, path, terms.folder, terms.visibility)
    return f"gradescope {path} (holds the secret: for Gradescope only)"


def enter(
    secret: Secret, name: str, plan: dict[str, Any], terms: Terms
) -> None:
    """Have an assignment in the secret, unless another of its name is there.

    Raises:
        ValueError: if what was given out under that name is something else.
    """
    before = secret.assignments.get(name)
    if terms.deadline:
        plan["deadline"] = terms.deadline.plain()
    if before is not None:
        for part in ("exercises", "step"):
            was, now = before.get(part), plan.get(part)
            if was != now:
                old, new = in_words(was), in_words(now)
                raise ValueError(
                    "what a secret has assigned stays, since its notebooks "
                    f"may be out: got {name} with {new}, and it has "
                    f"{'another stub' if old == new else old}. Give the new "
                    "one another --name, or another --secret."
                )
        if "deadline" in before and not terms.deadline:
            raise ValueError(
                f"{name} was assigned with a date, which its notebooks say: "
                f"got none. Give --due {before['deadline']['due']} again, or "
                "another date for all."
            )
    students = before["students"] if before else {}
    secret.assignments[name] = plan | {"students": students}
    secret.save()


def in_words(plan: Any) -> str:
    """What a list of exercises, or a step, is worth."""
    if not isinstance(plan, list):
        return f"{plan['points']:g} points" if plan else "no step"
    return ", ".join(
        f"{f['id']} ({f['points']:g} points"
        f"{''.join(', ' + v for v in f['variants'])})"
        for f in plan
    )


def at_stake(handout: Handout) -> Iterator[str]:
    """Which points a variant protects, and which the book's solutions earn."""
    graded = [item for item in handout.items if not item.exercise.local]
    varied = [item for item in graded if item.variants]
    public = [i for i in graded if not i.variants and not i.private]
    total = sum(item.declared.points for item in graded)
    for word, how, items in (
        ("assessed", "by a variant", varied),
        ("public", "earned by the book's own solutions", public),
    ):
        points = sum(item.declared.points for item in items)
        named = (
            item.declared.id
            + f" ({', '.join(sorted(item.variants))})" * bool(item.variants)
            for item in items
        )
        line = f"{word:<10} {points:g} of {total:g} points, {how}: "
        if items:
            yield textwrap.fill(
                line + ", ".join(named), 79, subsequent_indent=" " * 11
            )


def draw_variants(id: str, secret: Secret) -> list[str]:
    """A convention for an exercise: one or several of its variants."""
    names = sorted(core.find(id).variants)
    choices = [
        list(chosen)
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
    ]
    if not choices:
        return []
    return random.Random(secret.seed("variants", id)).choice(choices)


# -- a step of the student's own file ----------------------------------------
def step_name(chapter: int) -> str:
    """What the assignment of a chapter's step is called."""
    return f"step_{chapter:02}"


def make_step(chapter: int, secret: Secret, terms: Terms) -> Iterator[str]:
    """Have a chapter's step of the student's own file handed in."""
    counted = steps.of_step(chapter)
    out, name, id = terms.out, step_name(chapter), steps.id_of(chapter)
    terms = terms.kept(name, secret)
    points = terms.points.get(id, steps.POINTS)
    step = {
        "chapter": chapter,
        "points": points,
        "stub": yourfile.text(chapter),
        "counted": [contract.check.__name__ for contract in counted],
    }
    plan = {"page": name, "exercises": [], "step": step}
    enter(secret, name, plan, terms)
    for who, complete in (("student", False), ("instructor", True)):
        made = step_notebook(
            chapter, points, terms, complete, secret.mark(name)
        )
        path = write(made, out / who / f"{name}.ipynb")
        yield f"{who:10} {path}"
    if "gradescope" in terms.formats:
        yield zipped(name, secret, out / f"gradescope-{name}.zip", terms)
    yield f"           {points:g} points, in equal parts for:"
    for contract in counted:
        yield f"           {steps.title(contract)}"


def step_notebook(
    chapter: int, points: float, terms: Terms, complete: bool, mark: str
) -> Any:
    """The student's own file in a notebook, to be written and checked."""
    to = Writer(mark)
    written = ", ".join(f"`{name}`" for name in yourfile.STEPS[chapter])
    to.text(
        f"# Your file, chapter {chapter}\n\nThe next cell but one writes "
        f"`{yourfile.FILE}`. What earlier chapters write is filled in; if "
        "you have a file of your own, paste it in place of what stands "
        f"below the cell's first line. Write {written}, as chapter "
        f"{chapter} asks for, then run both cells: the second one checks "
        "your file, trains its model and generates from it. Hand in this "
        f"notebook, or `{yourfile.FILE}` itself. *({points:g} points, for "
        f"what is checked with ✓)*{terms.due}"
    )
    to.code(terms.install)
    to.code(
        f"%%writefile {yourfile.FILE}\n{yourfile.text(chapter, complete)}",
        exercise=steps.id_of(chapter),
        points=points,
        kind="assessed",
    )
    to.code(f"import coursekit\n\ncoursekit.step(at={chapter})")
    return to.notebook()


# -- everyone debugs a program -----------------------------------------------
def make_debug(
    class_: Sequence[Member], secret: Secret, terms: Terms
) -> Iterator[str]:
    """Give each student of a roster a program of their own to fix."""
    terms = terms.kept(DEBUG, secret)
    pages, out = terms.pages, terms.out
    functions = {
        d.id: d.function
        for page in pages
        for d in declared(page)
        if not terms.only or d.id in terms.only
    }
    functions |= {
        fields["id"]: fields["function"]
        for known in secret.assignments.values()
        for fields in known["exercises"]
        if not pages
    }
    everything = (
        f"{c}/{n}" for c in core.chapters() for n in core.exercises(c)
    )
    ids = list(functions) or list(everything)
    before = secret.assignments.get(DEBUG, {}).get("students", {})
    pool, without = programs(ids, secret)
    if not pool:
        raise ValueError(
            "a program to fix is a reference with a classic mistake: got "
            f"none, since {'; '.join(f'{a}: {b}' for a, b in without.items())}"
        )
    hard = equally_hard(pool)
    known = {name: entered(fields) for name, fields in before.items()}
    given = distribute([one.id for one in class_], hard, secret, known)
    entries = {
        (id := one.id): before.get(id)
        or one.entry()
        | entry(
            given[id],
            functions.get(
                given[id].id, core.find(given[id].id).reference.__name__
            ),
        )
        for one in class_
    }
    enter(secret, DEBUG, {"page": DEBUG, "exercises": []}, terms)
    secret.assignments[DEBUG]["students"] = before | entries
    different = len({(p.id, p.bugs, p.variants) for p in given.values()})
    for id, fields in entries.items():
        made = debug_notebook(fields, terms, secret.mark(DEBUG), different)
        write(made, out / "students" / f"{id}.ipynb")
    yield (
        f"students   {out / 'students'}: {len(class_)} notebooks, {different} "
        f"different programs of {len(hard)} that are equally hard"
    )
    rates = [p.rejection_rate for p in given.values()]
    yield (
        f"           each is wrong on {min(rates):.0%} to {max(rates):.0%} "
        "of the cases"
    )
    if "gradescope" in terms.formats:
        yield zipped(DEBUG, secret, out / "gradescope-debug.zip", terms)


def debug_notebook(
    fields: Mapping[str, Any], terms: Terms, mark: str, different: int
) -> Any:
    """A student's notebook: a program to fix, and a test to write.

    Args:
        fields: what the secret keeps of the student.
        terms: what the instructor has said.
        mark: of the assignment.
        different: how many programs the class gets.
    """
    debug, program = fields["debug"], entered(fields)
    exercise = core.find(program.id)
    function, test = debug["function"], debug["test"]
    to = Writer(mark)
    to.text(
        f"# Fix a program\n\n{fields['name']}, your program is one of "
        f"{different} in your class; somebody else may have it, too. "
        "Hand in this file under the name it has. Only the two "
        "functions count, and what they need; you may add cells."
        f"{terms.due}"
    )
    to.code(terms.install)
    lines = [
        f"## What `{function}` should be",
        inspect.getdoc(exercise.reference) or "",
        "None of its arguments may be changed.",
        *amendments(exercise, program.variants),
        f"The book explains it in {chapter(program.id)}.",
        "## The program",
        "There is at least one mistake in it. Fix it; write it yourself"
        + without(exercise)
        + f". *({debug['points']} points)*",
    ]
    to.text("\n\n".join(lines))
    source = mutant(program, function)
    to.code(source.prelude)
    to.code(
        debug["stub"],
        exercise=program.id,
        points=debug["points"],
        kind="assessed",
        variants=sorted(program.variants),
    )
    to.text(
        "## A test of your own\n\nWrite a test that finds the mistakes of "
        "the program that you were given. It is called with a function "
        f"`f`, which takes what `{function}` takes, and returns True if `f` "
        "is right and False if it makes these mistakes: the program above, "
        "or one that makes another mistake as well. "
        f"*({test['points']} points)*"
    )
    to.code(
        f"def {test['function']}(f):\n    ...",
        exercise=test["id"],
        points=test["points"],
        kind="assessed",
    )
    to.text(
        "## Afterwards\n\nYou will be asked about what you hand in: what it "
        "does with certain inputs, and why."
    )
    return to.notebook()


def chapter(id: str) -> str:
    """The chapter of an exercise, in words."""
    name = id.partition("/")[0]
    pages = [bug.read.partition("#")[0] for bug in core.find(id).bugs.values()]
    return next(
        (title(page) for page in pages if page.endswith(f"_{name}")),
        f"its chapter, {name}",
    )


def without(exercise: core.Exercise) -> str:
    """What may not be used."""
    if not exercise.forbid:
        return ""
    return f", without {', '.join(f'`{name}`' for name in exercise.forbid)}"
