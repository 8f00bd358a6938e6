"""Answers to the exercises of chapter 14."""

import itertools
import math
from functools import reduce
from itertools import takewhile, zip_longest

import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- cross -------------------------------------------------------------------


@right("seq2seq/cross")
def cross_sentence_by_sentence(y, memory, lengths, w_q, w_k, w_v):
    out = []
    for asks, asked, n in zip(y, memory, lengths.tolist(), strict=True):
        asked = asked[:n]
        scores = asks @ w_q @ (asked @ w_k).T
        out.append((scores / w_q.size(1) ** 0.5).softmax(1) @ asked @ w_v)
    return torch.stack(out)


@right("seq2seq/cross")
def padding_cut_off(y, memory, lengths, w_q, w_k, w_v):
    out = []
    for asks, asked, n in zip(y, memory, lengths.tolist(), strict=True):
        asked = asked[:n]
        scores = (asks @ w_q) @ (asked @ w_k).T / w_q.shape[1] ** 0.5
        out.append(torch.softmax(scores, 1) @ (asked @ w_v))
    return torch.stack(out)


@right("seq2seq/cross")
def straight_from_vectors(y, memory, lengths, w_q, w_k, w_v):
    scores = torch.einsum("btd,de,fe,bsf->bts", y, w_q, w_k, memory)
    scores = scores / w_k.size(1) ** 0.5
    real = torch.arange(memory.size(1)) < lengths.unsqueeze(-1)
    scores = torch.where(real.unsqueeze(1), scores, -torch.inf)
    e = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return torch.einsum("bts,bsf,fe->bte", e / e.sum(-1, True), memory, w_v)


@right("seq2seq/cross")
def one_by_one(y, memory, lengths, w_q, w_k, w_v):
    # Each sentence alone: what is cut off needs no mask.
    rows = []
    for a, m, n in zip(y, memory, lengths.tolist(), strict=True):
        k, v = m[:n] @ w_k, m[:n] @ w_v
        scores = (a @ w_q) @ k.T * w_q.size(1) ** -0.5
        rows.append(F.softmax(scores, dim=1) @ v)
    return torch.stack(rows)


@right("seq2seq/cross")
def added_infinity(y, memory, lengths, w_q, w_k, w_v):
    size = memory.size(1)
    wall = torch.zeros(len(y), 1, size, dtype=y.dtype)
    for b, n in enumerate(lengths):
        wall[b, :, n:] = -math.inf
    scores = torch.einsum("btd,bsd->bts", y @ w_q, memory @ w_k)
    weights = (scores / math.sqrt(w_k.shape[-1]) + wall).softmax(-1)
    return torch.einsum("bts,bsd->btd", weights, memory @ w_v)


@right("seq2seq/cross")
def with_exp(y, memory, lengths, w_q, w_k, w_v):
    # Values are mixed before they are projected.
    scores = y @ w_q @ (memory @ w_k).transpose(1, 2) / w_q.size(1) ** 0.5
    real = torch.arange(memory.size(1)).expand(len(y), -1) < lengths[:, None]
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    shares = shares * real[:, None]
    return shares / shares.sum(-1, keepdim=True) @ memory @ w_v


def _cross(
    y,
    memory,
    lengths,
    w_q,
    w_k,
    w_v,
    extra=0,
    root=None,
    axis=-1,
    hidden=-torch.inf,
):
    q, k, v = y @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / (root or q.size(-1)) ** 0.5
    real = torch.arange(k.size(1)) < lengths[:, None] + extra
    scores = scores.masked_fill(~real[:, None], hidden)
    return scores.softmax(axis) @ v


@wrong("seq2seq/cross", "one_more")
def one_padding_seen(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, extra=1)


@wrong("seq2seq/cross", "scale_model")
def root_of_width(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, root=y.size(-1))


@wrong("seq2seq/cross", "no_scale")
def cross_not_divided(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, root=1)


@wrong("seq2seq/cross", "no_mask")
def lengths_ignored(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, extra=memory.size(1))


@wrong("seq2seq/cross", "roles_swapped")
def memory_asks(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = memory @ w_q, y @ w_k, y @ w_v
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


@wrong("seq2seq/cross", "causal")
def causal_source(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = y @ w_q, memory @ w_k, memory @ w_v
    T, S = q.size(1), k.size(1)
    real = torch.arange(S) < lengths[:, None]
    mask = real[:, None] & torch.ones(T, S, dtype=torch.bool).tril()
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


@wrong("seq2seq/cross", "over_targets")
def over_targets(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, axis=1, hidden=-1e9)


def score(y, memory, w_q, w_k):
    return (y @ w_q) @ (memory @ w_k).mT / math.sqrt(w_q.size(1))


@wrong("seq2seq/cross", "from_itself")
def from_itself(y, memory, lengths, w_q, w_k, w_v):
    return score(y, y, w_q, w_k).softmax(-1) @ (y @ w_v)


def padding(memory, lengths):
    return (torch.arange(memory.size(1)) >= lengths[:, None])[:, None]


@wrong("seq2seq/cross", "hidden_after")
def hidden_after(y, memory, lengths, w_q, w_k, w_v):
    weights = score(y, memory, w_q, w_k).softmax(-1)
    return weights * ~padding(memory, lengths) @ (memory @ w_v)


@wrong("seq2seq/cross", "inverted")
def cross_inverted(y, memory, lengths, w_q, w_k, w_v):
    rows = []
    for row, other, n in zip(y, memory, lengths.tolist(), strict=True):
        scores = row @ w_q @ (other @ w_k).T / math.sqrt(w_q.size(1))
        hidden = torch.arange(len(other)) < n
        scores = scores.masked_fill(hidden, -math.inf)
        rows.append(scores.softmax(-1) @ (other @ w_v))
    return torch.stack(rows)


@wrong("seq2seq/cross", "set_to_zero")
def cross_set_to_zero(y, memory, lengths, w_q, w_k, w_v):
    rows = []
    for row, other, n in zip(y, memory, lengths.tolist(), strict=True):
        scores = row @ w_q @ (other @ w_k).T / math.sqrt(w_q.size(1))
        hidden = torch.arange(len(other)) >= n
        scores = scores.masked_fill(hidden, 0.0)
        rows.append(scores.softmax(-1) @ (other @ w_v))
    return torch.stack(rows)


@wrong("seq2seq/cross", "mask_finite")
def cross_mask_finite(y, memory, lengths, w_q, w_k, w_v):
    hidden = padding(memory, lengths)
    s = torch.where(hidden, -100.0, score(y, memory, w_q, w_k))
    return s.softmax(-1) @ (memory @ w_v)


@wrong("seq2seq/cross")
def hidden_by_five(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, hidden=-5.0)


# The memory asks, the target is asked.
@wrong("seq2seq/cross")
def cross_roles_swapped(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = memory @ w_q, y @ w_k, y @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    real = torch.arange(memory.size(1)) < lengths[:, None]
    scores = scores.masked_fill(~real[:, :, None], -math.inf)
    return scores.softmax(-1) @ v


@wrong("seq2seq/cross")
def keys_as_values(y, memory, lengths, w_q, w_k, w_v):
    return one_by_one(y, memory, lengths, w_q, w_k, w_k)


# -- mended ------------------------------------------------------------------


@right("seq2seq/mended")
def target_by_target(x, memory, real, w_self, w_cross):
    def look(query, past, w):
        weights = (past @ w[1]) @ (query @ w[0]) / w[0].size(1) ** 0.5
        return weights.softmax(0) @ (past @ w[2])

    rows = []
    for b in range(len(x)):
        row = []
        for t in range(x.size(1)):
            a = x[b, t] + look(x[b, t], x[b, : t + 1], w_self)
            row.append(a + look(a, memory[b][real[b]], w_cross))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def head(asks, asked, see, w):
    a, b, c = w
    s = (asks @ a) @ (asked @ b).mT / math.sqrt(a.size(1))
    return s.masked_fill(~see, -math.inf).softmax(-1) @ (asked @ c)


def past(x):
    return torch.ones(x.size(1), x.size(1)).tril().bool()


@right("seq2seq/mended")
def with_heads(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return x + head(x, memory, real.unsqueeze(1), w_cross)


@right("seq2seq/mended")
def sentences(x, memory, real, w_self, w_cross):
    out = []
    for a, m, r in zip(x, memory, real, strict=True):
        b = a + head(a[None], a[None], past(x), w_self)[0]
        m = m[r]
        see = torch.ones(1, len(m), dtype=torch.bool)
        out.append(b + head(b[None], m[None], see, w_cross)[0])
    return torch.stack(out)


@right("seq2seq/mended")
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


def _attention(asks, asked, mask, w):
    q, k, v = asks @ w[0], asked @ w[1], asked @ w[2]
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


def _causal(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


@wrong("seq2seq/mended", "no_source_mask")
def source_unmasked(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    everything = torch.ones_like(real)[:, None]
    return x + _attention(x, memory, everything, w_cross)


@wrong("seq2seq/mended", "old_queries")
def side_by_side(x, memory, real, w_self, w_cross):
    own = _attention(x, x, _causal(x.size(1)), w_self)
    return x + own + _attention(x, memory, real[:, None], w_cross)


@wrong("seq2seq/mended", "not_added")
def no_way_around(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    return _attention(x, memory, real[:, None], w_cross)


@wrong("seq2seq/mended", "triangle")
def triangle_on_source(x, memory, real, w_self, w_cross):
    T, S = x.size(1), memory.size(1)
    x = x + _attention(x, x, _causal(T), w_self)
    triangle = torch.ones(T, S, dtype=torch.bool).tril()
    return x + _attention(x, memory, real[:, None] & triangle, w_cross)


@wrong("seq2seq/mended", "itself")
def itself(x, memory, real, w_self, w_cross):
    x = x + head(x, x, past(x), w_self)
    return x + head(x, x, past(x), w_cross)


@wrong("seq2seq/mended", "no_causal")
def no_causal(x, memory, real, w_self, w_cross):
    x = x + head(x, x, torch.ones(1, 1).bool(), w_self)
    return x + head(x, memory, real[:, None], w_cross)


@wrong("seq2seq/mended", "mask_finite")
def blocks_mask_finite(x, memory, real, w_self, w_cross):
    for asked, see, w in ((x, past(x), w_self), (memory, real, w_cross)):
        see = see if asked is x else see[:, None, :]
        q, k, v = x @ w[0], asked @ w[1], asked @ w[2]
        scores = torch.where(see, q @ k.mT / q.shape[-1] ** 0.5, -1e4)
        x = x + scores.softmax(-1) @ v
    return x


# The source asks itself, and its vectors are added to the target's.
@wrong("seq2seq/mended")
def source_asks_itself(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    read = _attention(memory, memory, real[:, None], w_cross)
    return x + read[:, : x.size(1)]


@wrong("seq2seq/mended")
def matrices_swapped(x, memory, real, w_self, w_cross):
    return with_heads(x, memory, real, w_cross, w_self)


@wrong("seq2seq/mended")
def cross_first(x, memory, real, w_self, w_cross):
    x = x + head(x, memory, real[:, None], w_cross)
    return x + head(x, x, past(x), w_self)


# -- whole -------------------------------------------------------------------


@right("seq2seq/whole")
def two_folds(src, tgt, real, embed, encoder, decoder, unembed):
    memory = reduce(lambda x, f: f(x, real), encoder, embed(src))
    return unembed(
        reduce(lambda y, f: f(y, memory, real), decoder, embed(tgt))
    )


@right("seq2seq/whole")
def with_reduce(src, tgt, real, embed, encoder, decoder, unembed):
    memory = reduce(lambda x, block: block(x, real), encoder, embed(src))
    y = reduce(lambda x, block: block(x, memory, real), decoder, embed(tgt))
    return unembed(y)


@right("seq2seq/whole")
def recursive(src, tgt, real, embed, encoder, decoder, unembed):
    def climb(x, blocks, *given):
        if not blocks:
            return x
        return climb(blocks[0](x, *given), blocks[1:], *given)

    memory = climb(embed(src), list(encoder), real)
    return unembed(climb(embed(tgt), list(decoder), memory, real))


@right("seq2seq/whole")
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


@wrong("seq2seq/whole", "side_by_side")
def height_by_height(src, tgt, real, embed, encoder, decoder, unembed):
    x, y = embed(src), embed(tgt)
    for read, write in zip(encoder, decoder):
        x = read(x, real)
        y = write(y, x, real)
    return unembed(y)


def stacks(x, y, encoder, decoder, *masks):
    for block in encoder:
        x = block(x, masks[0])
    for block in decoder:
        y = block(y, x, masks[-1])
    return y


@wrong("seq2seq/whole", "decoder_unmasked")
def writes_from_padding(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder, real, None))


@wrong("seq2seq/whole", "encoder_unmasked")
def reads_padding(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder, decoder, None, real))


@wrong("seq2seq/whole", "embeddings")
def embeddings(src, tgt, real, embed, encoder, decoder, unembed):
    return unembed(stacks(embed(src), embed(tgt), [], decoder, real))


@wrong("seq2seq/whole", "cut_again")
def shifted_once_more(src, tgt, real, embed, encoder, decoder, unembed):
    x = embed(src)
    for block in encoder:
        x = block(x, real)
    y = embed(tgt[:, :-1])
    for block in decoder:
        y = block(y, x, real)
    return unembed(y)


@wrong("seq2seq/whole")
def memory_goes_on(src, tgt, real, embed, encoder, decoder, unembed):
    x, y = embed(src), embed(tgt)
    for block in decoder:
        for read in encoder:
            x = read(x, real)
        y = block(y, x, real)
    return unembed(y)


@wrong("seq2seq/whole")
def last_state_first(src, tgt, real, embed, encoder, decoder, unembed):
    vectors = embed(src), embed(tgt)
    return unembed(stacks(*vectors, encoder[::-1], decoder, real))


@wrong("seq2seq/whole")
def sums_of_states(src, tgt, real, embed, encoder, decoder, unembed):
    x, states = embed(src), 0
    for block in encoder:
        x = block(x, real)
        states = states + x
    return unembed(stacks(states, embed(tgt), [], decoder, real))


# -- shift -------------------------------------------------------------------


@right("seq2seq/shift")
def shift_zip_longest(targets, pad, bos, eos):
    inputs = itertools.zip_longest(
        *([bos, *t] for t in targets), fillvalue=pad
    )
    answers = itertools.zip_longest(
        *([*t, eos] for t in targets), fillvalue=-100
    )
    return torch.tensor(list(inputs)).T, torch.tensor(list(answers)).T


@right("seq2seq/shift")
def by_columns(targets, pad, bos, eos):
    inputs = zip_longest(*([bos, *t] for t in targets), fillvalue=pad)
    answers = zip_longest(*([*t, eos] for t in targets), fillvalue=-100)
    return (
        torch.tensor(list(inputs)).T.contiguous(),
        torch.tensor(list(answers)).T.contiguous(),
    )


@right("seq2seq/shift")
def full_tensors(targets, pad, bos, eos):
    size = len(targets), 1 + max((len(t) for t in targets), default=0)
    inputs = torch.full(size, pad, dtype=torch.long)
    answers = torch.full(size, -100, dtype=torch.long)
    inputs[:, 0] = bos
    for i, target in enumerate(targets):
        n = len(target)
        row = torch.tensor(target, dtype=torch.long)
        inputs[i, 1 : n + 1] = row
        answers[i, :n], answers[i, n] = row, eos
    return inputs, answers


@right("seq2seq/shift")
def lists_not_tensors(targets, pad, bos, eos):
    inputs, answers = full_tensors(targets, pad, bos, eos)
    return inputs.tolist(), answers.tolist()


def filled(rows, value):
    size = max(map(len, rows))
    return torch.tensor([row + [value] * (size - len(row)) for row in rows])


@right("seq2seq/shift")
def with_lists(targets, pad, bos, eos):
    fed = [[bos, *row] for row in targets]
    asked = [[*row, eos] for row in targets]
    return filled(fed, pad), filled(asked, -100)


@right("seq2seq/shift")
def cut_from_one(targets, pad, bos, eos):
    # One text with both ends; its two windows.
    whole = [[bos, *row, eos] for row in targets]
    answers = filled([row[1:] for row in whole], -100)
    return filled([row[:-1] for row in whole], pad), answers


@right("seq2seq/shift")
def by_lengths(targets, pad, bos, eos):
    lengths = torch.tensor([len(row) for row in targets])
    flat = filled([[*row, eos] for row in targets], -100)
    inputs = torch.cat((torch.full((len(flat), 1), bos), flat[:, :-1]), 1)
    behind = torch.arange(flat.size(1)) > lengths[:, None]
    return inputs.masked_fill(behind, pad), flat


@wrong("seq2seq/shift", "no_end")
def no_end(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    for row, target in zip(answers, targets, strict=True):
        row[len(target)] = -100
    return inputs, answers


@wrong("seq2seq/shift", "reads_eos")
def reads_eos(targets, pad, bos, eos):
    size = max(map(len, targets)) + 2
    full = [[bos, *t, eos, *[pad] * (size - len(t) - 2)] for t in targets]
    asked = [[*t, eos, *[-100] * (size - len(t) - 2)] for t in targets]
    return torch.tensor(full)[:, :-1], torch.tensor(asked)


@wrong("seq2seq/shift", "by_id")
def by_id(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs, torch.where(answers.eq(pad), -100, answers)


@wrong("seq2seq/shift", "pad_asked")
def pad_asked(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs, torch.where(answers < 0, pad, answers)


@wrong("seq2seq/shift", "unshifted")
def unshifted(targets, pad, bos, eos):
    whole = [[bos, *row, eos] for row in targets]
    return filled(whole, pad), filled(whole, -100)


@wrong("seq2seq/shift", "on_the_left")
def on_the_left(targets, pad, bos, eos):
    size = max(map(len, targets)) + 1
    fed = [[pad] * (size - 1 - len(r)) + [bos, *r] for r in targets]
    asked = [[-100] * (size - 1 - len(r)) + [*r, eos] for r in targets]
    return torch.tensor(fed), torch.tensor(asked)


@wrong("seq2seq/shift", "no_begin")
def no_begin(targets, pad, bos, eos):
    ended = [[*row, eos] for row in targets]
    return filled(ended, pad), filled(ended, -100)


@wrong("seq2seq/shift", "twice")
def twice(targets, pad, bos, eos):
    inputs, _ = with_lists(targets, pad, bos, eos)
    answers = torch.full(inputs.shape, -100)
    for i, row in enumerate(targets):
        late = [*row, eos][1:] or [eos]
        answers[i, : len(late)] = torch.tensor(late)
    return inputs, answers


# Eos is never asked for.
@wrong("seq2seq/shift")
def never_ends(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    inputs = [[bos, *t[:-1]] + [pad] * (longest - len(t)) for t in targets]
    answers = [[*t] + [-100] * (longest - len(t)) for t in targets]
    return torch.tensor(inputs), torch.tensor(answers)


@wrong("seq2seq/shift")
def padding_fed_as_ignored(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    return inputs.masked_fill(answers == -100, -100), answers


@wrong("seq2seq/shift")
def cut_to_the_shortest(targets, pad, bos, eos):
    inputs, answers = with_lists(targets, pad, bos, eos)
    n = min(map(len, targets)) + 1
    return inputs[:, :n], answers[:, :n]


# -- translate ---------------------------------------------------------------


@right("seq2seq/translate")
def each_alone(encode, decode, src, real, pad, bos, eos, size):
    rows = []
    for i in range(len(src)):
        words = real[i : i + 1]
        memory = encode(src[i : i + 1], words)
        text = [bos]
        while len(text) <= size:
            best = decode(torch.tensor([text]), memory, words)[0, -1]
            text.append(int(best.argmax()))
            if text[-1] == eos:
                break
        rows.append(text[1:] + [pad] * (size + 1 - len(text)))
    return torch.tensor(rows)


@right("seq2seq/translate")
def cut_afterwards(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    tgt = src.new_full((src.size(0), 1), bos)
    for _ in range(size):
        best = decode(tgt, memory, real)[:, -1].argmax(-1)
        tgt = torch.cat([tgt, best.unsqueeze(1)], 1)
    written = tgt[:, 1:]
    ends = (written == eos).long()
    behind = ends.cumsum(1) - ends > 0
    return written.masked_fill(behind, pad)


@right("seq2seq/translate")
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


@right("seq2seq/translate")
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


@right("seq2seq/translate")
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


@wrong("seq2seq/translate", "goes_on")
def translate_goes_on(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    tgt = torch.full((len(src), 1), bos)
    for _ in range(size):
        best = decode(tgt, memory, real)[:, -1].argmax(-1)
        tgt = torch.cat([tgt, best[:, None]], dim=1)
    return tgt[:, 1:]


def _loop(
    encode,
    decode,
    src,
    real,
    pad,
    bos,
    eos,
    size,
    *,
    reads_real=True,
    early=False,
    after_eos=True,
    over=torch.all,
):
    memory = encode(src, real)
    tgt = torch.full((len(src), 1), bos)
    done = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(size):
        logits = decode(tgt, memory, real if reads_real else None)
        best = logits[:, -1].argmax(-1)
        if early:
            done = done | (best == eos)
        if after_eos:
            best = torch.where(done, pad, best)
        done = done | (best == eos)
        tgt = torch.cat([tgt, best[:, None]], 1)
        if over is not None and over(done):
            break
    rest = torch.full((len(src), size + 1 - tgt.size(1)), pad)
    return torch.cat([tgt, rest], 1)[:, 1:]


@wrong("seq2seq/translate", "end_overwritten")
def eos_overwritten(encode, decode, src, real, pad, bos, eos, size):
    return _loop(encode, decode, src, real, pad, bos, eos, size, early=True)


@wrong("seq2seq/translate", "no_mask")
def still_reads_padding(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode, decode, src, real, pad, bos, eos, size, reads_real=False
    )


@wrong("seq2seq/translate", "all_stop")
def one_stops_all(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode, decode, src, real, pad, bos, eos, size, over=torch.any
    )


@wrong("seq2seq/translate", "begin_kept")
def with_bos(encode, decode, src, real, pad, bos, eos, size):
    out = _loop(encode, decode, src, real, pad, bos, eos, size)
    return torch.cat([torch.full((len(src), 1), bos), out], 1)


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


@wrong("seq2seq/translate", "last_alone")
def last_alone(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    return by_steps(
        encode,
        lambda tgt: decode(tgt[:, -1:], memory, real)[:, 0].argmax(-1),
        *(src, pad, bos, eos, size),
    )


# Stops when all rows have ended, and returns fewer columns than size.
@wrong("seq2seq/translate")
def fewer_columns(encode, decode, src, real, pad, bos, eos, size):
    out = _loop(encode, decode, src, real, pad, bos, eos, size)
    ends = (out == eos).any(1)
    if ends.all():
        return out[:, : int((out == eos).int().argmax(1).max()) + 1]
    return out


@wrong("seq2seq/translate")
def begins_with_the_end(encode, decode, src, real, pad, bos, eos, size):
    return rows_alone(encode, decode, src, real, pad, 0, eos, size)


@wrong("seq2seq/translate")
def least_likely(encode, decode, src, real, pad, bos, eos, size):
    memory = encode(src, real)
    return by_steps(
        encode,
        lambda tgt: decode(tgt, memory, real)[:, -1].argmin(-1),
        *(src, pad, bos, eos, size),
    )


# -- exact -------------------------------------------------------------------


@right("seq2seq/exact")
def as_strings(written, answers, eos):
    rows = [" ".join(map(str, row)) + " " for row in written.tolist()]
    hits = 0
    for row, answer in zip(rows, answers, strict=True):
        wanted = "".join(f"{int(i)} " for i in [*answer, eos])
        hits += row.startswith(wanted) and eos not in answer
    return hits / len(rows)


@right("seq2seq/exact")
def by_index(written, answers, eos):
    def cut(row):
        try:
            return row[: row.index(eos)]
        except ValueError:
            return None

    rows = [cut(row) for row in written.tolist()]
    right_ones = [
        row == list(answer) for row, answer in zip(rows, answers, strict=True)
    ]
    return sum(right_ones) / len(right_ones)


def text_of(row, eos):
    return list(takewhile(lambda i: i != eos, row.tolist()))


@right("seq2seq/exact")
def taken(written, answers, eos):
    hits = [
        bool((row == eos).any()) and text_of(row, eos) == list(answer)
        for row, answer in zip(written, answers, strict=True)
    ]
    return sum(hits) / len(hits)


@right("seq2seq/exact")
def with_the_end(written, answers, eos):
    n = 0
    for row, answer in zip(written, answers, strict=True):
        wanted = torch.tensor([*answer, eos])
        n += torch.equal(row[: len(wanted)], wanted)
    return n / len(answers)


@right("seq2seq/exact")
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


@wrong("seq2seq/exact", "cut_off_counts")
def cut_off_counts(written, answers, eos):
    pairs = zip(written, answers, strict=True)
    return sum(text_of(r, eos) == list(a) for r, a in pairs) / len(answers)


@wrong("seq2seq/exact", "beginning", "cut_off_counts")
def beginnings(written, answers, eos):
    pairs = zip(written.tolist(), answers, strict=True)
    return sum(row[: len(a)] == list(a) for row, a in pairs) / len(answers)


@wrong("seq2seq/exact", "cut_off_counts", "rubbish_counts")
def rubbish_compared(written, answers, eos):
    pairs = zip(written.tolist(), answers, strict=True)
    hits = [[i for i in row if i != eos] == list(a) for row, a in pairs]
    return sum(hits) / len(hits)


@wrong("seq2seq/exact", "tokens")
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


@wrong("seq2seq/exact", "as_far_as_it_goes")
def as_far_as_it_goes(written, answers, eos):
    return sum(
        all(a == b for a, b in zip(text_of(row, eos), answer, strict=False))
        for row, answer in zip(written, answers, strict=True)
        if eos in row
    ) / len(answers)


@wrong("seq2seq/exact", "beginning")
def beginning(written, answers, eos):
    return sum(
        text_of(row, eos)[: len(answer)] == list(answer)
        for row, answer in zip(written, answers, strict=True)
        if eos in row
    ) / len(answers)


@wrong("seq2seq/exact", "rubbish_counts")
def rubbish_counts(written, answers, eos):
    n = 0
    for row, answer in zip(written, answers, strict=True):
        n += bool((row == eos).any()) and row[row != eos].tolist() == answer
    return n / len(answers)


# The number of right rows, not their share.
@wrong("seq2seq/exact")
def number_of_rows(written, answers, eos):
    return by_index(written, answers, eos) * len(answers)


# The share of right tokens, not of right rows.
@wrong("seq2seq/exact")
def share_of_tokens(written, answers, eos):
    good = n = 0
    for row, answer in zip(written.tolist(), answers, strict=True):
        wanted = [*answer, eos]
        n += len(wanted)
        good += sum(a == b for a, b in zip(row, wanted))
    return good / n


@wrong("seq2seq/exact")
def share_wrong(written, answers, eos):
    return 1 - taken(written, answers, eos)


# -- alignment ---------------------------------------------------------------


@right("seq2seq/alignment")
def running_best(weights, links):
    best, best_score = None, -1.0
    for head, table in enumerate(weights.tolist()):
        shares = []
        for row, linked in zip(table, links.tolist(), strict=True):
            if any(linked):
                shares.append(
                    sum(w for w, yes in zip(row, linked, strict=True) if yes)
                )
        score = sum(shares) / len(shares)
        if score > best_score:
            best, best_score = head, score
    return best, best_score


@right("seq2seq/alignment")
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


@right("seq2seq/alignment")
def with_einsum(weights, links):
    total = torch.einsum("hts,ts->h", weights, links.to(weights))
    score, head = (total / links.any(1).sum()).max(0)
    return head.item(), score.item()


@right("seq2seq/alignment")
def chosen_rows(weights, links):
    rows = links.any(dim=1).nonzero()[:, 0]
    kept = torch.where(links[rows], weights[:, rows], 0.0)
    scores = kept.sum((1, 2)) / len(rows)
    order = scores.sort(descending=True)
    return int(order.indices[0]), float(order.values[0])


@wrong("seq2seq/alignment", "all_words")
def all_target_words(weights, links):
    scores = (weights * links).sum(-1).mean(-1)
    head = int(scores.argmax())
    return head, scores[head].item()


@wrong("seq2seq/alignment", "by_links")
def by_number_of_links(weights, links):
    scores = (weights * links).sum((-1, -2)) / links.sum()
    head = int(scores.argmax())
    return head, scores[head].item()


def best_of(scores):
    return int(scores.argmax()), float(scores.max())


@wrong("seq2seq/alignment", "top_word")
def top_word(weights, links):
    hit = links[torch.arange(len(links)), weights.argmax(-1)].double()
    return best_of(hit[:, links.any(1)].mean(1))


@wrong("seq2seq/alignment", "over_targets")
def alignment_over_targets(weights, links):
    return with_einsum(weights / weights.sum(1)[:, None], links)


@wrong("seq2seq/alignment")
def mean_of_heads(weights, links):
    scores = (weights * links).sum(-1)[:, links.any(-1)].mean(-1)
    return int(scores.argmax()), scores.mean().item()


@wrong("seq2seq/alignment")
def heads_from_one(weights, links):
    head, score = running_best(weights, links)
    return head + 1, score


@wrong("seq2seq/alignment")
def off_the_links(weights, links):
    return with_einsum(weights, ~links)
