"""Heads: cut, attend, put together; parity is in test_parity_torch.py."""

import pytest
import torch
from compare import close, differ, shake

from coursekit.attention import attend, fast_attend
from coursekit.masks import causal_mask
from coursekit.multihead import MultiHeadAttention, merge_heads, split_heads

B, T, S, D, H, DH = 2, 5, 7, 21, 3, 7


def make(seed=0, **changes):
    options = {"d_model": D, "n_heads": H} | changes
    return shake(MultiHeadAttention(**options).double(), seed)


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_split_by_hand():
    """Token [0 1 2 3 4 5] with 2 heads: [0 1 2] and [3 4 5]."""
    x = torch.arange(12.0).view(1, 2, 6)
    heads = split_heads(x, 2)
    assert heads.shape == (1, 2, 2, 3)
    assert heads[0, 0].tolist() == [[0, 1, 2], [6, 7, 8]]
    assert heads[0, 1].tolist() == [[3, 4, 5], [9, 10, 11]]
    assert torch.equal(merge_heads(heads), x)


def test_heads_of_no_size_are_refused():
    with pytest.raises(ValueError, match="divisible by the heads: got 6 col"):
        split_heads(torch.zeros(1, 2, 6), 0)
    with pytest.raises(ValueError, match="or a d_head above 0"):
        MultiHeadAttention(D, H, d_head=0)


def test_view_alone_mixes_positions():
    """The round trip of the wrong pair passes too; the heads are wrong."""
    x = torch.arange(12.0).view(1, 2, 6)
    wrong = x.view(1, 2, 2, 3)
    assert torch.equal(wrong.reshape(1, 2, 6), x)
    assert not torch.equal(wrong, split_heads(x, 2))
    heads = split_heads(x, 2)
    assert not torch.equal(heads.reshape(1, 2, 6), merge_heads(heads))


def test_heads_one_by_one():
    """The formula head by head: slices of W_Q, W_K, W_V, then W_O."""
    m, x = make(), noise(B, T, D)
    heads = []
    for h in range(H):
        cut = slice(h * DH, (h + 1) * DH)
        q, k, v = (
            x @ w.weight[cut].mT + w.bias[cut] for w in (m.w_q, m.w_k, m.w_v)
        )
        heads.append((q @ k.mT / DH**0.5).softmax(-1) @ v)
    expected = torch.cat(heads, -1) @ m.w_o.weight.mT + m.w_o.bias
    close(m(x), expected, 1e-12)
    # One big head of the same width is another function.
    one = make(n_heads=1)
    one.load_state_dict(m.state_dict())
    differ(one(x), expected)


def test_attention_function_is_swapped_not_weights():
    """The readable and the fast module have the same state dict."""
    fast, plain = make(attend=fast_attend), make(attend=attend)
    assert list(fast.state_dict()) == list(plain.state_dict())
    for a, b in zip(fast.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
    x = noise(B, T, D)
    close(fast(x, causal=True), plain(x, causal=True), 1e-12)


def test_permutation_equivariance():
    """Without mask and positions, shuffled tokens give shuffled outputs."""
    m, x = make(), noise(B, T, D)
    order = torch.tensor([3, 0, 4, 2, 1])
    close(m(x[:, order]), m(x)[:, order], 1e-12)
    differ(m(x[:, order], causal=True), m(x, causal=True)[:, order])


def test_cross_attention_is_the_same_code():
    m, x, memory = make(), noise(B, T, D), noise(B, S, D, seed=2)
    close(m(x, x), m(x), 1e-12)
    y = m(x, memory)
    assert y.shape == (B, T, D)
    # It reads keys and values from the memory, queries from x.
    differ(m(x, memory.flip(-1)), y)
    differ(m(x.flip(-1), memory), y)
    close(m(x, memory.flip(1)), y, 1e-12)  # a set


def test_grouped_heads_are_repeated_heads():
    """G = 2 of H = 6 equals full heads whose weights are repeated in runs."""
    d = 42
    grouped = make(d_model=d, n_heads=6, n_kv_heads=2)
    full = make(d_model=d, n_heads=6)
    state = grouped.state_dict()
    for name in ("w_k", "w_v"):
        for part in ("weight", "bias"):
            w = state[f"{name}.{part}"]
            w = w.unflatten(0, (2, 7)).repeat_interleave(3, 0).flatten(0, 1)
            state[f"{name}.{part}"] = w
    full.load_state_dict(state)
    x = noise(B, T, d)
    close(grouped(x, causal=True), full(x, causal=True), 1e-12)
    for name in ("w_k", "w_v"):  # control: repeated as tiles instead
        w = grouped.state_dict()[f"{name}.weight"]
        state[f"{name}.weight"] = w.repeat(3, 1)
    full.load_state_dict(state)
    differ(grouped(x, causal=True), full(x, causal=True))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 4 * D * D + 4 * D),
        ({"bias": False}, 4 * D * D),
        ({"n_kv_heads": 1, "bias": False}, 2 * D * D + 2 * D * DH),
        ({"d_head": 11, "bias": False}, 4 * D * H * 11),
        (
            {"d_head": 11, "d_value": 13, "bias": False},
            2 * D * H * 11 + 2 * D * H * 13,
        ),
    ],
)
def test_parameter_count(options, expected):
    m = make(**options)
    assert sum(p.numel() for p in m.parameters()) == expected
    assert m(noise(B, T, D)).shape == (B, T, D)


class Cache:
    """The simplest cache that fits the protocol."""

    def __init__(self):
        self.kv = None

    @property
    def length(self):
        return 0 if self.kv is None else self.kv[0].size(2)

    def update(self, k, v):
        if self.kv is not None:
            k = torch.cat((self.kv[0], k), dim=2)
            v = torch.cat((self.kv[1], v), dim=2)
        self.kv = k, v
        return k, v


def test_one_token_at_a_time_with_a_cache():
    """Chunks of 1, 3 and 1 tokens give what the whole sequence gives."""
    m, x = make(n_kv_heads=1), noise(B, T, D)
    cache = Cache()
    parts = [m(p, causal=True, cache=cache) for p in x.split([1, 3, 1], 1)]
    close(torch.cat(parts, 1), m(x, causal=True), 1e-12)
    differ(m(x[:, 3:], causal=True), m(x, causal=True)[:, 3:])


def test_mask_bias_and_rotation_arrive():
    m, x = make(), noise(B, T, D)
    close(m(x, mask=causal_mask(T)), m(x, causal=True), 1e-12)
    bias = torch.zeros(H, T, T, dtype=torch.float64)
    close(m(x, bias=bias), m(x), 1e-12)
    bias[1] = torch.where(causal_mask(T), 0.0, -1e4)
    differ(m(x, bias=bias), m(x))
    close(m(x, rotate=lambda y: -y), m(x), 1e-12)  # (−q)(−k) = qk
    differ(m(x, rotate=lambda y: 2 * y), m(x))


def test_dropout_only_in_training():
    m, x = make(dropout=0.5), noise(B, T, D)
    differ(m(x), m(x))
    m.eval()
    assert torch.equal(m(x), m(x))
