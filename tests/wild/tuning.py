"""Answers to chapter 20, written from its page alone."""

import math
from collections import deque
from functools import reduce
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from tests.wild import right, wrong

# tuning/targets


@right("tuning/targets", "pairs of neighbors, and a countdown")
def neighbors_with_countdown(prompt, answer):
    left = len(prompt) - 1
    read, wanted = [], []
    for now, following in pairwise([*prompt, *answer]):
        read.append(now)
        wanted.append(-100 if left > 0 else following)
        left -= 1
    return read, wanted


@right("tuning/targets", "one long tensor, filled, and back to lists")
def filled_tensor(prompt, answer):
    row = torch.cat([torch.tensor(prompt), torch.tensor(answer)])
    wanted = row.roll(-1)
    wanted[: len(prompt) - 1] = -100
    return row[:-1].tolist(), wanted[:-1].tolist()


@right("tuning/targets", "recursion over the prompt, a list of two lists")
def recursive_targets(prompt, answer):
    if len(prompt) == 1:
        return [[*prompt, *answer[:-1]], list(answer)]
    read, wanted = recursive_targets(prompt[1:], answer)
    return [[prompt[0], *read], [-100, *wanted]]


@right("tuning/targets", "a deque that is filled from the right")
def deque_from_the_right(prompt, answer):
    wanted = deque(answer)
    read = list(prompt) + list(answer)
    read.pop()
    while len(wanted) < len(read):
        wanted.appendleft(-100)
    return read, list(wanted)


@wrong(
    "tuning/targets",
    "the targets are not moved by one: each token is its own target",
    classic=True,
)
def own_target(prompt, answer):
    read = (prompt + answer)[:-1]
    return read, [-100] * len(prompt) + answer[:-1]


@wrong(
    "tuning/targets",
    "one -100 too many: the answer's first word is no target",
    classic=True,
)
def first_word_left_out(prompt, answer):
    row = prompt + answer
    return row[:-1], [-100] * len(prompt) + answer[1:]


@wrong(
    "tuning/targets",
    "one -100 too few: the last token of the prompt counts",
    classic=True,
)
def last_of_prompt_counts(prompt, answer):
    row = prompt + answer
    n = len(prompt) - 2
    return row[:-1], [-100] * n + row[n + 1 :]


@wrong("tuning/targets", "the prompt's targets count too", classic=True)
def prompt_counts_too(prompt, answer):
    row = prompt + answer
    return row[:-1], row[1:]


@wrong("tuning/targets", "the end is no target", classic=True)
def end_left_out(prompt, answer):
    row = prompt + answer
    wanted = [-100] * (len(prompt) - 1) + answer[:-1] + [-100]
    return row[:-1], wanted


@wrong(
    "tuning/targets",
    "whole rows, labels as other libraries want them: nothing is moved, "
    "and the last token is read",
    classic=True,
)
def labels_elsewhere(prompt, answer):
    return prompt + answer, [-100] * len(prompt) + answer


@wrong(
    "tuning/targets",
    "prompt grows in place, so its length is that of the whole row",
    classic=True,
)
def prompt_grows(prompt, answer):
    row = prompt
    row += answer
    return row[:-1], [-100] * (len(prompt) - 1) + answer


@wrong("tuning/targets", "0 where -100 belongs", classic=True)
def zero_for_nothing(prompt, answer):
    row = prompt + answer
    return row[:-1], [0] * (len(prompt) - 1) + answer


@wrong(
    "tuning/targets",
    "whatever token the prompt has too is no target, in the answer neither",
    classic=False,
)
def by_value(prompt, answer):
    row = prompt + answer
    return row[:-1], [-100 if t in prompt else t for t in row[1:]]


@wrong("tuning/targets", "the prompt is hidden as input", classic=False)
def hidden_as_input(prompt, answer):
    read = [-100] * len(prompt) + answer[:-1]
    return read, [-100] * (len(prompt) - 1) + answer


# tuning/rendered


@right("tuning/rendered", "a dict of what follows, and a fold")
def folded_turns(turns):
    def add(text, turn):
        role, said = turn
        return f"{text}<|im_start|>{role}\n{said}<|im_end|>\n"

    last = turns[-1][0] if turns else None
    ends = {"user": "<|im_start|>assistant\n"}
    return reduce(add, turns, "") + ends.get(last, "")


@right("tuning/rendered", "recursion: the first turn, and then the others")
def recursive_turns(turns):
    if not turns:
        return ""
    (role, said), *others = turns
    text = "<|im_start|>%s\n%s<|im_end|>\n" % (role, said)  # noqa: UP031
    if not others and role == "user":
        return text + "<|im_start|>assistant\n"
    return text + recursive_turns(others)


@right(
    "tuning/rendered",
    "the marker joins the turns, with an empty one before the first",
)
def split_by_marker(turns):
    said = [f"{role}\n{words}<|im_end|>\n" for role, words in turns]
    if turns[-1][0] == "user":
        said += ["assistant\n"]
    return "<|im_start|>".join(["", *said])


@wrong(
    "tuning/rendered",
    "the assistant is always asked, though it spoke last",
    classic=True,
)
def always_asked(turns):
    text = "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)
    return text + "<|im_start|>assistant\n"


@wrong("tuning/rendered", "the assistant is never asked", classic=True)
def never_asked(turns):
    return "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)


@wrong(
    "tuning/rendered",
    "the assistant's turn is closed again before it has spoken",
    classic=True,
)
def closed_at_once(turns):
    if turns[-1][0] == "user":
        turns = [*turns, ("assistant", "")]
    return "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)


@wrong(
    "tuning/rendered",
    "new lines only between turns: the last one ends without",
    classic=True,
)
def only_between(turns):
    text = "\n".join(f"<|im_start|>{r}\n{s}<|im_end|>" for r, s in turns)
    if turns[-1][0] == "user":
        text += "\n<|im_start|>assistant\n"
    return text


@wrong(
    "tuning/rendered",
    "no new line behind the assistant that is asked",
    classic=True,
)
def no_line_behind_asked(turns):
    text = "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant"
    return text


@wrong(
    "tuning/rendered",
    "one more new line, before the end of each turn",
    classic=True,
)
def line_before_the_end(turns):
    text = "".join(f"<|im_start|>{r}\n{s}\n<|im_end|>\n" for r, s in turns)
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
    return text


@wrong(
    "tuning/rendered",
    "a colon and a space behind the role, no new line",
    classic=True,
)
def colon_behind_role(turns):
    text = "".join(f"<|im_start|>{r}: {s}<|im_end|>\n" for r, s in turns)
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
    return text


@wrong(
    "tuning/rendered",
    "the assistant is asked behind each of the user's turns",
    classic=True,
)
def asked_each_time(turns):
    text = ""
    for role, said in turns:
        text += f"<|im_start|>{role}\n{said}<|im_end|>\n"
        if role == "user":
            text += "<|im_start|>assistant\n"
    return text


@wrong(
    "tuning/rendered",
    "the assistant is asked if anybody else spoke last, the system too",
    classic=False,
)
def anybody_else_last(turns):
    text = "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)
    if turns[-1][0] != "assistant":
        text += "<|im_start|>assistant\n"
    return text


@wrong(
    "tuning/rendered",
    "spaces and new lines around what was said are dropped",
    classic=False,
)
def stripped(turns):
    text = "".join(
        f"<|im_start|>{r}\n{s.strip()}<|im_end|>\n" for r, s in turns
    )
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
    return text


# tuning/adapted


@right("tuning/adapted", "einsums, with a letter for each axis")
def einsum_adapted(x, weight, a, b, alpha):
    old = torch.einsum("ti,oi->to", x, weight)
    new = torch.einsum("ti,ri,or->to", x, a, b)
    return old + new * (alpha / a.size(0))


@right("tuning/adapted", "one rank after the other, added in place")
def rank_by_rank(x, weight, a, b, alpha):
    out = F.linear(x, weight)
    for reads, writes in zip(a, b.T, strict=True):
        out += alpha / len(a) * torch.outer(x @ reads, writes)
    return out


@right("tuning/adapted", "the matrices are added up first")
def added_first(x, weight, a, b, alpha):
    r = b.size(1)
    return F.linear(x, torch.addmm(weight, b, a, alpha=alpha / r))


@right("tuning/adapted", "one thick layer over x and what a reads")
def one_thick_layer(x, weight, a, b, alpha):
    reads = x @ a.T * alpha / a.shape[0]
    return torch.cat([x, reads], 1) @ torch.cat([weight, b], 1).T


@wrong("tuning/adapted", "alpha alone, not divided by r", classic=True)
def not_divided_by_rank(x, weight, a, b, alpha):
    return x @ weight.T + alpha * (x @ a.T @ b.T)


@wrong("tuning/adapted", "no factor at all", classic=True)
def no_factor(x, weight, a, b, alpha):
    return x @ weight.T + x @ a.T @ b.T


@wrong("tuning/adapted", "divided by I: the wrong size of a", classic=True)
def divided_by_width(x, weight, a, b, alpha):
    return x @ weight.T + alpha / a.shape[1] * (x @ a.T @ b.T)


@wrong("tuning/adapted", "divided by O: the wrong size of b", classic=True)
def divided_by_height(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(b) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "the update alone, without the layer", classic=True)
def update_alone(x, weight, a, b, alpha):
    return alpha / len(a) * (x @ a.T @ b.T)


@wrong(
    "tuning/adapted", "the factor stands before the whole sum", classic=True
)
def factor_before_all(x, weight, a, b, alpha):
    return alpha / len(a) * (x @ weight.T + x @ a.T @ b.T)


@wrong(
    "tuning/adapted",
    "the weight is used as (I, O), not transposed",
    classic=True,
)
def not_transposed(x, weight, a, b, alpha):
    return x @ weight + alpha / len(a) * (x @ a.T @ b.T)


@wrong(
    "tuning/adapted",
    "a whole-number division: alpha // r",
    classic=False,
)
def whole_division(x, weight, a, b, alpha):
    return x @ weight.T + alpha // len(a) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "divided by the root of r", classic=False)
def root_of_rank(x, weight, a, b, alpha):
    return x @ weight.T + alpha / math.sqrt(len(a)) * (x @ a.T @ b.T)


@wrong(
    "tuning/adapted", "a ReLU between a and b, as in an adapter", classic=False
)
def relu_between(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(a) * ((x @ a.T).relu() @ b.T)


# tuning/merged


@right("tuning/merged", "recursion with addmm")
def recursive_addmm(weight, updates):
    if not updates:
        return weight.clone()
    (a, b, alpha), *others = updates
    new = torch.addmm(weight, b, a, alpha=alpha / len(a))
    return recursive_addmm(new, others)


@right("tuning/merged", "all ranks side by side, one product")
def side_by_side(weight, updates):
    reads = [weight.new_zeros(0, weight.size(1))]
    writes = [weight.new_zeros(weight.size(0), 0)]
    for a, b, alpha in updates:
        reads.append(a)
        writes.append(b * (alpha / b.size(1)))
    return weight + torch.cat(writes, 1) @ torch.cat(reads, 0)


@right("tuning/merged", "a copy, then outer products added in place")
def outer_by_outer(weight, updates):
    out = weight.clone()
    for a, b, alpha in updates:
        for i in range(a.shape[0]):
            out.add_(b[:, i, None] * a[i], alpha=alpha / a.shape[0])
    return out


@right("tuning/merged", "Python's sum, with an einsum for each update")
def summed_einsums(weight, updates):
    changes = (
        alpha * torch.einsum("or,ri->oi", b, a) / a.size(0)
        for a, b, alpha in updates
    )
    return weight + sum(changes, torch.zeros_like(weight))


@wrong("tuning/merged", "weight itself is changed", classic=True)
def weight_changed(weight, updates):
    for a, b, alpha in updates:
        weight += alpha / len(a) * b @ a
    return weight


@wrong(
    "tuning/merged",
    "only a new name, no copy: weight itself is changed",
    classic=True,
)
def new_name(weight, updates):
    out = weight.detach()
    for a, b, alpha in updates:
        out.add_(b @ a * (alpha / len(a)))
    return out


@wrong("tuning/merged", "only the last update is left", classic=True)
def last_is_left(weight, updates):
    for a, b, alpha in updates:
        out = weight + alpha / len(a) * b @ a
    return out


@wrong("tuning/merged", "the rank of the first for all", classic=True)
def rank_of_the_first(weight, updates):
    r = len(updates[0][0])
    out = weight.clone()
    for a, b, alpha in updates:
        out += alpha / r * b @ a
    return out


@wrong("tuning/merged", "not divided by the rank", classic=True)
def merged_alpha_alone(weight, updates):
    return weight + sum(alpha * b @ a for a, b, alpha in updates)


@wrong("tuning/merged", "the mean of the updates", classic=True)
def mean_of_updates(weight, updates):
    added = [alpha / len(a) * (b @ a) for a, b, alpha in updates]
    return weight + torch.stack(added).mean(0)


@wrong("tuning/merged", "no alpha and no rank", classic=True)
def bare_products(weight, updates):
    out = weight.clone()
    for a, b, _ in updates:
        out = out + b @ a
    return out


@wrong(
    "tuning/merged", "the number of updates instead of the rank", classic=False
)
def number_of_updates(weight, updates):
    out = weight.clone()
    for a, b, alpha in updates:
        out = out + alpha / len(updates) * b @ a
    return out


@wrong("tuning/merged", "all alphas together, over all ranks", classic=False)
def one_factor_for_all(weight, updates):
    a = torch.cat([u[0] for u in updates], 0)
    b = torch.cat([u[1] for u in updates], 1)
    return weight + sum(u[2] for u in updates) / len(a) * b @ a


# tuning/counted


@right("tuning/counted", "layers on the meta device, their entries counted")
def really_built(d_model, d_ff, n_layers, rank, layers):
    sizes = dict.fromkeys(["w_q", "w_k", "w_v", "w_o"], (d_model, d_model))
    sizes |= {"w_in": (d_model, d_ff), "w_out": (d_ff, d_model)}
    with torch.device("meta"):
        update = nn.ModuleList(
            nn.Linear(*size, bias=False)
            for name in layers
            for size in [(sizes[name][0], rank), (rank, sizes[name][1])]
        )
    return n_layers * sum(p.numel() for p in update.parameters())


@right("tuning/counted", "added up, block by block and matrix by matrix")
def added_up_block_by_block(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for _ in range(n_layers):
        for name in layers:
            total += rank * d_model
            total += rank * (d_ff if name in {"w_in", "w_out"} else d_model)
    return total


@right("tuning/counted", "counts how many are wide, and one product")
def how_many_are_wide(d_model, d_ff, n_layers, rank, layers):
    wide = len({"w_in", "w_out"} & set(layers))
    slim = len(layers) - wide
    return n_layers * rank * (d_model * (2 * slim + wide) + d_ff * wide)


@wrong("tuning/counted", "one block only", classic=True)
def one_block_only(d_model, d_ff, n_layers, rank, layers):
    wide = {"w_in", "w_out"}
    return sum(
        rank * (d_model + (d_ff if name in wide else d_model))
        for name in layers
    )


@wrong("tuning/counted", "all matrices as if they were square", classic=True)
def all_square(d_model, d_ff, n_layers, rank, layers):
    return n_layers * len(layers) * rank * 2 * d_model


@wrong(
    "tuning/counted",
    "the matrices themselves, as in full fine-tuning",
    classic=True,
)
def full_matrices(d_model, d_ff, n_layers, rank, layers):
    wide = {"w_in", "w_out"}
    return n_layers * sum(
        d_model * (d_ff if name in wide else d_model) for name in layers
    )


@wrong("tuning/counted", "the frozen ones are counted too", classic=True)
def frozen_too(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for name in layers:
        out = d_ff if name in ("w_in", "w_out") else d_model
        total += d_model * out + rank * (d_model + out)
    return n_layers * total


@wrong("tuning/counted", "all six, whatever layers says", classic=True)
def all_six(d_model, d_ff, n_layers, rank, layers):
    return n_layers * rank * (4 * 2 * d_model + 2 * (d_model + d_ff))


@wrong("tuning/counted", "only w_in is wide, w_out is not", classic=True)
def only_in_is_wide(d_model, d_ff, n_layers, rank, layers):
    return n_layers * sum(
        rank * (d_model + (d_ff if name == "w_in" else d_model))
        for name in layers
    )


@wrong(
    "tuning/counted",
    'name == "w_in" or "w_out" is always true: all are wide',
    classic=True,
)
def always_true(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for name in layers:
        if name == "w_in" or "w_out":  # noqa: SIM222
            total += rank * (d_model + d_ff)
        else:
            total += rank * 2 * d_model
    return total * n_layers


@wrong(
    "tuning/counted",
    'what begins like "w_o" is wide, so w_o is',
    classic=False,
)
def begins_alike(d_model, d_ff, n_layers, rank, layers):
    return n_layers * sum(
        rank
        * (d_model + (d_ff if name.startswith(("w_i", "w_o")) else d_model))
        for name in layers
    )


# tuning/mended


@right("tuning/mended", "rows cut out and joined, one cross-entropy")
def rows_cut_out(logits, ids, n_prompt, n_real):
    said, wanted = [], []
    for row, tokens, begin, end in zip(
        logits, ids, n_prompt.tolist(), n_real.tolist(), strict=True
    ):
        said.append(row[begin - 1 : end - 1])
        wanted.append(tokens[begin:end])
    return F.cross_entropy(torch.cat(said), torch.cat(wanted))


@right("tuning/mended", "-100 in a copy of the ids, and the usual loss")
def usual_loss(logits, ids, n_prompt, n_real):
    at = torch.arange(ids.size(1)).expand_as(ids)
    hidden = (at < n_prompt[:, None]) | (at >= n_real[:, None])
    wanted = ids.masked_fill(hidden, -100)[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted.flatten())


@right("tuning/mended", "token by token, with log-sum-exp")
def token_by_token(logits, ids, n_prompt, n_real):
    nats, count = logits.new_zeros(()), 0
    for i in range(len(ids)):
        for t in range(int(n_prompt[i]), int(n_real[i])):
            said = logits[i, t - 1]
            nats = nats + said.logsumexp(-1) - said[ids[i, t]]
            count += 1
    return nats / count


@right("tuning/mended", "weights of 1 / n for each token, by einsum")
def equal_weights(logits, ids, n_prompt, n_real):
    places = torch.arange(ids.size(1) - 1)
    counts = places + 1 >= n_prompt[:, None]
    counts = counts & (places + 1 < n_real[:, None])
    nats = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    weights = counts.to(nats.dtype) / (n_real - n_prompt).sum()
    return torch.einsum("bt,bt->", nats, weights)


def _nats(logits, ids):
    return F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")


@wrong(
    "tuning/mended",
    "the first word counts now, but each answer still weighs the same",
    classic=True,
)
def each_answer_alike(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    nats = _nats(logits, ids)
    return ((nats * counts).sum(1) / counts.sum(1)).mean()


@wrong(
    "tuning/mended",
    "the mean is over tokens now, but the first word is still left out",
    classic=True,
)
def first_word_still_out(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places > n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong(
    "tuning/mended",
    "one place too early: the last token of the prompt counts",
    classic=True,
)
def one_place_too_early(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None] - 1) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong(
    "tuning/mended",
    "the end is moved with the beginning: padding counts",
    classic=True,
)
def padding_counts(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places <= n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong(
    "tuning/mended",
    "divided by all places, padding and prompts included",
    classic=True,
)
def divided_by_all_places(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).mean()


@wrong("tuning/mended", "the mean over rows of an answer's sum", classic=True)
def sums_of_answers(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum(1).mean()


@wrong(
    "tuning/mended",
    "places begin at 0: the first word is lost, and one padding counts",
    classic=True,
)
def places_from_zero(logits, ids, n_prompt, n_real):
    places = torch.arange(ids.size(1) - 1)
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong(
    "tuning/mended",
    "the prompt counts too: only padding is left out",
    classic=True,
)
def prompts_count(logits, ids, n_prompt, n_real):
    counts = torch.arange(1, ids.size(1)) < n_real[:, None]
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong(
    "tuning/mended",
    "longer answers get more weight than one token one vote",
    classic=False,
)
def weighed_by_length(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    nats = (_nats(logits, ids) * counts).sum(1)
    n = counts.sum(1)
    return (nats * n).sum() / (n * n).sum()
