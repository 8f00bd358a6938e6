"""A view of a model that trains faster: the same parameters, other code.

The plain model stays what is saved, counted and optimized.  A view is made
of the plain model's own modules, but for three kinds of which it has copies:
attention (two plain products in place of a slow kernel), dropout (a quarter
of the random numbers), and what contains them.
"""

import copy
import math
import os
import shutil
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import fast_attend
from coursekit.masks import causal_mask
from coursekit.multihead import MultiHeadAttention

CHANCES = 2**16  # what two random bytes can tell apart


def fast_dropout(
    x: Float[Tensor, "*B"], p: float, training: bool = True
) -> Float[Tensor, "*B"]:
    """Zero a share of the numbers, and scale up the others.

    ``x · keep / (1 − p)``, keep 0 with probability p and else 1: what is
    expected stays the same.  PyTorch draws each of these bits by itself,
    which on a CPU can take a quarter of a training step.  Here one random
    number of 64 bits decides for four places, so p is rounded to a multiple
    of 1/65,536.

    Args:
        x: any shape.
        p: share that is zeroed, 0 to 1.
        training: False returns ``x`` as it is.

    Returns:
        As ``x``.

    Raises:
        ValueError: if ``p`` does not lie in 0 to 1.

    Chapter: 11, training.
    Source: srivastava2014dropout; vaswani2017attention, section 5.4.
    Test: test_dropout.py::test_shares_and_scale
    """
    if not training or p == 0:
        return x
    is_slow = x.device.type == "cpu" and not torch.compiler.is_compiling()
    limit, n = round(p * CHANCES), x.numel()
    if not is_slow or not 0 < limit < CHANCES:
        return F.dropout(x, p)  # it also refuses what is no share
    dice = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    # Signed: the lowest of the 65,536 values is -32,768.
    keep = dice.view(torch.int16)[:n] >= limit - CHANCES // 2
    scale = CHANCES / (CHANCES - limit)
    return x * keep.view(x.shape).to(x.dtype).mul_(scale)


LONGEST_PRODUCTS = 512  # positions


def for_training(model: nn.Module, compile: bool = False) -> nn.Module:
    """A view of a model for training: the same parameters, other code.

    Optimizer, ``state_dict()`` and ``named_parameters()`` of the plain model
    hold, and those of the view are the same.  Only modules of exactly the
    package's types are replaced; what is of another type, has a hook or a
    ``forward`` of its own runs as it is, with all that is in it.  Put DDP or
    FSDP around the view, not under it: there nothing is replaced.

    Loss and gradients are the model's up to rounding.  With dropout on a CPU
    the masks are others than the model draws from the same seed.

    Args:
        model: on its device; left as it is.
        compile: compile the view, with ``torch.compile``.

    Returns:
        What to call in the model's place; it has the model's methods.

    Raises:
        ValueError: if a compiler is asked for and there is none.

    Chapter: 11, training.
    Test: test_fast.py::test_a_view_has_the_models_parameters
    """
    view = _view(model)
    if not compile:
        return view
    compiler = os.environ.get("CXX") or "g++"
    on_cpu = next(model.parameters()).device.type == "cpu"
    if on_cpu and not any(map(shutil.which, (compiler, "clang++", "cl"))):
        raise ValueError(
            "compile needs a C++ compiler on the CPU: got none. Install "
            "g++, or train without compile (--no-compile, also to resume)."
        )
    compiled: Any = torch.compile(view)
    return compiled


def _view(module: nn.Module) -> nn.Module:
    """A module, or a copy that has the same parameters."""
    kind = type(module)
    package = kind.__module__.partition(".")[0]
    is_ours = package == "coursekit" or kind in (nn.ModuleList, nn.Dropout)
    if not is_ours or _has_hooks(module) or "forward" in vars(module):
        return module
    if kind in LEAVES:
        leaf = copy.copy(module)
        leaf.__class__ = LEAVES[kind]
        vars(leaf).update(plain=module, training=True)
        if getattr(module, "attend", None) is fast_attend:
            vars(leaf)["attend"] = training_attend
        return leaf
    children = dict(module.named_children())
    views = {name: _view(child) for name, child in children.items()}
    if all(views[name] is children[name] for name in views):
        return module
    copied = copy.copy(module)
    copied._modules = {**module._modules, **views}
    return copied


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


class _Leaf(nn.Module):
    """Stand-in for a module, which follows the module's mode."""

    plain: nn.Module

    @property
    def training(self) -> bool:
        """True if both modules are in training mode."""
        return self.plain.training and vars(self)["training"]

    @training.setter
    def training(self, mode: bool) -> None:
        self.plain.training = mode


class _Attention(_Leaf, MultiHeadAttention):
    """Calls :func:`training_attend` in place of ``fast_attend``."""


class _Dropout(_Leaf, nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return fast_dropout(x, self.p, self.training)


LEAVES = {MultiHeadAttention: _Attention, nn.Dropout: _Dropout}


# -- attention ---------------------------------------------------------------


def is_quicker_in_products(q: Tensor, k: Tensor, dropout_p: float) -> bool:
    """True if two matrix products beat PyTorch's fused call, as measured."""
    is_slow = q.dtype == torch.bfloat16 and q.requires_grad
    return (
        (is_slow or dropout_p > 0)
        and q.device.type == "cpu"
        and q.dim() == 4
        and q.shape[:2] == k.shape[:2]
        and max(q.size(-2), k.size(-2)) <= LONGEST_PRODUCTS
    )


def training_attend(
    q: Float[Tensor, "... T Dh"],
    k: Float[Tensor, "... S Dh"],
    v: Float[Tensor, "... S Dv"],
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    bias: Tensor | None = None,
) -> Float[Tensor, "... T Dv"]:
    """:func:`coursekit.attention.fast_attend`, in two products where quicker.

    On a CPU the backward pass of PyTorch's kernel is slow in bfloat16, five
    times slower at 64 positions, and with dropout it is not fused at all.

    Args, Returns, Raises: as :func:`coursekit.attention.attend`.

    Chapter: 11, training.
    Test: test_fast.py::test_products_equal_the_readable_function
    """
    is_plain = mask is None and bias is None
    if not (is_plain and is_quicker_in_products(q, k, dropout_p)):
        return fast_attend(
            q, k, v, mask, causal=causal, dropout_p=dropout_p, bias=bias
        )
    added = q.new_zeros(q.size(-2), k.size(-2))
    if causal:
        earlier = causal_mask(q.size(-2), k.size(-2), q.device)
        added.masked_fill_(~earlier, -math.inf)
    rows, scale = q.shape[:2], 1 / math.sqrt(q.size(-1))
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    # Autocast would carry the scores to float32 and back.
    with torch.autocast(q.device.type, enabled=False):
        scores = torch.baddbmm(added, q, k.mT, alpha=scale)
        weights = fast_dropout(scores.softmax(dim=-1), dropout_p)
        return (weights @ v).unflatten(0, rows)
