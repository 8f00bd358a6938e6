"""The table against nn.Embedding and against one-hot times matrix."""

import io
import math

import numpy as np
import torch
from compare import close, differ
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit.datasets import read_asset
from coursekit.embedding import ScaledEmbedding, TokenEmbedding

B, T, V, D = 2, 5, 13, 7


def ids(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (B, T), generator=generator)


def test_equal_to_torch():
    """nn.Embedding with the same table: rows, and the table's gradient."""
    ours, theirs = TokenEmbedding(V, D).double(), nn.Embedding(V, D).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
    assert torch.equal(ours(ids()), theirs(ids()))
    up = torch.randn(B, T, D, dtype=torch.float64)
    (a,) = torch.autograd.grad(ours(ids()), ours.weight, up)
    (b,) = torch.autograd.grad(theirs(ids()), theirs.weight, up)
    close(a, b, 1e-12)
    # A row that does not occur gets no gradient; one that occurs does.
    absent = sorted(set(range(V)) - set(ids().flatten().tolist()))
    assert absent
    assert (a[absent] == 0).all()
    assert (a[ids()[0, 0]] != 0).any()


def test_lookup_is_one_hot_times_table():
    e = TokenEmbedding(V, D).double()
    one_hot = F.one_hot(ids(), V).double()
    close(e(ids()), one_hot @ e.weight, 1e-12)
    differ(e((ids() + 1) % V), one_hot @ e.weight)


def test_scale_is_the_root_of_d():
    plain, scaled = TokenEmbedding(V, D), ScaledEmbedding(V, D)
    scaled.load_state_dict(plain.state_dict())
    close(scaled(ids()), plain(ids()) * math.sqrt(D), 1e-6)
    # The way out is not scaled.
    x = torch.randn(B, T, D)
    assert torch.equal(scaled.unembed(x), plain.unembed(x))


def test_unembed_compares_with_every_row():
    """logits[t, v] = x[t] · E[v], token by token."""
    e = TokenEmbedding(V, D).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    logits = e.unembed(x)
    assert logits.shape == (B, T, V)
    for v in range(V):
        close(logits[..., v], (x * e.weight[v]).sum(-1), 1e-12)


def test_tied_gradient_is_the_sum_of_both_ways():
    """The table read on the way in and out: both uses add up."""
    e = TokenEmbedding(V, D).double()
    out = nn.Parameter(e.weight.detach().clone())
    up = torch.randn(B, T, V, dtype=torch.float64)
    (tied,) = torch.autograd.grad(e.unembed(e(ids())), e.weight, up)
    apart = torch.autograd.grad(e(ids()) @ out.mT, [e.weight, out], up)
    close(tied, apart[0] + apart[1], 1e-12)
    differ(tied, apart[0])


def test_rows_start_with_length_near_one():
    """std 1/√D, so that a scaled row has entries near 1."""
    torch.manual_seed(0)
    e = ScaledEmbedding(997, 101)
    assert abs(float(e.weight.detach().norm(dim=1).mean()) - 1.0) < 0.01
    assert abs(float(e(torch.arange(997)[None]).detach().std()) - 1.0) < 0.01


def test_word_vectors_of_the_package():
    """GloVe's 20,000 words: like words are near, unlike ones are not."""
    with np.load(io.BytesIO(read_asset("glove_6b_50d_top20k.npz"))) as file:
        words, vectors = file["words"].tolist(), file["vectors"]
    assert len(set(words)) == len(words) == 20_000
    assert vectors.shape == (20_000, 50)
    rows = F.normalize(torch.tensor(vectors).float(), dim=1)
    place = {word: i for i, word in enumerate(words)}

    def cosine(a, b):
        return float(rows[place[a]] @ rows[place[b]])

    assert cosine("king", "queen") > 0.7
    assert abs(cosine("king", "tuesday")) < 0.4
