"""The layout of the house: imports run one way, chapters meet modules."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from conftest import PARTS, part_of

ROOT = Path(__file__).resolve().parent.parent
parsed = cache(ast.parse)  # of a source's text; many tests read all files

# THE import order: a module may import those above it, never one below.
ORDER = [
    "minimal",  # the lesson: it imports nothing else of the package
    "minimal_seq2seq",
    "checks",
    "files",
    "devices",
    "bpe",
    "vocabulary",
    "tokenizer",
    "embedding",
    "positions",
    "masks",
    "attention",
    "multihead",
    "norm",
    "feedforward",
    "experts",
    "config",  # its choices are those of the files above
    "block",
    "decoder",
    "encoder",
    "seq2seq",
    "vision",
    "sampling",
    "steppers",
    "activations",
    "generation",
    "cache",
    "fast",  # the models know nothing of it
    "loss",
    "datasets",
    "data",
    "optim",
    "train_config",
    "progress",
    "training",
    "weights",
    "models",
    "quantize",
    "speculative",
    "checkpoint",
    "tuning",
    "preferences",
    "translate",
    "pretrained",
    "scaling",
    "distributed",
]
# Tools may import anything above; nothing above imports them.
TOOLS = ["probe", "interpret", "cli", "classroom"]
EXEMPT = ["__init__", "__main__"]  # they re-export and compose everything
# Whole programs, to be read and copied: they offer all that they define.
LESSON = ["minimal", "minimal_seq2seq", "stages", "by_hand"]

CHAPTER_OF = {  # module -> chapter, where the names differ
    "probe": "debugging",
}
CHAPTERS_WITHOUT_MODULE = {
    "first_model": "a bigram model in 20 lines that the page itself shows",
    "modern": "switches of positions, norm, feedforward and multihead",
    "debugging": "its module is the tool probe",
    "inference": "its modules are quantize and speculative",
}
MODULES_WITHOUT_CHAPTER = {
    "minimal": "the file that chapters 0 to 12 write",
    "minimal_seq2seq": "the same for chapters 13 and 14",
    "files": "how files are read and written",
    "bpe": "taught with the tokenizer",
    "vocabulary": "taught with the tokenizer",
    "config": "the settings; every chapter uses them",
    "datasets": "taught with training",
    "checks": "what is refused, and in which words",
    "experts": "taught with modern",
    "block": "taught with decoder and norm",
    "data": "taught with training",
    "optim": "taught with training",
    "weights": "taught with training",
    "models": "taught with training",
    "train_config": "taught with training",
    "devices": "taught with training",
    "progress": "taught with training",
    "checkpoint": "taught with training",
    "sampling": "taught with generation",
    "steppers": "taught with generation",
    "activations": "taught with interpret",
    "cache": "taught with generation",
    "fast": "taught with training and generation",
    "translate": "taught with seq2seq",
    "pretrained": "taught with modern: models that others trained",
    "distributed": "taught with scaling",
    "quantize": "taught with inference",
    "speculative": "taught with inference",
}
NO_TEST_FILE: dict[str, str] = {
    "minimal_seq2seq": "test_minimal has both files",
    "pretrained": "each of its modules has one",
    "weights": "test_checkpoint has all that is saved",
    "models": "test_checkpoint has all that is saved",
    "vocabulary": "test_tokenizer has it, with those that it is for",
    "classroom": "each of its modules has one",
    "grading": "each of its modules has one: test_frames, test_grade, ...",
    "stages": "test_lesson has the files that it is part of",
    "neighbors": "test_yourfile and test_checkfile have it",
}


# -- imports -----------------------------------------------------------------
def modules(package):
    """``{name: [files]}`` of a package: its modules and subpackages."""
    found = {}
    for path in sorted(package.iterdir()):
        if path.suffix == ".py":
            found[path.stem] = [path]
        elif (path / "__init__.py").exists():
            found[path.name] = sorted(path.rglob("*.py"))
    return found


def imported(tree, file, package):
    """The package's modules that a file names in an import, as a set."""
    names = set()
    depth = len(file.relative_to(package).parts)  # 1: a module of the package
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            if node.level < depth:
                continue  # inside its own subpackage
            base = [package.name] + ([node.module] if node.module else [])
            dotted = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in dotted:
            parts = name.split(".")
            if parts[0] == package.name:
                # `from coursekit import x` takes x; a bare import, __init__
                names.add(parts[1] if len(parts) > 1 else "__init__")
    return names


def upward_imports(package, order, tools):
    """Sentences, one for each import that runs up the list."""
    found = modules(package)
    rank = {name: i for i, name in enumerate(order)}
    rank |= {name: len(order) for name in tools}  # tools: all on one step
    rank["classroom"] = len(order) + 1  # which none of the others imports
    wrong = []
    for name, files in found.items():
        if name in EXEMPT:
            continue
        if name not in rank:
            wrong.append(f"{name} has no place in the import order")
            continue
        for file in files:
            tree = parsed(file.read_text("utf8"))
            for other in imported(tree, file, package) - {name}:
                if other in EXEMPT:
                    wrong.append(f"{name} imports the package's {other}")
                elif other not in found and other in rank:
                    wrong.append(f"{name} imports {other}: no such module")
                elif other not in rank:
                    wrong.append(f"{name} imports {other} by the package")
                elif rank[other] > rank[name]:
                    wrong.append(f"{name} imports {other}, which is below")
    return wrong


def test_imports_run_one_way():
    assert upward_imports(ROOT / "coursekit", ORDER, TOOLS) == []


@pytest.mark.parametrize(
    "line",
    [
        "from coursekit.decoder import GPT",
        "from coursekit import decoder",
        "import coursekit.decoder as d",
        "from .decoder import GPT",
        "from . import decoder",
        "def f():\n    from coursekit.decoder import GPT",
        "from coursekit import GPT",
        "import coursekit",
        "from coursekit.classroom.figures import plot",
    ],
)
def test_a_planted_upward_import_is_found(tmp_path, line):
    package = tmp_path / "coursekit"
    package.mkdir()
    for name in ("__init__", "config", "decoder", "visual"):
        (package / f"{name}.py").write_text("")
    order = ["config", "attention", "decoder"]
    down = "from coursekit.config import GPTConfig\nimport torch\n"
    (package / "attention.py").write_text(down)
    assert upward_imports(package, order, ["visual"]) == []
    (package / "attention.py").write_text(down + line + "\n")
    assert len(upward_imports(package, order, ["visual"])) == 1


def users_of_the_classroom(package):
    """Files outside it that import it."""
    found = set()
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package)
        tree = parsed(file.read_text("utf8"))
        if inside.parts[0] != "classroom" and "classroom" in imported(
            tree, file, package
        ):
            found.add(inside.as_posix())
    return found


def test_nothing_outside_imports_the_classroom():
    """Who wants it gives its name: ``"coursekit.classroom.check:check"``.

    What is no part of the package, such as results/, may import it.
    """
    assert users_of_the_classroom(ROOT / "coursekit") == set()


@pytest.mark.parametrize(
    "line",
    [
        "from coursekit.classroom import lesson",
        "from coursekit import classroom",
        "import coursekit.classroom.figures as figures",
        "def f():\n    from coursekit.classroom.check import core",
        "from ..classroom import glue",
    ],
)
def test_a_planted_use_of_the_classroom_is_found(tmp_path, line):
    package = tmp_path / "coursekit"
    for folder in (package / "classroom", package / "cli"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (package / "classroom" / "live.py").write_text(line)  # it may, itself
    own = (
        "from coursekit.config import GPTConfig\nfrom coursekit import data\n"
    )
    own += 'HOME = "coursekit.classroom.check:check"\n'
    (package / "cli" / "check.py").write_text(own)
    assert users_of_the_classroom(package) == set()
    (package / "cli" / "check.py").write_text(own + line + "\n")
    assert users_of_the_classroom(package) == {"cli/check.py"}


def test_matplotlib_is_imported_in_one_folder():
    users = set()
    for file in (ROOT / "coursekit").rglob("*.py"):
        for node in ast.walk(parsed(file.read_text("utf8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            if any(n.split(".")[0] == "matplotlib" for n in names):
                users.add(file.parent.name)
    assert users <= {"figures"}


def printed_by(code):
    """The words that a fresh process prints."""
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split())


def loaded_by(line):
    """The modules that a fresh process has after a line of Python."""
    return printed_by(f"{line}\nimport sys\nprint(*sys.modules)")


def packages(modules):
    """The packages that modules are in."""
    return {name.partition(".")[0] for name in modules}


def test_the_package_loads_without_what_few_need():
    """`import coursekit` is quick: what is heavy waits until it is used."""
    heavy = {"matplotlib", "regex", "tiktoken", "transformers"}
    have = packages(loaded_by("import coursekit"))
    assert have & {*heavy, "torch"} == set()
    assert "torch" in loaded_by("import coursekit; coursekit.GPT")
    # The negative control: a tokenizer with a pattern needs one of them.
    line = "import coursekit; coursekit.BPETokenizer.train('ab ab', 257)"
    assert packages(loaded_by(line)) & heavy == {"regex"}


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
            {"seq2seq", "decoder", "fast.inference"},
            "from coursekit import Transformer, pack",
        ),
        (
            "from coursekit.models import load",
            {"fast", "training", "decoder"},
            "from coursekit.training import train; load('running')",
        ),
    ],
)
def test_a_module_loads_what_it_needs(line, never, use):
    never = {f"coursekit.{name}" for name in never}
    have = {n for n in loaded_by(line) if packages([n]) == {"coursekit"}}
    assert have & never == set()
    assert "weights" not in line or len(have) <= 8
    assert loaded_by(f"{line}; {use}") >= never  # they are there when used


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


def test_annotations_are_not_deferred():
    """Else jaxtyping would see strings and check nothing."""
    for file in (ROOT / "coursekit").rglob("*.py"):
        deferred = "from __future__ import annotations"
        assert deferred not in file.read_text("utf8"), file


# -- tests and chapters ------------------------------------------------------
def test_each_module_has_its_tests():
    packages = ("", "fast", "pretrained", "classroom")
    folders = [ROOT / "coursekit" / f for f in packages]
    expected = set().union(*map(modules, folders)) - set(EXEMPT)
    have = {p.stem.removeprefix("test_") for p in ROOT.glob("tests/test_*")}
    assert expected - have == set(NO_TEST_FILE)


def test_each_part_of_the_suite_has_its_files():
    """No name in a part is wrong; the rest, no helper, is of `library`."""
    there = {p.name for p in ROOT.glob("tests/test_*.py")}
    named = [f"test_{n}.py" for names in PARTS.values() for n in names]
    assert len(named) == len(set(named))
    assert set(named) <= there
    assert {n for n in there if part_of(n) == "library"} == there - set(named)
    assert part_of("test_pages.py") == "book"
    assert part_of("conftest.py") is part_of("nbval.cfg") is None


RUNS = ["library", *PARTS]


@pytest.mark.parametrize("part", RUNS)
def test_every_part_is_run(part):
    """By `make test`; the other systems' job runs what needs no book."""
    runs = f"-m pytest tests --part {part} "
    assert runs in (ROOT / "Makefile").read_text("utf8")
    workflow = ROOT / ".github" / "workflows" / "test.yml"
    assert (runs in workflow.read_text("utf8")) is (
        part in ("library", "course")
    )


def numbered_chapters():
    """``{"attention": 4, ...}`` from the files that _toc.yml names."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    files = re.findall(r"'file': 'book/(\d\d)_(\w+)'", str(toc))
    return {name: int(number) for number, name in files}


def test_reading_order_is_the_numbers_order():
    numbers = list(numbered_chapters().values())
    assert numbers == sorted(set(numbers))


def test_each_chapter_has_its_module():
    package = set(modules(ROOT / "coursekit"))
    homeless = set(numbered_chapters()) - package
    assert homeless <= set(CHAPTERS_WITHOUT_MODULE)


def test_each_module_has_its_chapter():
    written = set(numbered_chapters())
    for module in set(modules(ROOT / "coursekit")) - set(EXEMPT):
        if module in TOOLS and module not in ("interpret", "probe"):
            continue  # tools serve every chapter
        chapter = CHAPTER_OF.get(module, module)
        known = written | set(MODULES_WITHOUT_CHAPTER)
        assert chapter in known, f"{module}.py has no chapter"


def test_each_chapter_stands_in_the_contents():
    there = {p.stem[3:] for p in ROOT.glob("book/[0-9][0-9]_*.md")}
    assert there == set(numbered_chapters()), "each page stands in _toc.yml"


# -- docstrings --------------------------------------------------------------
CHAPTER_LINE = re.compile(r"Chapter: (\d+), ([^.,;:]+)\.")
SOURCE_KEY = re.compile(r"\b[a-z]+\d{4}[a-z0-9]+\b")


def trees():
    """``(file, tree)`` of each file of the package."""
    for file in sorted((ROOT / "coursekit").rglob("*.py")):
        yield file, parsed(file.read_text("utf8"))


def docstrings(tree):
    """``(name, docstring or None)`` of all functions and classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            yield node.name, ast.get_docstring(node)


def source_keys(docstring):
    """The keys that a docstring's Source names, or None without Source."""
    found = re.search(r"^Source:(.*(?:\n[ ]+.*)*)", docstring, re.MULTILINE)
    return SOURCE_KEY.findall(found[1]) if found else None


def bad_sources(tree, known):
    """Names whose Source has no key, or one that ``known`` lacks."""
    wrong = []
    for name, text in docstrings(tree):
        keys = source_keys(text or "")
        if keys is not None and (not keys or set(keys) - known):
            wrong.append(name)
    return wrong


def entries(text):
    """The keys of a BibTeX file, in its order."""
    return re.findall(r"^@\w+\{([^,\s]+),", text, re.MULTILINE)


def test_every_source_is_in_the_bibliography():
    known = entries((ROOT / "references.bib").read_text("utf8"))
    assert len(known) == len(set(known)), "a key stands twice"
    wrong = {f.name: bad_sources(tree, set(known)) for f, tree in trees()}
    assert {name: bad for name, bad in wrong.items() if bad} == {}


@pytest.mark.parametrize(
    ("source", "is_bad"),
    [
        ("Source: vaswani2017attention, equation 1.", False),
        ("Source: ba2016layer;\n        vaswani2017attention.", False),
        ("Source: vaswani2018attention, equation 1.", True),
        ("Source: ba2016layer;\n        vaswani2018attention.", True),
        ("Source: the paper, equation 1.", True),
        ("No such line.", False),
    ],
)
def test_a_planted_wrong_source_is_found(source, is_bad):
    tree = ast.parse(f'def f():\n    """One.\n\n    {source}\n    """')
    known = set(entries("@misc{ba2016layer,\n}\n@a{vaswani2017attention,"))
    assert bad_sources(tree, known) == (["f"] if is_bad else [])


def test_chapter_lines_agree():
    """One form, one name for each number, no emphasis around the labels."""
    label = re.compile(r"^\W*(Chapter|Source|Differs from the paper)\b")
    assert label.search("*Chapter*: 4")
    assert CHAPTER_LINE.fullmatch("Chapter: 4, attention.")
    assert not CHAPTER_LINE.fullmatch("Chapter: 4, attention; masks in 5.")
    names = {}
    for file, tree in trees():
        for name, text in docstrings(tree):
            for line in (text or "").splitlines():
                if not (found := label.search(line)):
                    continue
                assert line.startswith(f"{found[1]}: "), (file.name, name)
                if found[1] == "Chapter":
                    form = CHAPTER_LINE.fullmatch(line)
                    assert form, f"{file.name}, {name}: {line}"
                    names.setdefault(int(form[1]), set()).add(form[2])
    assert {n: s for n, s in names.items() if len(s) > 1} == {}


# -- what a module offers ----------------------------------------------------
def offers(tree):
    """The names in a file's ``__all__``, or None if it lists none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == "__all__":
                    return ast.literal_eval(node.value)
    return None


def undocumented(tree):
    """What ``__all__`` offers without a docstring, methods included."""
    offered, bare = set(offers(tree) or ()), []
    for node in tree.body:
        if getattr(node, "name", None) not in offered:
            continue
        if ast.get_docstring(node) is None:
            bare.append(node.name)
        for name, text in docstrings(node):
            is_public = name == node.name or not name.startswith("_")
            inner = isinstance(node, ast.ClassDef) and is_public
            if inner and text is None:
                bare.append(f"{node.name}.{name}")
    return bare


def is_listed(file):
    """Whether a module must say what it offers: all but the exercises'."""
    return file.parent.name in ("coursekit", "pretrained", "classroom")


def test_what_a_module_offers_is_listed_and_documented():
    for file, tree in trees():
        if not is_listed(file) or file.stem in EXEMPT + LESSON:
            continue
        offered = offers(tree)
        assert offered, f"{file.name} has no __all__"
        assert len(offered) == len(set(offered)), file.name
        assert undocumented(tree) == [], file.name
        here = {getattr(node, "name", None) for node in tree.body}
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", 0)])
            here |= {getattr(target, "id", None) for target in targets}
        assert set(offered) <= here, f"{file.name} offers what it has not"


def test_a_planted_bare_name_is_found():
    bare = "__all__ = ['C', 'f']\ndef f(): pass\ndef g(): pass\n"
    method = "class C:\n    'One.'\n    def m(self): pass\n"
    assert undocumented(ast.parse(bare + method)) == ["f", "C.m"]


def test_modules_take_only_what_others_offer():
    """No import of a helper that its module keeps to itself."""
    offered = {
        f.relative_to(ROOT / "coursekit").with_suffix("").as_posix(): offers(t)
        for f, t in trees()
        if offers(t)
    }
    assert "write_atomically" in offered["files"]  # two others take it
    for file, tree in trees():
        if file.stem in EXEMPT:
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            package, _, module = node.module.partition(".")
            module = module.replace(".", "/")
            if package == "coursekit" and module in offered:
                taken = {alias.name for alias in node.names}
                assert taken <= set(offered[module]), file.name


# Pages tell of commands, and of what the course is made of.
NO_API = ("cli", "classroom")


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
        for f, _ in trees()
        if f.stem not in EXEMPT
    }
    assert len(names) > 50
    assert undescribed(names, pages) == set()


def test_a_module_without_section_is_found():
    page = ".. automodule:: coursekit.norm\n.. automodule:: coursekit.probe\n"
    names = {"norm", "probe.training", "cli.train", "fast.linear", "masks"}
    assert undescribed(names, page) == {"fast.linear", "masks"}


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


def test_files_are_small():
    """1 MB each, 4 MB for the assets that the package ships."""
    for path in tracked():
        limit = 4e6 if "assets" in path.parts else 1e6
        assert path.stat().st_size <= limit, path


def test_the_distribution_has_its_own_name():
    """`coursekit` on PyPI is another project."""
    wrong = re.compile(r"pip3? install (?:-\w+ |--\S+ )*" + "coursekit")
    assert wrong.search("pip install -q " + "coursekit")
    guilty = [str(path) for path, text in texts() if wrong.search(text)]
    assert guilty == []
