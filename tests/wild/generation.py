"""Answers to chapter 12, written from its page alone."""

import heapq
import math
from itertools import accumulate, count

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# generation/chances


@right("generation/chances", "sorted lists of Python, row by row")
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
            p = [x for x, b in zip(p, before) if b < top_p]  # noqa: B905
        out = [0.0] * len(z)
        for i, x in zip(order, p):  # noqa: B905
            out[i] = x / sum(p)
        rows.append(out)
    return torch.tensor(rows, dtype=logits.dtype)


@right("generation/chances", "ranks and masses by comparing all pairs")
def all_pairs(logits, temperature, top_k, top_p):
    z = logits / temperature
    above = z[:, None, :] > z[:, :, None]  # (B, token, likelier token)
    if top_k is not None:
        z = z.masked_fill(above.sum(-1) >= top_k, float("-inf"))
    if top_p is not None:
        mass = (above * z.softmax(-1)[:, None, :]).sum(-1)
        z = z.masked_fill(mass >= top_p, float("-inf"))
    return z.softmax(-1)


@wrong(
    "generation/chances",
    "logits are multiplied by the temperature",
    classic=True,
)
def multiplied(logits, temperature, top_k, top_p):
    return all_pairs(logits, 1 / temperature, top_k, top_p)


@wrong(
    "generation/chances",
    "top-p looks at the mass of all tokens, before top-k has cut",
    classic=True,
)
def top_p_first(logits, temperature, top_k, top_p):
    z = logits / temperature
    ordered, ids = z.softmax(-1).sort(-1, descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k is not None:
        keep[:, top_k:] = False
    if top_p is not None:
        keep &= ordered.cumsum(-1) - ordered < top_p
    keep = keep.gather(-1, ids.argsort(-1))
    return z.masked_fill(~keep, -torch.inf).softmax(-1)


@wrong(
    "generation/chances",
    "top-p drops the token that crosses the mass",
    classic=True,
)
def crossing_dropped(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z.topk(min(top_k, z.size(-1))).values[:, -1:]
        z = torch.where(z < least, -torch.inf, z)
    if top_p is not None:
        ordered, ids = z.softmax(-1).sort(-1, descending=True)
        late = ordered.cumsum(-1) > top_p
        late[:, 0] = False
        late = late.gather(-1, ids.argsort(-1))
        z = z.masked_fill(late, -torch.inf)
    return z.softmax(-1)


@wrong(
    "generation/chances",
    "dropped tokens get a logit of 0, which still has weight",
    classic=True,
)
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


@wrong(
    "generation/chances",
    "what top-p decides in sorted order is applied to unsorted tokens",
    classic=True,
)
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


@wrong(
    "generation/chances",
    "what is left after top-p is not brought back to a sum of 1",
    classic=True,
)
def sum_below_one(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z.topk(min(top_k, z.size(-1))).values[:, -1:]
        z = z.masked_fill(z < least, -torch.inf)
    p = z.softmax(-1)
    if top_p is not None:
        ordered, ids = p.sort(-1, descending=True)
        late = ordered.cumsum(-1) - ordered >= top_p
        p = p.masked_fill(late.gather(-1, ids.argsort(-1)), 0.0)
    return p


@wrong(
    "generation/chances",
    "the k-th best logit of the first row is the limit for all rows",
    classic=False,
)
def limit_of_first_row(logits, temperature, top_k, top_p):
    z = logits / temperature
    if top_k is not None:
        least = z[0].topk(min(top_k, z.size(-1))).values[-1]
        z = z.masked_fill(z < least, -torch.inf)
    return all_pairs(z, 1.0, None, top_p)


# generation/beam


@right("generation/beam", "a heap of negative sums, taken until full")
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


@right("generation/beam", "recursion over the steps, tensors of candidates")
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


@wrong(
    "generation/beam",
    "each beam goes on with its own best token alone: "
    "greedy search from several starts",
    classic=True,
)
def greedy_from_each(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(
        next_log_probs, n_beams, max_new_tokens, stop_id, own_best=True
    )
    score, text = max((s / n**length_penalty, t) for s, t, n in done + going)
    return text, score


@wrong(
    "generation/beam",
    "texts that end take places of those that go on, "
    "so that fewer and fewer beams are open",
    classic=True,
)
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


@wrong(
    "generation/beam",
    "the stop token is not counted in the length",
    classic=True,
)
def stop_not_counted(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    scored = [
        (s / max(len(t), 1) ** length_penalty, t) for s, t, _ in done + going
    ]
    score, text = max(scored)
    return text, score


@wrong(
    "generation/beam",
    "the winner is chosen by its sum, and only then divided by its length",
    classic=True,
)
def chosen_by_sum(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    total, text, n = max(done + going)
    return text, total / n**length_penalty


@wrong(
    "generation/beam",
    "texts that are still open after the last step are thrown away",
    classic=True,
)
def open_thrown_away(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, _ = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    if not done:
        return None
    score, text = max((s / n**length_penalty, t) for s, t, n in done)
    return text, score


@wrong(
    "generation/beam",
    "the search ends with the first text that ends",
    classic=True,
)
def first_that_ends(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    for steps in range(1, max_new_tokens + 1):
        done, going = _search(next_log_probs, n_beams, steps, stop_id)
        if done or steps == max_new_tokens:
            score, text = max(
                (s / n**length_penalty, t) for s, t, n in done or going
            )
            return text, score
    return [], 0.0


@wrong("generation/beam", "the text comes with its stop token", classic=False)
def with_stop_token(
    next_log_probs, n_beams, max_new_tokens, stop_id, length_penalty
):
    done, going = _search(next_log_probs, n_beams, max_new_tokens, stop_id)
    done = [(s, [*t, stop_id], n) for s, t, n in done]
    score, text = max((s / n**length_penalty, t) for s, t, n in done + going)
    return text, score


# generation/write


@right("generation/write", "recursion, one token a call")
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


@right("generation/write", "a buffer made once, filled column by column")
def into_a_buffer(model, ids, n_new, max_len):
    B, T = ids.shape
    out = ids.new_empty(B, T + n_new)
    out[:, :T] = ids
    for t in range(T, T + n_new):
        window = out[:, max(0, t - max_len) : t]
        out[:, t] = model(window)[:, -1].argmax(-1)
    return out


@wrong(
    "generation/write",
    "the window is cut out of the text for good, so "
    "that the beginning is missing in the result",
    classic=True,
)
def cut_for_good(model, ids, n_new, max_len):
    for _ in range(n_new):
        ids = ids[:, -max_len:]
        token = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids


@wrong("generation/write", "only the new tokens are returned", classic=True)
def only_new(model, ids, n_new, max_len):
    given = ids.size(1)
    for _ in range(n_new):
        token = model(ids[:, -max_len:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids[:, given:]


@wrong("generation/write", "the window is one token too short", classic=True)
def one_too_short(model, ids, n_new, max_len):
    for _ in range(n_new):
        token = model(ids[:, -(max_len - 1) :])[:, -1].argmax(-1)
        ids = torch.cat([ids, token[:, None]], dim=1)
    return ids


@wrong(
    "generation/write",
    "the model reads the last token alone, as if it had a cache",
    classic=True,
)
def last_token_alone(model, ids, n_new, max_len):
    seen = ids[:, -max_len:]
    for _ in range(n_new):
        seen = model(seen)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, seen], dim=1)
    return ids


@wrong(
    "generation/write",
    "drops one token when full, which is not enough "
    "for a prompt that is longer than the model",
    classic=False,
)
def drops_only_one(model, ids, n_new, max_len):
    window = ids
    for _ in range(n_new):
        if window.size(1) > max_len:
            window = window[:, 1:]
        token = model(window)[:, -1].argmax(-1, keepdim=True)
        window = torch.cat([window, token], dim=1)
        ids = torch.cat([ids, token], dim=1)
    return ids


# generation/batched


@right("generation/batched", "padded on the right, each last token's row")
def padded_right(model, prompts, pad_id):
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(lengths.max())
    ids = torch.full((len(prompts), longest), pad_id)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.as_tensor(prompt)
    places = torch.arange(longest).repeat(len(prompts), 1)
    logits = model(ids, places, places < lengths[:, None])
    return logits[torch.arange(len(prompts)), lengths - 1]


@right("generation/batched", "three lists of lists")
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


@wrong(
    "generation/batched",
    "padding is recognized by its id, which may be a real token",
    classic=True,
)
def by_pad_id(model, prompts, pad_id):
    ids, _, _ = _left(prompts, pad_id)
    mask = ids != pad_id
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return model(ids, positions, mask)[:, -1]


@wrong(
    "generation/batched",
    "masked, but places still count the padding",
    classic=True,
)
def places_of_columns(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    return model(ids, columns, columns >= gaps)[:, -1]


@wrong(
    "generation/batched",
    "places are right, but padding is not masked",
    classic=True,
)
def padding_seen(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    places = (columns - gaps).clamp(min=0)
    return model(ids, places, torch.ones_like(ids).bool())[:, -1]


@wrong(
    "generation/batched",
    "the running sum of the mask without minus one: places begin at 1",
    classic=True,
)
def places_from_one(model, prompts, pad_id):
    ids, gaps, columns = _left(prompts, pad_id)
    mask = columns >= gaps
    return model(ids, mask.cumsum(1), mask)[:, -1]


@wrong(
    "generation/batched",
    "padded on the right, but the last column is returned",
    classic=True,
)
def right_and_last(model, prompts, pad_id):
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor(
        [
            list(prompt) + [pad_id] * (longest - len(prompt))
            for prompt in prompts
        ]
    )
    lengths = torch.tensor([[len(prompt)] for prompt in prompts])
    columns = torch.arange(longest).expand_as(ids)
    return model(ids, columns, columns < lengths)[:, -1]


# generation/mended


@right("generation/mended", "all pieces joined, and read once")
def read_once(chunks, w_q, w_k, w_v, rotate):
    x = torch.cat(list(chunks))
    at = torch.arange(len(x))
    q, k, v = rotate(x @ w_q, at), rotate(x @ w_k, at), x @ w_v
    scores = q @ k.T / math.sqrt(q.size(-1))
    later = at[None, :] > at[:, None]
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


@right(
    "generation/mended",
    "query by query, keys kept before they are "
    "turned, and all turned anew each time",
)
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


def _top_left(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


@wrong(
    "generation/mended",
    "positions are right, but the triangle still begins at the top left",
    classic=True,
)
def triangle_top_left(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: filled, _top_left
    )


@wrong(
    "generation/mended",
    "the mask is right, but positions restart at 0 in each piece",
    classic=True,
)
def positions_restart(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: 0, _exact
    )


@wrong(
    "generation/mended",
    "positions begin at the number of the piece, "
    "not at the number of vectors before it",
    classic=True,
)
def number_of_piece(chunks, w_q, w_k, w_v, rotate):
    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: step, _exact
    )


@wrong(
    "generation/mended",
    "is_causal is off for all pieces but the first, "
    "so a later piece of several vectors looks ahead",
    classic=True,
)
def causal_only_first(chunks, w_q, w_k, w_v, rotate):
    def mask(T, S):
        return _exact(T, S) if T == S else torch.ones(T, S).bool()

    return _cached(
        chunks, w_q, w_k, w_v, rotate, lambda step, filled: filled, mask
    )


@wrong(
    "generation/mended",
    "kept keys, turned already, are turned again in each step",
    classic=True,
)
def turned_twice(chunks, w_q, w_k, w_v, rotate):
    outputs, k, v = [], None, None
    for x in chunks:
        n_old = 0 if k is None else len(k)
        k = x @ w_k if k is None else torch.cat([k, x @ w_k])
        v = x @ w_v if v is None else torch.cat([v, x @ w_v])
        at = torch.arange(len(k))
        k, q = rotate(k, at), rotate(x @ w_q, at[n_old:])
        scores = q @ k.T / q.size(-1) ** 0.5
        scores = scores.masked_fill(~_exact(len(q), len(k)), -torch.inf)
        outputs.append(scores.softmax(-1) @ v)
    return torch.cat(outputs)


@wrong(
    "generation/mended", "a list of outputs, one for each piece", classic=False
)
def list_of_pieces(chunks, w_q, w_k, w_v, rotate):
    whole = read_once(chunks, w_q, w_k, w_v, rotate)
    return list(whole.split([len(x) for x in chunks]))


# generation/cost


@right("generation/cost", "the reading is simulated, token by token")
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


@wrong(
    "generation/cost",
    "every query head has keys and values of its own",
    classic=True,
)
def query_heads_counted(
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
    again = sum(range(n_prompt, n_prompt + n_new))
    held = 2 * n_layers * n_heads * d_head * read * bytes_per_number
    return held, 2 * n_weights * read, 2 * n_weights * again


@wrong("generation/cost", "the last token is read as well", classic=True)
def last_is_read(
    n_layers,
    n_heads,
    n_kv_heads,
    d_head,
    bytes_per_number,
    n_weights,
    n_prompt,
    n_new,
):
    read = n_prompt + n_new
    again = sum(range(n_prompt, n_prompt + n_new + 1))
    held = 2 * n_layers * n_kv_heads * d_head * read * bytes_per_number
    return held, 2 * n_weights * read, 2 * n_weights * again


@wrong("generation/cost", "keys are counted, values are not", classic=True)
def keys_only(
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
    again = sum(n_prompt + i for i in range(n_new))
    held = n_layers * n_kv_heads * d_head * read * bytes_per_number
    return held, 2 * n_weights * read, 2 * n_weights * again


@wrong(
    "generation/cost",
    "the matrices are counted once more for each "
    "block, though n_weights has all of them",
    classic=True,
)
def times_blocks(
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
    again = sum(n_prompt + i for i in range(n_new))
    held = 2 * n_layers * n_kv_heads * d_head * read * bytes_per_number
    each = 2 * n_weights * n_layers
    return held, each * read, each * again


@wrong(
    "generation/cost",
    "one FLOP a weight: the additions are missing",
    classic=True,
)
def no_additions(
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
    again = sum(n_prompt + i for i in range(n_new))
    held = 2 * n_layers * n_kv_heads * d_head * read * bytes_per_number
    return held, n_weights * read, n_weights * again


@wrong(
    "generation/cost",
    "without a cache, only 1 + 2 + … + n_new tokens "
    "are counted: the prompt is forgotten",
    classic=False,
)
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


# generation/taste


@wrong("generation/taste", "greedy, which stammers", classic=True)
def greedy_taste():
    return {"temperature": 0}


@wrong(
    "generation/taste",
    "the plain dice, which invent too many words",
    classic=True,
)
def plain_dice():
    return {"temperature": 1.0}
