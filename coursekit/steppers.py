"""Steppers: where the logits of each next token come from.

A :class:`Stepper` hides the model, its positions, its padding and its cache
from the loops of :mod:`coursekit.generation`.  There is one for each kind of
model.  Without a cache it reads the whole text at each step and is the
reference; with a cache it gives the same logits, sooner.
"""

from collections.abc import Sequence, Sized
from itertools import groupby
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from coursekit.cache import (
    CrossLayerCache,
    LayerCache,
    SharedColumns,
    make_cache,
)
from coursekit.checks import check_id_list, check_scores, is_integer
from coursekit.decoder import GPT
from coursekit.devices import evaluating
from coursekit.seq2seq import Transformer

Prompts = Sequence[Sequence[int]] | Tensor
"""B lists of token ids, or a (B, T) tensor."""


@runtime_checkable
class Stepper(Protocol):
    """A batch of texts that grow token by token.

    A stepper serves one batch at a time; ``prefill`` starts the next one.
    """

    @property
    def limit(self) -> int | None:
        """Most tokens a row can get after its prompt; None: no limit."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read the prompts; return (B, V) logits of each first token."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append (B,) tokens; return (B, V) logits of the next ones."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Reorder: row i becomes the present row index[i]; B may change."""
        ...


def pad_rows(
    rows: Sequence[Sequence[int]],
    left: bool,
    pad_id: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Pad rows of unequal length into one tensor.

    Args:
        rows: B lists of token ids.
        left: pad on the left, so that all rows *end* together, which a
            decoder needs; otherwise on the right.
        pad_id: what fills the gaps; any valid id, as the mask hides it.
        device: where the tensors live.

    Returns:
        (B, T) ids and (B, T) booleans, True = real token.

    Chapter: 12, generation.
    """
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    real = real.flip(1) if left else real
    ids = torch.full(real.shape, pad_id)
    ids[real] = torch.tensor([token for row in rows for token in row])
    return ids.to(device), real.to(device)


class GPTStepper:
    """Steps a GPT, token by token.

    Rows of unequal length are padded on the left, the padding is masked, and
    each row counts its positions from its first real token, so that a row
    gets the logits that it would get alone.

    The model sees at most ``window`` tokens.  The rule, row by row: a prompt
    that is longer is cut to its *last* ``window`` tokens; a row that is full
    is cut to its last ``keep`` tokens before the next is added, and these
    are numbered from 0 again.  Then a cache is filled again, too.

    Args:
        model: the GPT; it is put into evaluation mode for each call only.
        window: most tokens seen at once; default and maximum ``max_len``.
        keep: tokens kept of a full row, 0..window − 1; default half of the
            window, so that a cache is refilled only now and then.
            ``window − 1`` slides by one token each step.
        use_cache: keep keys and values, so that a step computes one token;
            False reads the whole text at each step.

    Raises:
        ValueError: if ``window`` or ``keep`` is out of range.

    Chapter: 12, generation.
    """

    limit: int | None = None
    cache: list[LayerCache] | None = None
    shared: SharedColumns
    padding: Sequence[int] = ()  # columns before each row's first token

    def __init__(
        self,
        model: GPT,
        window: int | None = None,
        keep: int | None = None,
        use_cache: bool = True,
    ) -> None:
        max_len = model.config.max_len
        self.model, self.use_cache = model, use_cache
        self.window = max_len if window is None else window
        self.rows: list[list[int]] = []
        if not (is_integer(self.window) and self.window <= max_len):
            raise ValueError(
                f"window must lie in 1..max_len={max_len}: got {window}. "
                "The model has no positions beyond."
            )
        self.keep = self.window // 2 if keep is None else keep
        if not (is_integer(self.keep, 0) and self.keep < self.window):
            raise ValueError(
                f"keep must lie in 0..{self.window - 1}: got {keep}. "
                "A full row must make room for a new token."
            )

    def prefill(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "B V"]:
        """Read the prompts.

        Args:
            prompts: B lists of token ids, none empty.

        Returns:
            (B, V) logits of the first new token.

        Raises:
            ValueError: if there is no prompt, one is empty, or a weight of
                the attention is not finite.
        """
        batch = check_prompts(prompts)
        check_scores(self.model)
        self.rows = [prompt[-self.window :] for prompt in batch]
        self.modules = list(self.model.modules())  # listed once
        return self.read()

    @property
    def filled(self) -> int:
        """Columns filled; without a cache, or layers, all is always read."""
        return self.cache[0].length if self.cache else self.window

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each row, after making room in the full ones.

        Args:
            tokens: (B,) token ids.

        Returns:
            (B, V) logits of the next token.

        Raises:
            ValueError: if there is not one token for each row.
        """
        check_rows(tokens, len(self.rows))
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            if len(row) >= self.window:
                del row[: len(row) - self.keep]
            row.append(token)
        filled = self.filled
        if filled == self.window:
            return self.read()
        if not any(self.padding):
            return self.run(tokens[:, None], None, None)
        n_padding = torch.tensor(self.padding, device=tokens.device)[:, None]
        columns = torch.arange(filled + 1, device=tokens.device)
        mask = (columns >= n_padding)[:, None, None]
        return self.run(tokens[:, None], filled - n_padding, mask)

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Reorder rows and cache: row i becomes the present row index[i].

        Args:
            index: (N,) rows; one may come twice, or not at all.
        """
        order = index.tolist()
        self.rows = [list(self.rows[i]) for i in order]
        self.padding = [self.padding[i] for i in order]
        if self.cache:
            missing = self.shared.reorder(index, self.filled)
            for layer in self.cache:
                layer.reorder(index, missing)

    def read(self) -> Float[Tensor, "B V"]:
        """Run the model over all rows, from their first token."""
        if self.use_cache:
            self.cache = make_cache(self.model, len(self.rows), self.window)
            self.shared = SharedColumns(len(self.rows))
        lengths = [len(row) for row in self.rows]
        self.padding = [max(lengths) - length for length in lengths]
        device = next(self.model.parameters()).device
        ids, real = pad_rows(self.rows, left=True, device=device)
        if not any(self.padding):
            return self.run(ids, None, None)
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        return self.run(ids, positions, real[:, None, None])

    def run(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None,
        mask: Bool[Tensor, "B 1 1 S"] | None,
    ) -> Float[Tensor, "B V"]:
        """Run the model over some tokens; logits of the last position."""
        with evaluating(self.modules):
            x = self.model.hidden(ids, positions, mask, self.cache)
            return self.model.logits(x[:, -1])


class Seq2SeqStepper:
    """Steps a Transformer, token by token.

    A prompt is a *source*; each target begins with ``start``.  With a cache,
    beams of one source read the same keys and values of it.

    Args:
        model: the Transformer; in evaluation mode for each call only.
        start: ids that every target begins with, as (BOS,).
        use_cache: as in :class:`GPTStepper`; cross-attention is included.

    Raises:
        ValueError: if ``start`` is empty or fills ``max_len``.

    Chapter: 14, encoder and decoder together.
    """

    cache: list[CrossLayerCache] | None = None
    shared: SharedColumns
    sources: Sequence[int] = ()  # of each target
    memory_sources: Sequence[int] = ()  # of each row of the memory

    def __init__(
        self, model: Transformer, start: Sequence[int], use_cache: bool = True
    ) -> None:
        max_len = model.config.max_len
        if not 1 <= len(start) <= max_len:
            raise ValueError(
                f"start must hold 1..max_len={max_len} tokens: got "
                f"{len(start)}. Begin with the token that training began with."
            )
        self.model, self.use_cache = model, use_cache
        self.start = list(start)
        self.targets = torch.empty(0, 0, dtype=torch.long)

    @property
    def limit(self) -> int:
        """Most tokens a target can get: the last need not be read."""
        return self.model.config.max_len - len(self.start) + 1

    def prefill(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "B V"]:
        """Read the sources, padded on the right, and the start tokens.

        Args:
            prompts: B lists of source ids, none empty.

        Returns:
            (B, V) logits of the first target token.

        Raises:
            ValueError: if there is no source, one is empty, or one is longer
                than ``max_len``: a source is never cut; or if a weight of
                the attention is not finite.
        """
        model, rows = self.model, check_prompts(prompts)
        check_scores(model)
        device = next(model.parameters()).device
        src, real = pad_rows(rows, False, model.config.pad_id, device)
        mask = None if bool(real.all()) else real[:, None, None]
        with evaluating(model.modules()):
            return self.begin(model.encode(src, mask), mask)

    def begin(
        self,
        memory: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
    ) -> Float[Tensor, "B V"]:
        """Start from the encoder's output, whatever it has read.

        Args:
            memory: (B, S, D) the encoder's output.
            mask: True where the decoder may attend.

        Returns:
            (B, V) logits of the first target token.
        """
        self.memory, self.mask = memory, mask
        self.sources = self.memory_sources = list(range(memory.size(0)))
        if self.use_cache:
            self.cache = make_cache(self.model, memory.size(0))
            self.shared = SharedColumns(memory.size(0))
        encoder = set(self.model.encoder.modules())
        self.modules = [m for m in self.model.modules() if m not in encoder]
        start = torch.tensor(self.start, device=memory.device)
        self.targets = start.expand(memory.size(0), -1)
        return self.run(self.targets)

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each target; see :meth:`GPTStepper.step`.

        Raises:
            ValueError: if there is not one token for each target, or the
                target would be longer than ``max_len``.
        """
        check_rows(tokens, len(self.sources))
        if self.cache is not None:
            return self.run(tokens[:, None])
        self.targets = torch.cat((self.targets, tokens[:, None]), dim=1)
        return self.run(self.targets)

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Reorder rows and cache: row i becomes the present row index[i]."""
        self.sources = [self.sources[i] for i in index.tolist()]
        needed: Sequence[int] = self.sources
        if self.cache is None:
            self.targets = self.targets[index]
        else:
            needed = _distinct(needed)
            missing = self.shared.reorder(index, self.cache[0].length)
            for layer in self.cache:
                layer.reorder(index, missing)
        if needed == self.memory_sources:
            return
        rows = index.new_tensor([self.memory_sources.index(i) for i in needed])
        for layer in self.cache or ():
            layer.pick_sources(rows)
        self.memory_sources, self.memory = needed, self.memory[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def run(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Run the decoder over some tokens; logits of the last position."""
        with evaluating(self.modules):
            x = self.model.decode_hidden(
                tokens, self.memory, self.mask, cache=self.cache
            )
            return self.model.logits(x[:, -1])


def _distinct(sources: Sequence[int]) -> Sequence[int]:
    """Each source once, if all have as many targets, next to each other."""
    once = [source for source, _ in groupby(sources)]
    each = len(sources) // len(once)
    grouped = [source for source in once for _ in range(each)]
    return once if grouped == sources else sources


def check_prompts(prompts: Prompts) -> list[list[int]]:
    """Return the prompts as lists of ids, or refuse them.

    Raises:
        ValueError: if they are no batch of non-empty lists of ids.
    """
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    batch = prompts if isinstance(prompts, Sized) else [None]
    if not all(isinstance(prompt, Sized) for prompt in batch):
        raise ValueError(
            f"prompts are a batch, a list of lists of ids: got {prompts}. "
            "Write [ids] for one prompt."
        )
    if len(prompts) == 0:
        raise ValueError(
            "a batch needs at least one prompt: got none. Give a list of "
            "lists of token ids."
        )
    lengths = [len(prompt) for prompt in prompts]
    if 0 in lengths:
        raise ValueError(
            f"a prompt needs at least one token: got an empty prompt in row "
            f"{lengths.index(0)} of {len(prompts)}. Begin with a newline or "
            "an end-of-text token."
        )
    return [check_id_list(row) for row in prompts]


def check_rows(tokens: Int[Tensor, "B"], n_rows: int) -> None:
    """Refuse a step that does not fit the rows that were prefilled.

    Raises:
        ValueError: if there is not one token for each row.
    """
    if tokens.size(0) != n_rows:
        raise ValueError(
            f"a step needs one token for each row: got {tokens.size(0)} "
            f"for {n_rows} rows. Call prefill first, with as many prompts."
        )
