"""Quantization: torch's own rounding, half a step, bytes that are counted."""

import copy

import pytest
import torch
from torch import nn

from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.quantize import (
    Int4Linear,
    Quantized,
    dequantize,
    from_int4,
    matrices,
    quantize,
    quantized_bytes,
    quantized_copy,
    to_int4,
)
from coursekit.weights import round_weights


@pytest.fixture
def weights():
    g = torch.Generator().manual_seed(3)
    return torch.randn(5, 22, generator=g)


@pytest.fixture
def model():
    torch.manual_seed(7)
    sizes = {"d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2}
    return GPT(GPTConfig(vocab_size=13, max_len=11, **sizes)).eval()


def test_the_row_of_the_page():
    """By hand: 7 steps of 0.1, and 0.33 is 3.3 of them."""
    row = torch.tensor([[0.7, -0.33, 0.08, -0.21]])
    whole, steps = quantize(row, bits=4)
    assert whole.tolist() == [[7, -3, 1, -2]]
    assert steps.item() == pytest.approx(0.1)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group_size", [None, 11, 2])
def test_rounding_is_that_of_torch(weights, bits, group_size):
    """`fake_quantize` of torch, a channel for each of our groups."""
    quantized = quantize(weights, bits, group_size)
    groups = weights.reshape(quantized.steps.numel(), -1)
    most = 2 ** (bits - 1) - 1
    expected = torch.fake_quantize_per_channel_affine(
        groups,
        quantized.steps.flatten(),
        torch.zeros(len(groups), dtype=torch.int32),
        *(0, -most, most),
    )
    found = dequantize(quantized)
    torch.testing.assert_close(found, expected.view(5, 22))
    assert int(quantized.whole.abs().max()) == most


@pytest.mark.parametrize(("bits", "group_size"), [(8, None), (4, 11), (3, 2)])
def test_half_a_step_at_most(weights, bits, group_size):
    quantized = quantize(weights, bits, group_size)
    off = (dequantize(quantized) - weights).view(*quantized.steps.shape, -1)
    half = quantized.steps[..., None] / 2
    assert bool((off.abs() <= half * (1 + 1e-5)).all())
    assert bool((off.abs() > half / 2).any())


def test_an_outlier_costs_its_group_alone(weights):
    spoiled = weights.clone()
    spoiled[2, 3] = 100.0
    off = (dequantize(quantize(spoiled, 4, 11)) - spoiled).abs()
    # Steps of 100 / 7: all that shares the group becomes 0.
    assert bool((dequantize(quantize(spoiled, 4, 11))[2, 4:11] == 0).all())
    before = (dequantize(quantize(weights, 4, 11)) - weights).abs()
    torch.testing.assert_close(off[2, 11:], before[2, 11:])
    whole_row = dequantize(quantize(spoiled, 4))[2]
    assert bool((whole_row[4:] == 0).all())


def test_eight_bits_per_row_are_those_of_a_file(model):
    ours = quantized_copy(model)
    before = [p.clone() for p in model.parameters()]
    theirs = quantized_copy(model)  # a copy; the model itself is untouched
    round_weights(model)
    for a, b, c, d in zip(
        ours.parameters(),
        theirs.parameters(),
        model.parameters(),
        before,
        strict=True,
    ):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert (a.dim() > 1) == (not torch.equal(c, d))


def test_a_matrix_is_rounded_however_it_lies_in_memory():
    torch.manual_seed(2)
    plain = nn.Conv2d(3, 5, 2)
    lies_otherwise = nn.Conv2d(3, 5, 2).to(memory_format=torch.channels_last)
    lies_otherwise.load_state_dict(plain.state_dict())
    right = quantized_copy(plain, 3).weight
    assert torch.equal(quantized_copy(lies_otherwise, 3).weight, right)
    assert not torch.equal(right, plain.weight)


def test_fewer_bits_and_larger_groups_err_more(weights):
    def error(bits, size):
        off = dequantize(quantize(weights, bits, size)) - weights
        return off.square().mean().item()

    by_bits = [error(bits, None) for bits in range(2, 9)]
    assert by_bits == sorted(by_bits, reverse=True)
    by_size = [error(4, size) for size in (2, 11, 22)]
    assert by_size == sorted(by_size)


def in_four_bits(model):
    """A copy whose linear layers are stored in groups of four."""
    copied = copy.deepcopy(model)
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Int4Linear(child, 4))
    return copied


def test_bytes_are_those_of_what_is_stored(model):
    packed = in_four_bits(model)
    stored = sum(
        m.numbers.nbytes + m.steps.nbytes
        for m in packed.modules()
        if isinstance(m, Int4Linear)
    )
    linear = [m for m in model.modules() if type(m) is nn.Linear]
    n_linear = sum(m.weight.numel() for m in linear)
    assert stored == n_linear // 2 + n_linear // 4 * 4
    others = sum(w.nbytes for _, w in matrices(model)) - 4 * n_linear
    counted = quantized_bytes(model, 4, 4)
    of_others = others // 4 // 2 + others // 4 // 4 * 4
    vectors = 4 * sum(p.numel() for p in model.parameters() if p.dim() < 2)
    assert counted == stored + of_others + vectors
    # Without groups there is one step for each row; float16 halves them.
    rows = sum(len(w) for _, w in matrices(model))
    assert quantized_bytes(model, 8, None, 4) - quantized_bytes(
        model, 8, None, 2
    ) == (2 * rows)


def test_two_numbers_share_a_byte():
    whole = torch.arange(-8, 8).view(2, 8).to(torch.int8)
    packed = to_int4(whole)
    assert packed[0].tolist() == [0 + 16 * 1, 2 + 16 * 3, 4 + 80, 6 + 112]
    assert torch.equal(from_int4(packed), whole)


def test_a_model_in_four_bits_computes_the_same(model):
    """As a copy with the same rounding, its embeddings left as they are."""
    ids = torch.arange(10).view(2, 5)
    rounded = quantized_copy(model, 4, 4)
    rounded.embedding.load_state_dict(model.embedding.state_dict())
    rounded.positions.load_state_dict(model.positions.state_dict())
    torch.testing.assert_close(in_four_bits(model)(ids), rounded(ids))
    assert not torch.allclose(rounded(ids), model(ids), atol=1e-3)


def test_whole_numbers_alone_are_no_weights(weights):
    """The control: steps of another group are noticed."""
    whole, steps = quantize(weights, 4, 2)
    wrong = dequantize(Quantized(whole, steps.roll(1, dims=1)))
    assert (wrong - weights).abs().max() > steps.max()


@pytest.mark.parametrize(
    ("bits", "group_size"), [(1, None), (9, None), (4, 3), (4, 0), (4, 44)]
)
def test_sizes_that_do_not_fit_are_refused(weights, bits, group_size):
    with pytest.raises(ValueError, match="divides a row of 22: got bits="):
        quantize(weights, bits, group_size)


@pytest.mark.parametrize("shape", [(2, 3), (2, 4)])
def test_what_does_not_fit_into_four_bits_is_refused(shape):
    whole = torch.full(shape, 8, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"entries in −8\.\.7: got"):
        to_int4(whole)
