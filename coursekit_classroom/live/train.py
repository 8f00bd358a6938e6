"""Training in the page: the script that a reader's press loads.

It holds the source of a worker, the engine with its backward pass in
``training/``, and three texts to learn from.  A page loads none of it before.
"""

import hashlib
import json
from pathlib import Path

import coursekit
from coursekit.data import load_text
from coursekit.datasets import read_asset
from coursekit.files import write_atomically
from coursekit_classroom.live import ENGINE, JS, bundle

__all__ = ["TRAINING", "export", "sources", "texts"]

TRAINING = ("matmul", "backward", "adamw", "minimal", "save", "trainer")
"""The files of ``training/`` in their order, behind the engine's."""
LONGEST = 120_000  # characters of a text
LEFT_OUT = ("activations", "trace", "loss", "translate")  # not for training


def sources() -> dict[str, str]:
    """The text of each file of the worker, by its path, in order."""
    paths = [f"{name}.js" for name in ENGINE if name not in LEFT_OUT]
    paths += [f"training/{name}.js" for name in TRAINING]
    return {path: (JS / path).read_text("utf8") for path in paths}


def texts() -> dict[str, str]:
    """The texts that come with the figure, by name.

    ``plays`` is the beginning of Shakespeare's, ``stories`` has questions
    and answers about little stories, and ``python`` is the code of this
    package, file by file.
    """
    pairs = read_asset("tuning/story-questions.tsv").decode()
    files = sorted(Path(coursekit.__file__).parent.glob("*.py"))
    code = "\n\n".join(path.read_text("utf8") for path in files)
    whole_texts = {
        "plays": load_text("shakespeare"),
        "stories": pairs.replace("\t", " "),
        "python": code,
    }
    return {name: text[:LONGEST] for name, text in whole_texts.items()}


def export(folder: str | Path) -> Path:
    """Write the script that hands worker and texts to the figure.

    Args:
        folder: is made if it does not exist.

    Returns:
        The script, ``train-HASH.js``: a changed one has another address.
    """
    packed = json.dumps({"source": bundle(sources()), "texts": texts()})
    digest = hashlib.sha256(packed.encode()).hexdigest()[:8]
    path = Path(folder) / f"train-{digest}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    call = f"coursekitLive.receive({json.dumps(path.stem)}, {packed});\n"
    write_atomically(path, call)
    return path
