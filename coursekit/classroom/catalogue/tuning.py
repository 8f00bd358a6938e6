"""Exercises of chapter 20: fine-tuning."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    generator,
)

float64 = torch.float64
OURS = [
    "coursekit.tuning.lora",
    "coursekit.tuning.LoRA",
    "coursekit.tuning.add_lora",
    "coursekit.tuning.merge_lora",
    "coursekit.tuning.answer_batch",
]
Update = tuple[Tensor, Tensor, float]


def draw(g: torch.Generator, *shape: int) -> Tensor:
    """A random tensor in double precision."""
    return torch.randn(shape, generator=g, dtype=float64)


# -- implement: which tokens count -------------------------------------------
def targets(
    prompt: list[int], answer: list[int], *, on: Switches = NONE
) -> tuple[list[int], list[int]]:
    """What a model reads of a prompt with its answer, and its targets.

    `prompt` and `answer` are lists of ids, at least two each; the last of
    `answer` is the token that ends it. The row is one after the other.
    Returned are two lists of equal length: the inputs, all tokens but the
    last, and for each of them the token that comes next. Where that token
    belongs to the prompt, the target is −100 instead.
    """
    ids = [*prompt, *answer]
    wanted = ids[:-1] if "not_shifted" in on else ids[1:]
    ignored = 0 if "zero" in on else -100
    n = len(prompt) - 1
    if "all_counted" in on:
        n = 0
    if "one_late" in on:
        n = len(prompt)
    if "one_early" in on:
        n = len(prompt) - 2
    wanted = [ignored] * n + wanted[n:]
    if "no_end" in on:
        wanted = [*wanted[:-1], ignored]
    return ids[:-1], wanted


_TARGETS_BUGS = {
    "not_shifted": Bug(
        "targets that are the tokens read, not the next ones",
        "The logits of a position are for the token after it: the targets "
        "begin with the second token of the row.",
        read="20_tuning#tun-mask",
        at="shift",
    ),
    "zero": Bug(
        "targets of 0 where none should count",
        "0 is a token like any other, and the model would learn to say it. "
        "The loss leaves out −100.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "all_counted": Bug(
        "every token counted, those of the prompt too",
        "That is pretraining on prompts and answers. Here the tokens of the "
        "prompt are no targets.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "one_late": Bug(
        "a first token of the answer that does not count",
        "It is the target of the last token of the prompt, so the first "
        "len(prompt) − 1 targets are left out, not the first len(prompt).",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "one_early": Bug(
        "a last token of the prompt that counts",
        "The first len(prompt) − 1 targets belong to the prompt.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "no_end": Bug(
        "an end that is no target",
        "A model that is never asked for the end of an answer does not "
        "learn to stop.",
        read="20_tuning#tun-mask",
        at="end",
    ),
}


def _targets_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = (1 + torch.randperm(97, generator=g)[:8]).tolist()
    return [Case((ids[:5], ids[5:]), name="five tokens, and three of answer")]


# -- implement: a chat template ----------------------------------------------
def rendered(turns: list[tuple[str, str]], *, on: Switches = NONE) -> str:
    r"""A conversation as one text, as many chat models read it.

    `turns` are pairs of a role ("system", "user" or "assistant") and what was
    said. Each turn becomes `<|im_start|>`, the role, a new line, what was
    said, `<|im_end|>` and a new line. If the last turn is the user's, the text
    ends with `<|im_start|>assistant` and a new line, so that what the model
    continues with is its answer.
    """
    text = ""
    for role, said in turns:
        if "no_end" in on:
            text += f"<|im_start|>{role}\n{said}\n"
        elif "one_line" in on:
            text += f"<|im_start|>{role}\n{said}<|im_end|>"
        elif "colon" in on:
            text += f"<|im_start|>{role}: {said}<|im_end|>\n"
        else:
            text += f"<|im_start|>{role}\n{said}<|im_end|>\n"
    if "no_prompt" in on:
        return text
    if "always" in on or turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
        if "closed" in on:
            text += "<|im_end|>\n"
    return text


_RENDERED_BUGS = {
    "no_end": Bug(
        "turns that never end",
        "Without <|im_end|> the model can't tell where somebody stops, and "
        "it does not stop either.",
        read="20_tuning#tun-template",
        at="turn",
    ),
    "one_line": Bug(
        "turns with no new line behind them",
        "It is part of the template, and the model has always seen it.",
        read="20_tuning#tun-template",
        at="turn",
    ),
    "colon": Bug(
        "a colon behind the role instead of a new line",
        "It reads as well to you, but the model was trained on other tokens.",
        read="20_tuning#tun-template",
        at="turn",
    ),
    "no_prompt": Bug(
        "no line that hands over to the assistant",
        "Then the model may go on with another turn of the user's. Open the "
        "assistant's turn.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "always": Bug(
        "a turn opened behind an answer that is there already",
        "Only if the user spoke last is it the assistant's turn.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "closed": Bug(
        "the assistant's turn opened and closed again",
        "The model is to fill it: it closes the turn itself.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
}


def _rendered_cases(seed: int) -> list[Case]:
    words = ["cat", "dog", "kite", "lake", "ball", "tea"]
    order = torch.randperm(len(words), generator=generator(seed)).tolist()
    a, b, c = (words[i] for i in order[:3])
    asked = [("system", f"Be a {a}."), ("user", f"Who has the {b}?")]
    return [
        Case((asked,), name="a question"),
        Case(([*asked, ("assistant", f"A {c}.")],), name="an answered one"),
    ]


# -- implement: a low-rank update --------------------------------------------
def adapted(
    x: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    alpha: float,
    *,
    on: Switches = NONE,
) -> Tensor:
    """The output of a linear layer with a low-rank update beside it.

    `x` is `(T, I)`, `weight` `(O, I)`, as `nn.Linear` keeps it, `a` `(r, I)`
    and `b` `(O, r)`. The result is `(T, O)`: what the layer gives, plus what
    the update `B A` gives, times alpha / r.
    """
    rank = a.size(0)
    scale = alpha / rank
    if "no_scale" in on:
        scale = 1.0
    if "alpha_alone" in on:
        scale = alpha
    if "by_width" in on:
        scale = alpha / a.size(1)
    if "root" in on:
        scale = alpha / rank**0.5
    inner = x @ a.T
    if "bent" in on:
        inner = inner.relu()
    update = scale * inner @ b.T
    if "update_alone" in on:
        return update
    if "all_scaled" in on:
        return scale * (x @ weight.T) + update
    return x @ weight.T + update


_ADAPTED_BUGS = {
    "no_scale": Bug(
        "an update that is not scaled",
        "It is multiplied by α / r, so that another rank does not ask for "
        "another learning rate.",
        read="20_tuning#tun-lora",
        at="scale",
    ),
    "alpha_alone": Bug(
        "an update times α, not divided by the rank",
        "The scale is α / r, and r is the number of rows of A.",
        read="20_tuning#tun-lora",
        at="scale",
    ),
    "by_width": Bug(
        "an update divided by the width instead of the rank",
        "r is the number of rows of A, not of its columns.",
        read="20_tuning#tun-lora",
        at="scale",
    ),
    "root": Bug(
        "an update divided by the root of the rank",
        "Some libraries offer that under another name. Here it is α / r.",
        read="20_tuning#tun-lora",
        at="scale",
    ),
    "bent": Bug(
        "an update with a ReLU between its matrices",
        "Adapter layers have one. Here the update must be linear, or it "
        "can't be merged into W.",
        read="20_tuning#tun-lora",
        at="inner",
    ),
    "update_alone": Bug(
        "the update without the layer",
        "W stays, and its output is added.",
        read="20_tuning#tun-lora",
        at="sum",
    ),
    "all_scaled": Bug(
        "the scale applied to the layer's output, too",
        "Then the model is another before it has learned anything. Only the "
        "update is scaled.",
        read="20_tuning#tun-lora",
        alone=True,
    ),
}


def _adapted_cases(seed: int) -> list[Case]:
    g = generator(seed)
    numbers = (draw(g, 4, 7), draw(g, 5, 7), draw(g, 3, 7), draw(g, 5, 3))
    return [Case((*numbers, 11.0), name="rank 3, α = 11")]


# -- implement: merge --------------------------------------------------------
def merged(
    weight: Tensor, updates: Sequence[Update], *, on: Switches = NONE
) -> Tensor:
    """A matrix with several updates added to it.

    `weight` is `(O, I)`. `updates` is a list of `(a, b, alpha)`, `a` `(r, I)`
    and `b` `(O, r)`, each with a rank r of its own. Each adds alpha / r times
    its `B A`. The result is `(O, I)`; `weight` itself stays as it is.
    """
    total = torch.zeros_like(weight)
    for a, b, alpha in updates:
        rank = len(updates[0][0]) if "first_rank" in on else len(a)
        update = b @ a if "no_scale" in on else alpha / rank * b @ a
        total = update if "last_only" in on else total + update
    if "mean" in on:
        total = total / len(updates)
    if "updates_alone" in on:
        return total
    return weight - total if "minus" in on else weight + total


_MERGED_BUGS = {
    "first_rank": Bug(
        "every update divided by the first one's rank",
        "Each has a rank of its own: the number of rows of its A.",
        read="20_tuning#tun-merge",
        at="scale",
    ),
    "no_scale": Bug(
        "updates that are not scaled",
        "What the adapted layer adds is α / r times B A. The merged one has "
        "to add the same.",
        read="20_tuning#tun-merge",
        at="scale",
    ),
    "last_only": Bug(
        "the last update alone",
        "All of them are added up.",
        read="20_tuning#tun-merge",
        at="total",
    ),
    "mean": Bug(
        "the mean of the updates instead of their sum",
        "Side by side, their outputs are added. So are their matrices.",
        read="20_tuning#tun-merge",
        at="mean",
    ),
    "updates_alone": Bug(
        "the updates without the matrix",
        "They are added to W.",
        read="20_tuning#tun-merge",
        at="sum",
    ),
    "minus": Bug(
        "updates that are subtracted",
        "That takes a merged update out again.",
        read="20_tuning#tun-merge",
        at="sum",
    ),
}


def _merged_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weight = draw(g, 5, 7)
    updates = [
        (draw(g, r, 7), draw(g, 5, r), alpha)
        for r, alpha in ((2, 3.0), (3, 11.0))
    ]
    return [Case((weight, updates), name="two updates, of rank 2 and 3")]


# -- implement: count --------------------------------------------------------
def counted(
    d_model: int,
    d_ff: int,
    n_layers: int,
    rank: int,
    layers: list[str],
    *,
    on: Switches = NONE,
) -> int:
    """How many numbers low-rank updates train.

    A block has the matrices "w_q", "w_k", "w_v" and "w_o", from `d_model` to
    `d_model`, "w_in" from `d_model` to `d_ff` and "w_out" back. In each of
    `n_layers` blocks, those that `layers` names get an update of the given
    rank; nothing else is trained.
    """
    total = 0
    for name in layers:
        n_in = d_ff if name == "w_out" else d_model
        n_out = d_ff if name == "w_in" else d_model
        if "square" in on:
            n_in = n_out = d_model
        if "product" in on:
            total += rank * n_in * n_out
        elif "a_alone" in on:
            total += rank * n_in
        elif "rank_1" in on:
            total += n_in + n_out
        elif "frozen" in on:
            total += rank * (n_in + n_out) + n_in * n_out
        elif "biases" in on:
            total += rank * (n_in + n_out) + n_out
        else:
            total += rank * (n_in + n_out)
    return total if "one_block" in on else n_layers * total


_COUNTED_BUGS = {
    "square": Bug(
        "matrices of the network that are as wide as those of attention",
        "w_in leads from d_model to d_ff, w_out back.",
        read="20_tuning#tun-count",
        at="sizes",
    ),
    "product": Bug(
        "r numbers for each entry of the matrix",
        "That is more than the matrix has. A has r rows as long as the input, "
        "B r columns as long as the output.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "a_alone": Bug(
        "A alone, without B",
        "B has r numbers for each output.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "rank_1": Bug(
        "updates of rank 1, whatever the rank is",
        "A has r rows, and B has r columns.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "frozen": Bug(
        "the old matrices counted as well",
        "They are there, but they get no gradient.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "biases": Bug(
        "updates with a bias",
        "An update is the product of two matrices, and nothing else.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "one_block": Bug(
        "the updates of a single block",
        "Every block has them.",
        read="20_tuning#tun-count",
        at="blocks",
    ),
}


def _counted_cases(seed: int) -> list[Case]:
    d_model, rank = ((20, 3), (44, 5), (52, 7))[seed % 3]
    layers = ["w_q", "w_v", "w_in", "w_out"]
    sizes = (d_model, 4 * d_model - 3, 11, rank)
    return [Case((*sizes, layers), name="two of attention, two of the FFN")]


# -- debug: a loss on answers ------------------------------------------------
def mended(
    logits: Tensor,
    ids: Tensor,
    n_prompt: Tensor,
    n_real: Tensor,
    *,
    on: Switches = NONE,
) -> Tensor:
    """The mean nats that the tokens of all answers cost.

    `ids` is `(B, T)`: in row i stand `n_prompt[i]` tokens of a prompt, then
    the answer, up to `n_real[i]` tokens in all, then padding. `logits` is
    `(B, T, V)`, those of position t for token t + 1. The result is the mean
    over all tokens of all answers; prompts and padding do not count.
    """
    places = torch.arange(1, ids.size(1))
    if "late" in on:
        begun = places > n_prompt[:, None]
    elif "prompt_too" in on:
        begun = places > 0 * n_prompt[:, None]
    else:
        begun = places >= n_prompt[:, None]
    if "padding_too" in on:
        going = places < ids.size(1) + 0 * n_real[:, None]
    elif "end_left_out" in on:
        going = places < n_real[:, None] - 1
    else:
        going = places < n_real[:, None]
    counts = (begun & going).double()
    rows = logits[:, 1:] if "not_shifted" in on else logits[:, :-1]
    nats = F.cross_entropy(rows.mT, ids[:, 1:], reduction="none") * counts
    if "mean_of_means" in on:
        return (nats.sum(1) / counts.sum(1)).mean()
    if "all_positions" in on:
        return nats.mean()
    return nats.sum() / counts.sum()


_MENDED_BUGS = {
    "late": Bug(
        "a first token of each answer that does not count",
        "Places are counted from 0, so the answer begins at place n_prompt, "
        "and this token counts, too.",
        read="20_tuning#tun-mask",
        at="begun",
    ),
    "prompt_too": Bug(
        "prompts that count",
        "Only places from n_prompt on belong to the answer.",
        read="20_tuning#tun-mask",
        at="begun",
    ),
    "padding_too": Bug(
        "padding that counts",
        "From place n_real on there is nothing to predict.",
        read="20_tuning#tun-mask",
        at="going",
    ),
    "end_left_out": Bug(
        "a last token of each answer that does not count",
        "It ends the answer, and the model has to learn it: the last place "
        "is n_real − 1.",
        read="20_tuning#tun-mask",
        at="going",
    ),
    "not_shifted": Bug(
        "logits compared with the token that they have read",
        "Those of position t are for token t + 1.",
        read="20_tuning#tun-mask",
        at="shift",
    ),
    "mean_of_means": Bug(
        "the mean of each row's mean",
        "Then a token of a short answer weighs more than one of a long "
        "answer. Divide once, by the number of all tokens that count.",
        read="20_tuning#tun-mask",
        at="mean",
    ),
    "all_positions": Bug(
        "a sum that is divided by all positions",
        "Divide by the number of tokens that count. Else longer prompts make "
        "the loss, and each step, smaller.",
        read="20_tuning#tun-mask",
        at="mean",
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(13, (3, 11), generator=g)
    n_prompt, n_real = torch.tensor([3, 5, 2]), torch.tensor([7, 11, 5])
    logits = 2 * draw(g, 3, 11, 13)
    return [Case((logits, ids, n_prompt, n_real), name="three rows")]


EXERCISES = {
    "targets": Exercise(
        targets, _targets_cases, bugs=_TARGETS_BUGS, forbid=OURS
    ),
    "rendered": Exercise(rendered, _rendered_cases, bugs=_RENDERED_BUGS),
    "adapted": Exercise(
        adapted, _adapted_cases, bugs=_ADAPTED_BUGS, forbid=OURS
    ),
    "merged": Exercise(merged, _merged_cases, bugs=_MERGED_BUGS, forbid=OURS),
    "counted": Exercise(counted, _counted_cases, bugs=_COUNTED_BUGS),
    "mended": Exercise(mended, _mended_cases, bugs=_MENDED_BUGS, forbid=OURS),
}
