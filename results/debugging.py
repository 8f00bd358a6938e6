"""Which bugs does a loss curve show?  One program, one bug at a time.

A small character model is trained as it should be, and then once more for
each bug: same seeds, same text, same number of steps.  Kept are the
validation loss that the buggy program itself reports, and the loss on the
same text when its model is used: one token after the other, from what stands
before it.

And the mistakes that the exercises of the first fifteen chapters know: how
many of them raise an error, or return something of another shape?
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import fast_attend
from coursekit.cache import make_cache
from coursekit.config import GPTConfig
from coursekit.data import load_text, random_windows, train_val_split
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.loss import cross_entropy
from coursekit.optim import (
    cosine_schedule,
    parameter_groups,
)
from coursekit.sampling import sampler
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import CharTokenizer
from coursekit_classroom.check import core
from results.record import options, record, summary

CONTEXT, BATCH, PADDING = 32, 12, 8
PEAK, WARMUP, CLIP = 1e-2, 40, 1.0
ROWS = 96  # windows of held-out text, in batches like those of training
WRITTEN = 160  # characters of a sample

BUGS = {
    # -- the model: attention and its mask
    "no_mask": "no causal mask",
    "next_token": "mask off by one: sees the next token",
    "over_queries": "softmax over the queries",
    "merged_by_view": "heads merged without the transpose",
    "diagonal": "a token may not see itself",
    "no_scale": "scores not divided",
    "values_are_keys": "values made with the keys' weights",
    "across_batch": "attention along the batch, not the text",
    # -- the model: all else
    "norm_over_time": "norm over the positions",
    "positions_by_batch": "positions counted along the batch",
    "no_positions": "no positions",
    "no_final_norm": "no final norm",
    "twice_added": "residual path added twice",
    "no_activation": "feed-forward without its bend",
    "detached": "stream detached between the blocks",
    # -- the loop
    "tie_cut": "table copied to the head, not shared",
    "not_trained": "token table missing in the optimizer",
    "no_zero_grad": "gradients never cleared",
    "clip_after": "clipped after the step",
    "four_times": "each batch comes four times",
    "last_only": "loss of the last position only",
    # -- targets, and how they are scored
    "not_shifted": "targets not shifted",
    "double_shift": "targets shifted twice",
    "softmax_twice": "softmax before the loss",
    "padding_counted": "padding counted as text",
    "train_text": "validation cut from the training text",
    "dropout_on": "dropout left on in validation",
    # -- use
    "cache_off": "cache counts positions one too far",
    "dropout_writing": "dropout left on in use",
}
ALONE = {"across_batch", "positions_by_batch"}
"""Rows are run one by one; to save time, every third."""
AS_RIGHT = {"train_text", "dropout_on", "cache_off", "dropout_writing"}
"""Their training is the right program's."""


# -- attention, with one mistake each ----------------------------------------
def weighted(
    weights: Callable[[Tensor, Tensor], Tensor],
) -> Callable[..., Tensor]:
    """An attention function from (scores, lower triangle) to weights."""

    def attention(q: Tensor, k: Tensor, v: Tensor, **rest: Any) -> Tensor:
        n = q.size(-2)
        low = torch.ones(n, n, dtype=torch.bool).tril()
        scores = q @ k.mT / q.size(-1) ** 0.5
        return weights(scores, low) @ v

    return attention


def masked(scores: Tensor, see: Tensor) -> Tensor:
    """Softmax over the keys that may be seen."""
    return scores.masked_fill(~see, -1e9).softmax(-1)


def merged_by_view(q: Tensor, k: Tensor, v: Tensor, **rest: Any) -> Tensor:
    """Right attention; merged afterwards, its rows stand in wrong places."""
    y = fast_attend(q, k, v, **rest)
    b, h, t, d = y.shape
    return y.reshape(b, t, h, d).transpose(1, 2)


def across_batch(q: Tensor, k: Tensor, v: Tensor, **rest: Any) -> Tensor:
    """Batch and time have changed places."""
    q, k, v = (x.transpose(0, 2) for x in (q, k, v))
    return fast_attend(q, k, v, **rest).transpose(0, 2)


ATTENTION: dict[str, Callable[..., Tensor]] = {
    "no_mask": weighted(lambda s, low: s.softmax(-1)),
    "next_token": weighted(
        lambda s, low: masked(s, torch.ones_like(low).tril(1))
    ),
    "over_queries": weighted(
        lambda s, low: s.masked_fill(~low, -1e9).softmax(-2)
    ),
    "diagonal": weighted(lambda s, low: masked(s, low.tril(-1))),
    "no_scale": weighted(lambda s, low: masked(s * 4, low)),
    "merged_by_view": merged_by_view,
    "across_batch": across_batch,
}
assert set(ATTENTION) <= set(BUGS)


class NormOver(nn.Module):
    """A layer norm whose mean runs over a wrong axis."""

    def __init__(self, norm: nn.Module, axis: int) -> None:
        super().__init__()
        self.norm, self.axis = norm, axis

    def forward(self, x: Tensor) -> Tensor:
        """Norm over ``axis``; gain and bias as they were."""
        mean = x.mean(self.axis, keepdim=True)
        spread = x.var(self.axis, unbiased=False, keepdim=True) + 1e-5
        return (x - mean) / spread.sqrt() * self.norm.weight + self.norm.bias


def spoil(model: GPT, bug: str) -> None:  # noqa: C901 (a table)
    """Plant a bug that sits in the model."""
    if bug == "norm_over_time":
        for block in model.blocks:
            for name in ("attention_norm", "feed_forward_norm"):
                setattr(block, name, NormOver(getattr(block, name), 1))
    elif bug == "values_are_keys":
        for block in model.blocks:
            block.attention.w_v = block.attention.w_k
    elif bug == "no_final_norm":
        model.final_norm = nn.Identity()
    elif bug == "no_activation":
        for block in model.blocks:
            block.feed_forward.activation = nn.Identity()
    elif bug == "detached":
        model.blocks[1].register_forward_pre_hook(
            lambda module, args: (args[0].detach(), *args[1:])
        )
    elif bug == "twice_added":
        for block in model.blocks:
            block.register_forward_hook(
                lambda module, args, output: args[0] + output
            )
    elif bug == "positions_by_batch":
        inner = model.positions.forward
        model.positions.forward = lambda x, positions: inner(
            x, torch.arange(x.size(0))[:, None].expand(x.shape[:2])
        )
    elif bug == "tie_cut":
        model.head = nn.Linear(*model.embedding.weight.shape[::-1], bias=False)
        model.head.weight.data = model.embedding.weight.detach().clone()


# -- the program -------------------------------------------------------------
class Small:
    """The text, and how a program is trained, scored and used."""

    def __init__(self, steps: int) -> None:
        text = load_text("shakespeare")
        self.tokenizer = CharTokenizer.train(text)
        ids = torch.tensor(self.tokenizer.encode(text))
        self.learned, held_out = train_val_split(ids, 0.1)
        self.pad = self.tokenizer.vocab_size
        self.steps = steps
        self.held_out = self.windows(held_out)
        self.seen = self.windows(self.learned)

    def windows(self, ids: Tensor) -> Tensor:
        """(ROWS, CONTEXT + 1) ids, evenly spread over a text."""
        starts = torch.linspace(0, len(ids) - CONTEXT - 1, ROWS).long()
        return ids[starts[:, None] + torch.arange(CONTEXT + 1)]

    def model(self, bug: str, seed: int) -> GPT:
        """An untrained model with its bug."""
        torch.manual_seed(seed)
        config = GPTConfig(
            vocab_size=self.pad + 1,
            max_len=CONTEXT + PADDING,
            d_model=32,
            n_heads=2,
            n_layers=2,
            positions="none" if bug == "no_positions" else "learned",
        )
        model = GPT(config, ATTENTION.get(bug, fast_attend))
        model.dropout.p = 0.1  # of the vectors that enter; it saves time
        spoil(model, bug)
        return model

    def asked(self, bug: str, window: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets that a program makes of windows."""
        inputs, targets = window[:, :-1], window[:, 1:]
        if bug == "not_shifted":
            targets = inputs
        elif bug == "double_shift":
            inputs, targets = window[:, :-2], window[:, 2:]
        elif bug == "padding_counted":
            inputs, targets = (
                F.pad(x, (0, PADDING), value=self.pad)
                for x in (inputs, targets)
            )
        return inputs, targets

    def loss(self, bug: str, model: Any, window: Tensor) -> Tensor:
        """The loss that a program computes."""
        inputs, targets = self.asked(bug, window)
        logits = model(inputs)
        if bug == "softmax_twice":
            logits = logits.softmax(-1)
        if bug == "last_only" and getattr(model, "training", True):
            logits, targets = logits[:, -1:], targets[:, -1:]
        return cross_entropy(logits, targets)

    def optimizer(self, bug: str, model: GPT) -> torch.optim.Optimizer:
        """A program's optimizer."""
        groups = parameter_groups(model, 0.1)
        if bug == "not_trained":  # the optimizer keeps the old table
            table = model.embedding.weight.detach().clone()
            model.embedding.weight = nn.Parameter(table)
        return torch.optim.AdamW(groups, PEAK, (0.9, 0.99), fused=True)

    def batch(self, bug: str, seed: int, step: int) -> Tensor:
        """(BATCH, CONTEXT + 1) ids, the windows of a step."""
        drawn = step // 4 if bug == "four_times" else step
        batch = random_windows(self.learned, BATCH, CONTEXT, seed, drawn)
        return torch.cat((batch.inputs["ids"], batch.targets[:, -1:]), 1)

    def trained(self, bug: str, seed: int) -> GPT:
        """A program's model, after its training."""
        model = self.model(bug, seed)
        optimizer = self.optimizer(bug, model)
        weights = [p for g in optimizer.param_groups for p in g["params"]]
        for step in range(self.steps):
            torch.manual_seed(1000 * seed + step)  # of dropout
            window = self.batch(bug, seed, step)
            if bug != "no_zero_grad":
                optimizer.zero_grad()
            self.loss(bug, model, window).backward()
            if bug != "clip_after":
                nn.utils.clip_grad_norm_(weights, CLIP)
            for group in optimizer.param_groups:
                group["lr"] = cosine_schedule(
                    step + 1, PEAK, self.steps, WARMUP
                )
            optimizer.step()
            if bug == "clip_after":
                nn.utils.clip_grad_norm_(weights, CLIP)
        return model.eval()

    def scored(self, bug: str) -> Tensor:
        """The windows by which a program is scored."""
        return self.seen if bug == "train_text" else self.held_out

    @torch.no_grad()
    def reported(self, bug: str, model: nn.Module) -> float:
        """The validation loss as the program itself computes it."""
        torch.manual_seed(0)
        model.train(bug == "dropout_on")
        nats = [
            self.loss(bug, model, some).item()
            for some in self.scored(bug).split(BATCH)
        ]
        model.eval()
        return statistics.fmean(nats)

    @torch.no_grad()
    def in_use(self, bug: str, model: GPT) -> float:
        """The loss on the held-out text, token by token, by prefixes."""
        torch.manual_seed(0)
        ids, targets = self.held_out[:, :-1], self.held_out[:, 1:]
        model.train(bug == "dropout_writing")
        if bug == "cache_off":
            cache = make_cache(model, ROWS)
            logits = torch.cat(
                [
                    model(
                        ids[:, t : t + 1],
                        torch.tensor([t + 1 if t else 0]),
                        cache=cache,
                    )
                    for t in range(CONTEXT)
                ],
                1,
            )
        else:
            rows = ids.split(ROWS)
            if bug in ALONE:
                rows, targets = ids[::3].split(1), targets[::3]
            steps = range(1, CONTEXT + 1)
            logits = torch.cat(
                [
                    torch.stack([model(row[:, :t])[:, -1] for t in steps], 1)
                    for row in rows
                ]
            )
        model.eval()
        return cross_entropy(logits, targets).item()

    def text(self, model: GPT) -> str:
        """Text that a model generates."""
        generator = torch.Generator().manual_seed(0)
        prompt = self.tokenizer.encode("\n")
        (written,) = generate(
            GPTStepper(
                model, window=CONTEXT, keep=CONTEXT - 1, use_cache=False
            ),
            [prompt],
            WRITTEN,
            sampler(0.8, generator=generator),
        )
        return self.tokenizer.decode([i for i in written if i != self.pad])


def zoo(small: Small, seeds: Sequence[int]) -> dict[str, Any]:
    """Both losses of each program, and the right one with other seeds."""
    others = [len(seeds) + seed for seed in seeds]
    right = {s: small.trained("", s) for s in (*seeds, *others)}
    found: dict[str, Any] = {}
    for name, chosen in (("right", seeds), ("other_seeds", others)):
        nats = [round(small.reported("", right[s]), 4) for s in chosen]
        used = [round(small.in_use("", right[s]), 4) for s in chosen]
        found[name] = {"reported": summary(nats), "in_use": summary(used)}
        print(f"{name}: {nats}", flush=True)
    found["right"]["text"] = small.text(right[seeds[0]])
    found["bugs"] = []
    for bug, says in BUGS.items():
        models = [
            right[s] if bug in AS_RIGHT else small.trained(bug, s)
            for s in seeds
        ]
        nats = [round(small.reported(bug, m), 4) for m in models]
        used = [round(small.in_use(bug, m), 4) for m in models]
        row = {"name": bug, "says": says, "reported": summary(nats)}
        row["in_use"] = summary(used)
        if bug in ("no_mask", "not_shifted"):
            row["text"] = small.text(models[0])
        found["bugs"].append(row)
        print(f"{bug}: {nats} {used}", flush=True)
    return found


# -- the catalogue -----------------------------------------------------------
CHAPTERS = (
    *("first_model", "tokenizer", "embedding", "positions", "attention"),
    *("masks", "multihead", "norm", "feedforward", "decoder", "loss"),
    *("training", "generation", "encoder", "seq2seq"),
)


def form(value: Any) -> Any:
    """Type, shape and NaN of a value: what a glance would notice."""
    if isinstance(value, Tensor):
        real = value.dtype.is_floating_point
        return (
            tuple(value.shape),
            real,
            bool(value.isfinite().all()) if real else True,
        )
    if isinstance(value, dict):
        return {key: form(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return [form(x) for x in value]
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value).__name__


def catalogue() -> dict[str, Any]:
    """For each known mistake: does anybody notice without a test?"""
    counts = {"error": 0, "form": 0, "silent": 0}
    for chapter in CHAPTERS:
        for exercise in core.exercises(chapter).values():
            cases = core.draw(exercise, 0)
            rights = [core.expected(exercise, case, 0) for case in cases]
            for bug in exercise.bugs:
                kind = "silent"
                for case, right in zip(cases, rights, strict=True):
                    got = core.expected(exercise, case, 0, frozenset({bug}))
                    if got.error is not None and right.error is None:
                        kind = "error"
                        break
                    if form(got.value) != form(right.value):
                        kind = "form"
                counts[kind] += 1
        print(f"{chapter}: {counts}", flush=True)
    return {"chapters": len(CHAPTERS), **counts}


parser = options(__doc__, seeds=[0, 1, 2, 3, 4], steps=200)


def main() -> None:
    """All of it."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("debugging", args.seeds) as metrics:
        metrics["unit"] = "nats per character"
        metrics["steps"] = args.steps
        metrics["zoo"] = zoo(Small(args.steps), args.seeds)
        metrics["catalogue"] = catalogue()


if __name__ == "__main__":
    main()
