"""Saving, so that nothing is lost and nothing strange is loaded.

Files are safetensors and JSON: numbers and text.  A pickle can run any code
when it is opened, so none ever is.  Each file is written beside the old one
and then takes its name in one go, so that at every moment, also that of a
kill or of a full disk, the folder holds one whole version of it.

A run's folder::

    config.json             the model's class, all settings, the text's hash
    tokenizer.json          the vocabulary
    checkpoint.safetensors  all that is needed to go on
    model.safetensors       the weights with the lowest validation loss

A model that is done may be stored in a quarter of the bytes: each matrix as
whole numbers from −127 to 127, with one float32 step for each of its rows.
What is loaded then *is* the model: round it first, and measure that.
"""

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save
from torch import Tensor, nn

from coursekit.config import (
    Config,
    EncoderConfig,
    GPTConfig,
    SpeechConfig,
    TransformerConfig,
    VisionConfig,
)
from coursekit.fast import Packed
from coursekit.tokenizer import Tokenizer, load_tokenizer, write_atomically
from coursekit.train_config import TrainConfig
from coursekit.training import (
    Progress,
    TrainingDiverged,
    TrainState,
)

__all__ = [
    "Loaded",
    "SaveError",
    "Saver",
    "average_weights",
    "build_model",
    "check_vocabulary",
    "create_run",
    "find_model",
    "load",
    "load_checkpoint",
    "load_model",
    "put_weights",
    "read_config",
    "read_tensors",
    "read_weights",
    "round_weights",
    "save_checkpoint",
    "save_model",
    "save_weights",
    "shipped",
    "write_tensors",
]

MODELS: dict[str, tuple[str, type[Config]]] = {
    "GPT": ("coursekit.decoder", GPTConfig),
    "Encoder": ("coursekit.encoder", EncoderConfig),
    "Transformer": ("coursekit.seq2seq", TransformerConfig),
    "SpeechTransformer": ("coursekit.pretrained.whisper", SpeechConfig),
    "ViT": ("coursekit.vision", VisionConfig),
}
"""A model's class: its module, imported when it is built, and its settings."""
FORMAT = 1
SHIPPED = Path(__file__).parent / "assets" / "models"
PICKLES = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"}


class SaveError(ValueError):
    """A file could not be written; the one that was there is intact."""


class Loaded(NamedTuple):
    """A model and the tokenizer of its text, if it has one."""

    model: Any
    tokenizer: Any


# -- files -------------------------------------------------------------------


@contextmanager
def saving(path: str | Path) -> Iterator[None]:
    """Say what to do when a file or folder can't be written.

    Raises:
        SaveError: for each OSError.
    """
    try:
        yield
    except OSError as error:
        raise SaveError(
            f"there must be room and leave to write: got {error.strerror!r} "
            f"for {path}. What was there before is intact; make room or "
            "choose another folder, then go on."
        ) from error


def write_tensors(
    path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]
) -> None:
    """Write tensors and JSON as one safetensors file, with a checksum.

    Args:
        path: the file.
        tensors: by name.
        about: what JSON can hold; floats come back bit by bit.

    Raises:
        SaveError: if it can't be written; the old file is intact.
    """
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in tensors.items()
    }
    # One entry only: safetensors writes several in any order, and equal runs
    # should give equal files.
    head = {"sha256": _checksum(tensors, about), "about": about}
    metadata = {"coursekit": json.dumps(head)}
    with saving(path):
        write_atomically(path, save(tensors, metadata))


def read_tensors(
    path: str | Path,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote.

    Returns:
        The tensors by name, and the JSON.

    Raises:
        ValueError: if the file is missing, a pickle, cut short, damaged, or
            not written by this package.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"a checkpoint must be a file: got {path}, which does not exist. "
            "Check the path, or train first."
        )
    data = path.read_bytes()
    if path.suffix in PICKLES or _is_pickle(data):
        raise ValueError(
            "a checkpoint must be a safetensors file: got a pickle, "
            f"{path}. Opening one can run any code, so this never does; "
            "ask its author for safetensors."
        )
    try:
        tensors = unpack(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
        head = json.loads(metadata.get("coursekit", "{}"))
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"a checkpoint must be a whole safetensors file: got {len(data)} "
            f"bytes in {path} that are not ({error}). It was cut short or "
            "damaged; take a copy, or train again."
        ) from error
    about = head.get("about", {})
    if head.get("sha256") != _checksum(tensors, about):
        raise ValueError(
            "a checkpoint must have the checksum that was written with it: "
            f"got another in {path}. It is damaged, or not from this "
            "package; take a copy, or train again."
        )
    return tensors, about


def _is_pickle(data: bytes) -> bool:
    """Whether it begins as a zip archive of pickles, or as a bare one.

    A safetensors file begins with the length of its JSON, which may be the
    same bytes; but then comes the JSON.
    """
    if data[8:9] == b"{":
        return False
    return data[:1] == b"\x80" or data[:2] == b"PK"


def _checksum(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """SHA-256 of the JSON and of each tensor with its name."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for name in sorted(tensors):
        tensor = tensors[name].reshape(-1)
        digest.update(f"{name} {tensor.dtype} {tensors[name].shape}".encode())
        digest.update(tensor.view(torch.uint8).numpy().data)
    return digest.hexdigest()


# -- models ------------------------------------------------------------------


def own_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name; a shared one under its first name."""
    seen: set[int] = set()
    kept = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            kept[name] = tensor
    return kept


def not_finite(tensors: dict[str, Tensor]) -> str:
    """The name of the first tensor that holds NaN or infinity, or ""."""
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        # NaN is passed on; isfinite on each entry takes 40 times as long.
        if not torch.stack(tensor.detach().aminmax()).isfinite().all():
            return name
    return ""


def put_weights(
    model: nn.Module, tensors: dict[str, Tensor], origin: str | Path
) -> None:
    """Copy tensors into a model, if they fit and are finite.

    Args:
        model: that gets them, in its own dtype and on its own device.
        tensors: by name.
        origin: where they come from, for the message.

    Raises:
        ValueError: if a name is missing or unknown, a shape differs, or a
            weight is not finite; the model is then as it was.
    """
    own = own_weights(model)
    wrong = [f"{name} is missing" for name in sorted(own.keys() - tensors)]
    wrong += [f"{name} is unknown" for name in sorted(tensors.keys() - own)]
    wrong += [
        f"{name} has shape {tuple(tensors[name].shape)}, "
        f"the model {tuple(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if tensors[name].shape != own[name].shape
    ]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ValueError(
            "weights must fit the model that its configuration builds: got "
            f"{'; '.join(wrong[:3])}{more} in {origin}. Load them with the "
            "configuration and the vocabulary they were trained with."
        )
    if bad := not_finite(tensors):
        raise ValueError(
            f"weights must be finite numbers: got NaN or infinity in {bad} "
            f"in {origin}. The training that made them diverged; take an "
            "earlier checkpoint, or train again at a lower learning rate."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def finite_weights(model: nn.Module, when: str = "") -> dict[str, Tensor]:
    """The model's tensors, as :func:`own_weights`, worth writing to a file.

    Attention's fused kernel can hide a weight that is NaN, so that a loss
    is finite all the same: each weight is looked at before it is saved.

    Args:
        model: to be saved.
        when: words such as ``" after step 4"``, for the message.

    Raises:
        TrainingDiverged: if a weight is not finite.
    """
    tensors = own_weights(model)
    if bad := not_finite(tensors):
        raise TrainingDiverged(
            "weights must be finite numbers to be saved: got NaN or infinity "
            f"in {bad}{when}. No file was changed; go back to the last good "
            "checkpoint and lower the learning rate."
        )
    return tensors


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
    model: nn.Module = getattr(importlib.import_module(module), name)(
        config.from_dict(fields.get("config", {}))
    )
    return model


def describe(model: Any) -> dict[str, Any]:
    """What ``config.json`` says of a model."""
    name = type(model).__name__
    if isinstance(model, Packed):
        raise ValueError(
            f"a model is saved as it was built: got a {name}, which "
            "lacks most weights. Save the model that was packed."
        )
    if name not in MODELS:
        raise ValueError(
            f"only {', '.join(MODELS)} can be saved: got {name}. Save your "
            "own model's state_dict with safetensors."
        )
    return {
        "format": FORMAT,
        "model": name,
        "config": model.config.to_dict(),
    }


def save_weights(
    path: str | Path,
    model: nn.Module,
    about: dict[str, Any] | None = None,
    int8: bool = False,
) -> None:
    """Write a model's weights alone.

    Args:
        path: the file.
        model: its weights are written; a shared one once.
        about: what else to note, as JSON.
        int8: store matrices as :func:`round_weights` says.

    Raises:
        SaveError: if they can't be written; the old file is intact.
        TrainingDiverged: if a weight is not finite; the old file is
            intact.

    Chapter: 14, encoder and decoder together.
    """
    tensors = finite_weights(model)
    write_tensors(path, to_int8(tensors) if int8 else tensors, about or {})


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read what :func:`save_weights` wrote, with or without int8.

    Returns:
        The tensors by name; matrices stored as int8 are float32 again.

    Raises:
        ValueError: as :func:`read_tensors`.

    Chapter: 14, encoder and decoder together.
    """
    return from_int8(read_tensors(path)[0])


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
        ValueError: if tokenizer and model don't fit.

    Chapter: 14, encoder and decoder together.
    Test: tests/test_checkpoint.py::test_a_rounded_model_is_what_is_loaded
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
    with torch.random.fork_rng(devices=[]):  # loading uses no chance
        model = build_model(fields, folder)
    tokenizer = None
    if (folder / "tokenizer.json").exists():
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        check_vocabulary(model, tokenizer, folder)
    path = folder / "model.safetensors"
    put_weights(model, read_weights(path), path)
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"the device must be one that this machine has: got {device!s} "
            f"({str(error).splitlines()[0]}). Use cpu, or see coursekit info."
        ) from error
    return Loaded(model.eval(), tokenizer)


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
        fields = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"a configuration must be whole JSON: got {path} ({error}). "
            "It was damaged; take a copy, or train again."
        ) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
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
        name: of a model that the package ships, such as ``"running"``, or a
            run's folder.
        device: where the model goes.

    Returns:
        ``(model, tokenizer)``, the model in evaluation mode.

    Raises:
        ValueError: if there is no such model, or it is damaged.

    Chapter: 11, training.
    """
    return load_model(find_model(name), device)


def find_model(name: str | Path) -> Path:
    """The folder of a run, or of a model that the package ships.

    Raises:
        ValueError: if there is neither.

    Chapter: 11, training.
    """
    if str(name) in shipped():
        return SHIPPED / name
    if Path(name).is_dir():
        return Path(name)
    raise ValueError(
        "a model must be a run's folder or one that the package ships "
        f"({', '.join(shipped()) or 'none yet'}): got {str(name)!r}. Check "
        "the path, or train it first: coursekit train --out FOLDER."
    )


def shipped() -> list[str]:
    """Names of the models in the package.

    Chapter: 11, training.
    """
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


# -- the mean of several -----------------------------------------------------


def average_weights(
    versions: Sequence[dict[str, Tensor]],
) -> dict[str, Tensor]:
    """Take the mean of each weight over several states of one run.

    Late states of a run differ mostly by the noise of their last batches;
    the mean has less of it.

    Args:
        versions: weights by name, as :func:`read_weights` gives them.

    Returns:
        The means, by the same names.

    Raises:
        ValueError: if there are no versions, or they do not have the same
            names and shapes.

    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, section 6.1.
    Test: tests/test_checkpoint.py::test_the_mean_of_states
    """
    shapes = [{n: tuple(t.shape) for n, t in v.items()} for v in versions]
    if not versions or any(each != shapes[0] for each in shapes):
        raise ValueError(
            "averaging needs states of one model, at least one: got "
            f"{len(versions)}"
            f"{' of different names or shapes' if versions else ''}. Take "
            "checkpoints of one run."
        )
    return {
        name: torch.stack([v[name].float() for v in versions]).mean(0)
        for name in versions[0]
    }


# -- int8 --------------------------------------------------------------------

SCALE = ".scale"  # behind a matrix's name: the name of its rows' steps


def round_weights(model: nn.Module) -> None:
    """Round a model, in place, to what a file of int8 can hold.

    ``w ← s · round(w / s)``, a step s for each row, the largest entry of
    the row being 127 steps.  Measure a model after this: then each number
    is one of the model that others load.

    Args:
        model: float32; its matrices (2 axes or more; a row is all that has
            one index on the first) are rounded, vectors stay.

    Raises:
        ValueError: if a weight is not finite.

    Chapter: 14, encoder and decoder together.
    Test: tests/test_checkpoint.py::test_the_error_is_half_a_step_at_most
    """
    own = own_weights(model)
    if bad := not_finite(own):
        raise ValueError(
            "weights must be finite numbers to be rounded: got NaN or "
            f"infinity in {bad}. Go back to the last good checkpoint."
        )
    put_weights(model, from_int8(to_int8(own)), "the rounded model")


def to_int8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each matrix as int8 with its steps; all else, finite, as it is."""
    packed = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2 or not tensor.is_floating_point():
            packed[name] = tensor
            continue
        rows = tensor.detach().float().flatten(1)
        steps = row_steps(rows)
        whole = (rows / steps[:, None]).round().to(torch.int8)
        packed[name] = whole.view(tensor.shape)
        packed[name + SCALE] = steps
    return packed


def row_steps(rows: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    """The step of each row: a 127th of its largest entry.

    A rounded row has the same step, to the last bit: in float32
    ``(127 · (x / 127)) / 127 = x / 127`` for every x, though
    ``127 · (x / 127)`` is not always x.

    Args:
        rows: (N, K) finite numbers.

    Returns:
        (N,) steps, above 0 also for a row of zeros.

    Test: tests/test_checkpoint.py::test_a_127th_is_the_same_again
    """
    return rows.abs().amax(dim=1).clamp(min=2.0**-100) / 127


def from_int8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo :func:`to_int8`; tensors without int8 stay as they are.

    Raises:
        ValueError: if the steps of a matrix are missing.
    """
    restored = dict(tensors)
    for name, whole in tensors.items():
        if whole.dtype != torch.int8:
            continue
        if name + SCALE not in tensors:
            raise ValueError(
                "a matrix of int8 needs a step for each row: got none for "
                f"{name}. Write it with save_model(..., int8=True)."
            )
        steps = restored.pop(name + SCALE)
        rows = whole.flatten(1).float() * steps[:, None]
        restored[name] = rows.view(whole.shape)
    return restored


# -- runs --------------------------------------------------------------------


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
        ValueError: if tokenizer and model don't fit.
    """
    folder = Path(folder)
    fields = describe(model)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, folder)
    if train is not None:
        fields |= {"train": train.to_dict(), "data": data or {}}
    with saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if tokenizer is not None:
            tokenizer.save(folder / "tokenizer.json")
        text = json.dumps(fields, indent=2) + "\n"
        write_atomically(folder / "config.json", text)


def save_checkpoint(
    path: str | Path, model: nn.Module, state: TrainState
) -> None:
    """Write all that a run needs to go on, as one file.

    Args:
        path: the file.
        model: its weights are written.
        state: optimizer, step, losses, history.

    Raises:
        SaveError: if it can't be written; the old file is intact.
        TrainingDiverged: if a weight is not finite; the old file is
            intact.

    Chapter: 11, training.
    """
    weights = finite_weights(model, f" after step {state.step}")
    tensors = {f"weights/{n}": t for n, t in weights.items()}
    for name, values in _optimizer_state(model, state.optimizer).items():
        for key, value in values.items():
            tensors[f"optimizer/{key}/{name}"] = value
    # As float64, losses come back bit by bit.
    tensors["losses"] = torch.tensor(state.losses, dtype=torch.float64)
    about = {
        "optimizer": type(state.optimizer).__name__,
        "step": state.step,
        "tokens": state.tokens,
        "best": state.best,
        "history": state.history,
    }
    write_tensors(path, tensors, about)


def load_checkpoint(
    path: str | Path, model: nn.Module, state: TrainState
) -> None:
    """Put a run back to where :func:`save_checkpoint` saw it.

    Args:
        path: the file.
        model: built from the same configuration; gets the weights.
        state: a new one for this model; gets all the rest.

    Raises:
        ValueError: if the file is damaged or does not fit the model.

    Chapter: 11, training.
    """
    tensors, about = read_tensors(path)
    optimizer = state.optimizer
    packed = optimizer.state_dict()
    names = _names(model, optimizer)
    kept = {key.split("/", 1)[1] for key in _below("optimizer/", tensors)}
    kind = type(optimizer).__name__
    by = about.get("optimizer", kind)  # files from before it was noted
    idle = kept & own_weights(model).keys() - set(names)
    if by != kind or idle:
        other = ", ".join(sorted(idle)[:3]) or "none"
        raise ValueError(
            "a run goes on with the optimizer that began it: got a file of "
            f"{by} for {kind}, and weights that it does not train: {other}, "
            f"in {path}. Build the state from the run's configuration."
        )
    put_weights(model, _below("weights/", tensors), path)
    saved: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _below("optimizer/", tensors).items():
        what, name = key.split("/", 1)
        # A copy of its own, aligned as torch likes it.
        saved.setdefault(names.index(name), {})[what] = tensor.clone()
    packed["state"] = saved
    optimizer.load_state_dict(packed)
    state.losses = tensors["losses"].tolist()
    state.step, state.tokens = about["step"], about["tokens"]
    state.best, state.history = about["best"], about["history"]


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    n = len(prefix)
    return {k[n:]: v for k, v in tensors.items() if k.startswith(prefix)}


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The weights' names, in the optimizer's order."""
    names = {id(p): name for name, p in model.named_parameters()}
    groups = optimizer.param_groups
    return [names[id(p)] for group in groups for p in group["params"]]


def _optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, dict[str, Tensor]]:
    """What the optimizer keeps of each weight, by the weight's name."""
    names = _names(model, optimizer)
    packed = optimizer.state_dict()["state"]
    return {names[index]: values for index, values in packed.items()}


class Saver:
    """A callback that keeps a run's folder up to date.

    Args:
        folder: the run's.
        model: in training.
        state: of the same training.
        every: updates between two checkpoints.
    """

    def __init__(
        self,
        folder: str | Path,
        model: nn.Module,
        state: TrainState,
        every: int,
    ) -> None:
        self.folder = Path(folder)
        self.model, self.state, self.every = model, state, every
        for left_over in self.folder.glob("*.part"):
            left_over.unlink(missing_ok=True)  # of a run that was killed

    def is_due(self, progress: Progress) -> bool:
        """Whether it is time for a checkpoint."""
        return progress.is_last or progress.step % self.every == 0

    def __call__(self, progress: Progress) -> None:
        """Keep the best weights, and a checkpoint when it is due.

        Raises:
            SaveError, TrainingDiverged: as :func:`save_checkpoint`.
        """
        if progress.is_best:
            self.save_best()
        if self.is_due(progress):
            self.save()

    def save(self) -> None:
        """Write a checkpoint now."""
        if self.state.best is None:  # no validation: the latest is the best
            self.save_best()
        path = self.folder / "checkpoint.safetensors"
        save_checkpoint(path, self.model, self.state)

    def save_best(self) -> None:
        """Write the weights alone, for all who use the model.

        Raises:
            SaveError, TrainingDiverged: as :func:`save_weights`.
        """
        about = {"step": self.state.step, "validation_loss": self.state.best}
        save_weights(self.folder / "model.safetensors", self.model, about)
