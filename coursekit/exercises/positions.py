"""Exercises of chapter 3: references and cases."""

from collections.abc import Callable

import torch
from torch import Tensor

from coursekit.exercises.core import Case, Exercise, generator

FLOAT64 = torch.float64
Add = Callable[[Tensor], Tensor]


def speeds(d_model: int, base: float = 10000.0) -> Tensor:
    """Radians a position, for each of the d_model / 2 pairs."""
    pair = torch.arange(d_model // 2, dtype=FLOAT64)
    return base ** (-2 * pair / d_model)


def codes(positions: Tensor, d_model: int) -> Tensor:
    """(T, D): sine and cosine of each pair side by side."""
    angles = positions[:, None].to(FLOAT64) * speeds(d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def _code_cases(seed: int) -> list[Case]:
    g = generator(seed)
    gaps = torch.randperm(211, generator=g)[:7]
    start = int(torch.randint(2, 23, (), generator=g))
    return [
        Case((torch.arange(5), 6), name="five in a row"),
        Case((start + torch.arange(11), 26), name=f"counted from {start}"),
        Case((gaps, 38), name="any positions, in any order"),
    ]


def table(n_positions: int, d_model: int) -> Tensor:
    """Codes of positions 0 .. n_positions - 1."""
    return codes(torch.arange(n_positions), d_model)


def _table_cases(seed: int) -> list[Case]:
    g = generator(seed)
    many = int(torch.randint(100, 300, (), generator=g))
    return [
        Case((3, 4), name="the example by hand"),
        Case((7, 22), name="more pairs"),
        Case((many, 10), name="many positions"),
    ]


def read_speeds(code: Tensor) -> Tensor:
    """(D/2,): the angle by which each pair turns from row 0 to row 1."""
    return torch.atan2(code[1, 0::2], code[1, 1::2])


def _speed_cases(seed: int) -> list[Case]:
    g = generator(seed)
    cases = []
    for name, d_model, base in (
        ("the paper's codes", 14, 10000.0),
        ("another base", 22, 500.0),
        ("pairs counted twice over", 10, 10000.0**2),
    ):
        angles = torch.arange(13)[:, None] * speeds(d_model, base)
        code = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        cases.append(Case((code,), name=name))
    # Speeds in no order, up to just under half a turn.
    angles = torch.arange(5)[:, None] * (
        3.1 * torch.rand(7, generator=g, dtype=FLOAT64)
    )
    code = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    return [*cases, Case((code,), name="any speeds")]


def shift(k: int, d_model: int) -> Tensor:
    """(D, D): ``codes(t) @ shift(k)`` is ``codes(t + k)`` for every t."""
    angles = k * speeds(d_model)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((cos, -sin, sin, cos), dim=-1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


def _shift_cases(seed: int) -> list[Case]:
    k = int(torch.randint(2, 50, (), generator=generator(seed)))
    return [
        Case((1, 4), name="one step"),
        Case((k, 14), name=f"{k} steps"),
        Case((-k, 10), name=f"{k} steps back"),
    ]


def sees_places(add: Add) -> bool:
    """Whether add gives each place of each sequence its own vector."""
    x = torch.randn(3, 5, 8, dtype=FLOAT64)
    added = add(x) - x
    if not torch.allclose(added, added[:1].expand(3, 5, 8)):
        return False
    one = added[0]
    return all(
        not torch.allclose(one[i], one[j]) for i in range(5) for j in range(i)
    )


def _adders(g: torch.Generator) -> list[tuple[str, Add]]:
    """Ways to add positions to (B, T, D): two right, five wrong."""
    learned = torch.randn(64, 8, generator=g, dtype=FLOAT64)
    sines = table(64, 8)
    fixed = table(64, 8)[:, None]  # (64, 1, D), for batches (T, B, D)

    def counts_on(x: Tensor) -> Tensor:
        n_rows, n_places = x.shape[:2]
        places = torch.arange(n_rows * n_places).view(n_rows, n_places)
        return x + sines[places]

    def same_twice(x: Tensor) -> Tensor:
        return x + sines[torch.arange(x.size(1)) // 2]

    return [
        ("a sinusoidal table", lambda x: x + sines[: x.size(1)]),
        ("positions along the batch", lambda x: x + fixed[: x.size(0)]),
        ("a learned table", lambda x: x + learned[: x.size(1)]),
        ("no positions at all", lambda x: x.clone()),
        ("counting on from one sequence to the next", counts_on),
        ("one vector for all places", lambda x: x + learned[3]),
        ("two places share a vector", same_twice),
    ]


def _adder_cases(seed: int) -> list[Case]:
    return [Case((add,), name=name) for name, add in _adders(generator(seed))]


def design() -> Tensor:
    """(200, 8) codes: four clocks at speeds found by a random search."""
    g, best, kept = generator(0), 0.0, None
    for _ in range(200):
        w = torch.pi * torch.rand(4, generator=g, dtype=FLOAT64)
        angles = torch.arange(200)[:, None] * w
        code = torch.stack((angles.sin(), angles.cos()), -1).flatten(1) / 2
        closest = float((code[0] - code[1:]).norm(dim=1).min())
        if closest > best:
            best, kept = closest, code
    assert kept is not None
    return kept


def _judge_design(value: object, case: Case) -> str | None:
    if not isinstance(value, Tensor) or value.shape != (200, 8):
        return "the codes must be a tensor of shape (200, 8)"
    code = value.detach().to(FLOAT64)
    if not bool(code.isfinite().all()):
        return "some of the numbers are not finite"
    lengths = code.norm(dim=1)
    if float((lengths - 1).abs().max()) > 1e-4:
        return (
            "every code must have length 1: yours go from "
            f"{lengths.min():.3f} to {lengths.max():.3f}"
        )
    gram = code @ code.T
    uneven = float((gram[1:, 1:] - gram[:-1, :-1]).abs().max())
    if uneven > 1e-3:
        return (
            "the dot product must depend on the distance alone: one step "
            f"further along, yours changes by up to {uneven:.2g}"
        )
    gaps = (code[:, None] - code).norm(dim=-1) + 2 * torch.eye(200)
    if float(gaps.min()) < 0.6:
        place = int(gaps.argmin())
        return (
            f"positions {place // 200} and {place % 200} are only "
            f"{gaps.min():.2f} apart, and the goal is 0.6"
        )
    return None


EXERCISES = {
    "codes": Exercise(reference=codes, cases=_code_cases),
    "slow": Exercise(reference=table, cases=_table_cases),
    "speeds": Exercise(reference=read_speeds, cases=_speed_cases),
    "shift": Exercise(reference=shift, cases=_shift_cases),
    "sees_places": Exercise(reference=sees_places, cases=_adder_cases),
    "design": Exercise(
        reference=design, cases=lambda seed: [Case()], judge=_judge_design
    ),
}
