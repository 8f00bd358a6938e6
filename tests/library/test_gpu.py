"""Half precision by each attention kernel, and the same model on a GPU.

What needs a GPU is skipped without one, and says so; no machine that this
was written on had one.  The kernel that every machine has runs everywhere.
"""

from functools import partial

import pytest
import torch
from compare import close, differ
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import __main__, clock, contest, gpu, table, training
from benchmarks.contest import OURS, Missing, Settings, Shape
from coursekit.attention import attend, fast_attend
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import random_windows
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.masks import combine_masks
from coursekit.preferences import dpo_batch
from coursekit.speculative import CachedReader
from coursekit.steppers import GPTStepper
from coursekit.training import train

WHY = "no GPU here (torch.cuda.is_available() is False)"
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason=WHY)

# Each kernel that PyTorch may pick; the first is there on the CPU as well.
KERNELS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
PLACES = [
    pytest.param("cpu", "math", id="cpu-math"),
    *(
        pytest.param("cuda", name, id=f"cuda-{name}", marks=GPU)
        for name in KERNELS
    ),
]
# Half precision rounds inputs to 8 or 11 bits; gradients sum a few of them.
HALF = {torch.bfloat16: 3e-2, torch.float16: 4e-3}
# The kernels take multiples of 8 as the size of a head; else primes.
B, H, DH = 3, 6, 16


def draw(t, s, groups, device, dtype):
    """q, k, v in a half precision, and the gradient that comes back."""
    made = torch.Generator().manual_seed(t * s)
    shapes = [(B, H, t, DH), (B, groups, s, DH), (B, groups, s, DH)]
    rounded = [
        torch.randn(shape, generator=made).to(dtype)
        for shape in (*shapes, (B, H, t, DH))
    ]
    *qkv, up = (x.to(device) for x in rounded)
    return [x.requires_grad_() for x in qkv], up


def padding(s, device):
    """The second row has two keys fewer."""
    mask = torch.ones(B, 1, 1, s, dtype=torch.bool, device=device)
    mask[1, ..., -2:] = False
    return mask


CASES = {  # T, S, key/value heads, padded, causal
    "T = S": (7, 7, H, False, False),
    "T = S causal": (7, 7, H, False, True),
    "T < S causal": (5, 11, H, False, True),
    "one query": (1, 11, H, False, True),
    "padding": (7, 7, H, True, False),
    "padding causal": (7, 7, H, True, True),
    "grouped heads": (7, 7, 2, False, True),
    "grouped heads, padding": (5, 11, 2, True, True),
}


def outcome(f, qkv, up, **how):
    """Output and gradients."""
    y = f(*qkv, **how)
    return [y, *torch.autograd.grad(y, qkv, up.to(y.dtype))]


@pytest.mark.parametrize(("device", "kernel"), PLACES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_against_float64(device, kernel, case, dtype):
    t, s, groups, is_padded, causal = CASES[case]
    qkv, up = draw(t, s, groups, device, dtype)
    mask = padding(s, device) if is_padded else None
    exact = [x.detach().double().requires_grad_() for x in qkv]
    gold = outcome(attend, exact, up, mask=mask, causal=causal)
    fast = partial(outcome, fast_attend, qkv, up, mask=mask, causal=causal)
    try:
        with sdpa_kernel(KERNELS[kernel]):
            ours = fast()
    except RuntimeError as error:
        # Flash attention takes no mask, for one; but math takes everything.
        if kernel == "math" or "No available kernel" not in str(error):
            raise
        pytest.skip(f"{kernel} has no kernel for {case} in {dtype} here")
    plain = outcome(attend, qkv, up, mask=mask, causal=causal)
    for found in (ours, plain):
        for a, b in zip(found, gold, strict=True):
            assert a.dtype == dtype
            close(a.double(), b, HALF[dtype])
    if causal and t > 1:  # the control: a mask that sees one key more
        late = torch.ones(t, s, dtype=torch.bool, device=device)
        late = combine_masks(late.tril(s - t + 1), mask)
        wrong = attend(*exact, late)
        differ(ours[0].double(), wrong, 2 * HALF[dtype])


# -- a model on both ---------------------------------------------------------
V = 13
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))


def trained(device, precision="float32", dtype=torch.float64):
    """A small model after five steps on a device, and its losses."""
    torch.manual_seed(3)
    sizes = {"d_model": 48, "n_heads": 3, "n_layers": 2, "max_len": 31}
    model = GPT(GPTConfig(vocab_size=V, **sizes)).to(device, dtype)
    config = TrainConfig(
        steps=5, warmup_steps=2, learning_rate=0.01, precision=precision
    )
    state = train(
        model, lambda step: [random_windows(IDS, 3, 7, 1, step)], config
    )
    return model, state.losses


def written(model):
    """What it writes with its cache, after prompts of unequal lengths."""
    return generate(GPTStepper(model), [[1, 2, 3], [4], [5, 6]], 17)


@GPU
def test_training_and_writing_on_a_gpu_are_those_on_the_cpu():
    """In float64, so that no order of sums can change a token."""
    (here, losses), (there, others) = trained("cpu"), trained("cuda")
    assert others == pytest.approx(losses, abs=1e-9)
    for a, b in zip(here.parameters(), there.parameters(), strict=True):
        close(b.cpu(), a, 1e-6)
    assert written(there) == written(here)


@GPU
def test_a_draft_is_read_and_a_reference_asked_where_they_are():
    (here, _), (there, _) = trained("cpu"), trained("cuda")
    read = CachedReader(there)([1, 2, 3], 2)
    close(read.cpu(), CachedReader(here)([1, 2, 3], 2), 1e-6)
    pairs = [([1], [2], [3, 4])]
    a, b = (dpo_batch(pairs, m, 0).inputs["reference"] for m in (here, there))
    close(b.cpu(), a, 1e-6)


@GPU
def test_bfloat16_on_a_gpu_learns_what_the_cpu_learns():
    _, losses = trained("cpu", dtype=torch.float32)
    _, others = trained("cuda", "bfloat16", torch.float32)
    assert others == pytest.approx(losses, abs=0.03)
    assert others != losses


# -- the benchmark -----------------------------------------------------------
QUICK = Settings(quick=True, rounds=2, slot=0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_each_row_says_so():
    assert len(gpu.WORKLOADS) == 8
    for work in gpu.WORKLOADS:
        assert work in __main__.WORKLOADS
        found = __main__.play(work, QUICK)
        assert table.line(work.name, found).endswith(
            "| skipped: no GPU here |"
        )
    with pytest.raises(Missing, match="no GPU here"):
        gpu.on_gpu(QUICK)


@pytest.fixture
def on_cpu(monkeypatch):
    """The rows of the GPU, but on the CPU, with toys and one peer."""
    toy = Shape(2, 30, 3, 11, 53, 5, max_len=71)
    for size in ("S", "GPU S"):
        monkeypatch.setitem(training.SHAPES, size, toy)
    kept = {n: contest.PEERS["gpt"][n] for n in (OURS, "torch.nn")}
    monkeypatch.setitem(contest.PEERS, "gpt", kept)
    monkeypatch.setattr(training, "RATE", 3e-3)
    monkeypatch.setattr(gpu, "on_gpu", lambda settings: settings)
    small = partial(clock.peak, size=96)
    monkeypatch.setattr(gpu, "peak", small)


def test_the_gpus_rows_go_through_the_harness(on_cpu):
    found = gpu.steps(QUICK, "S")
    assert [*found["rows"]] == [OURS, "torch.nn"]
    for row in found["rows"].values():
        assert "disqualified" not in row, row
        # The share by hand: FLOPs a second over those of the product.
        flops = row["flops_per_token"] * 5 * 11 / row["wall_seconds"]
        assert row["mfu"] == pytest.approx(flops / found["peak"] / 1e9)
    said = next(table.remarks({"GPU train S bf16": found}))
    assert said.startswith("GPU train S bf16: share of the fastest bf16")
    assert f"{OURS} {found['rows'][OURS]['mfu']:.0%}, torch.nn" in said
    rows = gpu.writing(QUICK, 3)["rows"]
    assert "disqualified" not in rows[OURS]


def test_the_clock_waits_for_a_gpu(monkeypatch):
    """Its work is only queued by a call: before and after, all is done."""
    seen = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: seen.append("wait"))
    clock.race({"a": lambda: seen.append("call")}, rounds=1)
    assert seen == ["wait", "call", "wait"] * 3
    seen.clear()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    clock.race({"a": lambda: seen.append("call")}, rounds=1)
    assert seen == ["call"] * 3
