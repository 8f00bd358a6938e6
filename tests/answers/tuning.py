"""Answers to the exercises of chapter 20."""

import math
from collections import deque
from functools import reduce
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from tests.answers import right, wrong

# -- targets -----------------------------------------------------------------


@right("tuning/targets")
def neighbors_with_countdown(prompt, answer):
    left = len(prompt) - 1
    read, wanted = [], []
    for now, following in pairwise([*prompt, *answer]):
        read.append(now)
        wanted.append(-100 if left > 0 else following)
        left -= 1
    return read, wanted


@right("tuning/targets")
def filled_tensor(prompt, answer):
    row = torch.cat([torch.tensor(prompt), torch.tensor(answer)])
    wanted = row.roll(-1)
    wanted[: len(prompt) - 1] = -100
    return row[:-1].tolist(), wanted[:-1].tolist()


@right("tuning/targets")
def recursive_targets(prompt, answer):
    if len(prompt) == 1:
        return [[*prompt, *answer[:-1]], list(answer)]
    read, wanted = recursive_targets(prompt[1:], answer)
    return [[prompt[0], *read], [-100, *wanted]]


@right("tuning/targets")
def deque_from_the_right(prompt, answer):
    wanted = deque(answer)
    read = list(prompt) + list(answer)
    read.pop()
    while len(wanted) < len(read):
        wanted.appendleft(-100)
    return read, list(wanted)


@right("tuning/targets")
def by_flags(prompt, answer):
    row = prompt + answer
    flags = [False] * len(prompt) + [True] * len(answer)
    wanted = [t if f else -100 for t, f in zip(row, flags, strict=True)]
    return row[:-1], wanted[1:]


@right("tuning/targets")
def answer_behind_dots(prompt, answer):
    return prompt + answer[:-1], [-100 for _ in prompt[1:]] + answer


@right("tuning/targets")
def by_a_tensor(prompt, answer):
    row = torch.tensor([*prompt, *answer])
    wanted = row.roll(-1)[:-1]
    wanted[: len(prompt) - 1] = -100
    return row[:-1].tolist(), wanted.tolist()


@wrong("tuning/targets", "own")
def own_target(prompt, answer):
    read = (prompt + answer)[:-1]
    return read, [-100] * len(prompt) + answer[:-1]


@wrong("tuning/targets", "one_late")
def first_word_left_out(prompt, answer):
    row = prompt + answer
    return row[:-1], [-100] * len(prompt) + answer[1:]


@wrong("tuning/targets", "one_early")
def last_of_prompt_counts(prompt, answer):
    row = prompt + answer
    n = len(prompt) - 2
    return row[:-1], [-100] * n + row[n + 1 :]


@wrong("tuning/targets", "all_counted")
def prompt_counts_too(prompt, answer):
    row = prompt + answer
    return row[:-1], row[1:]


@wrong("tuning/targets", "no_end")
def end_left_out(prompt, answer):
    row = prompt + answer
    wanted = [-100] * (len(prompt) - 1) + answer[:-1] + [-100]
    return row[:-1], wanted


@wrong("tuning/targets", "elsewhere")
def labels_elsewhere(prompt, answer):
    return prompt + answer, [-100] * len(prompt) + answer


@wrong("tuning/targets", "prompt_grows")
def prompt_grows(prompt, answer):
    row = prompt
    row += answer
    return row[:-1], [-100] * (len(prompt) - 1) + answer


@wrong("tuning/targets", "zero")
def zero_for_nothing(prompt, answer):
    row = prompt + answer
    return row[:-1], [0] * (len(prompt) - 1) + answer


def made(prompt, answer, hidden, fill=-100, ahead=1, last=True):
    row = prompt + answer
    wanted = []
    for i in range(len(row) - 1):
        shown = i >= hidden and (last or i < len(row) - 2)
        wanted.append(row[i + ahead] if shown else fill)
    return row[:-1], wanted


@wrong("tuning/targets", "not_shifted")
def not_shifted(prompt, answer):
    return made(prompt, answer, len(prompt) - 1, ahead=0)


# Whatever token the prompt has too is no target, in the answer neither.
@wrong("tuning/targets")
def by_value(prompt, answer):
    row = prompt + answer
    return row[:-1], [-100 if t in prompt else t for t in row[1:]]


@wrong("tuning/targets")
def hidden_as_input(prompt, answer):
    read = [-100] * len(prompt) + answer[:-1]
    return read, [-100] * (len(prompt) - 1) + answer


@wrong("tuning/targets")
def answer_first(prompt, answer):
    return by_flags(answer, prompt)


# -- rendered ----------------------------------------------------------------


@right("tuning/rendered")
def folded_turns(turns):
    def add(text, turn):
        role, said = turn
        return f"{text}<|im_start|>{role}\n{said}<|im_end|>\n"

    last = turns[-1][0] if turns else None
    ends = {"user": "<|im_start|>assistant\n"}
    return reduce(add, turns, "") + ends.get(last, "")


@right("tuning/rendered")
def recursive_turns(turns):
    if not turns:
        return ""
    (role, said), *others = turns
    text = "<|im_start|>%s\n%s<|im_end|>\n" % (role, said)  # noqa: UP031
    if not others and role == "user":
        return text + "<|im_start|>assistant\n"
    return text + recursive_turns(others)


@right("tuning/rendered")
def split_by_marker(turns):
    said = [f"{role}\n{words}<|im_end|>\n" for role, words in turns]
    if turns[-1][0] == "user":
        said += ["assistant\n"]
    return "<|im_start|>".join(["", *said])


@right("tuning/rendered")
def joined(turns):
    lines = [f"<|im_start|>{r}\n{t}<|im_end|>" for r, t in turns]
    if turns[-1][0] == "user":
        lines.append("<|im_start|>assistant")
    return "\n".join(lines) + "\n"


@right("tuning/rendered")
def piece_by_piece(turns):
    text = []
    for role, said in turns:
        text += ["<|im_start|>", role, "\n", said, "<|im_end|>", "\n"]
    if role == "user":
        text += ["<|im_start|>", "assistant", "\n"]
    return "".join(text)


@right("tuning/rendered")
def with_format(turns):
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    opening = "<|im_start|>assistant\n" * (turns[-1][0] == "user")
    return "".join(turn.format(*t) for t in turns) + opening


@wrong("tuning/rendered", "always")
def always_asked(turns):
    text = "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)
    return text + "<|im_start|>assistant\n"


@wrong("tuning/rendered", "no_prompt")
def never_asked(turns):
    return "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)


@wrong("tuning/rendered", "closed")
def closed_at_once(turns):
    if turns[-1][0] == "user":
        turns = [*turns, ("assistant", "")]
    return "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)


@wrong("tuning/rendered", "between")
def only_between(turns):
    text = "\n".join(f"<|im_start|>{r}\n{s}<|im_end|>" for r, s in turns)
    if turns[-1][0] == "user":
        text += "\n<|im_start|>assistant\n"
    return text


def chat(turns, turn="<|im_start|>{}\n{}<|im_end|>\n", when=None, behind=""):
    text = "".join([turn.format(role, said) for role, said in turns])
    opens = turns[-1][0] == "user" if when is None else when
    return text + ("<|im_start|>assistant\n" + behind if opens else "")


@wrong("tuning/rendered", "same_line")
def same_line(turns):
    return chat(turns).removesuffix("\n") + "\n" * (turns[-1][0] != "user")


@wrong("tuning/rendered", "colon")
def colon(turns):
    return chat(turns, turn="<|im_start|>{}: {}<|im_end|>\n")


@wrong("tuning/rendered", "each_user")
def each_user(turns):
    return "".join([chat([turn]) for turn in turns])


@wrong("tuning/rendered", "anybody_else")
def anybody_else_last(turns):
    text = "".join(f"<|im_start|>{r}\n{s}<|im_end|>\n" for r, s in turns)
    if turns[-1][0] != "assistant":
        text += "<|im_start|>assistant\n"
    return text


@wrong("tuning/rendered", "no_end")
def turns_without_end(turns):
    return chat(turns, turn="<|im_start|>{}\n{}\n")


# One more new line, before the end of each turn.
@wrong("tuning/rendered")
def line_before_the_end(turns):
    text = "".join(f"<|im_start|>{r}\n{s}\n<|im_end|>\n" for r, s in turns)
    if turns[-1][0] == "user":
        text += "<|im_start|>assistant\n"
    return text


@wrong("tuning/rendered")
def plain(turns):
    return "\n".join(f"{role}: {said}" for role, said in turns)


@wrong("tuning/rendered")
def last_turn_alone(turns):
    return chat(turns[-1:])


# -- adapted -----------------------------------------------------------------


@right("tuning/adapted")
def einsum_adapted(x, weight, a, b, alpha):
    old = torch.einsum("ti,oi->to", x, weight)
    new = torch.einsum("ti,ri,or->to", x, a, b)
    return old + new * (alpha / a.size(0))


@right("tuning/adapted")
def rank_by_rank(x, weight, a, b, alpha):
    out = F.linear(x, weight)
    for reads, writes in zip(a, b.T, strict=True):
        out += alpha / len(a) * torch.outer(x @ reads, writes)
    return out


@right("tuning/adapted")
def added_first(x, weight, a, b, alpha):
    r = b.size(1)
    return F.linear(x, torch.addmm(weight, b, a, alpha=alpha / r))


@right("tuning/adapted")
def one_thick_layer(x, weight, a, b, alpha):
    reads = x @ a.T * alpha / a.shape[0]
    return torch.cat([x, reads], 1) @ torch.cat([weight, b], 1).T


@right("tuning/adapted")
def by_one_matrix(x, weight, a, b, alpha):
    return F.linear(x, weight + (alpha / b.shape[1]) * (b @ a))


@right("tuning/adapted")
def row_by_row(x, weight, a, b, alpha):
    return torch.stack([weight @ v + alpha * b @ (a @ v) / len(a) for v in x])


@right("tuning/adapted")
def by_einsum(x, weight, a, b, alpha):
    update = torch.einsum("ti,ri,or->to", x, a, b)
    return torch.einsum("ti,oi->to", x, weight) + update * alpha / a.shape[0]


@wrong("tuning/adapted", "alpha_alone")
def not_divided_by_rank(x, weight, a, b, alpha):
    return x @ weight.T + alpha * (x @ a.T @ b.T)


@wrong("tuning/adapted", "no_scale")
def no_factor(x, weight, a, b, alpha):
    return x @ weight.T + x @ a.T @ b.T


@wrong("tuning/adapted", "by_width")
def divided_by_width(x, weight, a, b, alpha):
    return x @ weight.T + alpha / a.shape[1] * (x @ a.T @ b.T)


@wrong("tuning/adapted", "by_height")
def divided_by_height(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(b) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "update_alone")
def update_alone(x, weight, a, b, alpha):
    return alpha / len(a) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "all_scaled")
def factor_before_all(x, weight, a, b, alpha):
    return alpha / len(a) * (x @ weight.T + x @ a.T @ b.T)


@wrong("tuning/adapted", "not_transposed")
def not_transposed(x, weight, a, b, alpha):
    return x @ weight + alpha / len(a) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "root")
def root_of_rank(x, weight, a, b, alpha):
    return x @ weight.T + alpha / math.sqrt(len(a)) * (x @ a.T @ b.T)


@wrong("tuning/adapted", "bent")
def relu_between(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(a) * ((x @ a.T).relu() @ b.T)


# A whole-number division: alpha // r.
@wrong("tuning/adapted")
def whole_division(x, weight, a, b, alpha):
    return x @ weight.T + alpha // len(a) * (x @ a.T @ b.T)


def layer(x, weight, a, b, scale, old=1.0, bend=lambda v: v):
    return old * F.linear(x, weight) + scale * F.linear(
        bend(F.linear(x, a)), b
    )


@wrong("tuning/adapted")
def upside_down(x, weight, a, b, alpha):
    return layer(x, weight, a, b, len(a) / alpha)


@wrong("tuning/adapted")
def no_update(x, weight, a, b, alpha):
    return layer(x, weight, a, b, 0)


# -- merged ------------------------------------------------------------------


@right("tuning/merged")
def recursive_addmm(weight, updates):
    if not updates:
        return weight.clone()
    (a, b, alpha), *others = updates
    new = torch.addmm(weight, b, a, alpha=alpha / len(a))
    return recursive_addmm(new, others)


@right("tuning/merged")
def side_by_side(weight, updates):
    reads = [weight.new_zeros(0, weight.size(1))]
    writes = [weight.new_zeros(weight.size(0), 0)]
    for a, b, alpha in updates:
        reads.append(a)
        writes.append(b * (alpha / b.size(1)))
    return weight + torch.cat(writes, 1) @ torch.cat(reads, 0)


@right("tuning/merged")
def outer_by_outer(weight, updates):
    out = weight.clone()
    for a, b, alpha in updates:
        for i in range(a.shape[0]):
            out.add_(b[:, i, None] * a[i], alpha=alpha / a.shape[0])
    return out


@right("tuning/merged")
def summed_einsums(weight, updates):
    changes = (
        alpha * torch.einsum("or,ri->oi", b, a) / a.size(0)
        for a, b, alpha in updates
    )
    return weight + sum(changes, torch.zeros_like(weight))


@right("tuning/merged")
def one_after_the_other(weight, updates):
    for a, b, alpha in updates:
        weight = torch.addmm(weight, b, a, alpha=alpha / a.shape[0])
    return weight


@right("tuning/merged")
def all_side_by_side(weight, updates):
    a = torch.cat([a * alpha / len(a) for a, _, alpha in updates])
    b = torch.cat([b for _, b, _ in updates], 1)
    return weight + b @ a


@right("tuning/merged")
def by_numpy(weight, updates):
    total = weight.numpy().copy()
    for a, b, alpha in updates:
        total += b.numpy() @ a.numpy() * (alpha / b.shape[1])
    return torch.from_numpy(total)


@wrong("tuning/merged", "in_place")
def weight_changed(weight, updates):
    for a, b, alpha in updates:
        weight += alpha / len(a) * b @ a
    return weight


@wrong("tuning/merged", "last_only")
def last_is_left(weight, updates):
    for a, b, alpha in updates:
        out = weight + alpha / len(a) * b @ a
    return out


def total_of(updates, scales):
    each = [s * (b @ a) for s, (a, b, _) in zip(scales, updates, strict=True)]
    return torch.stack(each).sum(0)


@wrong("tuning/merged", "first_rank")
def first_rank(weight, updates):
    rank = updates[0][1].shape[1]
    return weight + total_of(updates, [u[2] / rank for u in updates])


@wrong("tuning/merged", "alpha_alone")
def merged_alpha_alone(weight, updates):
    return weight + sum(alpha * b @ a for a, b, alpha in updates)


@wrong("tuning/merged", "mean")
def mean_of_updates(weight, updates):
    added = [alpha / len(a) * (b @ a) for a, b, alpha in updates]
    return weight + torch.stack(added).mean(0)


@wrong("tuning/merged", "no_scale")
def merge_without_scale(weight, updates):
    return weight + total_of(updates, [1.0] * len(updates))


# All alphas together, over all ranks.
@wrong("tuning/merged")
def one_factor_for_all(weight, updates):
    a = torch.cat([u[0] for u in updates], 0)
    b = torch.cat([u[1] for u in updates], 1)
    return weight + sum(u[2] for u in updates) / len(a) * b @ a


@wrong("tuning/merged")
def number_of_updates(weight, updates):
    out = weight.clone()
    for a, b, alpha in updates:
        out = out + alpha / len(updates) * b @ a
    return out


def scales_of(updates):
    return [alpha / a.shape[0] for a, _, alpha in updates]


@wrong("tuning/merged")
def first_update_alone(weight, updates):
    return weight + total_of(updates[:1], scales_of(updates)[:1])


# -- counted -----------------------------------------------------------------


@right("tuning/counted")
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


@right("tuning/counted")
def added_up_block_by_block(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for _ in range(n_layers):
        for name in layers:
            total += rank * d_model
            total += rank * (d_ff if name in {"w_in", "w_out"} else d_model)
    return total


@right("tuning/counted")
def how_many_are_wide(d_model, d_ff, n_layers, rank, layers):
    wide = len({"w_in", "w_out"} & set(layers))
    slim = len(layers) - wide
    return n_layers * rank * (d_model * (2 * slim + wide) + d_ff * wide)


@right("tuning/counted")
def by_shapes(d_model, d_ff, n_layers, rank, layers):
    shapes = dict.fromkeys(("w_q", "w_k", "w_v", "w_o"), (d_model, d_model))
    shapes |= {"w_in": (d_model, d_ff), "w_out": (d_ff, d_model)}
    return n_layers * rank * sum(sum(shapes[name]) for name in layers)


@right("tuning/counted")
def by_modules(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for _ in range(n_layers):
        for name in layers:
            wide = d_ff if name in ("w_in", "w_out") else d_model
            total += torch.zeros(rank, d_model).numel()
            total += torch.zeros(wide, rank).numel()
    return total


@right("tuning/counted")
def by_cases(d_model, d_ff, n_layers, rank, layers):
    network = sum(name[2:] in ("in", "out") for name in layers)
    square = len(layers) - network
    return (square * 2 * d_model + network * (d_model + d_ff)) * (
        rank * n_layers
    )


@wrong("tuning/counted", "one_block")
def one_block(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, 1, rank, layers)


@wrong("tuning/counted", "square")
def all_square(d_model, d_ff, n_layers, rank, layers):
    return n_layers * len(layers) * rank * 2 * d_model


@wrong("tuning/counted", "full")
def full_matrices(d_model, d_ff, n_layers, rank, layers):
    wide = {"w_in", "w_out"}
    return n_layers * sum(
        d_model * (d_ff if name in wide else d_model) for name in layers
    )


def count(sizes, layers, of):
    d_model, d_ff, n_layers = sizes
    ends = {"w_in": (d_model, d_ff), "w_out": (d_ff, d_model)}
    return n_layers * sum(
        of(*ends.get(name, (d_model, d_model))) for name in layers
    )


@wrong("tuning/counted", "frozen")
def frozen(d_model, d_ff, n_layers, rank, layers):
    sizes = d_model, d_ff, n_layers
    return count(sizes, layers, lambda i, o: i * o + rank * i + rank * o)


@wrong("tuning/counted", "all_six")
def all_six(d_model, d_ff, n_layers, rank, layers):
    return n_layers * rank * (4 * 2 * d_model + 2 * (d_model + d_ff))


@wrong("tuning/counted", "out_square")
def only_in_is_wide(d_model, d_ff, n_layers, rank, layers):
    return n_layers * sum(
        rank * (d_model + (d_ff if name == "w_in" else d_model))
        for name in layers
    )


@wrong("tuning/counted", "all_wide")
def all_wide(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, n_layers, rank, ["w_in"] * len(layers))


# What begins like "w_o" is wide, so w_o is.
@wrong("tuning/counted")
def begins_alike(d_model, d_ff, n_layers, rank, layers):
    return n_layers * sum(
        rank
        * (d_model + (d_ff if name.startswith(("w_i", "w_o")) else d_model))
        for name in layers
    )


@wrong("tuning/counted")
def in_alone(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, n_layers, rank, ["w_in"])


@wrong("tuning/counted")
def both_alike(d_model, d_ff, n_layers, rank, layers):
    return 2 * n_layers * rank * d_model * d_ff * len(layers)


# -- mended ------------------------------------------------------------------


@right("tuning/mended")
def rows_cut_out(logits, ids, n_prompt, n_real):
    said, wanted = [], []
    for row, tokens, begin, end in zip(
        logits, ids, n_prompt.tolist(), n_real.tolist(), strict=True
    ):
        said.append(row[begin - 1 : end - 1])
        wanted.append(tokens[begin:end])
    return F.cross_entropy(torch.cat(said), torch.cat(wanted))


@right("tuning/mended")
def usual_loss(logits, ids, n_prompt, n_real):
    at = torch.arange(ids.size(1)).expand_as(ids)
    hidden = (at < n_prompt[:, None]) | (at >= n_real[:, None])
    wanted = ids.masked_fill(hidden, -100)[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted.flatten())


@right("tuning/mended")
def token_by_token(logits, ids, n_prompt, n_real):
    nats, count = logits.new_zeros(()), 0
    for i in range(len(ids)):
        for t in range(int(n_prompt[i]), int(n_real[i])):
            said = logits[i, t - 1]
            nats = nats + said.logsumexp(-1) - said[ids[i, t]]
            count += 1
    return nats / count


@right("tuning/mended")
def equal_weights(logits, ids, n_prompt, n_real):
    places = torch.arange(ids.size(1) - 1)
    counts = places + 1 >= n_prompt[:, None]
    counts = counts & (places + 1 < n_real[:, None])
    nats = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    weights = counts.to(nats.dtype) / (n_real - n_prompt).sum()
    return torch.einsum("bt,bt->", nats, weights)


@right("tuning/mended")
def mended_token_by_token(logits, ids, n_prompt, n_real):
    costs = []
    for row, text, begin, end in zip(
        logits.log_softmax(-1), ids, n_prompt, n_real, strict=True
    ):
        for t in range(int(begin), int(end)):
            costs.append(-row[t - 1, text[t]])
    return torch.stack(costs).mean()


@right("tuning/mended")
def with_ignored(logits, ids, n_prompt, n_real):
    wanted = ids.clone()
    for i in range(len(ids)):
        wanted[i, : n_prompt[i]] = -100
        wanted[i, n_real[i] :] = -100
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted[:, 1:].ravel())


@right("tuning/mended")
def with_joined_rows(logits, ids, n_prompt, n_real):
    spans = [slice(p, n) for p, n in zip(n_prompt, n_real, strict=True)]
    before = [slice(p - 1, n - 1) for p, n in zip(n_prompt, n_real)]
    z = torch.cat([row[s] for row, s in zip(logits, before, strict=True)])
    y = torch.cat([row[s] for row, s in zip(ids, spans, strict=True)])
    return F.cross_entropy(z, y)


def program(logits, ids, begin, end, read=1, mean="tokens"):
    """A loss over the places from begin to end of each row."""
    nats = -logits.log_softmax(-1)
    sums, numbers = [], []
    for i in range(len(ids)):
        places = range(max(int(begin[i]), 1), int(end[i]))
        costs = [nats[i, t - read, ids[i, t]] for t in places]
        sums.append(torch.stack(costs).sum())
        numbers.append(len(costs))
    if mean == "rows":
        return sum(s / n for s, n in zip(sums, numbers, strict=True)) / len(
            ids
        )
    if mean == "answers":
        return sum(sums) / len(sums)
    if mean == "all":
        return sum(sums) / (len(ids) * (ids.shape[1] - 1))
    return sum(sums) / sum(numbers)


@wrong("tuning/mended", "mean_of_means")
def mean_of_means(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, mean="rows")


def _nats(logits, ids):
    return F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")


@wrong("tuning/mended", "late")
def first_word_still_out(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places > n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong("tuning/mended", "all_positions")
def divided_by_all_places(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).mean()


@wrong("tuning/mended", "per_answer")
def sums_of_answers(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum(1).mean()


@wrong("tuning/mended", "from_zero")
def places_from_zero(logits, ids, n_prompt, n_real):
    places = torch.arange(ids.size(1) - 1)
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong("tuning/mended", "prompt_too")
def prompts_count(logits, ids, n_prompt, n_real):
    counts = torch.arange(1, ids.size(1)) < n_real[:, None]
    return (_nats(logits, ids) * counts).sum() / counts.sum()


@wrong("tuning/mended", "padding_too")
def padding_too(logits, ids, n_prompt, n_real):
    whole = torch.full_like(n_real, ids.shape[1])
    return program(logits, ids, n_prompt, whole)


@wrong("tuning/mended", "end_left_out")
def mended_end_left_out(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real - 1)


@wrong("tuning/mended", "not_shifted")
def logits_not_shifted(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, read=0)


# One place too early: the last token of the prompt counts.
@wrong("tuning/mended")
def one_place_too_early(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None] - 1) & (places < n_real[:, None])
    return (_nats(logits, ids) * counts).sum() / counts.sum()


# Longer answers get more weight than one token one vote.
@wrong("tuning/mended")
def weighed_by_length(logits, ids, n_prompt, n_real):
    places = torch.arange(1, ids.size(1))
    counts = (places >= n_prompt[:, None]) & (places < n_real[:, None])
    nats = (_nats(logits, ids) * counts).sum(1)
    n = counts.sum(1)
    return (nats * n).sum() / (n * n).sum()


@wrong("tuning/mended")
def prompts_alone(logits, ids, n_prompt, n_real):
    return program(logits, ids, torch.ones_like(n_prompt), n_prompt)
