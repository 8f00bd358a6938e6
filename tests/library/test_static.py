"""One recorded step, replayed, must write what the plain loop writes.

No machine that this was written on had a GPU.  So a stand-in plays the CUDA
graph on the CPU: it notes each operation with the very tensors that it read,
and replays them into the very memory that they wrote, without any Python of
the model.  What a graph would freeze, it freezes.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import forked
import pytest
import torch
from test_cache import (
    PROMPTS,
    TOLERANCES,
    VARIANTS,
    check_reorder,
    largest_gap,
    make_gpt,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from coursekit.fast.inference import pack
from coursekit.generation import beam_search, generate
from coursekit.sampling import sampler
from coursekit.steppers import (
    PlainStepper,
    StaticStepper,
    cuda_graph,
    usual_record,
)


class Tape(TorchDispatchMode):
    """A CUDA graph without a GPU."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a record can't look at a value")
        found = op(*args, **(kwargs or {}))
        self.calls.append((op, args, kwargs or {}, found))
        return found

    def replay(self):
        for op, args, kwargs, found in self.calls:
            again = op(*args, **kwargs)
            for old, new in zip(
                tree_leaves(found), tree_leaves(again), strict=True
            ):
                is_new = isinstance(old, torch.Tensor)
                if is_new and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def taped(step):
    """In place of :func:`cuda_graph`: recorded once, replayed each time."""
    with Tape() as tape:
        result = step()

    def replay():
        tape.replay()
        return result.clone()

    return replay


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """There, the values of ids and positions are not looked at."""
    monkeypatch.setattr("coursekit.decoder.check_ids", lambda *_: None)


RECORDS = {"as it is": None, "taped": taped}


# -- the same as the plain loop ----------------------------------------------


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_logits_at_every_step(name, dtype, tolerance, record):
    model = make_gpt(dtype, **VARIANTS[name])
    for prompts in (PROMPTS, PROMPTS[:1]):  # padded, and not
        static = StaticStepper(model, record=RECORDS[record])
        gap = largest_gap(static, PlainStepper(model), prompts)
        assert gap < tolerance


@pytest.mark.parametrize("record", RECORDS)
def test_the_same_tokens(record):
    """Also past the window, drawn, in beams, and of a packed model."""
    model = make_gpt()
    for keep in (0, 4, 10):
        static = StaticStepper(model, 11, keep, RECORDS[record])
        plain = PlainStepper(model, 11, keep)
        texts = [generate(s, PROMPTS, 41) for s in (static, plain)]
        assert texts[0] == texts[1]
    static = StaticStepper(model, record=RECORDS[record])
    plain, packed = PlainStepper(model), StaticStepper(pack(model, 3))
    drawn = [
        generate(
            stepper,
            PROMPTS,
            13,
            sampler(1.3, generator=torch.Generator().manual_seed(7)),
        )
        for stepper in (static, plain, packed)
    ]
    assert drawn[0] == drawn[1] == drawn[2]
    found = [beam_search(s, PROMPTS, 3, 9, [5]) for s in (static, plain)]
    for ours, theirs in zip(*found, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("name", ["learned", "grouped", "alibi"])
def test_reorder_carries_the_cache(name, record):
    model = make_gpt(**VARIANTS[name])
    static = StaticStepper(model, record=RECORDS[record])
    check_reorder(static, PlainStepper(model))


def test_columns_not_written_yet_are_finite():
    """They are hidden, but hidden means times 0, and 0 times NaN is NaN."""
    torch.use_deterministic_algorithms(True)  # unset memory is NaN
    try:
        model = make_gpt()
        static, plain = StaticStepper(model), PlainStepper(model)
        assert largest_gap(static, plain) < 1e-5
        check_reorder(static, plain)
    finally:
        torch.use_deterministic_algorithms(False)


# -- what is recorded, and when ----------------------------------------------


def counting(log):
    """A recorder that notes its calls."""

    def record(step):
        log.append(step)
        return taped(step)

    return record


def test_one_record_serves_texts_of_any_length():
    """Only another number of rows, or another precision, needs a new one."""
    model, log = make_gpt(), []
    static = StaticStepper(model, 11, 3, record=counting(log))
    plain = PlainStepper(model, 11, 3)
    for prompts in (PROMPTS, PROMPTS[::-1], [[1], [2], [3]]):
        assert largest_gap(static, plain, prompts, 23) < 1e-5
    assert len(log) == 1
    for _ in range(2):
        assert largest_gap(static, plain, PROMPTS[:2]) < 1e-5
    assert len(log) == 2
    with torch.autocast("cpu", torch.bfloat16):
        assert largest_gap(static, plain, PROMPTS[:2]) < 0.1
    assert len(log) == 3
    assert largest_gap(static, plain, PROMPTS[:2]) < 1e-5
    assert len(log) == 4


def test_weights_may_change_in_place():
    """As in training: the record reads them where they are."""
    model = make_gpt()
    static = StaticStepper(model, record=taped)
    before = generate(static, PROMPTS, 11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)
    after = generate(static, PROMPTS, 11)
    assert after == generate(PlainStepper(model), PROMPTS, 11) != before


def test_training_mode_is_left_and_restored():
    model = make_gpt(dropout=0.5).train()
    static = StaticStepper(model, record=taped)
    assert largest_gap(static, PlainStepper(model)) < 1e-5
    assert all(module.training for module in model.modules())


COMPILED = """
import torch
from test_cache import PlainStepper, largest_gap, make_gpt
from coursekit.steppers import CachedStepper
from coursekit.steppers import StaticStepper

seen = []


def backend(graph, inputs):
    seen.append(graph)
    return graph


def compiled(step):
    return torch.compile(step, backend=backend, fullgraph=True, dynamic=False)


model = make_gpt(positions="rope")
grows = CachedStepper(model)
grows.run = compiled(grows.run)
for stepper in (StaticStepper(model, record=compiled), grows):
    torch._dynamo.reset()
    seen.clear()
    assert largest_gap(stepper, PlainStepper(model), n_steps=7) < 1e-5
    print(len(seen))
"""


def test_a_compiled_step_is_compiled_once():
    """The growing cache is the control: each step has a new shape.

    In a process of its own, where shapes are not checked, as for a user.
    """
    library, tests, root = [*map(str, Path(__file__).parents)][:3]
    path = os.pathsep.join((root, tests, library))
    run = subprocess.run(
        [*forked.python(), "-c", COMPILED],
        capture_output=True,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    static, growing = map(int, run.stdout.split())
    assert static == 1
    assert growing == 1 + 7  # the prompt, and each step


# -- mistakes that a record makes permanent ----------------------------------


class CountsInPython(StaticStepper):
    """The column is a number, so the record writes one column for ever."""

    def fixed_step(self):
        self.whole[0].column.fill_(self.cache[0].length - 1)
        return super().fixed_step()


class LooksAtAValue(StaticStepper):
    def fixed_step(self):
        if int(self.column) > 7:
            return super().fixed_step()
        return super().fixed_step()


class ForgetsTheMask(StaticStepper):
    """Sees what is not written yet."""

    def settle(self):
        super().settle()
        self.columns = torch.zeros_like(self.columns)


class NewPadding(StaticStepper):
    """The record goes on reading the padding of the text before."""

    def settle(self):
        first = getattr(self, "first", None)
        super().settle()
        if first is not None:
            self.first = self.first.clone()
            first.fill_(0)


def test_a_number_of_pythons_freezes():
    model = make_gpt()
    assert largest_gap(CountsInPython(model), PlainStepper(model)) < 1e-5
    wrong = CountsInPython(model, record=taped)
    assert largest_gap(wrong, PlainStepper(model)) > 1e-2


def test_a_look_at_a_value_is_refused():
    static = LooksAtAValue(make_gpt(), record=taped)
    with pytest.raises(RuntimeError, match="look at a value"):
        generate(static, PROMPTS, 3)


def test_columns_not_written_yet_must_be_hidden():
    model = make_gpt()
    for record in RECORDS.values():
        wrong = ForgetsTheMask(model, record=record)
        assert largest_gap(wrong, PlainStepper(model)) > 1e-2


def test_what_a_record_reads_must_keep_its_place():
    model = make_gpt()
    wrong, plain = NewPadding(model, record=taped), PlainStepper(model)
    largest_gap(wrong, plain)
    assert largest_gap(wrong, plain) > 1e-2


# -- the CUDA graph itself, played on the CPU --------------------------------


@pytest.fixture
def pretend_gpu(monkeypatch):
    """torch.cuda's graphs by the tape; notes what happens in which order."""
    seen = []

    class Stream:
        def wait_stream(self, other):
            seen.append("wait")

    class Graph(Tape):
        def replay(self):
            seen.append("replay")
            super().replay()

    @contextlib.contextmanager
    def graph(tape):
        seen.append("capture")
        with tape:
            yield
        seen.append("captured")

    @contextlib.contextmanager
    def stream(beside):
        seen.append("beside")
        yield

    for name, value in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": stream,
        "CUDAGraph": Graph,
        "graph": graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return seen


def test_a_cuda_graph_warms_up_beside_and_is_captured_once(pretend_gpu):
    model = make_gpt()
    static = StaticStepper(model, record=cuda_graph)
    assert largest_gap(static, PlainStepper(model), n_steps=3) < 1e-5
    before = ["wait", "beside", "wait", "capture", "captured"]
    assert pretend_gpu == before + ["replay"] * 3


def test_the_logits_of_a_step_outlive_the_next(pretend_gpu):
    """A graph writes into the same memory each time: we hand out copies."""
    static = StaticStepper(make_gpt(), record=cuda_graph)
    static.prefill(PROMPTS)
    first = static.step(torch.tensor([1, 2, 3]))
    kept = first.clone()
    assert not torch.equal(static.step(torch.tensor([4, 5, 6])), kept)
    assert torch.equal(first, kept)


def test_autocast_with_its_cache_is_refused(pretend_gpu, monkeypatch):
    static = StaticStepper(make_gpt(), record=cuda_graph)
    static.prefill(PROMPTS)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    with pytest.raises(ValueError, match="cache_enabled=True"):
        static.step(torch.tensor([1, 2, 3]))
    assert "capture" not in pretend_gpu
    monkeypatch.setattr(torch, "is_autocast_cache_enabled", lambda: False)
    static.step(torch.tensor([1, 2, 3]))
    assert "captured" in pretend_gpu


def test_a_graph_is_the_default_on_a_gpu_only():
    assert usual_record(torch.device("cuda")) is cuda_graph
    same = object()
    assert usual_record(torch.device("cpu"))(same) is same
