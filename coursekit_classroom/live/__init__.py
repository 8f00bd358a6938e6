"""The same transformer a second time, in JavaScript, for figures in the page.

The engine in ``js/`` is written to be read next to the package:
``attention.js`` has the ``attend`` of ``attention.py``, and so on, without a
batch and without a framework.  The figures in ``js/figures/`` are custom
elements that run it.

A page opened as a file may load neither modules nor data.  So :func:`bundle`
puts all into one classic script, and :func:`export` writes a model as one:
what ``save_model`` writes, in base64, within a call that hands it over.
"""

import base64
import hashlib
import importlib
import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from coursekit.files import write_atomically
from coursekit.saved_models import load_model, save_model
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import Tokenizer
from coursekit.weights import SaveError
from coursekit_classroom.glue import show_code
from coursekit_classroom.live import costs, walk
from coursekit_classroom.live.stills import apart, picture, still

__all__ = [
    "ENGINE",
    "FIGURES",
    "bundle",
    "export",
    "show",
    "show_beside",
    "source_of",
    "sources",
    "still",
]

JS = Path(__file__).parent / "js"
ENGINE = (
    "tensor",
    "tokenizer",
    "embedding",
    "positions",
    "masks",
    "attention",
    "multihead",
    "norm",
    "feedforward",
    "block",
    "decoder",
    "activations",
    "trace",
    "encoder",
    "seq2seq",
    "checkpoint",
    "generation",
    "loss",
    "cache",
    "translate",
    "scaling",
)
"""The engine's files in their order: each imports only those before it."""
FIGURES = (
    "style",
    "strings",
    "parts",
    "words",
    "library",
    "figure",
    "hero_stack",
    "hero_bars",
    "hero",
    "attention_map",
    "scores",
    "next_token",
    "beam",
    "translator",
    "positions",
    "bpe",
    "checkpoint",
    "temperature",
    "presets",
    "calculator",
    "untrained",
    "depth",
    "probe",
    "train",
    "walk_strings",
    "walk_code",
    "walk_text",
    "walk_state",
    "walk_save",
    "walk_sheet",
    "walk_vectors",
    "walk_attention",
    "walk_stream",
    "walk_zoom",
    "walk_answer",
    "walk_map",
    "walk_crumbs",
    "walk_trace",
    "walk_controls",
    "walk",
)
"""The files of the figures, in their order; ``style`` is made of live.css,
``walk_code`` of minimal.py, and ``presets`` of costs.py."""

IMPORT = re.compile(r'^import \{([^}]*)\} from "(.+?)";\n', re.MULTILINE)
COMMENT = re.compile(r"^ *(?://.*|/\*\*[\s\S]*?\*/)\n", re.MULTILINE)
EXPORT = re.compile(
    r"^export (?=(?:function\*?|class|const) (\w+))", re.MULTILINE
)


def sources() -> dict[str, str]:
    """The text of each JavaScript file, by its path, in order."""
    paths = [f"{name}.js" for name in ENGINE]
    paths += [f"figures/{name}.js" for name in FIGURES]
    style = (JS / "figures/live.css").read_text("utf8")
    code = {step: walk.code(step) for step in walk.LINES}
    sizes = {name: size.to_dict() for name, size in costs.PRESETS.items()}
    made = {
        "figures/style.js": f"export const STYLE = {json.dumps(style)};\n",
        "figures/presets.js": f"export const PRESETS = {json.dumps(sizes)};\n",
        "figures/walk_code.js": f"export const CODE = {json.dumps(code)};\n",
    }
    return {
        path: made.get(path) or (JS / path).read_text("utf8") for path in paths
    }


def bundle(files: dict[str, str] | None = None) -> str:
    """All files as one script that a page of any kind can load.

    Each file becomes a function that is called at once and returns what it
    exports; the fields of ``coursekitLive`` are the exports of all.

    Args:
        files: texts by path, each importing only from those before it;
            default :func:`sources`.

    Returns:
        The script.

    Raises:
        ValueError: if a file imports what none before it exports, or two
            export the same name.
    """
    files = sources() if files is None else files
    exports: dict[str, list[str]] = {}
    parts = []
    for path, text in files.items():
        imports = []
        for names, origin in IMPORT.findall(text):
            wanted = [name.strip() for name in names.split(",")]
            wanted = [name for name in wanted if name]
            source = normpath(join(dirname(path), origin))
            absent = [n for n in wanted if n not in exports.get(source, ())]
            if absent:
                raise ValueError(
                    "a file may import what a file before it exports: got "
                    f"{', '.join(absent)} from {origin} in {path}. Change "
                    "the order in ENGINE and FIGURES, or export it."
                )
            imports.append(
                f'const {{ {", ".join(wanted)} }} = files["{source}"];\n'
            )
        names = EXPORT.findall(text)
        for other, taken in exports.items():
            if both := sorted({*names} & {*taken}):
                raise ValueError(
                    "a name may be exported by one file: got "
                    f"{', '.join(both)} in {other} and {path}. Rename one."
                )
        exports[path] = names
        body = EXPORT.sub("", COMMENT.sub("", IMPORT.sub("", text)))
        parts.append(
            f'files["{path}"] = (() => {{\n{"".join(imports)}{body}'
            f"return {{ {', '.join(names)} }};\n}})();\n"
        )
    return (
        '(() => {\n"use strict";\n'
        "if (globalThis.coursekitLive) return;\n"  # a notebook shows two
        "const files = {};\n"
        f"{''.join(parts)}"
        "globalThis.coursekitLive ="
        " Object.assign({}, ...Object.values(files));\n})();\n"
    )


def export(
    model: nn.Module | None,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    name: str,
    figure: str = "",
    text: str = "",
    **options: float | str,
) -> Path:
    """Write a model as a script that hands it to the figures.

    The page's model is the one given, bit by bit: int8 if its weights are
    rounded (:func:`coursekit.round_weights`), as those of the shipped ones
    are, and float32 if not.

    With a figure, its still picture is written beside the script, as
    ``name-HASH-FIGURE.svg``: it is for readers without JavaScript, and for
    all until the model is there.  It says in words what it shows.  The next
    one of the same figure and model takes its place.

    Args:
        model: a GPT, an Encoder or a Transformer; None for figures that
            need a tokenizer only.
        tokenizer: of its text.
        folder: is made if it does not exist.
        name: of the model, for the file's name.
        figure: of which a picture is drawn, as for :func:`still`; none by
            default.
        text: what the picture is shown on.
        options: of the figure, such as ``layer``.

    Returns:
        The script, ``name-HASH.js``: a changed model has another address.

    Raises:
        ValueError: if model and tokenizer do not fit, or there is neither;
            if they have no such figure, or there is a text and no figure.
        SaveError: if a file can't be written.
    """
    fields: dict[str, Any] = {}
    if model is None and tokenizer is None:
        raise ValueError(
            "there must be something to export: got no model and no "
            "tokenizer. Pass what coursekit.load returns."
        )
    if not figure and (text or options):
        raise ValueError(
            "text and options are those of a figure's picture: got "
            f"{', '.join([*filter(None, [text]), *options])} and no figure. "
            'Name it, such as figure="attention".'
        )
    if tokenizer is not None:
        fields["tokenizer"] = tokenizer.to_dict()
    if model is not None:
        fields |= _packed(model, tokenizer) | {"proof": _proof(model)}
    packed = json.dumps(fields, separators=(",", ":"))
    digest = hashlib.sha256(packed.encode()).hexdigest()[:8]
    path = Path(folder) / f"{name}-{digest}.js"
    call = f"coursekitLive.receive({json.dumps(path.stem)}, {packed});\n"
    written = {path: call}
    if figure:
        drawn = picture(figure, model, text, tokenizer, **options)
        written[path.with_name(f"{path.stem}-{figure}.svg")] = drawn
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, content in written.items():
            write_atomically(file, content)
    except OSError as error:
        raise SaveError(
            f"there must be room and leave to write: got {error.strerror!r} "
            f"for {path}. Make room or choose another folder."
        ) from error
    return path


def __getattr__(name: str) -> Any:
    """Load the widget when it is asked for: it needs Jupyter's widgets."""
    if name == "show":
        return importlib.import_module("coursekit_classroom.live.widget").show
    raise AttributeError(
        f"module 'coursekit_classroom.live' has no attribute {name!r}"
    )


def source_of(name: str) -> str:
    """A function or class of the engine, without its comment.

    Args:
        name: as it is exported, such as ``attentionWeights``.

    Returns:
        Its JavaScript.

    Raises:
        ValueError: if no file of the engine exports it.
    """
    pattern = rf"^export ((?:function\*?|class) {name}\b.*?^}}\n)"
    for text in sources().values():
        if match := re.search(pattern, text, re.MULTILINE | re.DOTALL):
            return re.sub(r"^ *(?:/\*\*.*?\*/)\n", "", match[1], flags=re.M)
    raise ValueError(
        "a name must be one that the engine exports, as a function or class: "
        f"got {name!r}. Look into coursekit_classroom/live/js."
    )


def show_beside(thing: Any, name: str) -> None:
    """Show a function of the package, and the engine's under it.

    Args:
        thing: a function or a class.
        name: its counterpart in the engine.

    Raises:
        ValueError: as :func:`source_of`.
    """
    from IPython.display import Markdown, display

    script = source_of(name)
    show_code(thing)
    display(Markdown(f"```javascript\n{script}```"))


def _packed(model: nn.Module, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Class, configuration and weights, the latter as base64."""
    with TemporaryDirectory() as folder:
        save_model(folder, model, tokenizer, int8=True)
        rounded = load_model(folder).model.state_dict()
        own = model.state_dict()
        if not all(torch.equal(own[key].cpu(), rounded[key]) for key in own):
            save_model(folder, model, tokenizer)
        described = json.loads(Path(folder, "config.json").read_bytes())
        weights = Path(folder, "model.safetensors").read_bytes()
    return {
        "model": described["model"],
        "config": described["config"],
        "weights": base64.b64encode(weights).decode(),
    }


def _proof(model: Any) -> dict[str, Any]:
    """A few ids and outputs, so that the page knows that it computes alike."""
    config = model.config
    length = min(7, config.max_len)
    ids = torch.arange(length)[None] * config.vocab_size // length
    source = [ids] if isinstance(model, Transformer) else []
    with torch.no_grad():
        last = apart(model)(*source, ids)[0, -1]
    return {"ids": ids[0].tolist(), "outputs": last[:16].tolist()}
