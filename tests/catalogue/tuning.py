"""Answers to the exercises of chapter 20, by somebody else."""

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- targets: right ----------------------------------------------------------
def by_flags(prompt, answer):
    row = prompt + answer
    flags = [False] * len(prompt) + [True] * len(answer)
    wanted = [t if f else -100 for t, f in zip(row, flags, strict=True)]
    return row[:-1], wanted[1:]


def answer_behind_dots(prompt, answer):
    return prompt + answer[:-1], [-100 for _ in prompt[1:]] + answer


def by_a_tensor(prompt, answer):
    row = torch.tensor([*prompt, *answer])
    wanted = row.roll(-1)[:-1]
    wanted[: len(prompt) - 1] = -100
    return row[:-1].tolist(), wanted.tolist()


# -- targets: wrong ----------------------------------------------------------
def made(prompt, answer, hidden, fill=-100, ahead=1, last=True):
    row = prompt + answer
    wanted = []
    for i in range(len(row) - 1):
        shown = i >= hidden and (last or i < len(row) - 2)
        wanted.append(row[i + ahead] if shown else fill)
    return row[:-1], wanted


def not_shifted(prompt, answer):
    return made(prompt, answer, len(prompt) - 1, ahead=0)


def zero(prompt, answer):
    return made(prompt, answer, len(prompt) - 1, fill=0)


def all_counted(prompt, answer):
    return made(prompt, answer, 0)


def one_late(prompt, answer):
    return made(prompt, answer, len(prompt))


def one_early(prompt, answer):
    return made(prompt, answer, len(prompt) - 2)


def no_end(prompt, answer):
    return made(prompt, answer, len(prompt) - 1, last=False)


def own_targets(prompt, answer):
    row = prompt + answer
    flags = [i >= len(prompt) for i in range(len(row))]
    wanted = [t if f else -100 for t, f in zip(row, flags, strict=True)]
    return row[:-1], wanted[:-1]


def elsewhere(prompt, answer):
    return prompt + answer, [-100] * len(prompt) + answer


def prompt_grows(prompt, answer):
    prompt.extend(answer)
    hidden = [-100 for _ in prompt[1:]]
    return prompt[:-1], hidden + answer


# -- targets: other mistakes -------------------------------------------------
def answer_first(prompt, answer):
    return by_flags(answer, prompt)


def nothing_cut(prompt, answer):
    return prompt + answer, [-100] * (len(prompt) - 1) + answer


def minus_one(prompt, answer):
    return made(prompt, answer, len(prompt) - 1, fill=-1)


# -- rendered: right ---------------------------------------------------------
def joined(turns):
    lines = [f"<|im_start|>{r}\n{t}<|im_end|>" for r, t in turns]
    if turns[-1][0] == "user":
        lines.append("<|im_start|>assistant")
    return "\n".join(lines) + "\n"


def piece_by_piece(turns):
    text = []
    for role, said in turns:
        text += ["<|im_start|>", role, "\n", said, "<|im_end|>", "\n"]
    if role == "user":
        text += ["<|im_start|>", "assistant", "\n"]
    return "".join(text)


def with_format(turns):
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    opening = "<|im_start|>assistant\n" * (turns[-1][0] == "user")
    return "".join(turn.format(*t) for t in turns) + opening


# -- rendered: wrong ---------------------------------------------------------
def chat(turns, turn="<|im_start|>{}\n{}<|im_end|>\n", when=None, behind=""):
    text = "".join([turn.format(role, said) for role, said in turns])
    opens = turns[-1][0] == "user" if when is None else when
    return text + ("<|im_start|>assistant\n" + behind if opens else "")


def turns_without_end(turns):
    return chat(turns, turn="<|im_start|>{}\n{}\n")


def colon(turns):
    return chat(turns, turn="<|im_start|>{}: {}<|im_end|>\n")


def no_prompt(turns):
    return chat(turns, when=False)


def always(turns):
    return chat(turns, when=True)


def closed(turns):
    return chat(turns, behind="<|im_end|>\n")


def same_line(turns):
    return chat(turns).removesuffix("\n") + "\n" * (turns[-1][0] != "user")


def each_user(turns):
    return "".join([chat([turn]) for turn in turns])


def between(turns):
    opening = chat([("user", "")]).split("<|im_end|>")[1]
    end = opening * (turns[-1][0] == "user")
    return chat(turns, when=False).removesuffix("\n") + end


# -- rendered: other mistakes ------------------------------------------------
def plain(turns):
    return "\n".join(f"{role}: {said}" for role, said in turns)


def last_turn_alone(turns):
    return chat(turns[-1:])


def no_start(turns):
    return chat(turns, turn="{}\n{}<|im_end|>\n")


# -- adapted: right ----------------------------------------------------------
def by_one_matrix(x, weight, a, b, alpha):
    return F.linear(x, weight + (alpha / b.shape[1]) * (b @ a))


def row_by_row(x, weight, a, b, alpha):
    return torch.stack([weight @ v + alpha * b @ (a @ v) / len(a) for v in x])


def by_einsum(x, weight, a, b, alpha):
    update = torch.einsum("ti,ri,or->to", x, a, b)
    return torch.einsum("ti,oi->to", x, weight) + update * alpha / a.shape[0]


# -- adapted: wrong ----------------------------------------------------------
def layer(x, weight, a, b, scale, old=1.0, bend=lambda v: v):
    return old * F.linear(x, weight) + scale * F.linear(
        bend(F.linear(x, a)), b
    )


def no_scale(x, weight, a, b, alpha):
    return layer(x, weight, a, b, 1)


def alpha_alone(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha)


def by_width(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / x.shape[-1])


def by_height(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / weight.shape[0])


def not_transposed(x, weight, a, b, alpha):
    return torch.matmul(x, weight) + layer(x, weight, a, b, alpha, old=0)


def root(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / np.sqrt(len(a)))


def bent(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / len(a), bend=F.relu)


def update_alone(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / len(a), old=0)


def all_scaled(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / len(a), old=alpha / len(a))


# -- adapted: other mistakes -------------------------------------------------
def upside_down(x, weight, a, b, alpha):
    return layer(x, weight, a, b, len(a) / alpha)


def half(x, weight, a, b, alpha):
    return layer(x, weight, a, b, alpha / len(a) / 2)


def no_update(x, weight, a, b, alpha):
    return layer(x, weight, a, b, 0)


# -- merged: right -----------------------------------------------------------
def one_after_the_other(weight, updates):
    for a, b, alpha in updates:
        weight = torch.addmm(weight, b, a, alpha=alpha / a.shape[0])
    return weight


def all_side_by_side(weight, updates):
    a = torch.cat([a * alpha / len(a) for a, _, alpha in updates])
    b = torch.cat([b for _, b, _ in updates], 1)
    return weight + b @ a


def by_numpy(weight, updates):
    total = weight.numpy().copy()
    for a, b, alpha in updates:
        total += b.numpy() @ a.numpy() * (alpha / b.shape[1])
    return torch.from_numpy(total)


# -- merged: wrong -----------------------------------------------------------
def total_of(updates, scales):
    each = [s * (b @ a) for s, (a, b, _) in zip(scales, updates, strict=True)]
    return torch.stack(each).sum(0)


def scales_of(updates):
    return [alpha / a.shape[0] for a, _, alpha in updates]


def first_rank(weight, updates):
    rank = updates[0][1].shape[1]
    return weight + total_of(updates, [u[2] / rank for u in updates])


def merge_without_scale(weight, updates):
    return weight + total_of(updates, [1.0] * len(updates))


def last_only(weight, updates):
    return weight + total_of(updates[-1:], scales_of(updates)[-1:])


def mean(weight, updates):
    return weight + total_of(updates, scales_of(updates)) / len(updates)


# -- merged: other mistakes --------------------------------------------------
def first_update_alone(weight, updates):
    return weight + total_of(updates[:1], scales_of(updates)[:1])


def nothing_added(weight, updates):
    return weight.clone()


def doubled(weight, updates):
    return 2 * weight + total_of(updates, scales_of(updates))


# -- counted: right ----------------------------------------------------------
def by_shapes(d_model, d_ff, n_layers, rank, layers):
    shapes = dict.fromkeys(("w_q", "w_k", "w_v", "w_o"), (d_model, d_model))
    shapes |= {"w_in": (d_model, d_ff), "w_out": (d_ff, d_model)}
    return n_layers * rank * sum(sum(shapes[name]) for name in layers)


def by_modules(d_model, d_ff, n_layers, rank, layers):
    total = 0
    for _ in range(n_layers):
        for name in layers:
            wide = d_ff if name in ("w_in", "w_out") else d_model
            total += torch.zeros(rank, d_model).numel()
            total += torch.zeros(wide, rank).numel()
    return total


def by_cases(d_model, d_ff, n_layers, rank, layers):
    network = sum(name[2:] in ("in", "out") for name in layers)
    square = len(layers) - network
    return (square * 2 * d_model + network * (d_model + d_ff)) * (
        rank * n_layers
    )


# -- counted: wrong ----------------------------------------------------------
def count(sizes, layers, of):
    d_model, d_ff, n_layers = sizes
    ends = {"w_in": (d_model, d_ff), "w_out": (d_ff, d_model)}
    return n_layers * sum(
        of(*ends.get(name, (d_model, d_model))) for name in layers
    )


def square(d_model, d_ff, n_layers, rank, layers):
    return 2 * rank * d_model * len(layers) * n_layers


def frozen(d_model, d_ff, n_layers, rank, layers):
    sizes = d_model, d_ff, n_layers
    return count(sizes, layers, lambda i, o: i * o + rank * i + rank * o)


def one_block(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, 1, rank, layers)


def full(d_model, d_ff, n_layers, rank, layers):
    sizes = d_model, d_ff, n_layers
    return count(sizes, layers, lambda i, o: i * o)


def out_square(d_model, d_ff, n_layers, rank, layers):
    alike = ["w_q" if name == "w_out" else name for name in layers]
    return by_shapes(d_model, d_ff, n_layers, rank, alike)


def all_wide(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, n_layers, rank, ["w_in"] * len(layers))


# -- counted: other mistakes -------------------------------------------------
def all_six(d_model, d_ff, n_layers, rank, layers):
    every = ["w_q", "w_k", "w_v", "w_o", "w_in", "w_out"]
    return by_shapes(d_model, d_ff, n_layers, rank, every)


def b_squared(d_model, d_ff, n_layers, rank, layers):
    sizes = d_model, d_ff, n_layers
    return count(sizes, layers, lambda i, o: rank * (i + o) + rank * rank)


def in_alone(d_model, d_ff, n_layers, rank, layers):
    return by_shapes(d_model, d_ff, n_layers, rank, ["w_in"])


# -- mended: right -----------------------------------------------------------
def token_by_token(logits, ids, n_prompt, n_real):
    costs = []
    for row, text, begin, end in zip(
        logits.log_softmax(-1), ids, n_prompt, n_real, strict=True
    ):
        for t in range(int(begin), int(end)):
            costs.append(-row[t - 1, text[t]])
    return torch.stack(costs).mean()


def with_ignored(logits, ids, n_prompt, n_real):
    wanted = ids.clone()
    for i in range(len(ids)):
        wanted[i, : n_prompt[i]] = -100
        wanted[i, n_real[i] :] = -100
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted[:, 1:].ravel())


def with_joined_rows(logits, ids, n_prompt, n_real):
    spans = [slice(p, n) for p, n in zip(n_prompt, n_real, strict=True)]
    before = [slice(p - 1, n - 1) for p, n in zip(n_prompt, n_real)]  # noqa: B905
    z = torch.cat([row[s] for row, s in zip(logits, before, strict=True)])
    y = torch.cat([row[s] for row, s in zip(ids, spans, strict=True)])
    return F.cross_entropy(z, y)


# -- mended: wrong -----------------------------------------------------------
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


def late(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt + 1, n_real)


def prompt_too(logits, ids, n_prompt, n_real):
    return program(logits, ids, torch.ones_like(n_prompt), n_real)


def padding_too(logits, ids, n_prompt, n_real):
    whole = torch.full_like(n_real, ids.shape[1])
    return program(logits, ids, n_prompt, whole)


def end_left_out(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real - 1)


def logits_not_shifted(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, read=0)


def mean_of_means(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, mean="rows")


def all_positions(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, mean="all")


def per_answer(logits, ids, n_prompt, n_real):
    return program(logits, ids, n_prompt, n_real, mean="answers")


def from_zero(logits, ids, n_prompt, n_real):
    end = (n_real + 1).clamp(max=ids.shape[1])
    return program(logits, ids, n_prompt + 1, end)


# -- mended: other mistakes --------------------------------------------------
def prompts_alone(logits, ids, n_prompt, n_real):
    return program(logits, ids, torch.ones_like(n_prompt), n_prompt)


def the_sum(logits, ids, n_prompt, n_real):
    n = (n_real - n_prompt).sum()
    return n * program(logits, ids, n_prompt, n_real)


def first_row_alone(logits, ids, n_prompt, n_real):
    return program(logits[:1], ids[:1], n_prompt[:1], n_real[:1])


def alpha_alone_merged(weight, updates):
    for a, b, alpha in updates:
        weight = torch.addmm(weight, b, a, alpha=alpha)
    return weight


def both_alike(d_model, d_ff, n_layers, rank, layers):
    return 2 * n_layers * rank * d_model * d_ff * len(layers)


def anybody_else(turns):
    lines = [f"<|im_start|>{role}\n{said}<|im_end|>" for role, said in turns]
    if turns[-1][0] in ("system", "user"):
        lines.append("<|im_start|>assistant")
    return "\n".join(lines) + "\n"


def begins_alike(d_model, d_ff, n_layers, rank, layers):
    wide = [d_ff if n[:3] in ("w_i", "w_o") else d_model for n in layers]
    return n_layers * rank * (len(layers) * d_model + sum(wide))


RIGHT = {
    "targets": [by_flags, answer_behind_dots, by_a_tensor],
    "rendered": [joined, piece_by_piece, with_format],
    "adapted": [by_one_matrix, row_by_row, by_einsum],
    "merged": [one_after_the_other, all_side_by_side, by_numpy],
    "counted": [by_shapes, by_modules, by_cases],
    "mended": [token_by_token, with_ignored, with_joined_rows],
}
WRONG = {
    "targets": {
        "not_shifted": not_shifted,
        "zero": zero,
        "all_counted": all_counted,
        "one_late": one_late,
        "one_early": one_early,
        "no_end": no_end,
        "own": own_targets,
        "elsewhere": elsewhere,
        "prompt_grows": prompt_grows,
    },
    "rendered": {
        "no_end": turns_without_end,
        "colon": colon,
        "no_prompt": no_prompt,
        "always": always,
        "closed": closed,
        "each_user": each_user,
        "same_line": same_line,
        "between": between,
        "anybody_else": anybody_else,
    },
    "adapted": {
        "no_scale": no_scale,
        "alpha_alone": alpha_alone,
        "by_width": by_width,
        "root": root,
        "bent": bent,
        "update_alone": update_alone,
        "all_scaled": all_scaled,
        "by_height": by_height,
        "not_transposed": not_transposed,
    },
    "merged": {
        "first_rank": first_rank,
        "no_scale": merge_without_scale,
        "last_only": last_only,
        "mean": mean,
        "alpha_alone": alpha_alone_merged,
    },
    "counted": {
        "square": square,
        "frozen": frozen,
        "one_block": one_block,
        "full": full,
        "out_square": out_square,
        "all_wide": all_wide,
        "all_six": all_six,
    },
    "mended": {
        "late": late,
        "prompt_too": prompt_too,
        "padding_too": padding_too,
        "end_left_out": end_left_out,
        "not_shifted": logits_not_shifted,
        "mean_of_means": mean_of_means,
        "all_positions": all_positions,
        "per_answer": per_answer,
        "from_zero": from_zero,
    },
}
OUTSIDE = {
    "targets": [answer_first, nothing_cut, minus_one],
    "rendered": [plain, last_turn_alone, no_start],
    "adapted": [upside_down, half, no_update],
    "merged": [first_update_alone, nothing_added, doubled],
    "counted": [b_squared, in_alone, both_alike, begins_alike],
    "mended": [prompts_alone, the_sum, first_row_alone],
}
