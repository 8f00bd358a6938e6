"""Weights: as files, in a model, rounded, averaged.

Files are safetensors: numbers and text.  A pickle can run any code when it is
opened, so none ever is.  Each file is written beside the old one and then
takes its name in one go.

A model that is done may be stored in a quarter of the bytes: each matrix as
whole numbers from −127 to 127, with one float32 step for each of its rows.
What is loaded then *is* the model: round it first, and measure that.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor, nn

from coursekit.checks import TrainingDiverged, not_finite
from coursekit.files import parse_json, write_atomically

PICKLES = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"}


class SaveError(ValueError):
    """A file could not be written; the one that was there is intact."""


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
        ValueError: if the path ends as a pickle's does.
        SaveError: if it can't be written; the old file is intact.
    """
    if Path(path).suffix in PICKLES:
        raise ValueError(
            "a checkpoint must have a name that no pickle has: got "
            f"{path}, which would not be read. Call it .safetensors."
        )
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


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote.

    Returns:
        The tensors by name, and the JSON.

    Raises:
        ValueError: if the file is missing, a pickle, cut short, damaged, or
            not written by this package.
    """
    data = _read_file(Path(path))
    try:
        tensors = load_tensors(data)
        checksum, about = _head(data)
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"a checkpoint must be a whole safetensors file: got {len(data)} "
            f"bytes in {path} that are not ({error}). It was cut short or "
            "damaged; take a copy, or train again."
        ) from error
    if checksum != _checksum(tensors, about):
        raise ValueError(
            "a checkpoint must have the checksum that was written with it: "
            f"got another in {path}. It is damaged, or not from this "
            "package; take a copy, or train again."
        )
    return tensors, about


def _read_file(path: Path) -> bytes:
    """The bytes of a file that is there and no pickle."""
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
    return data


def _head(data: bytes) -> tuple[str | None, dict[str, Any]]:
    """The checksum and the JSON that this package notes in a file's head."""
    size = int.from_bytes(data[:8], "little")
    metadata = parse_json(data[8 : 8 + size]).get("__metadata__", {})
    head = parse_json(metadata.get("coursekit", "{}"))
    about = head.get("about", {}) if isinstance(head, dict) else None
    if not isinstance(about, dict):
        raise ValueError("it does not say by names what it holds")
    return head.get("sha256"), about


def _is_pickle(data: bytes) -> bool:
    """True if a file begins like a pickle, bare or in a zip archive.

    A safetensors file begins with the length of its JSON, which may be the
    same bytes; but then comes the JSON.
    """
    if len(data) <= 8 or data[8:9] == b"{":
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


# -- in a model --------------------------------------------------------------


WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
}
"""PyTorch's wrappers, each with its attribute that holds the model."""


def own_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name; a shared one under its first name.

    Raises:
        ValueError: if something is around the model: all names would have a
            prefix, and fit no model.
    """
    kind = type(model).__name__
    if kind in WRAPPERS and type(model).__module__.startswith("torch."):
        raise ValueError(
            "weights are those of the model itself: got it compiled or "
            f"wrapped, a {kind}. Give the model that was compiled or "
            f"wrapped, as model.{WRAPPERS[kind]}."
        )
    first: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tensor))
    return dict(first.values())


def put_weights(
    model: nn.Module, tensors: dict[str, Tensor], origin: str | Path
) -> None:
    """Copy tensors into a model, if they fit and are finite.

    Args:
        model: that gets them, in its own dtype and on its own device.
        tensors: by name.
        origin: where they come from, for the message.

    Raises:
        ValueError: as :func:`check_weights`; the model is then as it was.
    """
    check_weights(model, tensors, origin)
    own = own_weights(model)
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def check_weights(
    model: nn.Module, tensors: dict[str, Tensor], origin: str | Path
) -> None:
    """Refuse tensors that are not a model's weights.

    Args:
        model: whose weights they are to be; it may be on the device "meta".
        tensors: by name.
        origin: where they come from, for the message.

    Raises:
        ValueError: if a name is missing or unknown, a shape differs, or a
            weight is not finite, or of whole numbers.
    """
    own = own_weights(model)
    wrong = [f"{name} is missing" for name in sorted(own.keys() - tensors)]
    wrong += [f"{name} is unknown" for name in sorted(tensors.keys() - own)]
    wrong += [
        f"{name} has shape {tuple(tensors[name].shape)}, "
        f"the model {tuple(own[name].shape)}"
        for name in sorted(own.keys() & tensors)
        if tensors[name].shape != own[name].shape
    ]
    wrong += [
        f"{name} is of {tensors[name].dtype}, the model's of {own[name].dtype}"
        for name in sorted(own.keys() & tensors)
        if tensors[name].is_floating_point() != own[name].is_floating_point()
    ]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ValueError(
            "weights must fit the model that its configuration builds: got "
            f"{'; '.join(wrong[:3])}{more} in {origin}. Load them with the "
            "configuration and the vocabulary they were trained with."
        )
    check_finite(tensors, origin)


def check_finite(tensors: dict[str, Tensor], origin: str | Path) -> None:
    """Refuse tensors that hold NaN or infinity.

    Raises:
        ValueError: with the name of the first.
    """
    if bad := not_finite(tensors):
        raise ValueError(
            f"weights must be finite numbers: got NaN or infinity in {bad} "
            f"in {origin}. The training that made them diverged; take an "
            "earlier checkpoint, or train again at a lower learning rate."
        )


def finite_weights(model: nn.Module, when: str = "") -> dict[str, Tensor]:
    """The model's tensors, as :func:`own_weights`, worth writing to a file.

    Attention's fused kernel can hide a weight that is NaN, so that the logits
    are finite all the same: each weight is looked at before it is saved.

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
        The means, by the same names, in the dtype of the first state; they
        are taken in float32 at least.

    Raises:
        ValueError: if there are no versions, or they do not have the same
            names and shapes.

    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, section 6.1.
    Test: test_checkpoint.py::test_the_mean_of_states
    """
    shapes = [{n: tuple(t.shape) for n, t in v.items()} for v in versions]
    if not versions or any(each != shapes[0] for each in shapes):
        raise ValueError(
            "averaging needs states of one model, at least one: got "
            f"{len(versions)}"
            f"{' of different names or shapes' if versions else ''}. Take "
            "checkpoints of one run."
        )
    means = {}
    for name, first in versions[0].items():
        exact = torch.promote_types(first.dtype, torch.float32)
        states = torch.stack([v[name].to(exact) for v in versions])
        means[name] = states.mean(0).to(first.dtype)
    return means


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
        TrainingDiverged: if a weight is not finite.

    Chapter: 14, encoder and decoder together.
    Test: test_checkpoint.py::test_the_error_is_half_a_step_at_most
    """
    own = finite_weights(model, " before it was rounded")
    put_weights(model, from_int8(to_int8(own)), "the rounded model")


def to_int8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each matrix as int8 with its steps; all else, finite, as it is."""
    stored = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2 or not tensor.is_floating_point():
            stored[name] = tensor
            continue
        rows = tensor.detach().float().flatten(1)
        steps = row_steps(rows)
        whole = (rows / steps[:, None]).round().to(torch.int8)
        stored[name] = whole.view(tensor.shape)
        stored[name + SCALE] = steps
    return stored


def row_steps(
    rows: Float[Tensor, "N K"], levels: int = 127
) -> Float[Tensor, "N"]:
    """The step of each row: a 127th of its largest entry.

    A rounded row has the same step, to the last bit: in float32
    ``(127 · (x / 127)) / 127 = x / 127`` for every x, though
    ``127 · (x / 127)`` is not always x.

    Args:
        rows: (N, K) finite numbers.
        levels: how many steps the largest entry is; 127 for eight bits.

    Returns:
        (N,) steps, above 0 also for a row of zeros.

    Test: test_checkpoint.py::test_a_127th_is_the_same_again
    """
    return rows.abs().amax(dim=1).clamp(min=2.0**-100) / levels


def from_int8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo :func:`to_int8`; tensors without int8 stay as they are.

    Raises:
        ValueError: if what is int8 is no matrix, or has not a step for each
            row.
    """
    restored = dict(tensors)
    for name, whole in tensors.items():
        if whole.dtype != torch.int8:
            continue
        steps = restored.pop(name + SCALE, torch.empty(0))
        if whole.dim() < 2 or steps.shape != whole.shape[:1]:
            raise ValueError(
                "a matrix of int8 needs a step for each row: got "
                f"{steps.numel() or 'none'} for {name}, {tuple(whole.shape)}. "
                "Write it with save_model(..., int8=True)."
            )
        rows = whole.flatten(1).float() * steps[:, None]
        restored[name] = rows.view(whole.shape)
    return restored
