"""Saving a training run, so that nothing is lost.

At every moment, also that of a kill or of a full disk, a run's folder holds
one whole version of each file::

    config.json             the model's class, all settings, the text's hash
    tokenizer.json          the vocabulary
    checkpoint.safetensors  all that is needed to go on
    model.safetensors       the weights with the lowest validation loss
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.checks import is_number, not_finite
from coursekit.training import (
    SINGLE_PROCESS,
    ProcessGroup,
    Progress,
    TrainState,
)
from coursekit.weights import (
    check_weights,
    finite_weights,
    own_weights,
    put_weights,
    read_tensors,
    save_weights,
    write_tensors,
)


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
    names = _names(model, state.optimizer)
    for index, values in state.optimizer.state_dict()["state"].items():
        for key, value in values.items():
            tensors[f"optimizer/{key}/{names[index]}"] = value
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
    """Restore a run as :func:`save_checkpoint` saved it.

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
    weights = _below("weights/", tensors)
    wrong = _wrong_fields(about, ABOUT)
    if not wrong:
        _check_optimizer(tensors, about["optimizer"], model, optimizer, path)
        check_weights(model, weights, path)
        wrong = _wrong_tensors(tensors, about["step"], model, optimizer)
    if wrong:
        raise ValueError(
            f"a checkpoint must hold what a run needs to go on: got {wrong} "
            f"in {path}. Give a run's checkpoint.safetensors, or a copy of it."
        )
    index = {name: i for i, name in enumerate(_names(model, optimizer))}
    saved: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _below("optimizer/", tensors).items():
        moment, name = key.split("/", 1)
        # A copy of its own, aligned as torch likes it.
        saved.setdefault(index[name], {})[moment] = tensor.clone()
    put_weights(model, weights, path)
    optimizer.load_state_dict(optimizer.state_dict() | {"state": saved})
    state.losses = tensors["losses"].tolist()
    state.step, state.tokens = about["step"], about["tokens"]
    state.best, state.history = about["best"], about["history"]


def _check_optimizer(
    tensors: dict[str, Tensor],
    by: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    path: str | Path,
) -> None:
    """Refuse a file of another optimizer, or of one that trains more."""
    kind = type(optimizer).__name__
    saved = {key.partition("/")[2] for key in _below("optimizer/", tensors)}
    idle = saved & own_weights(model).keys() - {*_names(model, optimizer)}
    if by != kind or idle:
        other = ", ".join(sorted(idle)[:3]) or "none"
        raise ValueError(
            "a run goes on with the optimizer that began it: got a file of "
            f"{by} for {kind}, and weights that it does not train: {other}, "
            f"in {path}. Build the state from the run's configuration."
        )


# -- what PyTorch would not check, or only by a crash ------------------------
def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_finite(value: Any) -> bool:
    return is_number(value) and -math.inf < value < math.inf


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and not any(
        _wrong_fields(record, RECORD) for record in value
    )


Rules = dict[str, Callable[[Any], bool]]
RECORD: Rules = {
    "step": _is_count,
    "tokens": _is_count,
    "loss": _is_finite,
    "validation_loss": _is_finite,
    "learning_rate": _is_finite,
}
ABOUT: Rules = {
    "optimizer": lambda value: isinstance(value, str),
    "step": _is_count,
    "tokens": _is_count,
    "best": lambda value: value is None or _is_finite(value),
    "history": _is_history,
}


def _wrong_fields(fields: Any, rules: Rules) -> str:
    """The first field that is missing or of a wrong kind, or ""."""
    if not isinstance(fields, dict):
        return repr(fields)[:80]
    for name, is_right in rules.items():
        if name not in fields:
            return f"no {name}"
        if not is_right(fields[name]):
            return f"{name}={fields[name]!r}"[:80]
    return ""


def _wrong_tensors(
    tensors: dict[str, Tensor],
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> str:
    """The first tensor that is none of this run's at this step, or ""."""
    saved = _below("optimizer/", tensors)
    # The others never had a gradient.
    updated = {key.partition("/")[2] for key in saved}
    if step and not updated:
        return f"no moments at step {step}"
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "losses": ((step,), torch.float64)
    }
    for name, weight in own_weights(model).items():
        expected[f"weights/{name}"] = (tuple(weight.shape), weight.dtype)
    groups = [g for g in optimizer.param_groups for _ in g["params"]]
    for name, group in zip(_names(model, optimizer), groups, strict=True):
        if name in updated:
            kind = expected[f"weights/{name}"]
            moments = MUON if group.get("muon") else ADAMW
            expected |= {f"optimizer/{m}/{name}": kind for m in moments}
            expected[f"optimizer/step/{name}"] = ((), torch.float32)
    present = {name: (tuple(x.shape), x.dtype) for name, x in tensors.items()}
    for name in sorted(expected.keys() | present):
        if present.get(name) != expected.get(name):
            received = present.get(name, "nothing")
            return f"{received} as {name}, not {expected.get(name, 'nothing')}"
    bad = not_finite(tensors)
    return f"NaN or infinity in {bad}" if bad else ""


ADAMW = ("exp_avg", "exp_avg_sq")
MUON = ("momentum",)
"""State tensors of the two optimizers, each as large as its weight."""


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    n = len(prefix)
    return {k[n:]: v for k, v in tensors.items() if k.startswith(prefix)}


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The weights' names, in the optimizer's order."""
    names = {id(p): name for name, p in model.named_parameters()}
    groups = optimizer.param_groups
    return [names[id(p)] for group in groups for p in group["params"]]


class Saver:
    """A callback that keeps a run's folder up to date.

    Args:
        folder: the run's.
        model: in training.
        state: of the same training.
        every: updates between two checkpoints.
        group: of which this process is one; each has a saver, and the first
            writes the files that a single process would.
        collect: called in each process before the first one writes.
    """

    def __init__(
        self,
        folder: str | Path,
        model: nn.Module,
        state: TrainState,
        every: int,
        group: ProcessGroup = SINGLE_PROCESS,
        collect: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = Path(folder)
        self.model, self.state, self.every = model, state, every
        self.group, self.collect = group, collect
        if group.rank == 0:
            for left_over in self.folder.glob("*.part"):
                left_over.unlink(missing_ok=True)  # of a run that was killed

    def __call__(self, progress: Progress) -> None:
        """Keep the best weights, and a checkpoint when it is due.

        Raises:
            SaveError, TrainingDiverged: as :func:`save_checkpoint`.
        """
        is_due = progress.is_last or progress.step % self.every == 0
        if progress.is_best or is_due:
            self.save(progress.is_best, is_due)

    def save(self, best: bool = False, checkpoint: bool = True) -> None:
        """Write the weights alone, for all who use the model, or all of it.

        Args:
            best: write the weights, which are the best so far; the latest
                are as long as there was no validation.
            checkpoint: write a checkpoint.

        Raises:
            SaveError, TrainingDiverged: as :func:`save_checkpoint`.
        """
        self.collect()
        if self.group.rank:
            return
        loss = self.state.best
        if best or loss is None:
            about = {"step": self.state.step, "validation_loss": loss}
            path = self.folder / "model.safetensors"
            save_weights(path, self.model, about)
        if checkpoint:
            path = self.folder / "checkpoint.safetensors"
            save_checkpoint(path, self.model, self.state)
