"""The book's pipeline: what is shown was run, and a second run gives the same.

Most of it is tried on a book of one page, with this book's configuration
but another repository, because there something can be spoiled on purpose.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import forked
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sphinx_ext"))

import notebooks  # noqa: E402
import page_head  # noqa: E402

from coursekit_classroom.notebooks import readers  # noqa: E402
from coursekit_classroom.notebooks.install import (  # noqa: E402
    Published,
    install_cell,
    published,
)

# Of the workers, one starts the two servers that small books are built with.
pytestmark = pytest.mark.xdist_group("small books")

CHAPTERS = dict(notebooks.chapters(ROOT))
EXPORTED = ROOT / "_build" / "notebooks"
THEIRS = "https://github.com/ada/another-name"
SITE = "https://ada.example/book/"

FRONT = {
    "jupytext": {
        "text_representation": {"extension": ".md", "format_name": "myst"}
    },
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "needs": ["00_first_model"],
}


# -- every chapter -----------------------------------------------------------
def unproven(source, exported):
    """Why an exported notebook proves nothing; an empty list if it does."""
    cells = notebooks.code_cells(exported)
    wrong = []
    if [c.source for c in cells] != [
        c.source for c in notebooks.code_cells(source)
    ]:
        wrong.append("stale: its code is not the chapter's")
    if any(c.execution_count is None for c in cells if c.source.strip()):
        wrong.append("a cell never ran")
    if not any(c.outputs for c in cells):
        wrong.append("no outputs: nbval would compare nothing")
    return wrong


@pytest.mark.parametrize("page", CHAPTERS)
def test_exported_with_outputs(page):
    path = EXPORTED / f"{page}.ipynb"
    assert path.exists(), "run `make book` first"
    exported = nbformat.read(path, as_version=4)
    assert unproven(CHAPTERS[page], exported) == []


@pytest.mark.parametrize("page", CHAPTERS)
def test_first_cell_sets_one_thread(page):
    first = notebooks.code_cells(CHAPTERS[page])[0].source
    assert "torch.set_num_threads(1)" in first


@pytest.mark.parametrize("page", CHAPTERS)
def test_front_matter(page):
    """JupyterLab opens the chapter, and MyST runs it in Python 3."""
    text = (ROOT / f"{page}.md").read_text("utf8")
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["kernelspec"] == FRONT["kernelspec"]
    representation = front["jupytext"]["text_representation"]
    assert representation["extension"] == ".md"
    assert representation["format_name"] == "myst"


def test_a_line_stays_whole():
    """A kernel may send one line in two messages."""
    said = [("stdout", "a: "), ("stdout", "7\n"), ("stderr", "b\n")]
    outputs = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in said
    ]
    cell = nbformat.v4.new_code_cell("print()", outputs=outputs)
    notebooks.join_streams(nbformat.v4.new_notebook(cells=[cell]))
    assert [out.text for out in cell.outputs] == ["a: 7\n", "b\n"]


def test_the_addresses_stand_once():
    """In pyproject.toml; everything else derives from them."""
    text = (ROOT / "pyproject.toml").read_text("utf8")
    urls = tomllib.loads(text)["project"]["urls"]
    assert set(urls) == {"Repository", "Documentation"}
    listed = subprocess.run(
        ["git", "grep", "-lIF", "--untracked"]
        + [f"-e{url.rstrip('/')}" for url in urls.values()],
        cwd=ROOT,
        capture_output=True,
        encoding="utf8",
    ).stdout.split()
    assert listed == ["pyproject.toml"]


@pytest.mark.parametrize(
    ("repository", "site", "wanted"),
    [
        (
            "https://e/a/b/",
            "https://a.e/b",
            ("https://e/a/b", "https://a.e/b/"),
        ),
        ("https://e/a/b", "https://OWNER.e/b/", ("https://e/a/b", "")),
        ("https://e/OWNER/b", "https://a.e/", ("", "https://a.e/")),
    ],
)
def test_an_address_with_the_placeholder_is_not_set(
    tmp_path, repository, site, wanted
):
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nversion = "7.3"\n[project.urls]\n'
        f'Repository = "{repository}"\nDocumentation = "{site}"\n'
    )
    found = published(tmp_path)
    assert (found.repository, found.site) == wanted
    assert found.tag == "v7.3"
    assert published(tmp_path / "nowhere") == Published()


# -- a book of one page ------------------------------------------------------
TINY = f"""---
{yaml.safe_dump(FRONT)}---

# Tiny

One half is $1/2$. The mean is {{glue:text}}`mean:.3f`;
{{repo}}`an issue <issues>`. See
{{py:func}}`coursekit.attention.attend`, {{py:func}}`torch.tril`.

```{{cite-book}}
```

$$
\\boldsymbol{{x}}
$$

```{{code-cell}} ipython3
import os
from pathlib import Path

import torch
from coursekit_classroom.glue import glue

torch.set_num_threads(1)
print("read", Path(os.environ["TINY"], "coursekit/n.txt").read_text())
```

```{{code-cell}} ipython3
:tags: [remove-cell]
glue("mean", torch.arange(7.0).mean().item())
```

```{{code-cell}} ipython3
torch.ones(3);
```

```{{code-cell}} ipython3
print("before")
display("between")
print("after")
```

```{{code-cell}} ipython3
---
tags: [hide-input]
mystnb:
  code_prompt_show: How this figure is drawn
  code_prompt_hide: Hide the code
  image:
    alt: Two bars & a "word".
  figure:
    name: fig-tiny
    caption: Bars.
---
from coursekit_classroom import figures

ax = figures.bars(torch.tensor([0.25, 0.75]), ["a", "b"])
```

```{{code-cell}} ipython3
from coursekit_classroom.check.report import Report

Report("tiny/mean", "not attempted", "Nothing is written yet.")
```

```{{code-cell}} ipython3
Report("tiny/mean", "wrong", "Off by one.")
```

::::{{predict}} The end
What comes last?

:::{{choice}} Nothing
:correct:
Yes.
:::
:::{{choice}} Something
No.
:::
:::{{choice}} Everything
No.
:::
::::

```{{code-cell}} ipython3
:tags: [predict, hide-output]
"the answer"
```

## Exercises

```{{exercise}} Implement: the mean
:label: tiny-mean
```

````{{solution}} tiny-mean
:class: dropdown
The quokka:
```python
quokka = sum
```
````
"""
TOC = "format: jb-book\nroot: book/index\nchapters:\n  - file: book/tiny\n"


class Book:
    """A book of one page in a folder of its own, with or without addresses."""

    def __init__(self, root, repository=THEIRS, site=SITE):
        self.root = root
        for folder in ("sphinx_ext", "vendor", "book/_static"):
            shutil.copytree(ROOT / folder, root / folder)
        shutil.copy(ROOT / "references.bib", root)
        shutil.copy(ROOT / "_config.yml", root)
        self.write(
            "pyproject.toml",
            '[project]\nversion = "7.3"\n[project.urls]\n'
            f'Repository = "{repository}"\nDocumentation = "{site}"\n',
        )
        self.write("_toc.yml", TOC)
        self.write("book/index.md", "# Front\n\nWelcome to what a book is.\n")
        self.write("book/tiny.md", TINY)
        self.write("coursekit/n.txt", "3.14")
        forked.with_kernels()
        self.env = dict(
            os.environ,
            TINY=str(root),
            PYTHONPATH=os.pathsep.join([str(ROOT), str(root / "sphinx_ext")]),
        )

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf8")

    def call(self, *command):
        """Run a program of this environment there."""
        first, *rest = command
        if first == "python":
            first, *rest = rest
        else:
            first = Path(sys.executable).parent / first
        return forked.run(first, *rest, cwd=self.root, env=self.env)

    def build(self):
        """What `make book` does."""
        build = ("jupyter-book", "build", ".", "-W", "-n", "--keep-going")
        for command in (
            ("python", "sphinx_ext/notebooks.py"),
            build,
        ):
            done = self.call(*command)
            assert done.returncode == 0, done.stdout
        return self

    def nbval(self, folder):
        """What `make compare` does; pytest's exit code and text."""
        done = self.call(
            *("pytest", str(folder), "--nbval", "--nbval-current-env"),
            *("--nbval-sanitize-with", str(ROOT / "tests/nbval.cfg")),
            *("-p", "nbval_plugin", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml")),
        )
        return done.returncode, done.stdout

    def page(self):
        return (self.root / "_build/html/book/tiny.html").read_text("utf8")

    def notebook(self, kind="notebooks"):
        path = self.root / "_build" / kind / "book/tiny.ipynb"
        return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Book(tmp_path_factory.mktemp("book")).build()


def test_a_page_quotes_what_the_code_computed(tiny):
    assert re.search(r"The mean is\s+<[^>]+>3\.000<", tiny.page())
    assert "read 3.14" in tiny.page()


def test_outputs_keep_their_order(tiny):
    """nbval, which runs the cells, joins what one prints."""
    [cell] = [
        cell
        for cell in notebooks.code_cells(tiny.notebook())
        if "between" in cell.source
    ]
    assert [output.output_type for output in cell.outputs] == [
        *("stream", "display_data", "stream"),
    ]


def test_the_build_ran_nothing_twice(tiny):
    """The page and the notebook are one record of the cache."""
    cache = get_cache(tiny.root / "_build/.jupyter_cache")
    assert len(cache.list_cache_records()) == 1


def test_nbval_passes_what_was_built_and_finds_a_changed_number(
    tiny, tmp_path
):
    code, text = tiny.nbval(tiny.root / "_build/notebooks")
    assert code == 0, text
    spoiled = tiny.notebook()
    [glued] = [
        output
        for cell in notebooks.code_cells(spoiled)
        for output in cell.outputs
        if "scrapbook" in output.get("metadata", {})
    ]
    assert glued.data == {"application/papermill.record/text/plain": "3.0"}
    glued.data["application/papermill.record/text/plain"] = "3.1"
    nbformat.write(spoiled, tmp_path / "spoiled.ipynb")
    code, text = tiny.nbval(tmp_path)
    assert code == 1, text
    assert "1 failed" in text


def test_a_figure_is_drawn_in_the_page_and_an_image_in_the_notebooks(tiny):
    """In the page's colors; in notebooks as any program shows it."""
    page = BeautifulSoup(tiny.page(), "html.parser")
    [figure] = page.select("figure#fig-tiny")
    assert figure.find("img") is None
    assert "Bars." in figure.figcaption.get_text()
    [picture] = figure.select('.picture[role="img"]')
    assert picture["aria-label"] == 'Two bars & a "word".'
    bars = [p for p in picture.select("path") if "--fig-blue" in str(p)]
    assert len(bars) == 2
    cache = get_cache(tiny.root / "_build/.jupyter_cache")
    [record] = cache.list_cache_records()
    ran = cache.get_cache_bundle(record.pk).nb
    assert shown(ran) == [["image/png", "image/svg+xml", "text/plain"]]
    for kind in ("notebooks", "readers"):
        assert shown(tiny.notebook(kind)) == [["image/png", "text/plain"]]


def shown(notebook):
    """As what each figure of a notebook is encoded."""
    return [
        sorted(output.data)
        for cell in notebooks.code_cells(notebook)
        for output in cell.outputs
        if any(kind.startswith("image/") for kind in output.get("data", {}))
    ]


def test_what_proves_nothing_is_found(tiny):
    source, exported = notebooks.read(tiny.root, "book/tiny"), tiny.notebook()
    assert unproven(source, exported) == []
    assert len(unproven(source, source)) == 2  # never ran, no outputs
    edited = copy.deepcopy(source)
    notebooks.code_cells(edited)[-1].source = "'another answer'"
    assert len(unproven(edited, exported)) == 1


def links_of(book):
    """The addresses outside of it that the page leads to."""
    return set(re.findall(r'href="(https?://[^"]+)"', book.page()))


def test_links_derive_from_the_address(tiny):
    """With another address in pyproject.toml, every link is another."""
    links = links_of(tiny)
    name = "ada/another-name"
    notebook = "notebooks/book/tiny.ipynb"
    binder = f"https://mybinder.org/v2/gh/{name}/notebooks?urlpath=lab/tree"
    for link in (
        THEIRS,
        f"https://colab.research.google.com/github/{name}/blob/{notebook}",
        f"{binder}/book/tiny.ipynb",
        f"{THEIRS}/edit/main/book/tiny.md",
        f"{THEIRS}/issues",
        f"{THEIRS}/blob/main/coursekit/attention.py",
        "https://docs.pytorch.org/docs/stable/generated/torch.tril.html",
    ):
        assert link in links
    citation = re.sub("<[^>]+>", "", tiny.page())
    assert f"url = {{{THEIRS}}}" in re.sub(r"\s+", " ", citation)
    assert any(link.startswith(f"{THEIRS}/issues/new") for link in links)
    first = notebooks.code_cells(tiny.notebook("readers"))[0].source
    assert first == install_cell(THEIRS, "v7.3")
    assert f'"git+{THEIRS}@v7.3")' in first


def ways(book):
    """Addresses of the notebook where the exercises begin."""
    page = BeautifulSoup(book.page(), "html.parser")
    return [a["href"] for a in page.select("#exercises > h2 + p > a")]


def test_exercises_begin_with_the_way_to_a_notebook(tiny):
    colab, file = ways(tiny)
    assert colab.startswith("https://colab.research.google.com/github/")
    assert colab.endswith("book/tiny.ipynb")
    assert (tiny.root / "_build/html/book" / file).is_file()


def test_an_exercise_that_nobody_attempted_has_no_report(tiny):
    text = BeautifulSoup(tiny.page(), "html.parser").article.get_text()
    assert "not attempted" not in text.replace('"not attempted"', "")
    assert "Off by one." in text.replace('"Off by one."', "")  # the control


def test_the_code_of_a_figure_opens_from_its_caption(tiny):
    page = BeautifulSoup(tiny.page(), "html.parser")
    [code] = page.select(".cell:has(figure) > details.drawn")
    assert "How this figure is drawn" in code.summary.get_text()


def test_without_an_address_nothing_leads_to_one(tmp_path):
    """No launch button and no dead link; the notebook says what to do."""
    book = Book(tmp_path, "https://github.com/OWNER/x", "").build()
    said = head_of(book.page())
    assert said["description"] == said["og:description"] == ABOUT
    for key in ("canonical", "og:url", "og:image"):
        assert key not in said
    assert not (tmp_path / "_build/html/_images/preview").exists()
    outside = {urlsplit(link).netloc for link in links_of(book)}
    assert outside == {"docs.pytorch.org"}
    assert ways(book) == ["../_sources/book/tiny.ipynb"]
    for page in (tmp_path / "_build/html").rglob("*.html"):
        assert "OWNER" not in page.read_text("utf8")
    page = BeautifulSoup(book.page(), "html.parser")
    assert "an issue." in page.article.get_text()
    assert "url" not in page.select_one(".highlight-bibtex").get_text()
    assert page.select_one(".btn-download-notebook-button")
    first = notebooks.code_cells(book.notebook("readers"))[0].source
    assert first == install_cell("")


def test_a_book_for_a_class_has_solutions_nowhere(tiny, tmp_path):
    """Neither in pages and notebooks nor in sources and the search index."""

    def files(book):
        return {
            path.relative_to(book.root / "_build").as_posix()
            for folder in ("html", "readers")
            for path in (book.root / "_build" / folder).rglob("*.*")
            if b"quokka" in path.read_bytes()
        }

    assert files(tiny) == {
        "html/book/tiny.html",
        "html/searchindex.js",
        "html/_sources/book/tiny.md",
        "html/_sources/book/tiny.ipynb",
        "readers/book/tiny.ipynb",
    }
    book = Book(tmp_path)
    shutil.copytree(tiny.root / "_build", tmp_path / "_build")  # built before
    config = yaml.safe_load((tmp_path / "_config.yml").read_text("utf8"))
    config["sphinx"]["config"]["hide_solutions"] = True
    book.write("_config.yml", yaml.safe_dump(config))
    assert files(book.build()) == set()
    page = BeautifulSoup(book.page(), "html.parser")
    assert "Implement: the mean" in page.article.get_text()
    assert page.select_one(".btn-download-notebook-button")
    assert not page.select_one(".btn-download-source-button")


# -- the head of a page ------------------------------------------------------
ABOUT = (
    "The mean is 3.000; an issue. See coursekit.attention.attend(), "
    "torch.tril()."
)


def head_of(html):
    """What a page says of itself: ``{name: content}``."""
    page = BeautifulSoup(html, "html.parser")
    said = {
        tag.get("name") or tag.get("property"): tag["content"]
        for tag in page.find_all("meta", content=True)
    }
    for link in page.find_all("link", rel="canonical"):
        said[link["rel"][0]] = link["href"]
    return said


def test_a_page_describes_itself(tiny):
    """By its first sentences without a formula, and by its first picture."""
    picture = f"{SITE}_images/preview/book-tiny.png"
    said = head_of(tiny.page())
    wanted = {
        "description": ABOUT,
        "og:type": "article",
        "og:site_name": "The Executable Transformer",
        "og:title": "Tiny",
        "og:description": ABOUT,
        "og:url": f"{SITE}book/tiny.html",
        "og:image": picture,
        "og:image:alt": 'Two bars & a "word".',
        "twitter:card": "summary_large_image",
        "canonical": f"{SITE}book/tiny.html",
    }
    assert {key: said.get(key) for key in wanted} == wanted
    file = tiny.root / "_build/html" / picture.removeprefix(SITE)
    assert file.read_bytes().startswith(b"\x89PNG")
    # The control: a page of Sphinx's own has no words of ours.
    search = (tiny.root / "_build/html/search.html").read_text("utf8")
    assert "description" not in head_of(search)


def test_the_sites_own_address_describes_the_first_page(tiny):
    first = head_of((tiny.root / "_build/html/index.html").read_text("utf8"))
    assert first["og:title"] == "Front"
    assert first["description"] == "Welcome to what a book is."
    assert first["canonical"] == f"{SITE}book/index.html"
    assert first["twitter:card"] == "summary"  # it draws nothing


def astray(book, name):
    """What a page asks for in vain when it is shown at another depth."""
    out = book.root / "_build/html"
    page = BeautifulSoup((out / name).read_text("utf8"), "html.parser")
    asked = [
        tag.get("href") or tag.get("src")
        for tag in page.find_all(["a", "link", "script", "img"])
    ]
    at = urljoin(SITE, "some/where/else.html")
    places = [
        urljoin(at, url) for url in asked if url and not url.startswith("#")
    ]
    paths = [
        urlsplit(place).path.removeprefix(urlsplit(SITE).path)
        for place in places
        if urlsplit(place).netloc == urlsplit(SITE).netloc
    ]
    assert len(paths) > 20
    return [path for path in paths if not (out / path).is_file()]


def test_a_page_that_is_not_found_works_at_any_address(tiny):
    assert astray(tiny, "404.html") == []
    assert astray(tiny, "search.html") != []  # the control: relative links
    page = BeautifulSoup(
        (tiny.root / "_build/html/404.html").read_text("utf8"), "html.parser"
    )
    assert page.article.h1.get_text() == "Page not found"
    assert page.select_one('article a[href="/book/book/index.html"]')
    assert page.html["data-content_root"] == "/book/./"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("One. Two! Three?", "One. Two! Three?"),
        ("Here is x\ufffc. Two.", "Two."),
        ("So it runs: this. Look here:", "So it runs: this."),
        (f"{'a' * 150}. {'b' * 60}.", f"{'a' * 150}."),
        ("word " * 60, ("word " * 39).strip() + " …"),
        ("\ufffc.", ""),
    ],
)
def test_a_description_is_whole_sentences(text, short):
    assert page_head.shorten(text.strip()) == short


# -- what is released --------------------------------------------------------
def publish(folder, change=str):
    """Run the deployment's last step; what the branch `notebooks` holds."""
    workflow = yaml.safe_load(
        (ROOT / ".github/workflows/release.yml").read_text("utf8")
    )
    [step] = [
        step["run"]
        for step in workflow["jobs"]["site"]["steps"]
        if step.get("name") == "Publish the notebooks"
    ]
    work, temp = folder / "work", folder / "temp"
    readers = work / "_build/readers/book"
    readers.mkdir(parents=True)
    temp.mkdir()
    (readers / "tiny.ipynb").write_text("{}")
    (work / "pyproject.toml").write_text("not for readers")
    (work / ".gitignore").write_text("_build/\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (
        ["git", "init", "-q", "--bare", "../origin"],
        ["git", "init", "-q"],
        ["git", "remote", "add", "origin", "../origin"],
        ["git", "add", "."],
        [*git, "commit", "-qm", "All"],
        ["bash", "-e", "-c", change(step)],
    ):
        known = {"RUNNER_TEMP": str(temp), "GITHUB_SHA": "5e5e5e"}
        known["GITHUB_SERVER_URL"] = "https://github.com"
        known["GITHUB_REPOSITORY"] = "ada/book"
        subprocess.run(command, cwd=work, env=os.environ | known, check=True)
    show = ["git", "-C", folder / "origin"]
    names = subprocess.check_output(
        [*show, "ls-tree", "-r", "--name-only", "notebooks"], text=True
    ).split()
    return {
        name: subprocess.check_output(
            [*show, "show", f"notebooks:{name}"], text=True
        )
        for name in names
    }


def binders_python(files):
    """The version that repo2docker takes: so does 2026.4.0, asked itself."""
    said = files.get("binder/runtime.txt", "").strip()
    assert re.fullmatch(r"(python-\d+\.\d+)?", said)
    return said.removeprefix("python-") or "3.10"


def test_binder_gets_a_python_that_the_package_allows(tmp_path):
    """And notebooks, and the package at this commit; nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
    allowed = SpecifierSet(project["project"]["requires-python"])
    files = publish(tmp_path / "a")
    assert set(files) == {
        "book/tiny.ipynb",
        "binder/requirements.txt",
        "binder/runtime.txt",
    }
    option, need = files["binder/requirements.txt"].splitlines()
    assert option == "--extra-index-url https://download.pytorch.org/whl/cpu"
    need = Requirement(need)
    assert need.url == "git+https://github.com/ada/book@5e5e5e"
    assert need.name == project["project"]["name"]
    assert need.extras <= set(project["project"]["optional-dependencies"])
    assert binders_python(files) in allowed
    # The negative control: without the file it is one that is too old.
    without = publish(
        tmp_path / "b", lambda step: step.replace("runtime.txt", "other.txt")
    )
    assert binders_python(without) not in allowed


def test_readers_get_predictions_without_answers(tiny):
    readers = tiny.notebook("readers")
    ours, theirs = (
        notebooks.code_cells(book)[-1] for book in (tiny.notebook(), readers)
    )
    assert "the answer" in str(ours.outputs)
    assert theirs.outputs == []
    assert theirs.source == ours.source
    assert "nbval-ignore-output" in theirs.metadata["tags"]
    downloaded = tiny.root / "_build/html/_sources/book/tiny.ipynb"
    assert nbformat.read(downloaded, as_version=4) == readers


def test_readers_get_what_is_folded_closed(tiny):
    """In Jupyter and in Colab, which has another name for it."""
    theirs = notebooks.code_cells(tiny.notebook("readers"))
    first, *_ = [c for c in theirs if c.metadata.get("cellView") == "form"]
    assert first.source.startswith("# In Colab or another fresh notebook:")
    assert first.metadata["jupyter"] == {"source_hidden": True}
    # What only the authors need is left out.
    saved = 'glue("mean", torch.arange(7.0).mean().item())'
    ours = notebooks.code_cells(tiny.notebook())
    assert saved in [c.source for c in ours]
    assert saved not in [c.source for c in theirs]


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ("a = 1\nf(a);", "a = 1\n_ = f(a)"),
        ("f(\n    1,\n); ", "_ = f(\n    1,\n)"),
        ('"é"; g(2);', '"é"; _ = g(2)'),
        ("a = 1;", "a = 1;"),
        ("f(1)", "f(1)"),
    ],
)
def test_a_value_is_hidden_without_a_semicolon(source, other):
    assert readers.without_semicolon(source) == other


def test_plain_nbval_passes_a_readers_notebook(tiny, tmp_path):
    """Without our plugin and without our list of what may differ."""
    shutil.copytree(tiny.root / "_build/readers", tmp_path / "readers")
    done = tiny.call(
        *("pytest", str(tmp_path / "readers"), "--nbval"),
        *("--nbval-current-env", "-p", "no:cacheprovider"),
    )
    assert done.returncode == 0, done.stdout
    spoiled = tiny.notebook("readers")  # the control
    [cell] = [c for c in spoiled.cells if c.source == "_ = torch.ones(3)"]
    cell.source = "torch.ones(3);"
    nbformat.write(spoiled, tmp_path / "readers/book/tiny.ipynb")
    done = tiny.call(
        *("pytest", str(tmp_path / "readers"), "--nbval"),
        *("--nbval-current-env", "-p", "no:cacheprovider"),
    )
    assert done.returncode == 1, done.stdout


def test_a_change_of_the_package_runs_the_chapters_again(tiny):
    tiny.write("coursekit/n.txt", "2.71")
    page = tiny.build().page()
    assert "read 2.71" in page
    assert "read 3.14" not in page


def test_a_chapter_that_fails_fails_the_build(tiny):
    text = TINY.replace("torch.arange(7.0)", "torch.arange(no_such_name)")
    tiny.write("book/tiny.md", text)
    done = tiny.call("python", "sphinx_ext/notebooks.py")
    tiny.write("book/tiny.md", TINY)
    assert done.returncode == 1
    assert "NameError" in done.stdout
    assert "failed: book/tiny" in done.stdout


def test_a_name_that_does_not_exist_fails_the_build(tiny):
    tiny.write("book/tiny.md", TINY.replace("attend", "no_such_name"))
    with pytest.raises(AssertionError, match="reference target not found"):
        tiny.build()
    tiny.write("book/tiny.md", TINY)
