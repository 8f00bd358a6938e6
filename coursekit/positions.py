"""Position schemes: sinusoidal, learned, rotary and ALiBi.

Positions act at one of three places: they are added to the embeddings
(sinusoidal, learned), they rotate queries and keys (RoPE), or they lower the
scores of distant keys (ALiBi).  :class:`Positions` has a method for the first
and one for the two in attention; each scheme fills in its own.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.checks import check_choice, check_integers, is_integer, require

Rotation = Callable[[Tensor], Tensor]
LAYOUTS = ("interleaved", "halves")
LAYOUT_REMEDY = "The paper interleaves; most published weights have halves."


def frequencies(size: int, base: float = 10000.0) -> Float[Tensor, "P"]:
    """Angles a step for each pair: 1, and down to nearly 1 / base.

    ``ω_i = base^(−2i / size)`` for pair i in 0..size/2 − 1.

    Args:
        size: number of coordinates, even; two make a pair.
        base: longest wavelength over 2π.

    Returns:
        (size/2,) radians a position, in float64 (rounded where it is used).

    Raises:
        ValueError: if ``size`` is odd.

    Chapter: 3, positions.
    Source: vaswani2017attention, section 3.5.
    Test: test_positions.py::test_frequencies_end_where_they_should
    """
    require(
        is_integer(size) and size % 2 == 0,
        "positions turn pairs of coordinates",
        f"size={size}",
        "Choose an even size.",
    )
    pairs = torch.arange(0, size, 2, dtype=torch.float64)
    return base ** (-pairs / size)


def sinusoidal(
    n_positions: int,
    d_model: int,
    layout: str = "interleaved",
    base: float = 10000.0,
) -> Float[Tensor, "T D"]:
    """The paper's position codes: pairs of hands turning at many speeds.

    ``PE[t, 2i] = sin(t ω_i)``, ``PE[t, 2i + 1] = cos(t ω_i)``.

    Args:
        n_positions: T, rows for positions 0..T-1.
        d_model: D, even.
        layout: ``"interleaved"`` (the paper: sin, cos, sin, cos, ...) or
            ``"halves"`` (all sines, then all cosines).
        base: longest wavelength over 2π.

    Returns:
        (T, D) codes.

    Raises:
        ValueError: if ``d_model`` is odd, a size is below 1, or the layout
            is unknown.

    Chapter: 3, positions.
    Source: vaswani2017attention, section 3.5.
    Test: test_positions.py::test_rows_by_the_papers_formula
    """
    check_choice("layout", layout, LAYOUTS, LAYOUT_REMEDY)
    check_integers(n_positions=n_positions)
    steps = torch.arange(n_positions, dtype=torch.float64)
    angles = steps[:, None] * frequencies(d_model, base)
    if layout == "halves":
        code = torch.cat((angles.sin(), angles.cos()), dim=-1)
    else:
        code = torch.stack((angles.sin(), angles.cos()), dim=-1)
        code = code.flatten(-2)
    return code.to(torch.get_default_dtype())


def rotate_pairs(
    x: Float[Tensor, "*B T Dh"],
    cos: Float[Tensor, "*C T P"],
    sin: Float[Tensor, "*C T P"],
    layout: str = "interleaved",
) -> Float[Tensor, "*B T Dh"]:
    """Turn each pair of coordinates by its angle.

    ``(a, b) → (a cos − b sin, a sin + b cos)``.

    Args:
        x: (..., T, Dh) queries or keys.
        cos: (T, Dh/2) cosines of the angles, or (B, 1, T, Dh/2).
        sin: their sines.
        layout: which coordinates make a pair: neighbors
            (``"interleaved"``), or i and i + Dh/2 (``"halves"``).

    Returns:
        (..., T, Dh), each row as long as before.

    Raises:
        ValueError: if the layout is unknown.

    Chapter: 15, modern.
    Source: su2021roformer, section 3.2.
    """
    check_choice("layout", layout, LAYOUTS, LAYOUT_REMEDY)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    if layout == "halves":
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.flatten(-2)


def alibi_slopes(n_heads: int) -> Float[Tensor, "H"]:
    """ALiBi's slope of each head: the penalty per position of distance.

    ``m_h = 2^(−8 (h + 1) / H)`` if H is a power of 2; otherwise the slopes of
    the next lower power, then every other one of the next higher.

    Args:
        n_heads: H.

    Returns:
        (H,) slopes, in score per position.

    Chapter: 15, modern.
    Source: press2022train, section 3.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    between = range(0, 2 * (n_heads - power), 2)
    finer = [2 ** (-4 * (h + 1) / power) for h in between]
    return torch.tensor(slopes + finer)


class Positions(nn.Module):
    """No positions at all, and the methods by which others act.

    Chapter: 3, positions.
    """

    def forward(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "..."]
    ) -> Float[Tensor, "B T D"]:
        """Add something to the embeddings.

        Args:
            x: (B, T, D) embeddings.
            positions: (T,) or (B, T) positions.

        Returns:
            (B, T, D).
        """
        return x

    def in_attention(
        self, positions: Int[Tensor, "..."], n_keys: int
    ) -> tuple[Rotation | None, Float[Tensor, "H T S"] | None]:
        """Rotation of queries and keys, and bias of the scores, in a scheme.

        Args:
            positions: (T,) or (B, T) positions of the queries, which are the
                last T of the S keys.
            n_keys: S, old keys included.

        Returns:
            ``rotate`` and ``bias`` for :class:`MultiHeadAttention`: a
            function that rotates (B, H, T, Dh), or None; and (H, T, S)
            numbers, or None.
        """
        return None, None


class SinusoidalPositions(Positions):
    """Adds :func:`sinusoidal` codes; it has no parameters.

    Args:
        max_len: number of positions.
        d_model: D, even.
        layout, base: as in :func:`sinusoidal`.

    Chapter: 3, positions.
    Source: vaswani2017attention, section 3.5.
    Test: test_positions.py::test_sums_are_formed
    """

    def __init__(
        self,
        max_len: int,
        d_model: int,
        layout: str = "interleaved",
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        code = sinusoidal(max_len, d_model, layout, base)
        self.register_buffer("code", code, persistent=False)
        self.code: Tensor

    def forward(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "..."]
    ) -> Float[Tensor, "B T D"]:
        """Add the code of each position."""
        return x + self.code[positions].to(x.dtype)


class LearnedPositions(Positions):
    """Adds a learned row for each position.

    Args:
        max_len: number of rows.
        d_model: D.

    Chapter: 3, positions.
    Source: vaswani2017attention, section 3.5 and Table 3 (E).
    Test: test_paper_table3.py::test_row_e_adds_two_tables
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "..."]
    ) -> Float[Tensor, "B T D"]:
        """Add the row of each position."""
        return x + self.weight[positions]


class Rotary(Positions):
    """RoPE: queries and keys turn with their position.

    The score of a query at m and a key at n then depends on m − n alone.

    Args:
        max_len: number of positions.
        d_head: Dh, even.
        layout, base: as in :func:`rotate_pairs` and :func:`frequencies`.

    Chapter: 15, modern.
    Source: su2021roformer, equations 13 to 16.
    """

    def __init__(
        self,
        max_len: int,
        d_head: int,
        layout: str = "interleaved",
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        self.layout = layout
        steps = torch.arange(max_len, dtype=torch.float64)
        angles = steps[:, None] * frequencies(d_head, base)
        dtype = torch.get_default_dtype()
        self.register_buffer("cos", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(dtype), persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    def in_attention(
        self, positions: Int[Tensor, "..."], n_keys: int
    ) -> tuple[Rotation, None]:
        """Rotate, by the positions; add nothing."""
        return self.rotation(positions), None

    def rotation(self, positions: Int[Tensor, "..."]) -> Rotation:
        """The rotation that belongs to (T,) or (B, T) positions."""
        cos, sin = self.cos[positions], self.sin[positions]
        if positions.dim() == 2:  # one row of positions a sequence
            cos, sin = cos[:, None], sin[:, None]
        return lambda x: rotate_pairs(x, cos, sin, self.layout)


class Alibi(Positions):
    """ALiBi: a head's scores fall off linearly with distance.

    Args:
        n_heads: H.

    Chapter: 15, modern.
    Source: press2022train.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        slopes = alibi_slopes(n_heads)
        self.register_buffer("slopes", slopes, persistent=False)
        self.slopes: Tensor

    def in_attention(
        self, positions: Int[Tensor, "..."], n_keys: int
    ) -> tuple[None, Float[Tensor, "H T S"]]:
        """Rotate nothing; add the bias."""
        return None, self.bias(positions.size(-1), n_keys)

    def bias(self, n_queries: int, n_keys: int) -> Float[Tensor, "H T S"]:
        """Minus slope times distance; queries are the last T of S.

        It knows columns only, not the positions given to a model: distances
        are right for rows that count up by one, from anywhere, with or
        without masked padding on the left.  For positions with gaps they are
        the distances in the row, not those between the positions.

        Args:
            n_queries: T.
            n_keys: S, old keys included.

        Returns:
            (H, T, S) numbers.
        """
        keys = torch.arange(n_keys, device=self.slopes.device)
        queries = keys[n_keys - n_queries :]
        distance = (queries[:, None] - keys).abs()
        return -self.slopes[:, None, None] * distance


SCHEMES: dict[str, Callable[[Any], Positions]] = {
    "learned": lambda c: LearnedPositions(c.max_len, c.d_model),
    "sinusoidal": lambda c: SinusoidalPositions(
        c.max_len, c.d_model, c.position_layout, c.rope_base
    ),
    "rope": lambda c: Rotary(
        c.max_len, c.head_size, c.position_layout, c.rope_base
    ),
    "alibi": lambda c: Alibi(c.n_heads),
    "none": lambda c: Positions(),
}
"""Each scheme by its name, built from a configuration."""
