"""Cross-entropy: values by hand, and PyTorch's, gradients too."""

import math
import weakref

import pytest
import torch
from compare import close, differ
from torch.nn import functional as F  # noqa: N812

from coursekit.loss import (
    check_chunks,
    chunked_cross_entropy,
    cross_entropy,
    fast_cross_entropy,
    perplexity,
)

B, T, V = 3, 5, 7
EACH = pytest.mark.parametrize("f", [cross_entropy, fast_cross_entropy])


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    return logits, torch.randint(V, (B, T), generator=generator)


def hide(targets, pad=-100):
    targets = targets.clone()
    targets[0, 3:] = pad
    targets[2, 1:] = pad
    return targets


def gradient(loss, logits):
    return torch.autograd.grad(loss.sum(), logits)[0]


@pytest.mark.parametrize("pad", [-100, 0, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equal_to_torch(reduction, epsilon, pad):
    """F.cross_entropy with smoothing and ignored targets: value, gradient."""
    logits, targets = draw()
    targets = hide(targets, pad)
    logits.requires_grad_()
    ours = cross_entropy(logits, targets, pad, epsilon, reduction)
    theirs = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=pad,
        label_smoothing=epsilon,
        reduction=reduction,
    ).view(ours.shape)
    close(ours, theirs, 1e-12)
    close(gradient(ours, logits), gradient(theirs, logits), 1e-12)


@pytest.mark.parametrize("pad", [-100, 0, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("at", [(), (1,), (0, 1), (None,)])
def test_fast_equals_readable(reduction, epsilon, pad, at):
    """Value and gradient; two, one, no and three leading axes."""
    logits, targets = draw()
    targets = hide(targets, pad)
    logits, targets = logits[at], targets[at]
    logits.requires_grad_()
    arguments = (logits, targets, pad, epsilon, reduction)
    ours, fast = cross_entropy(*arguments), fast_cross_entropy(*arguments)
    assert ours.shape == fast.shape
    close(fast, ours, 1e-12)
    close(gradient(fast, logits), gradient(ours, logits), 1e-12)


@EACH
def test_each_choice_changes_the_loss(f):
    """Controls: a loss that forgot an argument would not equal the other."""
    logits, targets = draw()
    hidden = hide(targets, 6)
    whole = f(logits, hidden, 6, 0.1)
    differ(f(logits, hidden, -100, 0.1), whole)
    differ(f(logits, hidden, 6, 0.0), whole)
    differ(f(logits, hidden, 6, 0.1, "sum"), whole)
    differ(f(logits.roll(1, -1), hidden, 6, 0.1), whole)


@EACH
def test_logits_that_lie_apart_in_memory(f):
    """A transposed view, as a head may give it."""
    logits, targets = draw()
    apart = logits.transpose(0, 1).contiguous().transpose(0, 1)
    assert not apart.is_contiguous()
    close(f(apart, targets), f(logits, targets), 1e-15)
    assert f(apart, targets, reduction="none").shape == (B, T)


def test_the_fast_one_is_one_call_of_torch(monkeypatch):
    """Which is why an exercise that forbids PyTorch's forbids it too."""
    seen = []
    real = F.cross_entropy

    def spy(*args, **kwargs):
        seen.append(kwargs["reduction"])
        return real(*args, **kwargs)

    monkeypatch.setattr(F, "cross_entropy", spy)
    cross_entropy(*draw())
    assert seen == []
    fast_cross_entropy(*draw())
    assert seen == ["sum"]


@EACH
def test_nothing_to_count(f):
    """All ignored: 0, with a gradient of 0.  PyTorch's mean is NaN there."""
    logits, targets = draw()
    logits.requires_grad_()
    none = torch.full_like(targets, -100)
    loss = f(logits, none, label_smoothing=0.1)
    assert float(loss.detach()) == 0.0
    assert (gradient(loss, logits) == 0).all()
    assert (f(logits, none, reduction="none") == 0).all()
    assert float(f(logits[:0], none[:0]).detach()) == 0.0  # no row at all
    theirs = F.cross_entropy(logits.flatten(0, 1), none.flatten())
    assert theirs.isnan()


def test_equal_logits_give_ln_v():
    """A model that knows nothing: ln V nats, perplexity V."""
    loss = cross_entropy(torch.zeros(B, T, V), torch.zeros(B, T).long())
    assert float(loss) == pytest.approx(math.log(V), abs=1e-6)
    assert perplexity(loss) == pytest.approx(V, abs=1e-4)
    assert perplexity(math.log(11)) == pytest.approx(11)
    assert perplexity(2.0) == pytest.approx(7.389, abs=1e-3)
    assert perplexity(1e4) == math.inf  # e^10000 is no float


@EACH
def test_two_tokens_by_hand(f):
    """Logits 0 and ln 3: probabilities 1/4 and 3/4."""
    z = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    nats = f(z, torch.tensor([0, 1]), reduction="none")
    expected = torch.tensor([4.0, 4 / 3], dtype=torch.float64).log()
    close(nats, expected, 1e-12)
    # Smoothing with ε = 0.5 asks for 3/4 and 1/4 instead of 1 and 0.
    smooth = f(z, torch.tensor([1, 1]), label_smoothing=0.5, reduction="none")
    expected = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    assert smooth.tolist() == pytest.approx([expected] * 2)


def test_floor_of_the_smoothed_loss():
    """V = 5, ε = 0.1: the best model still pays 0.390 nats.

    The floor is the entropy of the smoothed target, 0.92 and four of 0.02;
    it is reached when the model says exactly that.
    """
    q = torch.full((1, 5), 0.02, dtype=torch.float64)
    q[0, 2] = 0.92
    best = cross_entropy(q.log(), torch.tensor([2]), label_smoothing=0.1)
    floor = -(0.92 * math.log(0.92) + 4 * 0.02 * math.log(0.02))
    assert float(best) == pytest.approx(floor, abs=1e-12)
    assert round(floor, 3) == 0.390
    # A surer model pays more.
    sure = torch.zeros(1, 5, dtype=torch.float64)
    sure[0, 2] = 50.0
    assert (
        float(cross_entropy(sure, torch.tensor([2]), label_smoothing=0.1)) > 3
    )


@EACH
def test_huge_logits(f):
    """±1e4: right and sure costs 0, wrong and sure 2e4; finite gradients.

    Control: exponentials without the maximum subtracted overflow.
    """
    z = torch.full((2, V), -1e4, requires_grad=True)
    with torch.no_grad():
        z[:, 3] = 1e4
    nats = f(z, torch.tensor([3, 0]), reduction="none")
    assert nats.tolist() == [0.0, 2e4]
    assert gradient(nats, z).isfinite().all()
    naive = -(z.exp() / z.exp().sum(-1, keepdim=True)).log()
    assert not naive.isfinite().all()


def test_gradient_is_probability_minus_target():
    """∂loss/∂z = (softmax(z) − one-hot) / number of targets."""
    logits, targets = draw()
    logits.requires_grad_()
    p = logits.softmax(-1) - F.one_hot(targets, V)
    close(gradient(cross_entropy(logits, targets), logits), p / (B * T), 1e-12)


def test_ignored_targets_weigh_nothing():
    """Mean over what counts; their logits get no gradient."""
    logits, targets = draw()
    logits.requires_grad_()
    hidden = hide(targets)
    nats = cross_entropy(logits, targets, reduction="none")
    counts = hidden != -100
    loss = cross_entropy(logits, hidden)
    close(loss, nats[counts].mean(), 1e-12)
    differ(loss, nats[counts].sum() / counts.numel())  # control: over all
    g = gradient(loss, logits)
    assert (g[~counts] == 0).all()
    assert (g[counts] != 0).all()


def test_time_is_a_set():
    """Permuting positions (logits and targets alike) permutes the nats."""
    logits, targets = draw()
    order = torch.tensor([3, 0, 4, 2, 1])
    nats = cross_entropy(logits, targets, reduction="none")
    shuffled = cross_entropy(
        logits[:, order], targets[:, order], reduction="none"
    )
    assert torch.equal(shuffled, nats[:, order])
    close(
        cross_entropy(logits[:, order], targets[:, order]),
        cross_entropy(logits, targets),
        1e-14,
    )
    differ(
        cross_entropy(logits[:, order], targets),
        cross_entropy(logits, targets),
    )


@EACH
@pytest.mark.parametrize("axes", [(), (B,), (B, T), (2, B, T)])
def test_any_leading_axes(f, axes):
    logits, targets = torch.zeros(*axes, V), torch.zeros(axes).long()
    assert f(logits, targets, reduction="none").shape == axes
    assert f(logits, targets).shape == ()


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(f, dtype):
    """Logits in half precision, but not the loss: a few roundings away."""
    logits, targets = draw()
    logits = logits.to(dtype).requires_grad_()
    loss = f(logits, targets)
    assert loss.dtype == torch.float32
    assert gradient(loss, logits).dtype == dtype
    logits = logits.detach()
    gold = f(logits.double(), targets)
    rounding = torch.finfo(torch.float32).eps * float(gold)
    assert abs(float(loss.detach()) - float(gold)) < 4 * rounding
    # Control: the same formula in half precision is a thousand times worse.
    nats = logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]
    assert abs(float(nats.mean()) - float(gold)) > 1e-4


@EACH
@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 2.0])
def test_smoothing_out_of_range(f, epsilon):
    with pytest.raises(ValueError, match=rf"\[0, 1\): got {epsilon}"):
        f(*draw(), label_smoothing=epsilon)


@EACH
def test_unknown_reduction(f):
    with pytest.raises(ValueError, match="got 'average'"):
        f(*draw(), reduction="average")


@EACH
@pytest.mark.parametrize("wrong", [-1, V])
def test_target_that_is_no_token(f, wrong):
    logits, targets = draw()
    targets[0, 0], targets[1, 2] = 0, wrong
    low, high = min(0, wrong), max(int(targets.max()), wrong)
    rule = rf"0\.\.{V - 1}: got {low}\.\.{high}"
    with pytest.raises(ValueError, match=rule):
        f(logits, targets)


# -- in chunks ---------------------------------------------------------------
D = 11


def head_and_stream(seed=0):
    """A head with a norm before it, and what it reads, with a past."""
    torch.manual_seed(seed)
    head = torch.nn.Sequential(torch.nn.LayerNorm(D), torch.nn.Linear(D, V))
    past = torch.nn.Linear(D, D).double()
    return head.double(), past, torch.randn(B, T, D, dtype=torch.float64)


def gradients(*modules):
    found = [p.grad.clone() for m in modules for p in m.parameters()]
    for module in modules:
        module.zero_grad()
    return found


@pytest.mark.parametrize("n_rows", [1, 2, 13, 15, 17])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_chunks_are_the_whole(n_rows, epsilon):
    """PyTorch's own loss over all rows: value and gradients to 1e-12.

    Of 15 rows 2 and 13 leave a last piece that is shorter.
    """
    head, past, x = head_and_stream()
    targets = hide(draw()[1])
    gold = F.cross_entropy(
        head(past(x)).flatten(0, 1),
        targets.flatten(),
        label_smoothing=epsilon,
        reduction="sum",
    )
    (gold / 7).backward()
    expected = gradients(head, past)
    nats = in_chunks(past(x), head, targets, n_rows, label_smoothing=epsilon)
    (nats / 7).backward()
    close(nats.detach(), gold.detach(), 1e-12)
    for ours, theirs in zip(gradients(head, past), expected, strict=True):
        close(ours, theirs, 1e-12)
    if not epsilon:
        with torch.no_grad():
            nats = in_chunks(x, head, targets, n_rows)
        assert not nats.requires_grad
        close(nats, gold_of(head, x), 1e-9)


def in_chunks(x, head, targets, size, **choices):
    weights = head.parameters()
    return chunked_cross_entropy(x, head, weights, targets, size, **choices)


def gold_of(head, x):
    """The nats of the stream itself, without its past."""
    logits = head(x).detach()
    return cross_entropy(logits, hide(draw()[1]), reduction="sum")


def test_few_rows_of_logits_exist_at_a_time():
    """Weak references to each piece's logits; all at once is the control."""
    for n_rows, most in ((4, 4), (B * T, B * T)):
        head, past, x = head_and_stream()
        alive, seen = weakref.WeakSet(), []

        def spy(rows, alive=alive, seen=seen, head=head):
            logits = head(rows)
            alive.add(logits)
            seen.append(sum(len(one) for one in alive))
            return logits

        weights, targets = list(head.parameters()), draw()[1]
        chunked_cross_entropy(past(x), spy, weights, targets, n_rows)
        with torch.no_grad():
            chunked_cross_entropy(x, spy, weights, targets, n_rows)
        assert max(seen) == most


def test_a_stream_without_a_past():
    """Only the head is trained: nothing to go back to."""
    head, _, x = head_and_stream()
    in_chunks(x, head, draw()[1], 4).backward()
    assert all(p.grad is not None for p in head.parameters())


def test_a_loss_of_several_losses():
    """What comes after scales the gradient, and a frozen weight has none."""
    head, past, x = head_and_stream()
    targets, frozen = hide(draw()[1]), head[0].weight
    frozen.requires_grad_(False)
    loss = in_chunks(past(x), head, targets, 4)
    whole = cross_entropy(head(past(x)), targets, reduction="sum")
    (3 * loss + whole).backward()
    found = [p.grad for p in past.parameters()]
    for module in (head, past):
        module.zero_grad()
    gold = cross_entropy(head(past(x)), targets, reduction="sum")
    (4 * gold).backward()
    for ours, theirs in zip(found, past.parameters(), strict=True):
        close(ours, theirs.grad, 1e-11)
    assert frozen.grad is None


def test_chunks_that_cannot_be():
    head, _, x = head_and_stream()
    with pytest.raises(ValueError, match="at least 1 position: got 0"):
        in_chunks(x, head, draw()[1], 0)
    with pytest.raises(ValueError, match=r"states \(3, 5, 11\) and targets"):
        check_chunks(x, draw()[1].flatten(), 4)
