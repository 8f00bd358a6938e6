"""LoRA as the library `peft` computes it, for tests to compare with.

    python -m results.tuning_oracle

It needs `peft`, which the book does not: a virtual environment of its own,
with this package's torch, is enough.
"""

import importlib
from typing import Any

import torch
from torch import nn

from results.record import options, record

D_IN, D_OUT, RANK, ALPHA = 7, 5, 3, 11


parser = options(__doc__)


def draw(*shape: int) -> torch.Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, dtype=torch.float64)


def adapted() -> dict[str, Any]:
    """One layer with an update: its numbers, its outputs, its gradients."""
    peft = importlib.import_module("peft")
    model = nn.Sequential()
    model.add_module("w", nn.Linear(D_IN, D_OUT, dtype=torch.float64))
    settings = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["w"])
    wrapped: Any = peft.get_peft_model(
        model, settings, autocast_adapter_dtype=False
    )
    layer: Any = model.w
    a, b = (layer.lora_A["default"].weight, layer.lora_B["default"].weight)
    began = b.abs().max().item()
    with torch.no_grad():
        b.copy_(draw(D_OUT, RANK))
    x, up = draw(2, 3, D_IN).requires_grad_(), draw(2, 3, D_OUT)
    y = wrapped(x)
    (y * up).sum().backward()
    numbers = {
        "weight": layer.base_layer.weight,
        "bias": layer.base_layer.bias,
        "a": a,
        "b": b,
        "x": x,
        "up": up,
        "y": y,
        "a.grad": a.grad,
        "b.grad": b.grad,
        "x.grad": x.grad,
    }
    frozen = layer.base_layer.weight.grad is None
    found = {name: t.detach().tolist() for name, t in numbers.items()}
    merged = wrapped.merge_and_unload().w.weight
    return found | {
        "merged": merged.detach().tolist(),
        "largest b at the start": began,
        "weight has no gradient": frozen,
        "trainable": RANK * (D_IN + D_OUT),
    }


def main() -> None:
    """Compute it once."""
    parser.parse_args()
    torch.set_num_threads(1)
    with record("tuning_oracle", [20]) as metrics:
        peft = importlib.import_module("peft")
        torch.manual_seed(20)
        metrics |= {"peft": peft.__version__, "rank": RANK, "alpha": ALPHA}
        metrics |= adapted()


if __name__ == "__main__":
    main()
