"""Answers to the exercises of chapter 12, as people write them."""

import heapq
import math

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- chances: right ----------------------------------------------------------
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


# -- chances: wrong ----------------------------------------------------------
def chances_mask_finite(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k:
        keep = torch.zeros_like(z).scatter(1, z.topk(top_k).indices, 1)
        z = torch.where(keep == 1, z, -10000.0)
    return with_a_threshold(z, 1, None, top_p)


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


def multiplied(logits, temperature, top_k, top_p):
    return steps(temperature * logits, top_k, top_p)


def p_of_all(logits, temperature, top_k, top_p):
    z = logits / temperature
    by_k = steps(z, top_k, None)
    by_p = steps(z, None, top_p)
    both = by_k * (by_p > 0)
    return both / both.sum(-1, keepdim=True)


def crossing_dropped(logits, temperature, top_k, top_p):
    return steps(logits / temperature, top_k, top_p, inside=False)


def not_mapped_back(logits, temperature, top_k, top_p):
    p = steps(logits / temperature, top_k, None)
    if top_p is not None:
        down, _ = torch.sort(p, descending=True)
        p = p.clone()
        p[torch.cumsum(down, -1) - down >= top_p] = 0
        p = p / p.sum(-1, keepdim=True)
    return p


def not_renormalized(logits, temperature, top_k, top_p):
    p = steps(logits / temperature, top_k, None)
    return p * (by_rank(logits, temperature, top_k, top_p) > 0)


# -- chances: mistakes that the catalogue does not have ----------------------
def temperature_last(logits, temperature, top_k, top_p):
    p = by_rank(logits, 1.0, top_k, top_p) ** (1 / temperature)
    return p / p.sum(-1, keepdim=True)


def one_more(logits, temperature, top_k, top_p):
    return by_rank(logits, temperature, top_k and top_k + 1, top_p)


def least_likely(logits, temperature, top_k, top_p):
    return by_rank(-logits, temperature, top_k, top_p)


def p_is_a_threshold(logits, temperature, top_k, top_p):
    p = by_rank(logits, temperature, top_k, None)
    if top_p is None:
        return p
    p = p * (p >= 1 - top_p)
    return p / p.sum(-1, keepdim=True).clamp(min=1e-9)


# -- beam: right -------------------------------------------------------------
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


# -- beam: wrong -------------------------------------------------------------
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


def mean_of(penalty):
    return lambda total, n, stopped: total / n**penalty


def sum_only(tree, k, longest, stop, penalty):
    return search(tree, k, longest, stop, lambda total, n, stopped: total)


def stop_not_counted(tree, k, longest, stop, penalty):
    def rate(total, n, stopped):
        return total / max(n - int(stopped), 1) ** penalty

    return search(tree, k, longest, stop, rate)


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


def first_stop(tree, k, longest, stop, penalty):
    return search(tree, k, longest, stop, mean_of(penalty), hasty=True)


# -- beam: mistakes that the catalogue does not have -------------------------
def start_counted(tree, k, longest, stop, penalty):
    def rate(total, n, stopped):
        return total / (n + 1) ** penalty

    return search(tree, k, longest, stop, rate)


def one_step_less(tree, k, longest, stop, penalty):
    return search(tree, k, longest - 1, stop, mean_of(penalty))


def multiplied_by_length(tree, k, longest, stop, penalty):
    def rate(total, n, stopped):
        return total * n**penalty

    return search(tree, k, longest, stop, rate)


def stop_kept(tree, k, longest, stop, penalty):
    text, score = search(tree, k, longest, stop, mean_of(penalty))
    return [*text, stop], score


# -- write: right ------------------------------------------------------------
def in_a_list(model, ids, n_new, max_len):
    columns = list(ids.unbind(dim=1))
    while n_new:
        seen = torch.stack(columns[-max_len:], dim=1)
        columns.append(model(seen)[:, -1].max(dim=-1).indices)
        n_new -= 1
    return torch.stack(columns, dim=1)


def text_by_text(model, ids, n_new, max_len):
    rows = []
    for row in ids.tolist():
        for _ in range(n_new):
            start = max(0, len(row) - max_len)
            logits = model(torch.tensor([row[start:]]))[0]
            row = [*row, int(torch.argmax(logits[-1]))]
        rows.append(row)
    return torch.tensor(rows)


def in_a_buffer(model, ids, n_new, max_len):
    old = ids.shape[1]
    out = F.pad(ids, (0, n_new))
    for t in range(old, old + n_new):
        window = out[:, max(t - max_len, 0) : t]
        out[:, t] = model(window).transpose(0, 1)[-1].argmax(1)
    return out


# -- write: wrong ------------------------------------------------------------
def loop(model, ids, n_new, crop, pick):
    for _ in range(n_new):
        new = pick(model(crop(ids)))
        ids = torch.hstack((ids, new.reshape(-1, 1)))
    return ids


def last_row(logits):
    return logits[:, -1].argmax(-1)


def opening(model, ids, n_new, max_len):
    return loop(
        model,
        ids,
        n_new,
        lambda x: x.narrow(1, 0, min(max_len, x.size(1))),
        last_row,
    )


def one_less(model, ids, n_new, max_len):
    return loop(
        model,
        ids,
        n_new,
        lambda x: x[:, max(x.size(1) - max_len + 1, 0) :],
        last_row,
    )


def uncut(model, ids, n_new, max_len):
    return loop(model, ids, n_new, lambda x: x, last_row)


# -- write: mistakes that the catalogue does not have ------------------------
def only_the_new(model, ids, n_new, max_len):
    return in_a_list(model, ids, n_new, max_len)[:, ids.size(1) :]


def prompt_cut_off(model, ids, n_new, max_len):
    return in_a_list(model, ids[:, -max_len:], n_new, max_len)


def all_at_once(model, ids, n_new, max_len):
    # Each row of one pass taken for one new token.
    logits = model(ids[:, -max_len:])
    new = logits.argmax(-1)[:, -n_new:]
    new = F.pad(new, (0, n_new - new.size(1)))
    return torch.cat((ids, new), dim=1)


def cut_in_blocks(model, ids, n_new, max_len):
    # Begins again with an empty window whenever one is full.
    def crop(x):
        return x[:, -((x.size(1) - 1) % max_len + 1) :]

    return loop(model, ids, n_new, crop, last_row)


# -- batched: right ----------------------------------------------------------
def one_by_one(model, prompts, pad_id):
    rows = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        places = torch.arange(len(prompt))[None]
        rows.append(model(ids, places, torch.ones_like(ids) > 0)[0, -1])
    return torch.stack(rows)


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


def by_gaps(model, prompts, pad_id):
    longest = max(map(len, prompts))
    gaps = torch.tensor([[longest - len(p)] for p in prompts])
    ids = torch.tensor(
        [[pad_id] * (longest - len(p)) + list(p) for p in prompts]
    )
    columns = torch.arange(longest)
    places = (columns - gaps).relu()
    return model(ids, places, columns >= gaps)[:, -1, :]


# -- batched: wrong ----------------------------------------------------------
def parts(prompts, pad_id):
    longest = max(map(len, prompts))
    gaps = torch.tensor([[longest - len(p)] for p in prompts])
    ids = torch.tensor(
        [[pad_id] * (longest - len(p)) + list(p) for p in prompts]
    )
    columns = torch.arange(longest).repeat(len(prompts), 1)
    return ids, columns, (columns - gaps).clamp(min=0), columns >= gaps


def column_numbers(model, prompts, pad_id):
    ids, columns, _, mask = parts(prompts, pad_id)
    return model(ids, columns, mask)[:, -1]


def no_mask(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    return model(ids, places, mask | True)[:, -1]


def by_token(model, prompts, pad_id):
    ids, _, places, _ = parts(prompts, pad_id)
    return model(ids, places, ids.ne(pad_id))[:, -1]


def inverted(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    return model(ids, places, mask.logical_not())[:, -1]


def right(model, prompts, pad_id):
    rows = [torch.tensor(p) for p in prompts]
    ids = torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=pad_id
    )
    lengths = torch.tensor([len(p) for p in prompts])
    columns = torch.arange(ids.size(1)).repeat(len(rows), 1)
    mask = columns < lengths[:, None]
    return model(ids, columns.minimum(lengths[:, None] - 1), mask)[:, -1]


# -- batched: mistakes that the catalogue does not have ----------------------
def cut_to_the_shortest(model, prompts, pad_id):
    size = min(map(len, prompts))
    return one_by_one(model, [p[-size:] for p in prompts], pad_id)


def mean_over_places(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    return model(ids, places, mask).mean(dim=1)


def backwards(model, prompts, pad_id):
    ids, _, places, mask = parts(prompts, pad_id)
    counted = places.amax(dim=1, keepdim=True) - places
    return model(ids, counted, mask)[:, -1]


# -- mended: right -----------------------------------------------------------
def all_in_one(chunks, w_q, w_k, w_v, rotate):
    # The text as a whole, without a cache: what it has to be equal to.
    x = torch.cat(list(chunks))
    places = torch.arange(len(x))
    q, k = rotate(x @ w_q, places), rotate(x @ w_k, places)
    scores = q @ k.T / math.sqrt(q.size(1))
    later = torch.ones_like(scores).triu(1) > 0
    return scores.masked_fill(later, -torch.inf).softmax(1) @ (x @ w_v)


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


# -- mended: wrong -----------------------------------------------------------
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


def top_left(chunks, w_q, w_k, w_v, rotate):
    return run(
        chunks, (w_q, w_k, w_v), rotate, sees=lambda i, j, shift: j <= i
    )


def unmasked(chunks, w_q, w_k, w_v, rotate):
    return run(
        chunks, (w_q, w_k, w_v), rotate, sees=lambda i, j, shift: j >= 0 * i
    )


def restart(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, start=lambda step: 0)


def turned_again(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, again=True)


def mended_mask_finite(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, fill=-100.0)


# -- mended: mistakes that the catalogue does not have -----------------------
def no_root(chunks, w_q, w_k, w_v, rotate):
    return all_in_one(chunks, w_q * w_q.size(1) ** 0.5, w_k, w_v, rotate)


def itself_hidden(chunks, w_q, w_k, w_v, rotate):
    return run(
        chunks,
        (w_q, w_k, w_v),
        rotate,
        sees=lambda i, j, shift: (j < i + shift) | (i + shift + j == 0),
    )


def one_late(chunks, w_q, w_k, w_v, rotate):
    lengths = [len(x) for x in chunks]
    return run(
        chunks,
        (w_q, w_k, w_v),
        rotate,
        start=lambda step: sum(lengths[:step]) + (step > 0),
    )


# -- cost: right -------------------------------------------------------------
def by_loops(layers, heads, kv, d_head, width, weights, prompt, new):
    size = with_cache = without = 0
    for _ in range(layers):
        for _ in range(kv):
            size += 2 * d_head * width * (prompt + new - 1)
    for n in range(new):
        with_cache += 2 * weights * (prompt if n == 0 else 1)
        without += 2 * weights * (prompt + n)
    return size, with_cache, without


def by_formula(layers, heads, kv, d_head, width, weights, prompt, new):
    read = prompt + new - 1
    return (
        layers * 2 * kv * d_head * read * width,
        2 * weights * read,
        2 * weights * (new * prompt + new * (new - 1) // 2),
    )


def by_steps(layers, heads, kv, d_head, width, weights, prompt, new):
    lengths = torch.arange(prompt, prompt + new)
    keys = torch.zeros(layers, kv, int(lengths[-1]), d_head)
    return [
        2 * keys.numel() * width,
        2 * weights * int(lengths[-1]),
        2 * weights * int(lengths.sum()),
    ]


# -- cost: wrong -------------------------------------------------------------
def keys_only(layers, heads, kv, d_head, width, weights, prompt, new):
    size, *flops = by_loops(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return (size // 2, *flops)


def query_heads(layers, heads, kv, d_head, width, weights, prompt, new):
    return by_loops(layers, heads, heads, d_head, width, weights, prompt, new)


def last_read(layers, heads, kv, d_head, width, weights, prompt, new):
    total = prompt + new
    without = sum(range(prompt, total + 1))
    return (
        2 * layers * kv * d_head * width * total,
        2 * weights * total,
        2 * weights * without,
    )


def multiplications(layers, heads, kv, d_head, width, weights, prompt, new):
    size, a, b = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return size, a // 2, b // 2


# -- cost: mistakes that the catalogue does not have -------------------------
def in_bits(layers, heads, kv, d_head, width, weights, prompt, new):
    size, *flops = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return (8 * size, *flops)


def prompt_not_kept(layers, heads, kv, d_head, width, weights, prompt, new):
    _, *flops = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return (2 * layers * kv * d_head * width * (new - 1), *flops)


def trained(layers, heads, kv, d_head, width, weights, prompt, new):
    size, a, b = by_formula(
        layers, heads, kv, d_head, width, weights, prompt, new
    )
    return size, 3 * a, 3 * b


def cut_for_good(model, ids, n_new, max_len):
    for _ in range(n_new):
        ids = ids[:, max(ids.size(1) - max_len, 0) :]
        ids = torch.hstack((ids, model(ids)[:, -1:].argmax(-1)))
    return ids


def takes_slot(tree, k, longest, stop, penalty):
    beams, done = [(0.0, [])], []
    for n in range(1, longest + 1):
        every = [
            (total + s, [*text, t])
            for total, text in beams
            for t, s in enumerate(tree(text).tolist())
        ]
        best = sorted(every, reverse=True)[:k]
        done += [(s / n**penalty, t[:-1]) for s, t in best if t[-1] == stop]
        beams = [(s, t) for s, t in best if t[-1] != stop]
    done += [(s / len(t) ** penalty, t) for s, t in beams]
    score, text = max(done)
    return text, score


def chosen_by_sum(tree, k, longest, stop, penalty):
    def both(total, n, stopped):
        return total, total / n**penalty

    text, (_, score) = search(tree, k, longest, stop, both)
    return text, score


def right_columns(model, prompts, pad_id):
    size = max(map(len, prompts))
    ids = torch.tensor([[*p, *[pad_id] * (size - len(p))] for p in prompts])
    columns = torch.arange(size).expand(ids.shape)
    mask = columns < torch.tensor([len(p) for p in prompts])[:, None]
    return model(ids, columns, mask)[:, -1]


def by_token_all(model, prompts, pad_id):
    ids, _, _, _ = parts(prompts, pad_id)
    mask = ids.ne(pad_id)
    places = (torch.cumsum(mask.long(), 1) - 1).clamp(0)
    return model(ids, places, mask)[:, -1]


def piece_number(chunks, w_q, w_k, w_v, rotate):
    return run(chunks, (w_q, w_k, w_v), rotate, start=lambda step: step)


def zero_logits(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        z = z * (z >= z.topk(top_k).values[:, -1:])
    if top_p is not None:
        ordered, order = z.softmax(-1).sort(-1, descending=True)
        kept = (ordered.cumsum(-1) - ordered) < top_p
        z = z * torch.zeros_like(kept).scatter(-1, order, kept)
    return z.softmax(-1)


def as_if_cached(model, ids, n_new, max_len):
    given = [ids]
    read = ids[:, -max_len:]
    while len(given) <= n_new:
        read = model(read)[:, -1:].argmax(-1)
        given.append(read)
    return torch.cat(given, 1)


def from_one_on(model, prompts, pad_id):
    n = max(map(len, prompts))
    ids = torch.full((len(prompts), n), pad_id)
    mask = torch.zeros(len(prompts), n, dtype=torch.bool)
    for i, prompt in enumerate(prompts):
        ids[i, n - len(prompt) :] = torch.tensor(prompt)
        mask[i, n - len(prompt) :] = True
    return model(ids, mask.long().cumsum(-1), mask)[:, -1]


def each_block(
    n_layers, n_heads, n_kv_heads, d_head, size, n_weights, n_prompt, n_new
):
    read = n_prompt + n_new - 1
    cache = 2 * n_layers * n_kv_heads * d_head * size * read
    flops = n_layers * n_weights * 2
    again = sum(n_prompt + i for i in range(n_new))
    return cache, flops * read, flops * again


RIGHT = {
    "chances": [by_rank, with_a_threshold, with_log_weights],
    "beam": [with_a_heap, with_tensors, step_by_step],
    "write": [in_a_list, text_by_text, in_a_buffer],
    "batched": [one_by_one, padded_on_the_right, by_gaps],
    "mended": [all_in_one, raw_keys_kept, vector_by_vector],
    "cost": [by_loops, by_formula, by_steps],
}
WRONG = {
    "chances": {
        "multiplied": multiplied,
        "mask_finite": chances_mask_finite,
        "p_of_all": p_of_all,
        "crossing_dropped": crossing_dropped,
        "not_mapped_back": not_mapped_back,
        "not_renormalized": not_renormalized,
        "zero_logits": zero_logits,
    },
    "beam": {
        "sum_only": sum_only,
        "stop_not_counted": stop_not_counted,
        "products": products,
        "first_stop": first_stop,
        "takes_slot": takes_slot,
        "chosen_by_sum": chosen_by_sum,
    },
    "write": {
        "opening": opening,
        "one_less": one_less,
        "uncut": uncut,
        "only_new": only_the_new,
        "cut_for_good": cut_for_good,
        "as_if_cached": as_if_cached,
    },
    "batched": {
        "columns": column_numbers,
        "no_mask": no_mask,
        "by_token": by_token,
        "inverted": inverted,
        "right": right,
        "right_columns": right_columns,
        "by_token_all": by_token_all,
        "from_one_on": from_one_on,
    },
    "mended": {
        "top_left": top_left,
        "unmasked": unmasked,
        "restart": restart,
        "turned_again": turned_again,
        "piece_number": piece_number,
        "mask_finite": mended_mask_finite,
    },
    "cost": {
        "keys_only": keys_only,
        "query_heads": query_heads,
        "last_read": last_read,
        "multiplications": multiplications,
        "each_block": each_block,
    },
}
OUTSIDE = {
    "chances": [
        temperature_last,
        one_more,
        least_likely,
        p_is_a_threshold,
    ],
    "beam": [start_counted, one_step_less, multiplied_by_length, stop_kept],
    "write": [prompt_cut_off, all_at_once, cut_in_blocks],
    "batched": [cut_to_the_shortest, mean_over_places, backwards],
    "mended": [no_root, itself_hidden, one_late],
    "cost": [in_bits, prompt_not_kept, trained],
}
