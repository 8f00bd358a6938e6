"""The KV cache: what generation need not compute twice.

Under a causal mask no old token sees a new one, so the keys and values of
old tokens never change.  Keep them, and a step costs one token, not all.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coursekit.decoder import GPT
from coursekit.devices import device_of
from coursekit.multihead import KeysValues
from coursekit.seq2seq import Transformer


class LayerCache:
    """Keys and values of one layer, in a buffer made once.

    ``update`` appends to what is there and returns *views of the filled
    part*.  That is why the causal rule "query i sees key j if and only if
    j ≤ i + (S − T)" holds: S counts filled keys.  The rest of the buffer is
    never touched, so a long one costs little.

    RoPE's keys arrive rotated by their own positions, and stay so.

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
            free = buffer.narrow(2, start, n_new)
            if new.shape != free.shape or new.dtype != free.dtype:
                raise ValueError(
                    "new keys and values must fit the cache: got "
                    f"{tuple(new.shape)} {new.dtype} for "
                    f"{tuple(buffer.shape)} {buffer.dtype}. Make the cache "
                    "for this model, batch size and dtype."
                )
            free.copy_(new)
        self.length = stop
        return self.k.narrow(2, 0, stop), self.v.narrow(2, 0, stop)

    def reorder(
        self,
        index: Int[Tensor, "N"],
        missing: tuple[Int[Tensor, "R"], Int[Tensor, "R"], int] | None = None,
    ) -> None:
        """Reorder: row i becomes the present row index[i]; B may change.

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
                lacking = buffer.narrow(2, first, self.length - first)
                copies = lacking.index_select(0, parents)
                lacking.index_copy_(0, rows, copies)


class CrossLayerCache(LayerCache):
    """A layer's cache that also keeps what the layer reads of a source.

    Args: as :class:`LayerCache`.

    Attributes:
        memory: the cross-attention's keys and values, which depend on the
            source alone: stored by the first call, read by all others.

    Chapter: 14, encoder and decoder together.
    """

    memory: KeysValues | None = None

    def pick_sources(self, index: Int[Tensor, "M"]) -> None:
        """Reorder the memory: row i becomes the present row index[i]."""
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
    """Number of leading columns that two rows of a cache share.

    Beams of one text begin alike.  So a row that continues from another one
    needs only the columns that the two do not share: mostly the last few,
    however long the text.

    Args:
        n_rows: B; at first nothing is shared.

    Chapter: 12, generation.
    Test: test_cache.py::test_only_what_is_not_shared_is_copied
    """

    def __init__(self, n_rows: int) -> None:
        self.columns = torch.zeros(
            n_rows, n_rows, dtype=torch.long, device="cpu"
        )

    def reorder(
        self, index: Int[Tensor, "N"], length: int
    ) -> tuple[Int[Tensor, "R"], Int[Tensor, "R"], int] | None:
        """Row i continues from what is now row index[i].

        Args:
            index: (N,) rows.
            length: columns filled so far.

        Returns:
            The rows that continue from another one, these other ones, and the
            first column that any of them lacks; None if B changes.
        """
        all_parents, old = index.cpu(), self.columns
        # Children of one row share all so far; others, what those rows did.
        old.fill_diagonal_(length)
        columns = old.index_select(0, all_parents)
        self.columns = columns.index_select(1, all_parents)
        if len(all_parents) != len(old):
            return None
        own = torch.arange(len(old), device="cpu")
        rows = (all_parents != own).nonzero()[:, 0]
        parents = all_parents[rows]
        first = min(old[rows, parents].tolist(), default=length)
        return rows.to(index.device), parents.to(index.device), first


def make_cache(
    model: GPT | Transformer, batch_size: int, max_len: int | None = None
) -> list[Any]:
    """Make an empty cache for each decoder layer of a model.

    Args:
        model: a GPT or a Transformer.
        batch_size: B, rows.
        max_len: positions, in tokens; default the model's own.

    Returns:
        One :class:`LayerCache` per layer; of a Transformer,
        :class:`CrossLayerCache`.

    Chapter: 12, generation.
    """
    config = model.config
    kind = CrossLayerCache if isinstance(model, Transformer) else LayerCache
    return [
        kind(
            batch_size,
            n_kv_heads=config.kv_heads,
            max_len=config.max_len if max_len is None else max_len,
            d_head=config.head_size,
            d_value=config.d_value,
            dtype=cache_dtype(model),
            device=device_of(model),
        )
        for _ in model.blocks
    ]


def cache_dtype(model: GPT | Transformer) -> torch.dtype:
    """The dtype of a model's keys and values: autocast's where it is on.

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
    """Bytes that the cached keys and values take.

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
