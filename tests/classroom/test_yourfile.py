"""The learner's file: right ones pass under any names, wrong ones stop."""

import json
import math
import os
import re
import runpy
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import coursekit
from coursekit import cli
from coursekit_classroom import lesson, yourfile
from coursekit_classroom.glue import result
from coursekit_classroom.yourfile import (
    FILE,
    check_step,
    contracts,
    expected_loss,
    loading,
)
from coursekit_classroom.yourfile.contracts import base, layers, model
from coursekit_classroom.yourfile.saving import save_as_zip
from results import ladder

ROOT = Path(__file__).resolve().parents[2]


def found(path, source, at=None):
    """All lines that the contracts print, or the failure's."""
    path.write_text(source, "utf-8")
    try:
        file = loading.load(path, at)
        return "\n".join(check_step.verify(path, file))
    except base.ContractError as error:
        return str(error)


def contract(name):
    """The contract of that name, among all of them."""
    return next(c for c in contracts.CONTRACTS if c.check.__name__ == name)


def renamed(source, chapter):
    """The file with other names for all that it defines."""
    for name in set(lesson.parts(chapter)) - {"script", "WORD"}:
        source = re.sub(rf'(?<!")\b{name}\b(?!")', f"{name[::-1]}_", source)
    return source


# -- files that are right ----------------------------------------------------
@pytest.mark.parametrize("chapter", range(lesson.LAST_CHAPTER + 1))
def test_the_books_file_holds_every_contract(tmp_path, chapter):
    source = renamed(yourfile.text(chapter, complete=True), chapter)
    assert "CharTokenizer" not in source
    lines = found(tmp_path / f"right{chapter}.py", source)
    due = contracts.due(chapter, set(yourfile.book(chapter).values()))
    assert lines.count("✓") == len(due) + 1, lines  # and the last lines
    assert "✗" not in lines
    assert "note:" not in lines


def test_a_part_that_is_the_books_is_noted(tmp_path):
    source = yourfile.text(7, complete=True).replace(
        "chapter = 7", "from coursekit.minimal import LayerNorm\nchapter = 7"
    )
    lines = found(tmp_path / "mine.py", source)
    assert "imports the book's LayerNorm. Without that line, your" in lines


@pytest.mark.parametrize("chapter", range(lesson.LAST_CHAPTER + 1))
def test_the_complete_file_is_the_books_and_its_parts(chapter):
    source = yourfile.text(chapter, complete=True)
    assert source.startswith(lesson.text(chapter).replace("minimal.py", FILE))
    assert f"chapter = {chapter}\n" in source
    # The negative control: what is to be written is not filled in.
    has_step = chapter in yourfile.STEPS
    assert (yourfile.text(chapter) != source) == has_step


@pytest.mark.parametrize("chapter", yourfile.STEPS)
def test_a_step_that_is_not_written_says_so(tmp_path, chapter):
    path = tmp_path / f"begun{chapter}.py"
    lines = found(path, yourfile.text(chapter))
    if chapter == 12:  # the first that is there, and is changed
        assert "✗ Heads: " in lines
        assert "TypeError" in lines
        return
    if yourfile.STEPS[chapter] == ("Model",):
        assert "✗ Model: " in lines
        assert f"{path.name}, line " in lines
        return
    assert "still to be written" in lines
    number = int(re.search(rf"{path.name}, line (\d+)", lines)[1])
    line = path.read_text("utf-8").splitlines()[number - 1]
    assert "NotImplementedError" in line


# -- what lies next to it ----------------------------------------------------
def test_only_the_file_imports_what_lies_next_to_it(
    tmp_path, trapped, monkeypatch
):
    marks = trapped(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("x = 'of mine'\n", "utf8")
    path = tmp_path / "file.py"
    path.write_text("import mine\nprint(mine.x)\nparts = 0\n", "utf8")
    report = yourfile.step(path, steps=1)
    assert report.text.startswith("of mine\n")
    assert "parts" in report.text
    assert not marks.exists()


@pytest.mark.parametrize("command", ["step", "capstone"])
@pytest.mark.parametrize("name", ["tokenize", "torch"])
def test_a_file_that_hides_a_module_is_named(tmp_path, capsys, command, name):
    (tmp_path / "mine.py").write_text(f"import {name}\n", "utf8")
    (tmp_path / "file.py").write_text("from mine import *\n", "utf8")
    (tmp_path / f"{name}.py").write_text("", "utf8")
    assert cli.main([command, str(tmp_path / "file.py")]) == 2
    said = capsys.readouterr().err
    assert f"got {tmp_path / name}.py. Rename it" in said


class HeadByHead(torch.nn.Module):
    """Heads in a list, each with its own small matrices."""

    def __init__(self, d, h):
        super().__init__()
        self.roles = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(d, d // h) for _ in range(3))
            for _ in range(h)
        )
        self.mix = torch.nn.Linear(d, d)

    def forward(self, x, memory, mask):
        found = []
        for q, k, v in self.roles:
            given = q(x), k(memory), v(memory)
            found.append(lesson.load(6).attention(*given, mask))
        return self.mix(torch.cat(found, -1))


class Fused(torch.nn.Module):
    """One matrix that is multiplied from the right; heads of every h-th."""

    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.last = torch.nn.Parameter(torch.randn(d, d))
        self.all = torch.nn.Parameter(torch.randn(d, 3 * d))

    def forward(self, x, memory, mask):
        v, q, k = self.all.chunk(3, 1)
        q, k, v = (
            y.unflatten(-1, (-1, self.h)).movedim(-1, 1)
            for y in (x @ q, memory @ k, memory @ v)
        )
        found = lesson.load(6).attention(q, k, v, mask)
        return found.movedim(1, -1).flatten(2) @ self.last


class Network(torch.nn.Sequential):
    """With biases, and another nonlinearity."""

    def __init__(self, d):
        wide, narrow = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)
        super().__init__(wide, torch.nn.ReLU(), narrow)


def one_more(step, steps, peak=3e-4, warmup=10):
    """A warm-up that reaches the peak one step later."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    angle = math.pi * (step - warmup) / (steps - 1 - warmup)
    return peak * (0.55 + 0.45 * math.cos(angle))


def nucleus(logits, temperature, top_p):
    """With a row for each token, and ids of the shape (B,)."""
    p = torch.softmax(logits / temperature, -1)
    larger = p.unsqueeze(-2) > p.unsqueeze(-1)  # the sum before each token
    before = (larger * p.unsqueeze(-2)).sum(-1)
    return torch.multinomial(p * (before < top_p), 1)[:, 0]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("heads", HeadByHead),
        ("heads", Fused),
        ("norm", torch.nn.LayerNorm),
        ("feed_forward", Network),
        ("loss", lambda x, y: torch.nn.CrossEntropyLoss()(x.mT, y)),
        ("mask", lambda n, m: torch.ones(n, m).tril(m - n) > 0),
        ("schedule", one_more),
        ("sample", nucleus),
    ],
)
def test_another_way_to_write_it_is_as_right(name, part):
    for since, check, at_fault in contracts.CONTRACTS:
        if at_fault == name:
            torch.manual_seed(0)
            check(base.File(max(since, 6), {name: part}))


# -- files that are wrong ----------------------------------------------------
BATCH = "return windows[rows, :-1], windows[rows, 1:]"
ROWS = "torch.randint(len(windows), (batch_size,))"
DRAW = "torch.multinomial(logits.softmax(-1), 1)"
MASK = "mask = causal_mask(ids.size(1), ids.size(1))"
POSITIONS = "        x = x + self.positions(torch.arange(ids.size(1)))\n"
LOOK = "x = x + self.attend(x, mask)"
MERGE = "if tuple(merged[-2:]) == pair:\n            merged[-2:] = [new_id]\n"
COUNT = "pairs[pair] += counts[word]"
BEST = "min(pairs, key=lambda pair: (-pairs[pair], pair))"
NONE = "            if not pairs:  # every word has become one token\n"
IN_ORDER = """for pair, new_id in self.merges.items():
                    self.words[word] = merge(self.words[word], pair, new_id)"""
LONGEST = """word_bytes = word.encode()
                for i in range(2):
                    self.words[word] = []
                while word_bytes:
                    n = max(
                        n
                        for n in range(1, len(word_bytes) + 1)
                        if word_bytes[:n] in self.vocabulary
                    )
                    self.words[word].append(
                        self.vocabulary.index(word_bytes[:n])
                    )
                    word_bytes = word_bytes[n:]"""
FIXED = "other[:, at] = (ids[:, at] + 1) % logits.size(-1)"
SPLIT = "x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)"
FUSED = "self.output(heads.transpose(1, 2).flatten(2))"
SHIFT = "shifted = logits - logits.max(-1, keepdim=True).values"
LOG_P = "log_p = shifted - shifted.exp().sum(-1, keepdim=True).log()"
WIDTH = "def __init__(self, vocab_size, context, d_model):"
CENTERED = """x - x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True)"""
NO_MEMORY = """def forward(self, x, mask):
        memory = x"""
WIDE = """nn.Linear(d_model, 4 * d_model, bias=False)
        self.output = nn.Linear(4 * d_model, d_model, bias=False)"""
BLOCKS = "nn.ModuleList(\n            Block(d_model, n_heads) for _ in range("
RATE = "peak * (step + 1) / warmup"
PROGRESS = "(step + 1 - warmup) / (steps - warmup)"
FLOOR = "(0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2)"
GROUPS = '[{"params": matrices}, {"params": gains, "weight_decay": 0.0}]'
ZERO = "        optimizer.zero_grad()\n"
BACKWARD = "        loss.backward()\n"
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
STEP = "        optimizer.step()\n"
KEPT = "p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)"
JOINED = "k = torch.cat([past[self][0], k], dim=2)"
ONE = "        new = sample(logits, temperature, top_p)\n"
WRONG = {  # name: chapter, old, new, contract, a part of the sentence
    "ids in disorder": (
        *(0, "in enumerate(self.vocabulary)}", "in enumerate(text)}"),
        *("tokenizer", "0 to"),
    ),
    "no shift": (
        *(0, BATCH, "return windows[rows, :-1], windows[rows, :-1]"),
        *("get_batch", "Move the targets by one"),
    ),
    "always the beginning": (
        *(0, ROWS, "torch.arange(batch_size)"),
        *("get_batch", "random positions"),
    ),
    "one position for all rows": (
        *(0, ROWS, "torch.randint(len(windows), (1,)).expand(batch_size)"),
        *("get_batch", "Draw one for each row"),
    ),
    "inputs alone": (
        *(0, BATCH, "return windows[rows, :-1]"),
        *("get_batch", "the pair inputs, targets"),
    ),
    "logits of the last position": (
        *(0, "return self.table(ids)", "return self.table(ids)[:, -1]"),
        *("logits", "(5, 7, 13): got shape (5, 13)"),
    ),
    "return forgotten": (
        *(0, "return self.table(ids)", "self.table(ids)"),
        *("logits", "is a `return` missing?"),
    ),
    "logits and targets exchanged": (
        *(
            0,
            "cross_entropy(logits, targets):",
            "cross_entropy(targets, logits):",
        ),
        *("loss", "not implemented for"),  # a NotImplementedError of PyTorch
    ),
    "sum of the losses": (
        *(0, "unsqueeze(-1)).mean()", "unsqueeze(-1)).sum()"),
        *("loss", "It is the sum"),
    ),
    "softmax over positions": (
        *(0, "log_softmax(-1)", "log_softmax(1)"),
        *("loss", "over the vocabulary"),
    ),
    "no optimizer step": (
        *(0, "        optimizer.step()\n", ""),
        *("learns", "training lowers the loss"),
    ),
    "an unknown name": (
        *(0, "losses.append(loss.item())", "losses.append(los.item())"),
        *("learns", "`losses.append(los.item())`"),
    ),
    "greedy": (
        *(0, DRAW, "logits.argmax(-1, keepdim=True)"),
        *("generate", "the model's probabilities"),
    ),
    "another position's logits": (
        *(0, "context :])[:, -1]", "context :])[:, 0]"),
        *("generate", "the model's probabilities"),
    ),
    "prompt lost": (
        *(0, "ids = torch.cat([ids, new], dim=1)", "ids = new"),
        *("generate", "new tokens make the shape"),
    ),
    "prompt at the end": (
        *(0, "torch.cat([ids, new], dim=1)", "torch.cat([new, ids], dim=1)"),
        *("generate", "the prompt stays"),
    ),
    "context not cut": (
        *(4, "model(ids[:, -model.context :])", "model(ids)"),
        *("generate", "IndexError: index out of range in self. Give it its"),
    ),
    "no scale": (
        *(4, " / math.sqrt(q.size(-1))", ""),
        *("attention", "exactly: the scores without 1/√D_h"),
    ),
    "softmax over the queries": (
        *(4, "scores.softmax(-1)", "scores.softmax(-2)"),
        *("attention", "exactly: softmax over the queries"),
    ),
    "mask inverted": (
        *(4, "masked_fill(~mask", "masked_fill(mask"),
        *("attention", "exactly: mask inverted"),
    ),
    "mask not used": (
        *(4, "scores.masked_fill(~mask, -math.inf)", "scores"),
        *("attention", "exactly: mask not used"),
    ),
    "mask one ahead": (
        *(4, "mask.tril(n_keys - n_queries)", "mask.tril(1)"),
        *("causal", "no later token"),
    ),
    "mask one behind": (
        *(4, "mask.tril(n_keys - n_queries)", "mask.tril(-1)"),
        *("logits", "all finite"),
    ),
    "no mask": (
        *(4, MASK, "mask = torch.ones(ids.size(1), ids.size(1)) > 0"),
        *("causal", "no later token"),
    ),
    "positions ignored": (4, POSITIONS, "", "positions", "two positions"),
    "attention found nothing": (
        *(4, LOOK, "self.attend(x, mask)"),
        *("causal", "earlier tokens"),
    ),
    # -- chapter 1
    "overlapping pairs": (
        *(1, MERGE, MERGE.replace("merged[-2:] = [", "merged[-1:] = [")),
        *("merge", "from the left"),
    ),
    "only the first pair": (
        *(1, MERGE, MERGE.replace(":\n", " and new_id not in merged:\n", 1)),
        *("merge", "becomes 3: wanted"),
    ),
    "merges not counted with the bytes": (
        *(
            1,
            "len(self.vocabulary) < vocab_size",
            "len(self.merges) < vocab_size",
        ),
        *("bpe", "The 256 bytes count too"),
    ),
    "each word counted once": (
        *(1, COUNT, "pairs[pair] += 1"),
        *("bpe", "as often as it occurs"),
    ),
    "the rarest pair": (
        *(1, BEST, "min(pairs, key=lambda pair: (pairs[pair], pair))"),
        *("bpe", "the most frequent pair"),
    ),
    "merges across words": (
        *(1, r'" ?\w+| ?[^\w\s]+|\s"', r'"(?s:.+)"'),
        *("bpe", "across the border of two words"),
    ),
    "crash when no pair is left": (
        *(1, f"{NONE}                break\n", ""),
        *("bpe", "empty"),  # which each Python says in words of its own
    ),
    "the longest token first": (
        *(1, IN_ORDER, LONGEST),
        *("bpe", "encode repeats the merges in their order"),
    ),
    "characters instead of bytes": (
        *(
            1,
            "self.words[word] = list(word.encode())",
            "self.words[word] = [ord(x) for x in word]",
        ),
        *("bpe", "Begin with the word's bytes"),
    ),
    "ids in a tensor": (
        *(
            1,
            "        return ids\n\n    def decode",
            "        return torch.tensor(ids)\n\n    def decode",
        ),
        *("bpe", "encode returns ids: got shape"),
    ),
    "half a character crashes": (
        *(1, 'data.decode(errors="replace")', "data.decode()"),
        *("bpe", "UnicodeDecodeError"),
    ),
    # -- chapters 2 and 3
    "a table of the context": (
        *(
            2,
            "nn.Embedding(vocab_size, d_model)",
            "nn.Embedding(context, d_model)",
        ),
        *("logits", "IndexError"),
    ),
    "the width is not used": (
        *(2, WIDTH, f"{WIDTH}\n        d_model = vocab_size"),
        *("narrow", "got 12"),
    ),
    "no unembedding": (
        *(2, "return self.unembed(x)", "return x"),
        *("logits", "(5, 7, 13): got shape (5, 7, 28)"),
    ),
    "probabilities": (
        *(2, "return self.unembed(x)", "return self.unembed(x).softmax(-1)"),
        *("logits", "Leave the softmax to the loss"),
    ),
    "logarithms of probabilities": (
        *(2, "self.unembed(x)\n", "self.unembed(x).log_softmax(-1)\n"),
        *("logits", "Leave the softmax to the loss"),
    ),
    "no positions": (3, POSITIONS, "", "positions", "two positions"),
    "positions of ids": (
        *(
            3,
            "self.positions(torch.arange(ids.size(1)))",
            "self.positions(ids)",
        ),
        *("logits", "IndexError"),
    ),
    "positions from 1": (
        *(3, "torch.arange(ids.size(1))", "torch.arange(ids.size(1)) + 1"),
        *("logits", "IndexError"),
    ),
    "positions of the sequences": (
        *(3, "torch.arange(ids.size(1))", "torch.arange(ids.size(0))"),
        *("logits", "RuntimeError"),
    ),
    "positions instead of tokens": (
        *(3, "x = x + self.positions(", "x = 0 * x + self.positions("),
        *("used", "no gradient for embedding.weight"),
    ),
    # -- chapter 5
    "mask from the first key": (
        *(5, "mask.tril(n_keys - n_queries)", "mask.tril()"),
        *("mask", "Move the diagonal"),
    ),
    "mask of the future": (
        *(
            5,
            "return mask.tril(n_keys - n_queries)",
            "return ~mask.tril(n_keys - n_queries)",
        ),
        *("mask", "It is inverted"),
    ),
    "mask without the diagonal": (
        *(5, "n_keys - n_queries)", "n_keys - n_queries - 1)"),
        *("mask", "got [0, 1, 2, 3, 4]"),
    ),
    "mask of numbers": (
        *(
            5,
            "torch.ones(n_queries, n_keys, dtype=torch.bool)",
            "torch.ones(n_queries, n_keys)",
        ),
        *("mask", "got torch.float32"),
    ),
    "the ids themselves are changed": (
        *(5, "other = ids.clone()", "other = ids"),
        *("causality_check", "Change a clone"),
    ),
    "always the token 0": (
        *(5, FIXED, "other[:, at] = 0"),
        *("causality_check", "also for token 0"),
    ),
    "beyond the vocabulary": (
        *(5, FIXED, "other[:, at] = ids[:, at] + 1"),
        *("causality_check", "IndexError"),
    ),
    "changes that cancel": (
        *(5, ".abs().amax((0, 2))", ".sum((0, 2)).abs()"),
        *("causality_check", "largest absolute difference"),
    ),
    "the last position alone": (
        *(5, ".abs().amax((0, 2))", ".abs().amax((0, 2))[-1:]"),
        *("causality_check", "shape (7,): got shape (1,)"),
    ),
    "one token's change": (
        *(5, ".abs().amax((0, 2))", ".abs().amax((0, 1))"),
        *("causality_check", "shape (7,): got shape (13,)"),
    ),
    # -- chapter 6
    "axes counted from the front": (
        *(6, "k.transpose(-2, -1)", "k.transpose(1, 2)"),
        *("attention", "without an error"),
    ),
    "heads cut through tokens": (
        *(6, SPLIT, "x.reshape(len(x), self.n_heads, x.size(1), -1)"),
        *("heads", "exchange the axes of heads and tokens"),
    ),
    "heads joined with tokens": (
        *(6, FUSED, "self.output(heads.reshape(x.shape))"),
        *("heads", "exchange the axes of heads and tokens"),
    ),
    "heads do not exchange axes": (
        *(6, SPLIT, "x.unflatten(-1, (self.n_heads, -1))"),
        *("heads", "RuntimeError"),
    ),
    "one head": (
        *(6, "(self.n_heads, -1)", "(1, -1)"),
        *("heads", "exactly: one head of all D numbers"),
    ),
    "no output matrix": (
        *(6, FUSED, "heads.transpose(1, 2).flatten(2)"),
        *("heads", "exactly: no output matrix"),
    ),
    "no mask in the heads": (
        *(
            6,
            "heads = attention(q, k, v, mask)",
            "heads = attention(q, k, v, mask | True)",
        ),
        *("heads", "exactly: mask not used"),
    ),
    "keys from the queries' side": (
        *(6, "self.key(memory)", "self.key(x)"),
        *("heads", "RuntimeError"),
    ),
    "values are keys": (
        *(6, "self.value(memory)", "self.key(memory)"),
        *("heads", "however its matrices are named"),
    ),
    "the mean of the heads": (
        *(6, FUSED, "self.output(heads.mean(1).repeat(1, 1, self.n_heads))"),
        *("heads", "stand side by side"),
    ),
    "heads found nothing": (
        *(6, "x = x + self.attend(x, x, mask)", "self.attend(x, x, mask)"),
        *("causal", "earlier tokens"),
    ),
    # -- chapter 7
    "the mean stays": (
        *(7, "x = x - x.mean(-1, keepdim=True)", "pass"),
        *("norm", "exactly: the mean is not subtracted"),
    ),
    "no root": (
        *(7, "torch.sqrt(variance + 1e-5)", "(variance + 1e-5)"),
        *("norm", "exactly: divided by the variance"),
    ),
    "D − 1": (
        *(7, "x.square().mean(-1, keepdim=True)", "x.var(-1, keepdim=True)"),
        *("norm", "exactly: the variance with D − 1"),
    ),
    "gains not used": (
        *(7, "return self.gain * x", "return x"),
        *("norm", "exactly: without the gains"),
    ),
    "gains of zero": (
        *(7, "torch.ones(d_model)", "torch.zeros(d_model)"),
        *("norm", "nn.Parameter of ones"),
    ),
    "gain no parameter": (
        *(7, "nn.Parameter(torch.ones(d_model))", "torch.ones(d_model)"),
        *("norm", "nn.Parameter of ones"),
    ),
    "over the positions": (
        *(7, "x - x.mean(-1, keepdim=True)", "x - x.mean(1, keepdim=True)"),
        *("norm", "whatever stands at other positions"),
    ),
    "over everything": (
        *(7, CENTERED, "x - x.mean()\n        variance = x.square().mean()"),
        *("norm", "exactly: one mean and variance for all positions"),
    ),
    "nothing added to the variance": (
        *(7, "torch.sqrt(variance + 1e-5)", "torch.sqrt(variance)"),
        *("norm", "before the root"),
    ),
    "added after the root": (
        *(7, "torch.sqrt(variance + 1e-5)", "(torch.sqrt(variance) + 1e-5)"),
        *("norm", "before the root"),
    ),
    "attention reads x": (
        *(7, "self.attend(y, y, mask)", "self.attend(x, x, mask)"),
        *("used", "no gradient for norm_1.gain"),
    ),
    "post-norm": (
        *(
            7,
            "x = x + self.attend(y, y, mask)",
            "x = self.norm_1(x + self.attend(x, x, mask))",
        ),
        *("normalized", "x = x + layer(norm(x))"),
    ),
    "the gains are drawn": (
        *(7, "if weight.dim() == 2:", "if True:"),
        *("normalized", "gains begin at 1 in a model too"),
    ),
    "the stream itself is normalized": (
        *(7, "y = self.norm_1(x)", "y = x = self.norm_1(x)"),
        *("normalized", "adds to x itself"),
    ),
    "the feed-forward network replaces x": (
        *(8, "x = x + self.feed_forward(", "x = self.feed_forward("),
        *("normalized", "but logits of the negative embeddings"),
    ),
    "attention replaces x": (
        *(7, "x = x + self.attend(y, y, mask)", "x = self.attend(y, y, mask)"),
        *("normalized", "adds to x itself"),
    ),
    "norm before the unembedding forgotten": (
        *(
            7,
            "self.unembed(self.norm(x))",
            "self.unembed(x + 0 * self.norm(x))",
        ),
        *("used", "no gradient for norm.gain"),
    ),
    "no norm before the unembedding": (
        *(
            7,
            "        self.norm = LayerNorm(d_model)\n",
            "        self.norm = nn.Identity()\n",
        ),
        *("normalized", "Apply the last norm"),
    ),
    # -- chapter 8
    "no nonlinearity": (
        *(8, "nn.functional.gelu(self.hidden(x))", "self.hidden(x)"),
        *("feed_forward", "stands a nonlinearity"),
    ),
    "nonlinearity at the end": (
        *(
            8,
            "self.output(nn.functional.gelu(self.hidden(x)))",
            "nn.functional.gelu(self.output(self.hidden(x)))",
        ),
        *("feed_forward", "24 hidden numbers, 4 D"),
    ),
    "as wide as x": (
        *(8, WIDE, WIDE.replace("4 * ", "")),
        *(
            "feed_forward",
            "24 hidden numbers, 4 D, each with its nonlinearity: got 6",
        ),
    ),
    "positions mixed": (
        *(8, "self.hidden(x)))", "self.hidden(x - x.mean(1, keepdim=True))))"),
        *("feed_forward", "act on the last axis"),
    ),
    "softmax as nonlinearity over positions": (
        *(
            8,
            "nn.functional.gelu(self.hidden(x))",
            "self.hidden(x).softmax(1)",
        ),
        *("feed_forward", "act on the last axis"),
    ),
    "feed-forward found nothing": (
        *(8, "x = x + self.feed_forward(", "self.feed_forward("),
        *("used", "no gradient for norm_2.gain"),
    ),
    "feed-forward replaces x": (
        *(8, "x = x + self.feed_forward(", "x = self.feed_forward("),
        *("normalized", "adds to x itself"),
    ),
    "feed-forward reads x": (
        *(
            8,
            "self.norm_2 = LayerNorm(d_model)",
            "self.norm_2 = nn.Identity()",
        ),
        *("normalized", "for each layer"),
    ),
    "feed-forward network left out": (
        *(8, "= FeedForward(d_model)", "= nn.Identity()"),
        *("layered", "add what it computes to x"),
    ),
    # -- chapter 10
    "exponentials of logits": (
        *(10, SHIFT, "shifted = logits"),
        *("stable", "is finite for logits"),
    ),
    "logarithm of probabilities": (
        *(10, LOG_P, "log_p = shifted.softmax(-1).log()"),
        *("stable", "logarithm of no probability"),
    ),
    "one maximum for all": (
        *(10, SHIFT, "shifted = logits - logits.max()"),
        *("stable", "largest logit of each row"),
    ),
    "a small number in the logarithm": (
        *(10, LOG_P, "log_p = (shifted.softmax(-1) + 1e-9).log()"),
        *("stable", "hides the overflow"),
    ),
    "logits clamped": (
        *(10, SHIFT, "shifted = logits.clamp(-50, 50)"),
        *("stable", "hides the overflow"),
    ),
    "maximum over the positions": (
        *(10, SHIFT, "shifted = logits - logits.max(1, keepdim=True).values"),
        *("loss", "mean of −ln p(target)"),
    ),
    # -- chapter 11
    "warm-up from 0": (
        *(11, RATE, "peak * step / warmup"),
        *("schedule", "A rate of 0 is a lost step"),
    ),
    "warm-up of one step more": (
        *(11, "if step < warmup:", "if step <= warmup:"),
        *("schedule", "1.100 of the peak at its beginning"),
    ),
    "no warm-up": (
        *(11, RATE, "peak"),
        *("schedule", "got 1.000 of it in the first step"),
    ),
    "the cosine falls to 0": (
        *(11, FLOOR, "(1 + math.cos(math.pi * progress)) / 2"),
        *("schedule", "a tenth of the peak should be left"),
    ),
    "the cosine never reaches its end": (
        *(11, PROGRESS, "(step + 1 - warmup) / steps"),
        *("schedule", "from 0 to 1 in the steps after the warm-up"),
    ),
    "a line instead of a cosine": (
        *(11, FLOOR, "(1 - 0.9 * progress)"),
        *("schedule", "along half a cosine"),
    ),
    "decay on vectors": (
        *(11, ', "weight_decay": 0.0', ""),
        *("optimizer", "leaves vectors alone"),
    ),
    "no decay": (
        *(11, "weight_decay=0.1)", "weight_decay=0.0)"),
        *("optimizer", "pulls matrices toward 0"),
    ),
    "vectors forgotten": (
        *(11, GROUPS, '[{"params": matrices}]'),
        *("optimizer", "got none for blocks.0.norm_1.gain"),
    ),
    "Adam with its decay in the gradient": (
        *(11, "torch.optim.AdamW(", "torch.optim.Adam("),
        *("optimizer", "use AdamW"),
    ),
    "plain gradient descent": (
        *(
            11,
            "torch.optim.AdamW(groups, betas=(0.9, 0.99), ",
            "torch.optim.SGD(groups, ",
        ),
        *("optimizer", "however large its gradient is"),
    ),
    "clipping after the step": (
        *(11, CLIP + STEP, STEP + CLIP),
        *("follows", "It is not clipped yet"),
    ),
    "clipping before backward": (
        *(11, BACKWARD + CLIP, CLIP + BACKWARD),
        *("follows", "It is not clipped yet"),
    ),
    "each number clipped": (
        *(
            11,
            "clip_grad_norm_(model.parameters(), 1.0)",
            "clip_grad_value_(model.parameters(), 1.0)",
        ),
        *("follows", "clip_grad_norm_, step"),
    ),
    "gradients add up": (11, ZERO, "", "follows", "zero_grad, backward"),
    "zeroed after backward": (
        *(11, ZERO + BACKWARD, BACKWARD + ZERO),
        *("follows", "It is 0. Set gradients to zero before"),
    ),
    "loss unshifted": (
        *(
            11,
            "cross_entropy(model(inputs), targets)",
            "cross_entropy(model(inputs), inputs)",
        ),
        *("follows", "The targets are the inputs"),
    ),
    "the schedule is not used": (
        *(11, "learning_rate(step, steps)", "1e-3"),
        *("follows", "the rates of all groups are your schedule's"),
    ),
    "the schedule for one group": (
        *(11, "in optimizer.param_groups:", "in optimizer.param_groups[:1]:"),
        *("follows", "the rates of all groups are your schedule's"),
    ),
    "the schedule one step late": (
        *(11, "learning_rate(step, steps)", "learning_rate(step + 1, steps)"),
        *("follows", "the rates of all groups are your schedule's"),
    ),
    "the last loss alone": (
        *(11, "return losses", "return losses[-1]"),
        *("follows", "the loss of each batch"),
    ),
    "the batches' mean": (
        *(
            11,
            "total += loss.item() * len(batch)\n    return total / len(",
            "total += loss.item()\n    return 64 * total / len(",
        ),
        *("evaluation", "the last one may be smaller"),
    ),
    "one batch of the text": (
        *(11, "in windows.split(64):", "in windows.split(64)[:1]:"),
        *("evaluation", "the mean over all targets"),
    ),
    # -- chapter 12
    "positions forgotten": (
        *(12, "torch.arange(start, end)", "torch.arange(end - start)"),
        *("continued", "Let positions begin where they ended"),
    ),
    "start from 0 again": (
        *(12, 'past.get("length", 0)', "0"),
        *("continued", "RuntimeError"),
    ),
    "old keys forgotten": (
        *(12, JOINED, f"{JOINED}[:, :, -k.size(2) :]"),
        *("continued", "RuntimeError"),
    ),
    "old values in the wrong order": (
        *(
            12,
            JOINED.replace("k", "v").replace("[0]", "[1]"),
            "v = torch.cat([v, past[self][1]], dim=2)",
        ),
        *("continued", "join old keys and values in front"),
    ),
    "new keys in front": (
        *(12, JOINED, "k = torch.cat([k, past[self][0]], dim=2)"),
        *("continued", "in front of the new ones"),
    ),
    "only the first keys are kept": (
        *(12, "past[self] = k, v", "past.setdefault(self, (k, v))"),
        *("continued", "RuntimeError"),
    ),
    "one cache for all layers": (
        *(
            12,
            "past[self] = k, v",
            'past[self] = past.setdefault("kv", (k, v))',
        ),
        *("continued", "RuntimeError"),
    ),
    "the length stays": (
        *(12, 'end = past["length"] =', "end ="),
        *("continued", "RuntimeError"),
    ),
    "temperature multiplied": (
        *(12, "(logits / temperature)", "(logits * temperature)"),
        *("sample", "are multiplied by it"),
    ),
    "temperature of probabilities": (
        *(
            12,
            "(logits / temperature).softmax(-1)",
            "(logits.softmax(-1) / temperature)",
        ),
        *("sample", "Divide the logits by the"),
    ),
    "the token that crosses top_p is dropped": (
        *(12, KEPT, "p.masked_fill((p.cumsum(-1) >= top_p) & (top_p < 1), 0)"),
        *("sample", "here 3 of 13: got 2"),
    ),
    "one token too many": (
        *(12, KEPT, "p.masked_fill(p.cumsum(-1) - 2 * p >= top_p, 0)"),
        *("sample", "Leave the others out"),
    ),
    "top_p as a threshold": (
        *(12, KEPT, "p.masked_fill(p < 0.1 * (1 - top_p), 0)"),
        *("sample", "here 3 of 13"),
    ),
    "ranks instead of ids": (
        *(
            12,
            "tokens.gather(-1, torch.multinomial(p, 1))",
            "torch.multinomial(p, 1)",
        ),
        *("sample", "It draws ranks"),
    ),
    "the temperature is not passed on": (
        *(12, ONE, ONE.replace("temperature", "1.0")),
        *("generate", "divided by the temperature"),
    ),
    "top_p is not passed on": (
        *(12, ONE, ONE.replace("top_p", "1.0")),
        *("cached", "the most probable one"),
    ),
    "everything is read again": (
        *(
            12,
            "logits = model(new, past)[:, -1]",
            "logits = model(ids)[:, -1]",
        ),
        *("generate", "Give it the last half again, with a new dictionary"),
    ),
    "the whole text is read each time": (
        *(
            12,
            "logits = model(new, past)[:, -1]",
            "logits = model(ids[:, -model.context :])[:, -1]",
        ),
        *("cached", "reads each token once"),
    ),
    "only the last token is read": (
        *(12, "model(new, past)[:, -1]", "model(new)[:, -1]"),
        *("cached", "with the same dictionary"),
    ),
    # -- chapters 6 and 9
    "no memory": (
        *(6, "def forward(self, x, memory, mask):", NO_MEMORY),
        *("heads", "then .forward(x, memory, mask)"),
    ),
    "one block for all": (
        *(9, f"{BLOCKS}n_blocks)", f"{BLOCKS}1)"),
        *("stacks", "parameters of its own"),
    ),
    "blocks skipped": (
        *(9, "for block in self.blocks:", "for block in self.blocks[-1:]:"),
        *("used", "no gradient for blocks.0"),
    ),
    "no last norm": (
        *(9, "self.unembed(self.norm(x))", "self.unembed(x)"),
        *("used", "no gradient for norm.gain"),
    ),
    "no number of blocks": (
        *(9, "n_heads, n_blocks):", "n_heads):"),
        *(
            "logits",
            "In chapter 9 the call is GPT(vocab_size, context, d_model,",
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_stopped_where_it_is_wrong(tmp_path, name):
    chapter, old, new, stopped_by, sentence = WRONG[name]
    source = yourfile.text(chapter, complete=True)
    assert source.count(old) == 1
    path = tmp_path / f"{'_'.join(name.split())}.py"
    lines = found(path, source.replace(old, new))
    title = contract(stopped_by).check.__doc__.splitlines()[0].rstrip(".")
    assert f"✗ {title}" in lines, lines
    assert sentence in " ".join(lines.split()), lines
    assert re.search(rf"{path.name}, line \d+: `\S", lines), lines


def test_the_readme_shows_what_is_printed(tmp_path):
    chapter, old, new, *_ = WRONG["no scale"]
    source = yourfile.text(chapter, complete=True).replace(old, new)
    failure = found(tmp_path / "my_transformer.py", source)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert textwrap.indent(failure, " " * 4) in readme


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def f(:\n", "SyntaxError"),
        ("print('hello')\n", "ends with the dictionary `parts`"),
        ("parts = {}\nchapter = 0\n", "got none. Add, with your own names"),
        ("parts = {}\n", "`chapter` says how far"),
        ("parts = {}\nchapter = 13\n", "from 0 to 12: got 13"),
        (
            "raise NotImplementedError('no kernel')",
            "got NotImplementedError: no kernel",
        ),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
        ("x = 1\ny = x / 0\n", "line 2: `y = x / 0`"),
        ("x = input()\n", "EOFError"),
    ],
)
def test_a_file_that_says_nothing_is_told_why(
    tmp_path, monkeypatch, source, sentence
):
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    lines = found(tmp_path / "odd.py", source)
    assert sentence in " ".join(lines.split()), lines


def test_at_overrides_the_chapter_of_the_file(tmp_path):
    source = yourfile.text(0, complete=True)
    assert "✗" not in found(tmp_path / "a.py", source)
    said = found(tmp_path / "a.py", source, at=4)
    for line in ("# causal_mask(n_queries, n_keys)", '"mask": causal_mask,'):
        assert f"\n    {line}\n" in said
    for name, part in yourfile.book(4).items():  # all that lack, at once
        assert (f'"{part}": {name},' in said) == (f'"{part}"' not in source)


# -- the last lines ----------------------------------------------------------
def kept(chapter, old):
    """A chapter's file, with the last lines of an earlier one."""
    source = yourfile.text(chapter, complete=True)
    lines = lesson.part("script", chapter), lesson.part("script", old)
    return source.replace(*lines)


@pytest.mark.parametrize("chapter", range(lesson.LAST_CHAPTER + 1))
def test_after_each_step_the_file_runs(tmp_path, monkeypatch, capsys, chapter):
    """As it is begun, written, and changed as the page says."""
    source = kept(chapter, 0)
    for k in range(1, chapter + 1):  # the lines that the pages show
        main, _, _ = yourfile.last_lines(k).partition("chapter =")
        for line in main.splitlines()[2:-1]:
            name = line.partition(" = ")[0]
            source = re.sub(f"^{name} = .*", line, source, flags=re.MULTILINE)
    small = {"steps=2000": "steps=2", "1], 500)": "1], 70)"}
    for old, new in small.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    (tmp_path / FILE).write_text(source, "utf-8")
    (tmp_path / "text.txt").write_text("ACGT" * 200, "utf-8")  # one line
    monkeypatch.setattr("sys.argv", [FILE, str(tmp_path / "text.txt")])
    runpy.run_path(str(tmp_path / FILE), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"^held-out loss: .*\n[ACGT]{71}$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("chapter", "lines_of", "old", "new", "sentence"),
    [
        (2, 0, "", "", "has: model = Model(len(tokenizer.vocabulary), contex"),
        (
            9,
            2,
            "",
            "",
            "name 'Model' is not defined. Begin at the line below.",
        ),
        (
            *(
                9,
                2,
                "if __name__",
                f"{lesson.part('Model', 8)}\n\nif __name__",
            ),
            "got Model instead of GPT. The book's file has: model = GPT(",
        ),
        (
            *(11, 11, "batch_size=32", "batch_size"),
            "missing a required argument: 'batch_size'",
        ),
    ],
    ids=["before the width", "before blocks", "another model", "no default"],
)
def test_last_lines_that_do_not_run_are_seen(
    tmp_path, chapter, lines_of, old, new, sentence
):
    source = kept(chapter, lines_of)
    assert not old or source.count(old) == 1
    lines = found(tmp_path / "mine.py", source.replace(old, new))
    assert "✗ Last lines: `python mine.py text.txt` runs" in lines
    assert sentence in " ".join(lines.split())


# -- oracles -----------------------------------------------------------------
def test_attention_agrees_with_pytorch():
    q, k, v = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 11)
    mask = torch.rand(5, 7) < 0.7
    mask[:, 0] = True
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q, k, v)), attn_mask=mask
    )
    torch.testing.assert_close(layers.attended(q, k, v, mask), wanted)


def test_parameters_by_hand():
    # V D + T D + 3 (12 D² + 2 D) + D + D V with V = 5, T = 7, D = 2.
    assert model.parameters(base.Sizes(7, 2, 1, 3), 5) == (
        10 + 14 + 3 * (48 + 4) + 2 + 10
    )


# -- the loss band -----------------------------------------------------------
def test_training_is_the_ladders():
    sizes = ladder.CONTEXT, ladder.WIDTH, ladder.HEADS, ladder.BLOCKS
    assert sizes == check_step.SIZES
    assert base.BATCH == ladder.BATCH
    assert base.TABLE_RATE == ladder.TABLE_RATE
    assert check_step.PROMPT == ladder.PROMPT
    defaults = ladder.parser.parse_args([])
    assert defaults.steps == yourfile.LADDER_STEPS


def compared(loss, book, steps=yourfile.LADDER_STEPS):
    """The verdict on a loss, and its text."""
    return expected_loss.compare(loss, book.losses, steps)


@pytest.mark.parametrize("chapter", range(lesson.LAST_CHAPTER + 1))
def test_the_book_is_in_its_own_band(chapter):
    book = expected_loss.reference(chapter)
    for loss in book.losses:
        assert compared(loss, book)[0]
    worse = max(book.losses) + expected_loss.TOLERANCE + 0.001
    passed, said = compared(worse, book)
    assert not passed
    most = float(re.match(r"✗ at most (\d\.\d{3}); ", said)[1])
    assert round(worse, 3) > most  # the mark is that of the words
    assert compared(most, book)[1][0] == "✓"
    assert not compared(math.nan, book)[0]
    assert book.before.startswith(check_step.PROMPT)


def test_the_sample_beside_is_the_chapter_befores():
    rungs = {rung["chapter"]: rung for rung in result("ladder")["rungs"]}
    for chapter, earlier in {
        1: 0,
        2: 0,
        4: 3,
        5: 4,
        6: 4,
        9: 8,
        10: 9,
    }.items():
        before = expected_loss.reference(chapter).before
        assert before == rungs[earlier]["sample"]
    baselines = result("ladder")["baselines"]
    before = expected_loss.reference(0).before
    assert before == baselines["uniform"]["sample"]


def test_chapter_1_trains_on_its_own_tokens():
    assert base.BPE_VOCABULARY == ladder.BPE_VOCABULARY
    tokens = result("ladder")["tokens"]["loss"]["values"]
    assert expected_loss.reference(1).losses == tokens
    parts = {"bpe": lambda *given: given, "tokenizer": lambda *given: given}
    assert base.File(1, parts).tokenizer("a") == ("a", 512)
    assert base.File(2, parts).tokenizer("a") == ("a",)


def test_a_replaced_stream_holds_the_contracts_and_not_the_band(tmp_path):
    source = yourfile.text(4, complete=True)
    source = source.replace(LOOK, "x = self.attend(x, mask)")
    assert "✗" not in found(tmp_path / "replaced.py", source)
    measured = result("ladder")["controls"]["attention replaces x"]["loss"]
    book = expected_loss.reference(4)
    passed, sentence = compared(min(measured["values"]), book)
    assert not passed
    assert "added to x?" in sentence


def test_no_run_to_compare_with_is_said():
    book = expected_loss.reference(9)
    passed, said = compared(9.9, book, steps=1999)
    assert passed
    assert said.startswith("  Not compared: ")
    assert not compared(9.9, book)[0]  # the control


# -- start and step ----------------------------------------------------------
def test_start_replaces_no_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert coursekit.start(4) is None  # a notebook shows what is printed
    where = str(tmp_path / FILE)
    begun = capsys.readouterr().out
    assert f"{where} at chapter 4, to write: attention" in begun
    mine = Path(FILE).read_text("utf-8") + "# mine\n"
    Path(FILE).write_text(mine, "utf-8")
    coursekit.start(9)
    again = capsys.readouterr().out
    assert again.startswith(f"{where} is there already, at chapter 4, and ")
    assert again.count("\n") == 1
    assert Path(FILE).read_text("utf-8") == mine
    coursekit.start(9, force=True)
    assert Path("my_transformer.py").read_text("utf-8") == yourfile.text(9)
    with pytest.raises(ValueError, match="0 to 12: got 13"):
        coursekit.start(13, "other.py")
    assert not Path("other.py").exists()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: coursekit.start("mine.py"), "12: got 'mine.py'.* file="),
        (lambda: coursekit.start(2.5), "12: got 2.5"),
        (lambda: coursekit.start(file=3), r"ends in \.py: got 3.* --at"),
        (lambda: coursekit.start(14, "3"), r"ends in \.py: got 3"),
        (lambda: coursekit.step(3), r"ends in \.py: got 3.* --at"),
        (lambda: coursekit.step("text.txt"), r"ends in \.py: got text"),
        (lambda: coursekit.step(FILE, at=99), "0 to 12: got 99"),
        (lambda: coursekit.step(FILE, at="4"), "0 to 12: got '4'"),
    ],
)
def test_a_chapter_is_no_file_and_a_file_no_chapter(
    tmp_path, monkeypatch, call, sentence
):
    monkeypatch.chdir(tmp_path)
    coursekit.start(0)  # the control: this works
    Path("text.txt").touch()
    there = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=sentence):
        call()
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.parametrize(
    ("begun", "asked"),
    [
        ("my_notebooks", "."),
        ("my_notebooks", "my_notebooks/further"),
        (".", "my_notebooks"),
    ],
)
def test_there_is_one_file_from_wherever_it_is_asked(
    tmp_path, monkeypatch, capsys, begun, asked
):
    (tmp_path / "my_notebooks/further").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / begun)
    coursekit.start(4)
    monkeypatch.chdir(tmp_path / asked)
    capsys.readouterr()
    coursekit.start(4)
    there = f"{tmp_path / begun / FILE} is there already, at chapter 4"
    assert there in capsys.readouterr().out
    assert yourfile.existing(None) == tmp_path / begun / FILE
    coursekit.start(5, FILE)  # the control: one that is named is another
    assert yourfile.existing(FILE) == tmp_path / asked / FILE


def shell(folder, *words, program=("-m", "coursekit"), **options):
    """A command in a folder, as a shell runs it."""
    return subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_the_shell_checks_trains_and_generates(tmp_path, capsys):
    path = tmp_path / "mine.py"
    assert cli.main(["start", str(path), "--at", "4"]) == 0
    assert f"next: write them, then coursekit step {path}" in (
        capsys.readouterr().out
    )
    assert path.read_text("utf-8") == yourfile.text(4)
    assert cli.main(["start", str(path)]) == 2
    assert cli.main(["step", str(tmp_path / "none.py")]) == 2
    path.write_text(yourfile.text(0, complete=True), "utf-8")
    process = shell(tmp_path, "step", "mine.py", "--steps", "5")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "Training for 5 steps, about 0 seconds.\nCtrl-C, in" in out
    assert re.search(r"held-out loss \d\.\d{3} nats per character", out)
    assert "Not compared: " in out
    assert re.search(r"^before this chapter +your sample$", out, re.M)
    assert re.search(r"^ROMEO: +ROMEO:$", out, re.M)
    assert "next: chapter 1, merge, BPETokenizer. When" in out
    assert '\n        "merge": merge,\n' in out
    assert "with the rest: coursekit start NAME.py --at 1" in out


def test_a_notebook_is_given_a_report(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("import os\nprint('before')\nos._exit(3)\n")
    report = coursekit.step(path)
    assert not report
    assert repr(report) == "step not passed yet"
    assert report.text == capsys.readouterr().out
    assert "before\n" in report.text
    assert "exit code 3" in report.text
    with pytest.raises(ValueError, match=r"Begin it with `coursekit start`"):
        coursekit.step(tmp_path / "none.py")
    with pytest.raises(ValueError, match="1 step or more: got 0"):
        coursekit.step(path, steps=0)


def test_a_loop_without_an_end_ends(tmp_path):
    endless = "while True:\n    pass\n"
    (tmp_path / "mine.py").write_text(endless)
    code = (
        "import sys\n"
        "from coursekit_classroom.yourfile import child, loading\n"
        "loading.LIMIT = 1\nsys.exit(child.main(sys.argv[1:]))\n"
    )
    options = {"file": "mine.py", "at": None, "steps": 1}
    words = "step", json.dumps(options), "out"
    process = shell(tmp_path, *words, program=("-c", code))
    out, err = process.communicate()
    assert (process.returncode, err) == (1, "")
    assert "got no end" in out
    assert re.search(r"mine.py, line [12]: `", out)


def interruptible(folder, *words):
    """A command that Ctrl-C reaches, as one in a terminal's foreground."""
    # A shell takes Ctrl-C away from what it runs in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return shell(folder, *words, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)


def test_it_can_be_interrupted(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time\nprint('on', flush=True)\ntime.sleep(600)"
    )
    process = interruptible(tmp_path, "step", "mine.py")
    assert process.stdout.readline() == "on\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 130
    assert "interrupted" in process.stderr.read()


def test_a_training_can_be_ended_early(tmp_path):
    slow = yourfile.text(0, complete=True).replace(
        "    for _ in range(steps):\n",
        "    if steps > 99:\n        print('on', flush=True)\n"
        "        __import__('time').sleep(600)\n"
        "    for _ in range(steps):\n",
    )
    (tmp_path / "mine.py").write_text(slow)
    process = interruptible(tmp_path, "step", "mine.py")
    while process.stdout.readline() != "on\n":
        pass
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert "nats per character after fewer steps\n  Not compared" in out


@pytest.mark.parametrize(
    ("old", "new", "is_written"),
    [
        ("self.query", "self.looks_for", True),  # the learner's own names
        ("self.unembed(self.norm(x))", "self.unembed(x)", False),
        ("4 * d_model", "2 * d_model", False),
        ("sorted(set(text))", "sorted(set(text))[::-1]", False),
    ],
)
def test_a_trained_model_can_be_taken_home(tmp_path, old, new, is_written):
    path, mine = tmp_path / "mine.zip", lesson.text(9)
    assert old in mine
    file = SimpleNamespace()
    exec(mine.replace(old, new), file.__dict__)
    tokenizer = file.CharTokenizer("to be or not")
    sizes = (len(tokenizer.vocabulary), 7, 30, 3, 2)
    model = file.GPT(*sizes)
    assert path.name in save_as_zip(path, model, tokenizer, sizes)
    assert path.exists() == is_written
    if is_written:
        opened, vocabulary = coursekit.load(path)
        ids = torch.tensor([vocabulary.encode("to be")])
        torch.testing.assert_close(opened(ids), model(ids))
