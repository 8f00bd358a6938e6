"""Models as folders: built by name, saved, loaded, shipped.

A folder holds::

    config.json             the model's class, all settings, the text's hash
    tokenizer.json          the vocabulary
    model.safetensors       the weights

That of a run has ``checkpoint.safetensors`` too, see
:mod:`coursekit.checkpoint`.  The same three files may lie in a zip, which is
what the book's pages give to those who trained a model there.
"""

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from coursekit.checks import is_packaged, require
from coursekit.config import (
    Config,
    EncoderConfig,
    GPTConfig,
    SpeechConfig,
    TrainConfig,
    TransformerConfig,
    VisionConfig,
)
from coursekit.files import parse_json, write_atomically
from coursekit.tokenizer import Tokenizer, load_tokenizer
from coursekit.weights import (
    check_weights,
    finite_weights,
    put_weights,
    read_weights,
    save_weights,
    saving,
)

MODELS: dict[str, tuple[str, type[Config]]] = {
    "GPT": ("coursekit.decoder", GPTConfig),
    "Encoder": ("coursekit.encoder", EncoderConfig),
    "Transformer": ("coursekit.seq2seq", TransformerConfig),
    "SpeechTransformer": ("coursekit.pretrained.whisper", SpeechConfig),
    "ViT": ("coursekit.vision", VisionConfig),
}
"""Each model's module, imported when it is built, and its settings."""
FORMAT = 1
NEEDED = {"config.json", "model.safetensors"}
# What zipfile raises; of a file that is missing a KeyError.
ZIP_ERRORS = (BadZipFile, EOFError, KeyError, OSError, RuntimeError)
SHIPPED = Path(__file__).parent / "assets" / "models"


class Loaded(NamedTuple):
    """A model and the tokenizer of its text, if it has one."""

    model: Any
    tokenizer: Any


def build_model(fields: dict[str, Any], origin: str | Path = "") -> nn.Module:
    """Make the model that a ``config.json`` describes, with fresh weights.

    Args:
        fields: ``{"model": class name, "config": its fields}``.
        origin: where they come from, for the message.

    Raises:
        ValueError: if the class is unknown or a field does not fit.
    """
    name = fields.get("model")
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(
            f"the model must be one of {', '.join(MODELS)}: got {name!r} in "
            f"{origin}. Was it written by a newer version?"
        )
    module, config = MODELS[name]
    kind = getattr(importlib.import_module(module), name)
    return kind(config.from_dict(fields.get("config", {})))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build models on PyTorch's device "meta": shapes without memory.

    Random numbers for weights that have no memory are not drawn: PyTorch
    would load its compiler for that, which takes longer than all the rest.

    Raises:
        ValueError: if a model has more numbers than can be counted.
    """
    try:
        with torch.device("meta"), _NoDraws():
            yield
    except RuntimeError as error:
        if "overflow" not in str(error).lower():  # more than can be counted
            raise
        raise ValueError(
            f"a model's sizes must fit into memory: got {error}. Lower them."
        ) from error


class _NoDraws(TorchFunctionMode):
    """Leave a tensor as it is where random numbers would fill it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def create_run(
    folder: str | Path,
    model: nn.Module,
    tokenizer: Tokenizer | None = None,
    train: TrainConfig | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write what a run's folder needs before the first step.

    ``config.json`` comes last: a folder that has it has all.

    Args:
        folder: is made if it does not exist.
        model: to be trained.
        tokenizer: of the text.
        train: the training's settings.
        data: what is needed to find the text again.

    Raises:
        SaveError: if a file can't be written.
        ValueError: if tokenizer and model don't fit, or the folder is called
            like a shipped model.
    """
    folder = check_folder(folder)
    name, settings = type(model).__name__, getattr(model, "config", None)
    if name not in MODELS or not isinstance(settings, Config):
        raise ValueError(
            f"only {', '.join(MODELS)} can be saved: got {name}. Save your "
            "own model's state_dict with safetensors."
        )
    fields: dict[str, Any] = {"format": FORMAT, "model": name}
    fields["config"] = settings.to_dict()
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, folder)
    if train is not None:
        fields |= {"train": train.to_dict(), "data": data or {}}
    with saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if tokenizer is not None:
            tokenizer.save(folder / "tokenizer.json")
            fields["tokenizer"] = hash_of(folder / "tokenizer.json")
        text = json.dumps(fields, indent=2) + "\n"
        write_atomically(folder / "config.json", text)


def check_folder(folder: str | Path) -> Path:
    """Refuse a new folder that is called like a shipped model.

    Raises:
        ValueError: if its name would be taken for that model's.
    """
    folder = Path(folder)
    require(
        str(folder) not in shipped(),
        "a model's folder needs a name that no shipped model has",
        str(folder),
        f"Choose another, such as runs/{folder}.",
    )
    return folder


def save_model(
    folder: str | Path,
    model: nn.Module,
    tokenizer: Tokenizer | None = None,
    int8: bool = False,
) -> None:
    """Write a model that is done, and its tokenizer, to a folder.

    Args:
        folder: is made if it does not exist.
        model: a GPT, an Encoder or a Transformer.
        tokenizer: of the text it was trained on.
        int8: store matrices in a quarter of the bytes, rounded as
            :func:`round_weights` does; the model itself stays as it is.

    Raises:
        SaveError: if a file can't be written.
        TrainingDiverged: if a weight is not finite; no file is changed.
        ValueError: if tokenizer and model don't fit, or the folder is called
            like a shipped model.

    Chapter: 14, encoder and decoder together.
    Test: test_checkpoint.py::test_a_rounded_model_is_what_is_loaded
    """
    finite_weights(model)  # refuses before a file is written
    create_run(folder, model, tokenizer)
    path = Path(folder) / "model.safetensors"
    save_weights(path, model, int8=int8)


def load_model(
    folder: str | Path, device: str | torch.device = "cpu"
) -> Loaded:
    """Read a model and its tokenizer from a folder.

    Args:
        folder: as :func:`save_model` or a run wrote it.
        device: where the model goes.

    Returns:
        The model, in evaluation mode, and its tokenizer (or None).

    Raises:
        ValueError: if a file is missing, damaged, or does not fit the
            others.
    """
    folder = Path(folder)
    fields = read_config(folder)
    path = folder / "model.safetensors"
    model = filled(lambda: build_model(fields, folder), read_weights, path)
    tokenizer = None
    if (folder / "tokenizer.json").exists():
        tokenizer = read_tokenizer(folder, fields)
        check_vocabulary(model, tokenizer, folder)
    return Loaded(_move(model, device).eval(), tokenizer)


def filled(
    build: Callable[[], nn.Module],
    read: Callable[[Path], dict[str, Tensor]],
    path: Path,
) -> nn.Module:
    """Build a model and fill it with weights from a file, if they fit.

    That is seen before any memory is taken: a damaged configuration may ask
    for more than there is.

    Raises:
        ValueError: if they don't fit, or are not finite.
    """
    with shapes_only():
        shapes = build()
    tensors = read(path)
    check_weights(shapes, tensors, path)
    with torch.random.fork_rng(devices=[]):  # loading uses no chance
        model = build()
    put_weights(model, tensors, path)
    return model


def read_tokenizer(folder: Path, fields: dict[str, Any]) -> Tokenizer:
    """Read a folder's tokenizer, which must be the one saved with the model.

    Raises:
        ValueError: if its file is damaged, or another; folders of earlier
            releases don't say which it was.
    """
    path = folder / "tokenizer.json"
    tokenizer = load_tokenizer(path)
    if fields.get("tokenizer", hash_of(path)) != hash_of(path):
        raise ValueError(
            "a model is loaded with the tokenizer that it was saved with: "
            f"got another in {path}. Restore the file, or save both again."
        )
    return tokenizer


def hash_of(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits.

    Raises:
        OSError: if it can't be read.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _move(model: nn.Module, device: str | torch.device) -> nn.Module:
    """Move a model to a device.

    Raises:
        ValueError: if this machine has no such device.
    """
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"the device must be one that this machine has: got {device!s} "
            f"({str(error).splitlines()[0]}). Use cpu, or see coursekit info."
        ) from error


def check_vocabulary(
    model: Any, tokenizer: Tokenizer, origin: str | Path
) -> None:
    """Refuse a tokenizer that is not the model's.

    Raises:
        ValueError: if the numbers of tokens differ.
    """
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            "tokenizer and model must know the same tokens: got "
            f"{tokenizer.vocab_size} in the tokenizer, "
            f"{model.config.vocab_size} in the model ({origin}). Use the "
            "tokenizer the model was trained with."
        )


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read a folder's ``config.json``.

    Raises:
        ValueError: if it is missing, damaged, or of another format.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(
            "a run is a folder with a config.json: got "
            f"{str(folder)!r}, which has none. Check the path, or train it "
            "first: coursekit train --out FOLDER."
        )
    try:
        fields = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"a configuration must be whole JSON: got {path} ({error}). "
            "It was damaged; take a copy, or train again."
        ) from error
    number = fields.get("format") if isinstance(fields, dict) else None
    if type(number) is not int or number != FORMAT:  # True is 1
        raise ValueError(
            f"a configuration must have format {FORMAT}: got {path} with "
            "another. Was it written by another version or program?"
        )
    parts = ["config"] + ["train", "data"] * ("train" in fields)
    for part in parts:
        if not isinstance(fields.get(part), dict):
            raise ValueError(
                f"a configuration must hold {part!r}, by names: got "
                f"{str(fields.get(part))[:40]} in {path}. It was damaged; "
                "take a copy, or train again."
            )
    return fields


def load(name: str | Path, device: str | torch.device = "cpu") -> Loaded:
    """Load a trained model and its tokenizer.

    Args:
        name: of a model that the package ships, such as ``"running"``, a
            run's folder, or a zip of its files.
        device: where the model goes.

    Returns:
        ``(model, tokenizer)``, the model in evaluation mode.

    Raises:
        ValueError: if there is no such model, or it is damaged.

    Chapter: 11, training.
    """
    path = Path(name)
    if not is_zip(path):
        return load_model(find_model(name), device)
    with TemporaryDirectory() as folder:
        try:
            with ZipFile(path) as file:
                expected = NEEDED | {"tokenizer.json"} & {*file.namelist()}
                file.extractall(folder, sorted(expected))
        except ZIP_ERRORS as error:
            raise ValueError(
                f"a zip must be complete, and have no password: got {path} "
                f"({error}). Save it again."
            ) from error
        return load_model(folder, device)


def is_zip(path: str | Path) -> bool:
    """True if a model's files are in a zip."""
    return Path(path).suffix == ".zip" and Path(path).is_file()


def find_model(name: str | Path) -> Path:
    """The folder of a run, or of a model that the package ships.

    Raises:
        ValueError: if there is neither, or there are both.

    Chapter: 11, training.
    """
    is_here = Path(name).is_dir()
    if is_packaged(name, shipped(), is_here):
        return SHIPPED / name
    if is_here:
        return Path(name)
    raise ValueError(
        "a model must be a run's folder or one that the package ships "
        f"({', '.join(shipped())}): got {str(name)!r}. Check the path, or "
        "train it: coursekit train --out FOLDER. Models that may not be used "
        "commercially come with the project's repository, not from PyPI."
    )


def shipped() -> list[str]:
    """Names of the models in the package.

    Chapter: 11, training.
    """
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))
