"""A mixture of experts: many feed-forward networks, a few for each token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.checks import require
from coursekit.feedforward import SwiGLU


def route(
    logits: Float[Tensor, "N E"], n_active: int
) -> tuple[Int[Tensor, "N K"], Float[Tensor, "N K"]]:
    """Choose the experts of each token, and how much each of them counts.

    The K highest logits; the softmax of these K alone.

    Args:
        logits: (N, E), one row a token, one column an expert.
        n_active: K.

    Returns:
        (N, K) numbers of experts, the likeliest first, and (N, K) weights
        that sum to 1.

    Chapter: 15, modern.
    Source: shazeer2017outrageously, equations 3 to 5, without noise.
    """
    top, chosen = logits.topk(n_active, dim=-1)
    return chosen, top.softmax(dim=-1)


class Experts(nn.Module):
    """Several gated networks; each token passes through a few of them.

    ``Σ over the chosen e of weight_e · SwiGLU_e(x)``: the weights of all
    experts, the work of the chosen ones.

    Args:
        d_model: D.
        d_ff: inner width of one expert.
        n_experts: E.
        n_active: K, how many each token passes through.  With 1, the one
            weight is always 1, and the router learns nothing.

    Raises:
        ValueError: if there are fewer experts than a token needs.

    Chapter: 15, modern.
    Source: shazeer2017outrageously, equation 1; jiang2024mixtral, section 2.
    Test: test_experts.py::test_experts_token_by_token
    """

    def __init__(
        self, d_model: int, d_ff: int, n_experts: int = 4, n_active: int = 2
    ) -> None:
        super().__init__()
        require(
            1 <= n_active <= n_experts,
            "each token needs at least one expert, and no more than there are",
            f"n_active={n_active}, n_experts={n_experts}",
            "Two of four are usual in small models.",
        )
        self.n_active = n_active
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(
            SwiGLU(d_model, d_ff) for _ in range(n_experts)
        )

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map each (D,) vector of (..., D) by itself."""
        tokens = x.reshape(-1, x.size(-1))
        chosen, weights = route(self.router(tokens), self.n_active)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            part = weights[row, place, None] * expert(tokens[row])
            out = out.index_add(0, row, part.to(out.dtype))
        return out.view_as(x)
