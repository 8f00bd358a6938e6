"""What a release needs: the check that says so, the workflows, the wheel."""

import ast
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import forked
import publish_check
import pytest
import yaml
from packaging.requirements import Requirement

from coursekit.saved_models import SHIPPED

ROOT = Path(__file__).resolve().parents[2]


# -- make publish-check ------------------------------------------------------
def git(root, *command):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *command], cwd=root, check=True)


def edit(root, name, old, new):
    path = root / name
    text = path.read_text("utf8")
    assert old in text, (name, old)
    path.write_text(text.replace(old, new), "utf8")


@pytest.fixture
def release(tmp_path):
    """A checkout from which version 7.3 can be released."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "7.3"\n[project.urls]\n'
        'Repository = "https://github.com/ada/book"\n'
        'Documentation = "https://ada.github.io/book/"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("# C\n\n## 7.3 (2026-12-31)\n")
    (tmp_path / "CITATION.cff").write_text(
        'version: "7.3"\ndate-released: "2026-12-31"\n'
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    git(tmp_path, "tag", "v7.3")
    return tmp_path


def missing(root):
    """The first words of what is missing."""
    return [
        what.split(":")[0]
        for there, what in publish_check.needed(root)
        if not there
    ]


def test_a_release_that_has_all_is_let_through(release, capsys):
    assert missing(release) == []
    assert publish_check.main(release) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        ("pyproject.toml", "com/ada", "com/OWNER", "the address of the rep"),
        (
            "pyproject.toml",
            "//ada",
            "//OWNER",
            "the address of the b",
        ),
        ("CHANGELOG.md", "7.3 (2026-12-31)", "Unreleased", "an entry"),
        ("CITATION.cff", "7.3", "7.2", "CITATION.cff"),
        ("CITATION.cff", "12-31", "12-30", "CITATION.cff"),
        ("pyproject.toml", '"7.3"', '"7.4"', "the tag"),
    ],
)
def test_what_a_release_lacks_is_said(release, capsys, name, old, new, what):
    edit(release, name, old, new)
    assert any(m.startswith("a clean tree") for m in missing(release))
    git(release, "commit", "-qam", "Spoiled")
    git(release, "tag", "-f", "v7.3")
    assert any(m.startswith(what) for m in missing(release))
    assert "a clean tree" not in missing(release)
    assert publish_check.main(release) == 1
    assert "missing  " in capsys.readouterr().out


def test_a_tag_of_another_commit_is_not_enough(release):
    (release / "new").touch()
    assert missing(release) == ["a clean tree"]
    git(release, "add", ".")
    git(release, "commit", "-qm", "Later")
    assert missing(release) == ["the tag of this version at this commit"]


def test_the_check_reads_this_projects_files(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    assert "the tag of this version at this commit" in missing(tmp_path)


# -- the workflows -----------------------------------------------------------
GITHUB = ROOT / ".github"
RELEASE = yaml.safe_load((GITHUB / "workflows/release.yml").read_text("utf8"))


def needs_of(jobs, name):
    """All jobs that have to pass before one starts."""
    before = jobs[name].get("needs", [])
    before = [before] if isinstance(before, str) else before
    return set(before).union(*(needs_of(jobs, other) for other in before))


def untested(workflow):
    """The jobs that may write something although the tests have not passed."""
    jobs = workflow["jobs"]
    return [
        name
        for name, job in jobs.items()
        if "write" in job.get("permissions", {}).values()
        and "tests" not in needs_of(jobs, name)
    ]


def test_nothing_is_published_before_the_tests_have_passed():
    assert RELEASE["jobs"]["tests"] == {"uses": "./.github/workflows/test.yml"}
    assert RELEASE["permissions"] == {"contents": "read"}
    assert untested(RELEASE) == []
    spoiled = copy.deepcopy(RELEASE)  # the control
    del spoiled["jobs"]["site"]["needs"]
    assert untested(spoiled) == ["site", "pages", "pypi"]


def test_a_release_is_a_tag_that_the_check_lets_through():
    on = RELEASE[True]  # YAML 1.1 reads `on` as a truth value
    assert on == {"push": {"tags": ["v*"]}}
    steps = [step.get("run") for step in RELEASE["jobs"]["site"]["steps"]]
    assert steps.index("make publish-check") < steps.index("make book")


def zizmor(folder, missing):
    """What is found unsafe in workflows: the names of the audits."""
    program = Path(sys.executable).parent / "zizmor"
    if not program.is_file():
        missing("zizmor", "make env")
    done = subprocess.run(
        [program, "--offline", "--quiet", "--format", "json", folder],
        capture_output=True,
        text=True,
    )
    return {
        finding["ident"]
        for finding in json.loads(done.stdout)
        if not finding["ignored"]
    }


def test_the_workflows_are_safe(tmp_path, missing):
    """`make lint` asks the same; here is the control."""
    assert zizmor(GITHUB, missing) == set()
    text = (GITHUB / "workflows/test.yml").read_text("utf8")
    spoiled = tmp_path / ".github/workflows/test.yml"
    spoiled.parent.mkdir(parents=True)
    spoiled.write_text(
        text.replace("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7")
    )
    assert zizmor(tmp_path, missing) == {"unpinned-uses"}


# -- the lock ----------------------------------------------------------------
LOCKED = [f"requirements{part}.txt" for part in ("", "-cpu", "-cuda")]
ENTRY = re.compile(r"^([\w.-]+)==(\S+)(.*(?:\n  .*)*)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def entries(text):
    """A lock's packages: name, version, and whether it has hashes.

    Raises:
        ValueError: if a line is neither a pin, a hash nor a comment.
    """
    other = re.sub(r"^#.*\n", "", ENTRY.sub("", text), flags=re.MULTILINE)
    if other.strip():
        raise ValueError(f"these are no pins: {other.split()}")
    return [
        (m[1], m[2], bool(HASH.search(m[3]))) for m in ENTRY.finditer(text)
    ]


def test_everything_in_the_lock_has_a_hash():
    locked = {name: entries((ROOT / name).read_text()) for name in LOCKED}
    for name, found in locked.items():
        assert found, name
        assert [name for name, _, has in found if not has] == []
    versions = dict(pin[:2] for pin in locked[LOCKED[0]])
    [(name, version, _)] = locked["requirements-cpu.txt"]
    assert (name, version) == ("torch", versions["torch"] + "+cpu")
    # What the project asks for is there: `make lock` was not forgotten.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
    own = project["project"]
    extras = own["optional-dependencies"].values()
    for need in map(Requirement, chain(own["dependencies"], *extras)):
        if need.name != own["name"]:
            assert versions[need.name] in need.specifier, need


@pytest.mark.parametrize(
    ("text", "is_hashed"),
    [
        (f"a==1 \\\n    --hash=sha256:{'5e' * 32}\n", True),
        (f"a==1 \\\n    --hash=sha256:{'5e' * 31}\n", False),
        (f"a==1\nb==2 \\\n    --hash=sha256:{'5e' * 32}\n", False),
    ],
)
def test_a_missing_hash_is_found(text, is_hashed):
    assert all(has for _, _, has in entries(text)) == is_hashed


def test_what_is_not_pinned_is_found():
    with pytest.raises(ValueError, match=r"no pins: \['a>=1'\]"):
        entries("a>=1\n")


def makefiles(name):
    """A variable of the Makefile, as its recipes use it."""
    done = subprocess.run(
        ["make", "-s", "-f", "-", "show"],
        cwd=ROOT,
        input=f"include Makefile\nshow: ; @echo '$({name})'\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_another_file_than_the_locked_one_is_not_installed(tmp_path, missing):
    """As `make env` installs: by the same command."""
    if not (ROOT / ".venv/bin/uv").is_file():
        missing("uv", "make env")
    about = "tiny-1.dist-info"
    with zipfile.ZipFile(tmp_path / "tiny-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(
            f"{about}/METADATA",
            "Metadata-Version: 2.1\nName: tiny\nVersion: 1",
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any"
        )
        wheel.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(Path(wheel.filename).read_bytes()).hexdigest()
    lock = tmp_path / "lock.txt"
    command = [
        *makefiles("uv_install"),
        *("--no-cache", "--no-index", "--find-links", tmp_path),
        *("--target", tmp_path / "there", "-r", lock),
    ]

    def install(text):
        lock.write_text(text)
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True
        )
        return done.returncode, done.stderr

    pin = "tiny==1 --hash=sha256:"
    code, said = install(pin + "0" * 64)
    assert code, said
    assert "Hash mismatch" in said
    code, said = install("tiny==1")
    assert code, said
    assert "must have a hash" in said
    assert not (tmp_path / "there/tiny.py").exists()
    code, said = install(pin + digest)  # the control
    assert code == 0, said
    assert (tmp_path / "there/tiny.py").exists()


# -- the package -------------------------------------------------------------
NONCOMMERCIAL = {"captions", "translator-de-en", "translator-en-de"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What `.ci/package` builds: the wheel and the source, as archives."""
    out = tmp_path_factory.mktemp("dist")
    here = Path(sys.executable).parent
    path = f"{here}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / ".ci/package", out],
        env=os.environ | {"PATH": path, "UV_NO_BUILD_ISOLATION": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [wheel], [source] = out.glob("*.whl"), out.glob("*.tar.gz")
    return zipfile.ZipFile(wheel), tarfile.open(source)


def restricted(names):
    """The models among the names of files that are not free for all."""
    found = (re.search(r"assets/models/([\w-]+)/", name) for name in names)
    return {f[1] for f in found if f} & NONCOMMERCIAL


def test_the_package_is_free_for_all(built):
    wheel, source = built
    assert restricted(wheel.namelist()) == set()
    assert restricted(source.getnames()) == set()
    with_license = {path.parent.name for path in SHIPPED.glob("*/LICENSE")}
    assert with_license == NONCOMMERCIAL
    here = [path.as_posix() for path in SHIPPED.rglob("*")]
    assert restricted(here) == NONCOMMERCIAL  # the control


def test_the_wheel_says_so_and_has_what_it_needs(built):
    wheel, _ = built
    names = wheel.namelist()
    [about] = [n for n in names if n.endswith(".dist-info/METADATA")]
    lines = wheel.read(about).decode().splitlines()
    assert "License-Expression: MIT AND CC-BY-4.0" in lines
    assert not [n for n in names if n.startswith(("tests", "book", "sphinx"))]
    for name in (
        "coursekit/py.typed",
        "coursekit/assets/models/running/model.safetensors",
        "coursekit_classroom/results/running.json",
    ):
        assert name in names


LOAD = """
import coursekit
coursekit.load("running")
try:
    coursekit.load("captions")
except ValueError as error:
    print(coursekit.__file__, error)
"""


def test_a_model_that_was_left_out_is_explained(built, tmp_path):
    """In the package as PyPI gives it; the others load."""
    built[0].extractall(tmp_path)
    done = subprocess.run(
        [*forked.python(), "-c", LOAD],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert "got 'captions'" in done.stdout
    assert "come with the project's repository, not from PyPI" in done.stdout


def test_the_wheel_writes_the_readers_notebooks(built, tmp_path):
    """The same as the checkout does, in a folder anywhere."""
    built[0].extractall(tmp_path)
    written = []
    for place in (tmp_path, ROOT):
        folder = tmp_path / place.name / "notebooks"
        done = subprocess.run(
            [*forked.python(), "-m", "coursekit", "notebooks", folder],
            env=os.environ | {"PYTHONPATH": str(place)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        written.append(
            {
                path.relative_to(folder): json.loads(path.read_text("utf8"))
                for path in folder.rglob("*.ipynb")
            }
        )
    of_wheel, of_checkout = written
    assert of_wheel.keys() == of_checkout.keys()
    for path, notebook in of_wheel.items():
        assert (
            notebook["metadata"]["coursekit"]
            == of_checkout[path]["metadata"]["coursekit"]
        ), path


# What others bring as a part of their own interface.
BROUGHT = {
    "IPython": "ipykernel",
    "traitlets": "ipykernel",
    "PIL": "matplotlib",
}


def undeclared(package, project):
    """What the package's files import that pyproject.toml does not name."""
    needs = [
        *project["dependencies"],
        *(
            n
            for extra in project["optional-dependencies"].values()
            for n in extra
        ),
    ]
    declared = {re.match(r"[\w.-]+", need)[0].lower() for need in needs}
    assert set(BROUGHT.values()) <= declared
    homes = packages_distributions()
    return {
        name
        for file in package.rglob("*.py")
        if file.parent.name != "attacks"
        for node in ast.walk(ast.parse(file.read_text("utf8")))
        for name in imported(node)
        if name not in BROUGHT
        and homes.get(name)
        and not declared & {home.lower() for home in homes[name]}
    } - {"coursekit", "coursekit_classroom"}


def imported(node):
    """The outermost names that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {node.module.split(".")[0]}
    return set()


def test_what_the_package_imports_is_declared():
    text = (ROOT / "pyproject.toml").read_text("utf8")
    project = tomllib.loads(text)["project"]
    assert undeclared(ROOT / "coursekit", project) == set()
    assert undeclared(ROOT / "coursekit_classroom", project) == set()
    text = re.sub(r'\n *"(nbformat|pyyaml)[^\n]*', "", text)  # the control
    project = tomllib.loads(text)["project"]
    found = undeclared(ROOT / "coursekit_classroom", project)
    assert found == {"nbformat", "yaml"}
