"""Speculative decoding: its texts have the target's distribution."""

import functools
import itertools

import pytest
import torch
from compare import plain_stepper

from coursekit import speculative
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.speculative import (
    CachedReader,
    acceptance,
    draw_with,
    every_outcome,
    expected_tokens,
    residual,
    speculate,
    verify,
)

V, GAMMA = 3, 2
float64 = torch.float64


def table(seed):
    """A distribution for each beginning of a text, as a reader."""

    @functools.cache
    def after(text):
        g = torch.Generator().manual_seed(seed + 7 * len(text))
        for token in text:
            g.manual_seed(int(torch.randint(9999, (1,), generator=g)) + token)
        z = 2 * torch.randn(V, generator=g, dtype=float64)
        return z.softmax(0)

    def read(text, n_last):
        ends = range(len(text) - n_last + 1, len(text) + 1)
        return torch.stack([after(tuple(text[:end])) for end in ends])

    return read


TARGET, DRAFT = table(1), table(2)


def chained(read, prompt, n):
    """The probability of each text of n tokens, by multiplication."""
    found = {}
    for text in itertools.product(range(V), repeat=n):
        probability = 1.0
        for i in range(n):
            row = read([*prompt, *text[:i]], 1)[0]
            probability *= row[text[i]].item()
        found[text] = probability
    return found


def distance(found, expected):
    return max(abs(found.get(key, 0.0) - p) for key, p in expected.items())


def of_all_branches(n, n_draft=GAMMA, draft=DRAFT):
    return every_outcome(
        lambda draw: (
            speculate(TARGET, draft, [0], n, n_draft, draw=draw).tokens
        )
    )


# -- the distribution --------------------------------------------------------
@pytest.mark.parametrize(("n", "n_draft"), [(1, 2), (3, 1), (3, 2), (4, 2)])
def test_every_branch_adds_up_to_the_target(n, n_draft):
    found = of_all_branches(n, n_draft)
    expected = chained(TARGET, [0], n)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert distance(found, expected) < 1e-12
    # The draft has another distribution, so this could have failed.
    assert distance(chained(DRAFT, [0], n), expected) > 0.05


def accept_always(drafted, p, q, draw):
    return [*drafted, draw(p[-1])]


def resample_from_p(drafted, p, q, draw):
    for n, token in enumerate(drafted):
        accept = (p[n, token] / q[n, token]).clamp(max=1)
        if draw(torch.stack((accept, 1 - accept))) == 1:
            return [*drafted[:n], draw(p[n])]
    return [*drafted, draw(p[-1])]


def reject_if_less_likely(drafted, p, q, draw):
    for n, token in enumerate(drafted):
        if p[n, token] < q[n, token]:
            return [*drafted[:n], draw(residual(p[n], q[n]))]
    return [*drafted, draw(p[-1])]


def keep_what_follows(drafted, p, q, draw):
    new = []
    for n, token in enumerate(drafted):
        accept = (p[n, token] / q[n, token]).clamp(max=1)
        kept = draw(torch.stack((accept, 1 - accept))) == 0
        new.append(token if kept else draw(residual(p[n], q[n])))
    return [*new, draw(p[-1])]


@pytest.mark.parametrize(
    "wrong",
    [accept_always, resample_from_p, reject_if_less_likely, keep_what_follows],
)
def test_another_rule_has_another_distribution(monkeypatch, wrong):
    monkeypatch.setattr(speculative, "verify", wrong)
    assert distance(of_all_branches(3), chained(TARGET, [0], 3)) > 0.01


def test_a_draft_that_agrees_is_never_rejected():
    tokens = speculate(TARGET, TARGET, [1], 12, 3, draw_with())
    assert tokens.generated == (4, 4, 4)
    assert tokens.acceptance_rate == 1


def test_residual_and_acceptance_by_hand():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=float64)
    q = torch.tensor([0.2, 0.6, 0.2], dtype=float64)
    assert acceptance(p, q).item() == pytest.approx(0.7)
    assert residual(p, q).tolist() == pytest.approx([1, 0, 0])
    torch.testing.assert_close(residual(p, p), p)
    # What is accepted and what is owed make p.
    both = torch.minimum(p, q) + (1 - acceptance(p, q)) * residual(p, q)
    torch.testing.assert_close(both, p)


# -- how many tokens ---------------------------------------------------------
@pytest.mark.parametrize(("alpha", "gamma"), [(0.0, 3), (0.7, 5), (1.0, 4)])
def test_expected_tokens_by_counting_runs(alpha, gamma):
    """Each number of accepted tokens, times its probability."""
    mean = sum(
        (n + 1) * alpha**n * (1 - alpha if n < gamma else 1)
        for n in range(gamma + 1)
    )
    assert expected_tokens(alpha, gamma) == pytest.approx(mean)
    if alpha < 1:
        formula = (1 - alpha ** (gamma + 1)) / (1 - alpha)
        assert expected_tokens(alpha, gamma) == pytest.approx(formula)


def test_runs_bring_as_many_as_expected():
    """Where the distributions don't depend on the text: exactly."""
    p = torch.tensor([0.5, 0.3, 0.2], dtype=float64)
    q = torch.tensor([0.2, 0.6, 0.2], dtype=float64)

    def one_run(draw):
        drafted = [draw(q) for _ in range(GAMMA)]
        return len(verify(drafted, p.expand(3, 3), q.expand(2, 3), draw))

    found = every_outcome(one_run)
    mean = sum(n * probability for n, probability in found.items())
    assert mean == pytest.approx(expected_tokens(0.7, GAMMA), abs=1e-12)


# -- real models -------------------------------------------------------------
def small(seed, n_layers):
    torch.manual_seed(seed)
    sizes = {"d_model": 10, "n_heads": 2, "n_layers": n_layers}
    model = GPT(GPTConfig(vocab_size=7, max_len=29, init_std=0.5, **sizes))
    return model.double().eval()


def test_a_greedy_text_stays_the_same():
    target, draft = small(3, 2), small(4, 1)
    prompt = [2, 5, 1]
    readers = CachedReader(target, 0.0), CachedReader(draft, 0.0)
    found = speculate(*readers, prompt, 23, 4, draw_with())
    assert [[*found.tokens]] == generate(plain_stepper(target), [prompt], 23)
    assert [[*found.tokens]] != generate(plain_stepper(draft), [prompt], 23)
    assert sum(found.generated) == 23
    assert 0 < found.acceptance_rate < 1


def test_a_reader_takes_back_what_was_rejected():
    model = small(3, 2)
    read = CachedReader(model, temperature=0.5)
    read([1, 2, 3, 4, 5], 3)
    with torch.no_grad():
        for text, n in (([1, 2, 6], 1), ([1, 2, 6, 0, 0], 2), ([1], 1)):
            right = (model(torch.tensor([text]))[0, -n:] / 0.5).softmax(-1)
            torch.testing.assert_close(read(text, n), right)
    # The control: old keys that are kept change what comes next.
    spoiled = CachedReader(model, temperature=0.5)
    spoiled([1, 2, 3, 4, 5], 1)
    spoiled.text = [1, 2, 6, 4, 5]
    right = read([1, 2, 6, 4, 5], 1)
    assert not torch.allclose(spoiled([1, 2, 6, 4, 5], 1), right, atol=1e-4)


def test_drawn_texts_fit_the_target_of_two_models():
    """Chi-square over the last of two tokens; the draft's own do not fit."""
    target, draft = small(5, 2), small(6, 1)
    readers = CachedReader(target), CachedReader(draft)
    with torch.no_grad():
        first = target(torch.tensor([[0]]))[0, -1].softmax(-1)
        pairs = torch.tensor([[0, token] for token in range(7)])
        p = first @ target(pairs)[:, -1].softmax(-1)
        q = draft(torch.tensor([[0]]))[0, -1].softmax(-1)
        q = q @ draft(pairs)[:, -1].softmax(-1)
    draw = draw_with(torch.Generator().manual_seed(0))
    n = 250
    counts = torch.zeros(7, dtype=float64)
    for _ in range(n):
        counts[speculate(*readers, [0], 2, 3, draw).tokens[1]] += 1

    def tail(p):
        statistic = ((counts - n * p) ** 2 / (n * p)).sum()
        return torch.special.gammaincc(torch.tensor(3.0), statistic / 2)

    assert tail(p) > 0.001 > 1e-6 > tail(q)


def test_every_outcome_of_two_dice():
    die = torch.full((6,), 1 / 6, dtype=float64)
    found = every_outcome(lambda draw: draw(die) + draw(die))
    assert found[5] == pytest.approx(6 / 36)
    assert found[0] == pytest.approx(1 / 36)
    assert len(found) == 11


def test_no_token_is_drawn_where_none_is_wanted():
    assert speculate(TARGET, DRAFT, [1], 0, 2, draw_with()).tokens == ()


def test_a_stop_token_ends_the_text():
    """Where it ends without a draft, also if the draft goes on behind it."""
    target, draft = small(3, 2), small(4, 1)
    ended = 0
    for first in (0, 3):
        for stop in range(7):
            prompt = torch.tensor([2, first])
            plain = plain_stepper(target)
            [right] = generate(plain, prompt[None], 9, stop_ids={stop})
            ended += len(right) < 9
            for n_draft in (1, 2, 4):
                readers = CachedReader(target, 0.0), CachedReader(draft, 0.0)
                found = speculate(
                    *readers, prompt, 9, n_draft, draw_with(), {stop}
                )
                assert [*found.tokens] == right
    assert 0 < ended < 14  # the control: some have no such token


def test_a_draft_has_the_targets_tokens():
    def wide(text, n):
        return torch.full((n, 9), 1 / 9, dtype=float64)

    for readers in ((TARGET, wide), (wide, DRAFT)):
        with pytest.raises(ValueError, match="must have the same tokens: got"):
            speculate(*readers, [1], 3, 2, lambda p: 0)
