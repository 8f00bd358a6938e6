"""The device and the number format that are there."""

import pytest
import torch
from torch import nn

from coursekit import probe
from coursekit.data import Pairs, random_windows
from coursekit.devices import pick_device, pick_precision


def test_the_device_is_one_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    for name in ("tpu", "cuda", "mps", ""):
        with pytest.raises(ValueError, match=f"got {name!r}"):
            pick_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def test_precision_follows_the_hardware(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for has, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(
            torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has
        )
        assert pick_precision("auto", cpu) == expected
        assert pick_precision("float32", cpu) == "float32"
        assert pick_precision("bfloat16", cpu) == "bfloat16"
    assert pick_precision("auto", torch.device("mps")) == "float32"


TEXT = torch.arange(23)
MODEL = nn.Embedding(7, 7)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random_windows(TEXT, 3, 5, seed=1, step=2).targets.tolist(),
        lambda: Pairs([([i], [i, i]) for i in range(9)], 12, 0, 1, 2).rows(3),
        lambda: probe.causality(MODEL, 7, 5),
    ],
)
def test_what_a_seed_draws_does_not_depend_on_the_default_device(draw):
    usual = draw()
    with torch.device("meta"):  # on which nothing can be computed
        assert draw() == usual
