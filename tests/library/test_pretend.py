"""Every part runs where its model is: on a device that is not the CPU.

Each piece of work is done on the CPU and on the pretended device of
``pretend.py``; both give the same numbers.
"""

import itertools
import tempfile
from pathlib import Path

import pretend
import pytest
import torch
from compare import close, plain_stepper
from golden import adapter

from coursekit import (
    interpret,
    loss,
    minimal,
    minimal_seq2seq,
    preferences,
    quantize,
    scaling,
    tuning,
    vision,
)
from coursekit.checkpoint import load_checkpoint, save_checkpoint
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    SpeechConfig,
    TrainConfig,
    TransformerConfig,
    VisionConfig,
)
from coursekit.data import Pairs, random_windows
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.generation import beam_search, generate
from coursekit.masks import causal_mask, combine_masks, padding_mask
from coursekit.packed import pack
from coursekit.pretrained.whisper import SpeechTransformer
from coursekit.probe import causality, prefix_gap, same_in_use
from coursekit.sampling import sampler
from coursekit.saved_models import load
from coursekit.seq2seq import Transformer
from coursekit.speculative import CachedReader, draw_with, speculate
from coursekit.steppers import (
    GPTStepper,
    Seq2SeqStepper,
)
from coursekit.training import evaluate, new_state, train
from coursekit.translate import Translator
from coursekit.vision import ViT

B, T, V = adapter.B, adapter.T, adapter.V
SMALL, PROMPTS = adapter.SMALL, adapter.PROMPTS
COMPARED = [([3, 5, 7], [2, 1], [4, 6, 1]), ([2], [9, 8, 1], [1])]
PAIRS = [([3, 5, 7], [2, 1]), ([2], [9, 8, 1])]


def gpt(place, **fields):
    """A small GPT, on a device."""
    config = GPTConfig(n_layers=2, **SMALL | fields)
    return adapter.build(GPT, config).to(place)


def seq2seq(place):
    """A small encoder-decoder, without dropout."""
    config = TransformerConfig(dropout=0.0, **SMALL)
    return adapter.build(Transformer, config).to(place)


def learned(model, batches, own_loss=None, **fields):
    """Losses of a few steps, and one of an evaluation."""
    config = TrainConfig(steps=3, warmup_steps=2, eval_every=2, **fields)
    validation = list(batches(9))
    state = train(
        model, batches, config, validation, progress=False, loss=own_loss
    )
    return state.losses, [row["validation_loss"] for row in state.history]


def windows(step):
    """Windows of a text that lies on the CPU."""
    return [random_windows(adapter.tokens(300), B, T, 0, step)] * 2


WORK = {}


def work(function):
    """Note a function from a device to numbers, tensors or tokens."""
    WORK[function.__name__] = function
    return function


@work
def positions(place):
    names = ("rope", "rope_halves", "sinusoidal", "alibi", "llama")
    return [
        gpt(place, **adapter.CONFIGS[name])(adapter.tokens(B, T).to(place))
        for name in names
    ]


@work
def masks(place):
    ids = adapter.tokens(B, T).to(place)
    mask = combine_masks(padding_mask(ids, 3), causal_mask(T, device=place))
    return gpt(place)(ids, mask=mask)


@work
def encoder(place):
    model = adapter.build(Encoder, EncoderConfig(n_layers=2, **SMALL))
    ids = adapter.tokens(B, T).to(place)
    return model.to(place)(ids, padding_mask(ids, 3))


@work
def speech(place):
    config = SpeechConfig(**SMALL, n_mels=6, max_frames=7)
    model = adapter.build(SpeechTransformer, config).to(place)
    torch.manual_seed(5)
    mel, ids = torch.randn(B, 6, 14), adapter.tokens(B, 7)
    return model(mel.to(place), ids.to(place))


@work
def images(place):
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 20, "n_heads": 5}
    model = adapter.build(ViT, VisionConfig(n_layers=2, **sizes)).to(place)
    torch.manual_seed(5)
    drawn = torch.randn(B, 1, 8, 8).to(place)
    order = torch.tensor([2, 0, 3, 1]).expand(B, 4)
    return model(vision.shuffle_patches(drawn, 4, order))


@work
def training(place):
    return learned(gpt(place), windows)


@work
def muon_and_chunks(place):
    fields = {"optimizer": "muon", "loss_chunk_size": 16}
    return learned(gpt(place), windows, **fields)


@work
def smoothed(place):
    return learned(gpt(place), windows, label_smoothing=0.1)


@work
def pairs(place):
    rows = adapter.tokens(30, 9).tolist()
    made = [(r[: 2 + n % 7], r[n % 5 :]) for n, r in enumerate(rows)]
    batches = Pairs(made, max_tokens=40, pad_id=0, bos_id=1, eos_id=2)
    return learned(seq2seq(place), lambda n: [batches.batch(n)])


@work
def a_text_on_the_device(place):
    ids = adapter.tokens(300).to(place)
    return learned(gpt(place), lambda n: [random_windows(ids, B, T, 0, n)])


@work
def resumed(place):
    with tempfile.TemporaryDirectory() as folder:
        return resumed_in(Path(folder, "checkpoint.safetensors"), place)


def resumed_in(path, place):
    """Losses of a run, and of its continuation from a checkpoint."""
    model, config = gpt(place), TrainConfig(steps=2, warmup_steps=1)
    state = train(model, windows, config, progress=False)
    save_checkpoint(path, model, state)
    again = gpt(place)
    state = new_state(again, TrainConfig(steps=4, warmup_steps=1))
    load_checkpoint(path, again, state)
    return train(
        again,
        windows,
        TrainConfig(steps=4, warmup_steps=1),
        state=state,
        progress=False,
    ).losses


@work
def preference(place):
    model, reference = gpt(place), gpt(place)
    batch = preferences.dpo_batch(COMPARED, reference, 0)
    return learned(model, lambda n: [batch], preferences.make_dpo_loss(0.5))


@work
def rewards(place):
    model, reference = gpt(place), gpt(place)
    batches = preferences.grpo_batches(
        model,
        lambda step: [[3, 5], [2]],
        lambda step, pairs: [len(answer) % 3 for _, answer in pairs],
        *(4, 1, 6),
    )
    own_loss = preferences.make_grpo_loss(reference, 0.1)
    return learned(model, lambda n: batches(n), own_loss)


@work
def perplexity(place):
    return evaluate(gpt(place), windows(0))


@work
def greedy_and_sampled(place):
    model = gpt(place)
    choose = [
        sampler(0.9, top_k=5, generator=torch.Generator().manual_seed(1)),
        sampler(0.9, top_p=0.8, generator=torch.Generator().manual_seed(1)),
    ]
    steppers = (GPTStepper, plain_stepper)
    found = [
        generate(stepper(model), PROMPTS, 4, c)
        for stepper, c in itertools.product(steppers, choose)
    ]
    return [*found, generate(GPTStepper(model), PROMPTS, 9)]


@work
def packed(place):
    return generate(GPTStepper(pack(gpt(place), 2)), PROMPTS, 9)


@work
def beams(place):
    found = beam_search(GPTStepper(gpt(place)), PROMPTS, 3, 6, [1])
    sources = adapter.tokens(B, 7).tolist()
    stepper = Seq2SeqStepper(seq2seq(place), [1])
    found += beam_search(stepper, sources, 3, 6, [2], exhaustive=False)
    return [[[*h.tokens, h.score] for h in row] for row in found]


@work
def translation(place):
    translate = Translator.load("translator-de-en", place)
    texts = translate(["Ein Hund läuft.", "Frauen."], n_beams=2)
    return [*"\n".join(texts).encode()]


@work
def shipped(place):
    model, tokenizer = load("stories", place)
    prompt = tokenizer.encode("Once upon a time")
    return generate(GPTStepper(model), [prompt], 12)


@work
def looking_inside(place):
    model, ids = gpt(place), adapter.tokens(B, T).to(place)
    seen = interpret.watch(model, ids)

    def measure():
        return float(loss.cross_entropy(model(ids), ids))

    other = (ids + 1) % V
    traced = interpret.patch_effects(
        model, ids, other, lambda y: y[:, -1, 2], depths=[1], positions=[3]
    )
    means = interpret.mean_heads(model, ids)
    effects = [
        interpret.head_effects(model, measure, m) for m in (None, means)
    ]
    assert all(x.device == ids.device for x in effects)
    return [
        interpret.logit_lens(model, ids),
        interpret.head_contributions(model, seen.heads),
        interpret.mean_weight_on(seen.weights, interpret.induction_keys(ids)),
        effects,
        traced,
    ]


@work
def probes(place):
    model, ids = gpt(place), adapter.tokens(1, T)
    steppers = GPTStepper(model), plain_stepper(model)
    return [
        float(causality(model, V, 4).ok),
        prefix_gap(model, ids.to(place)).largest,
        float(same_in_use(*steppers, ids[0].tolist()).ok),
    ]


@work
def low_rank(place):
    model = tuning.add_lora(gpt(place), rank=2, alpha=4.0)
    losses = learned(model, lambda n: [tuning.answer_batch(PAIRS, 0)])
    tuning.merge_lora(model)
    return losses, model(adapter.tokens(B, T).to(place))


@work
def quantized(place):
    model = gpt(place)
    ids = adapter.tokens(B, T).to(place)
    x = model.embedding(ids)
    return [
        quantize.quantized_copy(model, bits, group_size=4)(ids)
        for bits in (8, 4)
    ] + [quantize.Int4Linear(model.blocks[0].attention.w_q, 4)(x)]


@work
def speculation(place):
    target, draft = gpt(place), gpt(place, d_ff=8)
    draw = draw_with(torch.Generator().manual_seed(3))
    readers = CachedReader(target), CachedReader(draft)
    return speculate(*readers, PROMPTS[0], 9, 3, draw).tokens


@work
def tiles(place):
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 3, T, 5) for _ in range(3))
    q, k, v = (x.to(place).requires_grad_() for x in (q, k, v))
    out = scaling.block_attend(q, k, v, causal=True, size=4)
    out.sum().backward()
    return out, q.grad, k.grad, v.grad


@work
def the_lesson(place):
    torch.manual_seed(4)
    ids = adapter.tokens(300).to(place)
    with torch.device(place):  # as the file itself does on a GPU
        model = minimal.GPT(V, 8, 20, n_heads=5, n_blocks=2)
        losses = minimal.train(model, ids, 3, batch_size=B)
        written = minimal.generate(model, ids[None, :3], 11, 1.0, 0.9)
        return losses, minimal.evaluate(model, ids), written


@work
def the_second_lesson(place):
    torch.manual_seed(4)
    with torch.device(place):
        model = minimal_seq2seq.Transformer(V, 12, 20, 5, 1)
        losses = minimal_seq2seq.train(model, PAIRS * 3, 2, batch_size=B)
        return losses, minimal_seq2seq.translate(model, [[3, 5], [2, 7, 4]])


def numbers(found):
    """Everything in nested sequences, on the CPU, in order."""
    if isinstance(found, torch.Tensor):
        return found.detach().cpu().double().flatten().tolist()
    if isinstance(found, list | tuple):
        return [n for part in found for n in numbers(part)]
    return [float(found)]


@pytest.mark.parametrize("name", WORK)
def test_it_runs_on_another_device(name):
    expected = numbers(WORK[name]("cpu"))
    with pretend.device() as place:
        found = numbers(WORK[name](place))
    assert expected
    close(torch.tensor(found), torch.tensor(expected), 1e-4)


@pytest.mark.parametrize("seeded", [False, True])
def test_draws_without_a_generator_stay_on_the_device(monkeypatch, seeded):
    """A generator of the CPU draws there, for the same tokens anywhere."""
    drawn, draw = [], torch.rand

    def rand(*size, device, **how):
        drawn.append(device)
        return draw(*size, device=device, **how)

    monkeypatch.setattr(torch, "rand", rand)
    generator = torch.Generator().manual_seed(1) if seeded else None
    with pretend.device() as place:
        logits = torch.zeros(2, V, device=place)
        tokens = sampler(top_p=0.9, generator=generator)(logits)
        assert tokens.device == place
        assert (drawn[0] == place) is not seeded


def test_a_mask_of_the_cpu_is_refused():
    """The control: what a GPU refuses is refused here too."""
    ids, mask = adapter.tokens(B, T), causal_mask(T)
    with pretend.device() as place:
        model = gpt(place)
        with pytest.raises(RuntimeError, match="tensors on two devices"):
            model(ids.to(place), mask=mask)
        with pytest.raises(RuntimeError, match="a CPU generator draws"):
            torch.rand(3, generator=torch.Generator(), device=place)
