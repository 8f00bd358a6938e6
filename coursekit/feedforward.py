"""The two-layer network that works on each position alone."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.checks import check_choice, check_integers
from coursekit.dropout import Dropout


def gelu_tanh(x: Tensor) -> Tensor:
    """GPT-2's approximation of GELU."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
}
OTHER_NETWORK = "SwiGLU is a class of its own."


class FeedForward(nn.Module):
    """Widen, bend, narrow: the same network at every position.

    ``f(x W_in + b_in) W_out + b_out``.

    Args:
        d_model: D.
        d_ff: inner width, Dff; 4 D in the paper.
        activation: f, by name: relu, gelu, gelu_tanh, silu.
        bias: give both layers a bias.
        dropout: share of the inner activations zeroed in training.

    Raises:
        ValueError: if the activation is unknown, or a size is below 1.

    Differs from the paper: dropout inside too, as nn.Transformer has it.
    Chapter: 8, feed-forward.
    Source: vaswani2017attention, equation 2.
    Test: test_feedforward.py::test_equal_to_torch_layers
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS, OTHER_NETWORK)
        check_integers(d_model=d_model, d_ff=d_ff)
        self.w_in = nn.Linear(d_model, d_ff, bias)
        self.w_out = nn.Linear(d_ff, d_model, bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        return self.w_out(self.dropout(self.activation(self.w_in(x))))


class SwiGLU(nn.Module):
    """A feed-forward network whose inner units are opened by a gate.

    ``(silu(x W_gate) · x W_in) W_out``: three matrices; with Dff = 8D/3 they
    have as many weights as two with 4D.

    Args:
        d_model: D.
        d_ff: inner width, Dff.
        bias: give the layers a bias.
        dropout: share of the inner activations zeroed in training.

    Raises:
        ValueError: if a size is below 1.

    Chapter: 15, modern.
    Source: shazeer2020glu, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_integers(d_model=d_model, d_ff=d_ff)
        self.w_gate = nn.Linear(d_model, d_ff, bias)
        self.w_in = nn.Linear(d_model, d_ff, bias)
        self.w_out = nn.Linear(d_ff, d_model, bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        inner = F.silu(self.w_gate(x)) * self.w_in(x)
        return self.w_out(self.dropout(inner))


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    name: partial(FeedForward, activation=name) for name in ACTIVATIONS
} | {"swiglu": SwiGLU}
"""Each feed-forward network by its activation's name; takes its widths,
``bias`` and ``dropout``."""
