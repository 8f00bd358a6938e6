"""Saving a training run, so that nothing is lost.

At every moment, also that of a kill or of a full disk, a run's folder holds
one whole version of each file::

    config.json             the model's class, all settings, the text's hash
    tokenizer.json          the vocabulary
    checkpoint.safetensors  all that is needed to go on
    model.safetensors       the weights with the lowest validation loss
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.training import Progress, TrainState
from coursekit.weights import (
    finite_weights,
    own_weights,
    put_weights,
    read_tensors,
    save_weights,
    write_tensors,
)

__all__ = ["Saver", "load_checkpoint", "save_checkpoint"]


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
    try:
        _put_back(path, tensors, about, model, state)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            "a checkpoint must hold what a run needs to go on: got none of "
            f"that in {path} ({type(error).__name__}: {error}). Give a "
            "run's checkpoint.safetensors."
        ) from error


def _put_back(
    path: str | Path,
    tensors: dict[str, Tensor],
    about: dict[str, Any],
    model: nn.Module,
    state: TrainState,
) -> None:
    """Give a model and its state what a checkpoint holds."""
    optimizer = state.optimizer
    names = _names(model, optimizer)
    saved: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _below("optimizer/", tensors).items():
        what, name = key.split("/", 1)
        # A copy of its own, aligned as torch likes it.
        saved.setdefault(name, {})[what] = tensor.clone()
    kind = type(optimizer).__name__
    by = about.get("optimizer", kind)  # files from before it was noted
    idle = saved.keys() & own_weights(model).keys() - set(names)
    if by != kind or idle:
        other = ", ".join(sorted(idle)[:3]) or "none"
        raise ValueError(
            "a run goes on with the optimizer that began it: got a file of "
            f"{by} for {kind}, and weights that it does not train: {other}, "
            f"in {path}. Build the state from the run's configuration."
        )
    put_weights(model, _below("weights/", tensors), path)
    state_dict = optimizer.state_dict()
    index = {name: i for i, name in enumerate(names)}
    state_dict["state"] = {index[n]: x for n, x in saved.items()}
    optimizer.load_state_dict(state_dict)
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
