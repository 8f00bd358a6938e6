"""Bad input to the models: a ValueError with rule, values and remedy.

Elsewhere in the tests jaxtyping checks each call before our code does.  A
reader has no such hook, so this file runs with it off, as all of its part
(``UNCHECKED`` in ``conftest.py``).
"""

import io
import json
import re
import types

import numpy as np
import pytest
import torch
from jaxtyping import config as jaxtyping_config

from coursekit import cli
from coursekit.attention import attend, attention_weights, fast_attend
from coursekit.cli import translate
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    TrainConfig,
    TransformerConfig,
)
from coursekit.data import (
    load_text,
    pad,
    random_windows,
    sequential_windows,
    train_val_split,
)
from coursekit.decoder import GPT
from coursekit.embedding import TokenEmbedding
from coursekit.encoder import Encoder
from coursekit.feedforward import FeedForward, SwiGLU
from coursekit.generation import beam_search, generate
from coursekit.loss import cross_entropy, fast_cross_entropy
from coursekit.masks import causal_mask, combine_masks, window_mask
from coursekit.multihead import MultiHeadAttention, split_heads
from coursekit.optim import (
    constant_schedule,
    cosine_schedule,
    noam_schedule,
)
from coursekit.packed import pack
from coursekit.positions import frequencies, sinusoidal
from coursekit.probe import causality, prefix_gap
from coursekit.sampling import apply_temperature, sampler
from coursekit.saved_models import read_config, shapes_only
from coursekit.seq2seq import Transformer
from coursekit.speculative import draw_with, speculate
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import (
    BPETokenizer,
    CharTokenizer,
    tokenizer_from_dict,
)
from coursekit.tuning import add_lora
from coursekit.vision import patchify
from coursekit.weights import read_tensors, write_tensors

pytestmark = pytest.mark.skipif(
    not jaxtyping_config.jaxtyping_disable,
    reason="runs with its part, or alone: its calls would be checked first",
)

B, H, T, S, DH, D, V, MAX = 2, 3, 5, 7, 11, 42, 31, 13


def ids(length=T, wrong=None):
    x = torch.arange(B * length).view(B, length) % V
    if wrong is not None:
        x[1, 2] = wrong
    return x


def gpt(**changes):
    options = {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": 1}
    return GPT(GPTConfig(**(options | {"max_len": MAX} | changes)))


def encoder():
    return Encoder(
        EncoderConfig(
            vocab_size=V, d_model=D, n_heads=H, n_layers=1, max_len=MAX
        )
    )


def translator():
    return Transformer(
        TransformerConfig(vocab_size=V, d_model=D, n_heads=H, max_len=MAX)
    )


Q = torch.zeros(B, H, T, DH)


def uniform(text, n):
    """A reader that knows nothing."""
    return torch.full((n, V), 1 / V)


def refused(call, *received):
    """A ValueError that names the values, and then says what to do."""
    with pytest.raises(ValueError, match=re.escape(received[0])) as error:
        call()
    message = str(error.value)
    for value in received:
        assert value in message
    sentences = re.split(r"(?<=[.?])\s", message)
    assert "got" in sentences[0]  # the rule, and what was received
    assert len(sentences) > 1, f"no remedy: {message}"
    assert message[-1] in ".?"


# -- ids and lengths ---------------------------------------------------------


@pytest.mark.parametrize("wrong", [-1, V, 10**6])
def test_id_out_of_range(wrong):
    low, high = min(0, wrong), max(9, wrong)
    seen = f"0..{V - 1}: got {low}..{high}"
    refused(lambda: gpt()(ids(wrong=wrong)), seen)
    refused(lambda: encoder()(ids(wrong=wrong)), seen)
    refused(lambda: translator()(ids(wrong=wrong), ids()), seen)
    refused(lambda: translator()(ids(), ids(wrong=wrong)), seen)


def test_target_out_of_range():
    """Also −1, which is not the index of what does not count."""
    logits = torch.zeros(B, T, V)
    for wrong in (-1, V):
        refused(
            lambda w=wrong: cross_entropy(logits, ids(wrong=w)),
            f"0..{V - 1}: got {min(0, wrong)}..{max(9, wrong)}",
        )


def test_longer_than_max_len():
    refused(lambda: gpt()(ids(MAX + 1)), f"max_len={MAX}", "got 14")
    refused(lambda: encoder()(ids(MAX + 1)), f"max_len={MAX}", "got 14")
    model = translator()
    refused(lambda: model(ids(MAX + 1), ids()), f"max_len={MAX}", "got 14")
    refused(lambda: model(ids(), ids(MAX + 1)), f"max_len={MAX}", "got 14")
    assert gpt()(ids(MAX)).shape == (B, MAX, V)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope"])
def test_longer_than_max_len_with_a_cache(positions):
    """What the cache holds counts."""

    class Full:
        length = MAX - 2

        def update(self, k, v):
            return k, v

    refused(
        lambda: gpt(positions=positions)(ids(3), cache=[Full()]),
        f"max_len={MAX}",
        "got 14",
    )


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope"])
def test_positions_out_of_range(positions):
    """A negative one would silently read the table from its end."""
    model = gpt(positions=positions)
    at = torch.arange(T)
    refused(lambda: model(ids(), at - 1), f"0..{MAX - 1}: got -1..3")
    refused(lambda: model(ids(), at + MAX), f"0..{MAX - 1}: got 13..17")
    refused(lambda: model(ids(), at[:1]), "got (1,) for ids (2, 5)")


# -- shapes ------------------------------------------------------------------

EACH = pytest.mark.parametrize("f", [attend, fast_attend])


def qkv(*lead, t=T, s=S):
    def one(n, size=DH):
        return torch.zeros(*(lead or (B, H)), n, size)

    return one(t), one(s), one(s)


@EACH
def test_attention_shapes(f):
    q, k, v = qkv()
    shapes = "got q (2, 3, 5, 11), k (2, 3, 7, "
    refused(lambda: f(q, k[..., :7], v), shapes + "7)")
    refused(lambda: f(q, k, v[:, :, :5]), shapes + "11), v (2, 3, 5, 11)")
    refused(lambda: f(q, k[:, :2], v[:, :2]), "k (2, 2, 7, 11)", "multiple")
    refused(lambda: f(q, k[0], v[0]), "k (3, 7, 11)", "number of axes")
    refused(lambda: f(q, k[:1], v[:1]), "k (1, 3, 7, 11)", "one batch")
    refused(lambda: f(q, torch.cat((k, k)), torch.cat((v, v))), "k (4, 3, ")
    refused(lambda: f(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), "q (11,)")
    assert f(q, k, v).shape == (B, H, T, DH)


@EACH
@pytest.mark.parametrize(
    "shape", [(S, T), (B, T, S), (T,), (B, 1, T, 1, S), (S + 1,), (5, 1, 1, S)]
)
def test_mask_shapes(f, shape):
    """A mask that does not broadcast; (B, T, S) would mask by head."""
    mask = torch.ones(shape, dtype=torch.bool)
    refused(lambda: f(*qkv(), mask), f"got mask {shape} for (2, 3, 5, 7)")
    refused(
        lambda: attention_weights(*qkv()[:2], mask), f"got mask {shape} for"
    )


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_mask_that_is_not_boolean(f, dtype):
    """Some code adds such a mask, some multiplies it: ours asks."""
    mask = torch.zeros(T, S, dtype=dtype)
    refused(lambda: f(*qkv(), mask), f"got {dtype}", "mask > 0")
    refused(lambda: f(*qkv(), mask, causal=True), f"got {dtype}")
    refused(lambda: attention_weights(*qkv()[:2], mask), f"got {dtype}")
    refused(lambda: combine_masks(None, mask), f"got {dtype}")


def test_mask_through_the_models():
    """The error comes up from wherever the mask was given."""
    bad = torch.zeros(B, 1, 1, T)
    refused(lambda: gpt()(ids(), mask=bad), "got torch.float32")
    refused(lambda: encoder()(ids(), bad), "got torch.float32")
    refused(lambda: translator()(ids(), ids(), bad), "got torch.float32")
    short = torch.ones(B, 1, 1, T - 1, dtype=torch.bool)
    seen = "got mask (2, 1, 1, 4) for (2, 3, 5, 5)"
    refused(lambda: gpt()(ids(), mask=short), seen)
    refused(lambda: encoder()(ids(), short), seen)
    refused(lambda: translator()(ids(), ids(), short), seen)
    refused(lambda: translator()(ids(), ids(), None, short), seen)


@EACH
def test_more_queries_than_keys(f):
    refused(lambda: f(*qkv(t=7, s=5), causal=True), "T=7", "S=5")
    refused(lambda: f(*qkv(t=1, s=0), causal=True), "T=1", "S=0")
    refused(lambda: causal_mask(7, 5), "T=7", "S=5")


def test_batches_that_do_not_match():
    """A source for each target."""
    refused(lambda: translator()(ids()[:1], ids()), "q (2, 3, 5, 14)")


def test_ids_that_are_not_a_batch():
    """One sequence needs its batch axis; floats are no ids."""
    for model in (gpt(), encoder(), lambda x: translator()(x, x)):
        refused(lambda m=model: m(ids()[0]), "(B, T)", "got (5,)")
        refused(lambda m=model: m(ids().float()), "got torch.float32")
        refused(lambda m=model: m(ids()[:, :0]), "got (2, 0)")


def test_logits_and_targets():
    logits = torch.zeros(B, T, V)
    refused(
        lambda: cross_entropy(logits, ids(T - 1)),
        "got logits (2, 5, 31) and targets (2, 4)",
    )
    refused(lambda: cross_entropy(logits, logits), "targets (2, 5, 31)")
    refused(lambda: cross_entropy(logits, ids(), reduction="avg"), "got 'avg'")
    refused(
        lambda: cross_entropy(logits, ids(), label_smoothing=1.0), "got 1.0"
    )


def test_heads():
    refused(lambda: MultiHeadAttention(13, 3), "got d_model=13, n_heads=3")
    refused(
        lambda: MultiHeadAttention(12, 4, 3), "got n_heads=4, n_kv_heads=3"
    )
    refused(lambda: split_heads(torch.zeros(B, T, 13), 3), "got 13 columns")
    refused(lambda: gpt(d_model=13), "got d_model=13, n_heads=3")


# -- names and sizes ---------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "received"),
    [
        (lambda: gpt(positions="rotary"), "'rotary'"),
        (lambda: sinusoidal(S, D, "half"), "'half'"),
        (lambda: FeedForward(D, D, "tanh"), "'tanh'"),
        (lambda: frequencies(7), "size=7"),
        (lambda: gpt(d_model=42.0), "42.0"),
        (lambda: gpt(d_model="42"), "'42'"),
        (lambda: gpt(n_layers=1.5), "1.5"),
        (lambda: gpt(norm="batchnorm"), "'batchnorm'"),
        (lambda: gpt(dropout=1.0), "1.0"),
        (lambda: causality(gpt(), 1, 5), "vocab_size=1, length=5"),
        (lambda: prefix_gap(gpt(), ids(1)), "(2, 1)"),
    ],
)
def test_names_and_sizes(call, received):
    refused(call, f"got {received}")


def test_nothing_is_changed_by_a_refusal():
    """After an error the model works as before."""
    model = gpt()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    y = model(ids())
    for bad in (ids(wrong=V), ids(MAX + 1)):
        with pytest.raises(ValueError, match="got"):
            model(bad)
    assert all(
        torch.equal(v, before[k]) for k, v in model.state_dict().items()
    )
    assert torch.equal(model(ids()), y)


def test_a_compiled_form_is_not_packed():
    """It would hand on what is set in it, and the model lose its parts."""
    model = gpt()
    names = [name for name, _ in model.named_parameters()]
    with pytest.raises(ValueError, match="as it was built: got Optimized"):
        pack(torch.compile(model))
    assert [name for name, _ in model.named_parameters()] == names


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["123"], "Encode a text"),
        ("123", "Encode a text"),
        ([[1.0, 2.0]], "must be integers"),
        ([[True, 2]], "must be integers"),
        (torch.ones(1, 2), "must be integers"),
        (torch.tensor([1, 2]), "a list of lists"),
        ([1, 2], "a list of lists"),
    ],
)
def test_prompts_are_ids(prompts, message):
    with pytest.raises(ValueError, match=message):
        generate(GPTStepper(gpt()), prompts, 2)


@pytest.mark.parametrize(
    "batch",
    [
        torch.tensor([[1, 2]]),
        [torch.tensor([1, 2])],
        np.array([[1, 2]]),
        [np.array([1, 2])],
        ((1, 2),),
    ],
    ids=["tensor", "tensors", "array", "arrays", "tuples"],
)
def test_ids_may_come_in_many_forms(batch):
    """The control: what holds whole numbers is taken."""
    stepper = GPTStepper(gpt())
    expected = generate(stepper, [[1, 2]], 2)
    assert generate(stepper, batch, 2) == expected


@pytest.mark.parametrize("wrong", [[0.7], [True], ["1"], "1", [None], 1])
def test_only_integers_are_ids(wrong):
    """They would be cut off, or read as 1."""
    tokenizer = CharTokenizer("abc")
    with pytest.raises(ValueError, match="must be integers: got"):
        tokenizer.decode(wrong)
    with pytest.raises(ValueError, match="must be integers: got"):
        pad([[1, 2], wrong], 0)
    stop = pytest.raises(ValueError, match="a collection of token ids: got")
    with stop:
        generate(GPTStepper(gpt()), [[1]], 2, stop_ids=wrong)
    with stop:
        speculate(uniform, uniform, [1], 2, 2, draw_with(), wrong)
    right = np.array([0, 1])
    assert tokenizer.decode(right) == tokenizer.decode(torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "an empty prompt"), ([1.5], "integers"), (1, "are a batch")],
)
def test_what_cannot_be_speculated_on(prompt, message):
    with pytest.raises(ValueError, match=message):
        speculate(uniform, uniform, prompt, 2, 2, draw_with())


def test_half_a_token_is_refused_before_the_draw():
    with pytest.raises(ValueError, match=r"got 2\.5"):
        sampler(top_k=2.5)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (GPTConfig, {"vocab_size": None}),
        (GPTConfig, {"vocab_size": V, "n_layers": None}),
        (GPTConfig, {"vocab_size": V, "max_len": None}),
        (TransformerConfig, {"vocab_size": V, "n_encoder_layers": 1.5}),
    ],
)
def test_a_number_that_is_none(config, fields):
    with pytest.raises(ValueError, match=r"got None|got 1\.5"):
        config(**fields)


@pytest.mark.parametrize(
    ("config", "fields", "said"),
    [
        # For Python True is a number, and any number a yes or no.
        (GPTConfig, {"vocab_size": True}, "vocab_size must be a whole number"),
        (GPTConfig, {"norm_eps": True}, "norm_eps must be a number"),
        (GPTConfig, {"bias": 3}, "bias must be True or False: got 3"),
        (GPTConfig, {"attention_bias": 0}, "must be True or False: got 0"),
        (GPTConfig, {"final_norm": None}, "True or False: got None"),
        (EncoderConfig, {"embedding_norm": 1}, "True or False: got 1"),
        (TrainConfig, {"compile": 1}, "compile must be True or False"),
        (TrainConfig, {"batch_size": True}, "batch_size must be a whole"),
    ],
)
def test_a_switch_is_no_number(config, fields, said):
    usual = {} if config is TrainConfig else {"vocab_size": V}
    refused(lambda: config(**(usual | fields)), said)


# -- what was accepted once, or gave another kind of error --------------------


@EACH
def test_a_bias_is_added_to_the_scores(f):
    """Booleans would add 1 where a query may attend."""
    q, k, v = qkv()
    mask = torch.ones(T, S, dtype=torch.bool)
    refused(lambda: f(q, k, v, bias=mask), "got torch.bool (5, 7) for (2, 3")
    wrong = torch.zeros(S, T)
    refused(lambda: f(q, k, v, bias=wrong), "got torch.float32 (7, 5) for")
    refused(
        lambda: attention_weights(q, k, bias=mask), "got torch.bool (5, 7)"
    )
    wrong = torch.zeros(T, S, dtype=torch.complex64)
    refused(lambda: f(q, k, v, bias=wrong), "got torch.complex64 (5, 7)")
    for dtype in (torch.float64, torch.float16, torch.int64):
        bias = torch.ones(T, S, dtype=dtype)
        for kind in (torch.float32, torch.bfloat16):
            inputs = (x.to(kind) for x in (q, k, v))
            assert f(*inputs, bias=bias).dtype == kind


def test_a_mask_of_the_keys_alone():
    """One axis broadcasts as any other, on both ways and as a bias too."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, n, DH) for n in (T, S, S))
    mask, bias = torch.arange(S) < S - 2, torch.randn(S)
    for options in ({"mask": mask}, {"bias": bias}):
        expected = attend(q, k, v, **options)
        torch.testing.assert_close(fast_attend(q, k, v, **options), expected)


def test_what_is_no_tensor():
    for model in (gpt(), encoder(), lambda x: translator()(x, x)):
        refused(lambda m=model: m([[1, 2]]), "tensor of int64", "'list'")
        refused(lambda m=model: m(None), "got <class 'NoneType'>")
    q, k, v = qkv()
    bad = np.ones((T, S), dtype=bool)
    refused(lambda: attend(q, k, v, bad), "boolean tensor", "got ndarray")


@EACH
def test_attention_of_what_is_no_tensor_or_has_no_heads(f):
    q, k, v = qkv()
    refused(lambda: f(None, k, v), "got NoneType, Tensor, Tensor")
    refused(lambda: f(q, k.tolist(), v), "got Tensor, list, Tensor")
    refused(lambda: f(q, k.numpy(), v), "got Tensor, ndarray, Tensor")
    for bias in (1.0, [1.0], np.ones((T, S))):
        refused(lambda x=bias: f(q, k, v, bias=x), "bias must be a tensor")
    refused(lambda: f(q, k[:, :0], v[:, :0]), "k (2, 0, 7, 11)")
    refused(lambda: f(q[:, :0], k[:, :0], v[:, :0]), "k (2, 0, 7, 11)")


def test_different_dtypes_are_pytorchs_to_refuse():
    """Under autocast they may differ, so that no check of ours is right."""
    q, k, v = qkv()
    for f in (attend, fast_attend):
        with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
            f(q, k, v.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert f(q, k, v.bfloat16()).shape == (B, H, T, DH)


def test_heads_that_are_none():
    refused(lambda: MultiHeadAttention(12, 3, 0), "n_kv_heads=0")
    refused(lambda: MultiHeadAttention(12, 0), "got d_model=12, n_heads=0")
    refused(lambda: MultiHeadAttention(12, 3, -1), "n_kv_heads=-1")


@pytest.mark.parametrize("f", [cross_entropy, fast_cross_entropy])
def test_the_type_of_targets(f):
    logits = torch.randn(B, T, V)
    expected = f(logits, ids())
    torch.testing.assert_close(f(logits, ids().int()), expected)
    refused(lambda: f(logits, ids().byte()), "got torch.uint8")


@pytest.mark.parametrize(
    "fields",
    [
        {"vocab_size": 10**400},
        {"n_layers": 10**6},
        {"d_ff": 2**31 + 1},
        {"max_len": 10**12},
    ],
)
def test_sizes_that_cannot_be_built(fields):
    """At once: a configuration is made, no model."""
    usual = {"vocab_size": V}
    refused(lambda: GPTConfig(**(usual | fields)), "at most")
    assert TrainConfig(seed=2**63 - 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": True},
        {"temperature": False},
        {"temperature": "1"},
        {"top_k": True},
        {"top_p": True},
    ],
)
def test_a_setting_of_sampling_that_is_no_number(settings):
    refused(lambda: sampler(**settings), "got")


@pytest.mark.parametrize(
    ("settings", "received"),
    [
        ({"stop_ids": 3}, "got 3"),
        ({"stop_ids": "x"}, "got 'x'"),
        ({"max_new_tokens": 2.5}, "got 2.5"),
    ],
)
def test_settings_of_generation(settings, received):
    usual = {"max_new_tokens": 2} | settings
    stepper = GPTStepper(gpt())
    refused(lambda: generate(stepper, [[1]], **usual), received)
    refused(lambda: beam_search(stepper, [[1]], 2, **usual), received)


@pytest.mark.parametrize("n", [2.0, True, 10**10])
def test_beams_are_counted(n):
    stepper = GPTStepper(gpt())
    refused(lambda: beam_search(stepper, [[1]], n, 2), f"got n_beams={n}")


TEXT = torch.arange(200) % V
GROW = {"stepper": None, "prompts": [[1, 2]], "max_new_tokens": 2}
CUT = {"ids": TEXT, "batch_size": 2, "context": 5}
SETTINGS = [  # a function, a right call, which of its settings are numbers
    (generate, GROW, "max_new_tokens"),
    (
        beam_search,
        GROW | {"n_beams": 2},
        "n_beams max_new_tokens length_penalty",
    ),
    (GPTStepper, {"model": None}, "window keep"),
    (sampler, {}, "temperature top_k top_p"),
    (
        apply_temperature,
        {"logits": torch.zeros(B, V), "temperature": 1.0},
        "temperature",
    ),
    (random_windows, CUT | {"seed": 0, "step": 0}, "batch_size context"),
    (sequential_windows, CUT, "batch_size context"),
    (train_val_split, {"data": TEXT}, "fraction"),
    (window_mask, {"size": 3, "n_queries": T}, "size"),
    (sinusoidal, {"n_positions": T, "d_model": D}, "n_positions d_model"),
    (
        MultiHeadAttention,
        {"d_model": D, "n_heads": H},
        "d_model n_heads n_kv_heads d_head dropout",
    ),
    (FeedForward, {"d_model": D, "d_ff": 13}, "d_model d_ff"),
    (SwiGLU, {"d_model": D, "d_ff": 13}, "d_model d_ff"),
    (TokenEmbedding, {"vocab_size": V, "d_model": D}, "vocab_size d_model"),
    (
        cross_entropy,
        {"logits": torch.zeros(B, T, V), "targets": ids()},
        "label_smoothing",
    ),
    (
        noam_schedule,
        {"step": 1, "d_model": D, "warmup": 7},
        "step d_model warmup",
    ),
    (constant_schedule, {"step": 1, "peak": 0.1}, "step peak warmup"),
    (
        cosine_schedule,
        {"step": 1, "peak": 0.1, "total": 9},
        "step peak total warmup min_lr",
    ),
    *(
        (f, {"q": Q, "k": Q, "v": Q}, "dropout_p")
        for f in (attend, fast_attend)
    ),
    (
        speculate,
        {
            "target": uniform,
            "draft": uniform,
            "prompt": [1],
            "max_new_tokens": 3,
            "n_draft": 2,
            "draw": draw_with(torch.Generator().manual_seed(0)),
        },
        "max_new_tokens n_draft",
    ),
    (add_lora, {"model": None, "rank": 2}, "rank"),
    (patchify, {"images": torch.zeros(B, 1, 6, 6), "size": 3}, "size"),
    (BPETokenizer.train, {"text": "abab", "vocab_size": 257}, "vocab_size"),
]
MAY_BE_NONE = ("window", "keep", "top_k", "top_p", "n_kv_heads", "d_head")
MAY_BE_PARTS = (
    *("length_penalty", "temperature", "label_smoothing", "step"),
    *("peak", "min_lr"),
)


@pytest.mark.parametrize(
    ("f", "usual", "name"),
    [(f, usual, name) for f, usual, all_ in SETTINGS for name in all_.split()],
)
def test_a_setting_of_the_wrong_kind(f, usual, name):
    """None, a text, a list, True, a size below 0, half of a thing."""
    made = {"model": gpt, "stepper": lambda: GPTStepper(gpt())}
    usual = {n: made[n]() if x is None else x for n, x in usual.items()}
    f(**usual)  # the control
    wrong = ["3", [2], True, -1, float("nan")]
    wrong += [None] * (name not in MAY_BE_NONE)
    wrong += [2.5] * (name not in MAY_BE_PARTS)
    for value in wrong:
        refused(lambda x=value: f(**(usual | {name: x})), "got")


def test_positions_that_are_no_whole_numbers():
    model, right = gpt(), torch.arange(T)
    model(ids(), positions=right.int())
    refused(lambda: model(ids(), positions=right.float()), "torch.float32")
    refused(lambda: model(ids(), positions=right > 1), "torch.bool")
    refused(lambda: model(ids(), positions=right.tolist()), "list")


def test_a_mask_of_fewer_than_no_rows():
    refused(lambda: causal_mask(-1), "T=-1")


def test_a_split_that_is_no_text():
    """In a file too, where it was read as the pattern "5"."""
    tokenizer = BPETokenizer.train("ab", 256)
    for split in (5, None, [5]):
        refused(lambda x=split: BPETokenizer(tokenizer.tokens, [], x), "split")
        fields = tokenizer.to_dict() | {"split": split}
        refused(lambda x=fields: tokenizer_from_dict(x), "split must be")


def test_a_value_of_any_length_is_refused_in_a_line():
    with pytest.raises(ValueError, match="d_head must be") as error:
        GPTConfig(vocab_size=V, d_head=["x"] * 900)
    assert len(str(error.value)) < 1000


def test_sizes_that_cannot_be_counted():
    config = GPTConfig(vocab_size=V, d_model=2**31, n_heads=1, n_layers=1)
    match = "must fit into memory: got"
    with pytest.raises(ValueError, match=match), shapes_only():
        GPT(config)


@pytest.mark.parametrize("kind", [RuntimeError, torch.OutOfMemoryError])
def test_an_error_of_another_kind_passes_through(kind):
    error = kind("something else, while the model was built")
    with pytest.raises(kind) as seen, shapes_only():
        raise error
    assert seen.value is error


# -- the command line, and files ----------------------------------------------


def test_a_key_pressed_while_a_command_is_imported(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert cli.main(["info"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_an_output_that_knows_no_accents(monkeypatch):
    """As PYTHONIOENCODING=ascii makes it."""
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    print("é", file=out, flush=True)
    assert data.getvalue().endswith(b"\\xe9\n")


def test_no_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)

    def lines():
        with translate.open_lines(None):
            pass

    refused(lines, "got none")


def test_a_bom_is_no_text(tmp_path):
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfab")
    assert load_text(path) == "ab"
    stub = types.SimpleNamespace(problem=lambda text: None)
    for number, expected in ((1, "ab"), (2, "\ufeffab")):
        line = translate.read_line(stub, number, path.read_bytes())
        assert line["source"] == expected


def test_a_name_that_only_pickles_have(tmp_path):
    """What was written so could not be read."""
    refused(lambda: write_tensors(tmp_path / "x.pt", {}, {}), "x.pt")
    assert not [*tmp_path.iterdir()]


def test_json_that_is_too_deep(tmp_path):
    deep = "[" * 200_000
    (tmp_path / "config.json").write_text(deep)
    refused(lambda: read_config(tmp_path), "nested too deeply")
    head = json.dumps({"__metadata__": {"coursekit": deep}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    refused(lambda: read_tensors(path), "nested too deeply")
