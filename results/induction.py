"""Worth of a second block: "after A B … A comes B", one block against two.

A random order of the tokens is shown once; then tokens of it are asked, and
the model has to answer with the one that came next.  Two blocks of attention
alone, one wider block of attention alone, and one block with a network.
"""

import torch
from torch import Tensor

from coursekit.attention import attention_weights
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from results.record import options, record, summary

TOKENS, QUESTIONS, BATCH, EVERY = 8, 8, 32, 100


def draw(n: int, generator: torch.Generator) -> Tensor:
    """(n, T) ids: a random order, then pairs of a token and its follower."""
    order = torch.rand(n, TOKENS, generator=generator).argsort(1)
    i = torch.randint(TOKENS - 1, (n, QUESTIONS), generator=generator)
    pairs = torch.stack([order.gather(1, i), order.gather(1, i + 1)], 2)
    return torch.cat([order, pairs.flatten(1)], 1)


def make(n_layers: int, d_model: int, d_ff: int) -> GPT:
    """A small GPT."""
    config = GPTConfig(
        vocab_size=TOKENS,
        max_len=TOKENS + 2 * QUESTIONS,
        d_model=d_model,
        n_heads=1,
        n_layers=n_layers,
        d_ff=d_ff,
        tie_embeddings=False,
        init_std=0.2,
    )
    return GPT(config)


VARIANTS = {  # blocks, width, inner units
    "one block": (1, 48, 0),
    "one block and a network": (1, 32, 65),
    "two blocks": (2, 32, 0),
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
    """Attention of the second block from a question.

    Returns:
        Its weight on the token's first appearance, and on the place after.
    """
    seen: list[Tensor] = []
    attention = model.blocks[1].get_submodule("attention")
    hook = attention.register_forward_pre_hook(
        lambda module, args: seen.append(args[0])
    )
    model(ids[:, :-1])
    hook.remove()
    weights = attention_weights(
        attention.w_q(seen[0]), attention.w_k(seen[0]), causal=True
    )[:, TOKENS::2]
    asked = ids[:, TOKENS::2]
    place = (ids[:, None, :TOKENS] == asked[..., None]).long().argmax(-1)
    first, after = (
        weights.gather(-1, place[..., None] + step).mean().item()
        for step in (0, 1)
    )
    return first, after


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


parser = options(__doc__, seeds=[0, 1, 2, 3, 4], steps=1500, rate=5e-3)


def main() -> None:
    """Every variant with every seed."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    exam = draw(500, torch.Generator().manual_seed(10_000))
    with record("induction", args.seeds) as metrics:
        metrics["unit"] = "share of right answers"
        metrics["tokens"], metrics["every"] = TOKENS, EVERY
        metrics["steps"] = args.steps
        metrics["variants"] = {}
        for name, (n_layers, d_model, d_ff) in VARIANTS.items():
            curves, weights = [], []
            for seed in args.seeds:
                torch.manual_seed(seed)
                model = make(n_layers, d_model, d_ff)
                curves.append(learn(model, seed, args.steps, args.rate))
                if n_layers == 2:
                    weights.append(looks(model, exam))
            metrics["variants"][name] = {
                "parameters": sum(p.numel() for p in model.parameters()),
                "right": summary([curve[-1] for curve in curves]),
                "curves": curves,
            }
            if weights:
                first, after = zip(*weights, strict=True)
                metrics["looks"] = {
                    "at its first appearance": summary(first),
                    "at the place after": summary(after),
                }
            print(name, [curve[-1] for curve in curves], flush=True)


if __name__ == "__main__":
    main()
