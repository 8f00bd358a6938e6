"""The loop: what it computes, when it stops, and what it leaves alone."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from coursekit import preferences as pf
from coursekit import training
from coursekit.checks import TrainingDiverged
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    TrainConfig,
    TransformerConfig,
)
from coursekit.data import Batch, pad_pairs, random_windows, sequential_windows
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.loss import cross_entropy, token_loss
from coursekit.optim import make_schedule
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import CharTokenizer
from coursekit.training import (
    ProcessGroup,
    add_gradients,
    evaluate,
    new_state,
    train,
)
from coursekit.tuning import answer_batch
from coursekit_classroom.dates import date_pairs

V = 13
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))


def tiny(**changes):
    torch.manual_seed(3)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 2, "max_len": 7}
    return GPT(GPTConfig(vocab_size=V, **(fields | changes)))


def batches(step):
    return [random_windows(IDS, 3, 7, seed=1, step=step)]


def quick(**changes):
    fields = {"steps": 5, "warmup_steps": 2, "learning_rate": 0.01}
    return TrainConfig(**(fields | changes))


def in_chunks(size):
    return partial(token_loss, chunk_size=size)


def copy_of(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(ours, theirs):
    return all(map(torch.equal, ours, theirs))


# -- gradients ---------------------------------------------------------------
def uneven():
    """Micro-batches of 3 and 2 rows, with 18 and 4 targets that count."""
    batch = random_windows(IDS, 5, 7, seed=2, step=0)
    targets = batch.targets.clone()
    targets[0, 4:] = -100
    targets[3, 1:] = -100
    targets[4, 3:] = -100
    ids = batch.inputs["ids"]
    parts = [
        Batch({"ids": ids[rows]}, targets[rows])
        for rows in (slice(0, 3), slice(3, 5))
    ]
    return parts, Batch({"ids": ids}, targets)


def test_accumulation_gives_the_gradient_of_the_big_batch():
    parts, whole = uneven()
    assert [part.n_targets for part in parts] == [18, 4]
    model = tiny().double()
    logits = model(**whole.inputs)
    oracle = F.cross_entropy(logits.flatten(0, 1), whole.targets.flatten())
    expected = torch.autograd.grad(oracle, list(model.parameters()))
    loss, n_targets = add_gradients(model, parts)
    assert n_targets == 22
    assert abs(loss - oracle) < 1e-12
    for parameter, theirs in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, theirs, rtol=0, atol=1e-12)


SIZES = {"vocab_size": V, "d_model": 10, "n_heads": 2, "max_len": 19}


def gpt(seed=0):
    torch.manual_seed(seed)
    return GPT(GPTConfig(**SIZES, n_layers=1)).double().eval()


def reward_model():
    made = pf.RewardModel(gpt())
    torch.nn.init.normal_(made.score.weight)
    return made


def encoder():
    """Its vectors, of 14 numbers, serve as logits of 13 tokens."""
    torch.manual_seed(0)
    sizes = SIZES | {"d_model": 14, "n_layers": 1}
    return Encoder(EncoderConfig(**sizes)).double().eval()


def translator():
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**SIZES)).double().eval()


def of_tokens(name="ids", **more):
    """Rows of which 7, 4, 1 and 0 targets count."""
    ids = IDS[:28].view(4, 7)
    targets = ids.roll(-1, 1)
    for row, n in zip(targets, (7, 4, 1, 0), strict=True):
        row[n:] = -100
    return Batch({name: ids, **dict.fromkeys(more, ids)}, targets)


def of_comparisons(make):
    """Answers of different lengths, in each comparison and between them."""
    lengths = [(2, 16), (16, 1), (1, 2), (2, 2)]
    ids = IDS.tolist()
    return make([([1, 2], ids[:n], ids[50 : 50 + m]) for n, m in lengths])


def of_answers():
    pairs = [([1, 2], IDS[:n].tolist()) for n in (2, 16, 1, 3)]
    rows = answer_batch(pairs, 0)
    gains = torch.tensor([1.0, -0.5, 0.3, -0.8]).double()
    inputs = {"answers": rows.targets, "advantages": gains}
    return Batch(rows.inputs | inputs, torch.arange(4))


LOSSES = {
    "tokens": (gpt, of_tokens, token_loss),
    "smoothed": (gpt, of_tokens, partial(token_loss, label_smoothing=0.1)),
    "in chunks": (gpt, of_tokens, in_chunks(3)),
    "masked tokens": (encoder, of_tokens, token_loss),
    "translation": (
        translator,
        partial(of_tokens, "src", tgt=True),
        token_loss,
    ),
    "reward model": (
        reward_model,
        partial(of_comparisons, partial(pf.reward_batch, pad_id=0)),
        pf.reward_model_loss,
    ),
    "DPO": (
        gpt,
        lambda: of_comparisons(lambda c: pf.dpo_batch(c, gpt(seed=1), 0)),
        pf.make_dpo_loss(0.5),
    ),
    "GRPO": (gpt, of_answers, pf.make_grpo_loss(gpt(seed=1), 0.1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_depends_on_how_its_targets_are_split(name):
    """Value and gradient of one batch, of two, of rows one by one."""
    make, batch_of, loss = LOSSES[name]
    model, batch = make(), batch_of()

    def cut(*sizes):
        parts = {k: x.split(sizes) for k, x in batch.inputs.items()}
        return [
            Batch({k: x[i] for k, x in parts.items()}, targets)
            for i, targets in enumerate(batch.targets.split(sizes))
        ]

    found = []
    for parts in ([batch], cut(2, 2), cut(3, 1), cut(1, 1, 1, 1)):
        model.zero_grad()
        nats, _ = add_gradients(model, parts, loss)
        slopes = [p.grad.flatten() for p in model.parameters()]
        found.append(torch.cat([nats[None], *slopes]))
        assert abs(evaluate(model, parts, loss=loss) - nats) < 1e-12
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-12)
    # The control: the mean of the rows' means is another number.
    rows = [part for part in cut(1, 1, 1, 1) if part.n_targets]
    means = [evaluate(model, [part], loss=loss) for part in rows]
    assert max(means) - min(means) > 1e-3


def test_accumulation_in_float32():
    parts, whole = uneven()
    one, other = tiny(), tiny()
    add_gradients(one, parts)
    add_gradients(other, [whole])
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-7)


def test_the_mean_of_means_is_another_gradient():
    """The negative control: the mistake that the loop does not make."""
    parts, whole = uneven()
    wrong, right = tiny(), tiny()
    for part in parts:
        logits = wrong(**part.inputs).flatten(0, 1)
        loss = F.cross_entropy(logits, part.targets.flatten())
        (loss / len(parts)).backward()
    add_gradients(right, [whole])
    gaps = [
        (a.grad - b.grad).abs().max()
        for a, b in zip(wrong.parameters(), right.parameters(), strict=True)
    ]
    assert max(gaps) > 1e-2


def test_gradients_do_not_pile_up(monkeypatch):
    """After a step .grad is that step's alone, as autograd gives it."""
    model = tiny()
    weights, seen = [], []
    real = torch.optim.AdamW.step

    def spy(optimizer, *args):
        weights.append(copy_of(model))
        seen.append([p.grad.clone() for p in model.parameters()])
        return real(optimizer, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    train(model, batches, quick(steps=3, max_grad_norm=0.0))
    alone = tiny()
    with torch.no_grad():
        for parameter, value in zip(
            alone.parameters(), weights[2], strict=True
        ):
            parameter.copy_(value)
    add_gradients(alone, batches(2))
    for parameter, gradient in zip(alone.parameters(), seen[2], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_the_loss_in_chunks_is_the_loss(rows):
    """Accumulated, smoothed, with targets that do not count: to 1e-12."""
    parts, whole = uneven()
    model = tiny().double()
    logits = model(**whole.inputs)
    oracle = F.cross_entropy(
        logits.flatten(0, 1), whole.targets.flatten(), label_smoothing=0.1
    )
    expected = torch.autograd.grad(oracle, list(model.parameters()))
    loss, n_targets = add_gradients(
        model,
        parts,
        partial(token_loss, label_smoothing=0.1, chunk_size=rows),
    )
    assert n_targets == 22
    assert abs(loss - oracle) < 1e-12
    for parameter, theirs in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, theirs, rtol=0, atol=1e-12)


def test_the_loss_in_chunks_in_bfloat16():
    parts, _ = uneven()
    one, other = tiny(), tiny()
    nats = [
        add_gradients(model, parts, in_chunks(rows), "bfloat16")[0]
        for model, rows in ((one, 0), (other, 4))
    ]
    # Each row is computed alike; the table's gradient is rounded by chunks.
    assert nats[0].item() == pytest.approx(nats[1].item(), abs=1e-5)
    theirs = dict(other.named_parameters())
    for name, parameter in one.named_parameters():
        if name.endswith("w_k.bias"):  # its gradient is 0, but for rounding
            continue
        a, b = parameter.grad, theirs[name].grad
        scale = a.abs().max().item()
        torch.testing.assert_close(a, b, rtol=0, atol=0.02 * scale)


@pytest.mark.parametrize("tied", [True, False])
def test_an_encoder_decoder_loses_in_chunks(tied):
    torch.manual_seed(3)
    sizes = {"d_model": 14, "n_heads": 2, "dropout": 0.0}
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    model = Transformer(
        TransformerConfig(
            vocab_size=V,
            tie_embeddings=tied,
            final_norm=True,
            **sizes | layers,
        )
    ).double()
    ids = IDS[:30].view(2, 15)
    batch = Batch({"src": ids[:, :7], "tgt": ids[:, 7:12]}, ids[:, 8:13])
    logits = model(**batch.inputs)
    oracle = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    expected = torch.autograd.grad(oracle, list(model.parameters()))
    loss, _ = add_gradients(model, [batch], in_chunks(3))
    assert abs(loss - oracle) < 1e-12
    for parameter, theirs in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, theirs, rtol=0, atol=1e-12)


def test_training_with_a_chunk_of_logits(monkeypatch):
    """The same run, and no call of the head gets more rows than asked for."""
    seen = []
    real = GPT.logits

    def spy(model, x):
        seen.append(x.shape[:-1].numel())
        return real(model, x)

    held_out = list(sequential_windows(IDS[:50], 3, 7))
    whole = train(tiny(dropout=0.3), batches, quick(), held_out)
    monkeypatch.setattr(GPT, "logits", spy)
    state = train(
        tiny(dropout=0.3), batches, quick(loss_chunk_size=5), held_out
    )
    assert max(seen) == 5
    assert state.losses == pytest.approx(whole.losses, abs=1e-5)
    assert state.best == pytest.approx(whole.best, abs=1e-5)


def test_chunks_need_a_model_in_two_halves():
    batch = batches(0)
    wrapped = nn.Sequential(tiny())
    with pytest.raises(ValueError, match="hidden and logits: got Sequential"):
        add_gradients(wrapped, batch, in_chunks(4))
    # It passes methods on; they would run without what compiling does.
    with pytest.raises(ValueError, match="got OptimizedModule"):
        add_gradients(torch.compile(tiny()), batch, in_chunks(4))
    group = ProcessGroup(size=2, sum=lambda x: 2 * x)
    with pytest.raises(ValueError, match="got a group of 2"):
        train(tiny(), batches, quick(loss_chunk_size=4), group=group)


def test_another_loss_takes_its_place():
    """In training and in evaluation: here twice the usual one."""
    seen = []

    def doubled(model, inputs, targets):
        seen.append(model.training)
        return 2 * cross_entropy(model(**inputs), targets, reduction="sum")

    held_out = list(sequential_windows(IDS[:50], 3, 7))
    config = quick(max_grad_norm=0.0)  # AdamW doesn't see the factor
    usual = train(tiny(), batches, config, held_out)
    ours = train(tiny(), batches, config, held_out, loss=doubled)
    twice = [2 * nats for nats in usual.losses]
    assert ours.losses == pytest.approx(twice, rel=1e-4)
    assert ours.best == pytest.approx(2 * usual.best, rel=1e-4)
    assert set(seen) == {True, False}


@pytest.mark.parametrize(
    "setting", [{"label_smoothing": 0.1}, {"loss_chunk_size": 4}]
)
def test_another_loss_is_not_told_settings_of_the_usual_one(setting):
    """They would be ignored, and nobody would know."""
    with pytest.raises(ValueError, match="of the usual loss: got 0"):
        train(tiny(), batches, quick(**setting), loss=token_loss)


def test_a_step_without_targets_is_refused():
    batch = Batch({"ids": IDS[:7][None]}, torch.full((1, 7), -100))
    with pytest.raises(ValueError, match="got 2 micro-batches with none"):
        add_gradients(tiny(), [batch, batch])


@pytest.mark.parametrize("limit", [0.01, 0.0])
def test_clipping_happens_between_backward_and_step(monkeypatch, limit):
    lengths = []
    real = torch.optim.AdamW.step

    def spy(optimizer, *args):
        grads = [
            p.grad.flatten()
            for g in optimizer.param_groups
            for p in g["params"]
        ]
        lengths.append(torch.cat(grads).norm().item())
        return real(optimizer, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    records = []
    train(
        tiny(), batches, quick(max_grad_norm=limit), callbacks=[records.append]
    )
    before = [record.grad_norm for record in records]
    assert min(before) > 0.1  # the length before clipping is reported
    expected = [0.01] * 5 if limit else before
    assert lengths == pytest.approx(expected, rel=1e-3)


def test_bfloat16_computes_in_it_and_keeps_float32_weights():
    dtypes = set()

    class Spy(GPT):
        def forward(self, ids):
            logits = super().forward(ids)
            dtypes.add(logits.dtype)
            return logits

    config = GPTConfig(
        vocab_size=V, d_model=10, n_heads=2, n_layers=2, max_len=7
    )
    torch.manual_seed(3)
    model = Spy(config)
    coarse = train(model, batches, quick(precision="bfloat16"))
    fine = train(tiny(), batches, quick())
    assert dtypes == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert coarse.losses == pytest.approx(fine.losses, abs=0.02)
    assert coarse.losses != fine.losses


def test_compile_is_an_option(monkeypatch):
    called = []

    def fake(model):
        called.append(model)
        return model

    monkeypatch.setattr(torch, "compile", fake)
    model = tiny()
    train(model, batches, quick(compile=False))
    assert called == []
    train(model, batches, quick(compile=True))
    assert called == [model]


def test_compile_without_a_compiler_says_so(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match=r"C\+\+ compiler.*: got none"):
        train(tiny(), batches, quick(compile=True))


# -- the loop ----------------------------------------------------------------
def test_a_model_learns_a_batch_by_heart():
    model = tiny()
    config = quick(steps=150, learning_rate=0.02, weight_decay=0.0)
    state = train(model, lambda step: batches(0), config)
    assert abs(state.losses[0] - math.log(V)) < 0.3
    assert state.losses[-1] < 0.1 < state.losses[20]
    assert len(state.losses) == state.step == 150
    assert state.tokens == 150 * 21


def test_an_encoder_decoder_goes_through_the_same_loop():
    pairs = date_pairs(17, seed=0)
    text = "".join(a + b for a, b in pairs)
    tokenizer = CharTokenizer.train(text, ["<pad>", "<bos>", "<eos>"])
    pad, bos, eos = tokenizer.special_tokens.values()
    coded = [(tokenizer.encode(a), tokenizer.encode(b)) for a, b in pairs]
    torch.manual_seed(3)
    model = Transformer(
        TransformerConfig(
            vocab_size=tokenizer.vocab_size,
            d_model=14,
            n_heads=2,
            n_encoder_layers=1,
            n_decoder_layers=1,
            pad_id=pad,
            dropout=0.0,
        )
    )
    batch = pad_pairs(coded, pad, bos, eos)
    config = quick(steps=30, learning_rate=0.01, label_smoothing=0.1)
    state = train(model, lambda step: [batch], config, validation=[batch])
    assert state.losses[-1] < state.losses[0] - 0.5
    assert state.history[-1]["validation_loss"] < state.losses[0]


def test_each_step_uses_the_schedules_rate():
    config = quick(steps=7, schedule="noam")
    records = []
    train(tiny(), batches, config, callbacks=[records.append])
    schedule = make_schedule(config)
    expected = [schedule(step) for step in range(1, 8)]
    assert [r.learning_rate for r in records] == expected
    assert [r.step for r in records] == list(range(1, 8))
    assert [r.is_last for r in records] == [False] * 6 + [True]


def test_a_rate_of_zero_moves_nothing():
    model = tiny()
    before = copy_of(model)
    train(model, batches, quick(learning_rate=0.0))
    assert equal(copy_of(model), before)
    train(model, batches, quick(learning_rate=1e-4))
    assert not equal(copy_of(model), before)


def test_validation_is_looked_at_when_due_and_at_the_end():
    held_out = sequential_windows(IDS[:50], 3, 7)  # an iterator will do
    records = []
    state = train(
        tiny(),
        batches,
        quick(steps=8, eval_every=3),
        validation=held_out,
        callbacks=[records.append],
    )
    seen = {r.step: r.validation_loss for r in records if r.validation_loss}
    assert list(seen) == [3, 6, 8]
    assert [h["step"] for h in state.history] == [3, 6, 8]
    best = min(seen, key=seen.get)
    assert state.best == seen[best]
    assert [r.step for r in records if r.is_best][-1] == best


def test_a_callback_can_end_the_run():
    seen = []
    state = train(
        tiny(),
        batches,
        quick(steps=50),
        callbacks=[lambda p: p.step == 3, lambda p: seen.append(p.step)],
    )
    assert state.step == 3
    assert seen == [1, 2, 3]  # the other callback is called all the same


def test_callbacks_behind_the_one_that_ends_the_run_see_its_last_update():
    records = []
    state = train(
        tiny(),
        batches,
        quick(steps=50, eval_every=11),
        validation=list(sequential_windows(IDS[:50], 3, 7)),
        callbacks=[lambda p: p.step == 3, records.append],
    )
    assert [r.is_last for r in records] == [False, False, True]
    assert records[-1].validation_loss == state.best
    assert [h["step"] for h in state.history] == [3]


def test_time_ends_the_run_with_an_evaluation():
    held_out = list(sequential_windows(IDS[:50], 3, 7))
    records = []
    state = train(
        tiny(),
        batches,
        quick(steps=50),
        validation=held_out,
        callbacks=[records.append],
        seconds=0.0,
    )
    assert state.step == 1
    assert records[-1].is_last
    assert records[-1].validation_loss == state.best


def test_training_twice_gives_the_same_bits():
    config = quick(steps=9)
    one = train(tiny(dropout=0.3), batches, config)
    other = train(tiny(dropout=0.3), batches, config)
    assert one.losses == other.losses
    third = train(tiny(dropout=0.3), batches, quick(steps=9, seed=1))
    assert one.losses != third.losses


def test_a_run_in_two_parts_is_the_run_in_one():
    config = quick(steps=9, schedule="constant")
    model = tiny(dropout=0.3)
    whole = train(model, batches, config)
    halves = tiny(dropout=0.3)
    state = train(halves, batches, config, callbacks=[lambda p: p.step == 4])
    assert state.step == 4
    state = train(halves, batches, config, state=state)
    assert state.losses == whole.losses
    assert equal(copy_of(halves), copy_of(model))


def test_one_long_random_stream_would_not_resume(monkeypatch):
    """The negative control: without a seed a step, the second half differs."""
    monkeypatch.setattr(training, "seed_step", lambda *name: None)
    config = quick(steps=9, schedule="constant")
    torch.manual_seed(0)
    whole = train(tiny(dropout=0.3), batches, config)
    model = tiny(dropout=0.3)
    torch.manual_seed(0)
    state = train(model, batches, config, callbacks=[lambda p: p.step == 4])
    torch.manual_seed(0)
    state = train(model, batches, config, state=state)
    assert state.losses != whole.losses


def test_steps_and_seeds_draw_different_dropout():
    drawn = set()
    with torch.random.fork_rng(devices=[]):
        for seed, step in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]:
            training.seed_step(seed, step)
            drawn.add(tuple(torch.rand(3).tolist()))
    assert len(drawn) == 5


def test_the_callers_random_numbers_are_untouched():
    model = tiny(dropout=0.3)
    torch.manual_seed(17)
    expected = torch.rand(3)
    torch.manual_seed(17)
    train(model, batches, quick())
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_printed(capsys):
    train(tiny(), batches, quick())
    assert capsys.readouterr() == ("", "")


def test_the_progress_bar_shows_loss_and_speed(capsys):
    held_out = list(sequential_windows(IDS[:50], 3, 7))
    train(tiny(), batches, quick(), held_out, progress=True)
    shown = capsys.readouterr().err
    assert "loss 2." in shown
    assert "validation 2." in shown
    assert "tokens/s" in shown


# -- when it goes wrong ------------------------------------------------------
def test_nan_stops_before_the_weights_are_spoiled():
    model, reference = tiny(), tiny()
    train(
        reference, batches, quick(steps=50), callbacks=[lambda p: p.step == 3]
    )
    stopped_at = []

    class Poison(nn.Module):
        """Gives NaN in the step after the third."""

        def forward(self, x):
            return x * math.nan if len(stopped_at) == 3 else x

    model.final_norm = nn.Sequential(model.final_norm, Poison())
    with pytest.raises(TrainingDiverged) as error:
        train(model, batches, quick(steps=50), callbacks=[stopped_at.append])
    assert "got loss nan" in str(error.value)
    assert "at step 4" in str(error.value)
    assert "Lower the learning rate" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert equal(copy_of(model), copy_of(reference))


def test_a_gradient_that_is_infinite_stops_too():
    class Cliff(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.inf

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(V, V))

        def forward(self, ids):
            return Cliff.apply(self.table[ids])

    with pytest.raises(TrainingDiverged, match="at step 1"):
        train(Broken(), batches, quick())


# -- evaluation --------------------------------------------------------------
def test_evaluation_is_the_mean_over_all_targets():
    model = tiny()
    ids = IDS[:101]
    nats = []
    for first in range(0, 100, 7):
        window = ids[first : first + 7][: 100 - first]
        logits = model(window[None])[0]
        targets = ids[first + 1 : first + 1 + len(window)]
        nats += F.cross_entropy(logits, targets, reduction="none").tolist()
    expected = sum(nats) / len(nats)
    assert len(nats) == 100
    for rows in (1, 4, 99):
        ours = evaluate(model, sequential_windows(ids, rows, 7))
        assert ours == pytest.approx(expected, abs=1e-6)
    # The negative control: the mean of the batches' means.
    means = [evaluate(model, [b]) for b in sequential_windows(ids, 4, 7)]
    assert abs(sum(means) / len(means) - expected) > 1e-4


def test_evaluation_has_no_dropout_and_restores_every_mode():
    model = tiny(dropout=0.5)
    model.train()
    model.blocks[0].eval()  # a frozen part stays as it was
    modes = [m.training for m in model.modules()]
    windows = list(sequential_windows(IDS[:50], 3, 7))
    one = evaluate(model, windows)
    assert evaluate(model, windows) == one
    assert [m.training for m in model.modules()] == modes
    assert len(set(modes)) == 2
    quiet = tiny(dropout=0.0)
    assert evaluate(quiet, windows) == one


def test_modes_are_restored_after_an_error():
    model = tiny()
    with pytest.raises(ValueError, match="token ids"):
        evaluate(model, [Batch({"ids": IDS[None, :7] + V}, IDS[None, :7])])
    assert model.training


def test_evaluation_of_nothing_is_refused():
    used_up = sequential_windows(IDS[:50], 3, 7)
    list(used_up)
    with pytest.raises(ValueError, match="got 0 batches with none"):
        evaluate(tiny(), used_up)


def test_evaluation_of_spoiled_weights_is_refused():
    model = tiny()
    with torch.no_grad():
        model.embedding.weight.fill_(math.nan)
    with pytest.raises(TrainingDiverged, match="got nan"):
        evaluate(model, sequential_windows(IDS[:50], 3, 7))


def test_start_has_seen_nothing():
    state = new_state(tiny(), quick())
    assert (state.step, state.tokens, state.losses) == (0, 0, [])
    assert state.best is None


def test_a_state_of_another_model_is_refused():
    """Else the copy's weights would stay, and the loss with them."""
    model = tiny()
    state = new_state(model, quick())
    with pytest.raises(ValueError, match="must be of this model"):
        train(
            copy.deepcopy(model), batches, quick(), state=state, progress=False
        )
    train(model, batches, quick(), state=state, progress=False)


def test_batches_may_come_one_by_one():
    listed, made = tiny(), tiny()
    train(listed, batches, quick(steps=2), progress=False)
    one_by_one = lambda step: iter(batches(step))  # noqa: E731
    train(made, one_by_one, quick(steps=2), progress=False)
    for a, b in zip(listed.parameters(), made.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="got 'bf16'"):
        evaluate(tiny(), batches(0), "bf16")
