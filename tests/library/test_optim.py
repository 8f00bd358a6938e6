"""Schedules against the paper's formula and torch; AdamW by hand."""

import copy
import math

import pytest
import torch
from torch import nn

from coursekit.checkpoint import load_checkpoint, save_checkpoint
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import random_windows
from coursekit.decoder import GPT
from coursekit.distributed import shard
from coursekit.optim import (
    Muon,
    constant_schedule,
    cosine_schedule,
    make_optimizer,
    make_schedule,
    muon_groups,
    noam_schedule,
    orthogonalize,
    parameter_groups,
)
from coursekit.training import new_state, train


def tiny(**changes):
    torch.manual_seed(3)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 2, "max_len": 7}
    return GPT(GPTConfig(vocab_size=13, **(fields | changes)))


# -- schedules ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 1.7469e-7), (4000, 6.9877e-4), (16000, 3.4939e-4)],
)
def test_noam_gives_the_papers_numbers(step, rate):
    """Worked out by hand for the base model: d = 512, warm-up 4000."""
    assert noam_schedule(step, 512, 4000) == pytest.approx(rate, rel=1e-4)


def test_noam_peaks_at_the_end_of_the_warm_up():
    rates = [noam_schedule(step, 11, 7) for step in range(1, 100)]
    assert max(rates) == rates[6] == pytest.approx((11 * 7) ** -0.5)


def test_cosine_is_torchs():
    """After the warm-up: CosineAnnealingLR, which counts from 0."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=19, eta_min=0.02
    )
    for step in range(5, 24):
        ours = cosine_schedule(step, peak=0.3, total=24, warmup=5, min_lr=0.02)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        theirs.step()
    assert cosine_schedule(24, 0.3, 24, 5, 0.02) == pytest.approx(0.02)
    assert cosine_schedule(99, 0.3, 24, 5, 0.02) == pytest.approx(0.02)


def test_warm_up_is_a_line_that_does_not_begin_at_zero():
    for schedule in (
        lambda step: cosine_schedule(step, 0.3, 24, 5),
        lambda step: constant_schedule(step, 0.3, 5),
    ):
        rates = [schedule(step) for step in range(1, 6)]
        assert rates == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3])
    assert constant_schedule(17, 0.3, 5) == 0.3
    assert constant_schedule(1, 0.3) == 0.3
    assert cosine_schedule(1, 0.3, 24) < 0.3


@pytest.mark.parametrize("name", ["noam", "cosine", "constant"])
def test_learning_rate_is_the_peak_of_each_schedule(name):
    config = TrainConfig(
        schedule=name, learning_rate=0.017, warmup_steps=5, steps=23
    )
    schedule = make_schedule(config)
    rates = [schedule(step) for step in range(1, 24)]
    assert max(rates) == pytest.approx(0.017)
    assert rates[4] == max(rates)


def test_noam_with_its_own_peak_is_the_papers():
    peak = (11 * 7) ** -0.5
    config = TrainConfig(schedule="noam", learning_rate=peak, warmup_steps=7)
    schedule = make_schedule(config)
    for step in (1, 7, 29):
        assert schedule(step) == pytest.approx(noam_schedule(step, 11, 7))


@pytest.mark.parametrize(
    "schedule",
    [
        lambda: noam_schedule(0, 11, 7),
        lambda: cosine_schedule(0, 0.3, 24),
        lambda: constant_schedule(0, 0.3),
    ],
)
def test_steps_are_counted_from_one(schedule):
    with pytest.raises(ValueError, match="counted from 1: got step=0"):
        schedule()


def test_noam_needs_a_warm_up():
    with pytest.raises(ValueError, match="got warmup=0"):
        noam_schedule(1, 11, 0)


# -- parameter groups --------------------------------------------------------
def test_matrices_decay_and_vectors_do_not():
    model = tiny()
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, plain = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    for parameter in plain["params"]:
        name = names[id(parameter)]
        assert "norm" in name or name.endswith("bias")
    for parameter in decayed["params"]:
        name = names[id(parameter)]
        assert "norm" not in name
        assert not name.endswith("bias")
    assert "embedding.weight" in {names[id(p)] for p in decayed["params"]}


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_is_in_one_group_once(tied):
    model = tiny(tie_embeddings=tied)
    if tied:  # and in the way of torch's own modules
        model.head = nn.Linear(10, 13, bias=False)
        model.head.weight = model.embedding.weight
    groups = parameter_groups(model, 0.1)
    ids = [id(p) for group in groups for p in group["params"]]
    assert len(ids) == len(set(ids))
    assert set(ids) == {id(p) for p in model.parameters()}


def test_frozen_weights_are_left_out():
    model = tiny()
    model.embedding.weight.requires_grad_(False)
    groups = parameter_groups(model, 0.1)
    ids = {id(p) for group in groups for p in group["params"]}
    assert id(model.embedding.weight) not in ids
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="got none in GPT"):
        parameter_groups(model, 0.1)


# -- the optimizer -----------------------------------------------------------
def adamw_by_hand(weight, gradients, lr, beta1, beta2, decay, eps=1e-8):
    """Algorithm 2 of the paper, number by number."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        weight -= lr * (m_hat / (math.sqrt(v_hat) + eps) + decay * weight)
    return weight


def test_adamw_by_hand():
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.fill_(0.7)
        model.bias.fill_(0.7)
    config = TrainConfig(
        learning_rate=0.05, beta1=0.8, beta2=0.95, weight_decay=0.3
    )
    optimizer = make_optimizer(model, config)
    gradients = [0.5, -0.2, 1.1]
    for g in gradients:
        model.weight.grad = torch.full_like(model.weight, g)
        model.bias.grad = torch.full_like(model.bias, g)
        optimizer.step()
    with_decay = adamw_by_hand(0.7, gradients, 0.05, 0.8, 0.95, 0.3)
    without = adamw_by_hand(0.7, gradients, 0.05, 0.8, 0.95, 0.0)
    assert model.weight.item() == pytest.approx(with_decay, abs=1e-8)
    assert model.bias.item() == pytest.approx(without, abs=1e-8)
    assert abs(with_decay - without) > 0.01  # the test could tell


def test_the_update_is_fused_where_torch_can():
    optimizer = make_optimizer(tiny(), TrainConfig())
    assert optimizer.defaults["fused"] is True
    meta = make_optimizer(nn.Linear(3, 2, device="meta"), TrainConfig())
    assert meta.defaults["fused"] is False


# -- Muon --------------------------------------------------------------------
MUON = TrainConfig(
    optimizer="muon",
    steps=11,
    warmup_steps=2,
    learning_rate=0.02,
    weight_decay=0.3,
)
IDS = torch.randint(13, (499,), generator=torch.Generator().manual_seed(5))


def randoms(*shape, seed=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def windows(step):
    return [random_windows(IDS, 3, 7, 0, step)]


def test_muon_has_the_blocks_matrices_and_nothing_else():
    model = tiny(tie_embeddings=False, positions="learned")
    names = {id(p): name for name, p in model.named_parameters()}
    groups = muon_groups(model, 0.1)
    hidden, tables, vectors = (
        [names[id(p)] for p in g["params"]] for g in groups
    )
    assert len(hidden) == 2 * 6  # q, k, v, o and the two of the network
    assert all(name.startswith("blocks.") for name in hidden)
    assert {"embedding.weight", "head.weight"} < set(tables)
    assert all("norm" in n or n.endswith("bias") for n in vectors)
    assert [g["muon"] for g in groups] == [True, False, False]
    assert [g["weight_decay"] for g in groups] == [0.1, 0.1, 0.0]
    assert len(hidden + tables + vectors) == len(names)


def test_muon_needs_a_block_and_a_matrix():
    with pytest.raises(ValueError, match="got none in Linear"):
        make_optimizer(nn.Linear(3, 2), MUON)
    vector = {"params": [nn.Parameter(torch.zeros(5))], "muon": True}
    with pytest.raises(ValueError, match=r"got shape \(5,\)"):
        Muon([vector])


@pytest.mark.parametrize("shape", [(3, 5, 11), (3, 11, 5), (2, 7, 7)])
def test_orthogonalize_acts_on_singular_values(shape):
    """By torch's SVD: the polynomial on S, U and V as they were."""
    x = randoms(*shape)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / s.square().sum(-1, keepdim=True).sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    expected = u @ torch.diag_embed(s) @ vt
    assert torch.allclose(orthogonalize(x), expected, atol=1e-10)


def test_singular_values_come_near_one():
    """From a matrix in which one direction is a hundred times another."""
    u, _, vt = torch.linalg.svd(randoms(1, 11, 17), full_matrices=False)
    s = torch.logspace(0, -2, 11, dtype=torch.float64)
    x = u @ torch.diag(s) @ vt
    found = torch.linalg.svdvals(orthogonalize(x))
    assert found.min() > 0.6
    assert found.max() < 1.3
    assert torch.linalg.svdvals(orthogonalize(x, steps=1)).min() < 0.1
    zero = torch.zeros(1, 3, 5)
    assert torch.equal(orthogonalize(zero), zero)


def updated(make, dtype=torch.float32):
    """Two matrices of one shape and one of another, after three updates."""
    shapes = [(13, 29), (13, 29), (29, 13)]
    weights = [
        nn.Parameter(randoms(*shape, seed=i, dtype=dtype))
        for i, shape in enumerate(shapes)
    ]
    optimizer = make(weights)
    for step in range(3):
        for i, p in enumerate(weights):
            p.grad = randoms(*p.shape, seed=10 * step + i + 3, dtype=dtype)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in weights])


def ours(weights, **changes):
    options = {"lr": 0.05, "dtype": torch.bfloat16} | changes
    group = {"params": weights, "weight_decay": 0.3, "muon": True}
    return Muon([group], **options)


def theirs(weights, **changes):
    options = {"lr": 0.05, "weight_decay": 0.3, "momentum": 0.95}
    options |= {"adjust_lr_fn": "match_rms_adamw"}
    return torch.optim.Muon(weights, **(options | changes))


@pytest.mark.parametrize("dtype", [torch.bfloat16, None])
def test_muon_is_torchs(dtype):
    """Whose products are in bfloat16: so near, and no nearer."""
    theirs_ = updated(theirs)
    moved = theirs_ - updated(lambda w: theirs(w, lr=0.0))
    error = updated(lambda w: ours(w, dtype=dtype)) - theirs_
    assert error.norm() < 0.02 * moved.norm()


@pytest.mark.parametrize(
    "change",
    [
        {"nesterov": False},
        {"weight_decay": 0.0},
        {"momentum": 0.8},
        {"adjust_lr_fn": "original"},
        {"ns_steps": 4},
    ],
)
def test_another_rule_would_be_seen(change):
    """Each part of the rule moves torch's result by more than that."""
    expected = updated(lambda w: theirs(w, **change))
    moved = expected - updated(lambda w: theirs(w, lr=0.0))
    error = updated(ours) - expected
    assert error.norm() > 0.04 * moved.norm()


def test_all_else_is_adamws():
    """Tables and vectors move as they would under AdamW alone."""
    model, other = tiny(), tiny()
    muon = make_optimizer(model, MUON)
    groups = parameter_groups(other, MUON.weight_decay)
    adamw = torch.optim.AdamW(
        groups, lr=MUON.learning_rate, betas=(MUON.beta1, MUON.beta2)
    )
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        p.grad = randoms(*p.shape, dtype=torch.float32)
        q.grad = p.grad.clone()
    for optimizer in (muon, adamw):
        optimizer.step()
    hidden = {id(p) for p in muon.param_groups[0]["params"]}
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6) == (id(p) not in hidden)
    assert len(muon.param_groups) == 3  # none was lost on the way


def test_what_has_no_gradient_stays():
    model = tiny()
    optimizer = make_optimizer(model, MUON)
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert all(
        torch.equal(before[k], v) for k, v in model.state_dict().items()
    )
    frozen, *others = optimizer.param_groups[0]["params"]
    for p in others:
        p.grad = torch.ones_like(p)
    kept = frozen.detach().clone()
    assert optimizer.step(lambda: 0.7) == 0.7
    assert torch.equal(frozen, kept)
    assert optimizer.state[frozen] == {}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_run_with_muon_is_the_same(tmp_path, precision):
    """Through a checkpoint; without its momentum it would be another."""
    config = TrainConfig(**(MUON.to_dict() | {"precision": precision}))
    path = tmp_path / "checkpoint.safetensors"

    def stop(model):
        def save(progress):
            if progress.step == 5:
                save_checkpoint(path, model, state)

        return save

    whole = tiny()
    state = new_state(whole, config)
    train(whole, windows, config, None, [stop(whole)], state, progress=False)
    assert state.losses[-1] < state.losses[0]
    for lost, same in ((None, True), ("momentum", False)):
        model = tiny(n_layers=2)
        again = new_state(model, config)
        load_checkpoint(path, model, again)
        if lost:
            for p in again.optimizer.param_groups[0]["params"]:
                again.optimizer.state[p][lost].zero_()
        train(model, windows, config, state=again, progress=False)
        assert (again.losses == state.losses) == same


def test_muon_is_not_for_parts_of_matrices():
    model = tiny()
    with pytest.raises(ValueError, match="got optimizer='muon'"):
        shard(model, new_state(model, MUON), MUON, torch.device("cpu"))


def test_the_optimizer_is_adamw_unless_asked():
    assert type(make_optimizer(tiny(), TrainConfig())) is torch.optim.AdamW
    older = TrainConfig().to_dict()
    del older["optimizer"]
    assert TrainConfig.from_dict(older) == TrainConfig()
    with pytest.raises(ValueError, match="got 'sgd'"):
        TrainConfig(optimizer="sgd")
