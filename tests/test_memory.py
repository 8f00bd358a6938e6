"""Memory that is freed stays for the next step, and no longer."""

import ctypes
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from coursekit import fast
from coursekit.config import GPTConfig
from coursekit.data import random_windows
from coursekit.decoder import GPT
from coursekit.fast import kept_memory, memory
from coursekit.train_config import TrainConfig
from coursekit.training import train

V = 13
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))


def tiny():
    torch.manual_seed(3)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 2, "max_len": 7}
    return GPT(GPTConfig(vocab_size=V, **fields))


def batches(step):
    return [random_windows(IDS, 3, 7, seed=1, step=step)]


has_mallopt = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


def new_pages(size=11):
    """Pages that five large tensors, one after the other, ask for."""
    import resource  # not on Windows

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(size, 2**20)  # 44 MB, above what the C library keeps
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def kept_and_given_back():
    given_back = new_pages(13)
    with kept_memory():
        new_pages()
        with kept_memory():  # leaving the inner one must change nothing
            pass
        assert min(new_pages() for _ in range(7)) < given_back / 20
    # Larger ones, which fit into no hole that the block has left.
    assert new_pages(13) > given_back / 2


def given_back_after_an_error():
    def fail():
        with kept_memory():
            raise RuntimeError

    before = new_pages()
    with pytest.raises(RuntimeError):
        fail()
    assert new_pages() > before / 2


def pages_in_training():
    """New pages at each of seven steps."""
    seen = []

    def look(_):
        seen.append(new_pages())

    train(tiny(), batches, TrainConfig(steps=7), callbacks=[look])
    return seen


def kept_in_training():
    """Some step asks for no new page.

    Not every one: a small tensor of the step may have settled in the place of
    a large one, and then the next large one is put elsewhere.
    """
    once = new_pages()
    assert min(pages_in_training()) < once / 20
    fast.kept_memory = nullcontext
    assert min(pages_in_training()) > once / 2


@pytest.mark.skipif(not has_mallopt, reason="glibc's malloc alone has this")
@pytest.mark.parametrize(
    "check",
    ["kept_and_given_back", "given_back_after_an_error", "kept_in_training"],
)
def test_memory_is_kept(check):
    """Each in a process of its own: what ran before leaves holes."""
    here = Path(__file__).parent
    # Pages of one size are counted: PR_SET_THP_DISABLE, without huge ones.
    small = "import ctypes; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)"
    env = {k: v for k, v in os.environ.items() if "MALLOC" not in k}
    env.pop("GLIBC_TUNABLES", None)
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{small}; import test_memory as t; t.{check}()",
        ],
        capture_output=True,
        text=True,
        env=env | {"PYTHONPATH": f"{here.parent}:{here}"},
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_without_that_library_nothing_happens(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    with kept_memory():
        assert memory._KEPT == []
