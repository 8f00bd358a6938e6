"""A ViT, a convolution and an MLP of equal size on 6,000 pictures of clothes.

Equal are the weights (to a few in a hundred), the pictures seen, the loop and
its schedule.  Not equal is what a picture costs, so its FLOPs are counted.
Each model has the best of three learning rates, picked with short runs on a
part of the pictures to learn from; the test pictures are looked at once.

Then the patches of the test pictures are put into another order: one for all
pictures, or one for each.  A ViT without positions must not notice.  And
the convolution learns again, from pictures whose patches, and the pixels in
each patch, are put into one order: for the other two that would be the
same run with other names.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

from coursekit.attention import (
    Attend,
    attend,
    fast_attend,
)
from coursekit.config import TrainConfig, VisionConfig
from coursekit.data import Batch
from coursekit.interpret import watch
from coursekit.training import train
from coursekit.vision import (
    ViT,
    load_fashion,
    patchify,
    shuffle_patches,
    unpatchify,
)
from coursekit_classroom.baselines import convolution, mlp
from results.record import options, record

PATCH, BATCH = 7, 64
RATES = [3e-3, 1e-2, 3e-2]
CHANCE = torch.Generator().manual_seed(17)
ORDER = torch.randperm(16, generator=CHANCE)  # of patches
INSIDE = torch.randperm(PATCH**2, generator=CHANCE)  # of a patch's pixels


def vit(positions: str = "learned", attend: Attend = fast_attend) -> ViT:
    """The ViT of the page."""
    config = VisionConfig(
        patch_size=PATCH,
        d_model=32,
        n_heads=4,
        n_layers=2,
        positions=positions,
    )
    return ViT(config, attend)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ViT": vit,
    "ViT without positions": lambda: vit("none"),
    "ViT with sinusoids": lambda: vit("sinusoidal"),
    "convolution": lambda: convolution(14),
    "MLP": lambda: mlp(34),
}


class Clothes:
    """The pictures, scaled; and one run on them."""

    def __init__(self) -> None:
        data = load_fashion()
        mean, std = data.images.mean(), data.images.std()
        self.images = (data.images - mean) / std
        self.labels = data.labels
        self.test_images = (data.test_images - mean) / std
        self.test_labels = data.test_labels

    def run(
        self,
        name: str,
        seed: int,
        steps: int,
        rate: float,
        part: slice = slice(None),
        scrambled: bool = False,
    ) -> nn.Module:
        """Train one model on some of the pictures."""
        images, labels = self.images[part], self.labels[part]
        if scrambled:
            images = shuffle_patches(images, PATCH, ORDER, INSIDE)
        torch.manual_seed(seed)
        model = MODELS[name]()

        def batches(step: int) -> list[Batch]:
            chance = torch.Generator().manual_seed(10_000 * seed + step)
            rows = torch.randint(len(images), (BATCH,), generator=chance)
            return [Batch({"images": images[rows]}, labels[rows])]

        config = TrainConfig(
            steps=steps,
            learning_rate=rate,
            warmup_steps=steps // 10,
            min_lr_ratio=0.0,
            seed=seed,
        )
        train(Named(model), batches, config, progress=False)
        return model.eval()

    def right(self, model: nn.Module, order: Tensor | None = None) -> Tensor:
        """Mask of correctly classified test pictures, patches shuffled."""
        images = self.test_images
        if order is not None:
            images = shuffle_patches(images, PATCH, order)
        return answers(model, images) == self.test_labels


class Named(nn.Module):
    """Gives the first argument of any model the name that batches use."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the images."""
        logits: Tensor = self.model(images)
        return logits


@torch.no_grad()
def answers(model: nn.Module, images: Tensor) -> Tensor:
    """The class of the highest logit, for each picture."""
    return torch.cat([model(part).argmax(-1) for part in images.split(250)])


def percent(right: Tensor) -> float:
    """The accuracy: pictures that are classified correctly, in percent."""
    return round(100 * right.double().mean().item(), 1)


def paired(a: list[Tensor], b: list[Tensor]) -> dict[str, float]:
    """Lead of one model on the test pictures, in percentage points.

    The interval is that of drawing other test pictures, which are the same
    for both models; the runs are these.
    """
    lead = torch.stack(a).double().mean(0) - torch.stack(b).double().mean(0)
    error = lead.std().item() / len(lead) ** 0.5
    return {
        "mean": round(100 * lead.mean().item(), 2),
        "interval": round(100 * 1.96 * error, 2),
    }


def pick_rates(clothes: Clothes, steps: int) -> dict[str, dict[str, Any]]:
    """The best rate of each model, by 1,000 pictures that are set aside."""
    held_out = clothes.images[5000:], clothes.labels[5000:]
    picked: dict[str, dict[str, Any]] = {}
    for name in ("ViT", "convolution", "MLP"):
        found = {}
        for rate in RATES:
            model = clothes.run(name, 99, steps, rate, slice(5000))
            hits = answers(model, held_out[0]) == held_out[1]
            found[str(rate)] = percent(hits)
        best = max(found, key=lambda rate: found[rate])
        picked[name] = {"rate": float(best), "held out": found}
        print(name, picked[name], flush=True)
    return picked


def size(name: str) -> dict[str, int]:
    """Weights of a model, and FLOPs of one picture forward."""
    # The counter does not see the fused attention of CPUs.
    model = vit(attend=attend) if name == "ViT" else MODELS[name]()
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, 28, 28))
    weights = sum(p.numel() for p in model.parameters())
    return {"parameters": weights, "flops": counter.get_total_flops()}


def shuffled(clothes: Clothes, models: list[nn.Module]) -> dict[str, Any]:
    """Accuracy with the patches where they were, in one order, in many."""
    n = len(clothes.test_images)
    chance = torch.Generator().manual_seed(18)
    each = torch.rand(n, 16, generator=chance).argsort(dim=1)
    return {
        name: [percent(clothes.right(model, order)) for model in models]
        for name, order in (
            ("in place", None),
            ("one order", ORDER),
            ("an order for each", each),
        )
    }


def near(model: nn.Module) -> list[list[float]]:
    """The cosine of each two of the patches' learned positions."""
    assert isinstance(model, ViT)
    rows = F.normalize(model.positions.weight.detach()[1:], dim=1)
    return [[round(x, 3) for x in row] for row in (rows @ rows.T).tolist()]


def looks(model: nn.Module, images: Tensor) -> Tensor:
    """(B, N): how much of its attention the class token gives each patch.

    The mean over heads and blocks.
    """
    found = []
    for part in images.split(250):
        weights = watch(model, part).weights[..., 0, 1:]  # (L, B, H, N)
        found.append(weights.mean((0, 2)))
    return torch.cat(found)


def erased(
    clothes: Clothes, models: list[nn.Module], n: int = 4
) -> dict[str, list[float]]:
    """Accuracy when n patches of each picture are made background.

    Those that the class token looks at most, or least; those with most ink;
    any; and those that a model before training looks at most.
    """
    images = clothes.test_images
    background = images.min().item()
    ink = (patchify(images, PATCH) - background).sum(-1)
    torch.manual_seed(0)
    fresh = looks(vit(), images)
    found: dict[str, list[float]] = {"none": []}
    for model in models:
        look = looks(model, images)
        chance = torch.rand(ink.shape, generator=torch.manual_seed(19))
        found["none"].append(percent(clothes.right(model)))
        for name, score in (
            ("most looked at", look),
            ("least looked at", -look),
            ("most ink", ink),
            ("any", chance),
            ("most looked at before training", fresh),
        ):
            gone = score.topk(n, dim=1).indices
            patches = patchify(images, PATCH)
            patches.scatter_(
                1, gone[..., None].expand(-1, -1, PATCH**2), background
            )
            less = unpatchify(patches, PATCH, 28, 28)
            hits = answers(model, less) == clothes.test_labels
            found.setdefault(name, []).append(percent(hits))
    return found


parser = options(__doc__, seeds=[0, 1, 2], steps=600)


def main() -> None:
    """Pick rates, train all models with all seeds, shuffle, and compare."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    clothes = Clothes()
    with record("vision", args.seeds) as metrics:
        metrics["unit"] = "accuracy on the 1,000 test pictures, in percent"
        metrics["pictures seen"] = args.steps * BATCH
        metrics["order"] = ORDER.tolist()
        metrics["inside"] = INSIDE.tolist()
        rates = pick_rates(clothes, args.steps // 3)
        for name in ("ViT without positions", "ViT with sinusoids"):
            rates[name] = rates["ViT"]
        metrics["rates"] = rates

        def runs(name: str, **how: Any) -> list[nn.Module]:
            rate = rates[name]["rate"]
            return [
                clothes.run(name, seed, args.steps, rate, **how)
                for seed in args.seeds
            ]

        models = {name: runs(name) for name in MODELS}
        metrics["models"] = {
            name: size(name) | shuffled(clothes, made)
            for name, made in models.items()
        }
        print(metrics["models"], flush=True)
        metrics["near"] = [near(model) for model in models["ViT"]]
        metrics["erased"] = erased(clothes, models["ViT"])
        print(metrics["erased"], flush=True)
        right = {
            name: [clothes.right(model) for model in made]
            for name, made in models.items()
        }
        metrics["ahead of ViT"] = {
            name: paired(right[name], right["ViT"]) for name in MODELS
        }
        print(metrics["ahead of ViT"], flush=True)
        static = shuffle_patches(clothes.test_images, PATCH, ORDER, INSIDE)
        hits = [
            answers(model, static) == clothes.test_labels
            for model in runs("convolution", scrambled=True)
        ]
        metrics["convolution, scrambled"] = {
            "accuracy": [percent(hit) for hit in hits],
            "behind": paired(right["convolution"], hits),
        }
        print(metrics["convolution, scrambled"], flush=True)


if __name__ == "__main__":
    main()
