"""The models that the package ships: whole, small, licensed, as measured."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

import coursekit
from coursekit.multihead import MultiHeadAttention
from coursekit.probe import causality
from coursekit.saved_models import find_model, shipped
from coursekit.translate import Translator
from coursekit.weights import own_weights, read_tensors, round_weights
from coursekit_classroom.glue import result
from results.translating import bleu
from results.translation import FEW, TEST

ROOT = Path(__file__).parents[2]
DATA = Path(
    os.environ.get("COURSEKIT_DATA", ROOT.parent / "shared/data/local")
)
MOST = {  # parameters
    "captions": 900_000,
    "ladder": 209_728,
    "running": 200_000,
    "shakespeare": 900_000,
    "stories": 1_300_000,
    "stories-student": 250_000,
    "translator-de-en": 3_000_000,
    "translator-en-de": 3_000_000,
}
FROM_MULTI30K = {"captions", "translator-de-en", "translator-en-de"}
ROUNDED = sorted(MOST.keys() - {"running"})  # which is older than rounding


def test_these_are_shipped():
    assert shipped() == sorted(MOST)


@pytest.mark.parametrize("name", sorted(MOST))
def test_a_model_is_small_and_has_its_card(name):
    folder = find_model(name)
    model, tokenizer = coursekit.load(name)
    assert sum(p.numel() for p in model.parameters()) <= MOST[name]
    assert tokenizer.vocab_size == model.config.vocab_size
    assert (folder / "model.safetensors").stat().st_size <= 4_000_000
    card = (folder / "CARD.md").read_text("utf8")
    for part in ("Data", "Recipe", "Limits", "License"):
        assert f"**{part}:**" in card, f"{name}: {part}"
    assert (folder / "LICENSE").exists() == (name in FROM_MULTI30K)


def test_the_running_model_is_what_chapters_4_and_5_say(monkeypatch):
    """Heads of 16 numbers, and a mask: no token changes what precedes it."""
    model, _ = coursekit.load("running")
    assert model.config.d_model / model.config.n_heads == 16
    assert causality(model, model.config.vocab_size, length=11).ok
    forward = MultiHeadAttention.forward  # the control: the same, unmasked
    monkeypatch.setattr(
        MultiHeadAttention,
        "forward",
        lambda *given, **how: forward(*given, **how | {"causal": False}),
    )
    assert not causality(model, model.config.vocab_size, length=11).ok


@pytest.mark.parametrize("name", sorted(FROM_MULTI30K))
def test_weights_from_multi30k_are_not_under_our_license(name):
    terms = (find_model(name) / "LICENSE").read_text("utf8")
    assert "research and" in terms
    assert "NOT under\nthe project's MIT license" in terms
    for file in ("LICENSE", "README.md"):
        text = (ROOT / file).read_text("utf8")
        assert name.removesuffix("-de-en").removesuffix("-en-de") in text
        assert "research and" in text


@pytest.mark.parametrize("name", ROUNDED)
def test_what_is_loaded_is_the_rounded_model(name):
    stored, _ = read_tensors(find_model(name) / "model.safetensors")
    model, _ = coursekit.load(name)
    own = own_weights(model)
    for key, tensor in own.items():
        assert (stored[key].dtype == torch.int8) == (tensor.dim() > 1)
    before = {key: tensor.clone() for key, tensor in own.items()}
    round_weights(model)  # a second time changes nothing
    assert all(torch.equal(before[key], own[key]) for key in own)


@pytest.mark.parametrize("name", sorted(MOST))
def test_numbers_of_a_card_are_those_of_its_result(name):
    """Each decimal number of a card stands in the result that it names."""
    folder = find_model(name)
    card = (folder / "CARD.md").read_text("utf8")
    names = re.findall(r"results/(\w+)\.json", card)
    assert names
    known = [x for n in names for x in numbers(result(n))]
    whole = "".join(json.dumps(result(n)) for n in names)
    for signature in re.findall(r"`([^`]*\|[^`]*)`", card):
        assert signature in whole
        card = card.replace(signature, "")
    for quoted in re.findall(r"\d+\.\d+", card):
        digits = len(quoted.split(".")[1])
        assert any(f"{x:.{digits}f}" == quoted for x in known), quoted


def numbers(value):
    """All numbers of a result, and each as a number of millions."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [x for part in value for x in numbers(part)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [value, value / 1e6, value / 60, value / 3600]
    return []


@pytest.mark.parametrize("pair", ["de-en", "en-de"])
def test_the_reach(pair):
    [entry] = [
        e for e in result("translation")["entries"] if e["pair"] == pair
    ]
    assert entry["bleu"] >= {"de-en": 39, "en-de": 37}[pair]
    assert "case:mixed" in entry["signature"]
    assert "tok:13a" in entry["signature"]


@pytest.mark.skipif(
    not (DATA / "multi30k").exists(), reason="no Multi30k here"
)
@pytest.mark.parametrize("pair", ["de-en", "en-de"])
def test_the_score_can_be_counted_again(pair, monkeypatch):
    monkeypatch.setenv("COURSEKIT_DATA", str(DATA))
    [entry] = [
        e for e in result("translation")["entries"] if e["pair"] == pair
    ]
    translator = Translator.load(f"translator-{pair}")
    found = bleu(translator, tuple(pair.split("-")), TEST, FEW, n_beams=1)
    # Another processor may decide a few near ties otherwise.
    assert found["bleu"] == pytest.approx(entry["greedy_few"], abs=0.5)
    assert found["signature"] == entry["signature"]
