"""attend and fast_attend: against a loop that never touches a hidden key."""

import math

import pytest
import torch
from compare import close, differ
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import (
    LONGEST_PRODUCTS,
    attend,
    attention_weights,
    fast_attend,
)

B, H, G, T, S, DH, DV = 2, 6, 2, 5, 7, 11, 13
BOTH = pytest.mark.parametrize("f", [attend, fast_attend])


def gold(q, k, v, mask=None, causal=False, bias=None):
    """Attention by loops, in float64, each query with its visible keys only.

    What a query may not see is never read, so nothing can leak; no mask
    value, no broadcasting, no shared code.
    """
    q, k, v = q.double(), k.double(), v.double()
    (n, heads, t, size), (_, groups, s, _) = q.shape, k.shape
    allowed = torch.ones(n, heads, t, s, dtype=torch.bool)
    if mask is not None:
        allowed &= mask
    extra = torch.zeros(n, heads, t, s, dtype=torch.float64)
    if bias is not None:
        extra = extra + bias.double()
    out = []
    for b in range(n):
        for h in range(heads):
            g = h * groups // heads
            for i in range(t):
                see = [
                    j
                    for j in range(s)
                    if allowed[b, h, i, j] and (not causal or j <= i + s - t)
                ]
                if not see:
                    out.append(v.new_zeros(v.size(-1)))
                    continue
                score = (k[b, g, see] * q[b, h, i]).sum(-1) / math.sqrt(size)
                share = (score + extra[b, h, i, see]).exp()
                share = share / share.sum()
                out.append((share[:, None] * v[b, g, see]).sum(0))
    return torch.stack(out).view(n, heads, t, -1)


def draw(t=T, s=S, groups=H, strided=False, seed=0):
    """q, k, v; with ``strided`` they are views with swapped axes."""
    generator = torch.Generator().manual_seed(seed)

    def one(heads, length, size):
        shape = (
            (B, length, heads, size) if strided else (B, heads, length, size)
        )
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.transpose(1, 2) if strided else x

    return one(H, t, DH), one(groups, s, DH), one(groups, s, DV)


def padding(s=S):
    """The second sequence has two tokens fewer."""
    mask = torch.ones(B, 1, 1, s, dtype=torch.bool)
    mask[1, ..., -2:] = False
    return mask


def holes(t=T, s=S):
    """A random mask; two queries may attend to nothing at all."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(B, H, t, s, generator=generator) < 0.6
    mask[0, 1, 2] = False
    mask[1, :, 4] = False
    return mask


def slanted(t=T, s=S):
    """A bias like ALiBi's, one slope a head."""
    generator = torch.Generator().manual_seed(4)
    return torch.randn(H, t, s, generator=generator, dtype=torch.float64)


CASES = {
    "square": (draw(T, T), {}),
    "square causal": (draw(T, T), {"causal": True}),
    "T < S": (draw(), {}),
    "T < S causal": (draw(), {"causal": True}),
    "T > S, not causal": (draw(S, T), {}),
    "one query": (draw(1, S), {"causal": True}),
    "one query, one key": (draw(1, 1), {"causal": True}),
    "padding": (draw(), {"mask": padding()}),
    "padding causal": (draw(), {"mask": padding(), "causal": True}),
    "one query, padding": (draw(1, S), {"mask": padding(), "causal": True}),
    "empty rows": (draw(), {"mask": holes()}),
    "empty rows causal": (draw(), {"mask": holes(), "causal": True}),
    "strided": (draw(strided=True), {"mask": padding()}),
    "strided square": (draw(T, T, strided=True), {"causal": True}),
    "grouped": (draw(groups=G), {"causal": True}),
    "grouped empty rows": (draw(groups=G), {"mask": holes()}),
    "one key head": (draw(T, T, groups=1), {"causal": True}),
    "bias": (draw(), {"bias": slanted()}),
    "bias causal": (draw(), {"bias": slanted(), "causal": True}),
    "bias one query": (draw(1), {"bias": slanted(1), "causal": True}),
    "bias grouped": (draw(groups=G), {"bias": slanted(), "mask": padding()}),
    "bias empty rows": (draw(), {"bias": slanted(), "mask": holes()}),
}
EACH = pytest.mark.parametrize("case", CASES)


def run(f, case, dtype):
    """Output and the gradients of q, k, v and bias, in ``dtype``."""
    qkv, options = CASES[case]
    qkv = [x.detach().to(dtype).requires_grad_() for x in qkv]
    options, inputs = dict(options), list(qkv)
    if "bias" in options:
        options["bias"] = options["bias"].to(dtype).requires_grad_()
        inputs.append(options["bias"])
    y = f(*qkv, **options)
    generator = torch.Generator().manual_seed(9)
    up = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    # Rounded like y, so that both precisions get the same upstream gradient.
    up = up.to(dtype).to(y.dtype)
    return [y, *torch.autograd.grad(y, inputs, up)]


# Half precision rounds inputs to 8 or 11 bits; gradients sum a few of them.
HALF = {torch.bfloat16: 3e-2, torch.float16: 4e-3}
EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}


@BOTH
@EACH
@pytest.mark.parametrize("dtype", [*EXACT, *HALF], ids=str)
def test_equal_to_loops(f, case, dtype):
    """Values and all gradients, each precision against a float64 gold."""
    for ours, right in zip(
        run(f, case, dtype), run(gold, case, dtype), strict=True
    ):
        assert ours.dtype == dtype
        assert ours.isfinite().all()
        close(ours.double(), right.double(), (EXACT | HALF)[dtype])


@EACH
def test_readable_equals_fast(case):
    """The two functions agree with each other to 1e-12, gradients too."""
    for a, b in zip(
        run(attend, case, torch.float64),
        run(fast_attend, case, torch.float64),
        strict=True,
    ):
        close(a, b, 1e-12)


@BOTH
def test_equal_to_torch(f):
    """One call of PyTorch's own, with no mask, a mask, and causal T = S."""
    sdpa = F.scaled_dot_product_attention
    q, k, v = draw()
    close(f(q, k, v), sdpa(q, k, v), 1e-12)
    close(f(q, k, v, holes()), sdpa(q, k, v, attn_mask=holes()), 1e-12)
    q, k, v = draw(T, T)
    close(f(q, k, v, causal=True), sdpa(q, k, v, is_causal=True), 1e-12)


@BOTH
def test_empty_rows_are_zero_in_value_and_gradient(f):
    """A query with nothing to see gives 0 and sends no gradient anywhere."""
    y, dq, *_ = run(f, "empty rows", torch.float64)
    for index in ((0, 1, 2), (1, slice(None), 4)):
        assert (y[index] == 0).all()
        assert (dq[index] == 0).all()
    assert (y[0, 0, 0] != 0).all()
    mask = torch.zeros(B, 1, 1, S, dtype=torch.bool)
    inputs = [x.requires_grad_() for x in draw()]
    y = f(*inputs, mask)
    for gradient in torch.autograd.grad(y.sum(), inputs):
        assert (gradient == 0).all()
    for x in inputs:
        x.requires_grad_(False)


@BOTH
@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 7), (1, 7), (2, 3)])
def test_causal_contract(f, t, s):
    """Query i sees key j if and only if j ≤ i + (S − T), one key at a time."""
    q, k, v = draw(t, s)
    before = f(q, k, v, causal=True)
    for j in range(s):
        other = v.clone()
        other[:, :, j] += 1.0
        moved = (f(q, k, other, causal=True) - before).abs().amax((0, 1, 3))
        sees = [bool(moved[i] > 0) for i in range(t)]
        assert sees == [j <= i + s - t for i in range(t)]


@BOTH
def test_more_queries_than_keys_cannot_be_causal(f):
    with pytest.raises(ValueError, match=r"T=7 queries and S=5 keys"):
        f(*draw(7, 5), causal=True)


def test_weights_are_shares():
    """Each row sums to 1, or is all 0; what is hidden weighs exactly 0."""
    q, k, _ = draw(groups=G)
    weights = attention_weights(q, k, holes())
    assert (weights[~holes()] == 0).all()
    total = weights.sum(-1)
    empty = ~holes().any(-1)
    close(total[~empty], torch.ones_like(total[~empty]), 1e-12)
    assert empty.sum() == 7
    assert (total[empty] == 0).all()


def test_two_words_by_hand():
    """q = k = [[1, 0], [0, 1]]: scores 1/√2 and 0, weights e^.7071 : 1."""
    x = torch.eye(2, dtype=torch.float64)
    a = math.exp(1 / math.sqrt(2))
    expected = torch.tensor([[a, 1], [1, a]], dtype=torch.float64) / (a + 1)
    close(attention_weights(x, x), expected, 1e-15)
    assert round(float(expected[0, 0]), 4) == 0.6698
    close(attend(x, x, x), expected, 1e-15)
    close(fast_attend(x, x, x), expected, 1e-15)


def test_the_ratio_of_two_weights_depends_on_their_own_keys():
    """The other keys take the same share from both."""

    def ratio(*keys):
        row = attention_weights(q, torch.cat(keys))[0]
        return row[0] / row[1]

    q, k, other = (torch.randn(n, 7, dtype=torch.float64) for n in (1, 5, 3))
    expected = (q[0] @ (k[0] - k[1]) / 7**0.5).exp()
    close(ratio(k), expected, 1e-12)
    close(ratio(k[:2], other), expected, 1e-12)
    differ(ratio(other[:1], k[1:]), expected)  # the control


@BOTH
def test_keys_are_a_set(f):
    """Shuffling keys and values together changes nothing."""
    q, k, v = draw()
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    close(f(q, k[:, :, order], v[:, :, order]), f(q, k, v), 1e-12)
    differ(f(q, k, v[:, :, order]), f(q, k, v))


@pytest.mark.parametrize("n_keys", [3, 17])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_is_shown_by_the_readable_function(place, n_keys):
    """The fused one hides it in a query, on a CPU, where keys are few."""
    # Values as wide as the keys: for others PyTorch has no fused kernel.
    inputs = [x[..., :DH].float() for x in draw(T, n_keys)]
    inputs[place][0, 0, 1, 0] = math.nan
    shown, fused = (f(*inputs)[0, 0, 1].isnan() for f in (attend, fast_attend))
    assert shown.any()
    if n_keys == 17 or place > 0:
        assert torch.equal(fused, shown)
    else:  # as its docstring says
        assert (fast_attend(*inputs)[0, 0, 1] == 0).all()


def test_nan_in_a_masked_key_is_hidden_by_the_readable_function():
    q, k, v = (x[..., :DH] for x in draw())
    k[:, :, 2] = math.nan
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[:, 2] = False
    assert attend(q, k, v, mask).isfinite().all()
    assert fast_attend(q, k, v, mask).isnan().all()  # as its docstring says


@BOTH
def test_huge_scores_stay_finite(f):
    q, k, v = draw()
    y = f(1e4 * q, k, v, causal=True)
    assert y.isfinite().all()


@BOTH
def test_dropout_keeps_the_mean(f):
    """Weights are dropped and the rest scaled up: p = 0.5, mean kept."""
    torch.manual_seed(0)
    q = k = torch.zeros(1, 1, 2000, 2)
    v = torch.ones(1, 1, 2000, 1)
    y = f(q, k, v, dropout_p=0.5)
    assert abs(float(y.mean()) - 1.0) < 0.01
    assert float(y.std()) > 0.01  # it is not the plain mean
    assert float(f(q, k, v).std()) < 1e-5


@BOTH
def test_preallocated_cache(f):
    """S counts filled keys: a view of the filled part, or an explicit mask.

    The control passes the whole buffer with ``causal=True``: the queries are
    then taken for its last positions, and see what was never written.
    """
    filled, room = 7, 11
    q, k, v = draw(3, filled)
    right = f(q, k, v, causal=True)
    keys = torch.full((B, H, room, DH), 7.0, dtype=torch.float64)
    values = torch.full((B, H, room, DV), 7.0, dtype=torch.float64)
    keys[:, :, :filled], values[:, :, :filled] = k, v
    view = f(q, keys[:, :, :filled], values[:, :, :filled], causal=True)
    close(view, right, 1e-12)
    position = torch.arange(filled - 3, filled)
    mask = torch.arange(room) <= position[:, None]
    close(f(q, keys, values, mask), right, 1e-12)
    differ(f(q, keys, values, causal=True), right)


@BOTH
def test_unequal_lengths_left_padded(f):
    """A short sequence, padded on the left, gets what it gets alone."""
    q, k, v = draw(T, T)
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[1, ..., :2] = False
    y = f(q, k, v, mask, causal=True)
    alone = f(q[1:, :, 2:], k[1:, :, 2:], v[1:, :, 2:], causal=True)
    close(y[1:, :, 2:], alone, 1e-12)
    differ(f(q, k, v, causal=True)[1:, :, 2:], alone)


# -- negative controls: the checks above would catch these -------------------


def test_is_causal_is_top_left():
    """PyTorch's flag is another mask when T ≠ S."""
    q, k, v = draw()
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    differ(theirs, gold(q, k, v, causal=True))


@pytest.mark.parametrize("dtype", [torch.float64, *HALF], ids=str)
@pytest.mark.parametrize("bug", ["no scale", "dim -2", "scale by Dh"])
def test_wrong_attention_is_seen(bug, dtype):
    """Each common mistake is further off than the tolerance, in bf16 too."""
    q, k, v = (x.to(dtype) for x in draw())
    scores = q @ k.mT / (1 if bug == "no scale" else math.sqrt(DH))
    scores = scores / math.sqrt(DH) if bug == "scale by Dh" else scores
    y = scores.softmax(-2 if bug == "dim -2" else -1) @ v
    tolerance = ({torch.float64: 1e-12} | HALF)[dtype]
    differ(y.double(), gold(q, k, v), by=5 * tolerance)


def test_wrong_group_order_is_seen():
    """Query head h belongs to key head h // (H/G), not h mod G."""
    q, k, v = draw(groups=G)
    tiled = attend(q, k.repeat(1, H // G, 1, 1), v.repeat(1, H // G, 1, 1))
    differ(tiled, gold(q, k, v))


def test_minus_a_billion_is_not_a_mask():
    """Adding −1e9 in float64 gives an empty row its softmax back: a leak.

    ``masked_fill(-1e9)`` makes the same row uniform, and −inf makes it NaN.
    """
    q, k, v = draw()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    scores = q @ k.mT / math.sqrt(DH)
    added = (scores + torch.where(mask, 0.0, -1e9)).softmax(-1) @ v
    close(added[:, :, 2], gold(q, k, v)[:, :, 2], 1e-6)
    filled = scores.masked_fill(~mask, -1e9).softmax(-1) @ v
    close(filled[:, :, 2], v.mean(2), 1e-12)
    infinite = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
    assert infinite[:, :, 2].isnan().all()
    assert (attend(q, k, v, mask)[:, :, 2] == 0).all()
    with pytest.raises(RuntimeError):
        scores.half().masked_fill(~mask, -1e9)


# -- two products in place of PyTorch's fused call ---------------------------
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_keys", [17, 23])
def test_products_equal_the_readable_function(causal, n_keys):
    torch.manual_seed(0)
    shapes = [(2, 3, 17, 5), (2, 3, n_keys, 5), (2, 3, n_keys, 7)]
    gold = [torch.randn(s, dtype=torch.float64) for s in shapes]
    leaves = [x.clone().requires_grad_() for x in gold]
    expected = attend(*leaves, causal=causal)
    pull = torch.randn_like(expected)
    (expected * pull).sum().backward()
    half = [x.bfloat16().requires_grad_() for x in gold]
    with torch.autocast("cpu", torch.bfloat16):
        found = fast_attend(*half, causal=causal)
    assert found.dtype == torch.bfloat16
    (found * pull.bfloat16()).sum().backward()
    # A number of bfloat16 is known to 1/256 of itself.
    torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.03)
    for ours, theirs in zip(half, leaves, strict=True):
        torch.testing.assert_close(
            ours.grad.double(), theirs.grad, rtol=0.1, atol=0.06
        )


def test_products_are_taken_where_they_are_quicker(monkeypatch):
    fused = []
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *args, **options: fused.append(options) or args[0],
    )
    q = torch.randn(2, 3, 17, 5)
    half = q.bfloat16().requires_grad_()
    long = torch.randn(1, 1, LONGEST_PRODUCTS + 1, 5)
    for case, expected in [
        ((q, {}), 0),
        ((q, {"dropout_p": 0.1}), 1),
        ((half, {}), 1),
        ((half.detach(), {}), 0),
        ((half, {"mask": torch.ones(17, 17, dtype=torch.bool)}), 0),
        ((long, {"dropout_p": 0.1}), 0),
    ]:
        x, options = case
        fused.clear()
        fast_attend(x, x, x, **options)
        assert len(fused) == 1 - expected, options


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_in_products_keeps_what_is_expected(causal):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 11, 5).unbind()
    many = [x.expand(3000, -1, -1, -1) for x in (q, k, v)]
    mean = fast_attend(*many, causal=causal, dropout_p=0.3).mean(dim=0)
    expected = attend(q, k, v, causal=causal)[0]
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.08)
