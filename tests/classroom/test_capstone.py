"""The capstones: right files get their report, wrong ones stop."""

import json
import math
import random
import re

import pytest
import torch

from coursekit import cli
from coursekit_classroom import yourfile
from coursekit_classroom.glue import result
from coursekit_classroom.yourfile import (
    capstone,
    check_capstone,
    check_translator,
    loading,
    translator_file,
)
from coursekit_classroom.yourfile.contracts import translation
from coursekit_classroom.yourfile.contracts.base import ContractError

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
    with pytest.raises(ContractError) as error:
        check_capstone.stages(path, "", 1, {}, "mine.txt")
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
    "tokenizer first": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return tokenizer, model, evaluate(model, ids[cut:])",),
        *("✗ Held-out loss: of", "got CharTokenizer, GPT, float. Return the"),
    ),
    "loss before tokenizer": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return model, evaluate(model, ids[cut:]), tokenizer",),
        *("✗ Held-out loss: of", "got GPT, float, CharTokenizer. Return the"),
    ),
    "a fourth value": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return model, tokenizer, evaluate(model, ids[cut:]), ids",),
        *("✗ Held-out loss: of", "float, Tensor. Return the three"),
    ),
    "no loss": (
        *("return model, tokenizer, evaluate(model, ids[cut:])",),
        *("return model, tokenizer, None",),
        *("✗ Held-out loss: of", "CharTokenizer, NoneType. Return the"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_stops_at_its_stage(tmp_path, monkeypatch, name):
    old, new, stage, sentence = WRONG[name]
    if "Held-out" in stage:  # parts alone cannot tell: the contracts hold
        monkeypatch.setattr(check_capstone, "verify", lambda *_: [])
    lines = said(finished(tmp_path / "wrong.py", {old: new}))
    assert lines.startswith(stage), lines
    assert sentence in lines


@pytest.mark.parametrize(
    ("line", "stopped"),
    [
        ("from coursekit import minimal", True),
        ("import coursekit.minimal as mine", True),
        ("from coursekit_classroom import lesson", True),
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
        return check_capstone.imports(path)
    with pytest.raises(ContractError, match="line 2"):
        check_capstone.imports(path)
    return None


# -- numbers -----------------------------------------------------------------
def test_the_baseline_by_hand():
    # Learned: "abababab" + "a"; held out: "b" after "a", 4 times out of 4.
    text = "ababababab"
    p = (4 + 0.1) / (4 + 0.2)
    assert check_capstone.bigram(text) == pytest.approx(-math.log(p))


def test_the_loss_is_per_character(tmp_path):
    file = loading.load(finished(tmp_path / "mine.py"), 12)
    text = "to be or not to be " * 40
    torch.manual_seed(0)
    bpe = file["bpe"](text, 266)
    model = file["model"](266, 32, 32, 2, 1)
    loss, tokens = check_capstone.per_token(model, bpe, text[684:])
    assert tokens < 76 == len(text[684:])
    found = check_capstone.per_character(model, bpe, text)
    assert found == pytest.approx(loss * tokens / 76)


# -- the prediction ----------------------------------------------------------
def test_a_prediction_is_made_before_the_run(tmp_path, capsys):
    path = finished(tmp_path / "mine.py")
    assert cli.main(["capstone", str(path)]) == 2
    assert "predicted before the run" in capsys.readouterr().err
    for words, sentence in {
        ("--change", "no such line", "x", "--predict", "0"): "0 times",
        ("--change", "self.query", "x", "--predict", "0"): "2 times",
        ("--change", "GELU", "x", "--predict", "0"): "`return self.output(nn."
        "functional.gelu(self.hidden(x)))`",  # copy OLD from this line
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


@pytest.mark.parametrize(
    "text", ["", "{}", '["old"]', "[" * 200_000, '{"old": 5}']
)
def test_a_damaged_prediction_is_refused(tmp_path, capsys, text):
    path = finished(tmp_path / "mine.py")
    capstone.predict(path, GELU, RELU, 0.01)
    (tmp_path / "mine.prediction.json").write_text(text)
    assert cli.main(["capstone", str(path)]) == 2
    error = capsys.readouterr().err
    assert "a prediction stays as it was made" in error
    assert error.count("\n") == 1


def test_the_report_has_the_prediction_beside_the_result(tmp_path, capsys):
    path = finished(tmp_path / "mine.py")
    genes = ["gattacagattacacc", "ccgtccgtaaaa", "tacgtacggg"]
    drawn = "".join(random.Random(0).choices(genes, k=900))
    text = tmp_path / "text.txt"
    text.write_text(" " * 30 + drawn)  # one line of few letters
    digest = capstone.predict(path, GELU, RELU, 0.25)
    passed = capstone.capstone(path, text, steps=120)
    assert passed, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "✗" not in out
    assert re.search(
        r"^✓ below [\d.]+, counted pairs of characters$", out, re.M
    )
    assert re.search(r"^your change: [+-][\d.]+ nats.* \+0\.250$", out, re.M)
    assert re.search(r"^another seed alone: [+-]\d\.\d{3}$", out, re.M)
    report = (tmp_path / "mine.report.md").read_text("utf-8")
    assert report.count("\n") < 90
    sample = f"Temperature 0.5:\n\n```text\n{drawn[:20]}"
    for part in (f"-{GELU}\n+{RELU}", digest, sample):
        assert part in report
    without, with_it, difference, predicted = (
        float(re.search(rf"{name}\D*?([+-]?\d\.\d+)", report)[1])
        for name in ("loss without", "loss with it", "difference", "predicted")
    )
    assert predicted == 0.25
    assert difference == pytest.approx(with_it - without, abs=2e-3)
    assert "as it was then" in report


@pytest.mark.parametrize(
    ("with_it", "other_seed", "verdict"),
    [
        (2.1, 2.01, "larger than that"),
        (1.9, 2.01, "larger than that"),
        (2.01, 2.0001, "no larger"),  # the book's seeds differ as much
        (2.1, 1.8, "no larger"),
        (2.1, 2.0, "`run` sets a seed itself"),
    ],
)
def test_a_difference_is_compared_with_chance(
    tmp_path, with_it, other_seed, verdict
):
    path = finished(tmp_path / "mine.py")
    given = capstone.Prediction("a", "b", 0.1, "0", "2026-01-01")
    numbers = ("characters", "parameters", "steps", "tokens", "fast", "slow")
    found = dict.fromkeys(numbers, 1) | {"text": "", "bar": "", "samples": {}}
    found |= {"loss": 2.0, "changed": with_it, "reseeded": other_seed}
    report = capstone.evidence(path, given, found)
    assert f"The difference is {verdict}" in report.replace(
        "not compared with chance, since ", ""
    )


def test_a_small_prediction_is_told_from_no_chance(tmp_path, capsys):
    path = finished(tmp_path / "mine.py")
    values = result("minimal")["minimal"]["loss"]["values"]
    for expected in (max(values) - min(values), -0.2):
        capstone.predict(path, GELU, RELU, expected)
        said = capsys.readouterr().out
        assert ("cannot be told from chance" in said) == (expected > 0)


def test_a_change_that_does_not_run_stops_before_the_training(
    tmp_path, monkeypatch
):
    path = finished(tmp_path / "mine.py")
    monkeypatch.setattr(check_capstone, "verify", lambda *_: [])
    monkeypatch.setattr(check_capstone, "held_out", check_capstone.title)
    given = {"old": GELU, "new": "nn.relu"}
    with pytest.raises(ContractError, match="✗ Your change: runs"):
        check_capstone.stages(path, "ab " * 999, 1, given, "mine.txt")


def test_a_change_must_still_be_possible(tmp_path):
    path = finished(tmp_path / "mine.py")
    capstone.predict(path, GELU, RELU, 0.0)
    given = json.loads((tmp_path / "mine.prediction.json").read_text())
    finished(path, {GELU: RELU})
    with pytest.raises(ContractError, match="got 0 times"):
        check_capstone.changed(path, given)


# -- the translator ----------------------------------------------------------
SEES = "self.decode(ids, memory, padding_mask(sources), {})"
MISTAKES = {  # name: old, new, the contract, a part of the sentence
    "cross-attention reads the target": (
        *("self.cross_attention(y, memory, memory_mask, {})",),
        *("self.cross_attention(y, y, mask, {})",),
        *(translation.reads, "keys and values from the memory"),
    ),
    "cross-attention found nothing": (
        *("x = x + self.cross_attention(", "self.cross_attention("),
        *(translation.reads, "add what is found to x"),
    ),
    "no positions in the source": (
        *("self.embedding(ids) + self.positions(torch.arange(ids.size(1)))",),
        *(
            "self.embedding(ids)",
            translation.reads,
            "positions in the encoder",
        ),
    ),
    "the mask of padding inverted": (
        *("(ids != PAD)", "(ids == PAD)", translation.reads, "all finite"),
    ),
    "the encoder attends to padding": (
        *("block(x, padding_mask(ids), {})",),
        *("block(x, padding_mask(ids) | True, {})",),
        *(translation.padding, "Mask it in the encoder"),
    ),
    "cross-attention to padding": (
        *(SEES, SEES.replace("(sources)", "(sources) | True")),
        *(translation.padding, "and in cross-attention"),
    ),
    "targets not shifted": (
        *("sources, targets[:, :-1], targets[:, 1:]",),
        *("sources, targets[:, 1:], targets[:, 1:]",),
        *(translation.pairs, "They are the targets themselves"),
    ),
    "no begin": (
        *("[BOS, *pairs[i][1]]", "[EOS, *pairs[i][1]]"),
        *(translation.pairs, "reads 1 (BOS)"),
    ),
    "sources of other pairs": (
        *("pad([pairs[i][0] for i in rows])",),
        *("pad([pairs[i - 1][0] for i in rows])",),
        *(translation.pairs, "from the same pair"),
    ),
    "the decoder looks ahead": (
        *("mask = causal_mask(ids.size(1), end)",),
        *("mask = torch.ones(ids.size(1), end) > 0",),
        *(translation.causal, "no later target token"),
    ),
    "the loss counts padding": (
        *("logits[is_token], targets[is_token]", "logits, targets"),
        *(translation.loss, "Leave out positions whose target is PAD"),
    ),
    "the begin is translated": (
        *("row[1 : row.index(EOS)]", "row[: row.index(EOS)]"),
        *(translation.translate, "most probable one"),
    ),
    "it begins with padding": (
        *("torch.full((len(sources), 1), BOS)",),
        *("torch.full((len(sources), 1), PAD)",),
        *(translation.translate, "Begin with BOS"),
    ),
    "the least probable token": (
        *("logits.argmax(-1)", "logits.argmin(-1)"),
        *(translation.translate, "most probable one"),
    ),
}


def translating(path, edits=()):
    """The book's translator; the contracts that it passes, or what stops."""
    source = translator_file.text()
    for old, new in dict(edits).items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path.write_text(source, "utf-8")
    return loading.load(path, 12)


def test_the_books_translator_holds_every_contract(tmp_path, capsys):
    file = translating(tmp_path / "mine.py")
    for check, part in translation.CONTRACTS:
        assert part in file.parts
        check(file)
    # After a few steps it translates, and does not pass.
    passed, fraction = check_translator.translated(file, steps=2)
    assert (passed, fraction) == (False, 0.0)
    assert "book's runs have 600 steps" in capsys.readouterr().out


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_translator_is_stopped(tmp_path, name):
    old, new, stopped_by, sentence = MISTAKES[name]
    file = translating(tmp_path / "wrong.py", {old: new})
    for check, _ in translation.CONTRACTS:
        torch.manual_seed(0)
        if check is stopped_by:
            with pytest.raises(ContractError) as error:
                check(file)
            assert sentence in str(error.value)
            return
        check(file)


def test_a_translator_is_begun_and_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["start", "--at", "14"]) == 0
    out = capsys.readouterr().out
    assert "my_translator.py at chapter 14, to write: get_batch" in out
    assert "coursekit capstone my_translator.py" in out
    source = (tmp_path / "my_translator.py").read_text("utf-8")
    assert source.count("NotImplementedError") == 8
    assert source.count("coursekit") == 1  # in a comment, the command
    assert cli.main(["capstone", "my_translator.py"]) == 1
    out = capsys.readouterr().out
    assert "✗ Batches: the decoder reads the target shifted" in out
    assert "still to be written" in out


def test_the_translator_is_in_its_own_band():
    found = result("capstone_dates")
    assert found["steps"] == check_translator.STEPS
    assert found["held_out"] == check_translator.N_HELD_OUT
    assert min(found["accuracy"]["values"]) > 0.5
