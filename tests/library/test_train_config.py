"""How a model is trained: rules, old settings, and the tables of names."""

import pytest
import torch
from torch import nn

from coursekit.config import TrainConfig
from coursekit.optim import (
    OPTIMIZERS,
    SCHEDULES,
    make_optimizer,
    make_schedule,
)


def test_settings_of_older_runs_are_read():
    """A field that came later gets its default."""
    old = TrainConfig(steps=7).to_dict()
    del old["loss_chunk_size"]
    assert TrainConfig.from_dict(old) == TrainConfig(steps=7)


def test_an_unknown_field_is_refused():
    with pytest.raises(ValueError, match="'clips'"):
        TrainConfig.from_dict({"clips": 1.0})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"steps": -1},
            "steps must be a whole number of .* at least 0: got -1",
        ),
        (
            {"batch_size": 0},
            "batch_size must be a whole number of .* at least 1",
        ),
        ({"context": 0}, "at least 1: got 0. Give a whole number"),
        ({"gradient_accumulation_steps": 0}, "at least 1: got 0"),
        ({"eval_every": 0}, "eval_every must"),
        ({"seed": 2**63}, "seed must be .* at most 9223372036854775807 "),
        ({"steps": True}, "steps must be a whole number .*: got True"),
        ({"beta1": 1.0}, r"beta1 must lie in \[0, 1\): got 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must lie"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm must be a number"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number"),
        (
            {"min_lr_ratio": 1.5},
            "min_lr_ratio is at most the peak, 1: got 1.5",
        ),
        ({"optimizer": "sgd"}, "must be one of adamw, muon: got 'sgd'"),
        ({"schedule": "step"}, "one of cosine, noam, constant: got 'step'"),
        ({"precision": "half"}, "precision must be one of"),
        (
            {"compile": True, "loss_chunk_size": 64},
            "got compile=True, loss_chunk_size=64",
        ),
    ],
)
def test_each_rule(fields, said):
    with pytest.raises(ValueError, match=said):
        TrainConfig(**fields)


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_schedule_is_built(name):
    config = TrainConfig(schedule=name, warmup_steps=10, learning_rate=0.5)
    assert make_schedule(config)(10) == pytest.approx(0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_eps_reaches_each_optimizer(name):
    model = nn.ModuleList([nn.Linear(3, 2)])
    built = make_optimizer(model, TrainConfig(optimizer=name, eps=1e-5))
    assert {group["eps"] for group in built.param_groups} == {1e-5}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_is_built(name):
    model = nn.ModuleList([nn.Linear(3, 2)])
    built = make_optimizer(model, TrainConfig(optimizer=name))
    held = [p for g in built.param_groups for p in g["params"]]
    assert {id(p) for p in held} == {id(p) for p in model.parameters()}


def test_another_optimizer_is_one_entry(monkeypatch):
    """Its name is a choice at once, and what builds it is called."""
    monkeypatch.setitem(
        OPTIMIZERS,
        "sgd",
        lambda model, config: torch.optim.SGD(model.parameters()),
    )
    config = TrainConfig(optimizer="sgd")
    built = make_optimizer(nn.Linear(3, 2), config)
    assert type(built) is torch.optim.SGD
    assert "sgd" in TrainConfig.limits("optimizer")["choices"]
