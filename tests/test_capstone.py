"""The capstones: right files get their report, wrong ones stop."""

import json
import math
import random
import re

import pytest
import torch

from coursekit import cli
from coursekit.classroom import yourfile
from coursekit.classroom.yourfile import (
    capstone,
    capstone_child,
    child,
    learner,
)

RUN = '''

def run(text, steps):
    """Train on nine tenths of a text; model, tokenizer, held-out loss."""
    tokenizer = CharTokenizer(text)
    ids = torch.tensor(tokenizer.encode(text))
    cut = len(ids) * 9 // 10
    model = GPT(len(tokenizer.vocabulary), 32, 32, n_heads=2, n_blocks=1)
    train(model, ids[:cut], min(steps, 120))  # enough for these texts
    return model, tokenizer, evaluate(model, ids[cut:])


parts["run"] = run
'''
SMALL = {"peak=1e-3, warmup=100": "peak=1e-2, warmup=10"}
GELU, RELU = "nn.functional.gelu", "nn.functional.relu"


def finished(path, edits=()):
    """The book's file with `run`, on sizes that train in a second."""
    source = yourfile.text(12, complete=True) + RUN
    for old, new in {**SMALL, **dict(edits)}.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path.write_text(source, "utf-8")
    return path


def said(path):
    """What stops a file; the stages after the last one are not reached."""
    with pytest.raises(learner.ContractError) as error:
        capstone_child.stages(path, "", 1.0, {}, "mine.txt")
    return " ".join(str(error.value).split())


# -- five wrong files, and where they stop ------------------------------------
WRONG = {  # name: old, new, the stage, a part of the sentence
    "no mask": (
        *("mask = causal_mask(ids.size(1), end)",),
        *("mask = torch.ones(ids.size(1), end) > 0",),
        *("✗ Model: attends to earlier tokens", "Check the causal mask"),
    ),
    "no residual": (
        *("x = x + self.attention(", "x = self.attention("),
        *("✗ Model: each layer reads a normalized x", "adds to x itself"),
    ),
    "no positions": (
        *("self.embedding(ids) + self.positions(torch.arange(start, end))",),
        *("self.embedding(ids)",),
        *("✗ Model: tells positions apart", "Add the positional embedding"),
    ),
    "loss unshifted": (
        *("cross_entropy(model(inputs), targets)",),
        *("cross_entropy(model(inputs), inputs)",),
        *("✗ Training: each step follows", "The targets are the inputs"),
    ),
    "evaluation on the training text": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return model, tokenizer, evaluate(model, ids[:cut])",),
        *("✗ Held-out loss: of the last tenth", "Evaluate on what was held"),
    ),
    "training on the whole text": (
        *("train(model, ids[:cut], min(", "train(model, ids, min("),
        *("✗ Held-out loss: of the last tenth", "first nine tenths only"),
    ),
    "no tuple": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return evaluate(model, ids[cut:])",),
        *("✗ Held-out loss: of the last tenth", "Return the three"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_stops_at_its_stage(tmp_path, monkeypatch, name):
    old, new, stage, sentence = WRONG[name]
    if "Held-out" in stage:  # parts alone cannot tell: the contracts hold
        monkeypatch.setattr(capstone_child, "verify", lambda *_: [])
    lines = said(finished(tmp_path / "wrong.py", {old: new}))
    assert lines.startswith(stage), lines
    assert sentence in lines


@pytest.mark.parametrize(
    ("line", "stopped"),
    [
        ("from coursekit import minimal", True),
        ("import coursekit.minimal as mine", True),
        ("from coursekit.classroom import lesson", True),
        ("from coursekit.data_loaders import x", True),
        ("import coursekit", True),
        ("from coursekit.data import load_text", False),
        ("from coursekit import data, check", False),
        ("import coursekit.data", False),
        ("import coursekitchen", False),
    ],
)
def test_of_the_package_only_checks_and_data_are_used(tmp_path, line, stopped):
    path = tmp_path / "mine.py"
    path.write_text(f"x = 1\n{line}\n")
    if not stopped:
        return capstone_child.imports(path)
    with pytest.raises(learner.ContractError, match="line 2"):
        capstone_child.imports(path)
    return None


# -- numbers -----------------------------------------------------------------
def test_the_baseline_by_hand():
    # Learned: "abababab" + "a"; held out: "b" after "a", 4 times out of 4.
    text = "ababababab"
    p = (4 + 0.1) / (4 + 0.2)
    assert capstone_child.bigram(text) == pytest.approx(-math.log(p))


def test_the_loss_is_per_character(tmp_path):
    file = child.load(finished(tmp_path / "mine.py"), 12)
    text = "to be or not to be " * 40
    torch.manual_seed(0)
    bpe = file["bpe"](text, 266)
    model = file["model"](266, 32, 32, 2, 1)
    loss, tokens = capstone_child.per_token(model, bpe, text[684:])
    assert tokens < 76 == len(text[684:])
    found = capstone_child.per_character(model, bpe, text)
    assert found == pytest.approx(loss * tokens / 76)


# -- the prediction ----------------------------------------------------------
def test_a_prediction_is_made_before_the_run(tmp_path, capsys):
    path = finished(tmp_path / "mine.py")
    assert cli.main(["capstone", str(path)]) == 2
    assert "predicted before the run" in capsys.readouterr().err
    for words, sentence in {
        ("--change", "no such line", "x", "--predict", "0"): "0 times",
        ("--change", "self.query", "x", "--predict", "0"): "2 times",
        ("--change", GELU, RELU, "--predict", "nan"): "Give a number",
        ("--change", GELU, RELU): "Give both",
    }.items():
        assert cli.main(["capstone", str(path), *words]) == 2
        assert sentence in capsys.readouterr().err
    first = capstone.predict(path, GELU, RELU, 0.01)
    assert first in capsys.readouterr().out
    assert capstone.predict(path, GELU, RELU, 0.02) != first
    short = tmp_path / "short.txt"
    short.write_text("too short")
    assert cli.main(["capstone", str(path), str(short)]) == 2
    assert "10,000 characters or more" in capsys.readouterr().err
    (tmp_path / "mine.report.md").touch()
    with pytest.raises(ValueError, match="Delete it to begin again"):
        capstone.predict(path, GELU, RELU, 0.0)


def test_the_report_has_the_prediction_beside_the_result(tmp_path, capsys):
    path = finished(tmp_path / "mine.py")
    words = ["to be or not to be", "the cat sat on a mat", "she sells shells"]
    lines = random.Random(0).choices(words, k=700)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines))
    digest = capstone.predict(path, GELU, RELU, 0.25)
    assert capstone.capstone(path, text, seconds=60.0), capsys.readouterr().out
    out = capsys.readouterr().out
    assert "✗" not in out
    assert re.search(
        r"^✓ below [\d.]+, counted pairs of characters$", out, re.M
    )
    assert re.search(r"^your change: [+-][\d.]+ nats.* \+0\.250$", out, re.M)
    report = (tmp_path / "mine.report.md").read_text("utf-8")
    assert report.count("\n") < 90
    for part in ("-nn.functional.gelu\n+nn.functional.relu", digest):
        assert part in report
    without, with_it, difference, predicted = (
        float(re.search(rf"{name}\D*?([+-]?\d\.\d+)", report)[1])
        for name in ("loss without", "loss with it", "difference", "predicted")
    )
    assert predicted == 0.25
    assert difference == pytest.approx(with_it - without, abs=2e-3)
    assert "as it was then" in report


def test_a_change_must_still_be_possible(tmp_path):
    path = finished(tmp_path / "mine.py")
    capstone.predict(path, GELU, RELU, 0.0)
    given = json.loads((tmp_path / "mine.prediction.json").read_text())
    finished(path, {GELU: RELU})
    with pytest.raises(learner.ContractError, match="got 0 times"):
        capstone_child.changed(path, given)
