"""Beam search, against brute force, the paper's tree and transformers."""

import itertools
import math

import pytest
import torch
from compare import plain_stepper
from test_generation import (
    EOS,
    FAMILIES,
    PROMPTS,
    TreeStepper,
    make_gpt,
    markov,
    their_texts,
)

from coursekit.generation import _assign_rows, beam_search, generate
from coursekit.steppers import GPTStepper


def brute_force(probabilities, vocab_size, length, eos, penalty):
    """Score every text up to that length; the best first."""
    scored = []
    for n in range(1, length + 1):
        for text in itertools.product(range(vocab_size), repeat=n):
            if eos in text[:-1] or (n < length and text[-1] != eos):
                continue
            log_prob = sum(
                math.log(probabilities(text[:i])[text[i]]) for i in range(n)
            )
            words = text[:-1] if text[-1] == eos else text
            scored.append((log_prob / n**penalty, words))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_wide_enough_equals_brute_force(seed, penalty):
    tree = markov(seed, 3)
    stepper = TreeStepper(tree)
    found = beam_search(stepper, [[0]], 81, 4, {2}, penalty)[0]
    expected = brute_force(tree, 3, 4, 2, penalty)
    assert len(found) == len(expected) == 31
    assert [h.tokens for h in found] == [words for _, words in expected]
    for hypothesis, (score, _) in zip(found, expected, strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_the_stop_criterion_loses_nothing(penalty):
    """It stops early, and yet finds what the full length finds."""
    depths, saved = [], 0
    for seed in range(23):
        tree = markov(seed, 3)

        def watched(row, tree=tree):
            depths.append(len(row))
            return tree(row)

        for k in (1, 2, 5):
            depths.clear()
            args = (TreeStepper(watched), [[0]], k, 9, {2}, penalty)
            found = beam_search(*args)[0]
            saved += max(depths) < 8
            # The same search that never stops early.
            expected = unhurried_beam_search(tree, k, 9, 2, penalty)
            assert [h.tokens for h in found] == [t for _, t in expected]
    assert saved > 0


def unhurried_beam_search(tree, k, length, eos, penalty):
    """Beam search as the definition says, for one prompt; O(everything)."""
    beams, finished = [(0.0, ())], []
    for n in range(1, length + 1):
        candidates = sorted(
            (
                (score + math.log(p), (*text, token))
                for score, text in beams
                for token, p in enumerate(tree(text))
            ),
            reverse=True,
        )
        for score, text in candidates[:k]:
            if text[-1] == eos:
                finished.append((score / n**penalty, text[:-1]))
            elif n == length:
                finished.append((score / n**penalty, text))
        beams = [c for c in candidates if c[1][-1] != eos][:k]
    return sorted(finished, reverse=True)[:k]


def first_eos_beam_search(tree, k, length, eos):
    """The mistake: return the best beam as soon as one ends."""
    beams = [(0.0, ())]
    for _ in range(length):
        candidates = (
            (score + math.log(p), (*text, token))
            for score, text in beams
            for token, p in enumerate(tree(text))
        )
        beams = sorted(candidates, reverse=True)[:k]
        ended = [beam for beam in beams if beam[1][-1] == eos]
        if ended:
            return ended[0][1][:-1]
    return beams[0][1]


def test_stopping_at_the_first_eos_finds_worse_texts():
    worse = 0
    for seed in range(23):
        tree = markov(seed, 3)
        scores = {w: s for s, w in brute_force(tree, 3, 5, 2, 1.0)}
        best = beam_search(TreeStepper(tree), [[0]], 4, 5, {2})[0][0]
        hasty = scores[first_eos_beam_search(tree, 4, 5, 2)]
        assert best.score >= hasty - 1e-12
        worse += best.score > hasty + 1e-9
    assert worse > 11


def two_step_tree(row):
    """The greedy trap: 0.6 · 0.35 = 0.21 against 0.4 · 0.9 = 0.36."""
    if not row:
        return [0.6, 0.4, 0.0]
    return [0.35, 0.35, 0.3] if row[0] == 0 else [0.9, 0.1, 0.0]


def test_the_greedy_trap():
    stepper = TreeStepper(two_step_tree)
    words = generate(stepper, [[0]], 2)[0]
    assert words[0] == 0  # 0.6 · 0.35 = 0.21
    trapped = beam_search(stepper, [[0]], 1, 2)[0][0]
    assert math.exp(trapped.log_prob) == pytest.approx(0.21)
    best = beam_search(stepper, [[0]], 2, 2)[0][0]
    assert best.tokens == (1, 0)
    assert math.exp(best.log_prob) == pytest.approx(0.36)


def test_sums_and_means_choose_differently():
    """Short: −1.4 over 2 tokens; long: −1.8 over 3; eos is 2."""
    steps = {
        (): {0: -0.9, 1: -0.6},
        (0,): {2: -0.5},
        (1,): {1: -0.6},
        (1, 1): {2: -0.6},
    }

    def tree(row):
        known = {t: math.exp(s) for t, s in steps.get(row, {}).items()}
        rest = (1 - sum(known.values())) / (103 - len(known))
        return [known.get(token, rest) for token in range(103)]

    sums = beam_search(TreeStepper(tree), [[0]], 5, 3, {2}, 0.0)[0][0]
    means = beam_search(TreeStepper(tree), [[0]], 5, 3, {2}, 1.0)[0][0]
    assert (sums.tokens, means.tokens) == ((0,), (1, 1))
    assert sums.score == sums.log_prob == pytest.approx(-1.4)
    assert means.log_prob == pytest.approx(-1.8)
    assert means.score == pytest.approx(-0.6)
    assert sums.finished
    assert means.finished


@pytest.mark.parametrize(
    "settings",
    [
        {"length_penalty": 0.0},
        {"length_penalty": 0.0, "exhaustive": False},
        {"length_penalty": 1.0, "exhaustive": False},
        {"length_penalty": 2.0, "exhaustive": False},
    ],
)
def test_one_beam_is_greedy(settings):
    for seed in range(23):
        stepper = TreeStepper(markov(seed, 5))
        expected = generate(stepper, [[0]], 13, stop_ids={2})[0]
        found = beam_search(stepper, [[0]], 1, 13, {2}, **settings)[0]
        assert [list(h.tokens) for h in found] == [expected]


def test_two_stop_tokens_take_no_beam_away():
    """All three likeliest end; two open beams must still go on."""

    def tree(row):
        return [0.05, 0.05, 0.45, 0.45] if not row else [0.9, 0.05, 0, 0.05]

    found = beam_search(TreeStepper(tree), [[0]], 2, 2, {2, 3}, 3.0)[0]
    assert [h.tokens for h in found] == [(0, 0), (1, 0)]
    assert not found[0].finished
    assert {
        h.tokens
        for h in beam_search(TreeStepper(tree), [[0]], 2, 2, {2, 3}, 0.0)[0]
    } == {()}


def test_products_would_underflow_but_sums_do_not():
    stepper = TreeStepper(lambda row: [0.1] * 10)
    best = beam_search(stepper, [[0]], 2, 100)[0][0]
    assert best.log_prob == pytest.approx(-230.2585, rel=1e-6)
    assert torch.tensor(0.1).pow(46) == 0  # what a float32 product gives


def test_prompts_that_are_done_leave_the_batch():
    """One prompt ends at once, the other never: they do not disturb."""

    class ByPrompt(TreeStepper):
        def prefill(self, prompts):
            self.sizes = []
            self.rows = [(prompt[0],) for prompt in prompts]
            return self.read()

        def read(self):
            self.sizes.append(len(self.rows))
            return super().read()

    def tree(row):
        return [0.05, 0.0, 0.95] if row[0] == 0 else [0.5, 0.4, 0.1]

    stepper = ByPrompt(tree)
    short, long = beam_search(stepper, [[0], [1]], 2, 7, {2}, 0.0)
    assert short[0].tokens == ()
    assert long == beam_search(ByPrompt(tree), [[1]], 2, 7, {2}, 0.0)[0]
    assert stepper.sizes[0] == 2
    assert 4 in stepper.sizes
    assert 2 in stepper.sizes[2:]  # only the second prompt's beams


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_beams": 0}, "n_beams=0"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0"),
        ({"length_penalty": math.nan}, "length_penalty=nan"),
        ({"max_new_tokens": 0}, "of at least 1: got 0"),
    ],
)
def test_bad_beam_settings_are_refused(settings, message):
    settings = {"n_beams": 2, "max_new_tokens": 3, **settings}
    with pytest.raises(ValueError, match=message):
        beam_search(TreeStepper(markov(0, 3)), [[0]], **settings)


def test_beams_through_the_cache_equal_beams_without():
    model = make_gpt(positions="rope", n_kv_heads=2)
    plain, cached = (
        beam_search(kind(model), PROMPTS, 4, 31, {2}, 1.0)
        for kind in (plain_stepper, GPTStepper)
    )
    for ours, theirs in zip(cached, plain, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx(
            [h.score for h in theirs], abs=1e-5
        )


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("exhaustive", [True, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_beams_write_what_transformers_writes(
    family, seed, exhaustive, penalty
):
    make, kind, left = FAMILIES[family]
    model = make(seed)
    theirs, scores = their_texts(
        model,
        PROMPTS,
        left,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=penalty,
        early_stopping="never" if exhaustive else False,
    )
    ours = beam_search(kind(model), PROMPTS, 4, 11, {EOS}, penalty, exhaustive)
    flat = [h for hypotheses in ours for h in hypotheses]
    assert [list(h.tokens) for h in flat] == theirs
    assert [h.score for h in flat] == pytest.approx(scores.tolist(), abs=1e-5)


def test_beams_stay_in_their_rows_where_they_can():
    """What stays need not be copied; by hand, and for all small cases."""
    assert _assign_rows([2, 0, 0, 1]) == [1, 3, 0, 2]
    assert _assign_rows([0, 0, 0]) == [0, 1, 2]
    assert _assign_rows([3, 1]) == [0, 1]  # fewer beams than before
    for parents in itertools.product(range(4), repeat=4):
        order = _assign_rows(parents)
        assert sorted(order) == [0, 1, 2, 3]
        stays = sum(parents[child] == row for row, child in enumerate(order))
        assert stays == len(set(parents))
