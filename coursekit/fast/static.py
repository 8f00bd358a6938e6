"""Steps of one fixed shape: a cache that a recorded step can use again.

A cache that grows gives every step another shape, and Python decides again
what to launch.  Here the keys and values keep their places in memory, every
step sees all of them, and a mask hides what is not written yet.  Then a step
is the same work each time: it can be recorded once and replayed.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coursekit.cache import CachedStepper, LayerCache, cache_dtype
from coursekit.decoder import GPT
from coursekit.devices import evaluating

Step = Callable[[], Tensor]
"""Reads and writes tensors that it knows; returns logits."""


class WholeLayer:
    """A layer's cache as a step of fixed shape sees it: always whole.

    ``update`` writes one column, which a tensor names, and returns all of
    the buffer.  So a mask must hide the columns that are not filled.

    Args:
        layer: whose buffers it writes and returns.
        column: (1,) where the next key goes; read again at each step.

    Attributes:
        length: as if all columns but one were filled.

    Chapter: 12, generation.
    """

    def __init__(self, layer: LayerCache, column: Int[Tensor, "1"]) -> None:
        self.k, self.v, self.column = layer.k, layer.v, column
        self.length = layer.max_len - 1

    def update(
        self, k: Float[Tensor, "B G 1 Dh"], v: Float[Tensor, "B G 1 Dv"]
    ) -> tuple[Float[Tensor, "B G M Dh"], Float[Tensor, "B G M Dv"]]:
        """Write one key and value; return all of the buffers.

        Args:
            k: (B, G, 1, Dh) the new key.
            v: (B, G, 1, Dv) the new value.

        Returns:
            (B, G, M, Dh) and (B, G, M, Dv), M = the window.
        """
        self.k.index_copy_(2, self.column, k)
        self.v.index_copy_(2, self.column, v)
        return self.k, self.v


class StaticStepper(CachedStepper):
    """Steps a GPT by one recorded step: the logits of :class:`PlainStepper`.

    The prompt is read as :class:`CachedStepper` reads it.  Each later step
    attends to all ``window`` columns, so it pays where starting the work
    costs more than doing it: for small steps on a GPU.

    Args:
        model: as in :class:`PlainStepper`; its weights may change in place,
            but not move.
        window, keep: as in :class:`PlainStepper`.
        record: takes the step, a function without arguments, and returns
            what does the same sooner: :func:`cuda_graph`, or
            ``torch.compile``.  Default: :func:`cuda_graph` on a GPU;
            elsewhere the step runs as it is.

    Raises:
        ValueError: if ``window`` or ``keep`` is out of range.

    Chapter: 12, generation.
    Test: test_static.py::test_the_same_logits_at_every_step
    """

    # What a recorded step reads and writes; `settle` makes it.
    tokens: Int[Tensor, "B 1"]
    column: Int[Tensor, "1"]
    columns: Int[Tensor, "M"]
    first: Int[Tensor, "B 1"]
    whole: Sequence[WholeLayer] = ()
    replay: Step | None = None

    def __init__(
        self,
        model: GPT,
        window: int | None = None,
        keep: int | None = None,
        record: Callable[[Step], Step] | None = None,
    ) -> None:
        super().__init__(model, window, keep)
        self.record = record

    def advance(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Run the recorded step over one new token of each row."""
        filled = self.filled
        for layer in self.cache:
            layer.length = filled + 1
        self.tokens.copy_(tokens[:, None])
        self.column.fill_(filled)
        with evaluating(self.modules):
            if self.replay is None:
                record = self.record or usual_record(self.column.device)
                self.replay = record(self.fixed_step)
            return self.replay()

    def fixed_step(self) -> Float[Tensor, "B V"]:
        """One step of one shape: all that changes stands in tensors."""
        seen = (self.first <= self.columns) & (self.columns <= self.column)
        positions = self.column - self.first
        x = self.model.hidden(
            self.tokens, positions, seen[:, None, None], self.whole
        )
        return self.model.logits(x[:, -1])

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Let row i go on from what is now row index[i], cache included."""
        super().reorder(index)
        self.settle()

    def read(self) -> Float[Tensor, "B V"]:
        """Fill the cache with all rows."""
        logits = super().read()
        self.settle()
        return logits

    def settle(self) -> None:
        """Put what a step reads where it reads it.

        New buffers (another number of rows, say) need a new record.
        """
        if not self.cache:
            return
        held = self.cache[0].k
        first = torch.tensor(self.padding, device=held.device)[:, None]
        if not self.whole or self.whole[0].k is not held:
            rows = held.size(0)
            self.tokens = first.new_zeros(rows, 1)
            self.first = first.new_zeros(rows, 1)
            self.column = first.new_zeros(1)
            self.columns = torch.arange(self.window, device=held.device)
            self.whole = [WholeLayer(c, self.column) for c in self.cache]
            for layer in self.cache:  # hidden, but 0 times NaN is NaN
                layer.k[:, :, layer.length :] = 0
                layer.v[:, :, layer.length :] = 0
            self.replay = None
        self.first.copy_(first)

    def empty_cache(self) -> list[LayerCache]:
        """The same buffers again, if they fit."""
        model = self.model
        device = next(model.parameters()).device
        place = len(self.rows), cache_dtype(model), device
        held = self.whole[0].k if self.whole else None
        if held is None or place != (held.size(0), held.dtype, held.device):
            return super().empty_cache()
        for layer in self.cache:
            layer.length = 0
        return self.cache


def usual_record(device: torch.device) -> Callable[[Step], Step]:
    """A CUDA graph on a GPU; elsewhere nothing."""
    return cuda_graph if device.type == "cuda" else lambda step: step


def cuda_graph(step: Step) -> Step:
    """Record what a step launches on a GPU; replay it by one launch.

    Args:
        step: of fixed shapes, on fixed memory, without a look at a value.

    Returns:
        What does the same on the same memory.  Its result is a copy.

    Raises:
        ValueError: under autocast, unless its cache is off: a graph would
            go on reading rounded weights that are freed.

    Chapter: 12, generation.
    """
    if torch.is_autocast_enabled("cuda") and torch.is_autocast_cache_enabled():
        raise ValueError(
            "a CUDA graph can't keep the weights that autocast rounds: got "
            "autocast with cache_enabled=True. Use model.to(torch.bfloat16), "
            "or autocast with cache_enabled=False."
        )
    # Libraries set themselves up in their first calls, beside the record.
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Tensor:
        graph.replay()
        return result.clone()

    return replay
