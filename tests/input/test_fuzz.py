"""A few cases of each fuzz target; a planted bug that each of them finds.

``make fuzz`` runs more of them, for as long as one likes.
"""

import json
import os
import sys
import time

import pytest
import torch

if sys.platform != "linux":
    pytest.skip("cases run in forks, with limits", allow_module_level=True)

from coursekit.pretrained import bert
from tests import fuzz
from tests.fuzz import __main__ as program

SHARE = float(os.environ.get("FUZZ_SHARE", "1"))  # 1: about 15 s of CPU time
CASES = {
    "attention": 60,
    "norm": 60,
    "loss": 30,
    "block": 30,
    "adamw": 30,
    "filters": 60,
    "forms": 20,
    "greedy": 20,
    "gpt2": 5,
    "bert": 5,
    "tokens": 60,
    "model": 20,
    "checkpoint": 20,
    "tokenizer": 100,
    "formats": 200,
    "published": 20,
    "submission": 60,
    "wire": 200,
    "records": 60,
    "roster": 50,
    "command": 20,
    "json_file": 4,
    "killed_training": 1,
    "killed_grading": 0,  # 15 s each; tests/classroom/test_grade.py has one
}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_nothing_is_wrong(name):
    n = int(CASES[name] * SHARE)
    found = dict(fuzz.run(name, range(n)))
    assert sorted(found) == [*range(n)]
    for seed, problem in found.items():
        again = f"make fuzz ONLY={name} SEED={seed}"
        assert not problem, f"{problem}\n{again}"


# -- controls ----------------------------------------------------------------
def read_json(path):
    return json.loads(path.read_bytes())


def top_left(n_queries, n_keys, device=None):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


def eps_outside(x, weight=None, eps=1e-5):
    y = x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps)
    return y if weight is None else y * weight


def below(logits, p):
    sorted_, order = logits.softmax(-1).sort(descending=True)
    drop = (sorted_.cumsum(-1) > p).scatter(-1, order, sorted_.cumsum(-1) > p)
    return logits.masked_fill(drop, -torch.inf)


def throw(error, args):
    raise error


def values_as_keys(self, k, v):
    self.k = k if self.k is None else torch.cat((self.k, v), -2)
    return self.k, v


def half_restored(path, model, state):
    from coursekit.checkpoint import load_checkpoint

    load_checkpoint(path, model, state)
    state.losses.clear()


PLANTED = {
    "attention": ("coursekit.attention.causal_mask", top_left),
    "norm": ("tests.fuzz.oracles.rms_norm", eps_outside),
    "loss": (
        "tests.fuzz.oracles.cross_entropy",
        lambda z, t, i, s, r: fuzz.oracles.fast_cross_entropy(z, t, i, 0, r),
    ),
    "block": (
        "coursekit.multihead.split_heads",
        lambda x, n: x.unflatten(-1, (-1, n)).movedim(-1, -3),
    ),
    "adamw": (
        "tests.fuzz.oracles.make_optimizer",
        lambda model, c: torch.optim.Adam(
            model.parameters(),
            betas=(c.beta1, c.beta2),
            eps=c.eps,
            weight_decay=c.weight_decay,
        ),
    ),
    "filters": ("coursekit.sampling.keep_top_p", below),
    "forms": ("coursekit.cache.LayerCache.update", values_as_keys),
    "greedy": ("coursekit.cache.LayerCache.update", values_as_keys),
    "gpt2": (
        "coursekit.pretrained.gpt2.GPT2_ACTIVATIONS",
        {"gelu_new": "relu", "gelu": "relu", "relu": "relu"},
    ),
    "bert": (
        "coursekit.pretrained.bert.BERT_SETTINGS",
        bert.BERT_SETTINGS.replace("norm_eps    layer_norm_eps\n", ""),
    ),
    "tokens": ("coursekit.bpe.encode_chunk", lambda chunk, ranks: [*chunk]),
    "model": ("coursekit.weights._checksum", lambda *parts: ""),
    "checkpoint": ("coursekit.weights._checksum", lambda *parts: ""),
    "tokenizer": ("tests.fuzz.damage.load_tokenizer", read_json),
    "formats": (
        "tests.fuzz.damage.READERS",
        dict.fromkeys("scwrtg", read_json),
    ),
    "published": ("tests.fuzz.damage.load_gpt2", None),
    "submission": (
        "coursekit_classroom.notebooks.declared.read_cells",
        lambda path: read_json(path)["cells"],
    ),
    "wire": (
        "coursekit_classroom.teach.wire.unpack",
        lambda text, body: json.loads(text),
    ),
    "records": (
        "coursekit_classroom.shape.misfit",
        lambda *parts: "",
    ),
    "roster": (
        "tests.fuzz.damage.read_roster",
        lambda path: path.read_text("utf8"),
    ),
    "command": ("coursekit.cli.explain", throw),
    "json_file": ("coursekit.cli.explain", throw),
    "killed_training": ("coursekit.cli.train.load_checkpoint", half_restored),
}
ENOUGH = 40  # cases in which a planted bug is found


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name, monkeypatch):
    place, bug = PLANTED[name]
    monkeypatch.setattr(place, bug)
    found = fuzz.run(name, range(ENOUGH))
    assert any(problem for _, problem in found)


def test_each_target_has_cases_and_a_control():
    assert CASES.keys() == fuzz.TARGETS.keys()
    assert PLANTED.keys() >= {name for name, n in CASES.items() if n}


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (lambda rng: os._exit(3), "ended the interpreter: exit code 3"),
        (lambda rng: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_case_that_ends_badly_is_named(bug, said, monkeypatch):
    """And the next case runs."""

    def case(rng):
        if rng.random() < 0.5:
            bug(rng)

    monkeypatch.setitem(fuzz.TARGETS, "bad", case)
    found = dict(fuzz.run("bad", range(9)))
    assert sorted(found) == [*range(9)]
    wrong = [problem for problem in found.values() if problem]
    assert 0 < len(wrong) < 9
    assert all(said in problem for problem in wrong)
    again = dict(fuzz.run("bad", range(9)))
    assert [*map(bool, again.values())] == [*map(bool, found.values())]


def test_a_case_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(fuzz, "PATIENCE", 0.2)
    monkeypatch.setitem(fuzz.TARGETS, "slow", lambda rng: time.sleep(9))
    assert dict(fuzz.run("slow", [7])) == {7: "took longer than 0.2 s"}


@pytest.mark.parametrize("seconds", ["0.8", "0"])
def test_each_target_gets_its_turn(seconds, monkeypatch, capsys):
    """However short the time, and if one takes longer than its part."""
    targets = {name: lambda rng: time.sleep(0.01) for name in "abcd"}
    targets["b"] = lambda rng: time.sleep(0.9)
    for module in (fuzz, program):
        monkeypatch.setattr(module, "TARGETS", targets)
    monkeypatch.setattr(program, "LEAST", 0.2)
    argv = ["fuzz", "--seconds", seconds, "--first", "5"]
    monkeypatch.setattr(sys, "argv", argv)
    assert program.main() == 0
    table = capsys.readouterr().out.partition("seconds\n")[2].splitlines()
    cases = {row.split()[0]: int(row.split()[1]) for row in table[:-1]}
    assert cases.keys() == targets.keys()
    assert cases["b"] == 1
    assert min(cases.values()) > 0
