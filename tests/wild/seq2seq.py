"""Answers to chapter 14, written from its page alone."""

from functools import reduce
from itertools import zip_longest

import torch

from tests.wild import right, wrong

# seq2seq/cross


@right("seq2seq/cross", "text by text, the padding cut off")
def padding_cut_off(y, memory, lengths, w_q, w_k, w_v):
    out = []
    for asks, asked, n in zip(y, memory, lengths.tolist(), strict=True):
        asked = asked[:n]
        scores = (asks @ w_q) @ (asked @ w_k).T / w_q.shape[1] ** 0.5
        out.append(torch.softmax(scores, 1) @ (asked @ w_v))
    return torch.stack(out)


@right("seq2seq/cross", "einsum from raw vectors to scores, exp by hand")
def straight_from_vectors(y, memory, lengths, w_q, w_k, w_v):
    scores = torch.einsum("btd,de,fe,bsf->bts", y, w_q, w_k, memory)
    scores = scores / w_k.size(1) ** 0.5
    real = torch.arange(memory.size(1)) < lengths.unsqueeze(-1)
    scores = torch.where(real.unsqueeze(1), scores, -torch.inf)
    e = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return torch.einsum("bts,bsf,fe->bte", e / e.sum(-1, True), memory, w_v)


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


@wrong("seq2seq/cross", "divided by the root of D, not of Dh", classic=True)
def root_of_width(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, root=y.size(-1))


@wrong("seq2seq/cross", "scores are not divided", classic=True)
def cross_not_divided(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, root=1)


@wrong(
    "seq2seq/cross",
    "one vector of the padding is taken for real",
    classic=True,
)
def one_padding_seen(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, extra=1)


@wrong("seq2seq/cross", "lengths are ignored", classic=True)
def lengths_ignored(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, extra=memory.size(1))


@wrong(
    "seq2seq/cross", "the memory asks, and the target is asked", classic=True
)
def memory_asks(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = memory @ w_q, y @ w_k, y @ w_v
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


@wrong("seq2seq/cross", "a causal mask on the source", classic=True)
def causal_source(y, memory, lengths, w_q, w_k, w_v):
    q, k, v = y @ w_q, memory @ w_k, memory @ w_v
    T, S = q.size(1), k.size(1)
    real = torch.arange(S) < lengths[:, None]
    mask = real[:, None] & torch.ones(T, S, dtype=torch.bool).tril()
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


@wrong(
    "seq2seq/cross",
    "padding is hidden by 5 less than 0, which a low "
    "row of scores does not notice",
    classic=False,
)
def hidden_by_five(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, hidden=-5.0)


@wrong(
    "seq2seq/cross",
    "the softmax runs over the targets, not over the source",
    classic=True,
)
def over_targets(y, memory, lengths, w_q, w_k, w_v):
    return _cross(y, memory, lengths, w_q, w_k, w_v, axis=1, hidden=-1e9)


# seq2seq/mended


def _attention(asks, asked, mask, w):
    q, k, v = asks @ w[0], asked @ w[1], asked @ w[2]
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


def _causal(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


@right(
    "seq2seq/mended",
    "target by target: each reads its own past, then "
    "the real words of its source",
)
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


@wrong(
    "seq2seq/mended",
    "the target asks, but without any mask of the source",
    classic=True,
)
def source_unmasked(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    everything = torch.ones_like(real)[:, None]
    return x + _attention(x, memory, everything, w_cross)


@wrong(
    "seq2seq/mended",
    "both lines read the x that came in: the cross-"
    "attention does not see what self-attention added",
    classic=True,
)
def side_by_side(x, memory, real, w_self, w_cross):
    own = _attention(x, x, _causal(x.size(1)), w_self)
    return x + own + _attention(x, memory, real[:, None], w_cross)


@wrong(
    "seq2seq/mended",
    "the path around the cross-attention is gone",
    classic=True,
)
def no_way_around(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    return _attention(x, memory, real[:, None], w_cross)


@wrong(
    "seq2seq/mended",
    "a causal triangle on the source besides its mask",
    classic=True,
)
def triangle_on_source(x, memory, real, w_self, w_cross):
    T, S = x.size(1), memory.size(1)
    x = x + _attention(x, x, _causal(T), w_self)
    triangle = torch.ones(T, S, dtype=torch.bool).tril()
    return x + _attention(x, memory, real[:, None] & triangle, w_cross)


@wrong(
    "seq2seq/mended",
    "the source asks itself, and its vectors are added to the target's",
    classic=False,
)
def source_asks_itself(x, memory, real, w_self, w_cross):
    x = x + _attention(x, x, _causal(x.size(1)), w_self)
    read = _attention(memory, memory, real[:, None], w_cross)
    return x + read[:, : x.size(1)]


# seq2seq/whole


@right("seq2seq/whole", "two folds in one expression")
def two_folds(src, tgt, real, embed, encoder, decoder, unembed):
    memory = reduce(lambda x, f: f(x, real), encoder, embed(src))
    return unembed(
        reduce(lambda y, f: f(y, memory, real), decoder, embed(tgt))
    )


@wrong(
    "seq2seq/whole",
    "each decoder block reads the encoder block of its own height",
    classic=True,
)
def height_by_height(src, tgt, real, embed, encoder, decoder, unembed):
    x, y = embed(src), embed(tgt)
    for read, write in zip(encoder, decoder):  # noqa: B905
        x = read(x, real)
        y = write(y, x, real)
    return unembed(y)


@wrong(
    "seq2seq/whole", "the decoder's blocks take padding for real", classic=True
)
def decoder_unmasked(src, tgt, real, embed, encoder, decoder, unembed):
    x = embed(src)
    for block in encoder:
        x = block(x, real)
    y = embed(tgt)
    for block in decoder:
        y = block(y, x, None)
    return unembed(y)


@wrong(
    "seq2seq/whole", "the encoder's blocks take padding for real", classic=True
)
def encoder_unmasked(src, tgt, real, embed, encoder, decoder, unembed):
    x = embed(src)
    for block in encoder:
        x = block(x, None)
    y = embed(tgt)
    for block in decoder:
        y = block(y, x, real)
    return unembed(y)


@wrong(
    "seq2seq/whole",
    "the decoder reads the source's embeddings, not what the encoder made",
    classic=True,
)
def embeddings_read(src, tgt, real, embed, encoder, decoder, unembed):
    memory = embed(src)
    for block in encoder:
        block(memory, real)
    y = embed(tgt)
    for block in decoder:
        y = block(y, memory, real)
    return unembed(y)


@wrong("seq2seq/whole", "the target is shifted once more", classic=True)
def shifted_once_more(src, tgt, real, embed, encoder, decoder, unembed):
    x = embed(src)
    for block in encoder:
        x = block(x, real)
    y = embed(tgt[:, :-1])
    for block in decoder:
        y = block(y, x, real)
    return unembed(y)


@wrong(
    "seq2seq/whole",
    "after each decoder block the memory is encoded "
    "once more, so it changes from round to round",
    classic=False,
)
def memory_goes_on(src, tgt, real, embed, encoder, decoder, unembed):
    x, y = embed(src), embed(tgt)
    for block in decoder:
        for read in encoder:
            x = read(x, real)
        y = block(y, x, real)
    return unembed(y)


# seq2seq/shift


@right("seq2seq/shift", "columns by zip_longest, with a mark of its own")
def by_columns(targets, pad, bos, eos):
    inputs = zip_longest(*([bos, *t] for t in targets), fillvalue=pad)
    answers = zip_longest(*([*t, eos] for t in targets), fillvalue=-100)
    return (
        torch.tensor(list(inputs)).T.contiguous(),
        torch.tensor(list(answers)).T.contiguous(),
    )


@right("seq2seq/shift", "full tensors, filled row by row")
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


@wrong(
    "seq2seq/shift",
    "one padded row is cut at both ends, so that short "
    "rows read their own eos",
    classic=True,
)
def reads_eos(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    rows = [[bos, *t, eos] + [pad] * (longest - len(t)) for t in targets]
    inputs = torch.tensor([row[:-1] for row in rows])
    answers = torch.tensor(
        [[*t, eos] + [-100] * (longest - len(t)) for t in targets]
    )
    return inputs, answers


@wrong(
    "seq2seq/shift",
    "-100 is put wherever pad stands, real tokens and eos included",
    classic=True,
)
def looks_for_pad(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    inputs = torch.tensor(
        [[bos, *t] + [pad] * (longest - len(t)) for t in targets]
    )
    answers = torch.tensor(
        [[*t, eos] + [pad] * (longest - len(t)) for t in targets]
    )
    return inputs, answers.masked_fill(answers == pad, -100)


@wrong("seq2seq/shift", "answers are filled up with pad", classic=True)
def answers_with_pad(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    gaps = [[pad] * (longest - len(t)) for t in targets]
    pairs = list(zip(targets, gaps, strict=True))
    return (
        torch.tensor([[bos, *t, *gap] for t, gap in pairs]),
        torch.tensor([[*t, eos, *gap] for t, gap in pairs]),
    )


@wrong("seq2seq/shift", "eos is never asked for", classic=True)
def never_ends(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    inputs = [[bos, *t[:-1]] + [pad] * (longest - len(t)) for t in targets]
    answers = [[*t] + [-100] * (longest - len(t)) for t in targets]
    return torch.tensor(inputs), torch.tensor(answers)


@wrong(
    "seq2seq/shift",
    "not shifted: the decoder reads what it has to answer",
    classic=True,
)
def not_shifted(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    rows = [[bos, *t, eos] for t in targets]
    gaps = [longest - len(t) for t in targets]
    both = list(zip(rows, gaps, strict=True))
    return (
        torch.tensor([row + [pad] * gap for row, gap in both]),
        torch.tensor([row + [-100] * gap for row, gap in both]),
    )


@wrong("seq2seq/shift", "lists of lists, not tensors", classic=False)
def lists_not_tensors(targets, pad, bos, eos):
    inputs, answers = full_tensors(targets, pad, bos, eos)
    return inputs.tolist(), answers.tolist()


@wrong("seq2seq/shift", "filled up in front instead of behind", classic=False)
def filled_in_front(targets, pad, bos, eos):
    longest = max(len(t) for t in targets)
    gaps = [longest - len(t) for t in targets]
    both = list(zip(targets, gaps, strict=True))
    return (
        torch.tensor([[pad] * gap + [bos, *t] for t, gap in both]),
        torch.tensor([[-100] * gap + [*t, eos] for t, gap in both]),
    )


# seq2seq/translate


@right("seq2seq/translate", "each sentence alone, in lists")
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


@right("seq2seq/translate", "writes first, and cuts behind eos afterwards")
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


@wrong(
    "seq2seq/translate",
    "padding of the memory is hidden, but rows go on behind their eos",
    classic=True,
)
def goes_on(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode,
        decode,
        src,
        real,
        pad,
        bos,
        eos,
        size,
        after_eos=False,
        over=None,
    )


@wrong(
    "seq2seq/translate",
    "rows stop at eos, but the decoder still reads the padding",
    classic=True,
)
def still_reads_padding(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode, decode, src, real, pad, bos, eos, size, reads_real=False
    )


@wrong(
    "seq2seq/translate",
    "done is updated before the token is written, so eos itself becomes pad",
    classic=True,
)
def eos_overwritten(encode, decode, src, real, pad, bos, eos, size):
    return _loop(encode, decode, src, real, pad, bos, eos, size, early=True)


@wrong(
    "seq2seq/translate",
    "all rows stop as soon as one has written eos",
    classic=True,
)
def one_stops_all(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode, decode, src, real, pad, bos, eos, size, over=torch.any
    )


@wrong("seq2seq/translate", "bos is returned in front", classic=True)
def with_bos(encode, decode, src, real, pad, bos, eos, size):
    out = _loop(encode, decode, src, real, pad, bos, eos, size)
    return torch.cat([torch.full((len(src), 1), bos), out], 1)


@wrong(
    "seq2seq/translate",
    "the decoder is fed the last token alone, without a cache",
    classic=True,
)
def fed_the_last(encode, decode, src, real, pad, bos, eos, size):
    return _loop(
        encode,
        lambda tgt, *rest: decode(tgt[:, -1:], *rest),
        src,
        real,
        pad,
        bos,
        eos,
        size,
    )


@wrong(
    "seq2seq/translate",
    "stops when all rows have ended, and returns fewer columns than size",
    classic=False,
)
def fewer_columns(encode, decode, src, real, pad, bos, eos, size):
    out = _loop(encode, decode, src, real, pad, bos, eos, size)
    ends = (out == eos).any(1)
    if ends.all():
        return out[:, : int((out == eos).int().argmax(1).max()) + 1]
    return out


# seq2seq/exact


@right("seq2seq/exact", "texts as strings, split at the end's number")
def as_strings(written, answers, eos):
    rows = [" ".join(map(str, row)) + " " for row in written.tolist()]
    hits = 0
    for row, answer in zip(rows, answers, strict=True):
        wanted = "".join(f"{int(i)} " for i in [*answer, eos])
        hits += row.startswith(wanted) and eos not in answer
    return hits / len(rows)


@right("seq2seq/exact", "list.index, and a handler for rows without end")
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


@wrong(
    "seq2seq/exact",
    "a row that was cut off, without eos, counts as right if its tokens are",
    classic=True,
)
def without_end(written, answers, eos):
    hits = 0
    for row, answer in zip(written.tolist(), answers, strict=True):
        if eos in row:
            row = row[: row.index(eos)]
        hits += row == list(answer)
    return hits / len(answers)


@wrong(
    "seq2seq/exact",
    "the beginning is compared, whether or not the row ends there",
    classic=True,
)
def beginnings(written, answers, eos):
    pairs = zip(written.tolist(), answers, strict=True)
    return sum(row[: len(a)] == list(a) for row, a in pairs) / len(answers)


@wrong(
    "seq2seq/exact",
    "rubbish behind eos is compared as well: every eos "
    "is taken out of the row, wherever it stands",
    classic=True,
)
def rubbish_compared(written, answers, eos):
    pairs = zip(written.tolist(), answers, strict=True)
    hits = [[i for i in row if i != eos] == list(a) for row, a in pairs]
    return sum(hits) / len(hits)


@wrong(
    "seq2seq/exact",
    "the share of right tokens, not of right rows",
    classic=True,
)
def share_of_tokens(written, answers, eos):
    good = n = 0
    for row, answer in zip(written.tolist(), answers, strict=True):
        wanted = [*answer, eos]
        n += len(wanted)
        good += sum(a == b for a, b in zip(row, wanted))  # noqa: B905
    return good / n


@wrong(
    "seq2seq/exact", "the number of right rows, not their share", classic=False
)
def number_of_rows(written, answers, eos):
    return by_index(written, answers, eos) * len(answers)


# seq2seq/alignment


@right("seq2seq/alignment", "three loops and a running best")
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


@wrong(
    "seq2seq/alignment",
    "the mean runs over all target words, those without a link included",
    classic=True,
)
def all_target_words(weights, links):
    scores = (weights * links).sum(-1).mean(-1)
    head = int(scores.argmax())
    return head, scores[head].item()


@wrong(
    "seq2seq/alignment",
    "divided by the number of links, not of target words",
    classic=True,
)
def by_number_of_links(weights, links):
    scores = (weights * links).sum((-1, -2)) / links.sum()
    head = int(scores.argmax())
    return head, scores[head].item()


@wrong("seq2seq/alignment", "the score of the mean of all heads", classic=True)
def mean_of_heads(weights, links):
    scores = (weights * links).sum(-1)[:, links.any(-1)].mean(-1)
    return int(scores.argmax()), scores.mean().item()


@wrong(
    "seq2seq/alignment",
    "counts how often a head's darkest cell is linked, instead of its weight",
    classic=True,
)
def darkest_cells(weights, links):
    best = weights.argmax(-1)  # (H, T)
    hits = links[torch.arange(len(links)), best]
    scores = hits[:, links.any(-1)].double().mean(-1)
    head = int(scores.argmax())
    return head, scores[head].item()


@wrong("seq2seq/alignment", "heads are numbered from 1", classic=False)
def heads_from_one(weights, links):
    head, score = running_best(weights, links)
    return head + 1, score
