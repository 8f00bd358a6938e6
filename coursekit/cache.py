"""The KV cache: what generation need not compute twice.

Under a causal mask no old token sees a new one, so the keys and values of
old tokens never change.  Keep them, and a step costs one token, not all.
"""

from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from coursekit.decoder import GPT
from coursekit.generation import (
    PlainStepper,
    PlainTranslator,
    check_rows,
    evaluating,
    pad_rows,
)
from coursekit.seq2seq import Transformer

__all__ = [
    "CachedStepper",
    "CachedTranslator",
    "LayerCache",
    "SharedColumns",
    "cache_bytes",
    "cache_dtype",
    "make_cache",
]


class LayerCache:
    """Keys and values of one layer, in a buffer made once.

    ``update`` writes behind what is there and returns *views of the filled
    part*.  That is why the causal rule "query i sees key j if and only if
    j ≤ i + (S − T)" holds: S counts filled keys.  The rest is memory that
    nobody has set or touched, so a long buffer costs little.

    RoPE's keys come in already turned by their own positions, and are never
    turned again.

    Args:
        batch_size: B.
        n_kv_heads: G.
        max_len: most positions, in tokens.
        d_head: size of a key, Dh.
        d_value: size of a value; default Dh.
        dtype: of the keys and values.
        device: where the buffer lives.

    Attributes:
        length: positions filled so far.
        memory: the cross-attention's keys and values, which depend on the
            source alone: stored by the first call, read by all others.

    Chapter: 12, generation.
    Source: shazeer2019fast, section 2.4; pope2022efficiently, section 2.
    """

    def __init__(
        self,
        batch_size: int,
        n_kv_heads: int,
        max_len: int,
        d_head: int,
        d_value: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        shape = (batch_size, n_kv_heads, max_len)
        self.k = torch.empty(*shape, d_head, dtype=dtype, device=device)
        self.v = torch.empty(
            *shape, d_value or d_head, dtype=dtype, device=device
        )
        self.length = 0
        self.memory: tuple[Tensor, Tensor] | None = None

    @property
    def max_len(self) -> int:
        """Most positions it can hold."""
        return self.k.size(2)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer, filled or not."""
        return self.k.nbytes + self.v.nbytes

    def update(
        self, k: Float[Tensor, "B G T Dh"], v: Float[Tensor, "B G T Dv"]
    ) -> tuple[Float[Tensor, "B G S Dh"], Float[Tensor, "B G S Dv"]]:
        """Append new keys and values; return all so far.

        Args:
            k: (B, G, T, Dh) new keys.
            v: (B, G, T, Dv) new values.

        Returns:
            (B, G, S, Dh) and (B, G, S, Dv) views, S = the new ``length``.

        Raises:
            ValueError: if they don't fit, or the cache is full.
        """
        start, n_new = self.length, k.size(2)
        stop = start + n_new
        if stop > self.max_len:
            raise ValueError(
                f"a cache holds at most max_len={self.max_len} positions: "
                f"got {n_new} more after {start}. Make a longer cache, or "
                "begin a new one with the last tokens."
            )
        for new, buffer in ((k, self.k), (v, self.v)):
            place = buffer.narrow(2, start, n_new)
            if new.shape != place.shape or new.dtype != place.dtype:
                raise ValueError(
                    "new keys and values must fit the cache: got "
                    f"{tuple(new.shape)} {new.dtype} for "
                    f"{tuple(buffer.shape)} {buffer.dtype}. Make the cache "
                    "for this model, batch size and dtype."
                )
            place.copy_(new)
        self.length = stop
        return self.k.narrow(2, 0, stop), self.v.narrow(2, 0, stop)

    def reorder(
        self,
        index: Int[Tensor, "N"],
        missing: tuple[Int[Tensor, "R"], Int[Tensor, "R"], int] | None = None,
    ) -> None:
        """Let row i hold what is now in row index[i]; B may change.

        Args:
            index: (N,) rows.
            missing: what :meth:`SharedColumns.reorder` found, so that no more
                is copied; by default all is, into other buffers.
        """
        if missing is None:
            self.k = _pick_rows(self.k, index, self.length)
            self.v = _pick_rows(self.v, index, self.length)
        else:
            rows, parents, first = missing
            for buffer in (self.k, self.v) if len(rows) else ():
                part = buffer.narrow(2, first, self.length - first)
                part.index_copy_(0, rows, part.index_select(0, parents))

    def pick_sources(self, index: Int[Tensor, "M"]) -> None:
        """Let row i of the memory be what is now its row index[i]."""
        if self.memory is not None:
            k, v = self.memory
            self.memory = k[index], v[index]


def _pick_rows(
    buffer: Float[Tensor, "B G M Dh"], index: Int[Tensor, "N"], length: int
) -> Float[Tensor, "N G M Dh"]:
    """A buffer of other rows, with what was filled."""
    picked = buffer.new_empty(index.size(0), *buffer.shape[1:])
    picked[:, :, :length] = buffer[index, :, :length]
    return picked


class SharedColumns:
    """How many columns, from the first on, two rows of a cache share.

    Beams of one text begin alike.  So a beam that goes on from another, in
    its own row, needs only the columns that the two do not share: the last
    few, mostly, however long the text.

    Args:
        n_rows: B; at first nothing is shared.

    Chapter: 12, generation.
    Test: tests/test_cache.py::test_only_what_is_not_shared_is_copied
    """

    def __init__(self, n_rows: int) -> None:
        self.columns = [[0] * n_rows for _ in range(n_rows)]

    def reorder(
        self, index: Int[Tensor, "N"], length: int
    ) -> tuple[Int[Tensor, "R"], Int[Tensor, "R"], int] | None:
        """Row i goes on from what is now row index[i].

        Args:
            index: (N,) rows.
            length: columns filled so far.

        Returns:
            The rows that go on from another one, these other ones, and the
            first column that any of them lacks; None if B changes.
        """
        all_parents, old = index.tolist(), self.columns
        # Children of one row share all so far; others, what those rows did.
        self.columns = [
            [length if i == j else old[i][j] for j in all_parents]
            for i in all_parents
        ]
        if len(all_parents) != len(old):
            return None
        moves = [(i, j) for i, j in enumerate(all_parents) if i != j]
        first = min([old[i][j] for i, j in moves], default=length)
        rows, parents = index.new_tensor(moves).view(-1, 2).unbind(1)
        return rows, parents, first


def make_cache(
    model: GPT | Transformer,
    batch_size: int,
    max_len: int | None = None,
) -> list[LayerCache]:
    """Make an empty cache for each decoder layer of a model.

    Args:
        model: a GPT or a Transformer.
        batch_size: B, rows.
        max_len: positions, in tokens; default the model's own.

    Returns:
        One :class:`LayerCache` a layer: each has keys of its own.

    Chapter: 12, generation.
    """
    config = model.config
    return [
        LayerCache(
            batch_size,
            config.kv_heads,
            config.max_len if max_len is None else max_len,
            config.head_size,
            config.d_value,
            cache_dtype(model),
            next(model.parameters()).device,
        )
        for _ in model.blocks
    ]


def cache_dtype(model: GPT | Transformer) -> torch.dtype:
    """What a model's keys and values are: autocast's kind where that is on.

    Autocast leaves float64 alone.

    Args:
        model: a GPT or a Transformer.

    Returns:
        The parameters' dtype, or autocast's.
    """
    parameter = next(model.parameters())
    is_double = parameter.dtype == torch.float64
    if torch.is_autocast_enabled(parameter.device.type) and not is_double:
        return torch.get_autocast_dtype(parameter.device.type)
    return parameter.dtype


def cache_bytes(
    n_layers: int,
    n_kv_heads: int,
    length: int,
    d_head: int,
    bytes_per_number: int = 2,
    batch_size: int = 1,
) -> int:
    """How much memory the keys and values take.

    ``2 · L · G · T · Dh · bytes · B``; 2 for keys and values.

    Args:
        n_layers: L.
        n_kv_heads: G.
        length: T, in tokens.
        d_head: Dh.
        bytes_per_number: 2 for float16 and bfloat16, 4 for float32.
        batch_size: B.

    Returns:
        Bytes.

    Chapter: 12, generation.
    """
    numbers = 2 * n_layers * n_kv_heads * length * d_head * batch_size
    return numbers * bytes_per_number


class CachedStepper(PlainStepper):
    """Steps a GPT with a cache: the logits of :class:`PlainStepper`, fast.

    Only when the cache is full does it read anew, by the same rule.

    Args, Raises: as :class:`PlainStepper`.

    Chapter: 12, generation.
    """

    cache: list[LayerCache]
    shared: SharedColumns
    real: Bool[Tensor, "B M"] | None
    n_padding: Int[Tensor, "B"]

    @property
    def filled(self) -> int:
        """Columns filled; without layers it is full and reads all anew."""
        return self.cache[0].length if self.cache else self.window

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each row; compute that token alone.

        Args:
            tokens: (B,) token ids.

        Returns:
            (B, V) logits of the next token.
        """
        self.append(tokens)
        filled = self.filled
        if filled == self.window:
            return self.read()
        positions = mask = None
        if self.real is not None:
            positions = (filled - self.n_padding)[:, None]
            mask = self.real[:, None, None, : filled + 1]
        return self.run(tokens[:, None], positions, mask)

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Let row i go on from what is now row index[i], cache included."""
        super().reorder(index)
        missing = self.shared.reorder(index, self.filled)
        for layer in self.cache:
            layer.reorder(index, missing)
        self.n_padding = self.n_padding[index]
        if self.real is not None:
            self.real = self.real[index]

    def read(self) -> Float[Tensor, "B V"]:
        """Fill a fresh cache with all rows."""
        device = next(self.model.parameters()).device
        ids, real = pad_rows(self.rows, left=True, device=device)
        self.cache = self.empty_cache()
        self.shared = SharedColumns(len(self.rows))
        self.n_padding = (~real).sum(dim=1)
        if len({len(row) for row in self.rows}) == 1:
            self.real = None
            return self.run(ids, None, None)
        # Padding stays hidden; every later column will be a real token.
        self.real = real.new_ones(len(self.rows), self.window)
        self.real[:, : ids.size(1)] = real
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        return self.run(ids, positions, real[:, None, None])

    def empty_cache(self) -> list[LayerCache]:
        """A cache that holds a window of each row."""
        return make_cache(self.model, len(self.rows), self.window)

    def run(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None,
        mask: Bool[Tensor, "B 1 1 S"] | None,
    ) -> Float[Tensor, "B V"]:
        """Run the model over new tokens; logits of the last position."""
        with evaluating(self.modules):
            x = self.model.hidden(ids, positions, mask, self.cache)
            return self.model.logits(x[:, -1])


class CachedTranslator(PlainTranslator):
    """Steps a Transformer with a cache, cross-attention included.

    Beams of one source read the same keys and values of it.

    Args, Raises: as :class:`PlainTranslator`.

    Chapter: 14, encoder and decoder together.
    """

    cache: list[LayerCache]
    shared: SharedColumns
    sources: Sequence[int] = ()  # of each target
    held: Sequence[int] = ()  # of each row of the memory

    def begin(
        self,
        memory: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
    ) -> Float[Tensor, "B V"]:
        """Start from what an encoder has read, with a fresh cache."""
        self.cache = make_cache(self.model, memory.size(0))
        self.shared = SharedColumns(memory.size(0))
        self.sources = self.held = list(range(memory.size(0)))
        return super().begin(memory, mask)

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Append a token to each target; compute that token alone.

        Raises:
            ValueError: if there is not one token for each target.
        """
        check_rows(tokens, len(self.sources))
        return self.run(tokens[:, None])

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Let row i go on from what is now row index[i], cache included."""
        missing = self.shared.reorder(index, self.cache[0].length)
        for layer in self.cache:
            layer.reorder(index, missing)
        self.sources = [self.sources[i] for i in index.tolist()]
        needed = _once(self.sources)
        if needed == self.held:
            return
        rows = index.new_tensor([self.held.index(i) for i in needed])
        for layer in self.cache:
            layer.pick_sources(rows)
        self.held, self.memory = needed, self.memory[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def read(self) -> Float[Tensor, "B V"]:
        """Run the decoder over the start tokens."""
        return self.run(self.targets)

    def run(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Run the decoder over new tokens; logits of the last position."""
        with evaluating(self.modules):
            x = self.model.hidden_states(
                tokens, self.memory, self.mask, cache=self.cache
            )
            return self.model.logits(x[:, -1])


def _once(sources: list[int]) -> list[int]:
    """Each source once, if all have as many targets, side by side."""
    once = [source for source, _ in groupby(sources)]
    each = len(sources) // len(once)
    grouped = [source for source in once for _ in range(each)]
    return once if grouped == sources else sources
