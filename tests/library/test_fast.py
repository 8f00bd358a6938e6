"""A view for training: the model's parameters, its numbers, its edits."""

import copy

import pytest
import torch
from compare import shake
from torch import nn

from coursekit import training
from coursekit.attention import attend
from coursekit.block import Block
from coursekit.checkpoint import load_checkpoint, save_checkpoint
from coursekit.config import GPTConfig, TrainConfig, TransformerConfig
from coursekit.data import Batch, random_windows
from coursekit.decoder import GPT
from coursekit.fast import training as fast_training
from coursekit.fast.training import for_training, training_attend
from coursekit.loss import token_loss
from coursekit.seq2seq import Transformer
from coursekit.training import new_state, train

V = 13
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))
CONFIG = TrainConfig(
    steps=5, warmup_steps=2, learning_rate=0.01, precision="bfloat16"
)


def tiny(**changes):
    torch.manual_seed(3)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 2, "max_len": 7}
    return GPT(GPTConfig(vocab_size=V, **(fields | changes)))


def translator(**changes):
    torch.manual_seed(3)
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 2}
    sizes = {"vocab_size": V, "d_model": 14, "n_heads": 2}
    return Transformer(TransformerConfig(**sizes, **layers, **changes))


def batches(step):
    return [random_windows(IDS, 3, 7, seed=1, step=step)]


@pytest.fixture
def without(monkeypatch):
    """Training as it is without the view."""
    monkeypatch.setattr(training, "for_training", lambda model, compile: model)


# -- what a view is ----------------------------------------------------------
@pytest.mark.parametrize("make", [tiny, translator])
def test_a_view_has_the_models_parameters(make):
    model = make(dropout=0.3)
    keys = list(model.state_dict())
    view = for_training(model)
    assert view is not model
    assert type(view) is type(model)
    assert list(view.state_dict()) == list(model.state_dict()) == keys
    named = zip(view.named_parameters(), model.named_parameters(), strict=True)
    for (ours, parameter), (name, own) in named:
        assert ours == name
        assert parameter is own
    assert for_training(view) is view


def test_the_model_is_left_as_it_is():
    model = tiny(dropout=0.3)
    before = [(id(m), type(m), dict(vars(m))) for m in model.modules()]
    for_training(model)
    after = [(id(m), type(m), dict(vars(m))) for m in model.modules()]
    assert [x[:2] for x in before] == [x[:2] for x in after]
    assert all(
        x[2].keys() == y[2].keys() for x, y in zip(before, after, strict=True)
    )


@pytest.mark.parametrize("bits", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [tiny, translator])
def test_the_same_loss_and_gradients(make, bits):
    model = shake(make(dropout=0.0)).train()
    ids = IDS[:30].view(2, 15)
    inputs = {"ids": ids[:, :7]}
    if make is translator:
        inputs = {"src": ids[:, :7], "tgt": ids[:, 7:14]}
    losses, slopes = [], []
    for one in (model, for_training(model)):
        model.zero_grad()
        with torch.autocast("cpu", bits, enabled=bits == torch.bfloat16):
            loss = token_loss(one, inputs, ids[:, 8:15])
        loss.backward()
        losses.append(loss.item())
        slopes.append([p.grad.clone() for p in model.parameters()])
    exact = bits == torch.float32
    assert losses[0] == pytest.approx(losses[1], rel=1e-6 if exact else 1e-3)
    largest = max(slope.abs().max().item() for slope in slopes[0])
    for a, b in zip(*slopes, strict=True):
        close = largest * (1e-6 if exact else 0.03)
        torch.testing.assert_close(a, b, rtol=0, atol=close)


def test_the_halves_are_there():
    """For a loss in chunks: `hidden` and `logits` run the view's blocks."""
    model = tiny()
    view = for_training(model)
    ids = IDS[:14].view(2, 7)
    assert torch.equal(view.logits(view.hidden(ids)), view(ids))
    assert view.blocks[0] is not model.blocks[0]


def test_a_view_is_in_the_models_mode():
    """Attention and dropout ask the plain ones; and those follow the view."""
    model = tiny(dropout=0.5)
    view, ids = for_training(model), IDS[:14].view(2, 7)
    model.eval()
    assert torch.equal(view(ids), model(ids))
    view.train()
    assert model.dropout.training
    assert not torch.equal(view(ids), view(ids))


# -- what is not ours runs as it is ------------------------------------------
class Louder(Block):
    """A block that somebody has edited."""

    def forward(self, *inputs, **named):
        return 2 * super().forward(*inputs, **named)


def edited(model):
    model.blocks[1].__class__ = Louder


def given_a_forward(model):
    block = model.blocks[1]
    real = block.forward
    block.forward = lambda *inputs, **named: 2 * real(*inputs, **named)


def hooked(model):
    model.blocks[1].register_forward_hook(lambda m, inputs, output: 2 * output)


def hooked_inside(model):
    part = model.blocks[1].attention.w_v
    part.register_forward_hook(lambda m, inputs, output: 2 * output)


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def replaced(model):
    part = model.blocks[1].attention
    part.w_v = Doubled(part.w_v)


def another_attention(model):
    part = model.blocks[1].attention
    part.attend = lambda *inputs, **named: 2 * attend(*inputs, **named)


CHANGES = [
    edited,
    given_a_forward,
    hooked,
    hooked_inside,
    replaced,
    another_attention,
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_an_edit_acts(change, late):
    """Made before the view; a hook or another layer also after it."""
    model, ids = shake(tiny()), IDS[:14].view(2, 7)
    before, view = model(ids), for_training(model)
    if late and change in (edited, given_a_forward, another_attention):
        pytest.skip("a view is of the code that the model had")
    change(model)
    if not late:
        view = for_training(model)
    after = model(ids)
    torch.testing.assert_close(view(ids), after)
    # The control: the edit makes a difference.
    assert not torch.allclose(before, after)


def test_a_hook_fires_in_each_step():
    model, seen = tiny(), []
    model.blocks[0].attention.register_forward_hook(
        lambda *_: seen.append(True)
    )
    train(model, batches, CONFIG)
    assert len(seen) == CONFIG.steps


# -- training ----------------------------------------------------------------
def test_the_same_training(without, monkeypatch):
    """In float32 without dropout, to rounding."""
    config = TrainConfig(steps=5, warmup_steps=2, learning_rate=0.01)
    plain = train(tiny(), batches, config)
    monkeypatch.undo()
    ours = train(tiny(), batches, config)
    assert ours.losses == pytest.approx(plain.losses, abs=1e-5)


def checkpoint_of(path, stop=None, resume=None):
    state = new_state(model := tiny(), CONFIG)
    if resume is not None:
        load_checkpoint(resume, model, state)
    callbacks = [lambda progress: progress.step == stop]
    train(model, batches, CONFIG, None, callbacks, state)
    save_checkpoint(path, model, state)
    return path.read_bytes()


@pytest.mark.parametrize("plain", [False, True])
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path, request, plain):
    """With the view and without it, to the byte."""
    if plain:
        request.getfixturevalue("without")
    whole = checkpoint_of(tmp_path / "whole")
    checkpoint_of(tmp_path / "half", stop=2)
    assert checkpoint_of(tmp_path / "rest", resume=tmp_path / "half") == whole


def test_a_checkpoint_fits_with_and_without(tmp_path, without, monkeypatch):
    """No prefix reaches the file: one part with the view, one without."""
    config = {"precision": "float32"}
    monkeypatch.setattr(
        "test_fast.CONFIG", CONFIG.from_dict(CONFIG.to_dict() | config)
    )
    whole = checkpoint_of(tmp_path / "plain")
    checkpoint_of(tmp_path / "half", stop=2)
    monkeypatch.setattr(training, "for_training", for_training)
    rest = checkpoint_of(tmp_path / "rest", resume=tmp_path / "half")
    assert rest == whole


def test_a_copy_of_a_view_is_whole():
    """FSDP takes a copy: what it changes there, the model never sees."""
    model = tiny()
    other = for_training(copy.deepcopy(model))
    with torch.no_grad():
        other.blocks[0].attention.w_q.weight.zero_()
    assert model.blocks[0].attention.w_q.weight.abs().sum() > 0


def test_a_batch_of_pairs_trains_through_the_view():
    ids = IDS[:30].view(2, 15)
    batch = Batch({"src": ids[:, :7], "tgt": ids[:, 7:12]}, ids[:, 8:13])
    config = TrainConfig(steps=30, warmup_steps=2, learning_rate=0.02)
    state = train(translator(dropout=0.1), lambda step: [batch], config)
    assert state.losses[-1] < state.losses[0] - 0.5


# -- two products in place of PyTorch's fused call ---------------------------
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_keys", [17, 23])
def test_products_equal_the_readable_function(causal, n_keys):
    torch.manual_seed(0)
    shapes = [(2, 3, 17, 5), (2, 3, n_keys, 5), (2, 3, n_keys, 7)]
    gold = [torch.randn(s, dtype=torch.float64) for s in shapes]
    leaves = [x.clone().requires_grad_() for x in gold]
    expected = attend(*leaves, causal=causal)
    pull = torch.randn_like(expected)
    (expected * pull).sum().backward()
    half = [x.bfloat16().requires_grad_() for x in gold]
    with torch.autocast("cpu", torch.bfloat16):
        found = training_attend(*half, causal=causal)
    assert found.dtype == torch.bfloat16
    (found * pull.bfloat16()).sum().backward()
    # A number of bfloat16 is known to 1/256 of itself.
    torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.03)
    for ours, theirs in zip(half, leaves, strict=True):
        torch.testing.assert_close(
            ours.grad.double(), theirs.grad, rtol=0.1, atol=0.06
        )


def test_products_are_taken_where_they_are_quicker(monkeypatch):
    fused = []
    monkeypatch.setattr(
        fast_training,
        "fast_attend",
        lambda *args, **options: fused.append(options) or args[0],
    )
    q = torch.randn(2, 3, 17, 5)
    half = q.bfloat16().requires_grad_()
    long = torch.randn(1, 1, fast_training.LONGEST_PRODUCTS + 1, 5)
    for case, expected in [
        ((q, {}), 0),
        ((q, {"dropout_p": 0.1}), 1),
        ((half, {}), 1),
        ((half.detach(), {}), 0),
        ((half, {"mask": torch.ones(17, 17, dtype=torch.bool)}), 0),
        ((long, {"dropout_p": 0.1}), 0),
    ]:
        x, options = case
        fused.clear()
        training_attend(x, x, x, **options)
        assert len(fused) == 1 - expected, options


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_in_products_keeps_what_is_expected(causal):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 11, 5).unbind()
    many = [x.expand(3000, -1, -1, -1) for x in (q, k, v)]
    mean = training_attend(*many, causal=causal, dropout_p=0.3).mean(dim=0)
    expected = attend(q, k, v, causal=causal)[0]
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.08)
