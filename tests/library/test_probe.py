"""Probes: they pass right models, and each mutant fails the probe it must."""

import math

import pytest
import torch
from compare import plain_stepper, shake
from torch import nn
from torch.nn import functional as F  # noqa: N812
from transformers import GPT2Config, GPT2LMHeadModel

from coursekit.attention import attend, fast_attend
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.probe import (
    asks_for,
    batch_independence,
    causality,
    prefix_gap,
    reach,
    repeats,
    same_in_use,
    trains_everything,
    uses_context,
)
from coursekit.steppers import GPTStepper

V, T = 13, 7


def make(attend=fast_attend, **changes):
    torch.manual_seed(0)
    options = {"d_model": 12, "n_heads": 3, "d_head": 4, "n_layers": 2}
    options |= {"vocab_size": V, "max_len": T + 2} | changes
    return GPT(GPTConfig(**options), attend)


def text(seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (3, T), generator=generator)


def all_ok(model):
    reports = [p(model, V, T) for p in (causality, batch_independence)]
    reports += [uses_context(model, V, T), prefix_gap(model, text())]
    reports += [repeats(model, V, T)]
    return [str(r) for r in reports if not r.ok]


# -- right models ------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "sinusoidal", "norm_first": False},
        {"positions": "rope", "n_kv_heads": 1, "norm": "rmsnorm"},
        {"positions": "alibi", "activation": "swiglu"},
        {"dropout": 0.3},
        {"positions": "none"},
        {"attend": attend},
    ],
    # not `str`: an address would differ between two workers
    ids=lambda changes: ",".join(changes) or "default",
)
def test_right_models_pass(changes):
    """Trained or not, with dropout or without: no false alarm."""
    model = make(**changes)
    assert all_ok(model) == []
    assert all_ok(shake(model)) == []


class Theirs(nn.Module):
    """A model of Hugging Face as a module from ids to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


def hugging_face():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=V,
            n_positions=T,
            n_embd=12,
            n_layer=2,
            n_head=3,
            bos_token_id=1,
            eos_token_id=2,
        )
    ).eval()


def test_a_model_of_hugging_face_passes_all_five():
    theirs = hugging_face()
    assert all_ok(lambda ids: theirs(ids).logits) == []
    report = trains_everything(Theirs(theirs), V, T)
    assert report.ok, str(report)


def test_a_broken_model_of_hugging_face_is_caught():
    ids = text()
    ahead = hugging_face()
    ahead.transformer.h[1].register_forward_hook(
        lambda module, args, output: (
            (output[0] if isinstance(output, tuple) else output)
            + 0.1 * args[0].flip(1).cumsum(1).flip(1)
        )
    )
    logits = Theirs(ahead)
    assert not causality(logits, V, T).ok
    assert not prefix_gap(logits, ids).ok
    mixed = hugging_face()
    mixed.transformer.wte.register_forward_hook(
        lambda module, args, output: output + 0.1 * output.roll(1, 0)
    )
    assert not batch_independence(Theirs(mixed), V, T).ok
    alone = hugging_face()
    for block in alone.transformer.h:
        block.attn.c_proj.weight.data.zero_()
    assert not uses_context(Theirs(alone), V, T).ok
    cut = hugging_face()
    cut.transformer.h[0].register_forward_pre_hook(
        lambda module, args: (args[0].detach(), *args[1:])
    )
    report = trains_everything(Theirs(cut), V, T)
    assert any("wpe" in problem for problem in report.problems), str(report)


def test_right_models_train_everything():
    model = make()
    count = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report = trains_everything(
        model, V, T, expected=count, optimizer=optimizer
    )
    assert report.ok, str(report)
    assert report.uniform == pytest.approx(math.log(V))
    assert abs(report.loss - report.uniform) < 0.3
    assert f"{count:,} parameters" in str(report)


def test_masking_after_softmax_is_fine_if_renormalized():
    """Equal in exact arithmetic; the probe does not take rounding for it."""

    def renormalized(q, k, v, **_):
        w = attend_scores(q, k).softmax(-1) * triangle(q)
        return w / w.sum(-1, keepdim=True) @ v

    assert all_ok(make(renormalized)) == []


# -- mutants -----------------------------------------------------------------


def attend_scores(q, k):
    return q @ k.mT / math.sqrt(q.size(-1))


def triangle(q, diagonal=0):
    n = q.size(-2)
    return torch.ones(n, n, dtype=torch.bool).tril(diagonal)


def mutant(weights):
    """An attention function from (scores, lower triangle) to weights."""

    def f(q, k, v, **_):
        return weights(attend_scores(q, k), triangle(q)) @ v

    return f


def across_the_batch(q, k, v, **_):
    q, k, v = (x.transpose(0, 2) for x in (q, k, v))
    return fast_attend(q, k, v, causal=True).transpose(0, 2)


def merged_by_view(q, k, v, **_):
    y = fast_attend(q, k, v, causal=True)
    b, h, t, d = y.shape
    return y.reshape(b, t, h, d).transpose(1, 2)


LEAKS = {
    "no mask": mutant(lambda s, low: s.softmax(-1)),
    "the wrong triangle": mutant(
        lambda s, low: s.masked_fill(~low.mT, -math.inf).softmax(-1)
    ),
    "off by one": mutant(
        lambda s, low: s.masked_fill(
            torch.ones_like(low).triu(2), -math.inf
        ).softmax(-1)
    ),
    "multiplied mask": mutant(lambda s, low: (s * low).softmax(-1)),
    "mask after softmax": mutant(lambda s, low: s.softmax(-1) * low),
    "softmax over queries": mutant(
        lambda s, low: s.masked_fill(~low, -1e9).softmax(-2)
    ),
    "-1e-9 for -1e9": mutant(
        lambda s, low: s.masked_fill(~low, -1e-9).softmax(-1)
    ),
    "own token hidden": mutant(
        lambda s, low: s.masked_fill(low.triu() | ~low, -1e9).softmax(-1)
    ),
    "heads merged by view": merged_by_view,
}


@pytest.mark.parametrize("name", LEAKS)
def test_causality_rejects(name):
    report = causality(make(LEAKS[name]), V, T)
    assert not report.ok
    assert report.leak > 1e-4
    assert report.positions
    assert str(report).startswith("not causal: position ")


@pytest.mark.parametrize("name", LEAKS)
def test_prefix_gap_rejects(name):
    """The same mutants give themselves away by the loss on prefixes."""
    report = prefix_gap(shake(make(LEAKS[name])), text())
    assert not report.ok
    assert len(report.gaps) == T - 1
    assert report.largest > 1e-3
    assert str(report).startswith("not honest: at position ")


def test_a_leak_at_position_0_alone():
    """A first token that may not see itself sees everything, uniformly."""
    report = causality(make(LEAKS["own token hidden"], n_layers=1), V, T)
    assert report.positions == (0,)
    assert "position 0 sees" in str(report)


def test_off_by_one_leaks_one_step_a_layer():
    """Every position but the last; the last has nobody after it."""
    report = causality(make(LEAKS["off by one"], n_layers=1), V, T)
    assert report.positions == tuple(range(T - 1))


class NormOver(nn.Module):
    """A layer norm that takes its mean over the wrong axes."""

    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        mean = x.mean(self.axes, keepdim=True)
        return (x - mean) / (x.var(self.axes, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("axes", [(1,), (1, 2)])
def test_causality_rejects_norm_over_time(axes):
    model = make()
    model.blocks[0].attention_norm = NormOver(*axes)
    assert not causality(model, V, T).ok
    assert batch_independence(model, V, T).ok


def test_causality_looks_at_training_too():
    """A leak that only the training path has."""

    class Sneaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = make()

        def forward(self, ids):
            y = self.model(ids)
            return y + y.mean(1, keepdim=True) if self.training else y

    model = Sneaky().eval()
    assert not causality(model, V, T).ok
    assert causality(model.forward, V, T).ok  # a function: evaluation only
    assert not model.training


def test_not_finite_is_not_ok():
    """0 · −∞ = NaN in a mask that is multiplied."""
    nan = mutant(lambda s, low: (s + (~low) * -math.inf).softmax(-1))
    model = make(nan)
    assert not causality(model, V, T).ok
    assert not prefix_gap(model, text()).ok
    assert not uses_context(model, V, T).ok
    report = trains_everything(model, V, T)
    assert not report.ok
    assert any("loss nan" in p for p in report.problems)


@pytest.mark.parametrize("kind", ["attention", "norm"])
def test_batch_independence_rejects(kind):
    """Also where row 0 is untouched, as under a mask over the batch."""
    if kind == "attention":
        model = make(across_the_batch)
    else:
        model = make()
        model.blocks[0].attention_norm = NormOver(0)
    report = batch_independence(model, V, T)
    assert not report.ok
    assert report.leak > 1e-4
    assert str(report).startswith("not independent: changing row ")
    if kind == "attention":
        assert all(moved > changed for changed, moved in report.pairs)
        # No leak over time, but no use of it either.
        assert causality(model, V, T).ok
        assert uses_context(model, V, T).ignored == tuple(range(T - 1))


def test_dropout_that_is_left_on_is_not_the_company_s_doing():
    """Another shape draws other noise; it is `repeats` that says so."""
    model = make()

    def noisy(ids):
        return nn.functional.dropout(model(ids), 0.3, training=True)

    assert batch_independence(noisy, V, T).ok
    assert not repeats(noisy, V, T).ok


def test_batch_independence_looks_both_ways():
    """A leak from each row to the one before it, or after it, alone."""
    model = make()

    def leaky(step):
        def f(ids):
            y = model(ids)
            other = y.roll(step, 0)
            other[0 if step == 1 else -1] = 0.0
            return y + 0.1 * other

        return f

    down = batch_independence(leaky(1), V, T)
    assert down.pairs == ((0, 1), (1, 2))
    up = batch_independence(leaky(-1), V, T)
    assert up.pairs == ((1, 0), (2, 1))


def test_uses_context_rejects_a_bigram_model():
    report = uses_context(make(n_layers=0), V, T)
    assert not report.ok
    assert report.ignored == tuple(range(T - 1))
    assert max(report.effects) == 0.0
    assert "0, 1, 2, 3, 4, 5" in str(report)


def test_uses_context_rejects_a_window():
    """Two layers that look one back reach two back, and no further."""

    def window(q, k, v, **_):
        return attend(q, k, v, triangle(q) & ~triangle(q, -2))

    report = uses_context(make(window), V, T)
    assert report.ignored == (0, 1, 2, 3)


def test_uses_context_rejects_a_bag_of_words():
    """One layer without positions: a set.  Two layers tell order apart."""
    report = uses_context(make(n_layers=1, positions="none"), V, T)
    assert not report.ok
    assert report.ignored == ()
    assert str(report).startswith("blind to order")
    assert uses_context(make(n_layers=2, positions="none"), V, T).ok


def change(model, name):
    """Break one thing in a right model; return the optimizer to check."""
    block = model.blocks[0]
    optimizer = None
    if name == "detached":
        inner = block.forward
        block.forward = lambda x, **a: inner(x.detach(), **a)
    elif name == "values are keys":
        block.attention.attend = lambda q, k, v, **a: fast_attend(q, k, k, **a)
    elif name == "frozen":
        model.embedding.weight.requires_grad_(False)
    elif name == "plain list":
        model.blocks = nn.ModuleList([block, block])
    elif name == "too sure":
        with torch.no_grad():
            model.embedding.weight.mul_(100)
    elif name == "replaced":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        block.attention.w_q = nn.Linear(12, 12)
    return optimizer


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("detached", "positions.weight gets no gradient"),
        ("values are keys", "blocks.0.attention.w_v.weight gets no gradient"),
        ("frozen", "embedding.weight is frozen"),
        ("plain list", "parameters instead of"),
        ("too sure", "at the start, ln V 2.56"),
        ("replaced", "does not hold blocks.0.attention.w_q.weight"),
    ],
)
def test_trains_everything_rejects(name, problem):
    model = make()
    count = sum(p.numel() for p in model.parameters())
    expected = count if name == "plain list" else None
    optimizer = change(model, name)
    report = trains_everything(
        model, V, T, expected=expected, optimizer=optimizer
    )
    assert not report.ok
    assert problem in str(report)


def test_the_model_is_left_as_it_was():
    """Weights, gradients, buffers, modes, and the random numbers."""
    model = make(dropout=0.5)
    model.norm = nn.BatchNorm1d(V)
    body = model.logits
    model.logits = lambda x: model.norm(body(x).mT).mT
    model.blocks[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    for probe in (causality, batch_independence, uses_context):
        probe(model, V, T)
    trains_everything(model, V, T)
    prefix_gap(model, text())
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    for k, v in model.state_dict().items():
        assert torch.equal(v, before[k])
    # In training a batch norm sees the other rows.
    assert not batch_independence(model, V, T).ok


def test_prefix_gap_by_hand():
    """A model that says the next token if it is there, else nothing.

    With the text: 0 nats.  With the prefix alone: ln V.
    """

    def oracle(ids):
        n = ids.size(1)
        nxt = F.one_hot(ids.roll(-1, 1), V).float() * 1e4
        return torch.cat((nxt[:, : n - 1], torch.zeros(len(ids), 1, V)), 1)

    report = prefix_gap(oracle, text())
    assert not report.ok
    assert report.gaps[:-1] == pytest.approx([-math.log(V)] * (T - 2))
    assert report.gaps[-1] == 0.0  # nothing follows the last
    assert "2.6 nats lower" in str(report)


@pytest.mark.parametrize(
    "probe",
    [
        *(causality, batch_independence, uses_context, trains_everything),
        *(reach, repeats),
    ],
)
def test_too_small_to_probe(probe):
    with pytest.raises(ValueError, match=r"got vocab_size=1, length=\d"):
        probe(make(), 1, T)
    if probe is not trains_everything:
        with pytest.raises(ValueError, match=r"length=1\."):
            probe(make(), V, 1)


def test_one_token_has_no_gap():
    with pytest.raises(ValueError, match=r"got \(3, 1\)"):
        prefix_gap(make(), text()[:, :1])


def test_a_row_alone_must_come_out_the_same():
    """Positions along the batch: no row sees another, and yet."""
    model = make()
    add = model.positions.forward
    model.positions.forward = lambda x, positions: add(
        x, torch.arange(x.size(0))[:, None].expand(x.shape[:2])
    )
    report = batch_independence(model, V, T)
    assert not report.ok
    assert report.pairs == ()
    assert report.company == (1, 2)  # alone, each is row 0
    assert report.leak > 1e-4
    assert "row 1, 2 alone comes out" in str(report)


def test_reach_is_the_lower_triangle():
    assert torch.equal(reach(make(), V, T), triangle(torch.ones(T, T)))
    assert torch.equal(reach(make(n_layers=0), V, T), torch.eye(T).bool())


def test_reach_shows_where_a_mask_is_off():
    """One step ahead in each of two layers; the diagonal; no mask."""
    q = torch.ones(T, T)
    ahead = reach(make(LEAKS["off by one"]), V, T)
    assert torch.equal(ahead, triangle(q, 2))
    row_0 = reach(make(LEAKS["own token hidden"], n_layers=1), V, T)
    assert row_0[0].all()
    assert torch.equal(row_0[1:], triangle(q)[1:])
    assert reach(make(LEAKS["no mask"]), V, T).all()


def test_repeats_rejects_dropout_that_is_never_off():
    model = make()
    assert repeats(model, V, T).change == 0.0
    model.dropout.register_forward_hook(
        lambda module, args, output: F.dropout(output, 0.3, True)
    )
    report = repeats(model, V, T)
    assert not report.ok
    assert str(report).startswith("does not repeat itself: ")
    assert causality(model, V, T).ok  # it draws the same dropout each time


def score(cut, change=lambda logits: logits):
    """A program's loss: how it cuts a text, what it does to logits."""

    def loss(model, ids):
        inputs, targets = cut(ids)
        return cross_entropy(change(model(inputs)), targets)

    return loss


def by_one(ids):
    return ids[:, :-1], ids[:, 1:]


CUTS = {
    -1: lambda ids: (ids, ids.roll(1, 1)),
    0: lambda ids: (ids, ids),
    2: lambda ids: (ids[:, :-2], ids[:, 2:]),
}


def test_asks_for_the_next_token():
    report = asks_for(score(by_one), V, T)
    assert report.ok
    assert report.offset == 1
    # By hand: a wrong oracle is sure of another token, 30 nats a time.
    assert report.losses[0] == pytest.approx(30, abs=1e-3)
    assert str(report).startswith("asks for the next token")


@pytest.mark.parametrize("offset", CUTS)
def test_asks_for_another_token(offset):
    report = asks_for(score(CUTS[offset]), V, T)
    assert not report.ok
    assert report.offset == offset
    assert f"token {offset:+d} places on" in str(report)


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits.softmax(-1),
        lambda logits: logits.transpose(1, 2).reshape(logits.shape),
    ],
    ids=["softmax twice", "scrambled by view"],
)
def test_asks_for_nothing(change):
    report = asks_for(score(by_one, change), V, T)
    assert not report.ok
    assert report.offset is None
    assert str(report).startswith("asks for no token near by")


def test_asks_for_the_next_token_and_padding():
    def padded(ids):
        inputs, targets = by_one(ids)
        return F.pad(inputs, (0, 3)), F.pad(targets, (0, 3))

    report = asks_for(score(padded), V, T)
    assert not report.ok
    # By hand: 3 of T + 2 places, at ln V each.
    assert report.losses[1] == pytest.approx(3 * math.log(V) / (T + 2))
    assert "and for more" in str(report)


class OneTooFar(GPTStepper):
    def run(self, ids, positions, mask):
        if ids.size(1) == 1:
            positions = torch.tensor([[len(self.rows[0])]])
        return super().run(ids, positions, mask)


def test_same_in_use():
    model, ids = shake(make()), text()[0].tolist()
    right = same_in_use(GPTStepper(model), plain_stepper(model), ids)
    assert right.ok
    assert right.first is None
    assert len(right.gaps) == T - 3
    wrong = same_in_use(OneTooFar(model), plain_stepper(model), ids)
    assert not wrong.ok
    assert wrong.first == 1
    assert "part at new token 1" in str(wrong)


@pytest.mark.parametrize("n_prompt", [0, T])
def test_a_prompt_is_a_part_of_the_text(n_prompt):
    stepper = plain_stepper(make())
    with pytest.raises(ValueError, match=f"n_prompt={n_prompt} of {T}"):
        same_in_use(stepper, stepper, text()[0].tolist(), n_prompt)
