"""Numbers are those that they were before files moved: see ``golden/``."""

import pytest
import torch
from golden import adapter
from safetensors.torch import load_file

HERE = adapter.ROOT / "tests" / "golden"
GOLDEN = load_file(HERE / "numbers.safetensors")
GROUPS = adapter.groups()


def differences(group, found):
    """The names under which a group has other numbers now."""
    return [
        name
        for name, now in found.items()
        if not torch.allclose(
            now, GOLDEN[f"{group}:{name}"], rtol=1e-5, atol=1e-5
        )
    ]


@pytest.mark.parametrize("group", GROUPS)
def test_the_numbers_are_unchanged(group):
    found = GROUPS[group]()
    there = {key for key in GOLDEN if key.startswith(f"{group}:")}
    assert there == {f"{group}:{name}" for name in found}
    assert differences(group, found) == []


def test_all_names_are_offered():
    names = set((HERE / "names.txt").read_text("utf8").split())
    assert names == adapter.names()


def test_one_changed_weight_is_noticed(monkeypatch):
    """The control: every pinned number of the group depends on it."""
    build = adapter.build

    def changed(kind, config):
        model = build(kind, config)
        with torch.no_grad():
            model.blocks[0].attention.w_v.weight[0, 0] += 0.5
        return model

    monkeypatch.setattr(adapter, "build", changed)
    found = adapter.decoder({})
    assert {"logits", "loss", "gradients"} <= {
        *differences("gpt/default", found)
    }


def test_one_swapped_draw_is_noticed(monkeypatch):
    """The control of the loops: a batch that comes at another step."""
    windows = adapter.random_windows

    def swapped(ids, size, context, seed, step):
        return windows(ids, size, context, seed, {3: 4, 4: 3}.get(step, step))

    monkeypatch.setattr(adapter, "random_windows", swapped)
    assert differences("train/adamw", adapter.training()) == ["losses"]
