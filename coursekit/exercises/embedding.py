"""Exercises of chapter 2: references and cases."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.exercises.core import Case, Exercise, generator
from coursekit.positions import sinusoidal

Pairs = list[tuple[int, int]]


def _draw(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


def look_up(ids: Tensor, table: Tensor) -> Tensor:
    """One row of the table for each id."""
    return table[ids]


def _look_up_cases(seed: int) -> list[Case]:
    g = generator(seed)
    ids = torch.randint(13, (3, 5), generator=g)
    return [
        Case((torch.tensor([4, 1, 2, 4, 0]), _draw(g, 5, 7)), name="a line"),
        Case((ids, _draw(g, 13, 7)), name="a batch of three lines"),
        Case((torch.tensor([10]), _draw(g, 11, 2)), name="the last row"),
        Case((torch.tensor([3, 0]), _draw(g, 7, 2)), name="only low ids"),
    ]


def look_up_backward(dx: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """The table's gradient: each row adds up what its uses get."""
    gradient = dx.new_zeros(vocab_size, dx.size(-1))
    return gradient.index_add(0, ids.flatten(), dx.flatten(0, -2))


def _look_up_backward_cases(seed: int) -> list[Case]:
    g = generator(seed)
    once = torch.randperm(11, generator=g)[:5]
    thrice = torch.tensor([3, 1, 3, 3, 5])
    batch = torch.randint(7, (3, 5), generator=g)
    return [
        Case((_draw(g, 5, 2), once, 11), name="no token twice"),
        Case((_draw(g, 5, 2), thrice, 7), name="a token three times"),
        Case((_draw(g, 3, 5, 2), batch, 13), name="a batch"),
    ]


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


def recipe(
    vocab_size: int, d_model: int, g: torch.Generator
) -> tuple[Tensor, float]:
    """A tied table, and the factor on the way in: the paper's."""
    table = torch.randn(vocab_size, d_model, generator=g) * d_model**-0.5
    return table, d_model**0.5


def _recipe_cases(seed: int) -> list[Case]:
    sizes = [(97, 34), (29, 22), (211, 58)]
    return [
        Case((v, d, generator(seed)), name=f"V = {v}, D = {d}")
        for v, d in sizes
    ]


def _recipe_judge(value: tuple[Tensor, float], case: Case) -> str | None:
    vocab_size, d_model, _ = case.args
    table, factor = value
    if tuple(table.shape) != (vocab_size, d_model):
        return f"The table has the shape {tuple(table.shape)}."
    ids = torch.randint(vocab_size, (101,), generator=generator(0))
    tokens = factor * table[ids[:-1]]
    places = sinusoidal(100, d_model)
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
    x = F.layer_norm(tokens + places, (d_model,))
    loss = F.cross_entropy(x @ table.T, ids[1:])
    know_nothing = math.log(vocab_size)
    if not loss <= know_nothing + 5:
        return (
            f"It starts at {loss:.1f} nats, and ln V is {know_nothing:.1f}: "
            "far too sure."
        )
    return None


class TwoEnds(nn.Module):
    """A table on the way in and a matrix on the way out."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)


def is_tied(model: TwoEnds) -> bool:
    """One tensor under two names?"""
    return model.head.weight is model.embedding.weight


def _is_tied_cases(seed: int) -> list[Case]:
    def make() -> TwoEnds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = TwoEnds(7, 3)
        model.head.weight = model.embedding.weight
        return model

    tied, copied, replaced, zeros = make(), make(), make(), make()
    copied.head.weight = nn.Parameter(copied.embedding.weight.clone())
    replaced.embedding = nn.Embedding.from_pretrained(
        replaced.head.weight.detach().clone(), freeze=False
    )
    nn.init.zeros_(zeros.embedding.weight)
    apart = TwoEnds(7, 3)
    return [
        Case((tied,), name="tied"),
        Case((apart,), name="two tables"),
        Case((copied,), name="equal values, copied"),
        Case((replaced,), name="the table replaced after tying"),
        Case((zeros,), name="tied, all zero"),
    ]


def analogy(table: Tensor, a: int, b: int, c: int, leave_out: bool) -> int:
    """The row nearest to b − a + c, by cosine, rows of length 1."""
    rows = F.normalize(table, dim=1)
    scores = rows @ (rows[b] - rows[a] + rows[c])
    if leave_out:
        scores[[a, b, c]] = -math.inf
    return int(scores.argmax())


def _analogy_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for i in range(11):
        table = _draw(g, 29, 5) * _draw(g, 29, 1).exp()
        a, b, c = torch.randperm(29, generator=g)[:3].tolist()
        if i == 1:
            table[b] = -table[a]  # then b itself is the nearest row
        name = "query words left out" if i % 3 else "every word may answer"
        cases.append(Case((table, a, b, c, i % 3 > 0), name=name))
    return cases


EXERCISES = {
    "look_up": Exercise(reference=look_up, cases=_look_up_cases),
    "look_up_backward": Exercise(
        reference=look_up_backward, cases=_look_up_backward_cases
    ),
    "rise": Exercise(reference=rise, cases=_rise_cases, judge=_rise_judge),
    "recipe": Exercise(
        reference=recipe, cases=_recipe_cases, judge=_recipe_judge
    ),
    "is_tied": Exercise(reference=is_tied, cases=_is_tied_cases),
    "analogy": Exercise(reference=analogy, cases=_analogy_cases),
}
