"""A cache must change nothing but the time: cached equals uncached."""

import copy

import pytest
import torch
from compare import plain_seq2seq_stepper, plain_stepper

from coursekit.cache import LayerCache, SharedColumns, cache_bytes, make_cache
from coursekit.config import GPTConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.positions import SCHEMES
from coursekit.seq2seq import Transformer
from coursekit.steppers import (
    GPTStepper,
    Seq2SeqStepper,
)

V, MAX_LEN = 19, 23
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]  # 5, 2, 7
VARIANTS = {
    **{kind: {"positions": kind} for kind in SCHEMES},
    "halves": {"positions": "rope", "position_layout": "halves"},
    "grouped": {"positions": "rope", "n_kv_heads": 2},
    "one group": {"positions": "alibi", "n_kv_heads": 1},
    "value size": {"d_head": 6, "d_value": 5, "n_kv_heads": 2},
    "llama": {
        "positions": "rope",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
        "n_kv_heads": 2,
    },
}


def make_gpt(dtype=torch.float32, **changes):
    """A small GPT whose logits differ by much more than rounding."""
    settings = {
        "vocab_size": V,
        "max_len": MAX_LEN,
        "d_model": 24,
        "n_heads": 4,
        "n_layers": 3,
        "init_std": 0.3,
        **changes,
    }
    torch.manual_seed(0)
    return GPT(GPTConfig(**settings)).to(dtype).eval()


def make_transformer(dtype=torch.float32, **changes):
    settings = {
        "vocab_size": V,
        "max_len": MAX_LEN,
        "d_model": 24,
        "n_heads": 4,
        "init_std": 0.3,
        "scale_embedding": False,
        "dropout": 0.0,
        **changes,
    }
    torch.manual_seed(1)
    return Transformer(TransformerConfig(**settings)).to(dtype).eval()


def largest_gap(stepper, reference, prompts=PROMPTS, n_steps=11):
    """Step two steppers alike; the largest difference in any logit."""
    ours, theirs = stepper.prefill(prompts), reference.prefill(prompts)
    gap = (ours - theirs).abs().max()
    for n in range(n_steps):
        # Tokens that are the same for both, and differ from row to row.
        tokens = (torch.arange(ours.size(0)) * 7 + n * 5 + 2) % V
        ours, theirs = stepper.step(tokens), reference.step(tokens)
        # Unlike max, this lets nothing that is not a number pass.
        gap = torch.maximum(gap, (ours - theirs).abs().max())
    return gap.item()


TOLERANCES = [(torch.float32, 1e-5), (torch.float64, 1e-12)]


# --- the whole: cached == uncached ---------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("name", VARIANTS)
def test_cached_gpt_equals_plain_at_every_step(name, dtype, tolerance):
    model = make_gpt(dtype, **VARIANTS[name])
    for prompts in (PROMPTS, PROMPTS[:1]):  # padded, and not
        gap = largest_gap(GPTStepper(model), plain_stepper(model), prompts)
        assert gap < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("name", VARIANTS)
def test_cached_translator_equals_plain(name, dtype, tolerance):
    model = make_transformer(dtype, **VARIANTS[name])
    for start in ([1], [1, 11, 2]):
        cached = Seq2SeqStepper(model, start)
        gap = largest_gap(cached, plain_seq2seq_stepper(model, start))
        assert gap < tolerance


@pytest.mark.parametrize("positions", SCHEMES)
def test_without_layers_there_is_nothing_to_keep(positions):
    model = make_gpt(n_layers=0, positions=positions)
    for prompts in (PROMPTS, PROMPTS[:1]):
        steppers = GPTStepper(model), plain_stepper(model)
        assert largest_gap(*steppers, prompts, n_steps=31) < 1e-5
    check_reorder(*steppers)


@pytest.mark.parametrize("keep", [0, 4, 10])
def test_a_full_window_is_read_anew_by_the_same_rule(keep):
    model = make_gpt()
    steppers = [
        kind(model, window=11, keep=keep)
        for kind in (GPTStepper, plain_stepper)
    ]
    assert largest_gap(*steppers, n_steps=31) < 1e-5


def test_the_cache_saves_reading():
    """Equal logits could also come from reading everything each time."""
    model = make_gpt()
    seen = []
    model.embedding.register_forward_hook(
        lambda module, args, output: seen.append(args[0].size(1))
    )
    stepper = GPTStepper(model)
    stepper.prefill(PROMPTS)
    for n in range(5):
        stepper.step(torch.tensor([1, 2, 3]) + n)
    assert seen == [7, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["learned", "grouped", "alibi"])
def test_reorder_carries_the_cache(name):
    model = make_gpt(**VARIANTS[name])
    steppers = GPTStepper(model), plain_stepper(model)
    check_reorder(*steppers)


def test_reorder_carries_the_memory_of_the_source():
    model = make_transformer(n_kv_heads=2)
    check_reorder(
        Seq2SeqStepper(model, [1]), plain_seq2seq_stepper(model, [1])
    )


def check_reorder(cached, plain):
    """Spread, permute, and shrink the batch between steps."""
    orders = ([0, 0, 1, 1, 2], [1, 0, 2, 3, 4], [4, 2, 2, 0, 1], [3, 1])
    for stepper in (cached, plain):
        stepper.prefill(PROMPTS)
    for order in orders:
        logits = []
        for stepper in (cached, plain):
            stepper.reorder(torch.tensor(order))
            tokens = (torch.arange(len(order)) * 3 + order[0]) % V
            logits.append(stepper.step(tokens))
        assert torch.allclose(*logits, atol=1e-5)


def test_reorder_check_catches_a_cache_left_behind(monkeypatch):
    model = make_gpt()
    cached, plain = GPTStepper(model), plain_stepper(model)

    def only_resize(self, index, missing=None):
        rows = torch.arange(len(index)) % self.k.size(0)
        self.k, self.v = self.k[rows], self.v[rows]

    monkeypatch.setattr(LayerCache, "reorder", only_resize)
    with pytest.raises(AssertionError):
        check_reorder(cached, plain)


def test_only_what_is_not_shared_is_copied():
    """Families of rows, by hand: which columns does a row lack?"""
    shared = SharedColumns(2)
    assert shared.reorder(torch.tensor([0, 0, 0, 1]), 7) is None
    # Three children of one row have 7 columns in common, and each its 8th.
    assert lacking(shared, [0, 0, 2, 3], 8) == ([1], [0], 7)
    # Of two that go on from others, the one that lacks more decides.
    assert lacking(shared, [2, 0, 2, 3], 13) == ([0, 1], [2, 0], 7)
    assert lacking(shared, [0, 1, 0, 3], 17) == ([2], [0], 13)
    # Nothing moves; and rows of different texts share nothing.
    assert lacking(shared, [0, 1, 2, 3], 19) == ([], [], 19)
    assert lacking(shared, [0, 1, 2, 0], 19) == ([3], [0], 0)


def lacking(shared, order, length):
    rows, parents, first = shared.reorder(torch.tensor(order), length)
    return rows.tolist(), parents.tolist(), first


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["gpt", "translator"])
def test_any_order_of_rows(kind, seed):
    check_orders(kind, [seed])


def check_orders(kind, seeds):
    """Random families, against reading everything again."""
    steppers = make_steppers(kind)
    for seed in seeds:
        check_order(steppers, seed)


def check_order(steppers, seed):
    chance = torch.Generator().manual_seed(seed)
    for stepper in steppers:
        stepper.prefill(PROMPTS)
    n_rows = len(PROMPTS)
    for n in range(9):
        n_next = 5 if n < 7 else 4
        draws = torch.rand(n_next, generator=chance)
        order = (draws * n_rows).long()
        if n > 2:  # mostly, rows stay
            order = order.where(draws > 0.7, torch.arange(n_next))
        tokens = torch.randint(V, (n_next,), generator=chance)
        logits = []
        for stepper in steppers:
            stepper.reorder(order)
            logits.append(stepper.step(tokens))
        assert torch.allclose(*logits, atol=1e-5)
        n_rows = n_next


@pytest.mark.parametrize("kind", ["gpt", "translator"])
def test_a_column_too_few_is_seen(kind, monkeypatch):
    reorder = SharedColumns.reorder

    def stingy(self, index, length):
        missing = reorder(self, index, length)
        return missing and (*missing[:2], min(missing[2] + 1, length))

    monkeypatch.setattr(SharedColumns, "reorder", stingy)
    with pytest.raises(AssertionError):
        check_orders(kind, range(5))


FAMILIES = [
    # How the rows change, and of which sources the memory then is.
    ([0, 0, 1, 1, 2, 2], [0, 1, 2]),
    ([1, 0, 2, 2, 5, 4], [0, 1, 2]),
    ([4, 5, 0, 1], [2, 0]),
    ([1, 3, 2], [2, 0, 0]),
    ([1, 2, 0], [0, 0, 2]),
    ([2, 2], [2]),
]


def test_beams_of_a_source_share_its_memory():
    cached, plain = make_steppers("translator")
    for stepper in (cached, plain):
        stepper.prefill(PROMPTS)
    assert cached.mask is not None  # the sources are of unequal lengths
    for order, sources in FAMILIES:
        tokens = torch.arange(len(order)) * 3 + 1
        logits = []
        for stepper in (cached, plain):
            stepper.reorder(torch.tensor(order))
            logits.append(stepper.step(tokens))
        assert torch.allclose(*logits, atol=1e-5)
        assert cached.memory_sources == sources
        assert all(
            len(layer.memory[0]) == len(sources) for layer in cached.cache
        )


def test_a_memory_of_another_source_is_seen(monkeypatch):
    def by_number(sources):
        return sorted(set(sources))

    monkeypatch.setattr("coursekit.steppers._distinct", by_number)
    with pytest.raises(AssertionError):
        test_beams_of_a_source_share_its_memory()


def make_steppers(kind):
    if kind == "gpt":
        model = make_gpt()
        return GPTStepper(model), plain_stepper(model)
    model = make_transformer()
    return Seq2SeqStepper(model, [1]), plain_seq2seq_stepper(model, [1])


@pytest.mark.parametrize("name", VARIANTS)
def test_chunked_prefill_equals_one(name):
    """1 + 4 + 2 tokens through the cache equal 7 at once."""
    model = make_gpt(torch.float64, **VARIANTS[name])
    ids = torch.tensor(PROMPTS[2:])
    cache = make_cache(model, batch_size=1)
    chunks = [model(part, cache=cache) for part in ids.split([1, 4, 2], 1)]
    assert torch.allclose(torch.cat(chunks, 1), model(ids), atol=1e-12)


def test_each_prefill_begins_with_an_empty_cache():
    model = make_gpt()
    stepper = GPTStepper(model)
    first = stepper.prefill(PROMPTS)
    stepper.step(torch.tensor([1, 2, 3]))
    assert torch.equal(stepper.prefill(PROMPTS), first)
    translator = Seq2SeqStepper(make_transformer(), [1])
    first = translator.prefill(PROMPTS)
    translator.prefill([[2, 2, 2], [7], [11, 5]])
    assert torch.equal(translator.prefill(PROMPTS), first)


def test_bfloat16_is_as_near_to_the_truth_with_a_cache():
    """Rounding differs, so both are held against float64."""
    model = make_gpt(torch.bfloat16, n_kv_heads=2)
    gold = plain_stepper(copy.deepcopy(model).double())
    cached = largest_gap(GPTStepper(model), gold)
    plain = largest_gap(plain_stepper(model), gold)
    scale = gold.read().abs().max().item()
    assert cached < 2 * plain < 0.1 * scale


def test_autocast():
    model = make_gpt()
    with torch.autocast("cpu", torch.bfloat16):
        assert make_cache(model, 2)[0].k.dtype == torch.bfloat16
        gap = largest_gap(GPTStepper(model), plain_stepper(model))
    assert 0 < gap < 0.1


# --- mistakes that the equality must catch -------------------------------


def cached_logits(model, ids, position_of, cache, n_prompt=5):
    """A loop as beginners write it; position_of(n) numbers step n."""
    rows = [model(ids[:, :n_prompt], cache=cache)[:, -1]]
    for n in range(ids.size(1) - n_prompt):
        token = ids[:, n_prompt + n, None]
        position = torch.tensor([position_of(n)])
        rows.append(model(token, position, cache=cache)[:, -1])
    return torch.stack(rows, 1)


class TurnsAgain(LayerCache):
    """Turns all its keys once more at each step (RoPE on the cache)."""

    def __init__(self, rotary, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rotary = rotary

    def update(self, k, v):
        keys, values = super().update(k, v)
        if k.size(2) == 1:
            turn = self.rotary.rotation(torch.arange(self.length))
            keys.copy_(turn(keys))
        return keys, values


class WholeBuffer(LayerCache):
    """Hands out the unfilled part too."""

    def update(self, k, v):
        super().update(k, v)
        return self.k, self.v


IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]])
POSITION_BUGS = {
    # name: (positions, position of step n, first step that is wrong)
    "right, learned": ("learned", lambda n: 5 + n, None),
    "right, rope": ("rope", lambda n: 5 + n, None),
    "restart at 0": ("rope", lambda n: 0, 1),
    "learned positions not offset": ("learned", lambda n: n, 1),
    "prompt length added each step": ("rope", lambda n: 5 * (n + 1), 2),
    "prompt length added, learned": ("learned", lambda n: 5 * (n + 1), 2),
    "one late": ("sinusoidal", lambda n: 6 + n, 1),
}


def first_wrong_step(logits, reference):
    """Step 0 is the prompt's own last position."""
    gaps = (logits - reference).abs().amax(dim=(0, 2))
    return next((n for n, gap in enumerate(gaps) if gap > 1e-5), None)


@pytest.mark.parametrize("bug", POSITION_BUGS)
def test_position_bugs_are_seen_at_their_first_step(bug):
    kind, position_of, expected = POSITION_BUGS[bug]
    model = make_gpt(positions=kind, max_len=37)
    ids = IDS[:, :8] if "added" in bug else IDS
    logits = cached_logits(model, ids, position_of, make_cache(model, 1))
    assert first_wrong_step(logits, model(ids)[:, 4:]) == expected


def test_turning_cached_keys_again_is_seen():
    model = make_gpt(positions="rope")
    cache = [TurnsAgain(model.positions, 1, 4, 23, 6) for _ in range(3)]
    logits = cached_logits(model, IDS, lambda n: 5 + n, cache)
    assert first_wrong_step(logits, model(IDS)[:, 4:]) == 1


def test_one_cache_for_all_layers_is_seen():
    model = make_gpt()
    cache = make_cache(model, 1, max_len=64)[:1] * 3
    logits = model(IDS[:, :5], torch.arange(5), cache=cache)
    assert first_wrong_step(logits, model(IDS[:, :5])) is not None


def test_handing_out_the_whole_buffer_is_seen():
    """The causal rule j ≤ i + (S − T) needs S = number of filled keys."""
    model = make_gpt()
    right = make_cache(model, 1, max_len=11)
    wrong = [WholeBuffer(1, 4, 11, 6) for _ in range(3)]
    for layer in right + wrong:
        layer.k[:], layer.v[:] = 0.5, 0.5  # what an old text left behind
    step = {}
    for name, cache in (("right", right), ("wrong", wrong)):
        step[name] = cached_logits(model, IDS, lambda n: 5 + n, cache)
    reference = model(IDS)[:, 4:]
    assert first_wrong_step(step["right"], reference) is None
    assert first_wrong_step(step["wrong"], reference) == 0


def test_dropping_the_mask_of_the_padding_is_seen():
    model = make_gpt()
    stepper = GPTStepper(model)
    stepper.prefill(PROMPTS)
    tokens = torch.tensor([1, 2, 3])
    right = copy.deepcopy(stepper).step(tokens)
    run = stepper.run
    stepper.run = lambda ids, positions, mask: run(ids, positions, None)
    wrong = stepper.step(tokens)
    gap = (right - wrong).abs().amax(dim=1)
    assert gap[0] > 1e-3  # padded rows move
    assert gap[1] > 1e-3
    assert gap[2] == 0  # the longest has no padding


def test_old_keys_stay_only_under_a_causal_mask():
    """Why there is a cache at all: appending moves no earlier layer-2 key."""
    model = make_gpt(torch.float64)

    def second_layer_input(ids, causal):
        x = model.positions(model.embedding(ids), torch.arange(ids.size(1)))
        return model.blocks[0](x, causal=causal)

    for causal in (True, False):
        short = second_layer_input(IDS[:, :7], causal)
        long = second_layer_input(IDS[:, :8], causal)[:, :7]
        moved = (short - long).abs().max()
        assert moved < 1e-12 if causal else moved > 1e-3


# --- the parts -----------------------------------------------------------


def test_update_writes_and_returns_views_of_the_filled_part():
    cache = LayerCache(2, 3, 11, 5, d_value=7)
    k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 7)
    keys, values = cache.update(k, v)
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    keys, values = cache.update(k[:, :, :1], v[:, :, :1])
    assert cache.length == keys.size(2) == 5
    assert torch.equal(values[:, :, 4:], v[:, :, :1])
    assert keys.data_ptr() == cache.k.data_ptr()  # a view, no copy


@pytest.fixture
def unset_is_nan():
    """PyTorch's own way to find who reads memory that nobody has set."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def test_what_is_not_filled_is_never_read(unset_is_nan):
    model, pairs = make_gpt(), make_transformer()
    assert largest_gap(GPTStepper(model), plain_stepper(model)) < 1e-5
    translators = (
        Seq2SeqStepper(pairs, [1]),
        plain_seq2seq_stepper(pairs, [1]),
    )
    assert largest_gap(*translators) < 1e-5
    check_reorder(GPTStepper(model), plain_stepper(model))
    check_reorder(*translators)


def test_reading_what_is_not_filled_is_seen(unset_is_nan, monkeypatch):
    update = LayerCache.update

    def whole(self, k, v):
        update(self, k, v)
        return self.k, self.v

    monkeypatch.setattr(LayerCache, "update", whole)
    model = make_gpt()
    gap = largest_gap(GPTStepper(model), plain_stepper(model), PROMPTS[:1])
    assert gap != gap  # not a number


def test_overflow_is_refused_with_numbers_and_changes_nothing():
    cache = LayerCache(1, 1, 5, 2)
    cache.update(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    with pytest.raises(ValueError, match=r"max_len=5 .* got 3 more after 3"):
        cache.update(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    assert cache.length == 3
    assert torch.equal(cache.k[:, :, :3], torch.ones(1, 1, 3, 2))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((3, 1, 1, 2), torch.float32, r"\(3, 1, 1, 2\) .*\(1, 1, 5, 2\)"),
        ((1, 7, 1, 2), torch.float32, r"\(1, 7, 1, 2\)"),
        ((1, 1, 1, 2), torch.float64, r"float64 .*float32"),
    ],
)
def test_what_does_not_fit_is_refused(shape, dtype, message):
    cache = LayerCache(1, 1, 5, 2)
    new = torch.ones(shape, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        cache.update(new, new)
    assert cache.length == 0


def test_a_translation_longer_than_max_len_is_refused():
    model = make_transformer(max_len=5)
    for kind in (Seq2SeqStepper, plain_seq2seq_stepper):
        stepper = kind(model, [1])
        stepper.prefill([[2, 3]])
        for _ in range(stepper.limit - 1):
            stepper.step(torch.tensor([7]))
        with pytest.raises(ValueError, match=r"max_len=5.*6"):
            stepper.step(torch.tensor([7]))


def test_bytes_are_what_the_buffers_take():
    model = make_gpt(n_kv_heads=2)
    cache = make_cache(model, batch_size=5, max_len=13)
    counted = cache_bytes(3, 2, 13, 6, bytes_per_number=4, batch_size=5)
    assert sum(layer.nbytes for layer in cache) == counted
    # By hand, GPT-3 at 2,048 tokens in float16: 9.66 GB a sequence.
    assert cache_bytes(96, 96, 2048, 128) == 9_663_676_416
