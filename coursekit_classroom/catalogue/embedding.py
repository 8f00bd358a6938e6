"""Exercises of chapter 2: embedding."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.positions import sinusoidal
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
from coursekit_classroom.check.forbid import AUTOGRAD

Pairs = list[tuple[int, int]]


_GUESSED = Bug(
    says="a vocabulary that ends with the largest of these ids",
    why="one_hot(ids) without a size takes the largest id that it sees. A "
    "text need not use the last tokens: say how many there are.",
    read="02_embedding#emb-by-hand",
)


# -- implement: a look-up without looking up ---------------------------------
def look_up(ids: Tensor, table: Tensor) -> Tensor:
    """One row of the table for each id, by a product with one-hot rows.

    `table` is `(V, D)`: row i is the vector of token i. `ids` are whole
    numbers from 0 to `V − 1` of any shape, such as `(T,)` or `(B, T)`; the
    largest of them may be far below `V − 1`.
    The result has the shape of `ids` and one axis more, of `D` numbers:
    `(T, D)` or `(B, T, D)`. At each place stands the row of its id, unchanged:
    what `table[ids]` gives.
    """
    one_hot = F.one_hot(ids, len(table)).to(table.dtype)
    x = one_hot @ table
    return x


_LOOK_UP_BUGS = {
    "guessed": _GUESSED.by("len(table)", "int(ids.max()) + 1"),
    "looked_up": Bug(
        "one_hot @ table",
        "table[ids]",
        says="rows that are looked up, not a product",
        why="A look-up is a product with one-hot vectors: that is what you "
        "are asked to write.",
        read="02_embedding#emb-formula",
        alone=True,
    ),
    "root": Bug(
        "@ table",
        "@ table * table.size(-1) ** 0.5",
        says="the rows multiplied by √D",
        why="The paper does that after the look-up, to keep up with the "
        "positions. The look-up itself does not scale.",
        read="further/02_embedding#emb-root",
    ),
    "float32": Bug(
        "table.dtype",
        "torch.float32",
        says="one-hot rows in float32, whatever the table's precision",
        why="A product needs one precision for both: .to(table.dtype).",
        read="02_embedding#emb-formula",
        alone=True,
    ),
    "long": Bug(
        ".to(table.dtype)",
        "",
        says="one-hot rows of whole numbers in a product with decimals",
        why="F.one_hot gives whole numbers. A product needs one type for "
        "both: .to(table.dtype).",
        read="02_embedding#emb-formula",
        alone=True,
    ),
}


def _look_up_manner(used: Mapping[str, int], case: Case) -> str | None:
    """What is wrong with a way that looks rows up, and multiplies nothing."""
    products = ("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm")
    look_ups = ("index", "index_select", "gather", "take", "embedding")
    multiplied, looked_up = (
        any(f"aten.{name}" in used for name in names)
        for names in (products, look_ups)
    )
    if looked_up and not multiplied:
        return "The rows are right, but looked up. Use one matrix product."
    return None


def _look_up_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(13, (3, 5), generator=g)
    ids[1, 2] = 12  # only the last case leaves out the last row
    return [
        Case((torch.tensor([4, 1, 2, 4, 0]), randn(g, 5, 7)), name="a line"),
        Case((ids, randn(g, 13, 7)), name="a batch of three lines"),
        Case((torch.tensor([3, 0]), randn(g, 7, 2)), name="only low ids"),
    ]


# -- implement: the gradient of the table ------------------------------------
def look_up_backward(dx: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """The table's gradient: each row adds up what its uses get.

    The forward pass is `x = table[ids]`, with a `table` of `(V, D)` and
    `V = vocab_size`. `ids` has any shape, such as `(T,)` or `(B, T)`; `dx` has
    one axis more, of `D` numbers, and is the gradient of the loss by `x`.
    Returned is the gradient of the loss by the table, `(V, D)`: row i is the
    sum of `dx` over all places of all sentences where `ids` is i. Rows of
    tokens that do not occur are 0, and there may be many at the end.
    """
    gradient = dx.new_zeros(vocab_size, dx.size(-1))
    rows, pulls = ids.flatten(), dx.flatten(0, -2)
    gradient = gradient.index_add(0, rows, pulls)
    return gradient


_BACKWARD_BUGS = {
    "last_wins": Bug(
        "gradient = gradient.index_add(0, rows, pulls)",
        "gradient[rows] += pulls",
        says="a token that occurs twice keeps only its last gradient",
        why="gradient[ids] += dx reads, adds and writes each row once, "
        "however often it is named. index_add adds them all.",
        read="further/02_embedding#emb-gradient",
    ),
    "mean": Bug(
        "gradient = gradient.index_add(0, rows, pulls)",
        "gradient = gradient.index_add(0, rows, pulls)\n"
        "    uses = rows.bincount(minlength=len(gradient)).clamp(min=1)\n"
        "    gradient = gradient / uses[:, None]",
        says="the mean of a token's gradients instead of their sum",
        why="Two uses, two gradients, added up: that is why frequent tokens "
        "move far. Do not divide by the number of uses.",
        read="further/02_embedding#emb-predict-rows",
        at="add",
    ),
    "columns": Bug(
        "return gradient",
        "return gradient.mT",
        says="the transposed gradient, (D, V)",
        why="A gradient has the shape of what it belongs to: the table is "
        "(V, D), and dE = Oᵀ dX.",
        read="further/02_embedding#emb-gradient",
    ),
    "guessed": _GUESSED.by(
        "new_zeros(vocab_size", "new_zeros(int(ids.max()) + 1"
    ),
}


def _look_up_backward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    once = torch.randperm(10, generator=g)[:5]
    thrice = torch.tensor([3, 0, 3, 3, 6])
    batch = torch.randint(7, (3, 5), generator=g)
    return [
        Case((randn(g, 5, 2), once, 11), name="no token twice"),
        Case((randn(g, 5, 2), thrice, 7), name="a token three times"),
        Case((randn(g, 3, 5, 2), batch, 13), name="a batch"),
    ]


# -- measure: where does the meaning come from? ------------------------------
def rise(ids: Tensor, vocab_size: int, pairs: Pairs) -> float:
    """Mean rise of the pairs' cosine when next tokens are learned."""
    rises = []
    for seed in range(3):
        torch.manual_seed(seed)
        table, head = nn.Embedding(vocab_size, 64), nn.Linear(64, vocab_size)
        parameters = [*table.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=0.02)
        before = table.weight.detach().clone()
        for _ in range(60):
            loss = F.cross_entropy(head(table(ids[:-1])), ids[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for a, b in pairs:
            new, old = (
                F.cosine_similarity(t[a], t[b], dim=0)
                for t in (table.weight.detach(), before)
            )
            rises.append(float(new - old))
    return sum(rises) / len(rises)


def _rise_cases(seed: int) -> list[Case]:
    """Sentences of four tokens; 3 and 4 are followed alike, 5 and 6 too."""
    g = generator(seed)

    def pick(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (300,), generator=g)

    noun = pick(3, 7)
    verb = torch.where(noun < 5, pick(7, 10), pick(10, 13))
    ids = torch.stack([pick(0, 3), noun, verb, pick(13, 17)], 1).flatten()
    shuffled = ids[torch.randperm(len(ids), generator=g)]
    pairs = [(3, 4), (5, 6)]
    return [
        Case((ids, 17, pairs), name="the corpus"),
        Case((shuffled, 17, pairs), name="the same tokens, shuffled"),
    ]


def _rise_judge(value: object, case: Case) -> str | None:
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    if not isinstance(value, float | int):
        return f"The mean rise is one number; got {type(value).__name__}."
    if case.name == "the corpus" and not value >= 0.1:
        return (
            f"The pairs' cosine rose by {value:.2f}, expected 0.10 at the "
            "least. Is it trained for long enough, and compared with the "
            "table before training (a copy of it)?"
        )
    if case.name != "the corpus" and not abs(value) < 0.1:
        return (
            f"On the shuffled tokens the cosine changed by {value:.2f}, but "
            "there is nothing to learn. Longer vectors, fewer steps or more "
            "seeds make it steadier."
        )
    return None


# -- debug: a start of dozens of nats ----------------------------------------
def recipe(vocab_size: int, d_model: int) -> tuple[Tensor, float]:
    """A tied table, and the factor on the way in, for a sane start.

    `(table, factor)` is used so: `x = factor * table[ids] + places`, then a
    norm brings the entries of `x` to size 1, then `logits = x tableᵀ`.
    `places` are the paper's sinusoids, rows of length `√(D/2)`. `table` is
    random, `(vocab_size, d_model)`; `factor` is one number.
    They are right if at any width `D` an untrained model starts below
    `ln V + 5` nats, and of a place and a token's vector, after the factor,
    neither is over three times as long as the other. The paper's are: entries
    with mean 0 and standard deviation `1/√D`, and the factor `√D`.
    """
    table = torch.randn(vocab_size, d_model)
    return table * d_model**-0.5, d_model**0.5


_RECIPE_BUGS = {
    "long": Bug(
        "table * d_model**-0.5",
        "table",
        says="a table with a standard deviation of 1",
        why="Its rows are √D long. On the way out the current token meets "
        "its own row, and the model is all but certain. Tied rows have "
        "length 1.",
        read="further/02_embedding#emb-predict-start",
    ),
    "small": Bug(
        "table * d_model**-0.5",
        "table * 0.02",
        says="a table with a standard deviation of 0.02",
        why="That starts near ln V, as it should. But in the sum such rows "
        "are far shorter than the places: they take a factor near 50.",
        read="further/02_embedding#emb-predict-small",
    ),
    "by_d": Bug(
        "table * d_model**-0.5",
        "table / d_model",
        says="a standard deviation of 1/D instead of 1/√D",
        why="The length of a row is its standard deviation times √D: with "
        "1/√D it is 1, with 1/D it shrinks with the width.",
        read="further/02_embedding#emb-root",
    ),
    "no_factor": Bug(
        ", d_model**0.5",
        ", 1.0",
        says="nothing multiplied by √D on the way in",
        why="The way out wants short rows, the way in wants them as long as "
        "the places, √(D/2). A factor of √D gives both.",
        read="further/02_embedding#emb-root",
    ),
    "divided": Bug(
        ", d_model**0.5",
        ", d_model**-0.5",
        says="a factor of 1/√D on the way in",
        why="The wrong way round: rows of length 1 must become longer "
        "before a place is added to them.",
        read="further/02_embedding#emb-root",
    ),
}


def _recipe_cases(seed: int) -> list[Case]:
    few, many = torch.randint(97, 211, (2,), generator=generator(seed))
    sizes = [(int(few), 14), (int(many), 42)]
    return [Case((v, d), name=f"V = {v}, D = {d}") for v, d in sizes]


def _recipe_view(value: Any, case: Case) -> tuple[str, float, float]:
    """The shape in words, the spread of the table, and the factor."""
    table, factor = value
    std = float(table.detach().std())
    return str(tuple(table.shape)), std, float(factor)


def _recipe_judge(value: Any, case: Case) -> str | None:
    vocab_size, d_model = case.args
    table, factor = value
    if tuple(table.shape) != (vocab_size, d_model):
        return f"The table has the shape {tuple(table.shape)}."
    table = table.detach().float()
    ids = torch.randint(vocab_size, (401,), generator=generator(0))
    tokens = float(factor) * table[ids[:-1]]
    places = sinusoidal(400, d_model)
    ratio = float(places.norm(dim=1).mean() / tokens.norm(dim=1).mean())
    if not ratio <= 3:
        return (
            f"The vectors of the places are {ratio:.1f} times as long as "
            "those of the tokens, and drown them."
        )
    if ratio < 1 / 3:
        return (
            f"The vectors of the tokens are {1 / ratio:.1f} times as long as "
            "those of the places, and drown them."
        )
    if not table.std(0).max() > 0.1 * table.square().mean().sqrt():
        return "All tokens have the same row: start with random ones."
    x = F.layer_norm(tokens + places, (d_model,))
    loss = F.cross_entropy(x @ table.T, ids[1:])
    know_nothing = math.log(vocab_size)
    if not loss <= know_nothing + 5:
        return (
            f"It starts at {loss:.1f} nats, and ln V is {know_nothing:.1f}: "
            "far too sure."
        )
    return None


# -- debug: is it tied? ------------------------------------------------------
class TwoEnds(nn.Module):
    """A table on the way in and a matrix on the way out."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)


def is_tied(model: TwoEnds) -> bool:
    """One tensor under two names?"""
    table, matrix = model.embedding.weight, model.head.weight
    return table is matrix


_TIED_BUGS = {
    "modules": Bug(
        "table is matrix",
        "model.head is model.embedding",
        says="a test that never says True, such as comparing the two modules",
        why="An embedding and a linear layer are always two modules. What "
        "can be one and the same is their weight.",
        read="further/02_embedding#emb-wrong",
    ),
    "shapes": Bug(
        "table is matrix",
        "table.shape == matrix.shape",
        says="a test that never says False, such as comparing shapes",
        why="Any two tables for these tokens have the same shape.",
        read="further/02_embedding#emb-wrong",
    ),
    "values": Bug(
        "table is matrix",
        "torch.equal(table, matrix)",
        says="a test whether the numbers are equal",
        why="A copy is equal until one of the two is trained. Ask whether "
        "they are one tensor: `is`, not `==` or torch.equal.",
        read="further/02_embedding#emb-wrong",
    ),
}


def _is_tied_cases(seed: int) -> list[Case]:
    def make() -> TwoEnds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = TwoEnds(7, 3)
        model.head.weight = model.embedding.weight
        return model

    tied, copied, replaced, zeros = make(), make(), make(), make()
    copied.head.weight = nn.Parameter(copied.embedding.weight.clone())
    rows = replaced.embedding.weight.detach().clone()
    rows[3:] = torch.randn(4, 3)  # vectors for some of the tokens
    replaced.embedding = nn.Embedding.from_pretrained(rows, freeze=False)
    nn.init.zeros_(zeros.embedding.weight)
    return [
        Case((tied,), name="tied"),
        Case((TwoEnds(7, 3),), name="two tables"),
        Case((copied,), name="equal values, copied"),
        Case((replaced,), name="the table replaced after tying"),
        Case((zeros,), name="tied, all zero"),
    ]


# -- implement, then judge: analogies, honestly ------------------------------
def analogy(table: Tensor, a: int, b: int, c: int, leave_out: bool) -> int:
    """The answer to “a is to b as c is to …”, as the number of a row.

    `table` is `(V, D)`, a row for each word; `a`, `b` and `c` are three
    different row numbers. Each row is first brought to length 1. From these
    unit rows comes the query, `b − a + c`. The answer is the row whose cosine
    with the query is the largest: a whole number, counted from 0.
    With `leave_out` True, none of the rows a, b and c may be the answer. With
    False every row may be, these three included. `table` stays as it was.
    """
    rows = F.normalize(table, dim=1)
    scores = rows @ (rows[b] - rows[a] + rows[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


_ANALOGY_BUGS = {
    "dot": Bug(
        "F.normalize(table, dim=1)",
        "table",
        says="dot products of the rows as they are, not cosines",
        why="In a dot product long rows win, whatever their direction. "
        "Bring all rows to length 1 first.",
        read="02_embedding#emb-by-hand",
        at="length",
    ),
    "unit_columns": Bug(
        "dim=1",
        "dim=0",
        says="the columns of the table brought to length 1 (dim=0), not the "
        "rows",
        why="A row is a word. Normalize along the last axis, so that each "
        "row gets length 1.",
        read="02_embedding#emb-convention",
        at="length",
    ),
    "reversed": Bug(
        "rows[b] - rows[a]",
        "rows[a] - rows[b]",
        says="a − b + c instead of b − a + c",
        why="a is to b as c is to …: take the step from a to b, b − a, and "
        "make it from c.",
        read="further/02_embedding#emb-analogies",
        otherwise=[("table[b] - table[a]", "table[a] - table[b]")],
    ),
    "only_third": Bug(
        "[[a, b, c]]",
        "[[c]]",
        says="only c left out, not a and b",
        why="b is often nearer to b − a + c than any answer: strike off all "
        "three.",
        read="further/02_embedding#emb-analogies",
        at="leave_out",
    ),
    "first_stays": Bug(
        "[[a, b, c]]",
        "[[b, c]]",
        says="b and c left out, but not a",
        why="a seldom is the nearest, since it is subtracted; but where it "
        "lies between b and c it is. Strike off all three.",
        read="further/02_embedding#emb-analogies",
        at="leave_out",
    ),
    "never": Bug(
        "    if leave_out:\n        scores[[a, b, c]] = -math.inf\n",
        "",
        says="the query words not left out, even where they should be",
        why="With leave_out, rows a, b and c may not answer.",
        read="further/02_embedding#emb-predict-king",
    ),
    "always": Bug(
        "if leave_out:\n        ",
        "",
        says="the query words always left out",
        why="Without leave_out every word may answer. That is the honest "
        "test, and the one that mostly fails.",
        read="further/02_embedding#emb-predict-king",
        at="leave_out",
    ),
}


def _analogies(seed: int) -> Iterator[Case]:
    """Questions without end; rows and columns of different lengths."""
    g = generator(seed)
    for n in itertools.count():
        table = randn(g, 29, 5)
        table *= (0.7 * randn(g, 29, 1)).exp() * randn(g, 5).exp()
        a, b, c = torch.randperm(29, generator=g)[:3].tolist()
        if n % 3:  # a word between two others is near b − a + c, or a − b + c
            end, between = (b, a) if n % 3 == 1 else (a, b)
            table[[end, c]] *= 3
            table[between] = 0.8 * (table[end] + table[c])
        leave_out = n % 2 == 1
        name = "left out" if leave_out else "may answer"
        yield Case((table, a, b, c, leave_out), name=f"query words {name}")


@lru_cache
def _analogy_cases(seed: int) -> Sequence[Case]:
    """Questions on which each mistake has answers of its own.

    Another answer is mostly another word, but by chance the same: a question
    is kept if it tells two mistakes apart that none before it did.
    """
    answers: dict[Switches, tuple[int, ...]] = {NONE: ()}
    answers |= dict.fromkeys(mutants(EXERCISES["analogy"]), ())
    cases = []
    for case in _analogies(seed):
        more = {
            on: (*so_far, mutant(EXERCISES["analogy"], on)(*case.args))
            for on, so_far in answers.items()
        }
        if len(set(more.values())) > len(set(answers.values())):
            answers = more
            cases.append(case)
        if len(set(answers.values())) == len(answers):
            return cases
    raise AssertionError("there is no end of questions")


EXERCISES = {
    "look_up": Exercise(
        look_up,
        _look_up_cases,
        bugs=_LOOK_UP_BUGS,
        variants={
            "padding": Variant(
                "x = one_hot",
                "one_hot[..., 0] = 0\n    x = one_hot",
                asks="Here id 0 is padding: its vector is all zeros, "
                "whatever the table says.",
            ),
        },
        manner=_look_up_manner,
        forbid=(
            "torch.nn.functional.embedding",
            "torch.nn.functional.embedding_bag",
            "torch.nn.Embedding",
            "torch.index_select",
            "torch.Tensor.index_select",
            "coursekit.TokenEmbedding",
        ),
    ),
    "look_up_backward": Exercise(
        look_up_backward,
        _look_up_backward_cases,
        bugs=_BACKWARD_BUGS,
        variants={
            "padding": Variant(
                "return gradient",
                "gradient[..., 0, :] = 0\n    return gradient",
                asks="Here id 0 is padding: its row gets no gradient.",
            ),
        },
        forbid=AUTOGRAD,
    ),
    "rise": Exercise(rise, _rise_cases, judge=_rise_judge),
    "recipe": Exercise(
        recipe,
        _recipe_cases,
        rtol=0.1,
        judge=_recipe_judge,
        bugs=_RECIPE_BUGS,
        view=_recipe_view,
    ),
    "is_tied": Exercise(
        is_tied,
        _is_tied_cases,
        bugs=_TIED_BUGS,
        local="Its arguments are models. Whether two names mean one tensor "
        "is lost when a model is sent to a sandbox.",
    ),
    "analogy": Exercise(
        analogy,
        _analogy_cases,
        bugs=_ANALOGY_BUGS,
    ),
}
