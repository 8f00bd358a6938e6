"""Choosing tokens from logits."""

import math

import pytest
import torch
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from coursekit.sampling import (
    apply_temperature,
    greedy,
    keep_top_k,
    keep_top_p,
    sampler,
)

# Not in order of size, so that a filter must map back to token ids.
FOUR = torch.tensor([[0.05, 0.5, 0.15, 0.3]], dtype=torch.float64).log()


def support(logits):
    return logits[0].isfinite().nonzero().flatten().tolist()


def check_top_p(top_p):
    assert support(top_p(FOUR, 0.6)) == [1, 3]  # 0.5 < 0.6 ≤ 0.5 + 0.3
    assert support(top_p(FOUR, 0.3)) == [1]  # at least one
    assert support(top_p(FOUR, 0.9)) == [1, 2, 3]
    assert support(top_p(FOUR, 0.97)) == [0, 1, 2, 3]
    assert torch.equal(top_p(FOUR, 0.6)[0, [1, 3]], FOUR[0, [1, 3]])
    assert support(top_p(torch.zeros(1, 4), 0.5)) == [0, 1]  # just reached


def check_top_k(top_k):
    for k, kept in ((1, [1]), (2, [1, 3]), (3, [1, 2, 3]), (7, [0, 1, 2, 3])):
        filtered = top_k(FOUR, k)
        assert support(filtered) == kept
        assert torch.equal(filtered[0, kept], FOUR[0, kept])


def check_temperature(temper):
    assert torch.equal(temper(FOUR, 1.0), FOUR)
    assert temper(FOUR, 1e-3).softmax(-1)[0, 1] > 0.999  # to greedy
    p = temper(FOUR, 0.5).softmax(-1)  # τ = 1/2 squares probabilities
    squares = FOUR.exp() ** 2
    assert torch.allclose(p, squares / squares.sum(), atol=1e-12)
    entropies = [
        torch.distributions.Categorical(logits=temper(FOUR, t)).entropy()
        for t in (0.5, 1.0, 2.0)
    ]
    assert entropies == sorted(entropies)


def test_supports_on_fixed_logits():
    check_top_p(keep_top_p)
    check_top_k(keep_top_k)
    check_temperature(apply_temperature)


def without_crossing_token(logits, p):
    ordered, ids = logits.softmax(-1).sort(dim=-1, descending=True)
    drop = torch.zeros_like(logits, dtype=torch.bool)
    drop.scatter_(-1, ids, ordered.cumsum(-1) > p)
    return logits.masked_fill(drop, -torch.inf)


def not_mapped_back(logits, p):
    ordered = logits.sort(dim=-1, descending=True).values
    mass = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    return ordered.masked_fill(mass >= p, -torch.inf)


def filled_with_zero(logits, k):
    best = logits.topk(min(k, logits.size(-1))).values
    return logits.where(logits >= best[..., -1:], torch.zeros(()))


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_top_p, without_crossing_token),
        (check_top_p, not_mapped_back),
        (check_top_k, filled_with_zero),
        (check_temperature, lambda z, t: z * t),
        (check_temperature, lambda z, t: z.softmax(-1) / t),
    ],
)
def test_the_checks_catch_what_people_write(check, wrong):
    with pytest.raises(AssertionError):
        check(wrong)


@pytest.mark.parametrize("seed", range(5))
def test_filters_equal_those_of_transformers(seed):
    torch.manual_seed(seed)
    logits, ids = 3 * torch.randn(7, 131), torch.zeros(7, 1)
    for k in (1, 5, 131):
        assert torch.equal(
            keep_top_k(logits, k), TopKLogitsWarper(k)(ids, logits)
        )
    for p in (0.1, 0.5, 0.9, 0.999):
        theirs = TopPLogitsWarper(p)(ids, logits)
        assert torch.equal(keep_top_p(logits, p), theirs)
    theirs = TemperatureLogitsWarper(0.7)(ids, logits)
    assert torch.equal(apply_temperature(logits, 0.7), theirs)


def test_top_p_of_1_keeps_even_what_rounding_would_drop():
    tail = torch.full((1, 50_000), -30.0)
    tail[0, 0] = 0.0
    assert keep_top_p(tail, 1.0).isfinite().all()


@pytest.mark.parametrize("p", [1e-46, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_tiniest_top_p_is_greedy(p, dtype):
    """Also one that float32 cannot hold, where 0 >= p: each row keeps one."""
    logits = torch.tensor([[0.5, -1.0, 2.0], [3.0, 1.0, -2.0]], dtype=dtype)
    kept = keep_top_p(logits, p)
    assert kept.isfinite().tolist() == [
        [False, False, True],
        [True, False, False],
    ]
    assert sampler(top_p=p)(logits).tolist() == [2, 0]


def test_top_p_adds_up_in_bfloat16():
    """Of 1,024 equal tokens 3/4; sums rounded to 8 bits miss that."""
    logits = torch.zeros(1, 1024, dtype=torch.bfloat16)
    assert len(support(keep_top_p(logits, 0.75))) == 768
    p = logits.softmax(-1)
    assert (p.cumsum(-1) - p < 0.75).sum() != 768


def test_ties_at_the_kth_place_are_all_kept():
    assert support(keep_top_k(torch.tensor([[1.0, 2.0, 1.0, 0.0]]), 2)) == [
        0,
        1,
        2,
    ]


def test_greedy_is_the_limit_of_sampling():
    torch.manual_seed(2)
    logits = torch.randn(5, 31)
    best = greedy(logits)
    assert best.tolist() == logits.max(dim=-1).indices.tolist()
    for settings in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-30}):
        assert torch.equal(sampler(**settings)(logits), best)
    assert sampler(temperature=0.0) is greedy


def test_frequencies_follow_the_filtered_distribution():
    """χ² over 10,000 draws; 16.27 is the 0.1 % point of 3 degrees."""
    draw = sampler(
        temperature=2.0, top_k=4, generator=torch.Generator().manual_seed(0)
    )
    logits = torch.tensor([0.0, 1.0, -9.0, 2.0, 0.5]).expand(10_000, -1)
    counts = draw(logits).bincount(minlength=5)
    assert counts[2] == 0

    def chi_squared(temperature):
        kept = logits[0, [0, 1, 3, 4]]
        expected = 10_000 * (kept / temperature).softmax(-1)
        observed = counts[[0, 1, 3, 4]]
        return ((observed - expected) ** 2 / expected).sum()

    assert chi_squared(2.0) < 16.27
    assert chi_squared(1.0) > 100  # it tells the temperatures apart


def test_top_p_applies_to_what_top_k_left():
    """After top-2 the 0.5 is 0.625 of the rest: p = 0.6 keeps it alone."""
    draw = sampler(top_k=2, top_p=0.6)
    assert set(draw(FOUR.expand(99, -1)).tolist()) == {1}
    draw = sampler(top_p=0.6)
    assert set(draw(FOUR.expand(99, -1)).tolist()) == {1, 3}


def test_the_seed_decides():
    logits = torch.zeros(1, 97)

    def twelve(seed):
        draw = sampler(generator=torch.Generator().manual_seed(seed))
        return [draw(logits).item() for _ in range(12)]

    assert twelve(5) == twelve(5) != twelve(6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.5}, "above 0: got -0.5"),
        ({"temperature": math.nan}, "above 0: got nan"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1: got 0"),
        ({"temperature": 0.0, "top_k": 0}, "at least 1: got 0"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]: got 0.0"),
        ({"top_p": 1.5}, "got 1.5"),
    ],
)
def test_bad_settings_are_refused_before_the_first_draw(settings, message):
    with pytest.raises(ValueError, match=message):
        sampler(**settings)


@pytest.mark.parametrize("temperature", [1e-30, 1e-46, 1e-300])
def test_the_tiniest_temperature_is_greedy(temperature):
    """Also one that float32 cannot hold: 0/0 would be no number."""
    draw = sampler(temperature)
    assert draw(torch.tensor([[0.5, -1.0, 2.0]])).tolist() == [2]
