"""Answers to the exercises of chapter 12."""

import heapq
import math
from itertools import accumulate, count

import numpy as np
import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- chances -----------------------------------------------------------------


@right("generation/chances")
def chances_token_by_token(logits, temperature, top_k, top_p):
    out = torch.zeros_like(logits)
    for row, chances in zip(logits / temperature, out, strict=True):
        order = row.argsort(descending=True).tolist()
        order = order[: top_k or len(order)]
        p = row[order].softmax(0)
        kept, before = [], 0.0
        for token, chance in zip(order, p.tolist(), strict=True):
            if top_p is not None and before >= top_p:
                break
            kept.append(token)
            before += chance
        chances[kept] = row[kept].softmax(0)
    return out


@right("generation/chances")
def sorted_lists(logits, temperature, top_k, top_p):
    rows = []
    for row in logits.tolist():
        z = [x / temperature for x in row]
        order = sorted(range(len(z)), key=lambda i: -z[i])
        if top_k is not None:
            order = order[:top_k]
        weights = [math.exp(z[i] - z[order[0]]) for i in order]
        p = [x / sum(weights) for x in weights]
        if top_p is not None:
            before = [0.0, *accumulate(p)]
            p = [x for x, b in zip(p, before) if b < top_p]
        out = [0.0] * len(z)
        for i, x in zip(order, p):
            out[i] = x / sum(p)
        rows.append(out)
    return torch.tensor(rows, dtype=logits.dtype)


@right("generation/chances")
def all_pairs(logits, temperature, top_k, top_p):
    z = logits / temperature
    above = z[:, None, :] > z[:, :, None]  # (B, token, likelier token)
    if top_k is not None:
        z = z.masked_fill(above.sum(-1) >= top_k, float("-inf"))
    if top_p is not None:
        mass = (above * z.softmax(-1)[:, None, :]).sum(-1)
        z = z.masked_fill(mass >= top_p, float("-inf"))
    return z.softmax(-1)


@right("generation/chances")
def by_rank(logits, temperature, top_k, top_p):
    # Plain Python: likeliest first, until something says stop.
    rows = []
    for row in (logits / temperature).softmax(-1).tolist():
        order = sorted(range(len(row)), key=lambda i: -row[i])
        order = order[: top_k or len(order)]
        whole, mass, kept = sum(row[i] for i in order), 0.0, []
        for i in order:
            if top_p is not None and mass / whole >= top_p:
                break
            kept.append(i)
            mass += row[i]
        rows.append(
            [row[i] / mass if i in kept else 0.0 for i in range(len(row))]
        )
    return torch.tensor(rows, dtype=logits.dtype)


@right("generation/chances")
def with_a_threshold(logits, temperature, top_k, top_p):
    p = torch.softmax(logits / temperature, dim=1)
    if top_k is not None:
        p = p * (p >= p.sort(dim=1)[0][:, -top_k, None])
        p = p / p.sum(1, keepdim=True)
    if top_p is not None:
        down = p.sort(dim=1, descending=True)[0]
        before = torch.cat((torch.zeros_like(p[:, :1]), down.cumsum(1)), 1)
        n = (before[:, :-1] < top_p).sum(1, keepdim=True)
        p = p * (p >= down.gather(1, n - 1))
        p = p / p.sum(1, keepdim=True)
    return p


@right("generation/chances")
def with_log_weights(logits, temperature, top_k, top_p):
    z = logits.double() / temperature
    if top_k is not None:
        far = z.argsort(dim=-1).argsort(dim=-1) < z.shape[-1] - top_k
        z = z.masked_fill(far, float("-inf"))
    if top_p is not None:
        order = z.argsort(dim=-1, descending=True)
        p = z.softmax(-1).gather(-1, order)
        drop = torch.roll(p.cumsum(-1), 1, -1) >= top_p
        drop[:, 0] = False
        drop = torch.zeros_like(drop).scatter(-1, order, drop)
        z[drop] = float("-inf")
    return F.softmax(z, -1)


def steps(logits, top_k, top_p, dropped=-math.inf, inside=True):
    """Top-k and top-p of logits that have their temperature already."""
    rows = []
    for z in logits:
        order = z.argsort(descending=True)
        if top_k is not None:
            z = z.clone()
            z[order[top_k:]] = dropped
        p = torch.exp(z - z.logsumexp(0))
        if top_p is not None:
            order = p.argsort(descending=True)
            mass = 0.0
            for i in order.tolist():
                chance = p[i].item()
                over = mass >= top_p if inside else mass + chance > top_p
                mass += chance
                if over:
                    p[i] = 0
            p = p / p.sum()
        rows.append(p)
    return torch.stack(rows)


@wrong("generation/chances", "crossing_dropped")
def crossing_dropped(logits, temperature, top_k, top_p):
    return steps(logits / temperature, top_k, top_p, inside=False)


@wrong("generation/chances", "not_renormalized")
def not_renormalized(logits, temperature, top_k, top_p):
    p = steps(logits / temperature, top_k, None)
    return p * (by_rank(logits, temperature, top_k, top_p) > 0)


@wrong("generation/chances", "multiplied")
def multiplied(logits, temperature, top_k, top_p):
    return all_pairs(logits, 1 / temperature, top_k, top_p)


@wrong("generation/chances", "p_of_all")
def p_of_all(logits, temperature, top_k, top_p):
    z = logits / temperature
    by_k = steps(z, top_k, None)
    by_p = steps(z, None, top_p)
    both = by_k * (by_p > 0)
    return both / both.sum(-1, keepdim=True)


@wrong("generation/chances", "zero_logits")
def dropped_to_zero(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z.topk(min(top_k, z.size(-1))).values[:, -1:]
        z = torch.where(z < least, 0.0, z)
    if top_p is not None:
        ordered, ids = z.softmax(-1).sort(-1, descending=True)
        late = ordered.cumsum(-1) - ordered >= top_p
        z = z.masked_fill(late.gather(-1, ids.argsort(-1)), 0.0)
    return z.softmax(-1)


@wrong("generation/chances", "not_mapped_back")
def not_mapped_back(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z.topk(min(top_k, z.size(-1))).values[:, -1:]
        z = z.masked_fill(z < least, -torch.inf)
    if top_p is not None:
        ordered = z.softmax(-1).sort(-1, descending=True).values
        late = ordered.cumsum(-1) - ordered >= top_p
        z = z.masked_fill(late, -torch.inf)
    return z.softmax(-1)


@wrong("generation/chances", "mask_finite")
def chances_mask_finite(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k:
        keep = torch.zeros_like(z).scatter(1, z.topk(top_k).indices, 1)
        z = torch.where(keep == 1, z, -10000.0)
    return with_a_threshold(z, 1, None, top_p)


# The k-th best logit of the first row is the limit for all rows.
@wrong("generation/chances")
def limit_of_first_row(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z[0].topk(min(top_k, z.size(-1))).values[-1]
        z = z.masked_fill(z < least, -torch.inf)
    return all_pairs(z, 1.0, None, top_p)


@wrong("generation/chances")
def one_more(logits, temperature, top_k, top_p):
    return by_rank(logits, temperature, top_k and top_k + 1, top_p)


@wrong("generation/chances")
def temperature_last(logits, temperature, top_k, top_p):
    p = by_rank(logits, 1.0, top_k, top_p) ** (1 / temperature)
    return p / p.sum(-1, keepdim=True)


# -- beam --------------------------------------------------------------------


@right("generation/beam")
def by_heap(next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty):
    beams, done, ties = [(0.0, ())], [], count()
    for length in range(1, max_new_tokens + 1):
        heap = []
        for total, text in beams:
            for token, x in enumerate(next_log_probs(list(text)).tolist()):
                heap.append((-(total + x), next(ties), text, token))
        heapq.heapify(heap)
        beams, rank = [], 0
        while heap and len(beams) < n_beams:
            cost, _, text, token = heapq.heappop(heap)
            if token != stop_id:
                beams.append((-cost, (*text, token)))
            elif rank < n_beams:
                done.append((-cost / length**length_penalty, text))
            rank += 1
    for total, text in beams:
        done.append((total / len(text) ** length_penalty, text))
    score, text = max(done, key=lambda pair: pair[0])
    return list(text), score


@right("generation/beam")
def recursive_beam(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    def go(texts, sums, left):
        """The best (score, text) that can still be finished."""
        n = max_new_tokens - left
        if left == 0:
            return [
                (s.item() / n**length_penalty, t)
                for s, t in zip(sums, texts, strict=True)
            ]
        rows = torch.stack([next_log_probs(list(t)) for t in texts])
        totals = (sums[:, None] + rows.double()).flatten()
        best = totals.argsort(descending=True).tolist()
        ended, on = [], []
        for rank, place in enumerate(best):
            text, token = texts[place // rows.size(1)], place % rows.size(1)
            if token == stop_id and rank < n_beams:
                score = totals[place].item() / (n + 1) ** length_penalty
                ended.append((score, text))
            if token != stop_id and len(on) < n_beams:
                on.append(([*text, token], place))
        more = go([t for t, _ in on], totals[[p for _, p in on]], left - 1)
        return ended + more

    start = torch.zeros(1, dtype=torch.float64)
    found = go([[]], start, max_new_tokens)
    score, text = max(found, key=lambda each: each[0])
    return text, score


@right("generation/beam")
def with_a_heap(next_log_probs, n_beams, max_new_tokens, stop_id, penalty):
    beams, done = {(): 0.0}, {}
    for n in range(1, max_new_tokens + 1):
        every = {}
        for text, total in beams.items():
            for token, s in enumerate(next_log_probs(list(text)).tolist()):
                every[(*text, token)] = total + s
        best = heapq.nlargest(n_beams, every, key=every.get)
        for text in best:
            if text[-1] == stop_id:
                done[text] = every[text] / n**penalty
        going = [text for text in every if text[-1] != stop_id]
        beams = {
            text: every[text]
            for text in heapq.nlargest(n_beams, going, key=every.get)
        }
    for text, total in beams.items():
        done[text] = total / len(text) ** penalty
    best = max(done, key=done.get)
    end = len(best) - (best[-1] == stop_id)
    return list(best[:end]), done[best]


@right("generation/beam")
def with_tensors(next_log_probs, n_beams, max_new_tokens, stop_id, penalty):
    tokens = torch.zeros(1, 0, dtype=torch.long)
    totals = torch.zeros(1, dtype=torch.float64)
    best = (-math.inf, [])
    for n in range(1, max_new_tokens + 1):
        steps = torch.stack([next_log_probs(t.tolist()) for t in tokens])
        flat = (totals[:, None] + steps).flatten()
        size = steps.size(1)
        for place in flat.topk(min(n_beams, len(flat))).indices.tolist():
            if place % size == stop_id:
                score = flat[place].item() / n**penalty
                best = max(best, (score, tokens[place // size].tolist()))
        flat[torch.arange(len(flat)) % size == stop_id] = -torch.inf
        totals, places = flat.topk(min(n_beams, int(flat.isfinite().sum())))
        tokens = torch.cat(
            (tokens[places // size], places[:, None] % size), dim=1
        )
    for total, row in zip(totals.tolist(), tokens.tolist(), strict=True):
        best = max(best, (total / max_new_tokens**penalty, row))
    return best[1], best[0]


@right("generation/beam")
def step_by_step(next_log_probs, n_beams, max_new_tokens, stop_id, penalty):
    def go(beams, n):
        ranked = sorted(
            (
                (total + s.item(), [*text, token])
                for total, text in beams
                for token, s in enumerate(next_log_probs(text))
            ),
            reverse=True,
        )
        yield from (
            (total / n**penalty, text[:-1])
            for total, text in ranked[:n_beams]
            if text[-1] == stop_id
        )
        kept = [b for b in ranked if b[1][-1] != stop_id][:n_beams]
        if n == max_new_tokens:
            yield from ((total / n**penalty, text) for total, text in kept)
        else:
            levels.append(kept)

    levels, found = [[(0.0, [])]], []
    for n in range(1, max_new_tokens + 1):
        found += go(levels[-1], n)
    score, text = max(found)
    return torch.tensor(text, dtype=torch.long).tolist(), score


def _search(
    next_log_probs,
    n_beams,
    steps,
    stop_id,
    *,
    ended_rank=True,
    stops_take_places=False,
    own_best=False,
):
    """All (sum, text, length) that finish; with what people get wrong."""
    beams, done = [(0.0, [])], []
    for n in range(1, steps + 1):
        ranked = []
        for total, text in beams:
            row = next_log_probs(text).tolist()
            ways = [(total + x, text, i) for i, x in enumerate(row)]
            if own_best:
                ways = sorted(ways, key=lambda way: -way[0])
                ways = ways[: n_beams if not text else 1]
            ranked += ways
        ranked.sort(key=lambda way: -way[0])
        beams = []
        for rank, (total, text, token) in enumerate(ranked):
            if token == stop_id:
                if rank < n_beams or not ended_rank:
                    done.append((total, text, n))
            elif stops_take_places and rank >= n_beams:
                continue
            elif len(beams) < n_beams:
                beams.append((total, [*text, token]))
    return done, [(total, text, len(text)) for total, text in beams]


@wrong("generation/beam", "takes_slot")
def ended_take_places(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(
        next_log_probs,
        n_beams,
        max_new_tokens,
        stop_id,
        stops_take_places=True,
    )
    score, text = max((s / n**length_penalty, t) for s, t, n in done + going)
    return text, score


def search(
    next_log_probs,
    n_beams,
    max_new_tokens,
    stop_id,
    rate,
    expand=None,
    keep_finished=True,
    hasty=False,
    shrinking=False,
):
    """Beam search with parts that can be exchanged."""
    beams, done = [(0.0, ())], []
    places = n_beams
    for n in range(1, max_new_tokens + 1):
        every = []
        for total, text in beams:
            steps = next_log_probs(list(text)).tolist()
            grown = [(total + s, (*text, t)) for t, s in enumerate(steps)]
            if expand is not None:
                grown = expand(grown, n)
            every += grown
        every.sort(key=lambda c: -c[0])
        ended = [c for c in every[:places] if c[1][-1] == stop_id]
        if keep_finished:
            done += [(rate(s, n, True), list(t[:-1])) for s, t in ended]
        if shrinking:
            places -= len(ended)
        beams = [c for c in every if c[1][-1] != stop_id][:places]
        if hasty and done:
            score, text = max(done)
            return text, score
    done += [(rate(s, len(t), False), list(t)) for s, t in beams]
    score, text = max(done, key=lambda d: d[0])
    return text, score


@wrong("generation/beam", "stop_not_counted")
def stop_not_counted(tree, k, longest, stop, penalty):
    def rate(total, n, stopped):
        return total / max(n - int(stopped), 1) ** penalty

    return search(tree, k, longest, stop, rate)


@wrong("generation/beam", "chosen_by_sum")
def chosen_by_sum(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    total, text, n = max(done + going)
    return text, total / n**length_penalty


def mean_of(penalty):
    return lambda total, n, stopped: total / n**penalty


@wrong("generation/beam", "first_stop")
def first_stop(tree, k, longest, stop, penalty):
    return search(tree, k, longest, stop, mean_of(penalty), hasty=True)


@wrong("generation/beam", "sum_only")
def sum_only(tree, k, longest, stop, penalty):
    return search(tree, k, longest, stop, lambda total, n, stopped: total)


@wrong("generation/beam", "products")
def products(tree, k, longest, stop, penalty):
    beams, done = [(1.0, [])], []
    for n in range(1, longest + 1):
        every = []
        for p, text in beams:
            steps = np.exp(tree(text).numpy())
            every += [(p * s, [*text, t]) for t, s in enumerate(steps)]
        every.sort(key=lambda c: -c[0])
        for p, text in every[:k]:
            if text[-1] == stop:
                done.append((p, n, text[:-1]))
        beams = [c for c in every if c[1][-1] != stop][:k]
    done += [(p, len(text), text) for p, text in beams]
    with np.errstate(divide="ignore"):
        scores = [np.log(p) / n**penalty for p, n, _ in done]
    best = int(np.argmax(scores))
    return done[best][2], float(scores[best])


# The text comes with its stop token.
@wrong("generation/beam")
def with_stop_token(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    done = [(s, [*t, stop_id], n) for s, t, n in done]
    score, text = max((s / n**length_penalty, t) for s, t, n in done + going)
    return text, score


@wrong("generation/beam")
def greedy_from_each(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(
        next_log_probs, n_beams, max_new_tokens, stop_id, own_best=True
    )
    score, text = max((s / n**length_penalty, t) for s, t, n in done + going)
    return text, score


@wrong("generation/beam")
def one_step_less(tree, k, longest, stop, penalty):
    return search(tree, k, longest - 1, stop, mean_of(penalty))


# -- write -------------------------------------------------------------------


@right("generation/write")
def write_filled_in(model, ids, n_new, max_len):
    _B, T = ids.shape
    out = F.pad(ids, (0, n_new))
    for t in range(T, T + n_new):
        window = out[:, max(t - max_len, 0) : t]
        out[:, t] = model(window)[:, -1].max(dim=-1).indices
    return out


@right("generation/write")
def write_recursively(model, ids, n_new, max_len):
    if n_new == 0:
        return ids
    seen = (
        ids
        if ids.size(1) <= max_len
        else ids.narrow(1, ids.size(1) - max_len, max_len)
    )
    token = model(seen)[:, -1].max(-1).indices
    longer = torch.cat((ids, token.unsqueeze(1)), 1)
    return write_recursively(model, longer, n_new - 1, max_len)


@right("generation/write")
def into_a_buffer(model, ids, n_new, max_len):
    B, T = ids.shape
    out = ids.new_empty(B, T + n_new)
    out[:, :T] = ids
    for t in range(T, T + n_new):
        window = out[:, max(0, t - max_len) : t]
        out[:, t] = model(window)[:, -1].argmax(-1)
    return out


@right("generation/write")
def in_a_list(model, ids, n_new, max_len):
    columns = list(ids.unbind(dim=1))
    while n_new:
        seen = torch.stack(columns[-max_len:], dim=1)
        columns.append(model(seen)[:, -1].max(dim=-1).indices)
        n_new -= 1
    return torch.stack(columns, dim=1)


@right("generation/write")
def text_by_text(model, ids, n_new, max_len):
    rows = []
    for row in ids.tolist():
        for _ in range(n_new):
            start = max(0, len(row) - max_len)
            logits = model(torch.tensor([row[start:]]))[0]
            row = [*row, int(torch.argmax(logits[-1]))]
        rows.append(row)
    return torch.tensor(rows)


@right("generation/write")
def in_a_buffer(model, ids, n_new, max_len):
    old = ids.shape[1]
    out = F.pad(ids, (0, n_new))
    for t in range(old, old + n_new):
        window = out[:, max(t - max_len, 0) : t]
        out[:, t] = model(window).transpose(0, 1)[-1].argmax(1)
    return out


@wrong("generation/write", "cut_for_good")
def write_crops_the_result(model, ids, n_new, max_len):
    for _ in range(n_new):
        ids = ids[:, -max_len:]
        token = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids


@wrong("generation/write", "only_new")
def only_the_new(model, ids, n_new, max_len):
    return in_a_list(model, ids, n_new, max_len)[:, ids.size(1) :]


@wrong("generation/write", "one_less")
def one_too_short(model, ids, n_new, max_len):
    for _ in range(n_new):
        token = model(ids[:, -(max_len - 1) :])[:, -1].argmax(-1)
        ids = torch.cat([ids, token[:, None]], dim=1)
    return ids


@wrong("generation/write", "as_if_cached")
def last_token_alone(model, ids, n_new, max_len):
    seen = ids[:, -max_len:]
    for _ in range(n_new):
        seen = model(seen)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, seen], dim=1)
    return ids


def loop(model, ids, n_new, crop, pick):
    for _ in range(n_new):
        new = pick(model(crop(ids)))
        ids = torch.hstack((ids, new.reshape(-1, 1)))
    return ids


def last_row(logits):
    return logits[:, -1].argmax(-1)


@wrong("generation/write", "opening")
def opening(model, ids, n_new, max_len):
    return loop(
        model,
        ids,
        n_new,
        lambda x: x.narrow(1, 0, min(max_len, x.size(1))),
        last_row,
    )


@wrong("generation/write", "uncut")
def uncut(model, ids, n_new, max_len):
    return loop(model, ids, n_new, lambda x: x, last_row)


@wrong("generation/write")
def drops_only_one(model, ids, n_new, max_len):
    window = ids
    for _ in range(n_new):
        if window.size(1) > max_len:
            window = window[:, 1:]
        token = model(window)[:, -1].argmax(-1, keepdim=True)
        window = torch.cat([window, token], dim=1)
        ids = torch.cat([ids, token], dim=1)
    return ids


@wrong("generation/write")
def prompt_cut_off(model, ids, n_new, max_len):
    return in_a_list(model, ids[:, -max_len:], n_new, max_len)


@wrong("generation/write")
def cut_in_blocks(model, ids, n_new, max_len):
    # Begins again with an empty window whenever one is full.
    def crop(x):
        return x[:, -((x.size(1) - 1) % max_len + 1) :]

    return loop(model, ids, n_new, crop, last_row)


# -- batched -----------------------------------------------------------------


@right("generation/batched")
def padded_right(model, prompts, pad_id):
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(lengths.max())
    ids = torch.full((len(prompts), longest), pad_id)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.as_tensor(prompt)
    places = torch.arange(longest).repeat(len(prompts), 1)
    logits = model(ids, places, places < lengths[:, None])
    return logits[torch.arange(len(prompts)), lengths - 1]


@right("generation/batched")
def lists_of_lists(model, prompts, pad_id):
    longest = max(map(len, prompts))
    ids, places, real = [], [], []
    for prompt in prompts:
        gap = longest - len(prompt)
        ids.append(gap * [pad_id] + [int(token) for token in prompt])
        places.append(gap * [0] + list(range(len(prompt))))
        real.append(gap * [False] + len(prompt) * [True])
    tables = map(torch.tensor, (ids, places, real))
    return model(*tables)[:, -1]


@right("generation/batched")
def one_by_one(model, prompts, pad_id):
    rows = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        places = torch.arange(len(prompt))[None]
        rows.append(model(ids, places, torch.ones_like(ids) > 0)[0, -1])
    return torch.stack(rows)


@right("generation/batched")
def padded_on_the_right(model, prompts, pad_id):
    # A causal model never sees what comes behind: only read the right row.
    longest = max(map(len, prompts))
    lengths = torch.tensor([len(p) for p in prompts])
    ids = torch.full((len(prompts), longest), pad_id)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    places = torch.arange(longest).repeat(len(prompts), 1)
    logits = model(ids, places, places < lengths[:, None])
    return logits[torch.arange(len(prompts)), lengths - 1]


@right("generation/batched")
def by_gaps(model, prompts, pad_id):
    longest = max(map(len, prompts))
    gaps = torch.tensor([[longest - len(p)] for p in prompts])
    ids = torch.tensor(
        [[pad_id] * (longest - len(p)) + list(p) for p in prompts]
    )
    columns = torch.arange(longest)
    places = (columns - gaps).relu()
    return model(ids, places, columns >= gaps)[:, -1, :]


def _left(prompts, pad_id):
    longest = max(len(prompt) for prompt in prompts)
    gaps = torch.tensor([longest - len(prompt) for prompt in prompts])
    ids = torch.tensor(
        [
            [pad_id] * (longest - len(prompt)) + list(prompt)
            for prompt in prompts
        ]
    )
    return ids, gaps[:, None], torch.arange(longest).expand_as(ids)


@wrong("generation/batched", "by_token_all")
def by_pad_id(model, prompts, pad_id):
    ids, _, _ = _left(prompts, pad_id)
    mask = ids != pad_id
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return model(ids, positions, mask)[:, -1]


@wrong("generation/batched", "columns")
def places_of_columns(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    return model(ids, columns, columns >= gaps)[:, -1]


@wrong("generation/batched", "no_mask")
def padding_seen(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    places = (columns - gaps).clamp(min=0)
    return model(ids, places, torch.ones_like(ids).bool())[:, -1]


@wrong("generation/batched", "from_one_on")
def places_from_one(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    mask = columns >= gaps
    return model(ids, mask.cumsum(1), mask)[:, -1]


@wrong("generation/batched", "right_columns")
def right_columns(model, prompts, pad_id):
    size = max(map(len, prompts))
    ids = torch.tensor([[*p, *[pad_id] * (size - len(p))] for p in prompts])
    columns = torch.arange(size).expand(ids.shape)
    mask = columns < torch.tensor([len(p) for p in prompts])[:, None]
    return model(ids, columns, mask)[:, -1]


def parts(prompts, pad_id):
    longest = max(map(len, prompts))
    gaps = torch.tensor([[longest - len(p)] for p in prompts])
    ids = torch.tensor(
        [[pad_id] * (longest - len(p)) + list(p) for p in prompts]
    )
    columns = torch.arange(longest).repeat(len(prompts), 1)
    return ids, columns, (columns - gaps).clamp(min=0), columns >= gaps


@wrong("generation/batched", "by_token")
def by_token(model, prompts, pad_id):
    ids, _, places, _ = parts(prompts, pad_id)
    return model(ids, places, ids.ne(pad_id))[:, -1]


@wrong("generation/batched", "inverted")
def inverted(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    return model(ids, places, mask.logical_not())[:, -1]


@wrong("generation/batched", "right")
def batched_right(model, prompts, pad_id):
    rows = [torch.tensor(p) for p in prompts]
    ids = torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=pad_id
    )
    lengths = torch.tensor([len(p) for p in prompts])
    columns = torch.arange(ids.size(1)).repeat(len(rows), 1)
    mask = columns < lengths[:, None]
    return model(ids, columns.minimum(lengths[:, None] - 1), mask)[:, -1]


@wrong("generation/batched")
def cut_to_the_shortest(model, prompts, pad_id):
    size = min(map(len, prompts))
    return one_by_one(model, [p[-size:] for p in prompts], pad_id)


@wrong("generation/batched")
def mean_over_places(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    return model(ids, places, mask).mean(dim=1)


@wrong("generation/batched")
def backwards(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    counted = places.amax(dim=1, keepdim=True) - places
    return model(ids, counted, mask)[:, -1]


# -- mended ------------------------------------------------------------------


@right("generation/mended")
def read_once(chunks, w_q, w_k, w_v, rotate):
    x = torch.cat(list(chunks))
    at = torch.arange(len(x))
    q, k, v = rotate(x @ w_q, at), rotate(x @ w_k, at), x @ w_v
    scores = q @ k.T / math.sqrt(q.size(-1))
    later = at[None, :] > at[:, None]
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


@right("generation/mended")
def turned_anew(chunks, w_q, w_k, w_v, rotate):
    kept, outputs = [], []
    for chunk in chunks:
        for x in chunk:
            kept.append(x)
            past = torch.stack(kept)
            at = torch.arange(len(kept))
            q = rotate((x @ w_q)[None], at[-1:])[0]
            k = rotate(past @ w_k, at)
            weights = torch.softmax(k @ q / k.shape[-1] ** 0.5, dim=0)
            outputs.append(torch.einsum("s,sd->d", weights, past @ w_v))
    return torch.stack(outputs)


@right("generation/mended")
def all_in_one(chunks, w_q, w_k, w_v, rotate):
    # The text as a whole, without a cache: what it has to be equal to.
    x = torch.cat(list(chunks))
    places = torch.arange(len(x))
    q, k = rotate(x @ w_q, places), rotate(x @ w_k, places)
    scores = q @ k.T / math.sqrt(q.size(1))
    later = torch.ones_like(scores).triu(1) > 0
    return scores.masked_fill(later, -torch.inf).softmax(1) @ (x @ w_v)


@right("generation/mended")
def raw_keys_kept(chunks, w_q, w_k, w_v, rotate):
    # Keys are kept unturned, and all of them turned when they are needed.
    outputs, keys, values = [], [], []
    for x in chunks:
        n = sum(map(len, keys))
        keys.append(x @ w_k)
        values.append(x @ w_v)
        k = torch.cat(keys)
        k = rotate(k, torch.arange(len(k)))
        q = rotate(x @ w_q, n + torch.arange(len(x)))
        for i in range(len(x)):
            seen = slice(0, n + i + 1)
            weights = (k[seen] @ q[i] / len(q[i]) ** 0.5).softmax(0)
            outputs.append(weights @ torch.cat(values)[seen])
    return torch.stack(outputs)


@right("generation/mended")
def vector_by_vector(chunks, w_q, w_k, w_v, rotate):
    cache_k, cache_v, out = [], [], []
    for t, x in enumerate(torch.cat(tuple(chunks))):
        place = torch.tensor([t])
        cache_k.append(rotate(x[None] @ w_k, place)[0])
        cache_v.append(x @ w_v)
        q = rotate(x[None] @ w_q, place)
        out.append(
            F.scaled_dot_product_attention(
                q[None], torch.stack(cache_k)[None], torch.stack(cache_v)[None]
            )[0, 0]
        )
    return torch.stack(out)


def _cached(chunks, w_q, w_k, w_v, rotate, begin, mask):
    outputs, old_k, old_v = [], w_k[:0, :0], None
    for step, x in enumerate(chunks):
        at = torch.arange(len(x)) + begin(step, 0 if not step else len(old_k))
        q = rotate(x @ w_q, at)
        k, v = rotate(x @ w_k, at), x @ w_v
        if step:
            k, v = torch.cat([old_k, k]), torch.cat([old_v, v])
        old_k, old_v = k, v
        outputs.append(
            F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=mask(len(q), len(k))
            )[0]
        )
    return torch.cat(outputs)


def _exact(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


@wrong("generation/mended", "restart")
def positions_restart(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: 0, _exact
    )


def _top_left(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


@wrong("generation/mended", "top_left")
def triangle_top_left(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: filled, _top_left
    )


@wrong("generation/mended", "piece_number")
def number_of_piece(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: step, _exact
    )


def run(
    chunks,
    maps,
    rotate,
    start=None,
    sees=lambda i, j, shift: j <= i + shift,
    again=False,
    last=False,
    fill=-torch.inf,
):
    """Piece by piece, with numbers that may be wrong."""
    outputs, ks, vs = [], [], []
    n = 0
    for step, x in enumerate(chunks):
        first = n if start is None else start(step)
        places = first + torch.arange(len(x))
        q, k = (rotate(x @ w, places) for w in maps[:2])
        if again and ks:
            old = torch.cat(ks)
            ks = [rotate(old, torch.arange(len(old)))]
        ks, vs = [*ks, k], [*vs, x @ maps[2]]
        n += len(x)
        k, v = torch.cat(ks), torch.cat(vs)
        i, j = torch.arange(len(x))[:, None], torch.arange(len(k))
        hidden = ~sees(i, j, len(k) - len(x))
        scores = q @ k.T / q.size(1) ** 0.5
        outputs.append(scores.masked_fill(hidden, fill).softmax(-1) @ v)
        if last:
            ks, vs = ks[-1:], vs[-1:]
    return torch.cat(outputs)


@wrong("generation/mended", "turned_again")
def turned_again(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, again=True)


@wrong("generation/mended", "unmasked")
def unmasked(chunks, w_q, w_k, w_v, rotate):
    return run(
        chunks, (w_q, w_k, w_v), rotate, sees=lambda i, j, shift: j >= 0 * i
    )


@wrong("generation/mended", "mask_finite")
def mended_mask_finite(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, fill=-100.0)


# A list of outputs, one for each piece.
@wrong("generation/mended")
def list_of_pieces(chunks, w_q, w_k, w_v, rotate):
    whole = read_once(chunks, w_q, w_k, w_v, rotate)
    return list(whole.split([len(x) for x in chunks]))


@wrong("generation/mended")
def causal_only_first(chunks, w_q, w_k, w_v, rotate):
    def mask(T, S):
        return _exact(T, S) if T == S else torch.ones(T, S).bool()

    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: filled, mask
    )


@wrong("generation/mended")
def no_root(chunks, w_q, w_k, w_v, rotate):
    return all_in_one(chunks, w_q * w_q.size(1) ** 0.5, w_k, w_v, rotate)


# -- cost --------------------------------------------------------------------


@right("generation/cost")
def simulated(
    n_layers,
    n_heads,
    n_kv_heads,
    d_head,
    bytes_per_number,
    n_weights,
    n_prompt,
    n_new,
):
    with_cache = without = 0
    cached, text = 0, n_prompt
    for _ in range(n_new):
        with_cache += text - cached
        without += text
        cached, text = text, text + 1
    a_token = sum(2 * n_kv_heads * d_head for _ in range(n_layers))
    held = a_token * cached * bytes_per_number
    return held, 2 * n_weights * with_cache, 2 * n_weights * without


@right("generation/cost")
def by_loops(layers, heads, kv, d_head, width, weights, prompt, new):
    size = with_cache = without = 0
    for _ in range(layers):
        for _ in range(kv):
            size += 2 * d_head * width * (prompt + new - 1)
    for n in range(new):
        with_cache += 2 * weights * (prompt if n == 0 else 1)
        without += 2 * weights * (prompt + n)
    return size, with_cache, without


@right("generation/cost")
def by_formula(layers, heads, kv, d_head, width, weights, prompt, new):
    read = prompt + new - 1
    return (
        layers * 2 * kv * d_head * read * width,
        2 * weights * read,
        2 * weights * (new * prompt + new * (new - 1) // 2),
    )


@right("generation/cost")
def by_steps(layers, heads, kv, d_head, width, weights, prompt, new):
    lengths = torch.arange(prompt, prompt + new)
    keys = torch.zeros(layers, kv, int(lengths[-1]), d_head)
    return [
        2 * keys.numel() * width,
        2 * weights * int(lengths[-1]),
        2 * weights * int(lengths.sum()),
    ]


@wrong("generation/cost", "query_heads")
def query_heads(layers, heads, kv, d_head, width, weights, prompt, new):
    return by_loops(layers, heads, heads, d_head, width, weights, prompt, new)


@wrong("generation/cost", "last_read")
def last_read(layers, heads, kv, d_head, width, weights, prompt, new):
    total = prompt + new
    without = sum(range(prompt, total + 1))
    return (
        2 * layers * kv * d_head * width * total,
        2 * weights * total,
        2 * weights * without,
    )


@wrong("generation/cost", "keys_only")
def keys_only(layers, heads, kv, d_head, width, weights, prompt, new):
    size, *flops = by_loops(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return (size // 2, *flops)


@wrong("generation/cost", "each_block")
def each_block(
    n_layers, n_heads, n_kv_heads, d_head, size, n_weights, n_prompt, n_new
):
    read = n_prompt + n_new - 1
    cache = 2 * n_layers * n_kv_heads * d_head * size * read
    flops = n_layers * n_weights * 2
    again = sum(n_prompt + i for i in range(n_new))
    return cache, flops * read, flops * again


@wrong("generation/cost", "multiplications")
def multiplications(layers, heads, kv, d_head, width, weights, prompt, new):
    size, a, b = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return size, a // 2, b // 2


# The last new token is read too.
@wrong("generation/cost")
def cost_reads_the_last(
    n_layers, n_heads, n_kv_heads, d_head, bytes_per_number,
    n_weights, n_prompt, n_new,
):  # fmt: skip
    read = n_prompt + n_new
    size = 2 * n_layers * n_kv_heads * d_head * bytes_per_number * read
    without = sum(n_prompt + i for i in range(n_new))
    return size, 2 * n_weights * read, 2 * n_weights * without


@wrong("generation/cost")
def prompt_forgotten(
    n_layers,
    n_heads,
    n_kv_heads,
    d_head,
    bytes_per_number,
    n_weights,
    n_prompt,
    n_new,
):
    read = n_prompt + n_new - 1
    held = 2 * n_layers * n_kv_heads * d_head * read * bytes_per_number
    again = n_new * (n_new + 1) // 2
    return held, 2 * n_weights * read, 2 * n_weights * again


@wrong("generation/cost")
def in_bits(layers, heads, kv, d_head, width, weights, prompt, new):
    size, *flops = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return (8 * size, *flops)


# -- taste -------------------------------------------------------------------


# Greedy, which stammers.
@wrong("generation/taste")
def greedy_taste():
    return {"temperature": 0}


# The plain dice, which invent too many words.
@wrong("generation/taste")
def plain_dice():
    return {"temperature": 1.0}
