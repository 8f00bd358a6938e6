"""Exercises of chapter 12: generation."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import attention_weights
from coursekit_classroom.check.core import (
    NONE,
    Bug,
    Case,
    Exercise,
    Switches,
    Variant,
    generator,
    mutant,
    randn,
)
from coursekit_classroom.check.diagnose import mutants
from coursekit_classroom.check.families import INVERTED, MASK_FINITE

float64 = torch.float64
Model = Callable[[Tensor], Tensor]
PaddedModel = Callable[[Tensor, Tensor, Tensor], Tensor]
Rotate = Callable[[Tensor, Tensor], Tensor]
NextLogProbs = Callable[[list[int]], Tensor]


# -- implement: temperature, top-k, top-p ------------------------------------
def chances(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> Tensor:
    """The probabilities by which the next token of each text is drawn.

    `logits` is `(B, V)`, a row for each text. Three filters, in this order:
    1. The logits are divided by `temperature`, which is above 0.
    2. If `top_k` is not None, a whole number from 1 to V, only the `top_k`
    likeliest tokens of a row keep a chance; the others get 0.
    3. If `top_p` is not None, above 0 and at most 1, only the smallest set of
    likeliest tokens whose probabilities, after step 2 and summing to 1, add up
    to `top_p` or more keeps a chance. A token is in it if the sum of those
    before it, likeliest first, is below `top_p`.
    No two tokens are equally likely. The result is `(B, V)` and stands in the
    order of the logits; each row sums to 1.
    """
    z = logits / temperature
    if top_k is not None:
        lowest = z.topk(top_k, dim=-1).values[:, -1:]
        z = z.where(z >= lowest, -torch.inf)
    p = z.softmax(dim=-1)
    if top_p is not None:
        ordered, ids = p.sort(dim=-1, descending=True)
        keep = ordered.cumsum(dim=-1) - ordered < top_p
        keep = keep.gather(-1, ids.argsort(dim=-1))
        p = p.where(keep, 0.0)
        p = p / p.sum(dim=-1, keepdim=True)
    return p


_CHANCES_BUGS = {
    "multiplied": Bug(
        "logits / temperature",
        "logits * temperature",
        says="logits multiplied by the temperature",
        why="Divide by it. A high temperature brings the logits closer "
        "together and makes the draw more daring; toward 0 the draw becomes "
        "greedy.",
        read="12_generation#gen-by-hand",
    ),
    "mask_finite": Bug(
        "-torch.inf",
        "-1e4",
        says="dropped logits filled with a finite number, and real logits may "
        "be lower",
        why="Only differences between logits count, so all of them may be far "
        "below 0, and then the dropped tokens get everything. Fill with −∞.",
        read="12_generation#gen-by-hand",
        alone=True,
    ),
    "p_of_all": Bug(
        "if top_k is",
        "full = z.softmax(dim=-1)\n    if top_k is",
        "p.sort",
        "full.sort",
        says="top-p measured on the probabilities from before top-k",
        why="Top-k comes first. The tokens that it leaves share a probability "
        "of 1 again, and top-p adds up these probabilities.",
        read="12_generation#gen-by-hand",
    ),
    "crossing_dropped": Bug(
        "- ordered < top_p",
        "<= top_p",
        says="a top-p that drops the token which crosses p",
        why="Keep a token while the sum *before* it is below p. Your rule "
        "stays below p, and if the first token alone exceeds p, nothing is "
        "left.",
        read="12_generation#gen-predict-nucleus",
    ),
    "not_mapped_back": Bug(
        "        keep = keep.gather(-1, ids.argsort(dim=-1))\n",
        "",
        says="a top-p found in sorted order and used on the unsorted tokens",
        why="The first entries of a sorted row aren't the first tokens. Carry "
        "each decision back to its token, with scatter or a second argsort.",
        read="12_generation#gen-code",
    ),
    "not_renormalized": Bug(
        "        p = p / p.sum(dim=-1, keepdim=True)\n",
        "",
        says="probabilities that no longer sum to 1 after top-p",
        why="The tokens that are left share a probability of 1. Divide by the "
        "row's sum.",
        read="12_generation#gen-by-hand",
    ),
    "zero_logits": Bug(
        "-torch.inf",
        "0.0",
        "p = p.where(keep, 0.0)\n        p = p / p.sum(dim=-1, keepdim=True)",
        "p = z.where(keep, 0.0).softmax(dim=-1)",
        says="logits of dropped tokens set to 0, by top-k and by top-p",
        why="A logit of 0 isn't small: e⁰ = 1. A dropped token needs −∞.",
        read="12_generation#gen-by-hand",
        alone=True,
    ),
}


def _chances_cases(seed: int) -> list[Case]:
    g = generator(seed)
    order = [3, 2, *torch.randperm(2, generator=g).tolist()]
    four = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=float64)[:, order]
    rows = randn(g, 7, 11)
    low = rows.argsort(dim=-1) / 4.0 - 12_000  # no two are alike
    return [
        Case((rows[:3], 0.7, None, None), name="temperature alone"),
        Case((rows[:3] + 1, 1.0, 3, None), name="top-k alone"),
        Case((four.log(), 1.0, None, 0.6), name="top-p alone, p = 0.6"),
        Case((rows, 2.0, 7, 0.7), name="all three"),
        Case((low.double(), 0.5, 3, None), name="logits far below 0"),
    ]


# -- implement: beam search --------------------------------------------------
def beam(
    next_log_probs: NextLogProbs,
    n_beams: int,
    max_new_tokens: int,
    stop_id: int,
    length_penalty: float,
) -> tuple[list[int], float]:
    """The best text that a beam search finds, and its score.

    `next_log_probs(tokens)` takes a list of token ids, at first the empty one,
    and returns a `(V,)` tensor: the log-probability of each next token.
    There is one open text at first, the empty one. In each of at most
    `max_new_tokens` steps every open text is continued by every token; these
    candidates are ranked by the sum of their log-probabilities. Among the best
    `n_beams` of them, those whose last token is `stop_id` are finished. The
    best `n_beams` candidates that do not end in `stop_id` are the next open
    texts. After the last step, the open texts count as finished, too.
    The score of a finished text is the sum of its log-probabilities, divided
    by `n ** length_penalty`, where n counts its tokens, a stop token included.
    The result is a list of ids and a number: the finished text with the
    highest score, without its stop token, and that score. Sums can fall far
    below −700. No two candidates tie.
    """
    open_texts: list[tuple[float, list[int]]] = [(0.0, [])]
    finished = []
    for n in range(1, max_new_tokens + 1):
        ranked = []
        for total, tokens in open_texts:
            sums = total + next_log_probs(tokens)
            extended = [(s, tokens, t) for t, s in enumerate(sums.tolist())]
            ranked += extended
        ranked.sort(key=lambda c: c[0], reverse=True)
        open_texts = []
        for rank, (total, tokens, token) in enumerate(ranked):
            if token == stop_id:
                if rank < n_beams:
                    finished.append((total, n, tokens))
            elif len(open_texts) < n_beams:
                open_texts.append((total, [*tokens, token]))
    for total, tokens in open_texts:
        finished.append((total, len(tokens), tokens))
    rated = [
        (total / n**length_penalty, tokens) for total, n, tokens in finished
    ]
    score, tokens = max(rated, key=lambda r: r[0])
    return tokens, score


_BEAM_BUGS = {
    "sum_only": Bug(
        "total / n**length_penalty",
        "total",
        says="finished texts compared by their sums, without regard to length",
        why="No log-probability is above 0, so sums prefer short texts. "
        "Divide by n ** length_penalty.",
        read="further/12_beam#gen-length",
        at="score",
        otherwise=[("total / ((5 + n) / 6) ** length_penalty", "total")],
    ),
    "stop_not_counted": Bug(
        "(total, n, tokens)",
        "(total, max(n - 1, 1), tokens)",
        says="a length that leaves out the stop token",
        why="Its log-probability is in the sum, so count it as a token.",
        read="further/12_beam#gen-length",
        at="score",
    ),
    "products": Bug(
        "total + next_log_probs(tokens)",
        "(total + next_log_probs(tokens)).exp().log()",
        says="probabilities multiplied instead of log-probabilities added",
        why="A product of a few hundred probabilities is rounded to 0, and "
        "then all texts tie. Add logarithms instead.",
        read="further/12_generation#gen-wrong",
    ),
    "first_stop": Bug(
        "[*tokens, token]))",
        "[*tokens, token]))\n        if finished:\n            break",
        "in open_texts:\n        finished",
        "in [] if finished else open_texts:\n        finished",
        says="a search that ends as soon as a text is finished",
        why="The first text to end needn't be the best. Keep it apart and go "
        "on, since an open text may still win.",
        read="further/12_beam#gen-length",
    ),
    "takes_slot": Bug(
        "len(open_texts) < n_beams",
        "rank < n_beams",
        says="finished texts that take places of open ones, so that fewer "
        "go on",
        why="The best n_beams candidates that do *not* end are the next "
        "open texts, however many have ended above them.",
        read="further/12_beam#gen-beam-code",
        alone=True,
    ),
    "chosen_by_sum": Bug(
        "rated =",
        "finished = [max(finished)]\n    rated =",
        says="a winner chosen by its sum, and only then divided by its length",
        why="Divide each finished text's sum by its length first, then "
        "compare.",
        read="further/12_beam#gen-length",
        alone=True,
    ),
}


def _tree(
    g: torch.Generator, n_tokens: int, length: int, spread: float, stop: float
) -> NextLogProbs:
    """Log-probabilities that depend on the last token and on the time.

    Token 2 is the stop token; `stop` is added to its logits.
    """
    table = spread * randn(g, length, n_tokens + 1, n_tokens)
    table[..., 2] += stop
    table = table.log_softmax(dim=-1)
    # Called often: a lambda is spared the type checks of the tests.
    return lambda tokens: table[len(tokens), tokens[-1] if tokens else -1]


Rules = tuple[int, int, int, float]
_SHORT: dict[str, tuple[int, Rules, float, int]] = {
    "four beams, seven tokens": (7, (4, 9, 2, 0.6), 1.5, 9),
    "three beams, five tokens": (5, (3, 9, 2, 1.0), 1.5, 31),
    "two beams, five tokens": (5, (2, 6, 2, 1.5), 2.5, 31),
}


def _outcome(tree: NextLogProbs, rules: Rules, on: Switches) -> str:
    try:
        tokens, score = mutant(EXERCISES["beam"], on)(tree, *rules)
    except ValueError:  # nothing was finished
        return "nothing"
    return f"{tokens} {score:.9f}"


def _telling_trees(g: torch.Generator) -> list[NextLogProbs]:
    """Trees on which the mistakes, alone and in pairs, do different things.

    Each is the best of many: it tells most of those apart that the trees
    before it did not.
    """
    other = {"products"} | {n for n, bug in _BEAM_BUGS.items() if bug.alone}
    sets = [NONE, *(m for m in mutants(EXERCISES["beam"]) if not m & other)]
    trees: list[NextLogProbs] = []
    outcomes = [""] * len(sets)  # what each has found so far
    for n_tokens, rules, spread, tries in _SHORT.values():
        alone = {t for t in outcomes if outcomes.count(t) == 1}
        best: list[str] = []
        for _ in range(tries):
            tree = _tree(g, n_tokens, rules[1], spread, 0.0)
            longer = [
                before
                if before in alone
                else before + _outcome(tree, rules, on)
                for before, on in zip(outcomes, sets, strict=True)
            ]
            if len(set(longer)) > len(set(best)):
                best, best_tree = longer, tree
        outcomes = best
        trees.append(best_tree)
    return trees


def _late_winner(g: torch.Generator) -> NextLogProbs:
    """The third best beginning, behind a stop, has the best end.

    So it is lost if a finished text takes the place of an open one, or if
    sums are compared.
    """
    table = 0.1 * randn(g, 6, 6, 5)
    order = torch.tensor([0, 1, 3, 4])[torch.randperm(4, generator=g)]
    second, third, then, less = order.tolist()
    table[0, -1] = -9.0
    likely = torch.tensor([0.36, 0.34, 0.3], dtype=float64)
    table[0, -1, [2, second, third]] = likely.log()
    table[1:, [third, then], then] = 6.0
    table[1:, [second, less], less] = 4.3
    table = table.log_softmax(dim=-1)
    return lambda tokens: table[len(tokens), tokens[-1] if tokens else -1]


def _beam_cases(seed: int) -> list[Case]:
    g = generator(seed)
    trees = zip(_telling_trees(g), _SHORT.items(), strict=True)
    cases = [
        Case((tree, *rules), name=name)
        for tree, (name, (_, rules, *_)) in trees
    ]
    late = (_late_winner(g), 2, 6, 2, 1.0)
    cases.append(Case(late, name="a stop ahead of the best beginning"))
    flat = _tree(g, 13, 310, 0.02, -30.0)
    cases.append(Case((flat, 2, 310, 2, 1.0), name="310 tokens"))
    return cases


# -- debug: it repeats the opening -------------------------------------------
def write(model: Model, ids: Tensor, n_new: int, max_len: int) -> Tensor:
    """Texts and what follows them, always the likeliest token.

    `model` takes ids `(B, T)` with T at most `max_len`, else it raises an
    error, and returns logits `(B, T, V)`; the last row is about the next
    token. `ids` is `(B, T)`, at least one token each; T may exceed `max_len`.
    In each of `n_new` steps the model is given as many of the latest tokens
    as it takes, the new ones included, and each text gets the token with the
    highest logit. The result is `(B, T + n_new)`: the given tokens, all of
    them, and the new ones.
    """
    for _ in range(n_new):
        row = model(ids[:, -max_len:])[:, -1]
        token = row.argmax(dim=-1)
        ids = torch.cat((ids, token[:, None]), dim=1)
    return ids


_WRITE_BUGS = {
    "opening": Bug(
        "ids[:, -max_len:]",
        "ids[:, :max_len]",
        says="a crop that keeps the first tokens, ids[:, :max_len]",
        why="Once the text is longer, the model is given the same opening "
        "again and again, so it gives the same answer. Keep the last tokens, "
        "ids[:, -max_len:].",
        read="12_generation#gen-window",
    ),
    "one_less": Bug(
        "ids[:, -max_len:]",
        "ids[:, -max_len + 1 :]",
        says="a crop to one token less than the model takes",
        why="ids[:, -max_len + 1:] has max_len − 1 tokens, so one position "
        "is never used.",
        read="12_generation#gen-window",
    ),
    "uncut": Bug(
        "ids[:, -max_len:]",
        "ids",
        says="a text that is never cut",
        why="The model has no positions beyond max_len. Give it the last "
        "max_len tokens.",
        read="12_generation#gen-window",
    ),
    "cut_for_good": Bug(
        "row = model(ids[:, -max_len:])",
        "ids = ids[:, -max_len:]\n        row = model(ids)",
        says="a window that is cut out of the text for good, so that its "
        "beginning is missing in the result",
        why="Cut only what you give the model, and keep the whole text in a "
        "variable of its own.",
        read="12_generation#gen-window",
        alone=True,
    ),
    "only_new": Bug(
        "return ids",
        "return ids[:, -n_new:]",
        says="the new tokens alone",
        why="The result is the whole text, (B, T + n_new): the given "
        "tokens, then the new ones.",
        read="12_generation#gen-loop",
        alone=True,
    ),
    "as_if_cached": Bug(
        "for _ in range",
        "for number in range",
        "ids[:, -max_len:]",
        "ids[:, -1 if number else -max_len :]",
        says="after the prompt, a model that is given the newest token "
        "alone, as if it had a cache",
        why="This model keeps nothing from one call to the next: give it the "
        "whole window each time.",
        read="12_generation#gen-cache",
        alone=True,
    ),
}


def _reader(g: torch.Generator, n_tokens: int, max_len: int) -> Model:
    """A causal model: each row depends on all tokens up to it."""
    table, places = randn(g, n_tokens, 7), randn(g, max_len, 7)
    head = randn(g, 7, n_tokens)

    def logits_of(ids: Tensor) -> Tensor:
        if ids.size(1) > max_len:
            raise ValueError(
                f"the model takes at most {max_len} tokens: got {ids.size(1)}."
            )
        x = table[ids] * (1 + places[: ids.size(1)])
        return x.cumsum(dim=1).sin() @ head

    return logits_of


def _write_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for shape, n_new, max_len, name in (
        ((2, 3), 5, 11, "two texts that stay short"),
        ((1, 3), 13, 7, "a text that outgrows the model"),
        ((2, 9), 5, 5, "prompts that are too long already"),
    ):
        model = _reader(g, 17, max_len)
        ids = torch.randint(17, shape, generator=g)
        cases.append(Case((model, ids, n_new, max_len), name=name))
    return cases


# -- debug: a batch of unequal prompts ---------------------------------------
def batched(
    model: PaddedModel, prompts: Sequence[Sequence[int]], pad_id: int
) -> Tensor:
    """The logits of each prompt's next token, from one batch.

    `prompts` are B lists of ids, of unequal length, none empty. Filled up with
    `pad_id`, they become one `(B, T)` tensor, T being the longest length.
    `pad_id` is an ordinary id and may occur in a prompt, too.
    `model(ids, positions, mask)` takes three `(B, T)` tensors: ids, the place
    of each in its own text, counted from 0, and booleans, True where there is
    a real token, which others may see. It is causal, and returns `(B, T, V)`
    logits. What it returns at padding means nothing, and so does the place
    that padding is given, if it lies in 0 … T − 1.
    The result is `(B, V)`: for each prompt what the model says about its next
    token if it is given that prompt alone.
    """
    longest = max(len(prompt) for prompt in prompts)
    gaps = [longest - len(prompt) for prompt in prompts]
    both = zip(gaps, prompts, strict=True)
    ids = torch.tensor([[pad_id] * gap + list(prompt) for gap, prompt in both])
    mask = torch.arange(longest) >= torch.tensor(gaps)[:, None]
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    return model(ids, positions, mask)[:, -1]


_BATCHED_BUGS = {
    "columns": Bug(
        "(mask.cumsum(dim=1) - 1).clamp(min=0)",
        "torch.arange(longest).expand_as(ids)",
        says="positions that count the padding: the numbers of the columns",
        why="Position 0 is a row's first real token. Count real tokens: the "
        "running sum of the mask, minus 1.",
        read="further/12_generation#gen-batch",
    ),
    "no_mask": Bug(
        "positions, mask",
        "positions, torch.ones_like(mask)",
        says="padding that is read as if it were text",
        why="The mask has to hide the padding. Make it True for real tokens "
        "only.",
        read="further/12_generation#gen-batch",
    ),
    "by_token": Bug(
        "positions, mask",
        "positions, (ids != pad_id)",
        says="a mask that asks for the token, ids != pad_id",
        why="A prompt may really contain that id, for instance if padding "
        "and end of text share one. Mask by length.",
        read="further/12_generation#gen-batch",
    ),
    "inverted": INVERTED.by(
        "positions, ",
        "positions, ~",
        says="a mask that is upside down",
    ),
    "right": Bug(
        "[pad_id] * gap + list(prompt)",
        "list(prompt) + [pad_id] * gap",
        ">= torch.tensor(gaps)",
        "< longest - torch.tensor(gaps)",
        says="padding on the right, and the last column read all the same",
        why="With padding on the right, a short row's last column is "
        "padding. A decoder's rows have to *end* together, so pad on the "
        "left.",
        read="further/12_generation#gen-batch",
    ),
    "right_columns": Bug(
        "[pad_id] * gap + list(prompt)",
        "list(prompt) + [pad_id] * gap",
        ">= torch.tensor(gaps)",
        "< longest - torch.tensor(gaps)",
        "(mask.cumsum(dim=1) - 1).clamp(min=0)",
        "torch.arange(longest).expand_as(ids)",
        says="padding on the right, places counted by columns, and the last "
        "column read all the same",
        why="With padding on the right, a short row's last column is "
        "padding. A decoder's rows have to *end* together, so pad on the "
        "left.",
        read="further/12_generation#gen-batch",
        alone=True,
    ),
    "by_token_all": Bug(
        "torch.arange(longest) >= torch.tensor(gaps)[:, None]",
        "ids != pad_id",
        says="a mask, and positions counted from it, that ask for the "
        "token, ids != pad_id",
        why="A prompt may really contain that id, for instance if padding "
        "and end of text share one. Mask by length.",
        read="further/12_generation#gen-batch",
        alone=True,
    ),
    "from_one_on": Bug(
        "(mask.cumsum(dim=1) - 1).clamp(min=0)",
        "mask.cumsum(dim=1)",
        says="positions that start at 1, the last of which may not exist",
        why="The running sum is 1 at the first real token, whose position is "
        "0. Subtract 1.",
        read="further/12_generation#gen-batch",
        alone=True,
    ),
}


def _padded_model(g: torch.Generator, n_tokens: int) -> PaddedModel:
    """One head of attention with positions, a mask, and the causal mask."""
    table, places, head = (
        randn(g, n_tokens, 5),
        randn(g, 23, 5),
        randn(g, 5, 7),
    )
    maps = [0.4 * randn(g, 5, 5) for _ in range(3)]

    def logits_of(ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        x = table[ids] + places[positions]
        q, k, v = (x @ w for w in maps)
        weights = attention_weights(q, k, mask[:, None], causal=True)
        return (x + weights @ v) @ head

    return logits_of


def _batched_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for lengths, pad_id, name in (
        ((5, 2, 3), 0, "prompts of 5, 2 and 3 tokens"),
        ((1, 7), 3, "a padding id that occurs in a prompt"),
    ):
        rows = [torch.randint(1, 11, (n,), generator=g) for n in lengths]
        if pad_id:
            rows[1][[0, 2, 6]] = pad_id
        prompts = [row.tolist() for row in rows]
        case = Case((_padded_model(g, 11), prompts, pad_id), name=name)
        cases.append(case)
    return cases


# -- debug: a cache that loses its place -------------------------------------
def mended(
    chunks: Sequence[Tensor],
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    rotate: Rotate,
) -> Tensor:
    """Causal attention over a text that arrives in pieces, with a cache.

    `chunks` are tensors `(T, D)`, T at least 1, of one text: first the prompt,
    then mostly one vector at a time. The maps `w_q` and `w_k`, `(D, Dh)`, and
    `w_v`, `(D, Dv)`, make queries, keys and values of them. `rotate(x,
    positions)` turns `(T, Dh)` queries or keys, each row by its position, a
    whole number counted from 0 at the first vector of the whole text.
    Each query is compared with all keys of its own and earlier positions,
    those of earlier chunks included, by the dot product of the turned vectors
    over `√Dh`; softmax over these keys; then the weighted sum of their values.
    The result is `(all T together, Dv)`: the outputs of all chunks, in order.
    """
    outputs, n_old, old_k, old_v = [], 0, w_k[:0], w_v[:0]
    for x in chunks:
        positions = n_old + torch.arange(len(x))
        q, k = (rotate(x @ w, positions) for w in (w_q, w_k))
        v = x @ w_v
        k, v = torch.cat((old_k, k)), torch.cat((old_v, v))
        old_k, old_v = k, v
        n_old += len(x)
        visible = torch.ones(len(x), len(k), dtype=torch.bool)
        visible = visible.tril(len(k) - len(x))
        outputs.append(
            F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=visible
            )[0]
        )
    return torch.cat(outputs)


_MENDED_BUGS = {
    "top_left": Bug(
        "len(k) - len(x)",
        "",
        says="is_causal=True with fewer queries than keys",
        why="Its triangle starts at the top left, so a single query sees the "
        "first key alone, however long the text gets. The queries are the "
        "*last* positions.",
        read="further/05_masks#mask-wrong",
    ),
    "unmasked": Bug(
        "        visible = visible.tril(len(k) - len(x))\n",
        "",
        says="no mask, so that a piece of several tokens sees its own future",
        why="A single query may see all keys. Several need the triangle, "
        "aligned at the bottom right: j ≤ i + (S − T).",
        read="12_generation#gen-cache",
    ),
    "restart": Bug(
        "n_old + torch",
        "torch",
        says="positions that restart at 0 with every piece",
        why="A new token comes after all the old ones, so its position is the "
        "length of the cache.",
        read="further/12_generation#gen-wrong",
    ),
    "turned_again": Bug(
        "k, v = torch.cat",
        "old_k = rotate(old_k, torch.arange(len(old_k)))\n"
        "        k, v = torch.cat",
        says="cached keys that are turned again at each step",
        why="A key is rotated once, by its own position, before it enters "
        "the cache.",
        read="further/12_generation#gen-wrong",
    ),
    "piece_number": Bug(
        "for x in chunks",
        "for step, x in enumerate(chunks)",
        "n_old + torch",
        "step + torch",
        says="positions that begin at the number of the piece",
        why="A chunk may hold several vectors. Begin at the number of vectors "
        "before it, the length of the cache.",
        read="further/12_generation#gen-wrong",
    ),
    "mask_finite": MASK_FINITE.by(
        "outputs.append(\n"
        "            F.scaled_dot_product_attention(\n"
        "                q[None], k[None], v[None], attn_mask=visible\n"
        "            )[0]\n"
        "        )",
        "scores = q @ k.T / q.size(-1) ** 0.5\n"
        "        weights = scores.masked_fill(~visible, -100.0).softmax(-1)\n"
        "        outputs.append(weights @ v)",
    ),
}


def _turner(size: int, n_turned: int) -> Rotate:
    """Rotary positions; the speeds of pairs are far apart, the last ones 0."""
    speeds = 0.4 ** torch.arange(size // 2, dtype=float64)
    speeds[n_turned:] = 0.0

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None] * speeds
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        pairs = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
        return pairs.flatten(-2)

    return rotate


def _mended_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for sizes, name in (
        ((5, 1, 1), "a prompt of five, then two single tokens"),
        ((3, 2, 1, 4), "pieces of 3, 2, 1 and 4"),
    ):
        chunks = [randn(g, n, 7) for n in sizes]
        maps = [randn(g, 7, n) for n in (4, 4, 3)]
        cases.append(Case((chunks, *maps, _turner(4, 2)), name=name))
    chunks = [randn(g, n, 7) for n in (4, 1)]
    w_q, w_k, w_v = (randn(g, 7, n) for n in (4, 4, 3))
    # One more term in each sum: all scores are lower by the same 12,000.
    for x in chunks:
        x[:, -1] = 1.0
    for w, corner in (w_q, -155.0), (w_k, 155.0):
        w[-1], w[:, -1], w[-1, -1] = 0.0, 0.0, corner
    low = chunks, w_q, w_k, w_v, _turner(4, 1)
    return [*cases, Case(low, name="large negative scores")]


# -- measure: bytes and FLOPs ------------------------------------------------
def cost(
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    bytes_per_number: int,
    n_weights: int,
    n_prompt: int,
    n_new: int,
) -> tuple[int, int, int]:
    """What a cache takes, and what it saves: three exact whole numbers.

    A decoder has `n_layers` blocks, whose matrices hold `n_weights` numbers in
    all. Each block has `n_heads` query heads and `n_kv_heads` heads for keys
    and values, all of size `d_head`. Numbers take `bytes_per_number` bytes.
    It is given `n_prompt` tokens, at least one, and writes `n_new`, at least
    one. The last one that it writes is not read any more.
    1. The bytes of the cache when all tokens that are read have been read.
    2. The FLOPs of the blocks' matrices on the way with a cache: each token
    that is read passes through the blocks once, and costs a multiplication and
    an addition per weight. (Scores and the mixing of values are left out.)
    3. The same without a cache: before each new token, all tokens so far pass
    through the blocks again.
    """
    n_read = n_prompt + n_new - 1
    size = 2 * n_layers * n_kv_heads * d_head * n_read * bytes_per_number
    each = 2 * n_weights
    with_cache = each * n_read
    without = each * sum(range(n_prompt, n_read + 1))
    return size, with_cache, without


_COST_BUGS = {
    "keys_only": Bug(
        "2 * n_layers",
        "n_layers",
        says="keys counted, and values left out",
        why="Each position leaves a key *and* a value: a factor of 2.",
        read="further/12_generation#gen-cost",
    ),
    "query_heads": Bug(
        "n_kv_heads *",
        "n_heads *",
        says="as many keys and values as query heads",
        why="Queries aren't kept. If heads share keys and values, only the "
        "shared ones are stored, n_kv_heads of them.",
        read="further/12_generation#gen-cost",
    ),
    "last_read": Bug(
        "n_new - 1",
        "n_new",
        says="the last new token counted as read",
        why="Nothing comes after it, so the model needn't read it: prompt + "
        "new − 1.",
        read="12_generation#gen-cache",
    ),
    "multiplications": Bug(
        "2 * n_weights",
        "n_weights",
        says="multiplications counted instead of FLOPs",
        why="A multiplication and an addition are two FLOPs.",
        read="further/12_generation#gen-cost",
    ),
    "each_block": Bug(
        "each = 2 * n_weights",
        "each = 2 * n_layers * n_weights",
        says="the matrices counted once more for each block",
        why="n_weights already counts the matrices of all blocks.",
        read="further/12_generation#gen-cost",
        alone=True,
    ),
}


def _cost_cases(seed: int) -> list[Case]:
    g = generator(seed)
    prompt, new, weights = torch.randint(3, 90, (3,), generator=g).tolist()
    sizes = (5, 6, 2, 11, 2, 1009 * weights)
    return [Case((*sizes, prompt, new), name="three heads share")]


# -- open: temperature and taste ---------------------------------------------
def taste() -> dict[str, float | int | None]:
    """Settings for the small Shakespeare model: temperature, top_k, top_p."""
    return {"temperature": 0.7, "top_k": None, "top_p": 0.9}


@cache
def _material() -> tuple[Any, Any, frozenset[str]]:
    from coursekit.data import load_text
    from coursekit.data import train_val_split as split
    from coursekit.saved_models import load

    model, tokenizer = load("running")
    learned, _ = split(load_text("shakespeare"), 0.1)
    return model, tokenizer, frozenset(_words(learned))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _tasted(value: Any, case: Case) -> str | None:
    """None if the texts are neither nonsense nor repetition."""
    from coursekit.generation import generate
    from coursekit.sampling import sampler
    from coursekit.steppers import GPTStepper

    wanted = {"temperature", "top_k", "top_p"}
    if not isinstance(value, dict) or not set(value) <= wanted:
        return (
            "Return a dict with the keys temperature, top_k and top_p, or "
            f"some of them: got {value!r}."
        )
    model, tokenizer, known = _material()
    prompts = [
        tokenizer.encode(start)
        for start in ("ROMEO:\n", "My lord, ", "The king", "What is", "I am")
        for _ in range(6)
    ]
    g = generator(12)
    try:
        choose = sampler(**value, generator=g)
    except (TypeError, ValueError) as error:
        return f"sampler refuses these settings: {error}"
    rows = generate(GPTStepper(model), prompts, 48, choose)
    words = [
        word for row in rows for word in _words(tokenizer.decode(row))[1:-1]
    ]
    fours = [
        len({tuple(row[i : i + 4]) for i in range(45)}) / 45 for row in rows
    ]
    share = sum(word in known for word in words) / len(words)
    new = sum(fours) / len(fours)
    if share < 0.85:
        return (
            f"Only {share:.0%} of its words occur in the training text. Aim "
            "at 85 % or more, with a lower temperature or a shorter tail."
        )
    if new < 0.95:
        return (
            f"Only {new:.0%} of its groups of four tokens are new in their "
            "text, so it repeats itself. Aim at 95 % or more, with a higher "
            "temperature."
        )
    return None


def _taste_cases(seed: int) -> list[Case]:
    return [Case((), name="thirty texts of the small Shakespeare model")]


EXERCISES = {
    "chances": Exercise(
        chances,
        _chances_cases,
        bugs=_CHANCES_BUGS,
        variants={
            "logs": Variant(
                "return p",
                "return p.log()",
                asks="Here logarithms of the probabilities are wanted, "
                "−∞ where there is no chance.",
            ),
        },
        forbid=(
            "coursekit.sampling.apply_temperature",
            "coursekit.sampling.keep_top_k",
            "coursekit.sampling.keep_top_p",
            "coursekit.sampling.sampler",
            "coursekit.sampler",
        ),
    ),
    "beam": Exercise(
        beam,
        _beam_cases,
        bugs=_BEAM_BUGS,
        variants={
            "google": Variant(
                "n**length_penalty",
                "((5 + n) / 6) ** length_penalty",
                asks="Here the score is the sum divided by `((5 + n) / "
                "6) ** length_penalty`, as in the paper.",
                texts={
                    "sum_only": {
                        "why": "No log-probability is above 0, so sums "
                        "prefer short texts. Divide by ((5 + n) / 6) ** "
                        "length_penalty.",
                    },
                    "chosen_by_sum": {
                        "says": "a winner chosen by its sum, and only then "
                        "divided by ((5 + n) / 6) ** length_penalty",
                        "why": "Divide each finished text's sum first, then "
                        "compare.",
                    },
                },
            ),
        },
        forbid=("coursekit.beam_search", "coursekit.generation.beam_search"),
    ),
    "write": Exercise(
        write,
        _write_cases,
        bugs=_WRITE_BUGS,
    ),
    "batched": Exercise(
        batched,
        _batched_cases,
        bugs=_BATCHED_BUGS,
        alike=[
            (
                {"right_columns"},
                {"right", "columns"},
                "with padding on the right the columns count real tokens",
            ),
        ],
        forbid=("coursekit.steppers.pad_rows",),
    ),
    "mended": Exercise(
        mended,
        _mended_cases,
        bugs=_MENDED_BUGS,
    ),
    "cost": Exercise(
        cost,
        _cost_cases,
        bugs=_COST_BUGS,
        forbid=("coursekit.cache.cache_bytes",),
    ),
    "taste": Exercise(taste, _taste_cases, judge=_tasted),
}
