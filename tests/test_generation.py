"""Choosing tokens, writing with a stepper, and beam search."""

import itertools
import math
from functools import partial

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from coursekit.cache import CachedStepper, CachedTranslator
from coursekit.config import GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.generation import (
    PlainStepper,
    PlainTranslator,
    _stay,
    apply_temperature,
    beam_search,
    evaluating,
    generate,
    greedy,
    keep_top_k,
    keep_top_p,
    pad_rows,
    sampler,
    stream,
)
from coursekit.seq2seq import Transformer

PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]  # 5, 2, 7


class TreeStepper:
    """Gives the probabilities that a function of the new tokens says."""

    limit = None

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def prefill(self, prompts):
        self.rows = [() for _ in prompts]
        return self.read()

    def step(self, tokens):
        pairs = zip(self.rows, tokens.tolist(), strict=True)
        self.rows = [(*row, token) for row, token in pairs]
        return self.read()

    def reorder(self, index):
        self.rows = [self.rows[i] for i in index.tolist()]

    def read(self):
        rows = [self.probabilities(row) for row in self.rows]
        return torch.tensor(rows, dtype=torch.float64).log()


def markov(seed, vocab_size):
    """Random probabilities of the next token given the last and the time.

    Without the time, texts with the same transitions in another order tie.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(13, vocab_size + 1, vocab_size, generator=generator)
    table = (3 * table.double()).softmax(dim=-1)
    return lambda row: table[len(row), row[-1] if row else -1].tolist()


def make_gpt(**changes):
    settings = {
        "vocab_size": 11,
        "max_len": 23,
        "d_model": 24,
        "n_heads": 4,
        "n_layers": 2,
        "init_std": 0.3,
        **changes,
    }
    torch.manual_seed(0)
    return GPT(GPTConfig(**settings)).eval()


# --- choosing ------------------------------------------------------------

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


# --- writing -------------------------------------------------------------
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("write", [generate, partial(beam_search, n_beams=2)])
def test_logits_that_are_no_numbers_are_refused(write, bad):
    """They would be read as a text of token 0."""
    stepper = TreeStepper(lambda text: (0.5, bad, 0.5))
    with pytest.raises(ValueError, match="must be a finite number"):
        write(stepper, [[0]], max_new_tokens=3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n_good", [1, 2])
@pytest.mark.parametrize(
    "write",
    [
        generate,
        partial(generate, choose=sampler()),
        partial(beam_search, n_beams=1),
        partial(beam_search, n_beams=2, stop_ids=[2]),
    ],
)
def test_logits_that_are_no_numbers_later_are_refused(write, n_good, bad):
    """Also in one row of several, and after tokens that were good."""

    class Late(TreeStepper):
        def read(self):
            logits = super().read()
            if len(self.rows[0]) >= n_good:
                logits[-1, 1] = bad
            return logits

    good = TreeStepper(lambda text: (0.2, 0.3, 0.5))
    assert len(write(good, [[0], [1]], max_new_tokens=3)) == 2
    late = Late(good.probabilities)
    assert len(write(late, [[0], [1]], max_new_tokens=n_good)) == 2
    with pytest.raises(ValueError, match="must be a finite number"):
        write(late, [[0], [1]], max_new_tokens=3)


def test_a_row_that_has_ended_may_be_no_number():
    """Nobody reads what comes after a stop token."""

    class Ended(TreeStepper):
        def read(self):
            logits = super().read()
            if len(self.rows[0]) == 2:
                logits[0] = math.nan
            return logits

    def choose(logits):  # row 0 stops at once
        return torch.tensor([1, 0])

    stepper = Ended(lambda text: (0.4, 0.6))
    written = generate(stepper, [[0], [0]], 3, choose, stop_ids=[1])
    assert written == [[], [0, 0, 0]]


@pytest.mark.parametrize("penalty", [-1.0, math.nan, 11.0, math.inf])
def test_a_length_penalty_out_of_range(penalty):
    """1000 would overflow at two tokens."""
    stepper = TreeStepper(markov(0, 3))
    with pytest.raises(ValueError, match=r"in 0\.\.10: got"):
        beam_search(stepper, [[0]], 2, 4, length_penalty=penalty)


def test_stop_tokens_end_a_row_for_good():
    """Row b writes b, b + 1, ... and stops at 3 (mod 5); then None."""

    class Counter(TreeStepper):
        def prefill(self, prompts):
            self.rows = [tuple(prompt) for prompt in prompts]
            return self.read()

    def successor(row):
        return [float((row[-1] + 1) % 5 == i) for i in range(5)]

    batch = [[0], [1], [4]]
    steps = list(stream(Counter(successor), batch, 7, stop_ids={3}))
    assert steps == [[1, 2, 0], [2, None, 1], [None, None, 2]]
    rows = generate(Counter(successor), batch, 7, stop_ids={3})
    assert rows == [[1, 2], [2], [0, 1, 2]]
    rows = generate(Counter(successor), batch, 2, stop_ids={3})
    assert rows == [[1, 2], [2], [0, 1]]  # two were cut by the budget
    rows = generate(Counter(successor), torch.tensor(batch), 3)
    assert rows == [[1, 2, 3], [2, 3, 4], [0, 1, 2]]
    assert generate(Counter(successor), batch, 0) == [[], [], []]


def test_stream_computes_no_further_than_it_is_read():
    calls = []

    def probabilities(row):
        calls.append(row)
        return [0.25, 0.75]

    tokens = stream(TreeStepper(probabilities), [[0]], 1000)
    assert [next(tokens) for _ in range(3)] == [[1], [1], [1]]
    assert len(calls) == 3


@pytest.mark.parametrize("kind", [PlainStepper, CachedStepper])
@pytest.mark.parametrize("positions", ["learned", "rope", "alibi"])
def test_a_batch_of_unequal_prompts_writes_what_each_writes_alone(
    kind, positions
):
    """Past the window too: 2..7 tokens, 40 more, window 23."""
    model = make_gpt(positions=positions)
    together = generate(kind(model), PROMPTS, 40)
    alone = [generate(kind(model), [p], 40)[0] for p in PROMPTS]
    assert together == alone
    assert len({tuple(row) for row in alone}) == 3  # they do differ


def test_batch_check_catches_positions_that_count_padding(monkeypatch):
    """arange(T) for rows padded on the left."""
    model = make_gpt()
    alone = PlainStepper(model).prefill(PROMPTS[:1])
    right = PlainStepper(model).prefill(PROMPTS)[:1]
    hidden = model.hidden
    monkeypatch.setattr(
        model,
        "hidden",
        lambda ids, positions, mask: hidden(ids, None, mask),
    )
    wrong = PlainStepper(model).prefill(PROMPTS)[:1]
    assert torch.allclose(right, alone, atol=1e-5)
    assert (wrong - alone).abs().max() > 0.1


def test_translations_do_not_depend_on_the_batch():
    torch.manual_seed(3)
    model = Transformer(
        TransformerConfig(
            vocab_size=11, d_model=24, max_len=23, init_std=0.3, dropout=0.3
        )
    )
    for kind in (PlainTranslator, CachedTranslator):
        together = generate(kind(model, [1]), PROMPTS, 9)
        alone = [generate(kind(model, [1]), [p], 9)[0] for p in PROMPTS]
        assert together == alone
        beams = beam_search(kind(model, [1]), PROMPTS, 3, 9, [2])
        for prompt, hypotheses in zip(PROMPTS, beams, strict=True):
            single = beam_search(kind(model, [1]), [prompt], 3, 9, [2])[0]
            texts = [h.tokens for h in hypotheses]
            assert texts == [h.tokens for h in single]


@pytest.mark.parametrize("kind", [PlainStepper, CachedStepper])
def test_a_full_window_keeps_the_last_tokens(kind):
    model = make_gpt(max_len=7)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    logits = kind(model).prefill([prompt])
    assert torch.allclose(logits, model(torch.tensor([prompt[-7:]]))[:, -1])
    stepper = kind(model, keep=4)
    stepper.prefill([prompt[:7]])
    logits = stepper.step(torch.tensor([8]))  # 1 5 9 2, then 8
    expected = model(torch.tensor([[1, 5, 9, 2, 8]]))[:, -1]
    assert torch.allclose(logits, expected, atol=1e-5)
    sliding = kind(model, keep=6)
    sliding.prefill([prompt[:7]])
    for n, token in enumerate(prompt[7:]):
        logits = sliding.step(torch.tensor([token]))
        seen = torch.tensor([prompt[n + 1 : n + 8]])
        assert torch.allclose(logits, model(seen)[:, -1], atol=1e-5)


def test_a_crop_from_the_wrong_end_is_seen():
    """The next token must depend on the last one, past the window too."""
    model = make_gpt(max_len=7)

    def next_logits(prompt, crop):
        return model(torch.tensor([crop(prompt)]))[:, -1]

    first, last = (lambda ids: ids[:7]), (lambda ids: ids[-7:])
    a, b = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 1, 5, 9, 2, 7]
    assert torch.equal(next_logits(a, first), next_logits(b, first))
    assert not torch.allclose(next_logits(a, last), next_logits(b, last))
    ours = [PlainStepper(model).prefill([prompt]) for prompt in (a, b)]
    assert torch.allclose(ours[0], next_logits(a, last), atol=1e-6)
    assert torch.allclose(ours[1], next_logits(b, last), atol=1e-6)


@pytest.mark.parametrize("kind", [PlainStepper, CachedStepper])
def test_dropout_is_off_while_writing_and_on_again_after(kind):
    model = make_gpt(dropout=0.5)
    expected = generate(kind(model), PROMPTS, 9)
    model.train()
    model.blocks[1].eval()  # a part that was frozen stays frozen
    assert generate(kind(model), PROMPTS, 9) == expected
    assert model.training
    assert model.dropout.training
    assert not model.blocks[1].training
    # Without the switch the test would see it:
    ids = torch.tensor(PROMPTS[:1])
    assert not torch.equal(model(ids), model(ids))


def test_dropout_is_on_again_after_an_error():
    model = make_gpt().train()
    with pytest.raises(ValueError, match=r"got 3\.\.77"):
        PlainStepper(model).prefill([[3, 77]])
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()
    with evaluating(model.modules()):
        assert not model(torch.tensor([[1]])).requires_grad


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "at least one prompt: got none"),
        ([[1], []], "got an empty prompt in row 1 of 2"),
        (torch.zeros(2, 0, dtype=torch.long), "empty prompt in row 0 of 2"),
        (torch.tensor([1, 2]), r"got \[1, 2\]"),
    ],
)
def test_bad_prompts_are_refused_at_the_call(prompts, message):
    stepper = TreeStepper(markov(0, 3))
    for write in (stream, generate):
        with pytest.raises(ValueError, match=message):
            write(stepper, prompts, 5)
    with pytest.raises(ValueError, match=message):
        beam_search(stepper, prompts, 2, 5)
    if isinstance(prompts, list):
        with pytest.raises(ValueError, match=message):
            PlainStepper(make_gpt()).prefill(prompts)


def test_bad_settings_of_steppers_are_refused():
    gpt = make_gpt()
    for settings, message in (
        ({"window": 0}, r"1..max_len=23: got 0"),
        ({"window": 24}, r"1..max_len=23: got 24"),
        ({"keep": 23}, r"0..22: got 23"),
        ({"window": 5, "keep": -1}, r"0..4: got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            CachedStepper(gpt, **settings)
    config = TransformerConfig(vocab_size=11, d_model=8, max_len=5)
    model = Transformer(config)
    for start in ([], [1] * 6):
        with pytest.raises(ValueError, match=f"max_len=5 .*got {len(start)}"):
            PlainTranslator(model, start)
    for kind in (PlainStepper, CachedStepper):
        stepper = kind(gpt)
        with pytest.raises(ValueError, match="got 2 for 0 rows"):
            stepper.step(torch.tensor([1, 2]))
        stepper.prefill(PROMPTS)
        with pytest.raises(ValueError, match="got 2 for 3 rows"):
            stepper.step(torch.tensor([1, 2]))
    for kind in (PlainTranslator, CachedTranslator):
        translator = kind(model, [1])
        with pytest.raises(ValueError, match="got 2 for 0 rows"):
            translator.step(torch.tensor([1, 2]))
        translator.prefill([[3, 5], [7]])
        with pytest.raises(ValueError, match="got 3 for 2 rows"):
            translator.step(torch.tensor([1, 2, 3]))
    translator = PlainTranslator(model, [1, 2])
    assert translator.limit == 4
    with pytest.raises(ValueError, match=r"0\.\.4: got 5"):
        generate(translator, [[3]], 5)
    with pytest.raises(ValueError, match=r"∞: got -1\. Ask for 0 or"):
        stream(PlainStepper(gpt), [[3]], -1)
    with pytest.raises(ValueError, match="max_len=5 tokens: got 6"):
        translator.prefill([[3] * 6])


def test_pad_rows():
    ids, real = pad_rows([[3, 5], [7]], left=True, pad_id=9)
    assert ids.tolist() == [[3, 5], [9, 7]]
    assert real.tolist() == [[True, True], [False, True]]
    ids, real = pad_rows([[3, 5], [7]], left=False)
    assert ids.tolist() == [[3, 5], [7, 0]]
    assert real.tolist() == [[True, True], [True, False]]


# --- beam search ---------------------------------------------------------


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
        ({"max_new_tokens": 0}, r"1\.\.∞: got 0"),
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
        for kind in (PlainStepper, CachedStepper)
    )
    for ours, theirs in zip(cached, plain, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx(
            [h.score for h in theirs], abs=1e-5
        )


# --- the same texts as transformers --------------------------------------

EOS, PAD = 2, 0


class GPT2Stepper(TreeStepper):
    """Their model behind our protocol: both searches see one model."""

    def __init__(self, model):
        self.model = model

    def prefill(self, prompts):
        self.rows = [tuple(prompt) for prompt in prompts]
        return self.read()

    @torch.no_grad()
    def read(self):
        ids, real = pad_rows(self.rows, left=True, pad_id=PAD)
        return self.model(
            input_ids=ids,
            attention_mask=real.long(),
            position_ids=(real.cumsum(1) - 1).clamp(min=0),
        ).logits[:, -1]


class MarianStepper(TreeStepper):
    def __init__(self, model):
        self.model = model

    def prefill(self, prompts):
        self.sources = [list(prompt) for prompt in prompts]
        self.rows = [(PAD,) for _ in prompts]
        return self.read()

    def reorder(self, index):
        super().reorder(index)
        self.sources = [self.sources[i] for i in index.tolist()]

    @torch.no_grad()
    def read(self):
        ids, real = pad_rows(self.sources, left=False, pad_id=PAD)
        return self.model(
            input_ids=ids,
            attention_mask=real.long(),
            decoder_input_ids=torch.tensor(self.rows),
        ).logits[:, -1]


def their_gpt2(seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=13,
        n_positions=64,
        n_embd=24,
        n_layer=2,
        n_head=4,
        initializer_range=0.35,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return GPT2LMHeadModel(config).eval()


def their_marian(seed):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=13,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        init_std=0.35,
        eos_token_id=EOS,
        pad_token_id=PAD,
        bos_token_id=1,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


FAMILIES = {
    "gpt2": (their_gpt2, GPT2Stepper, True),
    "marian": (their_marian, MarianStepper, False),
}


def their_texts(model, prompts, left, **settings):
    """What their ``generate`` writes, cut as ours is."""
    ids, real = pad_rows(prompts, left=left, pad_id=PAD)
    found = model.generate(
        ids,
        attention_mask=real.long(),
        max_new_tokens=11,
        do_sample=False,
        forced_eos_token_id=None,
        bad_words_ids=None,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    rows = found.sequences[:, ids.size(1) if left else 1 :].tolist()
    texts = [row[: row.index(EOS)] if EOS in row else row for row in rows]
    return texts, getattr(found, "sequences_scores", None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_writes_what_transformers_writes(family, seed):
    make, kind, left = FAMILIES[family]
    model = make(seed)
    theirs, _ = their_texts(model, PROMPTS, left, num_beams=1)
    ours = generate(kind(model), PROMPTS, 11, stop_ids={EOS})
    assert ours == theirs


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
    assert _stay([2, 0, 0, 1]) == [1, 3, 0, 2]
    assert _stay([0, 0, 0]) == [0, 1, 2]
    assert _stay([3, 1]) == [0, 1]  # fewer beams than before
    for parents in itertools.product(range(4), repeat=4):
        order = _stay(parents)
        assert sorted(order) == [0, 1, 2, 3]
        stays = sum(parents[child] == row for row, child in enumerate(order))
        assert stays == len(set(parents))
