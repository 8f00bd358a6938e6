"""From text and pairs of texts to batches that a model can learn from.

Every random batch is a pure function of (seed, step): a run that was
stopped and resumed sees the data it would have seen.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from coursekit.checks import (
    check_id_list,
    check_integers,
    is_integer,
    is_number,
    is_packaged,
    require,
)
from coursekit.datasets import datasets, fetch, read_asset
from coursekit.files import read_bytes

IGNORE = -100
"""The target of a position that is not counted."""

Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a source and its target, or of a prompt and its answer."""
Data = TypeVar("Data", str, Tensor)


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of a model with the targets for each position.

    ``logits = model(**batch.inputs)``; the loss compares them to targets.
    A loss of another kind may take other inputs, see
    :data:`coursekit.loss.Loss`.
    """

    inputs: dict[str, Tensor]
    """The model's arguments by name, such as ``ids`` (B, T)."""
    targets: Int[Tensor, "B ..."]
    """Targets that the loss is a mean over; −100 is not counted."""

    def to(self, device: str | torch.device) -> "Batch":
        """Return the same batch on another device."""
        inputs = {name: x.to(device) for name, x in self.inputs.items()}
        return Batch(inputs, self.targets.to(device))

    @property
    def n_targets(self) -> int:
        """The number of targets that count."""
        return int((self.targets != IGNORE).sum())


def load_text(name: str | Path = "shakespeare") -> str:
    """Read a text: the packaged one, a dataset by name, or a file.

    Args:
        name: "shakespeare" (nine plays, in the package), a name in
            :func:`coursekit.datasets.datasets` (looked for in the folder
            that the environment variable COURSEKIT_DATA names, then in the
            cache, then fetched), or the path of a UTF-8 file (.gz and .xz
            too).

    Returns:
        The text, not empty.

    Raises:
        ValueError: no such name or file, or a name that is also a file;
            the file is empty or not UTF-8; a dataset's hash is wrong.
        OSError: a dataset cannot be fetched.

    Chapter: 0, the first model.
    """
    data = _find(name)
    if not data:
        raise ValueError(
            f"a text must not be empty: got 0 bytes in {name}. "
            "Choose a file with text in it."
        )
    try:
        return data.decode("utf-8-sig")  # a BOM is no part of the text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            "a text must be UTF-8: got the byte "
            f"0x{data[error.start]:02x} at offset {error.start} of "
            f"{name}, in line {line}. Convert the file to UTF-8."
        ) from None


def _find(name: str | Path) -> bytes:
    """Return the bytes of a text by its name."""
    require(
        isinstance(name, str | Path),
        "a text is called by its name or path",
        repr(name),
        "Pass a str or a Path.",
    )
    downloads, is_file = datasets(), Path(name).is_file()
    names = ["shakespeare", *downloads]
    if is_packaged(name, names, is_file):
        if name == "shakespeare":
            return read_asset("shakespeare.txt.xz")
        return fetch(downloads[str(name)])
    if is_file:
        return read_bytes(name)
    raise ValueError(
        f"a text must be a file or one of {names}: "
        f"got {str(name)!r}. Check the path, or the dataset's languages "
        "and split."
    )


def load_pairs(
    name: str | tuple[str | Path, str | Path],
    source: str = "de",
    target: str = "en",
    split: str = "train",
) -> list[tuple[str, str]]:
    """Read sentences and their translations, line by line.

    A line ends in a line feed, or in a carriage return and a line feed;
    these are taken off and nothing else is: spaces stay, and other
    characters that some programs take for line ends do too.

    Args:
        name: of a dataset, "multi30k", or the paths of two UTF-8 files
            (.gz and .xz too), the sources' and the targets'.
        source: the dataset's language to translate from: de, en or fr.
        target: its language to translate to.
        split: its part: train, val or test_2016_flickr.

    Returns:
        (source, target) pairs in the order of the files. Where either
        line is blank there is no pair; a warning names those lines.

    Raises:
        ValueError: no such dataset, language, split or file; a file is
            empty or not UTF-8; the numbers of lines differ; no pair is
            left.
        OSError: a dataset cannot be fetched.

    Chapter: 14, encoder and decoder together.
    Test: test_data.py::test_one_line_too_many_is_refused
    """
    if isinstance(name, str):
        files = [f"{name}/{split}.{language}" for language in (source, target)]
    else:
        files = [str(path) for path in name]
    sources, targets = (read_lines(file) for file in files)
    if len(sources) != len(targets):
        raise ValueError(
            "each source needs its target, line by line: got "
            f"{len(sources)} lines in {files[0]} and {len(targets)} in "
            f"{files[1]}. Fix the files: from the line that one of them "
            "lacks, no pair would belong together."
        )
    pairs = list(zip(sources, targets, strict=True))
    has_text = [all(line.strip() for line in pair) for pair in pairs]
    if not any(has_text):
        raise ValueError(
            "a translation needs lines with text on both sides: got none in "
            f"the {len(pairs)} of {files[0]} and {files[1]}. Check the files."
        )
    blank = [n for n, is_whole in enumerate(has_text, 1) if not is_whole]
    if blank:
        more = f" and {len(blank) - 20} more" if len(blank) > 20 else ""
        warnings.warn(
            f"{len(blank)} of {len(pairs)} pairs are left out because their "
            f"source or target is blank: line {str(blank[:20])[1:-1]}{more}.",
            stacklevel=2,
        )
    return list(compress(pairs, has_text))


def read_lines(name: str | Path) -> list[str]:
    """Return the lines of a text, cut at line feeds alone.

    Args:
        name: a packaged text or a file, as :func:`load_text` takes it.

    Returns:
        Each line without its end, ``\\n`` or ``\\r\\n``.

    Raises:
        OSError, ValueError: as :func:`load_text` does.
    """
    lines = load_text(name).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def train_val_split(data: Data, fraction: float = 0.1) -> tuple[Data, Data]:
    """Cut off the end for validation, before any windows are cut.

    Windows that are cut first and split afterward overlap: nearly every
    token of the validation windows would be trained on.

    Args:
        data: a text, or ids (N,).
        fraction: the part kept for validation, above 0 and below 1.

    Returns:
        Training and validation part, the start and the end.

    Raises:
        ValueError: a part would be empty.
    """
    is_part = is_number(fraction) and 0 < fraction < 1
    cut = int(len(data) * (1 - fraction)) if is_part else 0
    if not 0 < cut < len(data):
        raise ValueError(
            "both parts of a split must hold something: got "
            f"fraction={fraction} of length {len(data)}. Use a longer text "
            "or a fraction between 0 and 1."
        )
    return data[:cut], data[cut:]


def make_generator(seed: int, step: int) -> torch.Generator:
    """Return a generator of its own for each (seed, step).

    seed + step would not do: run 1 at step 2 would see the data of run
    2 at step 1.
    """
    digest = hashlib.sha256(f"{seed},{step}".encode()).digest()
    number = int.from_bytes(digest[:4], "big")
    return torch.Generator().manual_seed(number)


def random_windows(
    ids: Int[Tensor, "N"], batch_size: int, context: int, seed: int, step: int
) -> Batch:
    """Cut windows at random positions; each token's target is the next.

    Args:
        ids: (N,) the training split, N > context.
        batch_size: windows in the batch.
        context: tokens in a window.
        seed: of the run; with step it fixes the batch.
        step: of the training, from 0.

    Returns:
        inputs ``ids`` and targets, each (batch_size, context).

    Raises:
        ValueError: the split is too short for one window and its target, or
            a size is below 1.
    """
    check_integers(batch_size=batch_size, context=context)
    starts = len(ids) - context
    if starts < 1:
        raise ValueError(
            "a window and its last target need context + 1 tokens: got "
            f"{len(ids)} tokens and context={context}. Use a longer text "
            "or a smaller context."
        )
    generator = make_generator(seed, step)
    first = torch.randint(
        starts, (batch_size, 1), generator=generator, device="cpu"
    )
    index = first.to(ids.device) + torch.arange(context, device=ids.device)
    return Batch({"ids": ids[index].long()}, ids[index + 1].long())


def sequential_windows(
    ids: Int[Tensor, "N"], batch_size: int, context: int
) -> Iterator[Batch]:
    """Go through a whole split; every target is counted exactly once.

    For models that see no later token: the last window is filled up.

    Args:
        ids: (N,) the split, N ≥ 2: the first token is no target.
        batch_size: windows in a batch; the last batch may have fewer.
        context: tokens in a window.

    Returns:
        Batches of inputs ``ids`` and targets, each (≤ batch_size,
        context); what the last window lacks has the target −100.

    Raises:
        ValueError: the split has no target, or a size is below 1.
    """
    sizes_fit = is_integer(context) and is_integer(batch_size)
    if len(ids) < 2 or not sizes_fit:
        raise ValueError(
            "an evaluation needs 2 tokens, context ≥ 1 and batch_size ≥ 1: "
            f"got {len(ids)} tokens, context={context}, "
            f"batch_size={batch_size}. Use a longer split."
        )
    inputs, targets = ids[:-1].long(), ids[1:].long()
    lacking = -len(inputs) % context
    # Any valid id will do: a causal model's counted positions see none of it.
    inputs = torch.cat([inputs, inputs[:1].expand(lacking)])
    targets = torch.cat([targets, targets.new_full((lacking,), IGNORE)])
    batches = zip(
        inputs.view(-1, context).split(batch_size),
        targets.view(-1, context).split(batch_size),
        strict=True,
    )
    # Not a generator function: the checks above must not wait.
    return (Batch({"ids": rows}, answers) for rows, answers in batches)


def pad(sequences: Sequence[Sequence[int]], value: int) -> Int[Tensor, "B S"]:
    """Stack id lists of unequal length; fill up on the right."""
    lists = [check_id_list(sequence) for sequence in sequences]
    longest = max(map(len, lists))
    rows = [[*ids, *[value] * (longest - len(ids))] for ids in lists]
    return torch.tensor(rows, dtype=torch.long).view(len(rows), longest)


def pad_pairs(
    pairs: Sequence[Pair], pad_id: int, bos_id: int, eos_id: int
) -> Batch:
    """Make one batch of (source, target) pairs.

    The decoder reads bos, y₁, … and has to answer y₁, …, eos.

    Args:
        pairs: B pairs of id lists; no source is empty.
        pad_id: fills up the inputs; it may be a real token's id too,
            since the mask and the targets say what is padding.
        bos_id: begins each target input.
        eos_id: ends each target.

    Returns:
        inputs ``src`` (B, S), ``tgt`` (B, T) and ``src_mask``
        (B, 1, 1, S), True = may attend; targets (B, T).
    """
    sources = [source for source, _ in pairs]
    lengths = torch.tensor([len(source) for source in sources])
    src = pad(sources, pad_id)
    mask: Bool[Tensor, "B 1 1 S"] = (
        torch.arange(src.shape[1]) < lengths[:, None]
    )[:, None, None]
    tgt = pad([[bos_id, *target] for _, target in pairs], pad_id)
    targets = pad([[*target, eos_id] for _, target in pairs], IGNORE)
    return Batch({"src": src, "tgt": tgt, "src_mask": mask}, targets)


class Pairs:
    """Pairs in batches of like length, by step.

    Pairs are sorted by length, so that little is padding, and cut into
    batches; each epoch shuffles the pairs of equal length and the batches.

    Args:
        pairs: (source ids, target ids); no source is empty.
        max_tokens: the most tokens in a batch, padding included, for
            the source and for the target (with bos) each.
        pad_id: fills up short rows.
        bos_id: begins each target input.
        eos_id: ends each target.
        seed: of the run; with the step it fixes a batch.

    Raises:
        ValueError: no pairs, an empty source, or a pair that does not
            fit into max_tokens.

    Differs from the paper: in size only; it had about 25,000 source and
        25,000 target tokens in a batch.
    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, section 5.1.
    Test: test_data.py::test_buckets_save_padding
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        max_tokens: int,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        seed: int = 0,
    ) -> None:
        self.pairs = list(pairs)
        self.ids = (pad_id, bos_id, eos_id)
        self.seed = seed
        sizes = [(len(src), len(tgt) + 1) for src, tgt in self.pairs]
        kind: dict[str, Any] = {"dtype": torch.long, "device": "cpu"}
        table = torch.tensor(sizes, **kind).view(-1, 2)
        _check_sizes(table, max_tokens)
        base = int(table[:, 1].max()) + 1
        self._keys = table[:, 0] * base + table[:, 1]  # as the order is
        longest = table.amax(dim=1)[self._keys.argsort()]
        self._bounds = cut_batches(longest, max_tokens)
        self._epoch: tuple[int, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._bounds)

    def __iter__(self) -> Iterator[Batch]:
        """Go through the first epoch: every pair once."""
        return (self.batch(step) for step in range(len(self)))

    def rows(self, step: int) -> list[int]:
        """Return which pairs the batch of this step holds."""
        epoch, index = divmod(step, len(self))
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, *self._shuffle(epoch)
        _, order, batches = self._epoch
        start, end = self._bounds[int(batches[index])]
        return order[start:end].tolist()

    def _shuffle(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the order of the pairs and of the batches in an epoch."""
        generator = make_generator(self.seed, epoch)
        source: dict[str, Any] = {"generator": generator, "device": "cpu"}
        shuffled = torch.randperm(len(self.pairs), **source)
        order = shuffled[torch.argsort(self._keys[shuffled], stable=True)]
        return order, torch.randperm(len(self), **source)

    def batch(self, step: int) -> Batch:
        """Return the batch of this step, see `pad_pairs`."""
        return pad_pairs([self.pairs[i] for i in self.rows(step)], *self.ids)


def _check_sizes(sizes: Int[Tensor, "N 2"], max_tokens: int) -> None:
    """Refuse pairs of which no batch can be made."""
    is_wrong = (sizes[:, 0] == 0) | (sizes > max_tokens).any(dim=1)
    for i in is_wrong.nonzero()[:1, 0].tolist():
        src, tgt = sizes[i].tolist()
        raise ValueError(
            "a pair needs 1 to max_tokens tokens on each side (bos "
            f"counts): got {src} and {tgt} in pair {i}, "
            f"max_tokens={max_tokens}. Drop the pair or allow more."
        )
    if not len(sizes):
        raise ValueError(
            "batches need at least one pair: got 0. Check the files."
        )


def cut_batches(
    longest: Int[Tensor, "N"], max_tokens: int
) -> list[tuple[int, int]]:
    """Cut sorted pairs, of which the longer sides are given, into batches.

    Returns:
        For each batch its pairs [start, end).
    """
    bounds, start = [], 0
    while start < len(longest):
        most = max_tokens // int(longest[start])
        width = longest[start : start + most].cummax(dim=0).values
        rows = torch.arange(1, len(width) + 1, device="cpu")
        end = start + int((rows * width <= max_tokens).sum())
        bounds.append((start, end))
        start = end
    return bounds
