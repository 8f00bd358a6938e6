"""Fine-tuning: a model that continues text learns to answer.

The loss and the loop are those of pretraining.  Other things change: the
texts, each a prompt with its answer; the targets, of which only the answer's
count; and, with LoRA, the parameters that are trained, a small matrix product
next to each weight matrix that stays as it is.
"""

import math
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit import saved_models
from coursekit.checks import is_integer, is_packaged, require
from coursekit.data import IGNORE, Batch, Pair, pad, read_lines
from coursekit.generation import generate
from coursekit.saved_models import Loaded, find_model, hash_of, load_model
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import Tokenizer
from coursekit.weights import check_finite, read_tensors, write_tensors

ATTENTION = ("w_q", "w_k", "w_v", "w_o")
"""The matrices of attention, by the names that they have in a block."""
MATRICES = (*ATTENTION, "w_in", "w_out")
"""All matrices of a block."""
SHIPPED = Path(__file__).parent / "assets" / "tuning"
"""Folder of the package's adapters and pairs."""


# -- prompts with answers ----------------------------------------------------
def read_pairs(name: str | Path) -> list[tuple[str, str]]:
    """Read prompts with their answers, a pair in each line.

    Args:
        name: a UTF-8 file whose lines are a prompt, a tab and an answer; or
            ``"story-questions"`` or ``"six-questions"``, which the package
            ships.

    Returns:
        The pairs, at least one.

    Raises:
        ValueError: if there is no such file, or a line has no two parts.

    Chapter: 20, fine-tuning.
    """
    lines = read_lines(_packaged(name, ".tsv"))
    pairs = [tuple(line.split("\t")) for line in lines]
    for n, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(part.strip() for part in pair):
            raise ValueError(
                "a line has a prompt, a tab and an answer: got "
                f"{len(pair)} parts in line {n} of {name}. Fix the line."
            )
    return [(prompt, answer) for prompt, answer in pairs]


def _packaged(name: str | Path, suffix: str) -> Path:
    """The path of what the package ships under a name, or of a file here."""
    names = [path.stem for path in SHIPPED.glob(f"*{suffix}")]
    if is_packaged(name, names, Path(name).is_file()):
        return SHIPPED / f"{name}{suffix}"
    return Path(name)


def encode_pair(tokenizer: Tokenizer, prompt: str, answer: str) -> Pair:
    """A prompt and its answer as ids; a new line ends the answer.

    Raises:
        ValueError: if the new line is no token, or a character is unknown.

    Chapter: 20, fine-tuning.
    """
    _end_id(tokenizer)
    return tokenizer.encode(prompt), tokenizer.encode(f" {answer}\n")


def answer_batch(
    pairs: Sequence[Pair], pad_id: int, prompts_too: bool = False
) -> Batch:
    """Make one batch of prompts with their answers.

    A row is prompt and answer, one after the other; the target of each token
    is the next one.  Only the tokens of the answer count as targets.

    Args:
        pairs: B pairs of id lists, neither of them empty; the answer ends
            with the token that is to end it.
        pad_id: fills up short rows on the right, where no counted position
            sees it; it may be a real token's id too.
        prompts_too: count the targets in the prompt as well.

    Returns:
        inputs ``ids`` (B, T) and targets (B, T), −100 where not counted.

    Raises:
        ValueError: if there are no pairs, or a prompt or an answer is empty.

    Chapter: 20, fine-tuning.
    Test: test_tuning.py::test_only_answers_are_targets
    """
    _check_pairs(pairs)
    ids = [[*prompt, *answer] for prompt, answer in pairs]
    targets = [
        row[1:] if prompts_too else [IGNORE] * (len(prompt) - 1) + [*answer]
        for row, (prompt, answer) in zip(ids, pairs, strict=True)
    ]
    inputs = pad([row[:-1] for row in ids], pad_id)
    return Batch({"ids": inputs}, pad(targets, IGNORE))


def _check_pairs(pairs: Sequence[Pair]) -> None:
    """Refuse what has nothing to read, or nothing to learn."""
    if not pairs or not all(prompt and answer for prompt, answer in pairs):
        raise ValueError(
            "a batch needs pairs of a prompt and an answer, one token each "
            f"at least: got {len(pairs)} pairs"
            f"{', one with an empty part' if pairs else ''}. Leave it out."
        )


def answers(
    model: Any,
    prompts: Sequence[Sequence[int]],
    end_id: int,
    max_new_tokens: int = 20,
) -> list[list[int]]:
    """The likeliest answers, token by token, each up to its end.

    Args:
        model: a GPT.
        prompts: B lists of ids.
        end_id: the token that ends an answer; it is not returned.
        max_new_tokens: where an answer without an end is cut off.

    Returns:
        B lists of ids.

    Chapter: 20, fine-tuning.
    """
    stepper = GPTStepper(model)
    return generate(stepper, prompts, max_new_tokens, stop_ids=[end_id])


def replies(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    max_new_tokens: int = 20,
) -> list[str]:
    """The likeliest answers as text, each up to the new line.

    Args:
        model: a GPT.
        tokenizer: its own; the new line is one token.
        prompts: B texts.
        max_new_tokens: where an answer without an end is cut off.

    Returns:
        B texts, without space around them.

    Chapter: 20, fine-tuning.
    """
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    generated = answers(model, ids, _end_id(tokenizer), max_new_tokens)
    return [tokenizer.decode(answer).strip() for answer in generated]


def _end_id(tokenizer: Tokenizer) -> int:
    """The id of the new line, which ends each answer."""
    try:
        [end_id] = tokenizer.encode("\n")
    except ValueError as error:
        raise ValueError(
            "a new line ends each answer, so it must be a token: got a "
            f"vocabulary of {tokenizer.vocab_size} tokens without it. Choose "
            "a model that was trained on a text with lines."
        ) from error
    return end_id


# -- low-rank updates --------------------------------------------------------
def lora(
    x: Float[Tensor, "*B I"],
    weight: Float[Tensor, "O I"],
    a: Float[Tensor, "R I"],
    b: Float[Tensor, "O R"],
    scale: float,
    bias: Float[Tensor, "O"] | None = None,
) -> Float[Tensor, "*B O"]:
    """A linear map with a low-rank update next to it.

    ``y = x Wᵀ + s (x Aᵀ) Bᵀ = x (W + s B A)ᵀ``, plus the bias, computed in
    the first form: the update goes through r numbers and is never built.

    Args:
        x: (..., I).
        weight: (O, I), as ``nn.Linear`` keeps it.
        a: (r, I), reads r numbers off x.
        b: (O, r), writes them into y.
        scale: s = α / r.
        bias: (O,), of the old layer.

    Returns:
        (..., O).

    Chapter: 20, fine-tuning.
    Source: hu2021lora, section 4.1.
    Test: test_tuning.py::test_equal_to_peft
    """
    update = F.linear(F.linear(x, a), b)
    return F.linear(x, weight, bias) + scale * update


class LoRA(nn.Module):
    """A linear layer that stays as it is, and the update that is trained.

    A is drawn at random and B is 0, so the layer begins as the old one.

    Args:
        linear: the trained layer; its parameters are frozen.
        rank: r, at least 1.
        alpha: the update is multiplied by α / r.

    Chapter: 20, fine-tuning.
    Source: hu2021lora, section 4.1.
    Test: test_tuning.py::test_equal_to_peft
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        weight = linear.weight
        n_out, n_in = weight.shape
        like: Any = {"device": weight.device, "dtype": weight.dtype}
        a = torch.randn(rank, n_in, **like) / math.sqrt(n_in)
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(torch.zeros(n_out, rank, **like))
        self.scale = alpha / rank

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        """The old layer's output plus the update's."""
        old = self.linear
        return lora(x, old.weight, self.a, self.b, self.scale, old.bias)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear layer with the weights ``W + s B A``."""
        self.linear.weight += self.scale * self.b @ self.a
        return self.linear


def add_lora(
    model: nn.Module,
    rank: int,
    alpha: float | None = None,
    layers: Collection[str] = MATRICES,
) -> nn.Module:
    """Freeze a model, and put an update next to some of its linear layers.

    Args:
        model: is changed in place.
        rank: r.
        alpha: α; by default 2 r, so that s is 2 at every rank.
        layers: last parts of the names of those that get one.

    Returns:
        The same model.

    Raises:
        ValueError: if the model has no such layer, or the rank is below 1.

    Chapter: 20, fine-tuning.
    Test: test_tuning.py::test_only_the_adapter_gets_gradients
    """
    if not is_integer(rank):
        raise ValueError(
            f"an update has a rank of at least 1: got {rank}. Without an "
            "update, leave the model as it is."
        )
    alpha = 2.0 * rank if alpha is None else alpha
    linears = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if name in layers and isinstance(child, nn.Linear)
    ]
    if not linears:
        raise ValueError(
            "an update goes next to linear layers of the model: got "
            f"{', '.join(layers)}, of which {type(model).__name__} has none. "
            "Take names from model.named_modules()."
        )
    model.requires_grad_(False)
    for parent, name, child in linears:
        setattr(parent, name, LoRA(child, rank, alpha))
    return model


def merge_lora(model: nn.Module) -> nn.Module:
    """Add each update to its matrix: a plain model that does the same.

    Args:
        model: is changed in place; all its parameters can be trained again.

    Returns:
        The same model.

    Chapter: 20, fine-tuning.
    Source: hu2021lora, section 4.1.
    Test: test_tuning.py::test_merged_is_adapted
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRA):
                setattr(parent, name, child.merged())
    return model.requires_grad_(True)


# -- adapters as files -------------------------------------------------------
def lora_weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors A and B of each update, by name.

    Chapter: 20, fine-tuning.
    """
    return {
        f"{name}.{part}": getattr(module, part).detach()
        for name, module in model.named_modules()
        if isinstance(module, LoRA)
        for part in ("a", "b")
    }


def put_lora(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors of :func:`lora_weights` into an adapted model.

    Raises:
        ValueError: if names or shapes are not those of its updates, or a
            number is not finite.
    """
    own = lora_weights(model)
    shapes, given_shapes = (
        {name: tuple(tensor.shape) for name, tensor in these.items()}
        for these in (own, tensors)
    )
    if shapes != given_shapes:
        wrong = sorted(shapes.items() ^ given_shapes.items())[0][0]
        raise ValueError(
            "an adapter must fit the updates of the model: got another name "
            f"or shape for {wrong}. Add updates of the same rank to the same "
            "layers."
        )
    check_finite(tensors, "the adapter")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def save_adapter(
    path: str | Path,
    model: nn.Module,
    base: str | Path,
    layers: Iterable[str],
) -> None:
    """Write the updates of a model alone, and what they belong to.

    Args:
        path: a file that ends in ``.safetensors``.
        model: with updates of one rank.
        base: the name or folder of the model that they were made for; a
            folder is remembered as seen from the file.
        layers: those that have an update.

    Raises:
        SaveError: if it can't be written.
        ValueError: if there is no update, or not all have one rank.

    Chapter: 20, fine-tuning.
    """
    updates = [m for m in model.modules() if isinstance(m, LoRA)]
    kinds = {(len(update.a), update.scale) for update in updates}
    require(
        len(kinds) == 1,
        "an adapter needs updates, all of one rank and scale",
        f"{len(updates)} updates of {len(kinds)} kinds",
        "Save it before merge_lora.",
    )
    [(rank, scale)] = kinds
    folder = find_model(base)
    if folder.parent == saved_models.SHIPPED:
        base = folder.name
    else:  # with a dot in front: the name of no shipped model
        near = os.path.relpath(folder.absolute(), Path(path).absolute().parent)
        base = os.path.join(".", near)
    about = {
        "base": base,
        "sha256": hash_of(folder / "model.safetensors"),
        "rank": rank,
        "alpha": scale * rank,
        "layers": [*layers],
    }
    write_tensors(path, lora_weights(model), about)


def _check_adapter(
    tensors: dict[str, Tensor], about: dict[str, Any], path: Path
) -> None:
    """Refuse a file that does not say what its tensors belong to."""
    base, sha256, rank, alpha, layers = (
        about.get(name)
        for name in ("base", "sha256", "rank", "alpha", "layers")
    )
    require(
        isinstance(base, str)
        and isinstance(sha256, str)
        and is_integer(rank)
        and all(rank in tensor.shape for tensor in tensors.values())
        and isinstance(alpha, float)
        and math.isfinite(alpha)
        and isinstance(layers, list)
        and all(isinstance(layer, str) for layer in layers),
        "an adapter's file must say which model it belongs to",
        f"{about} in {path}",
        "Write it with save_adapter.",
    )


def load_tuned(path: str | Path) -> Loaded:
    """Load the model that an adapter was made for, with the updates merged.

    Args:
        path: as :func:`save_adapter` wrote it, or the name of an adapter
            that the package ships, ``"stories-answers"`` or
            ``"stories-looks"``.

    Returns:
        A plain model, in evaluation mode, and its tokenizer.

    Raises:
        ValueError: if a file is missing or damaged, or the adapter was made
            for other weights.

    Chapter: 20, fine-tuning.
    Test: test_tuning.py::test_an_adapter_is_loaded_with_its_base
    """
    path = _packaged(path, ".safetensors")
    tensors, about = read_tensors(path)
    _check_adapter(tensors, about, path)
    is_shipped = about["base"] in saved_models.shipped()
    base = (saved_models.SHIPPED if is_shipped else path.parent) / about[
        "base"
    ]
    weights = base / "model.safetensors"
    require(
        weights.is_file(),
        "an adapter needs the model that it was made for",
        f"{path}, made for {about['base']}, and no {weights}",
        "Put that folder there, or save the adapter again.",
    )
    require(
        about["sha256"] == hash_of(weights),
        "an adapter belongs to the weights that it was trained with",
        f"other weights in {base} for {path}",
        "Restore them, or train the adapter again.",
    )
    model, tokenizer = load_model(base)
    with torch.random.fork_rng(devices=[]):  # loading uses no chance
        add_lora(model, about["rank"], about["alpha"], about["layers"])
    put_lora(model, tensors)
    return Loaded(merge_lora(model).eval(), tokenizer)
