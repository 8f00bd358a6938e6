"""Answers to the exercises of chapter 19."""

import math
import statistics

import numpy as np
import torch
from torch.nn import functional as F

from coursekit import GPT, GPTConfig, probe
from tests.answers import right, wrong

# -- moves -------------------------------------------------------------------


@right("debugging/moves")
def cell_by_cell(model, ids, vocab_size):
    B, T = ids.shape
    before = model(ids.clone())
    grid = [[False] * T for _ in range(T)]
    for j in range(T):
        other = ids.tolist()
        for row in other:
            row[j] = row[j] + 1 if row[j] + 1 < vocab_size else 0
        after = model(torch.tensor(other, dtype=ids.dtype))
        for i in range(T):
            for b in range(B):
                gap = max((after[b, i] - before[b, i]).abs().tolist())
                grid[i][j] = grid[i][j] or gap > 1e-6
    return torch.tensor(grid)


@right("debugging/moves")
def columns_of_identity(model, ids, vocab_size):
    T, usual = ids.size(1), model(ids)
    step = torch.eye(T, dtype=ids.dtype)
    moved = torch.stack(
        [
            torch.linalg.vector_norm(
                model((ids + one) % vocab_size) - usual,
                ord=math.inf,
                dim=(0, 2),
            )
            for one in step
        ]
    )
    return (moved >= 1e-6).T


@right("debugging/moves")
def moves_by_the_identity(model, ids, vocab_size):
    _B, T = ids.shape
    step = torch.eye(T, dtype=ids.dtype)
    reach = torch.zeros(T, T, dtype=torch.bool)
    before = model(ids)
    for j in range(T):
        after = model((ids + step[j]) % vocab_size)
        reach[:, j] = ((after - before).abs() > 1e-6).any(dim=2).any(dim=0)
    return reach


@right("debugging/moves")
def one_entry_at_a_time(model, ids, vocab_size):
    n = ids.shape[1]
    out = torch.zeros(n, n, dtype=torch.bool)
    before = model(ids)
    for j in range(n):
        step = torch.zeros_like(ids)
        step[:, j] = 1
        after = model((ids + step) % vocab_size)
        for i in range(n):
            gap = (after[:, i] - before[:, i]).abs().max().item()
            out[i, j] = gap > 1e-6
    return out


@right("debugging/moves")
def row_by_row(model, ids, vocab_size):
    # Every row is changed while the others stay; all are looked at.
    found = None
    before = model(ids)
    for b in range(len(ids)):
        columns = []
        for j in range(ids.size(1)):
            other = ids.clone()
            other[b, j] = (other[b, j] + 1) % vocab_size
            columns.append(~torch.isclose(model(other), before, 0, 1e-6))
        grid = torch.stack(columns).any(-1).any(1).T
        found = grid if found is None else found | grid
    return found


@right("debugging/moves")
def with_numpy(model, ids, vocab_size):
    a, grid = model(ids).numpy(), []
    for j in range(ids.size(1)):
        b = ids.numpy().copy()
        b[:, j] = (b[:, j] + 1) % vocab_size
        change = np.abs(model(torch.from_numpy(b)).numpy() - a)
        grid.append(change.max(axis=(0, 2)) > 1e-6)
    return torch.from_numpy(np.array(grid).T.copy())


def _moves(
    model,
    ids,
    vocab_size,
    *,
    changed=None,
    size=torch.abs,
    over=lambda gap: gap.any(0),
):
    before, columns = model(ids), []
    for j in range(ids.size(1)):
        other = ids.clone()
        if changed is None:
            other[:, j] = (other[:, j] + 1) % vocab_size
        else:
            changed(other, j)
        gap = size(model(other) - before).amax(-1) > 1e-6
        columns.append(over(gap))
    return torch.stack(columns, 1)


@wrong("debugging/moves", "transposed")
def map_transposed(model, ids, vocab_size):
    return _moves(model, ids, vocab_size).T


@wrong("debugging/moves", "in_place", "stays_changed")
def changes_pile_up(model, ids, vocab_size):
    before, columns = model(ids), []
    other = ids
    for j in range(ids.size(1)):
        other[:, j] = (other[:, j] + 1) % vocab_size
        gap = (model(other) - before).abs().amax(-1) > 1e-6
        columns.append(gap.any(0))
    return torch.stack(columns, 1)


@wrong("debugging/moves", "row_0")
def first_row_only(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, over=lambda gap: gap[0])


@wrong("debugging/moves", "off_the_end")
def leaves_the_vocabulary(model, ids, vocab_size):
    def changed(other, j):
        other[:, j] += 1

    return _moves(model, ids, vocab_size, changed=changed)


@wrong("debugging/moves", "rises_only")
def signed(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, size=lambda gap: gap)


@wrong("debugging/moves", "exact")
def rounding_counts(model, ids, vocab_size):
    before, columns = model(ids), []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[:, j] = (other[:, j] + 1) % vocab_size
        columns.append((model(other) != before).any(-1).any(0))
    return torch.stack(columns, 1)


@wrong("debugging/moves", "all_rows")
def all_rows_have_to(model, ids, vocab_size):
    return _moves(model, ids, vocab_size, over=lambda gap: gap.all(0))


def probing(model, ids, vocab_size, moved, restore=True, turn=True):
    old, columns = model(ids), []
    other = ids.clone()
    for j in range(ids.size(1)):
        other[:, j] = (ids[:, j] + 1) % vocab_size
        columns.append(moved(model(other), old))
        if restore:
            other[:, j] = ids[:, j]
    grid = torch.stack(columns)
    return grid.T if turn else grid


def largest(new, old):
    return ((new - old).abs() > 1e-6).any(-1).any(0)


@wrong("debugging/moves", "stays_changed")
def stays_changed(model, ids, vocab_size):
    return probing(model, ids, vocab_size, largest, restore=False)


@wrong("debugging/moves")
def moves_signed(model, ids, vocab_size):
    return probing(
        model,
        ids,
        vocab_size,
        lambda new, old: ((new.sum(-1) - old.sum(-1)).abs() > 1e-6).any(0),
    )


@wrong("debugging/moves")
def nothing_moves(model, ids, vocab_size):
    return torch.zeros(ids.size(1), ids.size(1), dtype=torch.bool)


@wrong("debugging/moves")
def what_a_mask_should_be(model, ids, vocab_size):
    n = ids.size(1)
    return torch.ones(n, n, dtype=torch.bool).tril()


# -- asked -------------------------------------------------------------------


@right("debugging/asked")
def counting_texts(loss, vocab_size, length):
    ids = torch.arange(length)[None] + torch.tensor([[0], [2], [5]])
    ids = ids % vocab_size
    for k in (-1, 0, 1, 2):
        logits = torch.zeros(3, length, vocab_size)
        for b in range(3):
            for t in range(length):
                if 0 <= t + k < length:
                    logits[b, t, ids[b, t + k]] = 30.0
        if float(loss(logits, ids)) < 1:
            return k
    return "none"


@right("debugging/asked")
def padded_oracles(loss, vocab_size, length):
    rows = [torch.randperm(vocab_size)[:length] for _ in range(4)]
    ids = torch.stack(rows)
    known = 30.0 * F.one_hot(ids, vocab_size)
    wide = F.pad(known, (0, 0, 1, 2))  # one place before, two behind

    def nats(k):
        return float(loss(wide[:, k + 1 : k + 1 + length], ids))

    return next((k for k in (-1, 0, 1, 2) if nats(k) < 1), "none")


@right("debugging/asked")
def with_a_dictionary(loss, vocab_size, length):
    ids = torch.stack([torch.randperm(vocab_size)[:length] for _ in range(3)])
    hot = 30.0 * torch.eye(vocab_size, dtype=torch.float64)[ids]
    none = torch.zeros(3, 2, vocab_size, dtype=torch.float64)
    wide = torch.cat((none, hot, none), 1)
    for k in (-1, 0, 1, 2):
        if loss(wide[:, 2 + k : 2 + k + length], ids) < 1:
            return k
    return "none"


@right("debugging/asked")
def with_roll(loss, vocab_size, length):
    # What is rolled in at the ends is blanked.
    ids = torch.arange(length)[None] % vocab_size
    hot = 30.0 * F.one_hot(ids, vocab_size).double()
    costs = []
    for k in (-1, 0, 1, 2):
        rolled = hot.roll(-k, 1)
        if k > 0:
            rolled[:, -k:] = 0
        elif k < 0:
            rolled[:, :1] = 0
        costs.append((loss(rolled, ids).item(), k))
    cost, k = min(costs)
    return k if cost < 1 else "none"


@right("debugging/asked")
def many_texts(loss, vocab_size, length):
    right = []
    ids = torch.stack(
        [torch.arange(b, b + length) % vocab_size for b in range(11)]
    )
    for k in range(-1, 3):
        logits = torch.zeros(11, length, vocab_size, dtype=torch.float64)
        for b in range(11):
            for t in range(length):
                if 0 <= t + k < length:
                    logits[b, t, ids[b, t + k]] = 30
        if float(loss(logits, ids)) < 1.0:
            right += [k]
    return right[0] if right else "none"


def _asked(
    loss,
    vocab_size,
    length,
    *,
    sign=1,
    height=30.0,
    draw=None,
    none="none",
    roll=False,
    lowest=False,
):
    ids = torch.stack([torch.randperm(vocab_size)[:length] for _ in range(4)])
    if draw is not None:
        ids = draw(vocab_size, length)
    known, found = height * F.one_hot(ids, vocab_size), {}
    for k in (-1, 0, 1, 2):
        shift = -k * sign
        logits = known.roll(shift, 1)
        if shift > 0 and not roll:
            logits[:, :shift] = 0
        if shift < 0 and not roll:
            logits[:, shift:] = 0
        found[k] = float(loss(logits, ids))
    best = min(found, key=found.get)
    if lowest:
        return best
    return best if found[best] < 1 else none


@wrong("debugging/asked", "backwards")
def other_side(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, sign=-1)


@wrong("debugging/asked", "lowest")
def lowest_wins(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, lowest=True)


@wrong("debugging/asked", "timid")
def not_sure(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, height=1.0)


def oracles(loss, ids, vocab_size, sure=30.0, side=1):
    n, costs = ids.size(1), {}
    for k in (-1, 0, 1, 2):
        logits = torch.zeros(*ids.shape, vocab_size, dtype=torch.float64)
        for t in range(n):
            at = t + side * k
            if 0 <= at < n:
                logits[torch.arange(len(ids)), t, ids[:, at]] = sure
        costs[k] = loss(logits, ids).item()
    return costs


def verdict(costs):
    k = min(costs, key=costs.get)
    return k if costs[k] < 1 else "none"


@wrong("debugging/asked", "constant")
def constant(loss, vocab_size, length):
    ids = torch.full((1, length), 4)
    return verdict(oracles(loss, ids, vocab_size))


@wrong("debugging/asked", "rolled")
def rolled_around(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, roll=True)


@wrong("debugging/asked")
def always_the_next(loss, vocab_size, length):
    return 1


def steps(vocab_size, length):
    return (3 * torch.arange(length))[None] % vocab_size


@wrong("debugging/asked")
def says_the_loss(loss, vocab_size, length):
    return min(oracles(loss, steps(vocab_size, length), vocab_size).values())


@wrong("debugging/asked")
def counts_from_the_end(loss, vocab_size, length):
    costs = oracles(loss, steps(vocab_size, length), vocab_size)
    found = verdict(costs)
    return found if found == "none" else found + 1


# None where no oracle fits, not the string.
@wrong("debugging/asked")
def nothing_returned(loss, vocab_size, length):
    return _asked(loss, vocab_size, length, none=None)


# -- difference --------------------------------------------------------------


@right("debugging/difference")
def by_statistics(right, wrong, t):
    gaps = [float(b) - float(a) for a, b in zip(right, wrong, strict=True)]
    half = t * statistics.stdev(gaps) / len(gaps) ** 0.5
    return statistics.fmean(gaps), half


@right("debugging/difference")
def sums_of_squares(right, wrong, t):
    n = len(right)
    gaps = [float(wrong[i]) - float(right[i]) for i in range(n)]
    mean = math.fsum(gaps) / n
    squares = math.fsum((gap - mean) ** 2 for gap in gaps)
    return mean, t * math.sqrt(squares / (n * (n - 1)))


@right("debugging/difference")
def difference_by_statistics(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    spread = statistics.stdev(gaps)
    return statistics.fmean(gaps), t * spread / math.sqrt(len(gaps))


@right("debugging/difference")
def by_numpy(right, wrong, t):
    gaps = np.subtract(wrong, right)
    return gaps.mean(), t * gaps.std(ddof=1) / np.sqrt(gaps.size)


@right("debugging/difference")
def by_squares(right, wrong, t):
    n = len(right)
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    mean = sum(gaps) / n
    square = sum((g - mean) ** 2 for g in gaps) / (n * (n - 1))
    return mean, t * square**0.5


def _gaps(right, wrong):
    return [float(b) - float(a) for a, b in zip(right, wrong, strict=True)]


@wrong("debugging/difference", "turned")
def right_minus_wrong(right, wrong, t):
    gaps = _gaps(wrong, right)
    half = t * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), half


@wrong("debugging/difference", "unpaired")
def difference_unpaired(right, wrong, t):
    right, wrong = torch.as_tensor(right), torch.as_tensor(wrong)
    spread = (right.var() + wrong.var()).sqrt()
    return wrong.mean() - right.mean(), t * spread / len(right) ** 0.5


@wrong("debugging/difference", "population")
def difference_population(right, wrong, t):
    d = torch.as_tensor(wrong) - torch.as_tensor(right)
    return d.mean(), t * d.std(correction=0) / len(d) ** 0.5


@wrong("debugging/difference", "whole_width")
def whole_width(right, wrong, t):
    gaps = _gaps(right, wrong)
    half = t * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), 2 * half


@wrong("debugging/difference", "no_root")
def spread_of_runs(right, wrong, t):
    gaps = _gaps(right, wrong)
    return statistics.fmean(gaps), t * statistics.stdev(gaps)


@wrong("debugging/difference", "normal")
def always_196(right, wrong, t):
    gaps = _gaps(right, wrong)
    half = 1.96 * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return statistics.fmean(gaps), half


@wrong("debugging/difference")
def the_range(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    return statistics.fmean(gaps), (max(gaps) - min(gaps)) / 2


@wrong("debugging/difference")
def the_median(right, wrong, t):
    gaps = [w - r for r, w in zip(right, wrong, strict=True)]
    return statistics.median(gaps), by_squares(right, wrong, t)[1]


@wrong("debugging/difference")
def in_quadrature(right, wrong, t):
    d = torch.tensor(wrong).double() - torch.tensor(right).double()
    return d.square().mean().sqrt(), t * d.std() / len(d) ** 0.5


# -- diagnose ----------------------------------------------------------------


def ordered_size(config, **changes):
    with torch.device("meta"):
        model = GPT(GPTConfig(**(config.to_dict() | changes)))
    return sum(p.numel() for p in model.parameters())


@right("debugging/diagnose")
def diagnose_by_own_tests(model, config):
    n_layers, wanted = config.n_layers, ordered_size(config)
    a_block = ordered_size(config, n_layers=n_layers + 1) - wanted
    missing = wanted - sum(p.numel() for p in model.parameters())
    if missing == n_layers * a_block:
        return "blocks not registered"
    if missing == (n_layers - 1) * a_block != 0:
        return "one block for all"
    if missing < 0:
        return "head not tied"
    if missing > 0:
        return "no final norm"

    model.eval()
    torch.manual_seed(0)
    length = min(8, config.max_len)
    text = torch.randint(config.vocab_size, (4, length + 1))
    ids, targets = text[:, :-1], text[:, 1:]
    with torch.no_grad():
        logits = model(ids)
        if not torch.allclose(logits, model(ids), atol=1e-6):
            return "dropout never off"
        ahead = mixed = looks_back = False
        for t in range(length):
            for step in (1, 2, 3):
                other = ids.clone()
                other[0, t] = (ids[0, t] + step) % config.vocab_size
                moved = (model(other) - logits).abs().amax(-1) > 1e-5
                ahead |= bool(moved[0, :t].any())
                mixed |= bool(moved[1:].any())
                looks_back |= bool(moved[0, t + 1 :].any())
    if mixed:
        return "mixes the sentences"
    if ahead:
        return "sees the future"
    if not looks_back:
        return "ignores its context"

    model.zero_grad()
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    if loss.item() > math.log(config.vocab_size) + 5:
        return "starts too sure"
    loss.backward()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    for p in matrices:
        if p.grad is None or not p.grad.any():
            return "stream detached"
    for i, p in enumerate(matrices):
        for other in matrices[:i]:
            if p.shape == other.shape and torch.equal(p, other):
                return "blocks start equal"
    return "right"


def by_size(model, config, count=None):
    """The fault that the number of parameters tells, or None."""
    v, p, d, n = (
        config.vocab_size,
        config.max_len,
        config.d_model,
        config.n_layers,
    )
    if count is None:
        count = sum(w.numel() for w in model.parameters())
    block = 12 * d**2 + 13 * d
    rest = count - (v + p + 2) * d
    if rest == block:
        return "one block for all"
    if rest == 0:
        return "blocks not registered"
    if rest == n * block + v * d:
        return "head not tied"
    if rest == n * block - 2 * d:
        return "no final norm"
    return None


def restless(model, v):
    ids = torch.arange(12).view(2, 6) % v
    return not torch.equal(model(ids), model(ids))


def equal_blocks(model):
    seen = []
    for weight in model.parameters():
        if weight.dim() < 2:
            continue
        if any(w.shape == weight.shape and (w == weight).all() for w in seen):
            return True
        seen.append(weight)
    return False


def inside(model, v):
    """Faults that are about gradients, start and blocks, or "right"."""
    report = probe.trains_everything(model, v)
    if report.loss > math.log(v) + 5:
        return "starts too sure"
    if not report.ok:
        return "stream detached"
    return "blocks start equal" if equal_blocks(model) else "right"


def by_swap(model, ids, whole):
    """Another beginning has to change the end."""
    with torch.no_grad():
        other = model(torch.cat((ids[:, 1:2], ids[:, :1], ids[:, 2:]), 1))
    same = torch.allclose(other[:, -1], whole[:, -1], atol=1e-5)
    return "ignores its context" if same else None


@right("debugging/diagnose")
def by_prefixes(model, config):
    # What a prefix and a row say alone, they have to say in company.
    if fault := by_size(model, config):
        return fault
    model.eval()
    v = config.vocab_size
    if restless(model, v):
        return "dropout never off"
    ids = torch.arange(6).view(2, 3) + 1
    with torch.no_grad():
        whole = model(ids)
        for t in (1, 2):
            if (model(ids[:, :t])[:, -1] - whole[:, t - 1]).abs().max() > 1e-5:
                return "sees the future"
        for b in range(2):
            if (model(ids[b : b + 1])[0] - whole[b]).abs().max() > 1e-5:
                return "mixes the sentences"
    return by_swap(model, ids, whole) or inside(model, v)


@right("debugging/diagnose")
def by_probes(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


@right("debugging/diagnose")
def by_slopes(model, config):
    # A gradient shows what depends on what, as well as a change does.
    if fault := by_size(model, config):
        return fault
    model.eval()
    v, seen = config.vocab_size, []

    def keep(module, args, output):
        output.retain_grad()
        seen.append(output)

    hook = next(
        m for m in model.modules() if getattr(m, "weight", None) is not None
    ).register_forward_hook(keep)
    ids = torch.arange(6).view(2, 3)
    one, two = model(ids), model(ids)
    if not torch.equal(one, two):
        return "dropout never off"

    def depends(row, t):
        [slope] = torch.autograd.grad(
            one[row, t].square().sum(),
            seen[0],
            retain_graph=True,
            allow_unused=True,
        )
        return torch.zeros(2, 3) if slope is None else slope.abs().sum(-1)

    slopes = [depends(b, t) for b in range(2) for t in range(3)]
    hook.remove()
    for n, moved in enumerate(slopes):
        b, t = divmod(n, 3)
        if moved[b, t + 1 :].any():
            return "sees the future"
        if moved[1 - b].any():
            return "mixes the sentences"
    return by_swap(model, ids, one) or inside(model, v)


def no_count(model, config):
    v = config.vocab_size
    model.eval()
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


@wrong("debugging/diagnose", "shared_twice")
def shared_twice(model, config):
    named = model.named_parameters(remove_duplicate=False)
    count = sum(w.numel() for _, w in named)
    return by_size(model, config, count) or no_count(model, config)


@wrong("debugging/diagnose", "forgets_eval")
def forgets_eval(model, config):
    if fault := by_size(model, config):
        return fault
    ids = torch.arange(6)[None]
    if not torch.allclose(model(ids), model(ids)):
        return "dropout never off"
    return no_count(model, config)


@wrong("debugging/diagnose", "row_0")
def row_0(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    if not probe.causality(model, v, 3, 1).ok:
        return "sees the future"
    ids = torch.tensor([[3, 1, 4], [1, 5, 9]])
    if not torch.allclose(model(ids)[0], model(ids[:1])[0], atol=1e-5):
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


@wrong("debugging/diagnose", "last_token")
def last_token(model, config):
    v = config.vocab_size
    found = by_prefixes(model, config)
    if found != "ignores its context":
        return found
    a, b = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    if torch.allclose(model(a[None])[0, -1], model(b[None])[0, -1]):
        return found
    return inside(model, v)


@wrong("debugging/diagnose")
def never_looks_at_the_loss(model, config):
    found = by_prefixes(model, config)
    return "stream detached" if found == "starts too sure" else found


@wrong("debugging/diagnose")
def expects_less_for_a_head(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "head not tied" else found


@wrong("debugging/diagnose")
def norm_without_shift(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "no final norm" else found


@wrong("debugging/diagnose")
def never_looks_at_gradients(model, config):
    found = by_prefixes(model, config)
    return "right" if found == "stream detached" else found


@wrong("debugging/diagnose")
def shared_and_lost_swapped(model, config):
    one, none = "one block for all", "blocks not registered"
    return {one: none, none: one}.get(
        found := by_prefixes(model, config), found
    )


@wrong("debugging/diagnose")
def by_identity(model, config):
    found = by_prefixes(model, config)
    if found != "blocks start equal":
        return found
    blocks = list(model.parameters())
    shared = len(blocks) > len({id(w) for w in blocks})
    return "blocks start equal" if shared else "right"


@wrong("debugging/diagnose")
def runs_once(model, config):
    if fault := by_size(model, config):
        return fault
    v = config.vocab_size
    for name, look in (
        ("sees the future", probe.causality),
        ("mixes the sentences", probe.batch_independence),
        ("ignores its context", probe.uses_context),
    ):
        if not look(model.eval(), v, 3, 2).ok:
            return name
    return inside(model, v)


@wrong("debugging/diagnose")
def first_only(model, config):
    v = config.vocab_size
    model.eval()
    if fault := by_size(model, config):
        return fault
    if restless(model, v):
        return "dropout never off"
    a, b = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    if not torch.allclose(model(a[None])[0, 0], model(b[None])[0, 0]):
        return "sees the future"
    if not probe.batch_independence(model, v, 2, 2).ok:
        return "mixes the sentences"
    if not probe.uses_context(model, v, 3, 1).ok:
        return "ignores its context"
    return inside(model, v)


# Takes the model for right without a look.
@wrong("debugging/diagnose")
def diagnose_always_right(model, config):
    return "right"


# Counts only: whatever has the right size is right.
@wrong("debugging/diagnose")
def diagnose_by_size(model, config):
    n_layers, wanted = config.n_layers, ordered_size(config)
    a_block = ordered_size(config, n_layers=n_layers + 1) - wanted
    missing = wanted - sum(p.numel() for p in model.parameters())
    if missing == n_layers * a_block:
        return "blocks not registered"
    if missing == (n_layers - 1) * a_block != 0:
        return "one block for all"
    if missing < 0:
        return "head not tied"
    return "no final norm" if missing else "right"


# Never calls eval, so dropout looks like a view of the future.
@wrong("debugging/diagnose")
def diagnose_while_training(model, config):
    by_size = diagnose_by_size(model, config)
    if by_size != "right":
        return by_size
    model.train()
    ids = torch.randint(config.vocab_size, (2, min(8, config.max_len)))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % config.vocab_size
    with torch.no_grad():
        change = (model(ids) - model(other)).abs().amax(-1)
    if change[1].max() > 1e-5:
        return "mixes the sentences"
    if change[0, :-1].max() > 1e-5:
        return "sees the future"
    return "right"


# -- mended ------------------------------------------------------------------


@right("debugging/mended")
def query_by_query(ids, table, places, w_q, w_k, w_v, pad):
    logits, total, count = [], 0.0, 0
    for text in ids:
        x = table[text] + places[: len(text)]
        rows = []
        for t in range(len(text)):
            past = x[: t + 1]
            scores = (past @ w_k) @ (x[t] @ w_q) / w_q.size(1) ** 0.5
            rows.append(table @ (x[t] + scores.softmax(0) @ (past @ w_v)))
        logits.append(torch.stack(rows))
        for row, answer in zip(rows[:-1], text[1:].tolist(), strict=True):
            if answer != pad:
                total = total + torch.logsumexp(row, 0) - row[answer]
                count += 1
    return torch.stack(logits), total / max(count, 1)


@right("debugging/mended")
def pad_ignored(ids, table, places, w_q, w_k, w_v, pad):
    T = ids.size(1)
    x = F.embedding(ids, table) + places[:T]
    scores = torch.einsum("btd,de,bse->bts", x, w_q, x @ w_k)
    scores = scores / w_q.shape[-1] ** 0.5
    see = torch.ones(T, T, dtype=torch.bool).tril()
    weights = scores.masked_fill(~see, float("-inf")).softmax(-1)
    logits = F.linear(x + weights @ (x @ w_v), table)
    loss = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=pad
    )
    return logits, loss


@right("debugging/mended")
def with_torch(ids, table, places, w_q, w_k, w_v, pad):
    x = F.embedding(ids, table) + places[None, : ids.shape[1]]
    y = F.scaled_dot_product_attention(
        x @ w_q, x @ w_k, x @ w_v, is_causal=True
    )
    logits = F.linear(x + y, table)
    loss = F.cross_entropy(
        logits[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=pad
    )
    return logits, loss


@right("debugging/mended")
def token_by_token(ids, table, places, w_q, w_k, w_v, pad):
    rows, costs = [], []
    for text in ids:
        x = torch.stack([table[i] + places[t] for t, i in enumerate(text)])
        out = []
        for t in range(len(x)):
            seen = x[: t + 1]
            fit = (seen @ w_k) @ (x[t] @ w_q) / math.sqrt(x.size(1))
            out.append(x[t] + fit.softmax(0) @ (seen @ w_v))
        z = torch.stack(out) @ table.T
        rows.append(z)
        for t in range(len(x) - 1):
            if text[t + 1] != pad:
                costs.append(z[t].logsumexp(0) - z[t, text[t + 1]])
    return torch.stack(rows), torch.stack(costs).mean()


@right("debugging/mended")
def with_einsum(ids, table, places, w_q, w_k, w_v, pad):
    n, d = ids.size(1), table.size(1)
    x = table[ids] + places[torch.arange(n)]
    q, k, v = (torch.einsum("btd,de->bte", x, w) for w in (w_q, w_k, w_v))
    s = torch.einsum("bid,bjd->bij", q, k) * d**-0.5
    e = (s - s.amax(-1, keepdim=True)).exp() * torch.ones(n, n).tril()
    x = x + torch.einsum("bij,bjd->bid", e / e.sum(-1, keepdim=True), v)
    z = torch.einsum("btd,vd->btv", x, table)
    p = z[:, :-1].softmax(-1)
    right = p.gather(2, ids[:, 1:, None]).squeeze(2)
    real = (ids[:, 1:] != pad).double()
    return z, -(right.log() * real).sum() / real.sum()


def _whole(
    ids,
    table,
    places,
    w_q,
    w_k,
    w_v,
    pad,
    *,
    by_row=False,
    axis=-1,
    shift=1,
    count="targets",
):
    B, T = ids.shape
    at = (
        torch.arange(B)[:, None].expand(B, T)
        if by_row
        else (torch.arange(T).expand(B, T))
    )
    x = table[ids] + places[at]
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    hide = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hide, -torch.inf).softmax(axis)
    logits = (x + weights @ v) @ table.T
    y = ids[:, shift:]
    log_p = logits[:, : T - shift].log_softmax(-1)
    nats = -log_p.gather(-1, y[..., None])[..., 0]
    if count == "all":
        return logits, nats.mean()
    if count == "sum":
        return logits, (nats * (y != pad)).mean()
    keep = (ids[:, : T - shift] if count == "inputs" else y) != pad
    if count == "texts":
        each = (nats * keep).sum(1) / keep.sum(1).clamp(min=1)
        return logits, each.mean()
    return logits, nats[keep].mean()


@wrong("debugging/mended", "by_batch")
def positions_of_the_batch(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, by_row=True)


@wrong("debugging/mended", "over_queries")
def still_over_queries(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, axis=-2)


@wrong("debugging/mended", "not_shifted")
def still_not_shifted(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, shift=0)


@wrong("debugging/mended", "padding_counted")
def padding_still_counts(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="all")


@wrong("debugging/mended", "divided_by_all")
def divided_by_all_targets(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="sum")


@wrong("debugging/mended", "real_inputs")
def inputs_left_out(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="inputs")


@wrong("debugging/mended", "mean_of_means")
def mean_of_each_text(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, count="texts")


@wrong("debugging/mended", "shifted_twice")
def shifted_by_two(ids, table, places, w_q, w_k, w_v, pad):
    return _whole(ids, table, places, w_q, w_k, w_v, pad, shift=2)


def program(
    ids, table, places, w_q, w_k, w_v, pad,
    where=None, values=None, scale=None, ahead=0, axis=-1, shift=1,
    mean=None, hidden=-math.inf,
):  # fmt: skip
    b, n = ids.shape
    x = table[ids]
    x = x + (places[torch.arange(n)].expand_as(x) if where is None else where)
    q, k, v = x @ w_q, x @ w_k, x @ (w_v if values is None else values)
    s = q @ k.transpose(1, 2)
    s = s / (table.size(1) ** 0.5 if scale is None else scale)
    see = torch.ones(n, n, dtype=torch.bool).tril(ahead)
    w = torch.where(see, s, torch.tensor(hidden).double()).softmax(axis)
    z = (x + w @ v) @ table.mT
    nats = F.cross_entropy(
        z[:, : n - shift].flatten(0, 1),
        ids[:, shift:].flatten(),
        reduction="none",
    ).view(b, -1)
    real = ids[:, shift:] != pad
    if mean == "all":
        return z, nats.sum() / nats.numel()
    if mean == "rows":
        each = [c[r].mean() for c, r in zip(nats, real, strict=True)]
        return z, sum(each) / len(each)
    return z, nats[real].mean()


@wrong("debugging/mended", "no_scale")
def no_scale(*args):
    return program(*args, scale=1.0)


@wrong("debugging/mended", "sees_next")
def sees_next(*args):
    return program(*args, ahead=1)


@wrong("debugging/mended", "mask_finite")
def mask_finite(*args):
    return program(*args, hidden=-100.0)


@wrong("debugging/mended", "no_mask")
def no_mask(*args):
    return program(*args, ahead=99)


@wrong("debugging/mended")
def scaled_by_d(*args):
    return program(*args, scale=args[1].size(1))


@wrong("debugging/mended")
def in_bits(*args):
    logits, nats = program(*args)
    return logits, nats / math.log(2)


@wrong("debugging/mended")
def own_token_hidden(ids, table, places, w_q, w_k, w_v, pad):
    logits, _ = program(ids, table, places, w_q, w_k, w_v, pad)
    logits = logits - table[ids] @ table.T  # the path around is missing
    nats = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], ignore_index=pad)
    return logits, nats
