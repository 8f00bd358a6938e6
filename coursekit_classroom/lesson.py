"""The file of each chapter: `minimal.py` as far as the book has come.

After chapter 0 it trains a bigram model, after chapter 4 it looks back, from
chapter 12 on it is `minimal.py` itself.  Nothing is written twice: what is
final comes from :mod:`coursekit.minimal`, what a later chapter replaces from
:mod:`coursekit_classroom.stages`.
"""

import ast
import contextlib
import difflib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import coursekit
from coursekit_classroom.edits import EDITS

__all__ = [
    "LAST_CHAPTER",
    "diff",
    "file_of",
    "load",
    "new_lines",
    "part",
    "parts",
    "text",
]

LAST_CHAPTER = 12  # from here on, the file is minimal.py
FILE, SECOND = "minimal.py", "minimal_seq2seq.py"
SECOND_CHAPTERS = (13, 14)  # that write the second file
HERE = Path(__file__).parent
PACKAGE = Path(coursekit.__file__).parent

# Where a form of a definition stands: in minimal.py; there, without what
# chapter 12 adds; or, as a number, in stages.py. None takes it out again.
FINAL, UNCACHED = "final", "uncached"
Form = str | int | None
# Each part of the file, in its order, with the chapters that write it.
FORMS: dict[str, dict[int, Form]] = {
    "WORD": {1: FINAL},
    "CharTokenizer": {0: FINAL},
    "merge": {1: FINAL},
    "BPETokenizer": {1: FINAL},
    "get_batch": {0: FINAL},
    "attention": {4: FINAL},
    "causal_mask": {4: FINAL},
    "Head": {4: 4, 6: None},
    "MultiHeadAttention": {6: UNCACHED, 12: FINAL},
    "LayerNorm": {7: FINAL},
    "FeedForward": {8: FINAL},
    "Model": {0: 0, 2: 2, 3: 3, 4: 4, 6: 6, 7: 7, 8: 8, 9: None},
    "Block": {9: UNCACHED, 12: FINAL},
    "GPT": {9: UNCACHED, 12: FINAL},
    "cross_entropy": {0: 0, 10: FINAL},
    "learning_rate": {11: FINAL},
    "make_optimizer": {11: FINAL},
    "train": {0: 0, 11: FINAL},
    "evaluate": {0: FINAL},
    "changed_by": {5: 5, 6: None},  # a check, and no part of a transformer
    "sample": {12: FINAL},
    "generate": {0: 0, 12: FINAL},
    "script": {0: 0, 2: 2, 9: FINAL},
}
# The first part under each heading of the file.
HEADINGS = {
    "WORD": "1. Data and tokenizers",
    "attention": "2. The model",
    "cross_entropy": "3. Training and sampling",
}
# What chapter 12 adds to earlier parts, as edits that take it back.
UNCACHE = [
    ("x, memory, mask, past)", "x, memory, mask)"),
    (
        """\
        if self in past:  # chapter 12: keys and values of earlier tokens
            k = torch.cat([past[self][0], k], dim=2)
            v = torch.cat([past[self][1], v], dim=2)
        past[self] = k, v
""",
        "",
    ),
    ("(self, x, mask, past)", "(self, x, mask)"),
    ("self.attention(y, y, mask, past)", "self.attention(y, y, mask)"),
    ("(self, ids, past=None)", "(self, ids)"),
    (
        """\
        past = {} if past is None else past  # chapter 12: see generate
        start = past.get("length", 0)
        end = past["length"] = start + ids.size(1)
        x = self.embedding(ids) + self.positions(torch.arange(start, end))
        mask = causal_mask(ids.size(1), end)
""",
        """\
        x = self.embedding(ids) + self.positions(torch.arange(ids.size(1)))
        mask = causal_mask(ids.size(1), ids.size(1))
""",
    ),
    ("block(x, mask, past)", "block(x, mask)"),
]
# How the script at the end builds the model: at last, and before chapter 9.
GPT = "GPT(len(tokenizer.vocabulary), 64, 64, n_heads=4, n_blocks=4)"
MODELS = {
    0: "Model(len(tokenizer.vocabulary), context=64)",
    2: "Model(len(tokenizer.vocabulary), context=64, d_model=64)",
}
LATER = "  # or BPETokenizer(text, 512)"  # not before chapter 1
ABOUT = '''\
"""My transformer, built along with The Executable Transformer.

    python my_transformer.py text.txt

trains the model on the text, then generates from it.
"""
'''


def parts(chapter: int) -> list[str]:
    """Names of what the file holds after a chapter, in its order.

    Args:
        chapter: 0 or later.

    Raises:
        ValueError: if the chapter is below 0.
    """
    return [name for name in FORMS if _form(name, chapter) is not None]


def part(name: str, chapter: int) -> str:
    """Lines of one part of the file, as it is after a chapter.

    Args:
        name: a function or class of the file, ``Class.method``, or
            ``script``, the lines at its end that run it.
        chapter: 0 or later. In chapters 13 and 14 the second file's parts
            come before those of the first.

    Returns:
        Lines of source with their comments, without a newline at the end.

    Raises:
        ValueError: if the file has no such part after that chapter.
    """
    owner, _, method = name.partition(".")
    form = _form(owner, chapter) if owner in FORMS else None
    source = "" if form is None else _written(owner, form)
    if file_of(name, chapter) == SECOND:
        source = _cut_file(SECOND)[owner]
    if method:
        source = _cut(source).get(method, "")
    if not source:
        raise ValueError(
            f"after chapter {chapter} the file has the parts "
            f"{', '.join(parts(chapter))}: got {name!r}. Name one of them, "
            "or a method as Class.method."
        )
    return source


def new_lines(name: str, chapter: int) -> set[int]:
    """Numbers of a part's lines that are new since the chapter before.

    Args:
        name, chapter: as in :func:`part`.

    Returns:
        Numbers of lines of ``part(name, chapter)``, from 1.

    Raises:
        ValueError: as :func:`part`.
    """
    now = part(name, chapter).splitlines()
    before = []
    if chapter > LAST_CHAPTER and file_of(name, chapter) == FILE:
        return set()
    if chapter and file_of(name, chapter) == file_of(name, chapter - 1):
        with contextlib.suppress(ValueError):
            before = part(name, chapter - 1).splitlines()
    same = difflib.SequenceMatcher(None, before, now, autojunk=False)
    lines_kept = {
        line + 1
        for block in same.get_matching_blocks()
        for line in range(block.b, block.b + block.size)
    }
    filled = {i for i, line in enumerate(now, 1) if line.strip()}
    return filled - lines_kept


def file_of(name: str, chapter: int) -> str:
    """The file that a part stands in: ``minimal.py``, or the second file.

    Args:
        name, chapter: as in :func:`part`.

    Returns:
        The file's name; ``minimal.py`` also for a part that does not exist.
    """
    if chapter not in SECOND_CHAPTERS:
        return FILE
    source = _cut_file(SECOND).get(name.split(".")[0], "")
    written = re.search(r"# chapter (\d+)\n", source)
    return SECOND if written and int(written[1]) <= chapter else FILE


def diff(name: str, edit: str) -> list[tuple[str, str]]:
    """The lines of a part of `minimal.py`, before and after an edit.

    Args:
        name: as in :func:`part`.
        edit: a key of :data:`coursekit_classroom.edits.EDITS`.

    Returns:
        Pairs of a mark and a line: ``" "`` stays, ``"-"`` was there before,
        ``"+"`` is there after.

    Raises:
        ValueError: if there is no such edit, or no such part after it.
    """
    if edit not in EDITS:
        raise ValueError(
            f"an edit is one of {', '.join(EDITS)}: got {edit!r}. Name one "
            "of them, or add it to coursekit_classroom/edits.py."
        )
    before, after = (
        _found(name, source)
        for source in (text(LAST_CHAPTER), _edited(LAST_CHAPTER, EDITS[edit]))
    )
    if not after:
        raise ValueError(
            f"after the edit {edit!r} the file needs the part that is shown: "
            f"got {name!r}. Name a part that the edit changes or adds."
        )
    lines = difflib.Differ().compare(before.splitlines(), after.splitlines())
    return [(line[0], line[2:]) for line in lines if line[0] != "?"]


@cache
def text(chapter: int) -> str:
    """The whole file as it is after a chapter, ready to be run.

    Args:
        chapter: 0 or later; from :data:`LAST_CHAPTER` on it is `minimal.py`.

    Returns:
        Python source that imports only PyTorch and the standard library.

    Raises:
        ValueError: if the chapter is below 0.
    """
    if chapter >= LAST_CHAPTER:
        return (PACKAGE / "minimal.py").read_text("utf-8")
    body = ""
    for name in FORMS:
        if name in HEADINGS:
            heading = f"# --- {HEADINGS[name]} "
            body += f"\n{heading:-<78}\n\n"
        if _form(name, chapter) is not None:
            body += f"\n{part(name, chapter)}\n\n"
    lines = (PACKAGE / "minimal.py").read_text("utf-8").splitlines()
    imports = ""
    for line in lines:
        is_import = line.startswith(("import ", "from "))
        if line == "import torch":
            imports += "\n"
        if is_import and re.search(rf"\b{line.split()[-1]}\b", body):
            imports += f"{line}\n"
    return f"{ABOUT}\n{imports}{body.rstrip()}\n"


def load(chapter: int, edits: Sequence[tuple[str, str]] = ()) -> ModuleType:
    """The file after a chapter as a module, as if it had been imported.

    Args:
        chapter: 0 or later.
        edits: pairs of old and new text; what if a line were different?

    Returns:
        A module of its own for each call.

    Raises:
        ValueError: if the chapter is below 0, or the file does not hold
            the old text of an edit exactly once.
    """
    source = _edited(chapter, edits)
    module = ModuleType(f"{__name__}.chapter_{chapter}")
    exec(compile(source, f"<chapter {chapter}>", "exec"), module.__dict__)
    return module


def _edited(chapter: int, edits: Sequence[tuple[str, str]]) -> str:
    """The file after a chapter, with edits made one after the other."""
    source = text(chapter)
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(
                "an edit replaces text that the file holds exactly once: "
                f"got {source.count(old)} times {old!r} after chapter "
                f"{chapter}. Give more of the line, or less."
            )
        source = source.replace(old, new)
    return source


def _found(name: str, source: str) -> str:
    """A function, class or method of a source; empty if it isn't there."""
    owner, _, method = name.partition(".")
    body = _cut(source).get(owner, "")
    return _cut(body).get(method, "") if body and method else body


def _form(name: str, chapter: int) -> Form:
    """The form of a part after a chapter; ``None`` if it isn't there."""
    if chapter < 0:
        raise ValueError(
            f"a chapter is a number from 0 on: got {chapter}. The first "
            "that writes into the file is 0."
        )
    written = [form for k, form in FORMS[name].items() if k <= chapter]
    return written[-1] if written else None


@cache
def _written(name: str, form: str | int) -> str:
    """The lines of one form of a part."""
    minimal = _cut_file(FILE)
    if name == "script":
        source = minimal[name]
        if form != FINAL:
            source = source.replace(GPT, MODELS[int(form)])
        return source.replace(LATER, "") if form == 0 else source
    if isinstance(form, int):
        stages = _cut((HERE / "stages.py").read_text("utf-8"))
        source = stages[f"{name}{form}"]
        # Model4 is Model in the file of its chapter, and Head4 is Head.
        names = "|".join(n for n in FORMS if n != "script")
        return re.sub(rf"\b({names})\d\b", r"\1", source)
    source = minimal[name]
    if form == UNCACHED:
        for new, old in UNCACHE:
            source = source.replace(new, old)
    return source


@cache
def _cut_file(name: str) -> dict[str, str]:
    """Each definition of a file of the package by its name."""
    return _cut((PACKAGE / name).read_text("utf-8"))


def _cut(source: str) -> dict[str, str]:
    """Each definition of a source by its name, comments above it included.

    Given a class, its methods.
    """
    tree, lines = ast.parse(source), source.splitlines()
    nodes = tree.body
    if len(nodes) == 1 and isinstance(nodes[0], ast.ClassDef):
        nodes = nodes[0].body
    found = {}
    for node in nodes:
        first: ast.stmt | ast.expr
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
            first = min([node, *node.decorator_list], key=lambda n: n.lineno)
        elif isinstance(node, ast.Assign):
            name, first = ast.unparse(node.targets[0]), node
        elif isinstance(node, ast.If):
            name, first = "script", node
        else:
            continue
        start = first.lineno - 1
        while (
            lines[start - 1].startswith("# ")
            and "---" not in (lines[start - 1])
        ):
            start -= 1
        found[name] = "\n".join(lines[start : node.end_lineno])
    return found
