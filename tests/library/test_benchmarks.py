"""The benchmark: does it count right, take turns, and notice less work?"""

import json
import os
import pkgutil
import subprocess
import sys
import types
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import (
    __main__,
    clock,
    contest,
    generating,
    growing,
    switches,
    table,
    tokenizing,
    training,
)
from benchmarks.contest import (
    OURS,
    Missing,
    Model,
    Settings,
    Shape,
    Target,
    Task,
    judge,
)
from benchmarks.peers import ours, vocabularies
from coursekit_classroom.glue import result
from results.record import ROOT

# The width is even and divisible by the heads; all sizes differ.
TOY = Shape(2, 30, 3, 11, 53, 5, max_len=71)
TOY_PAIRS = Shape(2, 30, 3, 33, 53, 5, dropout=0.1, max_len=128)
QUICK = Settings(quick=True, rounds=2, slot=0.0)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """Toy shapes and a short text; a rate at which toys learn."""
    for size in (*"SCM", "C, 128 positions"):
        monkeypatch.setitem(training.SHAPES, size, TOY)
    dropped = replace(TOY, dropout=0.1)
    monkeypatch.setitem(training.SHAPES, "C, dropout 0.1", dropped)
    monkeypatch.setitem(training.SHAPES, "base", TOY_PAIRS)
    monkeypatch.setattr(training, "RATE", 3e-3)
    beginning = tokenizing.text(9_000)
    monkeypatch.setattr(tokenizing, "text", lambda n_bytes=0: beginning)


def only(monkeypatch, kind, *names):
    """Leave these of the known contestants, and us."""
    kept = {n: contest.PEERS[kind][n] for n in (OURS, *names)}
    monkeypatch.setitem(contest.PEERS, kind, kept)


def plugged(monkeypatch, make):
    """Settings with one more contestant, named plug:make."""
    module = types.ModuleType("plug")
    module.make = make
    monkeypatch.setitem(sys.modules, "plug", module)
    return Settings(quick=True, rounds=2, slot=0.0, plugins=["plug:make"])


# -- the clock ---------------------------------------------------------------
def test_turns_go_forward_and_back():
    assert clock.turns("ABC", 3) == [[*"ABC"], [*"CBA"], [*"ABC"]]


class FakeTime:
    """A clock that only the contestants move on."""

    def __init__(self):
        self.now, self.seen = 0.0, []

    def perf_counter(self):
        return self.now

    def process_time(self):
        return 2 * self.now  # two threads, both busy

    def contestant(self, name, seconds):
        def call():
            self.seen.append(name)
            self.now += seconds

        return call


def test_race_interleaves_and_repeats(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", fake)
    calls = {"A": fake.contestant("A", 0.5), "B": fake.contestant("B", 1.5)}
    found = clock.race(calls, rounds=2, slot=1.0)
    # Two warm-ups each; the fastest needs 2 calls to fill its turn of 1 s.
    assert "".join(fake.seen) == "AABB" + "AABB" + "BBAA"
    assert found["A"].wall == [0.5, 0.5]
    assert found["B"].cpu == [3.0, 3.0]


def test_a_first_call_that_was_made_is_not_made_again():
    calls = []
    race = {name: partial(calls.append, name) for name in "ab"}
    found = clock.race(race, 2, slow=20.0, known={"a": (30.0, 60.0)})
    assert "a" not in calls
    assert (found["a"].wall, found["a"].cpu) == ([30.0], [60.0])
    assert len(found["b"].wall) == 2
    assert len(calls) >= 4  # two to warm up


def test_a_slow_contestant_is_measured_once(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", fake)
    calls = {"A": fake.contestant("A", 1.0), "B": fake.contestant("B", 30.0)}
    found = clock.race(calls, rounds=3, slow=20.0)
    assert fake.seen.count("B") == 1
    assert found["B"].wall == [30.0]
    # Medians 1 and 30; each round of A against the one of B.
    compared = clock.compare(found["A"], found["B"])
    assert compared["ratio"] == 30.0
    assert compared["spread"] == [30.0, 30.0]


def test_ratios_by_hand():
    a = clock.Timing(wall=[2.0, 4.0, 3.0], cpu=[4.0, 8.0, 6.0])
    b = clock.Timing(wall=[3.0, 4.0, 9.0], cpu=[3.0, 4.0, 9.0])
    # Medians 3 and 4; the rounds' ratios are 1.5, 1 and 3, whose quartiles
    # lie halfway between neighbors.
    assert clock.compare(a, b) == {
        "ratio": 4 / 3,
        "spread": [1.25, 2.25],
        "cpu_ratio": 4 / 6,
    }
    assert clock.quartiles([7.0]) == [7.0, 7.0]


def test_precision_is_put_back():
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    x = torch.ones(3, 3)
    with clock.precision("bf16"):
        assert (x @ x).dtype == torch.bfloat16
    with clock.precision("fp32 oneDNN"):
        assert (x @ x).dtype == torch.float32
    assert matmul.fp32_precision == before


def test_peaks_are_products():
    found = clock.peaks(rounds=1, size=96)
    assert set(found) == set(clock.PRECISIONS)
    assert found["fp32"]["error"] < 1e-6
    assert 1e-4 < found["bf16"]["error"] < 1e-2


# -- targets -----------------------------------------------------------------
ROWS = {
    OURS: {"ratio": 1.0},
    "coursekit alone": {"ratio": 0.5},
    "fast": {"ratio": 1.2},
    "slow": {"ratio": 3.0},
    "cheat": {"ratio": 0.1, "disqualified": "no gradient"},
}


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (Target(1.2), 1.2, "met"),
        (Target(1.5), 1.2, "short by 20%"),
        (Target(1.2025), 1.2, "short by 0.2%"),
        (Target(2.0, against="slow"), 3.0, "met"),
        (Target(2.0, against="gone"), None, "open: gone was not measured"),
        (Target(number="s", at_most=0.3), 0.45, "over by 50%"),
        (Target(number="s", at_most=0.5), 0.45, "met"),
    ],
)
def test_targets_by_hand(target, value, verdict):
    outcome = {"rows": ROWS, "numbers": {"s": 0.45}}
    assert judge(outcome, target) == (value, verdict)


def test_we_are_held_to_the_same_rules():
    rows = ROWS | {OURS: {"ratio": 1.0, "disqualified": "less work"}}
    value, verdict = judge({"rows": rows}, Target(1.0))
    assert value is None
    assert "less work" in verdict


def test_targets_name_known_peers():
    names = [work.name for work in __main__.WORKLOADS]
    assert len(names) == len(set(names))
    known = {name for kind in contest.PEERS.values() for name in kind}
    for work in __main__.WORKLOADS:
        for target in work.targets:
            assert target.against in known | {"best"}
            assert bool(target.number) != bool(target.at_least)


# -- the same work -----------------------------------------------------------
def test_steps_of_peers_are_accepted(monkeypatch):
    only(monkeypatch, "gpt", "torch.nn")
    for how in clock.PRECISIONS:
        rows = training.steps(QUICK, "S", how)["rows"]
        assert [*rows] == [OURS, "torch.nn"]
        assert all("disqualified" not in row for row in rows.values()), rows
        first, last = rows[OURS]["losses"]
        assert first == pytest.approx(3.97, abs=0.3)  # ln 53
        assert last < first


def test_our_own_loop_is_raced(monkeypatch):
    only(monkeypatch, "gpt", "torch.nn")
    rows = training.defaults(QUICK)["rows"]
    assert all("disqualified" not in row for row in rows.values()), rows


@pytest.mark.parametrize("work", switches.WORKLOADS, ids=lambda w: w.name)
def test_a_switch_is_off_for_one_of_two(monkeypatch, work):
    off = work.run.keywords["off"]
    homes = {name: pkgutil.resolve_name(name) for name in off}
    seen = []
    for name, other in off.items():
        # The stand-in is called, and only where it stands in.
        monkeypatch.setitem(off, name, partial(noted, seen, other))
    rows = work.run(QUICK)["rows"]
    assert [*rows] == [OURS, "without"]
    assert all(row["speed"] > 0 for row in rows.values())
    assert seen, "nobody asks: the name is not the one that is used"
    assert {n: pkgutil.resolve_name(n) for n in off} == homes


def test_each_speed_up_has_two_rows():
    rows = [next(iter(w.run.keywords["off"])) for w in switches.WORKLOADS]
    assert rows
    assert all(rows.count(name) >= 2 for name in rows), rows


def noted(seen, other, *args, **options):
    seen.append(1)
    return other(*args, **options)


def test_pairs_train(monkeypatch):
    only(monkeypatch, "pairs", "torch.nn")
    rows = training.steps(QUICK, "base", "fp32")["rows"]
    assert all("disqualified" not in row for row in rows.values()), rows


class Cheat(nn.Module):
    """A model of ours that leaves work out."""

    def __init__(self, task, how):
        super().__init__()
        shape = task.shape
        if how == "shallow":
            shape = replace(shape, n_layers=1)
        self.inner = ours.gpt(Task("gpt", shape), QUICK).module
        self.how = how

    def forward(self, ids):
        if self.how == "no backward":
            with torch.no_grad():
                x = self.inner.hidden(ids)
            return self.inner.logits(x)
        return self.inner(ids)


def cheat(how, task):
    model = Cheat(task, how)

    def loss(module, ids, targets):
        if how == "half":
            ids, targets = ids[:3], targets[:3]
        nats = F.cross_entropy(module(ids).flatten(0, 1), targets.flatten())
        if how == "detached":
            return nats.detach()
        return nats * 0.5 if how == "scaled" else nats

    return Model(model, loss)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("no backward", "no gradient reaches"),
        ("shallow", "parameters"),
        ("half", "does not see every row"),
        ("scaled", "not near ln V"),
        ("detached", "does not require grad"),
    ],
)
@pytest.mark.parametrize(
    "race",
    [partial(training.steps, size="S", how="fp32"), training.defaults],
    ids=["steps", "defaults"],
)
def test_a_contestant_that_does_less_is_noticed(monkeypatch, race, how, found):
    only(monkeypatch, "gpt")
    settings = plugged(monkeypatch, partial(cheat, how))
    out = race(settings)
    row = out["rows"].get("plug:make", {})
    said = row.get("disqualified", "") + out["skipped"].get("plug:make", "")
    assert found in said
    assert judge(out, Target(1.0))[1] == "open: no peer was measured"


def test_an_honest_contestant_counts(monkeypatch):
    only(monkeypatch, "gpt")
    settings = plugged(monkeypatch, partial(cheat, "not at all"))
    out = training.steps(settings, "S", "fp32")
    assert "disqualified" not in out["rows"]["plug:make"]
    assert judge(out, Target(1e-6))[1] == "met"


def test_a_contestant_may_stay_away(monkeypatch):
    only(monkeypatch, "gpt")
    settings = plugged(monkeypatch, lambda task: None)
    out = training.steps(settings, "S", "fp32")
    assert out["skipped"] == {"plug:make": "does not take part in this"}


def test_apart_gives_the_same_rows(monkeypatch):
    only(monkeypatch, "gpt", "torch.nn")
    settings = plugged(monkeypatch, partial(cheat, "not at all"))
    out = training.steps(settings, "M", "fp32")
    assert [*out["rows"]] == [OURS, "torch.nn", "plug:make"]


# -- writing -----------------------------------------------------------------
@pytest.mark.parametrize(("size", "batch"), [("S", 1), ("S", 3), ("base", 2)])
def test_our_writing_is_greedy(monkeypatch, size, batch):
    only(monkeypatch, "pairs" if size == "base" else "gpt")
    rows = generating.writing(QUICK, size, batch)["rows"]
    assert "disqualified" not in rows[OURS]


def test_compiled_writing_is_greedy(monkeypatch):
    """All but the compiler, which takes its time."""
    only(monkeypatch, "gpt", "transformers", "torch.nn")
    monkeypatch.setattr(torch, "compile", lambda f=None, **_: f)
    out = generating.writing(QUICK, "S", 1, compiled=True)
    assert "disqualified" not in out["rows"][OURS]
    assert out["skipped"]["torch.nn"] == "does not generate by a compiled step"
    if "transformers" not in out["skipped"]:
        assert "disqualified" not in out["rows"]["transformers"]


@pytest.mark.parametrize("size", ["S", "base"])
def test_the_products_of_a_step_are_all_of_them(monkeypatch, size):
    """They multiply by each weight once: counted by the FLOPs of a call."""
    only(monkeypatch, "pairs" if size == "base" else "gpt")
    kind = "pairs" if size == "base" else "gpt"
    task = contest.Task(kind, training.SHAPES[size])
    model = getattr(ours, kind)(task, QUICK)
    call = model.products(1)
    with FlopCounterMode(display=False) as counted:
        call()
    weights = [
        model.module.embedding.weight,
        *(
            parameter
            for name, parameter in model.module.blocks.named_parameters()
            if parameter.dim() == 2
            # A source is projected once, not at each step.
            and not name.endswith(
                ("cross_attention.w_k.weight", "cross_attention.w_v.weight")
            )
        ),
    ]
    assert counted.get_total_flops() == 2 * sum(w.numel() for w in weights)
    quarter = {"products": clock.Timing([0.25] * 3, [0.5] * 3)}
    monkeypatch.setattr(generating, "race", lambda *_: quarter)
    rows = generating.writing(QUICK, size, 2)["rows"]
    n_steps = 64 if size == "base" else 50
    assert rows[OURS]["products_seconds"] == 0.25 * n_steps


def test_beam_search_writes(monkeypatch):
    only(monkeypatch, "pairs")
    rows = generating.writing(QUICK, "base", 2, n_beams=3)["rows"]
    assert "disqualified" not in rows[OURS]


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda new: new[:, :-1], "tokens, not"),
        (lambda new: (new + 1) % TOY.vocab_size, "not the likeliest"),
    ],
)
def test_wrong_writing_is_noticed(monkeypatch, spoil, found):
    only(monkeypatch, "gpt")

    def make(task):
        model = ours.gpt(task, QUICK)
        write = model.write
        model.write = lambda ids, n: spoil(write(ids, n))
        return model

    out = generating.writing(plugged(monkeypatch, make), "S", 1)
    assert found in out["rows"]["plug:make"]["disqualified"]


# -- tokenizers --------------------------------------------------------------
def test_tokenizers_agree_with_us():
    """All that are installed learn as well, and encode to the same ids."""
    learned = tokenizing.learning(QUICK, n_bytes=0, size=400)
    coded = tokenizing.encoding(QUICK, size=400)
    for out in (learned, coded):
        fails = [w for w in out["skipped"].values() if w.startswith("fails")]
        assert fails == []
        assert len(out["rows"]) > 2
        for name, row in out["rows"].items():
            if name != "sentencepiece":
                assert "disqualified" not in row, (name, row)


def test_other_ids_are_noticed(monkeypatch):
    only(monkeypatch, "encode")

    def make(task):
        encode = ours.encode_alone(task, QUICK)
        return lambda: encode()[1:]

    out = tokenizing.encoding(plugged(monkeypatch, make), size=400)
    assert "others than ours" in out["rows"]["plug:make"]["disqualified"]


def test_merges_by_hand():
    tokens = (*(bytes([i]) for i in range(256)), b"ab", b"abab", b"cabab")
    assert vocabularies.merges(tokens) == [(97, 98), (256, 256), (99, 257)]


def test_byte_letters_are_gpt2s():
    letters = vocabularies.byte_letters()
    assert letters[ord("A")] == "A"
    assert letters[ord(" ")] == "Ġ"
    assert len(set(letters.values())) == 256


# -- checkouts, each by a stand-in with its interface ------------------------
NANOGPT = """
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional as F

@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        print("number of parameters: 0.01M")
        self.block_size = config.block_size
        self.table = nn.Embedding(config.vocab_size, config.n_embd)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, idx, targets=None):
        logits = F.linear(self.table(idx), self.table.weight)
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1)
        )

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        assert top_k == 1
        for _ in range(max_new_tokens):
            new = self(idx[:, -self.block_size:])[0][:, -1].argmax(-1)
            idx = torch.cat((idx, new[:, None]), dim=1)
        return idx
"""
MINGPT = (
    NANOGPT.replace(
        "class GPT(nn.Module):",
        """class GPT(nn.Module):
    @staticmethod
    def get_default_config():
        config = GPTConfig(n_layer=None)
        config.model_type = "gpt"
        return config
""",
    )
    .replace(
        "        print",
        "        assert config.model_type is None\n        print",
    )
    .replace(
        "import torch\n", "import torch\nfrom mingpt.utils import ok\n", 1
    )
)
MINBPE = """
from .base import join
class RegexTokenizer:
    def __init__(self, pattern=None):
        self.pattern, self.compiled_pattern = "", None
        self.merges, self.vocab = {}, {}

    def train(self, text, vocab_size, verbose=False):
        self.compiled_pattern.findall(text)
        self.vocab = {i: b"" for i in range(vocab_size)}

    def encode_ordinary(self, text):
        ids = []
        for chunk in self.compiled_pattern.findall(text):
            part = list(chunk.encode("utf-8"))
            for pair, new in self.merges.items():
                part = join(part, pair, new)
            ids += part
        return ids

    def encode(self, text):
        return self.encode_ordinary(text)
"""
BASE = """
def join(ids, pair, new):
    out = []
    for i in ids:
        if out and (out[-1], i) == pair:
            out[-1] = new
        else:
            out.append(i)
    return out
"""
ANNOTATED = """
import copy
import torch
import torch.nn as nn
from torch.nn.functional import log_softmax, pad
import altair_that_is_not_there as alt
RUN = alt.nothing()

class EncoderDecoder(nn.Module):
    def __init__(self, size, vocab):
        super().__init__()
        self.table = nn.Embedding(vocab, size)
        self.generator = Generator(size, vocab)

    def forward(self, src, tgt, src_mask, tgt_mask):
        assert src_mask.shape[-1] == src.size(1)
        assert tgt_mask.shape[-2:] == (tgt.size(1), tgt.size(1))
        return self.table(tgt) + self.table(src).mean(1, keepdim=True)

class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return log_softmax(self.proj(x), dim=-1)

def subsequent_mask(size):
    return torch.ones(1, size, size).tril() > 0

def make_model(
    src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1
):
    assert d_ff == 4 * d_model and d_model % h == 0
    return copy.deepcopy(EncoderDecoder(d_model, src_vocab))

alt.show(RUN)
"""
FILES = {
    "nanogpt": {"model.py": NANOGPT},
    "mingpt": {
        "mingpt/__init__.py": "",
        "mingpt/utils.py": "ok = True",
        "mingpt/model.py": MINGPT,
    },
    "minbpe": {"minbpe/__init__.py": MINBPE, "minbpe/base.py": BASE},
    "annotated": {"the_annotated_transformer.py": ANNOTATED},
}


@pytest.fixture
def checkouts(tmp_path, monkeypatch):
    """Settings with a stand-in of each checkout."""
    for name, files in FILES.items():
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf8")
    known = set(sys.modules)
    yield Settings(
        quick=True,
        rounds=2,
        slot=0.0,
        folders={name: tmp_path / name for name in FILES},
    )
    for name in set(sys.modules) - known:
        if name.startswith(("benchmarks_", "mingpt", "minbpe")):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["nanogpt", "mingpt"])
def test_karpathys_models(monkeypatch, checkouts, name, capsys):
    only(monkeypatch, "gpt", name)
    out = training.steps(checkouts, "S", "fp32")
    assert out["skipped"] == {}
    assert out["rows"][name]["losses"][0] == pytest.approx(3.97, abs=0.3)
    # The stand-in is one table: less than a transformer, and noticed.
    if name == "nanogpt":
        assert "parameters" in out["rows"][name]["disqualified"]
    out = generating.writing(checkouts, "S", 1)
    assert "disqualified" not in out["rows"][name]
    assert capsys.readouterr().out == ""


def test_minbpe(monkeypatch, checkouts):
    only(monkeypatch, "encode", "minbpe")
    out = tokenizing.encoding(checkouts, size=300)
    assert "disqualified" not in out["rows"]["minbpe"]
    only(monkeypatch, "learn", "minbpe")
    out = tokenizing.learning(checkouts, n_bytes=0, size=300)
    # The stand-in learns nothing: it needs more tokens than we do.
    assert "more tokens" in out["rows"]["minbpe"]["disqualified"]
    monkeypatch.setattr("benchmarks.peers.vocabularies.HOURS", 299)
    out = tokenizing.learning(checkouts, n_bytes=1, size=300)
    assert "hours" in out["skipped"]["minbpe"]


def test_annotated(monkeypatch, checkouts):
    only(monkeypatch, "pairs", "annotated")
    out = training.steps(checkouts, "base", "fp32")
    assert out["skipped"] == {}
    assert out["rows"]["annotated"]["note"].startswith("pre-norm")


# -- what is not there -------------------------------------------------------
def test_skips_say_what_is_missing(tmp_path):
    with pytest.raises(Missing, match=r"pip install not-there-lib"):
        contest.need("not_there_lib.model")
    with pytest.raises(Missing, match=r"--peer nanogpt=DIR"):
        contest.checkout(QUICK, "nanogpt")
    empty = Settings(folders={"nanogpt": tmp_path})
    with pytest.raises(Missing, match=r"has no model.py"):
        contest.checkout(empty, "nanogpt")
    (tmp_path / "model.py").write_text("import not_there_lib")
    with pytest.raises(Missing, match="cannot be imported"):
        contest.load_module("broken", tmp_path / "model.py")
    assert "broken" not in sys.modules


def test_a_contestant_that_fails_is_skipped(monkeypatch):
    only(monkeypatch, "gpt")

    def make(task):
        raise TypeError("its interface has changed")

    out = training.steps(plugged(monkeypatch, make), "S", "fp32")
    said = out["skipped"]["plug:make"]
    assert said == "fails: TypeError: its interface has changed"


@pytest.mark.parametrize("name", ["transformers", "x-transformers", "litgpt"])
def test_installed_models(monkeypatch, name):
    """All of it where the peer is installed: train, write, greedily."""
    only(monkeypatch, "gpt", name)
    out = training.steps(QUICK, "S", "bf16")
    if "not installed" in out["skipped"].get(name, ""):
        pytest.skip(out["skipped"][name])
    assert out["skipped"] == {}
    assert "disqualified" not in out["rows"][name], out["rows"][name]
    rows = generating.writing(QUICK, "S", 1)["rows"]
    assert "disqualified" not in rows[name], rows[name]


def test_marian(monkeypatch):
    pytest.importorskip("transformers")
    only(monkeypatch, "pairs", "transformers")
    for out in (
        training.steps(QUICK, "base", "fp32"),
        generating.writing(QUICK, "base", 2),
        generating.writing(QUICK, "base", 2, n_beams=3),
    ):
        assert out["skipped"] == {}
        row = out["rows"]["transformers"]
        assert "disqualified" not in row, row


# -- growing -----------------------------------------------------------------
def test_memory_is_measured():
    # In a process of its own: the tests before this one may have had more.
    code = (
        "import json, torch; from benchmarks.growing import measure; "
        "call = lambda: held.append(torch.ones({size})); held = []; "
        "print(json.dumps(measure(call, 1)))"
    )
    added = []
    for size in (1, 10**7):
        out = subprocess.run(
            [sys.executable, "-c", code.format(size=size)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(out.stdout)
        assert found["seconds"] > 0
        added.append(found["peak_bytes"])
    # The call is made twice and holds both tensors of 40 MB.
    assert added[0] < 2e7 < 7e7 < added[1] < 1.2e8, added


def test_a_long_context_has_no_square():
    """8,192 tokens: less memory than a T × T matrix of bytes."""
    found = growing.child("forward", growing.LONG)
    assert 0 < found["peak_bytes"] < growing.LONG**2


def test_the_loss_in_pieces_needs_less_memory():
    """A fifth of a text's logits at a time: a third of the memory, at most.

    All of them are held four times: as logits, as log-probabilities, and the
    gradients of both.
    """
    code = (
        "import json; from benchmarks import growing; "
        "growing.LOSS = 1024, 16, 20011; growing.ROWS = 205; "
        "print(json.dumps(growing.loss('{how}')))"
    )
    peaks = {}
    for how in ("ours", "whole"):
        out = subprocess.run(
            [sys.executable, "-c", code.format(how=how)],
            cwd=ROOT,
            env=os.environ | growing.MAPPED,
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[how] = json.loads(out.stdout)["peak_bytes"]
    logits = 4 * 1024 * 20011
    assert 4 * logits < peaks["whole"] < 5 * logits, peaks
    assert peaks["ours"] < peaks["whole"] / 3, peaks


def test_counted_flops_by_hand():
    # 6·1000 and 12 · 2 layers · width 30 · context 11.
    assert training.flops_per_token(1000, TOY) == 6000 + 7920


# -- the command -------------------------------------------------------------
def test_a_part_is_printed_and_not_written(monkeypatch, tmp_path, capsys):
    only(monkeypatch, "gpt", "torch.nn")
    monkeypatch.setattr(__main__, "HERE", tmp_path)
    monkeypatch.setattr(__main__, "peaks", lambda n: clock.peaks(1, 64))
    n_threads = torch.get_num_threads()
    words = ["--quick", "--only", "train S bf16", "--rounds", "2"]
    __main__.main([*words, "--threads", "1"])
    torch.set_num_threads(n_threads)
    said = capsys.readouterr().out
    assert "| train S bf16 |" in said
    assert "torch.nn | " in said
    assert "≥ 1.25×" in said
    assert list(tmp_path.iterdir()) == []


def test_update_needs_rows():
    with pytest.raises(SystemExit, match="got no --only"):
        __main__.main(["--update"])


def test_a_part_can_be_put_into_the_last_result(monkeypatch, tmp_path):
    (tmp_path / "results").mkdir()
    file = tmp_path / "results/bench.json"
    whole = json.loads((ROOT / "results/bench.json").read_text("utf8"))
    file.write_text(json.dumps(whole), "utf8")
    monkeypatch.setattr(__main__, "HERE", tmp_path / "results")
    row = {"unit": "s", "failed": "skipped: a test"}
    __main__.revise({"train S fp32": row}, {"fp32": {"gflops": 7}})
    found = json.loads(file.read_text("utf8"))
    before, after = whole["metrics"]["workloads"], found["metrics"]
    changed = after["workloads"].pop("train S fp32")
    del before["train S fp32"]
    assert changed["failed"] == row["failed"]
    assert changed["peaks"] == {"fp32": {"gflops": 7}}
    assert len(changed["commit"].split("+")[0]) == 40
    assert after["workloads"] == before
    names = [work.name for work in __main__.WORKLOADS]
    assert [*found["metrics"]["workloads"]] == [
        name for name in names if name in before
    ]
    assert "- skipped: a test (train S fp32)" in after["table"]


def test_quick_is_a_part_of_full():
    parse = __main__.parser().parse_args
    quick = {w.name for w in __main__.chosen(parse(["--quick"]))}
    full = {w.name for w in __main__.chosen(parse([]))}
    assert quick < full == {w.name for w in __main__.WORKLOADS}


def test_a_result_names_no_folder():
    found = __main__.recorded(
        [
            "--peer",
            "nanogpt=/a/b",
            "--quick",
            "--peer=minbpe=/c=d",
            "--pee",
            "annotated=/home",
            "--peer",
            "nanogpt",
        ]
    )
    assert found[:3] == ["--peer", "nanogpt=DIR", "--quick"]
    assert found[3:6] == ["--peer=minbpe=DIR", "--pee", "annotated=DIR"]
    assert found[6:] == ["--peer", "nanogpt"]  # refused elsewhere


@pytest.mark.parametrize(
    ("words", "got"),
    [([], "no --only"), (["--only", "import", "--quick"], "--quick")],
)
def test_the_last_result_keeps_to_full_rows(words, got):
    with pytest.raises(SystemExit, match=f"got {got}"):
        __main__.main(["--update", *words])


def test_an_unknown_peer_is_refused():
    args = __main__.parser().parse_args(["--peer", "nonsense=x"])
    with pytest.raises(SystemExit, match="nonsense"):
        __main__.settings_of(args)


def test_what_cannot_run_is_said():
    def run(settings):
        raise Missing("needs a compiler")

    work = contest.Workload("w", "s", run)
    found = __main__.play(work, QUICK)
    assert (
        table.line("w", found) == "| w | | | | | skipped: needs a compiler |"
    )


def test_table_by_hand():
    outcome = {
        "unit": "tokens/s",
        "rows": {
            OURS: {"speed": 1234.5},
            "a": {"speed": 617.0, "ratio": 2.0, "spread": [1.9, 2.1]},
            "b": {"speed": 99.9, "ratio": 12.0, "spread": [11.0, 13.0]},
        },
        "verdicts": [
            {
                "target": {"at_least": 2.5, "against": "best", "number": ""},
                "value": 2.0,
                "verdict": "short by 20%",
            },
        ],
    }
    assert table.line("w", outcome) == (
        "| w | 2.00 (1.90–2.10) | 1,234 tokens/s | 617 a | ≥ 2.5× "
        "| short by 20% |"
    )
    outcome["verdicts"][0]["target"]["against"] = "b"
    assert "| 99.9 b; best 617 a |" in table.line("w", outcome)
    outcome["rows"]["a"] |= {"ratio": 1426.9, "spread": [99.5, 1436.2]}
    outcome["rows"]["b"]["disqualified"] = "does half of it"
    assert "| 1,427 (99.50–1,436) |" in table.line("w", outcome)


def test_reasons_by_hand():
    def work(verdict, **row):
        return {"verdicts": [{"verdict": verdict}], "rows": {OURS: row}}

    step = {"flops_per_token": 3e6, "speed": 1e5}
    works = {
        "train S fp32": work("short by 5%", **step),
        "train S bf16": work("short by 5%", **step),
        "train C fp32": work("met", **step),
        "train S by default": work("short by 9%"),
        "generate S": work(
            "short by 9%", products_seconds=0.3, wall_seconds=0.75
        ),
        "GPU train S bf16": work("short by 9%", **step) | {"peak": 7e5},
        "import": {"numbers": {}, "verdicts": []},
    }
    peaks = {
        "fp32": {"gflops": 400.0, "error": 1e-7},
        "fp32 oneDNN": {"gflops": 900.0, "error": 1e-3},
        "bf16": {"gflops": 1000.0, "error": 1e-3},
    }
    assert list(table.reasons(works, peaks)) == [
        "short: oneDNN rounds here, so MKL multiplies (train S by default)",
        "short, and their share of the fastest product: "
        "train S fp32 75%, train S bf16 30%",
        "short, and what the products with weights, alone, take of our "
        "time: generate S 40%",
    ]
    peaks["fp32 oneDNN"]["error"] = 2e-7
    assert "oneDNN" not in "".join(table.reasons(works, peaks))


def test_the_table_is_that_of_the_result():
    assert result("bench")["table"] == table.markdown(result("bench"))
