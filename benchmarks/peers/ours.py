"""coursekit itself, as its user calls it."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.clock import Call
from benchmarks.contest import Model, Settings, Task
from coursekit.config import GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.generation import beam_search, generate
from coursekit.loss import fast_cross_entropy
from coursekit.packed import pack, packed_linear
from coursekit.seq2seq import Transformer
from coursekit.steppers import GPTStepper, Seq2SeqStepper
from coursekit.tokenizer import BPETokenizer


def loss(module: nn.Module, *batch: Tensor) -> Tensor:
    """Mean nats a token; the last of the batch are the targets."""
    *inputs, targets = batch
    return fast_cross_entropy(module(*inputs), targets)


def products(model: GPT | Transformer, n_rows: int) -> Call:
    """One step's products of vectors with weights, and nothing else."""
    groups: list[list[Any]] = []
    block: Any
    for block in model.blocks:
        own, network = block.attention, block.feed_forward
        groups += [[own.w_q, own.w_k, own.w_v], [own.w_o]]
        if isinstance(model, Transformer):
            groups += [[block.cross_attention.w_q]]
            groups += [[block.cross_attention.w_o]]
        groups += [[network.w_in], [network.w_out]]
    groups += [[model.embedding]]
    with torch.no_grad():
        multiply = [packed_linear(n_rows, *group) for group in groups]
        rows = [torch.randn(n_rows, g[0].weight.size(1)) for g in groups]

    def call() -> None:
        with torch.no_grad():
            for product, x in zip(multiply, rows, strict=True):
                product(x)

    return call


def gpt(task: Task, settings: Settings) -> Model:
    """GPT-2's choices, which nanoGPT and transformers share."""
    shape = task.shape
    assert shape is not None
    model = GPT(
        GPTConfig(
            vocab_size=shape.vocab_size,
            max_len=shape.limit,
            d_model=shape.d_model,
            n_heads=shape.n_heads,
            n_layers=shape.n_layers,
            dropout=shape.dropout,
        )
    )

    laid_out = cache(partial(pack, model))  # once, as one would

    def write(ids: Tensor, n: int) -> Tensor:
        stepper = GPTStepper(laid_out(ids.size(0)))
        return torch.tensor(generate(stepper, ids, n))

    of_a_step = partial(products, model)
    # Packed, a step gains nothing from the compiler.
    return Model(model, loss, model, write, write, of_a_step)


def pairs(task: Task, settings: Settings) -> Model:
    """The paper's base shape, with biases, as PyTorch and Marian have."""
    shape = task.shape
    assert shape is not None
    model = Transformer(
        TransformerConfig(
            vocab_size=shape.vocab_size,
            max_len=shape.limit,
            d_model=shape.d_model,
            n_heads=shape.n_heads,
            n_encoder_layers=shape.n_layers,
            n_decoder_layers=shape.n_layers,
            dropout=shape.dropout,
            # As Marian's: a scaled table begins far above ln V.
            scale_embedding=False,
        )
    )

    laid_out = cache(partial(pack, model))

    def write(src: Tensor, n: int, n_beams: int = 1) -> Tensor:
        stepper = Seq2SeqStepper(laid_out(src.size(0) * n_beams), [0])
        if n_beams == 1:
            return torch.tensor(generate(stepper, src, n))
        found = beam_search(stepper, src, n_beams, n)
        return torch.tensor([best[0].tokens for best in found])

    of_a_step = partial(products, model)
    return Model(model, loss, model, write, products=of_a_step)


def learn(task: Task, settings: Settings) -> Callable[[], BPETokenizer]:
    """Byte-level BPE, in Python."""
    return lambda: BPETokenizer.train(task.text, task.size)


def encode(task: Task, settings: Settings) -> Callable[[], list[int]]:
    """Encode as by default, with tiktoken's core if it is installed."""
    tokenizer = BPETokenizer(task.tokens)
    return lambda: tokenizer.encode(task.text)


def encode_alone(task: Task, settings: Settings) -> Callable[[], list[int]]:
    """The package's own Python, without tiktoken."""
    tokenizer = BPETokenizer(task.tokens)
    return lambda: tokenizer.encode(task.text, fast=False)
