"""Counts against PyTorch's own, against sums by hand, and against models."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from coursekit.attention import attend, fast_attend
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    StackConfig,
    TransformerConfig,
)
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.positions import alibi_slopes
from coursekit.saved_models import shapes_only
from coursekit.scaling import (
    ByteCounter,
    block_attend,
    count_parameters,
    forward_flops,
    meta_model,
    saved_bytes,
)

V, T, D, L = 53, 11, 20, 3
GPT3 = {"d_model": 12_288, "n_heads": 96, "n_layers": 96, "max_len": 2048}


def config(kind=GPTConfig, **changes):
    sizes = {"vocab_size": V, "max_len": T, "d_model": D, "n_heads": 5}
    return kind(**sizes | {"n_layers": L} | changes)


# -- parameters --------------------------------------------------------------
class Drawn(TorchDispatchMode):
    """The random operations that reach PyTorch."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names |= {n for n in ("normal", "uniform") if n in str(func)}
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("kind", [GPTConfig, EncoderConfig])
def test_a_model_for_its_shapes_draws_no_numbers(kind):
    with Drawn() as drawn:
        model = meta_model(config(kind))
    assert drawn.names == set()
    real = (GPT if kind is GPTConfig else Encoder)(config(kind))
    for (name, ours), theirs in zip(
        model.named_parameters(), real.parameters(), strict=True
    ):
        assert ours.is_meta, name
        assert ours.shape == theirs.shape, name


def test_without_it_numbers_would_be_drawn():
    with Drawn() as drawn, torch.device("meta"):
        GPT(config())
    assert drawn.names == {"normal", "uniform"}
    with shapes_only():
        assert nn.Linear(3, 2).weight.is_meta
    assert torch.empty(2).normal_().isfinite().all()


def test_parameters_by_hand():
    counts = count_parameters(GPT(config(d_ff=31, tie_embeddings=False)))
    assert counts == {
        "tokens": V * D,
        "positions": T * D,
        "attention": L * (4 * D * D + 4 * D),
        "network": L * (2 * D * 31 + 31 + D),
        "norms": (2 * L + 1) * 2 * D,
        "head": V * D,
    }
    assert count_parameters(GPT(config()))["head"] == 0  # tied: counted once


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({"d_model": 768, "n_heads": 12, "n_layers": 12}, 124_439_808),
        (GPT3, 174_604_259_328),
    ],
)
def test_published_models_to_the_unit(changes, total):
    sizes = {"vocab_size": 50_257, "max_len": 1024} | changes
    assert sum(count_parameters(meta_model(config(**sizes))).values()) == total


def test_gpt3_as_the_films_count():
    model = meta_model(config(vocab_size=50_257, **GPT3))
    matrices = [p.numel() for p in model.blocks.parameters() if p.dim() > 1]
    table = count_parameters(model)["tokens"]
    assert table == 617_558_016
    assert sum(matrices) + 2 * table == 175_181_291_520


@pytest.mark.parametrize(
    "made",
    [
        config(positions="rope", activation="swiglu", bias=False),
        config(EncoderConfig, embedding_norm=True),
        TransformerConfig(vocab_size=V, d_model=D, n_heads=5),
    ],
)
def test_no_parameter_is_lost(made):
    model = meta_model(made)
    assert all(p.is_meta for p in model.parameters())
    counted = sum(count_parameters(model).values())
    assert counted == sum(p.numel() for p in model.parameters()) > 0


def test_the_paper_by_part():
    base = count_parameters(meta_model(TransformerConfig.paper_base()))
    assert base["attention"] == 18 * 4 * 512**2  # 18 modules, no biases
    assert sum(base.values()) == 63_045_632


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match=r"got a StackConfig.*GPTConfig"):
        meta_model(StackConfig(vocab_size=V))
    with pytest.raises(ValueError, match=r"got 'weight'"):
        count_parameters(nn.Linear(3, 5))


# -- FLOPs -------------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_heads": 4, "n_kv_heads": 2, "positions": "rope", "d_head": 6},
        {"d_value": 7, "d_ff": 31, "tie_embeddings": False},
        {"activation": "swiglu", "bias": False, "positions": "none"},
        {"d_ff": 0},
    ],
)
def test_flops_are_pytorchs(changes):
    made = config(**changes)
    model = GPT(made, attend)  # the counter does not know the CPU's kernel
    with FlopCounterMode(display=False) as counter:
        loss = model(torch.zeros(1, T, dtype=torch.long)).sum()
    forward = counter.get_total_flops()
    assert sum(forward_flops(made, T).values()) == forward
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() == 2 * forward


def test_an_encoder_has_no_head():
    made = config(EncoderConfig)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Encoder(made, attend)(torch.zeros(1, T, dtype=torch.long))
    flops = forward_flops(made, T)
    assert flops["head"] == 0
    assert sum(flops.values()) == counter.get_total_flops()


def test_blocks_need_a_sixth_more_or_half():
    """Forward 2 products, backward 5 instead of 4; causal tiles are left."""
    for causal in (False, True):
        counts = []
        for attention in (attend, block_attend):
            q = torch.zeros(1, 1, 1024, 8, requires_grad=True)
            with FlopCounterMode(display=False) as counter:
                attention(q, q, q, causal=causal).sum().backward()
            counts.append(counter.get_total_flops() / (2 * 1024**2 * 8))
        assert counts == [6, 7 * 36 / 64 if causal else 7]


def test_scores_are_quadratic_and_the_rest_is_not():
    short, long = (forward_flops(config(), n) for n in (T, 3 * T))
    assert long["scores"] == 9 * short["scores"]
    for part in ("projections", "network", "head"):
        assert long[part] == 3 * short[part]


# -- bytes -------------------------------------------------------------------
def test_bytes_by_hand():
    x, w = torch.ones(3, 5), torch.ones(5, 7)
    with ByteCounter() as counter:
        y = x @ w  # reads 15 + 35, writes 21
    assert (counter.moved, counter.largest) == (4 * 71, 4 * 21)
    with ByteCounter() as counter:
        y.T[1:, None].expand(6, 9, 3)  # views are free
    assert (counter.moved, counter.largest) == (0, 0)
    with ByteCounter() as counter:
        y.add_(torch.ones(1).expand(3, 7))  # reads 21 + 1, writes 21 + 1
    assert counter.moved == 4 * (21 + 1 + 21 + 1)
    with ByteCounter() as counter:
        x * x  # one tensor, read once
    assert counter.moved == 4 * 30


def test_saved_bytes_by_hand():
    layer = nn.Linear(5, 7)
    x = torch.ones(3, 5, requires_grad=True)
    # The product keeps x and its own weight; the tanh keeps its output.
    kept = saved_bytes(lambda: layer(x).tanh().sum(), layer)
    assert kept == 4 * (3 * 5 + 3 * 7)
    assert saved_bytes(lambda: layer(x).tanh().sum(), nn.ReLU()) == kept + (
        4 * 5 * 7
    )


# -- attention in blocks -----------------------------------------------------
def inputs(n_queries, n_keys, n_heads=6, n_kv_heads=6):
    g = torch.Generator().manual_seed(0)
    shapes = [
        (2, n_heads, n_queries, 4),
        (2, n_kv_heads, n_keys, 4),
        (2, n_kv_heads, n_keys, 3),
    ]
    made = [torch.randn(s, generator=g, dtype=torch.float64) for s in shapes]
    return [x.requires_grad_() for x in made]


def gap(tensors, size, **choices):
    """How far outputs and gradients are from those of `attend`."""
    results = []
    for attention in (
        attend,
        lambda *x, **c: block_attend(*x, **c, size=size),
    ):
        out = attention(*tensors, **choices)
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype)
        loss = (out.flatten() * weights).sum()
        results.append([out, *torch.autograd.grad(loss, tensors)])
    pairs = zip(*results, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize("size", [1, 3, 4, 128])
@pytest.mark.parametrize("shape", [(7, 7), (5, 11), (1, 7), (11, 5)])
def test_blocks_equal_attend(shape, size):
    tensors = inputs(*shape)
    g = torch.Generator().manual_seed(1)
    mask = torch.rand(2, 1, *shape, generator=g) > 0.4
    mask[0, :, 0] = False  # a query that sees nothing
    mask[1, :, :, 0] = False  # a key that nobody sees
    assert gap(tensors, size) < 1e-12
    assert gap(tensors, size, mask=mask) < 1e-12
    if shape[0] <= shape[1]:
        assert gap(tensors, size, causal=True) < 1e-12
        assert gap(tensors, size, mask=mask, causal=True) < 1e-12


def test_empty_rows_are_zero_in_value_and_gradient():
    q, k, v = inputs(5, 7)
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    out = block_attend(q, k, v, mask, size=3)
    assert (out[:, :, 2] == 0).all()
    assert (out[:, :, 3] != 0).all()
    dq, dk, _ = torch.autograd.grad(out.sum(), (q, k, v))
    assert (dq[:, :, 2] == 0).all()
    assert dq.isfinite().all()
    assert dk.isfinite().all()


def test_shared_heads_biases_and_large_scores():
    tensors = inputs(7, 7, 6, 2)
    assert gap(tensors, 3, causal=True) < 1e-12
    offsets = torch.arange(7) - torch.arange(7)[:, None]
    bias = alibi_slopes(6)[:, None, None].double() * offsets
    assert gap(tensors, 3, causal=True, bias=bias) < 1e-12
    q, k, v = inputs(7, 7)
    huge = [(1e3 * x).detach().requires_grad_() for x in (q, k)]
    assert gap([*huge, v], 2) < 1e-9
    low = [(-1e3 * q.abs()).detach(), (1e3 * k.abs()).detach(), v.detach()]
    assert gap([x.requires_grad_() for x in low], 2) < 1e-9


def test_gradients_by_finite_differences():
    def function(q, k, v):
        return block_attend(q, k, v, causal=True, size=2)

    tensors = [x[:1, :1].detach().requires_grad_() for x in inputs(3, 5)]
    assert torch.autograd.gradcheck(function, tensors)


def test_a_forgotten_rescaling_would_be_seen():
    """The control: sums against different maxima are far off."""
    q, k, v = (x.detach() for x in inputs(5, 7))
    parts = [(k[..., :4, :], v[..., :4, :]), (k[..., 4:, :], v[..., 4:, :])]
    total, mixed = 0, 0
    for keys, values in parts:
        scores = q @ keys.mT / 2
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        total = total + weights.sum(-1, keepdim=True)
        mixed = mixed + weights @ values
    assert (mixed / total - attend(q, k, v)).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_float32(dtype):
    exact = [x.detach() for x in inputs(7, 61)]
    half = [x.to(dtype) for x in exact]
    gold = attend(*(x.double() for x in half))
    out = block_attend(*half, size=5)
    assert out.dtype == dtype
    # One rounding at the end, no more.
    assert (out.double() - gold).abs().max() <= (
        gold.abs().max() * torch.finfo(dtype).eps
    )
    with torch.autocast("cpu", torch.bfloat16):
        mixed = block_attend(*(x.float() for x in exact), size=5)
    assert (mixed - attend(*exact)).abs().max() < 1e-5


def test_a_model_takes_it_and_autograd_keeps_no_table():
    made = config(max_len=64)
    torch.manual_seed(0)
    plain = GPT(made, attend).double()
    blocks = GPT(made, block_attend).double()
    blocks.load_state_dict(plain.state_dict())
    ids = torch.arange(64)[None] % V
    assert torch.allclose(plain(ids), blocks(ids), rtol=0, atol=1e-12)
    table = 5 * 64 * 64 * 8
    kept = [saved_bytes(lambda m=m: m(ids).sum(), m) for m in (plain, blocks)]
    assert kept[0] - kept[1] > L * table


def test_a_long_context_builds_no_square():
    q = torch.zeros(1, 1, 2048, 8, device="meta")
    for attention, wanted in ((attend, True), (block_attend, False)):
        with ByteCounter() as counter:
            attention(q, q, q, causal=True)
        assert (counter.largest >= 4 * 2048**2) == wanted
    x = torch.randn(1, 1, 4096, 8)
    with torch.profiler.profile(profile_memory=True) as profile:
        fast_attend(x, x, x, causal=True)
    taken = sum(max(0, e.self_cpu_memory_usage) for e in profile.events())
    assert 0 < taken < 4 * 4096**2 / 8


def test_what_blocks_cannot_do_is_refused():
    q, k, v = inputs(5, 7)
    for choices, said in (
        ({"dropout_p": 0.5}, r"dropout_p=0\.5"),
        ({"size": 0}, "size=0"),
        ({"bias": torch.zeros(5, 7, requires_grad=True)}, "bias"),
    ):
        with pytest.raises(ValueError, match=said):
            block_attend(q, k, v, **choices)
    with pytest.raises(ValueError, match="T=7 queries and S=5 keys"):
        block_attend(*inputs(7, 5), causal=True)
    with pytest.raises(ValueError, match="boolean"):
        block_attend(q, k, v, torch.zeros(5, 7))


# -- the loss in chunks -----------------------------------------------------
def test_the_logits_never_exist_together():
    model = meta_model(config(vocab_size=997))
    ids = torch.zeros(1, T, dtype=torch.long, device="meta")
    all_logits = 4 * 997 * T
    for chunks, wanted in ((False, True), (True, False)):
        with ByteCounter() as counter:
            x = model.hidden(ids)
            if chunks:
                # By hand, without the backward pass.
                for part in x[0].split(2):
                    model.logits(part)
            else:
                model.logits(x)
        assert (counter.largest >= all_logits) == wanted
