"""Each check lets right input pass, and names what is wrong in the other."""

import re

import jaxtyping
import pytest
import torch

from coursekit.checks import (
    check_attention,
    check_boolean,
    check_causal,
    check_choice,
    check_heads,
    check_ids,
    check_length,
    check_mask,
    check_positions,
    require,
)
from coursekit.multihead import split_heads

B, T, S, V, MAX = 2, 5, 7, 13, 11


def ids(wrong=None):
    x = torch.arange(B * T).view(B, T)
    if wrong is not None:
        x[1, 3] = wrong
    return x


def test_a_rule_has_three_parts():
    require(True, "x must be even", "3", "Take 4.")
    with pytest.raises(
        ValueError, match=r"^x must be even: got 3\. Take 4\.$"
    ):
        require(False, "x must be even", "3", "Take 4.")


@pytest.mark.parametrize("wrong", [-1, V, V + 5])
def test_ids_out_of_range(wrong):
    low, high = min(0, wrong), max(9, wrong)
    with pytest.raises(
        ValueError, match=rf"0\.\.{V - 1}: got {low}\.\.{high}"
    ):
        check_ids(ids(wrong), V)


def test_right_ids():
    check_ids(ids(), V)
    check_ids(torch.empty(0, 3, dtype=torch.long), V)
    check_ids(torch.tensor([[0, V - 1]]), V)
    check_ids(ids(), V, max_len=T)
    check_ids(ids(), V, max_len=MAX, n_old=MAX - T)


def test_positions():
    """One for each token, and inside the table."""
    check_ids(ids(), V, T, positions=torch.arange(T))
    check_ids(ids(), V, 5, positions=torch.zeros(B, T, dtype=torch.long))
    with pytest.raises(ValueError, match=r"0\.\.4: got 1\.\.5"):
        check_ids(ids(), V, T, positions=torch.arange(T) + 1)
    with pytest.raises(ValueError, match=r"0\.\.4: got -1\.\.3"):
        check_ids(ids(), V, T, positions=torch.arange(T) - 1)
    for shape in ((1,), (B, 1), (3, T), ()):
        at = torch.zeros(shape, dtype=torch.long)
        with pytest.raises(ValueError, match=r"for ids \(2, 5\)"):
            check_positions(at, ids())


def test_values_are_not_looked_at_while_compiling(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    check_ids(ids(V), V)
    with pytest.raises(ValueError, match=r"got \(5,\)"):
        check_ids(ids()[0], V, MAX)


Q, K = torch.zeros(B, 3, T, 4), torch.zeros(B, 3, S, 4)


@pytest.mark.parametrize(
    ("check", "arguments", "received"),
    [
        (check_choice, ("norm", "batch", ("layer", "rms")), "'batch'"),
        (check_heads, (13, 3, 3), "d_model=13, n_heads=3"),
        (check_heads, (12, 4, 3), "n_heads=4, n_kv_heads=3"),
        (split_heads, (torch.ones(1, 1, 13), 3), "13 columns for 3 heads"),
        (check_length, (MAX + 1, MAX), "12"),
        (check_ids, (ids(), V, MAX, MAX - T + 1), "12"),
        (check_ids, (ids().float(), V, MAX), "torch.float32"),
        (check_ids, (ids()[:, :0], V, MAX), "(2, 0)"),
        (check_attention, (Q, K[..., :3], K, None), "q (2, 3, 5, 4), k "),
        (check_attention, (Q, K, K[:, :, 1:], None), "q (2, 3, 5, 4), k "),
        (check_attention, (Q, K[:1], K[:1], None), "q (2, 3, 5, 4), k (1"),
        (check_attention, (Q, K[:, :2], K[:, :2], None), "q (2, 3, 5, 4)"),
        (check_attention, (Q, K[0], K[0], None), "q (2, 3, 5, 4), k (3"),
        (check_attention, (Q, K, K, torch.ones(T, T) > 0), "mask (5, 5)"),
        (check_mask, (torch.ones(T) > 0, (B, 1, T, S)), "mask (5,) for"),
        (check_boolean, (torch.ones(T),), "torch.float32"),
        (check_causal, (S, T), "T=7 queries and S=5 keys"),
    ],
)
def test_what_is_refused(check, arguments, received):
    """The rule, what was received, and what to do."""
    with pytest.raises(ValueError, match=re.escape(f": got {received}")) as e:
        check(*arguments)
    assert len(str(e.value).split(received, 1)[1].split(". ", 1)[1]) > 5


@pytest.mark.parametrize(
    ("check", "arguments"),
    [
        (check_choice, ("norm", "rms", ("layer", "rms"))),
        (check_heads, (12, 3, 1)),
        (check_heads, (13, 3, 3, 5)),
        (split_heads, (torch.ones(1, 1, 12), 3)),
        (check_length, (MAX, MAX)),
        (check_attention, (Q, K, K, None)),
        (check_attention, (Q, K[:, :1], K[:, :1], torch.ones(T, S) > 0)),
        (check_mask, (torch.ones(S) > 0, (B, 1, T, S))),
        (check_boolean, (torch.ones(T) > 0,)),
        (check_causal, (T, T)),
    ],
)
def test_what_passes(check, arguments):
    check(*arguments)


# -- shapes ------------------------------------------------------------------
def test_shapes_are_enforced():
    """The import hook of conftest.py is at work: a wrong shape raises."""
    from coursekit.attention import attend

    q = torch.zeros(2, 3, 5, 7)
    assert attend(q, q, q).shape == q.shape
    with pytest.raises(jaxtyping.TypeCheckError):
        attend(q, q, q[:, :, 1:])  # five keys, four values
