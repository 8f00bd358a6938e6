"""What parity tests share: the same weights, then the same numbers.

:class:`Links` says which of our parameters is which part of theirs.  It
copies values from them to us, and afterwards compares the gradients part by
part, so that a forgotten parameter or a swapped slice is seen.
"""

import torch

from coursekit.seq2seq import CrossBlock
from coursekit.steppers import GPTStepper, Seq2SeqStepper

# One tolerance a precision: a few thousand roundings of numbers near 1.
CLOSE = {
    torch.float64: {"rtol": 0, "atol": 1e-12},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
}


def plain_stepper(model, window=None, keep=None):
    """The reference: a GPT that reads the whole text at each step."""
    return GPTStepper(model, window, keep, use_cache=False)


def plain_seq2seq_stepper(model, start):
    """The reference: a Transformer that reads all of the target."""
    return Seq2SeqStepper(model, start, use_cache=False)


def same(a):
    """All of a tensor."""
    return a


def columns(i, n):
    """Block i of n of the last axis, transposed: (in, out) to (out, in)."""
    return lambda w: w.chunk(n, dim=-1)[i].mT


def rows(i, n):
    """Block i of n of the first axis."""
    return lambda w: w.chunk(n, dim=0)[i]


def close(a, b, atol, rtol=0.0):
    """Values equal within a tolerance that grows with their size, or fail."""
    scale = max(1.0, float(b.detach().abs().max())) if b.numel() else 1.0
    torch.testing.assert_close(a, b, atol=atol * scale, rtol=rtol)


def differ(a, b, by=1e-3):
    """A negative control: the largest difference is not rounding."""
    gap = (a - b).detach().abs().max().item()
    assert gap > by, f"expected to differ by more than {by}, got {gap}"


def shake(module, seed=0, std=0.3):
    """Random values everywhere: zero biases would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            noise = torch.randn(p.shape, generator=generator).to(p.dtype)
            # Norm weights stay near 1, so that depth does not explode.
            p.copy_((p == 1).all() + std * noise)
    return module


class Links:
    """Our parameter = a part of theirs."""

    def __init__(self):
        self.links = []

    def add(self, ours, theirs, part=same):
        """Link one parameter, and copy its value."""
        with torch.no_grad():
            ours.copy_(part(theirs))
        self.links.append((ours, theirs, part))

    def linear(self, ours, theirs):
        """Link a linear layer or a norm: a weight, and maybe a bias."""
        self.add(ours.weight, theirs.weight)
        if theirs.bias is not None:
            self.add(ours.bias, theirs.bias)

    def norm(self, ours, theirs):
        """Link a norm; some have no bias at all."""
        self.add(ours.weight, theirs.weight)
        if getattr(theirs, "bias", None) is not None:
            self.add(ours.bias, theirs.bias)

    def covers(self, module):
        """Fail if one of our parameters was left as it was drawn."""
        linked = {id(ours) for ours, *_ in self.links}
        left = [n for n, p in module.named_parameters() if id(p) not in linked]
        assert not left, f"not copied: {left}"

    def same_gradients(self, atol):
        """Compare each gradient; none may be missing."""
        for ours, theirs, part in self.links:
            assert ours.grad is not None
            assert theirs.grad is not None
            close(ours.grad, part(theirs.grad), atol)


def link_attention(links, ours, theirs):
    """PyTorch keeps W_Q, W_K, W_V as the rows of one matrix."""
    for i, linear in enumerate((ours.w_q, ours.w_k, ours.w_v)):
        links.add(linear.weight, theirs.in_proj_weight, rows(i, 3))
        links.add(linear.bias, theirs.in_proj_bias, rows(i, 3))
    links.linear(ours.w_o, theirs.out_proj)


def link_block(links, ours, theirs):
    """PyTorch numbers the norms of a layer in their order."""
    link_attention(links, ours.attention, theirs.self_attn)
    links.norm(ours.attention_norm, theirs.norm1)
    links.linear(ours.feed_forward.w_in, theirs.linear1)
    links.linear(ours.feed_forward.w_out, theirs.linear2)
    last = theirs.norm2
    if isinstance(ours, CrossBlock):
        link_attention(links, ours.cross_attention, theirs.multihead_attn)
        links.norm(ours.cross_attention_norm, theirs.norm2)
        last = theirs.norm3
    links.norm(ours.feed_forward_norm, last)


def json_damages(value):
    """JSON in which one value is missing, or of another type: each once."""
    for other in (None, True, "x", 1.5, [7], {"a": 7}):
        if type(other) is not type(value):
            yield f"{other}", other
    if isinstance(value, float):
        yield "NaN", float("nan")
    if type(value) is int:
        yield "-1", -1
    if isinstance(value, dict):
        for key in value:
            yield f"no {key}", {k: v for k, v in value.items() if k != key}
            for what, inner in json_damages(value[key]):
                yield f"{key}: {what}", value | {key: inner}
    if isinstance(value, list) and value:  # its items are of one kind
        for what, inner in json_damages(value[0]):
            yield what, [inner, *value[1:]]
