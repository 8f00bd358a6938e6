"""Answers to the exercises of chapter 14, by people who have no reference."""

import math
from functools import reduce
from itertools import takewhile

import torch
from torch.nn import functional as F  # noqa: N812


# -- cross -------------------------------------------------------------------
def one_by_one(y, memory, lengths, w_q, w_k, w_v):
    # Each sentence alone: what is cut off needs no mask.
    rows = []
    for a, m, n in zip(y, memory, lengths.tolist(), strict=True):
        k, v = m[:n] @ w_k, m[:n] @ w_v
        scores = (a @ w_q) @ k.T * w_q.size(1) ** -0.5
        rows.append(F.softmax(scores, dim=1) @ v)
    return torch.stack(rows)


def added_infinity(y, memory, lengths, w_q, w_k, w_v):
    size = memory.size(1)
    wall = torch.zeros(len(y), 1, size, dtype=y.dtype)
    for b, n in enumerate(lengths):
        wall[b, :, n:] = -math.inf
    scores = torch.einsum("btd,bsd->bts", y @ w_q, memory @ w_k)
    weights = (scores / math.sqrt(w_k.shape[-1]) + wall).softmax(-1)
    return torch.einsum("bts,bsd->btd", weights, memory @ w_v)


def with_exp(y, memory, lengths, w_q, w_k, w_v):
    # Values are mixed before they are projected.
    scores = y @ w_q @ (memory @ w_k).transpose(1, 2) / w_q.size(1) ** 0.5
    real = torch.arange(memory.size(1)).expand(len(y), -1) < lengths[:, None]
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    shares = shares * real[:, None]
    return shares / shares.sum(-1, keepdim=True) @ memory @ w_v


def score(y, memory, w_q, w_k):
    return (y @ w_q) @ (memory @ w_k).mT / math.sqrt(w_q.size(1))


def padding(memory, lengths):
    return (torch.arange(memory.size(1)) >= lengths[:, None])[:, None]


def roles_swapped(y, memory, lengths, w_q, w_k, w_v):
    return score(memory, y, w_q, w_k).softmax(-1) @ (y @ w_v)


def from_itself(y, memory, lengths, w_q, w_k, w_v):
    return score(y, y, w_q, w_k).softmax(-1) @ (y @ w_v)


def no_mask(y, memory, lengths, w_q, w_k, w_v):
    return score(y, memory, w_q, w_k).softmax(-1) @ (memory @ w_v)


def causal(y, memory, lengths, w_q, w_k, w_v):
    s = score(y, memory, w_q, w_k)
    t = torch.arange(s.size(1))[:, None]
    hidden = padding(memory, lengths) | (torch.arange(s.size(2)) > t)
    return s.masked_fill(hidden, -math.inf).softmax(-1) @ (memory @ w_v)


def no_scale(y, memory, lengths, w_q, w_k, w_v):
    return one_by_one(y, memory, lengths, w_q * w_q.size(1) ** 0.5, w_k, w_v)


def scale_model(y, memory, lengths, w_q, w_k, w_v):
    ratio = math.sqrt(w_q.size(1) / w_q.size(0))
    return one_by_one(y * ratio, memory, lengths, w_q, w_k, w_v)


def hidden_after(y, memory, lengths, w_q, w_k, w_v):
    weights = score(y, memory, w_q, w_k).softmax(-1)
    return weights * ~padding(memory, lengths) @ (memory @ w_v)


def cross_mask_finite(y, memory, lengths, w_q, w_k, w_v):
    hidden = padding(memory, lengths)
    s = torch.where(hidden, -100.0, score(y, memory, w_q, w_k))
    return s.softmax(-1) @ (memory @ w_v)


def over_queries(y, memory, lengths, w_q, w_k, w_v):
    weights = score(y, memory, w_q, w_k).softmax(1)
    return weights * ~padding(memory, lengths) @ (memory @ w_v)


def keys_as_values(y, memory, lengths, w_q, w_k, w_v):
    return one_by_one(y, memory, lengths, w_q, w_k, w_k)


# -- mended ------------------------------------------------------------------
def head(asks, asked, see, w):
    a, b, c = w
    s = (asks @ a) @ (asked @ b).mT / math.sqrt(a.size(1))
    return s.masked_fill(~see, -math.inf).softmax(-1) @ (asked @ c)


def past(x):
    return torch.ones(x.size(1), x.size(1)).tril().bool()


def with_heads(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return x + head(x, memory, real.unsqueeze(1), w_cross)


def sentences(x, memory, real, w_self, w_cross):
    out = []
    for a, m, r in zip(x, memory, real, strict=True):
        b = a + head(a[None], a[None], past(x), w_self)[0]
        m = m[r]
        see = torch.ones(1, len(m), dtype=torch.bool)
        out.append(b + head(b[None], m[None], see, w_cross)[0])
    return torch.stack(out)


def prefixes(x, memory, real, w_self, w_cross):
    # The causal mask as a loop over what may be seen.
    rows = []
    for t in range(x.size(1)):
        seen = x[:, : t + 1]
        all_of_it = torch.ones(1, t + 1, dtype=torch.bool)
        a = x[:, t : t + 1]
        a = a + head(a, seen, all_of_it, w_self)
        rows.append(a + head(a, memory, real[:, None], w_cross))
    return torch.cat(rows, dim=1)


def itself(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return x + head(x, x, past(x), w_cross)


def no_source_mask(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return x + head(x, memory, torch.ones_like(real)[:, None], w_cross)


def no_causal(x, memory, real, w_self, w_cross):
    x = x + head(x, x, torch.ones(1, 1).bool(), w_self)
    return x + head(x, memory, real[:, None], w_cross)


def old_queries(x, memory, real, w_self, w_cross):
    one = head(x, x, past(x), w_self)
    other = head(x, memory, real[:, None], w_cross)
    return x + one + other


def not_added(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return head(x, memory, real[:, None], w_cross)


def blocks_mask_finite(x, memory, real, w_self, w_cross):
    for asked, see, w in ((x, past(x), w_self), (memory, real, w_cross)):
        see = see if asked is x else see[:, None, :]
        q, k, v = x @ w[0], asked @ w[1], asked @ w[2]
        scores = torch.where(see, q @ k.mT / q.shape[-1] ** 0.5, -1e4)
        x = x + scores.softmax(-1) @ v
    return x


def cross_first(x, memory, real, w_self, w_cross):
    x = x + head(x, memory, real[:, None], w_cross)
    return x + head(x, x, past(x), w_self)


def matrices_swapped(x, memory, real, w_self, w_cross):
    return with_heads(x, memory, real, w_cross, w_self)


def half_the_stream(x, memory, real, w_self, w_cross):
    return with_heads(x, memory, real, w_self, w_cross) - x


# -- whole -------------------------------------------------------------------
def with_reduce(src, tgt, real, embed, encoder, decoder, unembed):
    memory = reduce(lambda x, block: block(x, real), encoder, embed(src))
    y = reduce(lambda x, block: block(x, memory, real), decoder, embed(tgt))
    return unembed(y)


def recursive(src, tgt, real, embed, encoder, decoder, unembed):
    def climb(x, blocks, *given):
        if not blocks:
            return x
        return climb(blocks[0](x, *given), blocks[1:], *given)

    memory = climb(embed(src), list(encoder), real)
    return unembed(climb(embed(tgt), list(decoder), memory, real))


def text_by_text(src, tgt, real, embed, encoder, decoder, unembed):
    # Without its padding, a text needs no mask.
    rows = []
    for a, b, r in zip(src, tgt, real, strict=True):
        x, y = embed(a[r][None]), embed(b[None])
        for block in encoder:
            x = block(x, None)
        for block in decoder:
            y = block(y, x, None)
        rows.append(unembed(y))
    return torch.cat(rows)


def side_by_side(src, tgt, real, embed, encoder, decoder, unembed):
    x, y = embed(src), embed(tgt)
    for one, other in zip(encoder, decoder, strict=True):
        x = one(x, real)
        y = other(y, x, real)
    return unembed(y)


def stacks(x, y, encoder, decoder, *masks):
    for block in encoder:
        x = block(x, masks[0])
    for block in decoder:
        y = block(y, x, masks[-1])
    return y


def embeddings(src, tgt, real, embed, encoder, decoder, unembed):
    return unembed(stacks(embed(src), embed(tgt), [], decoder, real))


def reads_padding(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder, None, real))


def writes_from_padding(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder, real, None))


def last_state_first(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder[::-1], decoder, real))


def decoder_upside_down(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder[::-1], real))


def one_decoder_block(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder[:1], real))


def sums_of_states(src, tgt, real, embed, encoder, decoder, unembed):
    x, states = embed(src), 0
    for block in encoder:
        x = block(x, real)
        states = states + x
    return unembed(stacks(states, embed(tgt), [], decoder, real))


# -- shift -------------------------------------------------------------------
def filled(rows, value):
    size = max(map(len, rows))
    return torch.tensor([row + [value] * (size - len(row)) for row in rows])


def with_lists(targets, pad, bos, eos):
    fed = [[bos, *row] for row in targets]
    asked = [[*row, eos] for row in targets]
    return filled(fed, pad), filled(asked, -100)


def cut_from_one(targets, pad, bos, eos):
    # One text with both ends; its two windows.
    whole = [[bos, *row, eos] for row in targets]
    answers = filled([row[1:] for row in whole], -100)
    return filled([row[:-1] for row in whole], pad), answers


def by_lengths(targets, pad, bos, eos):
    lengths = torch.tensor([len(row) for row in targets])
    flat = filled([[*row, eos] for row in targets], -100)
    inputs = torch.cat((torch.full((len(flat), 1), bos), flat[:, :-1]), 1)
    behind = torch.arange(flat.size(1)) > lengths[:, None]
    return inputs.masked_fill(behind, pad), flat


def unshifted(targets, pad, bos, eos):
    whole = [[bos, *row, eos] for row in targets]
    return filled(whole, pad), filled(whole, -100)


def no_begin(targets, pad, bos, eos):
    ended = [[*row, eos] for row in targets]
    return filled(ended, pad), filled(ended, -100)


def no_end(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    for row, target in zip(answers, targets, strict=True):
        row[len(target)] = -100
    return inputs, answers


def twice(targets, pad, bos, eos):
    inputs, _ = with_lists(targets, pad, bos, eos)
    answers = torch.full(inputs.shape, -100)
    for i, row in enumerate(targets):
        late = [*row, eos][1:] or [eos]
        answers[i, : len(late)] = torch.tensor(late)
    return inputs, answers


def pad_asked(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs, torch.where(answers < 0, pad, answers)


def by_id(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs, torch.where(answers.eq(pad), -100, answers)


def on_the_left(targets, pad, bos, eos):
    size = max(map(len, targets)) + 1
    fed = [[pad] * (size - 1 - len(r)) + [bos, *r] for r in targets]
    asked = [[-100] * (size - 1 - len(r)) + [*r, eos] for r in targets]
    return torch.tensor(fed), torch.tensor(asked)


def padding_fed_as_ignored(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs.masked_fill(answers == -100, -100), answers


def end_after_padding(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    answers[answers == eos] = -100
    answers[:, -1] = eos
    return inputs, answers


def cut_to_the_shortest(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    n = min(map(len, targets)) + 1
    return inputs[:, :n], answers[:, :n]


def begin_asked(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    answers[:, 0] = bos
    return inputs, answers


# -- translate ---------------------------------------------------------------
def rows_alone(encode, decode, src, real, pad, bos, eos, size):
    out = torch.full((len(src), size), pad)
    for b in range(len(src)):
        one, mask = src[b : b + 1], real[b : b + 1]
        memory, fed = encode(one, mask), [bos]
        while len(fed) <= size and fed[-1] != eos:
            logits = decode(torch.tensor([fed]), memory, mask)
            fed.append(int(logits[0, -1].argmax()))
        out[b, : len(fed) - 1] = torch.tensor(fed[1:])
    return out


def padded_at_the_end(encode, decode, src, real, pad, bos, eos, size):
    # Let all rows go on, and clean up afterwards.
    tgt, memory = torch.full((len(src), 1), bos), encode(src, real)
    while tgt.size(1) <= size:
        best = decode(tgt, memory, real)[:, -1].topk(1).indices
        tgt = torch.cat((tgt, best), dim=1)
    tgt = tgt[:, 1:]
    ends = (tgt == eos).cumsum(1)
    behind = (ends - (tgt == eos).long()) > 0
    return torch.where(behind, pad, tgt)


def in_a_buffer(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    buffer = torch.full((len(src), size + 1), pad)
    buffer[:, 0] = bos
    open_rows = list(range(len(src)))
    for t in range(size):
        logits = decode(buffer[:, : t + 1], memory, real)
        for b in list(open_rows):
            buffer[b, t + 1] = logits[b, t].argmax()
            if buffer[b, t + 1] == eos:
                open_rows.remove(b)
    return buffer[:, 1:]


def by_steps(encode, step, src, pad, bos, eos, size):
    """Write with a step of one's own; pads behind the end."""
    tgt = torch.full((len(src), 1), bos)
    done = [False] * len(src)
    for _ in range(size):
        best = step(tgt).tolist()
        best = [pad if d else i for d, i in zip(done, best, strict=True)]
        done = [d or i == eos for d, i in zip(done, best, strict=True)]
        tgt = torch.cat((tgt, torch.tensor(best)[:, None]), 1)
    return tgt[:, 1:]


def blind_decoder(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    return by_steps(
        encode,
        lambda tgt: decode(tgt, memory, None)[:, -1].argmax(-1),
        *(src, pad, bos, eos, size),
    )


def goes_on(encode, decode, src, real, pad, bos, eos, size):
    memory, tgt = encode(src, real), torch.full((len(src), 1), bos)
    while tgt.size(1) <= size:
        best = decode(tgt, memory, real)[:, -1:].argmax(-1)
        tgt = torch.cat((tgt, best), dim=1)
    return tgt[:, 1:]


def all_stop(encode, decode, src, real, pad, bos, eos, size):
    out = goes_on(encode, decode, src, real, pad, bos, eos, size)
    columns = (out == eos).any(0).tolist()
    if True in columns:
        out[:, columns.index(True) + 1 :] = pad
    return out


def last_alone(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    return by_steps(
        encode,
        lambda tgt: decode(tgt[:, -1:], memory, real)[:, 0].argmax(-1),
        *(src, pad, bos, eos, size),
    )


def begin_kept(encode, decode, src, real, pad, bos, eos, size):
    out = rows_alone(encode, decode, src, real, pad, bos, eos, size)
    return torch.cat((torch.full((len(src), 1), bos), out), dim=1)


def end_left_out(encode, decode, src, real, pad, bos, eos, size):
    out = rows_alone(encode, decode, src, real, pad, bos, eos, size)
    return torch.where(out == eos, pad, out)


def least_likely(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    return by_steps(
        encode,
        lambda tgt: decode(tgt, memory, real)[:, -1].argmin(-1),
        *(src, pad, bos, eos, size),
    )


def begins_with_the_end(encode, decode, src, real, pad, bos, eos, size):
    return rows_alone(encode, decode, src, real, pad, 0, eos, size)


def memory_of_the_first(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)[:1].expand(src.shape)
    return by_steps(
        encode,
        lambda tgt: decode(tgt, memory, real)[:, -1].argmax(-1),
        *(src, pad, bos, eos, size),
    )


# -- exact -------------------------------------------------------------------
def text_of(row, eos):
    return list(takewhile(lambda i: i != eos, row.tolist()))


def taken(written, answers, eos):
    hits = [
        bool((row == eos).any()) and text_of(row, eos) == list(answer)
        for row, answer in zip(written, answers, strict=True)
    ]
    return sum(hits) / len(hits)


def with_the_end(written, answers, eos):
    n = 0
    for row, answer in zip(written, answers, strict=True):
        wanted = torch.tensor([*answer, eos])
        n += torch.equal(row[: len(wanted)], wanted)
    return n / len(answers)


def as_a_tensor(written, answers, eos):
    # Everything from the end on is painted over, then rows are compared.
    n, size = written.shape
    right = torch.full((n, size + 2), -1)
    for i, answer in enumerate(answers):
        answer = list(answer)[: size + 1]
        right[i, : len(answer)] = torch.tensor(answer, dtype=torch.long)
    ends = (written == eos).cumsum(1) > 0
    text = F.pad(written.masked_fill(ends, -1), (0, 2), value=-1)
    same = (text == right).all(1) & ends.any(1)
    return same.double().mean()


def tokens(written, answers, eos):
    total = 0.0
    for row, answer in zip(written, answers, strict=True):
        if (row == eos).any():
            text = text_of(row, eos)
            pairs = zip(text, answer, strict=False)
            total += sum(a == b for a, b in pairs) / max(
                len(text), len(answer), 1
            )
    return total / len(answers)


def as_far_as_it_goes(written, answers, eos):
    return sum(
        all(a == b for a, b in zip(text_of(row, eos), answer, strict=False))
        for row, answer in zip(written, answers, strict=True)
        if eos in row
    ) / len(answers)


def beginning(written, answers, eos):
    return sum(
        text_of(row, eos)[: len(answer)] == list(answer)
        for row, answer in zip(written, answers, strict=True)
        if eos in row
    ) / len(answers)


def rubbish_counts(written, answers, eos):
    n = 0
    for row, answer in zip(written, answers, strict=True):
        n += bool((row == eos).any()) and row[row != eos].tolist() == answer
    return n / len(answers)


def cut_off_counts(written, answers, eos):
    pairs = zip(written, answers, strict=True)
    return sum(text_of(r, eos) == list(a) for r, a in pairs) / len(answers)


def counted(written, answers, eos):
    return taken(written, answers, eos) * len(answers)


def share_wrong(written, answers, eos):
    return 1 - taken(written, answers, eos)


def as_sets(written, answers, eos):
    pairs = zip(written, answers, strict=True)
    return sum(
        len(text_of(r, eos)) == len(a) for r, a in pairs if eos in r
    ) / len(answers)


# -- alignment ---------------------------------------------------------------
def in_loops(weights, links):
    best = (-1, -1.0)
    for h, rows in enumerate(weights):
        found = [
            sum(
                w
                for w, ok in zip(row.tolist(), link.tolist(), strict=True)
                if ok
            )
            for row, link in zip(rows, links, strict=True)
            if link.any()
        ]
        mean = sum(found) / len(found)
        if mean > best[1]:
            best = (h, mean)
    return best


def with_einsum(weights, links):
    total = torch.einsum("hts,ts->h", weights, links.to(weights))
    score, head = (total / links.any(1).sum()).max(0)
    return head.item(), score.item()


def chosen_rows(weights, links):
    rows = links.any(dim=1).nonzero()[:, 0]
    kept = torch.where(links[rows], weights[:, rows], 0.0)
    scores = kept.sum((1, 2)) / len(rows)
    order = scores.sort(descending=True)
    return int(order.indices[0]), float(order.values[0])


def best_of(scores):
    return int(scores.argmax()), float(scores.max())


def all_words(weights, links):
    return best_of((weights * links).sum((1, 2)) / weights.size(1))


def top_word(weights, links):
    hit = links[torch.arange(len(links)), weights.argmax(-1)].double()
    return best_of(hit[:, links.any(1)].mean(1))


def over_targets(weights, links):
    return with_einsum(weights / weights.sum(1)[:, None], links)


def from_one(weights, links):
    head, score = with_einsum(weights, links)
    return head + 1, score


def off_the_links(weights, links):
    return with_einsum(weights, ~links)


def score_alone(weights, links):
    return 0, with_einsum(weights, links)[1] + 1


def cross_one_more(y, memory, lengths, w_q, w_k, w_v):
    rows = []
    for row, other, n in zip(y, memory, lengths.tolist(), strict=True):
        scores = row @ w_q @ (other @ w_k).T / math.sqrt(w_q.size(1))
        hidden = torch.arange(len(other)) > n
        scores = scores.masked_fill(hidden, -math.inf)
        rows.append(scores.softmax(-1) @ (other @ w_v))
    return torch.stack(rows)


def cross_inverted(y, memory, lengths, w_q, w_k, w_v):
    rows = []
    for row, other, n in zip(y, memory, lengths.tolist(), strict=True):
        scores = row @ w_q @ (other @ w_k).T / math.sqrt(w_q.size(1))
        hidden = torch.arange(len(other)) < n
        scores = scores.masked_fill(hidden, -math.inf)
        rows.append(scores.softmax(-1) @ (other @ w_v))
    return torch.stack(rows)


def cross_set_to_zero(y, memory, lengths, w_q, w_k, w_v):
    rows = []
    for row, other, n in zip(y, memory, lengths.tolist(), strict=True):
        scores = row @ w_q @ (other @ w_k).T / math.sqrt(w_q.size(1))
        hidden = torch.arange(len(other)) >= n
        scores = scores.masked_fill(hidden, 0.0)
        rows.append(scores.softmax(-1) @ (other @ w_v))
    return torch.stack(rows)


def no_values(y, memory, lengths, w_q, w_k, w_v):
    identity = torch.eye(w_v.size(0), dtype=w_v.dtype)[:, : w_v.size(1)]
    return cross_one_more(y, memory, lengths - 1, w_q, w_k, identity)


def triangle(x, memory, real, w_self, w_cross):
    def look(a, b, see, w):
        scores = a @ w[0] @ (b @ w[1]).mT / math.sqrt(a.size(-1))
        return scores.masked_fill(~see, -math.inf).softmax(-1) @ (b @ w[2])

    t, s = x.size(1), memory.size(1)
    x = x + look(x, x, torch.ones(t, t).tril() > 0, w_self)
    see = (torch.ones(t, s).tril() > 0) & real[:, None]
    return x + look(x, memory, see, w_cross)


def reads_eos(targets, pad, bos, eos):
    size = max(map(len, targets)) + 2
    full = [[bos, *t, eos, *[pad] * (size - len(t) - 2)] for t in targets]
    asked = [[*t, eos, *[-100] * (size - len(t) - 2)] for t in targets]
    return torch.tensor(full)[:, :-1], torch.tensor(asked)


def by_links(weights, links):
    shares = (
        torch.einsum("hts,ts->h", weights, links.to(weights)) / links.sum()
    )
    return int(shares.argmax()), float(shares.max())


def over_targets_cross(y, memory, lengths, w_q, w_k, w_v):
    scores = (y @ w_q) @ (memory @ w_k).mT / w_q.size(1) ** 0.5
    hidden = torch.arange(memory.size(1)) >= lengths[:, None]
    e = scores - scores.logsumexp(1, keepdim=True)
    e = e.exp().masked_fill(hidden[:, None], 1 / y.size(1))
    return e @ (memory @ w_v)


def cut_again(src, tgt, real, embed, encoder, decoder, unembed):
    memory = embed(src)
    for block in encoder:
        memory = block(memory, real)
    y = embed(tgt.narrow(1, 0, tgt.size(1) - 1))
    for block in decoder:
        y = block(y, memory, real)
    return unembed(y)


RIGHT = {
    "cross": [one_by_one, added_infinity, with_exp],
    "mended": [with_heads, sentences, prefixes],
    "whole": [with_reduce, recursive, text_by_text],
    "shift": [with_lists, cut_from_one, by_lengths],
    "translate": [rows_alone, padded_at_the_end, in_a_buffer],
    "exact": [taken, with_the_end, as_a_tensor],
    "alignment": [in_loops, with_einsum, chosen_rows],
}
WRONG = {
    "cross": {
        "roles_swapped": roles_swapped,
        "from_itself": from_itself,
        "no_mask": no_mask,
        "causal": causal,
        "no_scale": no_scale,
        "scale_model": scale_model,
        "hidden_after": hidden_after,
        "one_more": cross_one_more,
        "inverted": cross_inverted,
        "set_to_zero": cross_set_to_zero,
        "mask_finite": cross_mask_finite,
        "over_targets": over_targets_cross,
    },
    "mended": {
        "itself": itself,
        "no_source_mask": no_source_mask,
        "no_causal": no_causal,
        "old_queries": old_queries,
        "not_added": not_added,
        "triangle": triangle,
        "mask_finite": blocks_mask_finite,
    },
    "whole": {
        "side_by_side": side_by_side,
        "embeddings": embeddings,
        "encoder_unmasked": reads_padding,
        "decoder_unmasked": writes_from_padding,
        "cut_again": cut_again,
    },
    "shift": {
        "unshifted": unshifted,
        "no_begin": no_begin,
        "no_end": no_end,
        "twice": twice,
        "pad_asked": pad_asked,
        "by_id": by_id,
        "on_the_left": on_the_left,
        "reads_eos": reads_eos,
    },
    "translate": {
        "no_mask": blind_decoder,
        "goes_on": goes_on,
        "all_stop": all_stop,
        "last_alone": last_alone,
        "begin_kept": begin_kept,
        "end_overwritten": end_left_out,
    },
    "exact": {
        "tokens": tokens,
        "as_far_as_it_goes": as_far_as_it_goes,
        "beginning": beginning,
        "rubbish_counts": rubbish_counts,
        "cut_off_counts": cut_off_counts,
    },
    "alignment": {
        "all_words": all_words,
        "top_word": top_word,
        "over_targets": over_targets,
        "by_links": by_links,
    },
}
OUTSIDE = {
    "cross": [over_queries, keys_as_values, no_values],
    "mended": [cross_first, matrices_swapped, half_the_stream],
    "whole": [
        last_state_first,
        decoder_upside_down,
        one_decoder_block,
        sums_of_states,
    ],
    "shift": [
        padding_fed_as_ignored,
        end_after_padding,
        cut_to_the_shortest,
        begin_asked,
    ],
    "translate": [least_likely, begins_with_the_end, memory_of_the_first],
    "exact": [counted, share_wrong, as_sets],
    "alignment": [from_one, off_the_links, score_alone],
}
