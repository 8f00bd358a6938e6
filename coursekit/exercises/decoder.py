"""Exercises of chapter 9: the decoder."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit import probe
from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.exercises.core import Case, Exercise, generator

float64 = torch.float64
Part = Callable[[Tensor], Tensor]


# -- implement: count --------------------------------------------------------
def count(
    vocab_size: int,
    max_len: int,
    d_model: int,
    n_layers: int,
    tied: bool,
    small: bool,
) -> int:
    """Parameters of a GPT; ``small``: positions, biases and norms too."""
    d = d_model
    total = vocab_size * d * (1 if tied else 2) + n_layers * 12 * d * d
    if small:
        total += max_len * d + n_layers * 13 * d + 2 * d
    return total


def _count_cases(seed: int) -> list[Case]:
    g = generator(seed)
    v, p, n = torch.randint(11, 97, (3,), generator=g).tolist()
    return [
        Case((50_257, 1024, 768, 12, True, True), name="GPT-2 small"),
        Case((50_257, 2048, 12_288, 96, True, True), name="GPT-3, all"),
        Case((50_257, 2048, 12_288, 96, False, False), name="GPT-3, rough"),
        Case((v, p, 28, n, False, True), name="odd sizes, untied"),
    ]


# -- implement: from ids to logits -------------------------------------------
def gpt(
    ids: Tensor,
    table: Tensor,
    places: Tensor,
    blocks: Sequence[Part],
    final_norm: Part,
) -> Tensor:
    """(B, T) ids to (B, T, V) logits, the head tied to the table."""
    x = table[ids] + places[: ids.size(1)]
    for block in blocks:
        x = block(x)
    return final_norm(x) @ table.T


def _layer(g: torch.Generator, size: int) -> Part:
    """A function like a block or a part: it bends, and it is no identity."""
    a, b = torch.randn(2, size, size, generator=g, dtype=float64)

    def layer(x: Tensor) -> Tensor:
        return (x @ a).tanh() @ b + 0.5 * x

    return layer


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _gpt_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for n_blocks, name in ((0, "no block"), (1, "one"), (3, "three blocks")):
        table = torch.randn(13, 5, generator=g, dtype=float64)
        places = torch.randn(11, 5, generator=g, dtype=float64)
        ids = torch.randint(13, (2, 7), generator=g)
        blocks = [_layer(g, 5) for _ in range(n_blocks)]
        cases.append(Case((ids, table, places, blocks, _norm), name=name))
    return cases


# -- debug: three slips ------------------------------------------------------
def mended(
    x: Tensor,
    parts: Sequence[Part],
    norms: Sequence[Part],
    final_norm: Part,
) -> Tensor:
    """A pre-norm stream: each part reads a norm and adds to the stream."""
    for part, norm in zip(parts, norms, strict=True):
        x = x + part(norm(x))
    return final_norm(x)


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for n_parts, name in ((2, "one block"), (6, "three blocks")):
        x = 3 * torch.randn(2, 5, 7, generator=g, dtype=float64)
        parts = [_layer(g, 7) for _ in range(n_parts)]
        cases.append(Case((x, parts, [_norm] * n_parts, _norm), name=name))
    return cases


# -- implement: a GPT of your own --------------------------------------------
def build(
    vocab_size: int, max_len: int, d_model: int, n_heads: int, n_layers: int
) -> nn.Module:
    """A GPT: learned positions, pre-norm, a final norm, a tied head."""
    return GPT(
        GPTConfig(
            vocab_size=vocab_size,
            max_len=max_len,
            d_model=d_model,
            n_heads=n_heads,
            n_layers=n_layers,
        )
    )


def _build_cases(seed: int) -> list[Case]:
    v, p = (31, 11) if seed % 2 == 0 else (37, 13)
    return [
        Case((v, p, 14, 2, 1), name="one block"),
        Case((v, p, 21, 3, 3), name="three blocks"),
    ]


def _problem(model: Any, vocab_size: int, expected: int | None) -> str | None:
    """What a probe has against a model, or None."""
    if not isinstance(model, nn.Module):
        return "It should be a module: a class that inherits from nn.Module."
    if sum(p.numel() for p in model.parameters()) == 0:
        return "It has no parameters: are all parts registered?"
    for report in (
        probe.causality(model, vocab_size),
        probe.batch_independence(model, vocab_size),
        probe.uses_context(model, vocab_size),
        probe.trains_everything(model, vocab_size, expected=expected),
    ):
        if not report.ok:
            return f"A probe says: {report}."
    return None


@torch.no_grad()
def _judge_build(model: Any, case: Case) -> str | None:
    v, p, d, _, n_layers = case.args
    expected = count(v, p, d, n_layers, True, True)
    if problem := _problem(model, v, expected):
        return problem
    tables: dict[tuple[int, ...], Tensor] = {}
    for weight in model.parameters():
        if weight.shape in ((v, d), (p, d)):
            tables[tuple(weight.shape)] = weight
        elif not (weight.dim() == 1 and (weight == 1).all()):
            weight.zero_()  # now no part has anything to say
    if len(tables) < 2:
        return "One table for the tokens and one for the positions, please."
    ids = torch.arange(14).view(2, 7) % v
    x = tables[v, d][ids] + tables[p, d][:7]
    if not torch.allclose(model(ids), _norm(x) @ tables[v, d].T, atol=1e-4):
        return (
            "With all parts silenced, the logits should be those of token "
            "plus position, normed, against the table: look at the residual "
            "paths, the final norm and the head."
        )
    return None


# -- debug: twelve suspects --------------------------------------------------
SUSPECTS = (
    "right",
    "one block for all",
    "blocks not registered",
    "stream detached",
    "sees the future",
    "mixes the sentences",
    "ignores its context",
    "starts too sure",
    "dropout never off",
    "blocks start equal",
    "head not tied",
    "no final norm",
)


def diagnose(model: nn.Module, config: GPTConfig) -> str:
    """Which of the suspects it is, by probes and by counting."""
    v, d, n = config.vocab_size, config.d_model, config.n_layers
    size = count(v, config.max_len, d, n, True, True)
    block = 12 * d * d + 13 * d
    missing = size - sum(p.numel() for p in model.parameters())
    by_size = {
        (n - 1) * block: "one block for all",
        n * block: "blocks not registered",
        -v * d: "head not tied",
        2 * d: "no final norm",
    }
    if missing:
        return by_size[missing]
    ids = torch.arange(14).view(2, 7) % v
    model.eval()
    if not torch.equal(model(ids), model(ids)):
        return "dropout never off"
    if not probe.causality(model, v, 3).ok:
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3).ok:
        return "ignores its context"
    report = probe.trains_everything(model, v, 3)
    if report.loss > report.uniform + 5:
        return "starts too sure"
    if not report.ok:
        return "stream detached"
    matrices = [p for p in model.parameters() if p.dim() == 2]
    pairs = (
        torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i]
    )
    return "blocks start equal" if any(pairs) else "right"


def _break(model: GPT, name: str) -> GPT:
    """Put one fault into a model."""
    first = model.blocks[0]
    middle = model.blocks[1]
    config = model.config
    if name == "one block for all":
        model.blocks = nn.ModuleList([first] * config.n_layers)
    elif name == "blocks not registered":
        blocks = list(model.blocks)
        del model.blocks
        model.blocks = blocks  # type: ignore[assignment]
    elif name == "stream detached":
        middle.register_forward_pre_hook(
            lambda module, args: (args[0].detach(), *args[1:])
        )
    elif name == "sees the future":
        attention = middle.get_submodule("attention")
        attention.register_forward_pre_hook(
            lambda module, args: (*args[:3], False, *args[4:])
        )
    elif name == "mixes the sentences":
        middle.register_forward_pre_hook(
            lambda module, args: (
                args[0] + 0.5 * args[0].roll(1, 0),
                *args[1:],
            )
        )
    elif name == "ignores its context":
        for block in model.blocks:
            block.get_submodule("attention").register_forward_hook(
                lambda module, args, output: 0 * output
            )
    elif name == "starts too sure":
        with torch.no_grad():
            model.embedding.weight.mul_(60)
    elif name == "dropout never off":
        model.dropout.register_forward_hook(
            lambda module, args, output: F.dropout(output, 0.3, True)
        )
    elif name == "blocks start equal":
        for block in model.blocks:
            block.load_state_dict(first.state_dict())
    elif name == "head not tied":
        model.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
    elif name == "no final norm":
        model.final_norm = nn.Identity()
    return model


def _diagnose_cases(seed: int) -> list[Case]:
    g = generator(seed)
    drawn = torch.randperm(len(SUSPECTS) - 1, generator=g)[:5] + 1
    names = [SUSPECTS[i] for i in (0, *drawn.tolist())]
    config = GPTConfig(
        vocab_size=29, max_len=13, d_model=22, n_heads=2, n_layers=2
    )
    order = torch.randperm(6, generator=g).tolist()
    return [
        Case((_break(GPT(config), names[i]), config), name=f"model {number}")
        for number, i in enumerate(order, 1)
    ]


# -- open: shrink it ---------------------------------------------------------
def shrunk(vocab_size: int, max_len: int) -> nn.Module:
    """At most 100,000 parameters."""
    return GPT(
        GPTConfig(
            vocab_size=vocab_size,
            max_len=max_len,
            d_model=48,
            n_heads=4,
            n_layers=3,
        )
    )


def _shrunk_cases(seed: int) -> list[Case]:
    length = 64 + seed % 7
    return [Case((66, length), name="Shakespeare's characters")]


def _judge_shrunk(model: Any, case: Case) -> str | None:
    if problem := _problem(model, case.args[0], None):
        return problem
    size = sum(p.numel() for p in model.parameters())
    if size > 100_000:
        return f"It has {size:,} parameters; the budget is 100,000."
    return None


EXERCISES = {
    "count": Exercise(count, _count_cases),
    "gpt": Exercise(gpt, _gpt_cases),
    "mended": Exercise(mended, _mended_cases),
    "build": Exercise(build, _build_cases, judge=_judge_build),
    "diagnose": Exercise(diagnose, _diagnose_cases),
    "shrunk": Exercise(shrunk, _shrunk_cases, judge=_judge_shrunk),
}
