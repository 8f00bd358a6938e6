"""Block and GPT: counts, causality, start, gradients, switches, compile."""

import math
import subprocess
from pathlib import Path

import forked
import pytest
import torch
from compare import close, differ, shake
from torch import nn

from coursekit.attention import attend
from coursekit.block import Block
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.positions import SCHEMES

B, T, S, V, D, H, L = 2, 5, 7, 31, 42, 3, 2


def make(seed=0, attend=None, **changes):
    torch.manual_seed(seed)
    options = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": L}
    options |= {"max_len": 11} | changes
    config = GPTConfig(**options)
    return GPT(config) if attend is None else GPT(config, attend)


def ids(length=S, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (B, length), generator=generator)


def count(model):
    return sum(p.numel() for p in model.parameters())


# -- parameters --------------------------------------------------------------


def test_gpt2_small_has_124_million():
    """Radford et al.'s smallest model, counted: 124,439,808."""
    with torch.device("meta"):
        model = GPT(
            GPTConfig(
                vocab_size=50257,
                max_len=1024,
                d_model=768,
                n_heads=12,
                n_layers=12,
            )
        )
    assert count(model) == 124_439_808


def test_count_by_formula():
    """V D + P D + L (4 D² + 4 D + 2 D Dff + Dff + D + 4 D) + 2 D."""
    block = 4 * D * D + 4 * D + 8 * D * D + 5 * D + 4 * D
    assert count(make()) == V * D + 11 * D + L * block + 2 * D
    # The switches take away or add exactly their own part.
    full = count(make())
    network = 8 * D * D + 5 * D + 2 * D
    for changes, extra in (
        ({"n_layers": L + 1}, block),
        ({"tie_embeddings": False}, V * D),
        ({"final_norm": False}, -2 * D),
        ({"norm": "rmsnorm"}, -(2 * L + 1) * D),
        ({"norm": "none"}, -(2 * L + 1) * 2 * D),
        ({"d_ff": 0}, -L * network),
        ({"d_ff": 13}, L * (2 * D * 13 + 13 - 8 * D * D - 4 * D)),
        ({"bias": False}, -L * (9 * D + 2 * D) - D),
        ({"attention_bias": False}, -L * 4 * D),
        ({"positions": "rope"}, -11 * D),
        ({"activation": "swiglu"}, L * (4 * D * D + 4 * D)),
        ({"n_kv_heads": 1}, -L * 2 * (D * 28 + 28)),
        ({"residual": False}, 0),
        ({"norm_first": False}, 0),
    ):
        assert count(make(**changes)) - full == extra, changes


def test_head_is_tied():
    """One tensor, not a copy: it is in the state dict once."""
    model = make()
    assert model.head is None
    assert not [k for k in model.state_dict() if "head" in k]
    model = make(tie_embeddings=False)
    assert model.head.weight is not model.embedding.weight


# -- causality ---------------------------------------------------------------

KINDS = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_first": False, "positions": "sinusoidal"},
        {"positions": "rope", "n_kv_heads": 1},
        {"positions": "alibi"},
        {"norm": "rmsnorm", "activation": "swiglu", "bias": False},
        {"attend": attend},
        {"dropout": 0.0, "d_ff": 0},
    ],
    # not `str`: an address would differ between two workers
    ids=lambda changes: ",".join(changes) or "default",
)


@KINDS
def test_causal_by_perturbation(changes):
    """Change token t: logits before t are bit-equal, at t and after move."""
    model = shake(make(**changes))
    before = model(ids())
    for t in range(S):
        other = ids()
        other[:, t] = (other[:, t] + 1) % V
        after = model(other)
        assert torch.equal(after[:, :t], before[:, :t])
        moved = (after != before).any(-1)
        assert moved[:, t:].all()


@KINDS
def test_no_gradient_from_the_future(changes):
    """∂logits[t] / ∂x[s] is 0 for s > t, and not for s ≤ t."""
    model = shake(make(**changes).double())
    seen = []
    original = model.embedding.forward

    def keep(i):
        seen.append(original(i))
        return seen[-1]

    model.embedding.forward = keep
    y = model(ids())
    for t in range(S):
        (g,) = torch.autograd.grad(y[:, t].sum(), seen[0], retain_graph=True)
        assert (g[:, t + 1 :] == 0).all()
        assert (g[:, : t + 1].abs().sum(-1) > 0).all()


@KINDS
def test_prefixes_agree(changes):
    """The logits of a prefix are the first logits of the whole."""
    model = shake(make(**changes).double())
    whole = model(ids())
    for t in range(1, S + 1):
        close(model(ids()[:, :t]), whole[:, :t], 1e-12)


def test_without_the_causal_mask_it_fails():
    """Control: the perturbation test sees a block that looks ahead."""
    block = shake(Block(make().config))
    x = torch.randn(B, S, D)
    other = x.clone()
    other[:, -1, 0] += 1.0  # a norm would not see a shift of all
    differ(block(other)[:, 0], block(x)[:, 0])
    assert torch.equal(
        block(other, causal=True)[:, 0], block(x, causal=True)[:, 0]
    )


# -- the start ---------------------------------------------------------------


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("tie", [True, False])
def test_loss_starts_near_ln_v(positions, tie):
    """An untrained model is as unsure as it can be: ln V within 0.5."""
    losses = []
    for seed in range(3):
        model = make(seed, positions=positions, tie_embeddings=tie)
        loss = cross_entropy(model(ids(11)), ids(11, seed=2))
        losses.append(float(loss.detach()))
    assert sum(losses) / 3 == pytest.approx(math.log(V), abs=0.5)
    with torch.no_grad():  # control: a table of N(0, 1) is far too sure
        nn.init.normal_(model.embedding.weight)
        if not tie:
            nn.init.normal_(model.head.weight)
    sure = cross_entropy(model(ids(11)), ids(11, seed=2))
    assert float(sure.detach()) > math.log(V) + 2


def test_writes_to_the_stream_are_smaller():
    """w_o and w_out by 1/√(2L), so that depth keeps the scale."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=V, d_model=96, n_heads=3, n_layers=8))
    std = model.config.weight_std
    for block in model.blocks:
        for w in (block.attention.w_q, block.feed_forward.w_in):
            assert float(w.weight.detach().std()) == pytest.approx(
                std, rel=0.05
            )
        for w in (block.attention.w_o, block.feed_forward.w_out):
            assert float(w.weight.detach().std()) == pytest.approx(
                std / 4, rel=0.05
            )


@KINDS
def test_every_parameter_learns(changes):
    """Finite gradients; none is missing, none is all zero."""
    model = make(**changes)
    cross_entropy(model(ids()), ids(seed=2)).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


# -- the blocks --------------------------------------------------------------


def test_block_by_hand():
    """Pre-norm and post-norm, written out with the block's own parts."""
    x = torch.randn(B, S, D).double()
    for first in (True, False):
        block = shake(Block(make(norm_first=first).config).double())
        a, f = block.attention, block.feed_forward
        n1, n2 = block.attention_norm, block.feed_forward_norm
        if first:
            y = x + a(n1(x), causal=True)
            y = y + f(n2(y))
        else:
            y = n1(x + a(x, causal=True))
            y = n2(y + f(y))
        close(block(x, causal=True), y, 1e-12)


def test_gpt_by_hand():
    """Embedding, positions, blocks, norm, the table once more."""
    model = shake(make().double())
    x = model.embedding.weight[ids()] + model.positions.weight[:S]
    for block in model.blocks:
        x = block(x, causal=True)
    close(model.hidden(ids()), x, 1e-12)
    y = model.final_norm(x) @ model.embedding.weight.T
    close(model(ids()), y, 1e-12)
    close(model.logits(x), y, 1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_first": False},
        {"residual": False},
        {"norm": "rmsnorm"},
        {"norm": "none"},
        {"final_norm": False},
        {"d_ff": 0},
        {"activation": "relu"},
        {"activation": "swiglu"},
        {"positions": "sinusoidal"},
        {"positions": "rope"},
        {"positions": "alibi"},
        {"positions": "none"},
        {"scale_embedding": True},
        {"n_heads": 1},
        {"norm_eps": 0.5},
        {"n_layers": 1},
    ],
    ids=str,
)
def test_each_switch_changes_the_model(changes):
    """The same weights where both have them, and yet another output."""
    model, other = shake(make()), shake(make(**changes))
    other.load_state_dict(
        {
            k: v
            for k, v in model.state_dict().items()
            if other.state_dict().get(k, v[:0]).shape == v.shape
        },
        strict=False,
    )
    differ(other(ids()), model(ids()))


def test_attention_functions_agree():
    """The readable and the fast model: the same state dict, same logits."""
    fast, plain = make().double(), make(attend=attend).double()
    plain.load_state_dict(fast.state_dict())
    close(plain(ids()), fast(ids()), 1e-12)


def test_no_layers_is_a_bigram_model():
    """L = 0: the logits depend on the last token alone."""
    model = make(n_layers=0, positions="none")
    a, b = ids(), ids(seed=2)
    b[:, -1] = a[:, -1]
    assert torch.equal(model(a)[:, -1], model(b)[:, -1])


# -- positions and masks -----------------------------------------------------


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope"])
def test_left_padding(positions):
    """A short row, padded on the left, gets what it gets alone."""
    model = shake(make(positions=positions).double())
    real = torch.ones(B, S, dtype=torch.bool)
    real[1, :2] = False
    at = (real.cumsum(1) - 1).clamp(min=0)
    y = model(ids(), at, real[:, None, None])
    assert y.isfinite().all()
    close(y[1:, 2:], model(ids()[1:, 2:]), 1e-12)
    close(y[:1], model(ids()[:1]), 1e-12)
    # Control: without the mask the padding is read.
    differ(model(ids(), at)[1:, 2:], model(ids()[1:, 2:]))


def test_explicit_positions():
    """arange is the default; other positions are other inputs."""
    model = shake(make().double())
    close(model(ids(), torch.arange(S)), model(ids()), 1e-15)
    close(model(ids(), torch.arange(S).expand(B, S)), model(ids()), 1e-12)
    differ(model(ids(), torch.arange(S) + 3), model(ids()))
    # RoPE sees distances: a shift changes nothing (but the rounding of its
    # tables to float32), a stretch does.
    model = shake(make(positions="rope").double())
    close(model(ids(), torch.arange(S) + 3), model(ids()), 1e-5)
    at = torch.tensor([0, 1, 3, 4, 6, 9, 10])
    differ(model(ids(), at), model(ids()))
    differ(model(ids(), torch.zeros(S).long()), model(ids()))
    # ALiBi counts columns: as documented, it takes no notice of gaps.
    model = shake(make(positions="alibi").double())
    close(model(ids(), at), model(ids()), 1e-15)
    differ(model(ids()), model(ids().flip(1)))


def test_more_to_hide():
    """The mask is combined with the causal one, never instead of it."""
    model = shake(make().double())
    everything = torch.ones(1, 1, S, S, dtype=torch.bool)
    close(model(ids(), mask=everything), model(ids()), 1e-12)
    no_first = everything.clone()
    no_first[..., 1:, 0] = False
    other = ids()
    other[:, 0] = (other[:, 0] + 1) % V
    close(
        model(other, mask=no_first)[:, 1:],
        model(ids(), mask=no_first)[:, 1:],
        1e-12,
    )


class Cache:
    """One block's cache, as simple as the protocol allows."""

    def __init__(self):
        self.kv, self.length = None, 0

    def update(self, k, v):
        if self.kv is not None:
            k = torch.cat((self.kv[0], k), dim=2)
            v = torch.cat((self.kv[1], v), dim=2)
        self.kv, self.length = (k, v), k.size(2)
        return k, v


@KINDS
def test_cached_equals_whole(changes):
    """Chunks of 3, 1, 1 and 2 tokens: T = 1 and 1 < T < S."""
    model = shake(make(**changes).double())
    cache = [Cache() for _ in range(L)]
    parts = [model(p, cache=cache) for p in ids().split([3, 1, 1, 2], 1)]
    close(torch.cat(parts, 1), model(ids()), 1e-12)


def test_state_survives_a_round_trip():
    """Everything that matters is in the state dict; tables are rebuilt."""
    for positions in ("learned", "sinusoidal", "rope", "alibi"):
        model = shake(make(positions=positions))
        other = make(seed=9, positions=positions)
        differ(other(ids()), model(ids()))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(ids()), model(ids()))


def test_dropout_only_in_training():
    model = make(dropout=0.5)
    differ(model(ids()), model(ids()), by=1e-4)
    model.eval()
    assert torch.equal(model(ids()), model(ids()))


COMPILED = """
import sys
import torch
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy

backend, *kinds = sys.argv[1:]
ids, targets = torch.randint(31, (2, 2, 7))


def step(model, f):
    model.zero_grad()
    loss = cross_entropy(f(ids), targets)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


for positions in kinds:
    torch.manual_seed(0)
    model = GPT(
        GPTConfig(
            vocab_size=31, d_model=42, n_heads=3, n_layers=2, max_len=11,
            positions=positions, init_std=0.3,
        )
    )
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fast = torch.compile(model, backend=backend, fullgraph=True)
    for a, b in zip(step(model, fast), step(model, model), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    print(positions, "agrees")
"""


def test_compiled_agrees():
    """torch.compile traces it in one graph, annotations and all.

    In a process of its own, where shapes are not checked, as for a user.
    ``aot_eager`` traces forward and backward and needs no C++ compiler;
    ``fullgraph`` makes a break in the graph an error.
    """
    run = subprocess.run(
        [*forked.python(), "-c", COMPILED, "aot_eager", "learned", "rope"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["learned", "agrees", "rope", "agrees"]
