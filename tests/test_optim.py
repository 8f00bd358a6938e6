"""Schedules against the paper's formula and torch; AdamW by hand."""

import math

import pytest
import torch
from torch import nn

from coursekit.config import GPTConfig, TrainConfig
from coursekit.decoder import GPT
from coursekit.optim import (
    constant,
    cosine,
    make_optimizer,
    make_schedule,
    noam,
    parameter_groups,
)


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
    assert noam(step, 512, 4000) == pytest.approx(rate, rel=1e-4)


def test_noam_peaks_at_the_end_of_the_warm_up():
    rates = [noam(step, 11, 7) for step in range(1, 100)]
    assert max(rates) == rates[6] == pytest.approx((11 * 7) ** -0.5)


def test_cosine_is_torchs():
    """After the warm-up: CosineAnnealingLR, which counts from 0."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=19, eta_min=0.02
    )
    for step in range(5, 24):
        ours = cosine(step, peak=0.3, total=24, warmup=5, floor=0.02)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        theirs.step()
    assert cosine(24, 0.3, 24, 5, 0.02) == pytest.approx(0.02)
    assert cosine(99, 0.3, 24, 5, 0.02) == pytest.approx(0.02)


def test_warm_up_is_a_line_that_does_not_begin_at_zero():
    for schedule in (
        lambda step: cosine(step, 0.3, 24, 5),
        lambda step: constant(step, 0.3, 5),
    ):
        rates = [schedule(step) for step in range(1, 6)]
        assert rates == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3])
    assert constant(17, 0.3, 5) == 0.3
    assert constant(1, 0.3) == 0.3
    assert cosine(1, 0.3, 24) < 0.3


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
        assert schedule(step) == pytest.approx(noam(step, 11, 7))


@pytest.mark.parametrize(
    "schedule",
    [
        lambda: noam(0, 11, 7),
        lambda: cosine(0, 0.3, 24),
        lambda: constant(0, 0.3),
    ],
)
def test_steps_are_counted_from_one(schedule):
    with pytest.raises(ValueError, match="counted from 1: got step=0"):
        schedule()


def test_noam_needs_a_warm_up():
    with pytest.raises(ValueError, match="got warmup=0"):
        noam(1, 11, 0)


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
