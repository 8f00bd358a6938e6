"""Positions: the paper's rows, the algebra they promise, RoPE and ALiBi."""

import math
from types import SimpleNamespace

import pytest
import torch
from compare import close, differ
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from coursekit import positions
from coursekit.config import GPTConfig
from coursekit.positions import (
    SCHEMES,
    Alibi,
    LearnedPositions,
    Positions,
    Rotary,
    SinusoidalPositions,
    alibi_slopes,
    frequencies,
    rotate_pairs,
    sinusoidal,
)

B, H, T, S, D, DH = 2, 3, 5, 7, 22, 14
LAYOUTS = pytest.mark.parametrize("layout", ["interleaved", "halves"])


@pytest.fixture(autouse=True)
def _in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator)


# -- sinusoids ---------------------------------------------------------------


def test_rows_by_the_papers_formula():
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), the cosine next to it."""
    code = sinusoidal(T, D)
    for t in range(T):
        for i in range(D // 2):
            angle = t / 10000 ** (2 * i / D)
            assert code[t, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
            assert code[t, 2 * i + 1] == pytest.approx(
                math.cos(angle), abs=1e-14
            )
    assert code[0].tolist() == [0.0, 1.0] * (D // 2)


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_frequencies_end_where_they_should(base):
    """First 1, last base^(−(d−2)/d), each the same factor below the last.

    Control: an exponent that counts coordinates twice (4i/d) ends near
    1/base², which norms and Gram matrix would not show.
    """
    w = frequencies(D, base)
    assert w.shape == (D // 2,)
    assert w[0] == 1.0
    assert w[-1] == pytest.approx(base ** (-(D - 2) / D), rel=1e-14)
    close(w[1:] / w[:-1], torch.full((D // 2 - 1,), base ** (-2 / D)), 1e-14)
    wrong = base ** (-2 * torch.arange(0, D, 2) / D)
    assert wrong[-1] < 0.01 * w[-1]


@LAYOUTS
def test_every_row_is_as_long(layout):
    """|PE|² = d/2, as sin² + cos² = 1 in each pair."""
    squares = sinusoidal(101, D, layout).square().sum(1)
    close(squares, torch.full((101,), D / 2), 1e-12)


@LAYOUTS
def test_gram_matrix_is_toeplitz(layout):
    """PE(m) · PE(n) = Σ cos((m − n) ω): only the distance counts."""
    code = sinusoidal(31, D, layout)
    steps = torch.arange(31.0)
    distance = steps[:, None] - steps
    expected = (distance[..., None] * frequencies(D)).cos().sum(-1)
    close(code @ code.T, expected, 1e-12)
    # Control: sines alone have no such property.
    sines = sinusoidal(31, D, "halves")[:, : D // 2]
    gram = sines @ sines.T
    differ(gram[1:, 1:], gram[:-1, :-1])


def test_a_shift_is_a_rotation():
    """PE(t + k) = R(k) PE(t), one matrix for all t, and it is orthogonal."""
    k, code = 7, sinusoidal(31, D)
    turn = torch.zeros(D, D)
    for i, w in enumerate(frequencies(D).tolist()):
        c, s = math.cos(k * w), math.sin(k * w)
        block = torch.tensor([[c, s], [-s, c]])
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    close(code[:-k] @ turn.T, code[k:], 1e-12)
    close(turn @ turn.T, torch.eye(D), 1e-12)
    differ(code[: -k - 1] @ turn.T, code[k + 1 :])


def test_layouts_are_one_permutation_apart():
    """halves = interleaved[:, (0, 2, 4, ..., 1, 3, 5, ...)]."""
    order = [*range(0, D, 2), *range(1, D, 2)]
    one, other = sinusoidal(T, D), sinusoidal(T, D, "halves")
    assert torch.equal(one[:, order], other)
    differ(one, other)


def test_sums_are_formed():
    """The modules add row t to token t, or row positions[b, t]."""
    x = noise(B, T, D)
    learned = LearnedPositions(S, D)
    for scheme, table in (
        (SinusoidalPositions(S, D), sinusoidal(S, D)),
        (learned, learned.weight),
    ):
        close(scheme(x, torch.arange(T)), x + table[:T], 1e-14)
        at = torch.tensor([[0, 0, 1, 2, 3], [2, 6, 4, 3, 5]])
        y = scheme(x, at)
        for b in range(B):
            for t in range(T):
                close(y[b, t], x[b, t] + table[at[b, t]], 1e-14)
        assert scheme.in_attention(torch.arange(T), T) == (None, None)
    assert sum(p.numel() for p in learned.parameters()) == S * D
    assert not list(SinusoidalPositions(S, D).state_dict())


def test_odd_sizes():
    with pytest.raises(ValueError, match="got size=7"):
        frequencies(7)
    with pytest.raises(ValueError, match="got size=7"):
        sinusoidal(T, 7)


# -- RoPE --------------------------------------------------------------------


@LAYOUTS
def test_rotation_is_a_complex_product(layout):
    """A pair (a, b) as a + ib, times e^{i t ω}; the length stays."""
    x, w = noise(B, H, T, DH), frequencies(DH)
    y = Rotary(S, DH, layout).rotation(torch.arange(T))(x)
    if layout == "halves":
        z = torch.complex(x[..., : DH // 2], x[..., DH // 2 :])
    else:
        z = torch.complex(x[..., 0::2].clone(), x[..., 1::2].clone())
    z = z * torch.exp(1j * torch.arange(T)[:, None] * w)
    if layout == "halves":
        expected = torch.cat((z.real, z.imag), -1)
    else:
        expected = torch.view_as_real(z).flatten(-2)
    close(y, expected, 1e-13)
    close(y.norm(dim=-1), x.norm(dim=-1), 1e-13)
    assert torch.equal(y[..., 0, :], x[..., 0, :])  # position 0: no turn


def test_halves_equal_transformers():
    """The function that Llama uses in the transformers package."""
    q, k = noise(B, H, T, DH), noise(B, H, T, DH, seed=2)
    at = torch.tensor([[0, 1, 2, 3, 4], [2, 9, 4, 30, 5]])
    angle = (at[..., None] * frequencies(DH)).repeat(1, 1, 2)
    right = apply_rotary_pos_emb(q, k, angle.cos(), angle.sin())
    turn = Rotary(31, DH, "halves").rotation(at)
    close(turn(q), right[0], 1e-13)
    close(turn(k), right[1], 1e-13)
    differ(Rotary(31, DH).rotation(at)(q), right[0])


def scores(rope, q, k, at):
    turn = rope.rotation(at)
    return turn(q) @ turn(k).mT


@LAYOUTS
@pytest.mark.parametrize(
    "at",
    [
        torch.arange(T),
        torch.tensor([0, 1, 4, 9, 11]),
        torch.tensor([[3, 5, 6, 7, 11], [0, 2, 3, 8, 13]]),
    ],
    ids=["contiguous", "gaps", "a row each"],
)
def test_rope_sees_distance_alone(layout, at):
    """Shift all positions by 17: scores stay; change the gaps: they don't."""
    rope = Rotary(47, DH, layout)
    q, k = noise(B, H, T, DH), noise(B, H, T, DH, seed=2)
    before = scores(rope, q, k, at)
    close(scores(rope, q, k, at + 17), before, 1e-12)
    # Controls: other gaps, and positions that are ignored (0, 1, 2, ...).
    differ(scores(rope, q, k, 2 * at), before)
    if at.tolist() != list(range(T)):
        differ(scores(rope, q, k, torch.arange(T)), before)


def test_added_positions_see_more_than_distance():
    """Control: with codes that are added, a shift changes the scores."""
    q, k, table = noise(T, D), noise(T, D, seed=2), sinusoidal(47, D)
    before, after = (
        (q + table[p : p + T]) @ (k + table[p : p + T]).mT for p in (0, 17)
    )
    differ(before, after)


def test_rope_layouts_are_one_permutation_apart():
    """Reordered columns of W_Q and W_K turn one layout into the other."""
    order = [*range(0, DH, 2), *range(1, DH, 2)]
    q, k, at = noise(B, H, T, DH), noise(B, H, T, DH, seed=2), torch.arange(T)
    one = scores(Rotary(S, DH), q, k, at)
    half = Rotary(S, DH, "halves")
    close(scores(half, q[..., order], k[..., order], at), one, 1e-13)
    differ(scores(half, q, k, at), one)


def test_rope_base():
    """A larger base turns the last pair more slowly: base^(−(d−2)/d)."""
    for base in (10000.0, 500000.0):
        x = torch.zeros(1, 1, 2, DH)
        x[..., -2] = 1.0
        y = Rotary(2, DH, base=base).rotation(torch.arange(2))(x)
        angle = torch.atan2(y[0, 0, 1, -1], y[0, 0, 1, -2])
        assert float(angle) == pytest.approx(base ** (-(DH - 2) / DH))


# -- ALiBi -------------------------------------------------------------------


def test_slopes_of_8_heads():
    """Press et al., section 3: for 8 heads 1/2, 1/4, ..., 1/256."""
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(16)[:2].tolist() == [2.0**-0.5, 2.0**-1]
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_slopes_between_powers_of_2():
    """The authors' code: the lower power's slopes, then every other finer.

    For 6 heads: the 4 of H = 4, then the 1st and 3rd of H = 8.
    """
    assert alibi_slopes(6).tolist() == [
        2.0**-2,
        2.0**-4,
        2.0**-6,
        2.0**-8,
        2.0**-1,
        2.0**-3,
    ]
    assert alibi_slopes(12).shape == (12,)
    # Control: the power-of-2 formula put to H = 6 is another set.
    naive = torch.tensor([2 ** (-8 * h / 6) for h in range(1, 7)])
    differ(alibi_slopes(6), naive)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 7, 8, 11, 12, 16])
def test_slopes_equal_transformers(heads):
    """Bloom's biases in the transformers package, for any number of heads."""
    theirs = build_alibi_tensor(
        torch.ones(1, 2), heads, torch.float32
    )  # slope × key position
    close(alibi_slopes(heads), theirs[:, 0, 1].double(), 1e-7)


def test_alibi_bias_cell_by_cell():
    """−slope · |i − j|; the queries are the last T of S positions."""
    alibi = Alibi(8)
    for t, s in ((5, 5), (1, 7), (3, 7)):
        bias = alibi.bias(t, s)
        assert bias.shape == (8, t, s)
        for h in range(8):
            for i in range(t):
                for j in range(s):
                    distance = abs(i + s - t - j)
                    assert bias[h, i, j] == -(2.0 ** -(h + 1)) * distance


# -- the switch --------------------------------------------------------------


def test_schemes():
    """Each is built from a configuration, with what it needs of it."""

    def make(kind):
        return SCHEMES[kind](
            SimpleNamespace(
                max_len=S,
                d_model=D,
                n_heads=H,
                head_size=DH,
                position_layout="halves",
                rope_base=500.0,
            )
        )

    x = noise(B, T, D)
    assert torch.equal(
        make("sinusoidal").code, sinusoidal(S, D, "halves", 500.0)
    )
    assert isinstance(make("learned"), LearnedPositions)
    assert isinstance(make("alibi"), Alibi)
    rope = make("rope")
    assert rope.layout == "halves"
    close(rope.cos[1], frequencies(DH, 500.0).cos(), 1e-15)
    assert type(make("none")) is Positions
    for kind in ("rope", "alibi", "none"):
        assert torch.equal(make(kind)(x, torch.arange(T)), x)
    assert set(SCHEMES) == set(GPTConfig.limits("positions")["choices"])


def test_each_class_is_a_scheme():
    """A new class has an entry in SCHEMES."""
    config = GPTConfig(vocab_size=7)
    built = {type(make(config)).__name__ for make in SCHEMES.values()}
    there = {
        name
        for name, kind in vars(positions).items()
        if isinstance(kind, type) and issubclass(kind, Positions)
    }
    assert built == there


@pytest.mark.parametrize(
    "call",
    [
        lambda: sinusoidal(T, D, "half"),
        lambda: rotate_pairs(
            noise(T, DH), noise(T, DH // 2), noise(T, DH // 2), "half"
        ),
    ],
)
def test_unknown_layout(call):
    with pytest.raises(ValueError, match=r"interleaved, halves: got 'half'"):
        call()
