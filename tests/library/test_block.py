"""The block: its two sums by their formulas, and names of saved weights."""

import pytest
import torch
from compare import close, differ

from coursekit.block import Block
from coursekit.config import StackConfig, TransformerConfig
from coursekit.norm import layer_norm
from coursekit.seq2seq import CrossBlock

B, T, S, D, H = 2, 5, 7, 12, 3


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def config(kind=StackConfig, **changes):
    options = {"vocab_size": 11, "d_model": D, "n_heads": H, "dropout": 0.0}
    return kind(**(options | changes))


def sums(block, x, memory=None):
    """A block by its formula, part by part."""
    n = layer_norm
    parts = [lambda y: block.attention(y)]
    if memory is not None:
        parts = [lambda y: block.attention(y, causal=True)]
        parts.append(lambda y: block.cross_attention(y, memory))
    for part in [*parts, block.feed_forward]:
        x = x + part(n(x)) if block.norm_first else n(x + part(x))
    return x


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_is_two_sums(norm_first):
    """Pre: x + f(norm(x)); post: norm(x + f(x))."""
    block, x = Block(config(norm_first=norm_first)).double(), noise(B, T, D)
    close(block(x), sums(block, x), 1e-12)
    block.norm_first = not norm_first
    differ(block(x), sums(Block(config()).double(), x))
    other = block(x)
    block.norm_first = norm_first
    differ(block(x), other)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_cross_block_is_three_sums(norm_first):
    kind = config(TransformerConfig, norm_first=norm_first)
    block, x, memory = (
        CrossBlock(kind).double(),
        noise(B, T, D),
        noise(B, S, D),
    )
    close(block(x, memory), sums(block, x, memory), 1e-12)
    differ(block(x, memory), sums(block, x, memory.flip(1).roll(1, 2)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_without_the_residual_path(norm_first):
    """Only the parts are left."""
    kind = config(norm_first=norm_first, residual=False)
    block, x, n = Block(kind).double(), noise(B, T, D), layer_norm
    if norm_first:
        expected = block.feed_forward(n(block.attention(n(x))))
    else:
        expected = n(block.feed_forward(n(block.attention(x))))
    close(block(x), expected, 1e-12)
    differ(block(x), sums(block, x))


def test_without_a_network():
    block, x = Block(config(d_ff=0)).double(), noise(B, T, D)
    close(block(x), x + block.attention(layer_norm(x)), 1e-12)
    assert block.feed_forward is None


def test_dropout_on_the_parts_alone():
    """p → 1 leaves x; the path itself is never dropped."""
    block, x = Block(config(norm="none")).double(), noise(B, T, D)
    block.dropout.p = 1.0
    assert torch.equal(block(x), x)
    block.eval()
    differ(block(x), x)
