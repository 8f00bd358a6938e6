"""What a stranger meets first: quick imports, contents, no private paths."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import forked
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def printed_by(code, python=(sys.executable,)):
    """The words that a fresh process prints."""
    out = subprocess.run(
        [*python, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split())


def loaded_by(line, **python):
    """The modules that a fresh process has after a line of Python."""
    return printed_by(f"{line}\nimport sys\nprint(*sys.modules)", **python)


def packages(modules):
    """The packages that modules are in."""
    return {name.partition(".")[0] for name in modules}


def test_the_package_loads_without_what_few_need():
    """`import coursekit` is quick: what is heavy waits until it is used."""
    heavy = {"matplotlib", "regex", "tiktoken", "torch", "transformers"}
    assert packages(loaded_by("import coursekit")) & heavy == set()
    # The negative control: a tokenizer with a pattern needs two of them.
    line = "import coursekit; coursekit.BPETokenizer.train('ab ab', 257)"
    assert packages(loaded_by(line)) & heavy == {"regex", "torch"}


@pytest.mark.parametrize(
    ("line", "never", "use"),
    [
        (
            "from coursekit.weights import read_weights",
            {"training", "decoder"},
            "from coursekit import GPT; from coursekit.training import train",
        ),
        (
            "from coursekit.training import train",
            {"seq2seq", "decoder", "packed"},
            "from coursekit import Transformer, pack",
        ),
        (
            "from coursekit.saved_models import load",
            {"packed", "training", "decoder"},
            "from coursekit import pack, train; pack(load('running').model)",
        ),
    ],
)
def test_a_module_loads_what_it_needs(line, never, use):
    never = {f"coursekit.{name}" for name in never}
    have = loaded_by(line, python=forked.python())  # torch is there already
    have = {name for name in have if packages([name]) == {"coursekit"}}
    assert have & never == set()
    assert "weights" not in line or len(have) <= 8
    used = loaded_by(f"{line}; {use}", python=forked.python())
    assert used >= never  # they are there when used


ALONE = """
import importlib, pkgutil, sys
sys.modules["coursekit_classroom"] = None  # not installed
import coursekit
for found in pkgutil.walk_packages(coursekit.__path__, "coursekit."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
for name in coursekit.__all__:
    getattr(coursekit, name)
print("all")
try:
    coursekit.check
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_the_transformer_works_without_the_course():
    said = printed_by(ALONE, forked.python())  # torch is there already
    assert said == {"all", "coursekit_classroom.check"}


def test_the_package_loads_from_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        for name in ("__init__.py", "__init__.pyi", "checks.py"):
            path = ROOT / "coursekit" / name
            file.write(path, f"coursekit/{name}")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "all.zip")!r})
import coursekit
print("all.zip" in coursekit.checks.__file__, "GPT" in dir(coursekit))
"""
    assert printed_by(code, forked.python()) == {"True"}


STATE = """
import decimal, locale, os, random, signal, sys, threading, warnings
def state():
    return [
        *sys.meta_path, *sys.path_hooks, *sys.path, sys.excepthook,
        sys.displayhook, sys.gettrace(), sys.getprofile(),
        sys.getrecursionlimit(), sys.getswitchinterval(), os.getcwd(),
        dict(os.environ), *warnings.filters, random.getstate(),
        decimal.getcontext(), locale.setlocale(locale.LC_ALL),
        signal.getsignal(signal.SIGINT), threading.active_count(),
    ]
before = state()
"""


@pytest.mark.parametrize(
    ("line", "is_same"),
    [
        ("import coursekit", True),
        ("import coursekit, sys; sys.meta_path.insert(0, coursekit)", False),
        ("import coursekit, os; os.environ['COURSEKIT'] = '1'", False),
    ],
)
def test_importing_the_package_changes_nothing_in_python(line, is_same):
    code = f"{STATE}\n{line}\nprint(before == state())"
    assert printed_by(code) == {str(is_same)}


# -- contents ----------------------------------------------------------------
def numbered_chapters():
    """``{"attention": 4, ...}`` from the files that _toc.yml names."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    files = re.findall(r"'file': 'book/(\d\d)_(\w+)'", str(toc))
    return {name: int(number) for number, name in files}


def test_reading_order_is_the_numbers_order():
    numbers = list(numbered_chapters().values())
    assert numbers == sorted(set(numbers))


def test_each_chapter_stands_in_the_contents():
    there = {p.stem[3:] for p in ROOT.glob("book/[0-9][0-9]_*.md")}
    assert there == set(numbered_chapters()), "each page stands in _toc.yml"


# -- the API -----------------------------------------------------------------
# Pages tell of commands, of what the course is made of, and show the lesson.
NO_API = ("cli", "minimal", "minimal_seq2seq")


def undescribed(names, pages):
    """Modules for which no API page has a section, nor for their package."""
    have = set(re.findall(r"automodule:: coursekit\.(\S+)", pages))
    return {
        name
        for name in names
        if name.partition(".")[0] not in NO_API
        and not {name, name.rpartition(".")[0]} & have
    }


def test_each_module_has_its_section_in_the_api():
    pages = "".join(
        p.read_text("utf8") for p in ROOT.glob("book/about/api_*.md")
    )
    names = {
        ".".join(f.relative_to(ROOT / "coursekit").with_suffix("").parts)
        for f in (ROOT / "coursekit").rglob("*.py")
        if not f.stem.startswith("__")
    }
    assert len(names) > 50
    assert undescribed(names, pages) == set()


def test_a_module_without_section_is_found():
    page = ".. automodule:: coursekit.norm\n.. automodule:: coursekit.tools\n"
    names = {"norm", "tools.saw", "cli.train", "pretrained.bert", "masks"}
    assert undescribed(names, page) == {"pretrained.bert", "masks"}


# -- the files in git --------------------------------------------------------
def tracked():
    """Files that git knows or would add, but for what others wrote."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        encoding="utf8",
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [p for p in paths if p.is_file() and "vendor" not in p.parts]


def texts():
    """``(path, text)`` of each of those that is text."""
    for path in tracked():
        try:
            yield path, path.read_text("utf8")
        except UnicodeDecodeError:
            continue


# Put together here, so that this file does not find itself.
MACHINE = re.compile(
    "|".join(["/" + "root/", "/" + r"home/\w+/", "/" + r"Users/\w+/"])
    + "|/"
    + r"work/(?:main|shared)"
)
MARKERS = re.compile("^(?:" + "<" * 7 + "|" + ">" * 7 + ") ", re.MULTILINE)


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (MACHINE, "see /" + "home/ada/course"),
        (MACHINE, '"/' + 'root/.cache"'),
        (MARKERS, "a\n" + "<" * 7 + " HEAD\nb"),
    ],
)
def test_no_file_names_this_machine_or_a_conflict(pattern, planted):
    assert pattern.search(planted)
    guilty = [str(path) for path, text in texts() if pattern.search(text)]
    assert guilty == []


def test_the_distribution_has_its_own_name():
    """`coursekit` on PyPI is another project."""
    wrong = re.compile(r"pip3? install (?:-\w+ |--\S+ )*" + "coursekit")
    assert wrong.search("pip install -q " + "coursekit")
    guilty = [str(path) for path, text in texts() if wrong.search(text)]
    assert guilty == []
