"""Exercises of chapter 20: fine-tuning."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    generator,
    randn,
)
from coursekit_classroom.check.families import (
    MEAN_OF_MEANS,
    NO_END,
    NOT_SHIFTED,
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


# -- implement: which tokens count -------------------------------------------
def targets(
    prompt: list[int], answer: list[int]
) -> tuple[list[int], list[int]]:
    """What a model reads of a prompt with its answer, and its targets.

    `prompt` and `answer` are lists of ids, at least two each; the last of
    `answer` is the token that ends it. The row is one after the other.
    Returned are two lists of equal length: the inputs, all tokens but the
    last, and for each of them the token that comes next. Where that token
    belongs to the prompt, the target is −100 instead.
    """
    ids = [*prompt, *answer]
    wanted = ids[1:]
    ignored = -100
    n = len(prompt) - 1
    wanted = [ignored] * n + wanted[n:]
    return ids[:-1], wanted


_TARGETS_BUGS = {
    "not_shifted": NOT_SHIFTED.by(
        "1:",
        ":-1",
    ),
    "zero": Bug(
        "-100",
        "0",
        says="targets of 0 where none should count",
        why="The positions are the right ones. But 0 is the id of a token, "
        "and the model would learn to predict it. The loss leaves out −100.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "all_counted": Bug(
        "n = len(prompt) - 1",
        "n = 0",
        says="every token counted, those of the prompt too",
        why="That is how a model is pretrained. Here the prompt will be "
        "given, so its tokens are no targets.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "one_late": Bug(
        "n = len(prompt) - 1",
        "n = len(prompt)",
        says="a first token of the answer that does not count",
        why="It is the target at the last token of the prompt. So leave out "
        "the first len(prompt) − 1 targets, not the first len(prompt).",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "one_early": Bug(
        "- 1",
        "- 2",
        says="a last token of the prompt that counts",
        why="Position 0 has the second token as its target, so len(prompt) − "
        "1 targets belong to the prompt. Leave out that many.",
        read="20_tuning#tun-mask",
        at="mask",
    ),
    "no_end": NO_END.by(
        "return ids[:-1], wanted",
        "wanted = [*wanted[:-1], ignored]\n    return ids[:-1], wanted",
    ),
    "own": Bug(
        "return ids[:-1], wanted",
        "wanted = [ignored] * len(prompt) + ids[len(prompt) : -1]\n"
        "    return ids[:-1], wanted",
        says="targets that are the tokens of the answer as they are read",
        why="The logits of a position are for the token after it. So the "
        "first target that counts is at the last token of the prompt.",
        read="20_tuning#tun-mask",
        alone=True,
    ),
    "prompt_grows": Bug(
        "ids = [*prompt, *answer]",
        "ids = prompt\n    ids += answer",
        "wanted[n:]",
        "answer",
        says="a row that is the list `prompt` itself: it grows, and with it "
        "the number of targets that are left out",
        why="`row += answer` makes the caller's list longer. `prompt + "
        "answer` is a new one.",
        read="20_tuning#tun-mask",
        alone=True,
    ),
    "elsewhere": Bug(
        "return ids[:-1], wanted",
        "return ids, [ignored] * len(prompt) + answer",
        says="inputs and labels as long as the row, neither of them moved",
        why="Some libraries want this, and move the labels themselves. Here "
        "you move them: leave out the last input, and let each target be the "
        "next token.",
        read="20_tuning#tun-mask",
        alone=True,
    ),
}


def _targets_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = (1 + torch.randperm(97, generator=g)[:8]).tolist()
    prompt, answer = ids[:5], [ids[5], ids[1], ids[6]]
    return [Case((prompt, answer), name="an answer with a prompt's token")]


# -- implement: a chat template ----------------------------------------------
def rendered(turns: list[tuple[str, str]]) -> str:
    r"""A conversation as one text, as many chat models read it.

    `turns` are pairs of a role ("system", "user" or "assistant") and what was
    said. Each turn becomes `<|im_start|>`, the role, a new line, what was
    said, `<|im_end|>` and a new line. If the last turn is the user's, the text
    ends with `<|im_start|>assistant` and a new line, so that what the model
    continues with is its answer.
    """
    text = ""
    for role, content in turns:
        text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
    return text


_RENDERED_BUGS = {
    "no_end": Bug(
        "{content}<|im_end|>\\",
        "{content}\\",
        says="turns that never end",
        why="Without <|im_end|> the model can't tell where a speaker stops, "
        "and never learns to stop itself.",
        read="20_tuning#tun-template",
        at="turn",
    ),
    "colon": Bug(
        "{role}\\n",
        "{role}: ",
        says="a colon behind the role instead of a new line",
        why="To you it reads just as well. But the model was tuned on a new "
        "line there, and a colon is another token.",
        read="20_tuning#tun-template",
        at="turn",
    ),
    "no_prompt": Bug(
        '    if turns[-1][0] == "user":\n'
        '        text += "<|im_start|>assistant\\n"\n',
        "",
        says="no line that hands over to the assistant",
        why="Then the model may continue with another turn of the user. Open "
        "the assistant's turn for it.",
        read="20_tuning#tun-template",
    ),
    "always": Bug(
        'if turns[-1][0] == "user":\n'
        '        text += "<|im_start|>assistant\\n"',
        'text += "<|im_start|>assistant\\n"',
        says="a turn opened behind an answer that is there already",
        why="Only if the user spoke last is it the assistant's turn.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "closed": Bug(
        'text += "<|im_start|>assistant\\n"',
        'text += "<|im_start|>assistant\\n"\n        text += "<|im_end|>\\n"',
        says="the assistant's turn opened and closed again",
        why="Opening it is right. The model fills the turn and closes it "
        "itself, so leave it open.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "each_user": Bug(
        '    if turns[-1][0] == "user":\n        text +=',
        '        if role == "user":\n            text +=',
        says="the assistant's turn opened after each of the user's",
        why="Earlier questions have their answers, which are turns already. "
        "Open one after the last turn only, if that is the user's.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "same_line": Bug(
        '"<|im_start|>assistant\\n"',
        '"<|im_start|>assistant"',
        says="no new line after the role of the assistant's open turn",
        why="In every turn a new line follows the role, and in this one, too.",
        read="20_tuning#tun-template",
        at="prompt",
    ),
    "between": Bug(
        "return text",
        'return text if turns[-1][0] == "user" else text[:-1]',
        says="a last turn with no new line after it",
        why="A new line ends each turn, the last one included. It isn't only "
        "put between two turns.",
        read="20_tuning#tun-template",
        alone=True,
    ),
    "anybody_else": Bug(
        '[0] == "user"',
        '[0] != "assistant"',
        says="a turn that is opened for the assistant although nobody asked",
        why="If the system speaks last, the user comes next. Ask whether the "
        "last turn is the user's.",
        read="20_tuning#tun-template",
        alone=True,
    ),
}


def _rendered_cases(seed: int) -> list[Case]:
    words = ["cat", "dog", "kite", "lake", "ball", "tea"]
    order = torch.randperm(len(words), generator=generator(seed)).tolist()
    a, b, c = (words[i] for i in order[:3])
    question = [("system", f"Be a {a}.\n"), ("user", f" Who has the {b}?")]
    return [
        Case((question,), name="a question"),
        Case(([*question, ("assistant", f"A {c}.")],), name="an answered one"),
        Case((question[:1],), name="nobody has asked yet"),
    ]


# -- implement: a low-rank update --------------------------------------------
def adapted(
    x: Tensor, weight: Tensor, a: Tensor, b: Tensor, alpha: float
) -> Tensor:
    """The output of a linear layer with a low-rank update beside it.

    `x` is `(T, I)`, `weight` `(O, I)`, as `nn.Linear` keeps it, `a` `(r, I)`
    and `b` `(O, r)`. The result is `(T, O)`: what the layer gives, plus what
    the update `B A` gives, times alpha / r.
    """
    rank = a.size(0)
    scale = alpha / rank
    inner = x @ a.T
    update = scale * inner @ b.T
    return x @ weight.T + update


_ADAPTED_BUGS = {
    "no_scale": Bug(
        "alpha / rank",
        "1.0",
        says="an update that is not scaled",
        why="Multiply it by α / r. The factor is there so that the same "
        "learning rate suits another rank.",
        read="20_tuning#tun-lora",
    ),
    "alpha_alone": Bug(
        "alpha / rank",
        "alpha",
        says="an update times α, not divided by the rank",
        why="The scale is α / r, and r is the number of rows of A.",
        read="20_tuning#tun-lora",
    ),
    "by_width": Bug(
        "alpha / rank",
        "alpha / a.size(1)",
        says="an update divided by the width instead of the rank",
        why="You divide α, which is right. But r is the number of rows of A, "
        "and this is the number of its columns.",
        read="20_tuning#tun-lora",
    ),
    "by_height": Bug(
        "alpha / rank",
        "alpha / b.size(0)",
        says="an update divided by the number of outputs instead of the rank",
        why="r is the number of rows of A, or of columns of B.",
        read="20_tuning#tun-lora",
    ),
    "root": Bug(
        "alpha / rank",
        "alpha / rank**0.5",
        says="an update divided by the root of the rank",
        why="That is a known variant, which some libraries offer under "
        "another name. Here the factor is α / r.",
        read="20_tuning#tun-lora",
    ),
    "bent": Bug(
        "update = scale * inner @ b.T",
        "inner = inner.relu()\n    update = scale * inner @ b.T",
        says="an update with a ReLU between its matrices",
        why="Adapter layers have one. Here the update must be linear, since "
        "only then can it be merged into W.",
        read="20_tuning#tun-lora",
    ),
    "update_alone": Bug(
        "x @ weight.T + update",
        "update",
        says="the update without the layer",
        why="W stays in use. Add what it makes of x.",
        read="20_tuning#tun-lora",
    ),
    "all_scaled": Bug(
        "x @ weight.T",
        "scale * (x @ weight.T)",
        says="the scale applied to the layer's output, too",
        why="That changes the model before anything is learned. Scale only "
        "the update.",
        read="20_tuning#tun-lora",
        alone=True,
    ),
    "not_transposed": Bug(
        "weight.T",
        "weight",
        says="a weight that is not transposed",
        why="`weight` is (O, I), as nn.Linear keeps it: x @ weight.T.",
        read="20_tuning#tun-lora",
        alone=True,
    ),
}


def _adapted_cases(seed: int) -> list[Case]:
    g = generator(seed)
    numbers = (randn(g, 4, 7), randn(g, 5, 7), randn(g, 3, 7), randn(g, 5, 3))
    return [Case((*numbers, 11.0), name="rank 3, α = 11")]


# -- implement: merge --------------------------------------------------------
def merged(weight: Tensor, updates: Sequence[Update]) -> Tensor:
    """A matrix with several updates added to it.

    `weight` is `(O, I)`. `updates` is a list of `(a, b, alpha)`, `a` `(r, I)`
    and `b` `(O, r)`, each with a rank r of its own. Each adds alpha / r times
    its `B A`. The result is `(O, I)`; `weight` itself stays as it is.
    """
    total = torch.zeros_like(weight)
    for a, b, alpha in updates:
        rank = len(a)
        update = alpha / rank * b @ a
        total = total + update
    return weight + total


_MERGED_BUGS = {
    "first_rank": Bug(
        "len(a)",
        "len(updates[0][0])",
        says="every update divided by the first one's rank",
        why="Updates may differ in rank. Take the number of rows of each A.",
        read="20_tuning#tun-merge",
        at="scale",
    ),
    "no_scale": Bug(
        "alpha / rank * b",
        "b",
        says="updates that are not scaled",
        why="The adapted layer adds α / r times B A to its output. The merged "
        "matrix has to do the same.",
        read="20_tuning#tun-merge",
        at="scale",
    ),
    "last_only": Bug(
        "total + update",
        "update",
        says="the last update alone",
        why="Each pass of your loop replaces the sum. Add to it instead.",
        read="20_tuning#tun-merge",
    ),
    "mean": Bug(
        "return weight + total",
        "total = total / len(updates)\n    return weight + total",
        says="the mean of the updates instead of their sum",
        why="Next to one layer, the outputs of several updates are added. So "
        "their matrices are added, too.",
        read="20_tuning#tun-merge",
    ),
    "alpha_alone": Bug(
        "alpha / rank * b",
        "alpha * b",
        says="updates multiplied by α, and not divided by the rank",
        why="The scale is α / r. Divide by the number of rows of A.",
        read="20_tuning#tun-merge",
        alone=True,
    ),
}


def _merged_cases(seed: int) -> list[Case]:
    g = generator(seed)
    weight = randn(g, 5, 7)
    updates = [
        (randn(g, r, 7), randn(g, 5, r), alpha)
        for r, alpha in ((4, 3.0), (3, 11.0))
    ]
    return [Case((weight, updates), name="two updates, of rank 4 and 3")]


# -- implement: count --------------------------------------------------------
def counted(
    d_model: int, d_ff: int, n_layers: int, rank: int, layers: list[str]
) -> int:
    """How many parameters low-rank updates train.

    A block has the matrices "w_q", "w_k", "w_v" and "w_o", from `d_model` to
    `d_model`, "w_in" from `d_model` to `d_ff` and "w_out" back. In each of
    `n_layers` blocks, those that `layers` names get an update of the given
    rank; nothing else is trained.
    """
    total = 0
    for name in layers:
        n_in = d_ff if name == "w_out" else d_model
        n_out = d_ff if name == "w_in" else d_model
        total += rank * (n_in + n_out)
    return n_layers * total


_COUNTED_BUGS = {
    "square": Bug(
        "total += rank * (n_in + n_out)",
        "n_in = n_out = d_model\n        total += rank * (n_in + n_out)",
        says="matrices of the network that are as wide as those of attention",
        why="w_in leads from d_model to d_ff, and w_out leads back.",
        read="20_tuning#tun-count",
    ),
    "frozen": Bug(
        "(n_in + n_out)",
        "(n_in + n_out) + n_in * n_out",
        says="the old matrices counted as well",
        why="They are in the model, but frozen: they get no gradient. Count "
        "only A and B.",
        read="20_tuning#tun-count",
        at="numbers",
    ),
    "full": Bug(
        "rank * (n_in + n_out)",
        "n_in * n_out",
        says="the entries of the matrices themselves",
        why="That is full fine-tuning. Only A and B are trained.",
        read="20_tuning#tun-count",
    ),
    "out_square": Bug(
        'd_ff if name == "w_out" else d_model',
        "d_model",
        says="a w_out that is as wide as the matrices of attention",
        why="w_out leads from d_ff to d_model.",
        read="20_tuning#tun-count",
        alone=True,
    ),
    "all_wide": Bug(
        "total += rank * (n_in + n_out)",
        "n_in, n_out = d_model, d_ff\n        total += rank * (n_in + n_out)",
        says="every matrix as wide as those of the network",
        why="The matrices of attention lead from d_model to d_model. (In "
        "Python, the condition `name == 'w_in' or 'w_out'` is always true.)",
        read="20_tuning#tun-count",
        alone=True,
    ),
    "one_block": Bug(
        "n_layers * total",
        "total",
        says="the updates of a single block",
        why="Your sum is right for one block, and all n_layers blocks have "
        "these updates.",
        read="20_tuning#tun-count",
    ),
    "all_six": Bug(
        "in layers:",
        'in ("w_q", "w_k", "w_v", "w_o", "w_in", "w_out"):',
        says="updates of all six matrices, whatever is listed",
        why="Only the layers in the list get an update.",
        read="20_tuning#tun-count",
        alone=True,
    ),
}


def _counted_cases(seed: int) -> list[Case]:
    d_model, rank = ((20, 3), (44, 5), (52, 7))[seed % 3]
    layers = ["w_q", "w_o", "w_in", "w_out"]
    sizes = (d_model, 4 * d_model - 3, 11, rank)
    return [Case((*sizes, layers), name="two of attention, two of the FFN")]


# -- debug: a loss on answers ------------------------------------------------
def mended(
    logits: Tensor, ids: Tensor, n_prompt: Tensor, n_real: Tensor
) -> Tensor:
    """The mean loss, in nats, over the tokens of all answers.

    `ids` is `(B, T)`: row i has `n_prompt[i]` tokens of a prompt, then
    the answer, up to `n_real[i]` tokens in all, then padding. `logits` is
    `(B, T, V)`, those of position t for token t + 1. The result is the mean
    over all tokens of all answers; prompts and padding do not count.
    """
    places = torch.arange(1, ids.size(1))
    begun = places >= n_prompt[:, None]
    going = places < n_real[:, None]
    counts = (begun & going).double()
    rows = logits[:, :-1]
    nats = F.cross_entropy(rows.mT, ids[:, 1:], reduction="none") * counts
    return nats.sum() / counts.sum()


_MENDED_BUGS = {
    "late": Bug(
        "begun = places >= n_prompt[:, None]",
        "begun = places > n_prompt[:, None]",
        says="a first token of each answer that does not count",
        why="Positions are counted from 0, so the answer begins at position "
        "n_prompt, and the token there is its first target.",
        read="20_tuning#tun-mask",
    ),
    "prompt_too": Bug(
        "begun = places >= n_prompt[:, None]",
        "begun = places > 0 * n_prompt[:, None]",
        says="prompts that count",
        why="The answer begins at position n_prompt. Leave out the targets "
        "before it.",
        read="20_tuning#tun-mask",
    ),
    "padding_too": Bug(
        "n_real[:, None]",
        "ids.size(1) + 0 * n_real[:, None]",
        says="padding that counts",
        why="From position n_real on there is nothing to predict.",
        read="20_tuning#tun-mask",
        at="going",
    ),
    "end_left_out": Bug(
        "n_real[:, None]",
        "n_real[:, None] - 1",
        says="a last token of each answer that does not count",
        why="It ends the answer, and the model has to learn when to stop. The "
        "last position that counts is n_real − 1.",
        read="20_tuning#tun-mask",
        at="going",
    ),
    "not_shifted": NOT_SHIFTED.by(
        ":, :-1",
        ":, 1:",
        says="logits compared with the token that they have read",
    ),
    "mean_of_means": MEAN_OF_MEANS.by(
        "return nats.sum() / counts.sum()",
        "return (nats.sum(1) / counts.sum(1)).mean()",
        says="the mean of each row's mean",
        read="20_tuning#tun-mask",
    ),
    "all_positions": Bug(
        "return nats.sum() / counts.sum()",
        "return nats.mean()",
        says="a sum that is divided by all positions",
        why="The sum is right. Divide it by the number of tokens that count, "
        "or longer prompts make the loss smaller.",
        read="20_tuning#tun-mask",
    ),
    "per_answer": Bug(
        "return nats.sum() / counts.sum()",
        "return nats.sum() / len(ids)",
        says="a sum that is divided by the number of answers",
        why="That gives nats per answer, and it grows with the length of the "
        "answers. For nats per token, divide by the number of tokens that "
        "count.",
        read="20_tuning#tun-mask",
    ),
    "from_zero": Bug(
        "torch.arange(1, ids.size(1))",
        "torch.arange(ids.size(1) - 1)",
        says="places counted by the token that is read, not by the target",
        why="The target of position t is token t + 1, so count from 1. Now "
        "the first token of each answer is left out, and one of the padding "
        "counts.",
        read="20_tuning#tun-mask",
        alone=True,
    ),
}


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(13, (3, 11), generator=g)
    ids[0, 5] = 0  # a token like any other
    n_prompt, n_real = torch.tensor([3, 5, 2]), torch.tensor([7, 11, 5])
    logits = 2 * randn(g, 3, 11, 13)
    return [Case((logits, ids, n_prompt, n_real), name="three rows")]


EXERCISES = {
    "targets": Exercise(
        targets,
        _targets_cases,
        bugs=_TARGETS_BUGS,
        alike=[
            (
                frozenset({"own"}),
                frozenset({"not_shifted", "one_late"}),
                "the same lists: what is not shifted is masked one later",
            )
        ],
        forbid=OURS,
    ),
    "rendered": Exercise(
        rendered,
        _rendered_cases,
        bugs=_RENDERED_BUGS,
    ),
    "adapted": Exercise(
        adapted,
        _adapted_cases,
        bugs=_ADAPTED_BUGS,
        forbid=OURS,
    ),
    "merged": Exercise(
        merged,
        _merged_cases,
        bugs=_MERGED_BUGS,
        forbid=OURS,
    ),
    "counted": Exercise(
        counted,
        _counted_cases,
        bugs=_COUNTED_BUGS,
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
        forbid=OURS,
    ),
}
