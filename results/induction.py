"""What a second block buys: "after A B … A comes B", one block against two.

A random order of the tokens is shown once; then tokens of it are asked, and
the model has to answer with the one that came next.  One block, two blocks,
and two blocks of which only the first has attention; the three have about as
many weights.
"""

import argparse

import torch
from torch import Tensor, nn

from coursekit.attention import attention_weights
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.masks import causal_mask
from results.record import record, summary

TOKENS, QUESTIONS, BATCH, EVERY = 8, 8, 32, 100


class Skip(nn.Module):
    """In the place of a residual path: leave the sub-layer out."""

    def forward(self, x: Tensor, sublayer: object) -> Tensor:
        """Pass the stream on as it is."""
        return x


def draw(n: int, generator: torch.Generator) -> Tensor:
    """(n, T) ids: a random order, then pairs of a token and its follower."""
    order = torch.rand(n, TOKENS, generator=generator).argsort(1)
    i = torch.randint(TOKENS - 1, (n, QUESTIONS), generator=generator)
    pairs = torch.stack([order.gather(1, i), order.gather(1, i + 1)], 2)
    return torch.cat([order, pairs.flatten(1)], 1)


def make(n_layers: int, d_ff: int, without: int | None = None) -> GPT:
    """A small GPT; block ``without`` has no attention."""
    config = GPTConfig(
        vocab_size=TOKENS,
        max_len=TOKENS + 2 * QUESTIONS,
        d_model=32,
        n_heads=1,
        n_layers=n_layers,
        d_ff=d_ff,
        tie_embeddings=False,
        init_std=0.2,
    )
    model = GPT(config)
    if without is not None:
        model.blocks[without].around_attention = Skip()
        model.blocks[without].attention = nn.Identity()
    return model


VARIANTS = {  # blocks, inner units, which one has no attention
    "one block": (1, 324, None),
    "two blocks, one attention": (2, 162, 1),
    "two blocks": (2, 128, None),
}


def answers(model: GPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits where a token is asked, and the right answers."""
    return model(ids[:, :-1])[:, TOKENS::2], ids[:, TOKENS + 1 :: 2]


@torch.no_grad()
def share_right(model: GPT, ids: Tensor) -> float:
    """The share of questions whose answer is the most probable token."""
    logits, right = answers(model, ids)
    return (logits.argmax(-1) == right).float().mean().item()


@torch.no_grad()
def looks(model: GPT, ids: Tensor) -> tuple[float, float]:
    """How much of its weight each block puts where the trick needs it.

    First block: from the tokens of the order to the one before.  Second: from
    a question to the place after the token's first appearance.
    """
    seen: list[Tensor] = []
    hooks = [
        block.attention.register_forward_pre_hook(
            lambda module, args: seen.append(args[0])
        )
        for block in model.blocks
    ]
    model(ids[:, :-1])
    for hook in hooks:
        hook.remove()
    mask = causal_mask(ids.size(1) - 1)
    one, two = (
        attention_weights(b.attention.w_q(x), b.attention.w_k(x), mask)
        for b, x in zip(model.blocks, seen, strict=True)
    )
    before = one[:, :TOKENS].diagonal(-1, 1, 2).mean().item()
    asked = ids[:, TOKENS::2]
    place = (ids[:, None, :TOKENS] == asked[..., None]).long().argmax(-1)
    after = two[:, TOKENS::2].gather(-1, place[..., None] + 1).mean().item()
    return before, after


def learn(model: GPT, seed: int, steps: int, rate: float) -> list[float]:
    """Train; the share of right answers, every so many steps."""
    adam = torch.optim.AdamW(model.parameters(), rate)
    generator = torch.Generator().manual_seed(seed)
    exam = draw(500, torch.Generator().manual_seed(10_000))
    curve = []
    for step in range(1, steps + 1):
        logits, right = answers(model, draw(BATCH, generator))
        loss = cross_entropy(logits, right)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % EVERY == 0:
            curve.append(round(share_right(model, exam), 4))
    return curve


def parser() -> argparse.ArgumentParser:
    """The options of the command that a result names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4]
    )
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--rate", type=float, default=3e-3)
    return options


def main() -> None:
    """Every variant with every seed."""
    args = parser().parse_args()
    torch.set_num_threads(1)
    exam = draw(500, torch.Generator().manual_seed(10_000))
    with record("induction", args.seeds) as metrics:
        metrics["unit"] = "share of right answers"
        metrics["tokens"], metrics["every"] = TOKENS, EVERY
        metrics["steps"] = args.steps
        metrics["variants"] = {}
        for name, (n_layers, d_ff, without) in VARIANTS.items():
            curves, weights = [], []
            for seed in args.seeds:
                torch.manual_seed(seed)
                model = make(n_layers, d_ff, without)
                curves.append(learn(model, seed, args.steps, args.rate))
                if n_layers == 2 and without is None:
                    weights.append(looks(model, exam))
            metrics["variants"][name] = {
                "parameters": sum(p.numel() for p in model.parameters()),
                "right": summary([curve[-1] for curve in curves]),
                "curves": curves,
            }
            if weights:
                before, after = zip(*weights, strict=True)
                metrics["looks"] = {
                    "one before, in block 1": summary(before),
                    "after its first appearance, in block 2": summary(after),
                }
            print(name, [curve[-1] for curve in curves], flush=True)


if __name__ == "__main__":
    main()
