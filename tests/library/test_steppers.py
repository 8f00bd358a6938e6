"""Steppers: a row of a batch gets the logits that it would get alone."""

import pytest
import torch
from compare import plain_seq2seq_stepper, plain_stepper
from test_generation import PROMPTS, make_gpt

from coursekit.config import TransformerConfig
from coursekit.devices import evaluating
from coursekit.generation import beam_search, generate, stream
from coursekit.positions import SCHEMES
from coursekit.seq2seq import Transformer
from coursekit.steppers import (
    GPTStepper,
    Seq2SeqStepper,
    pad_rows,
)


@pytest.mark.parametrize("kind", [plain_stepper, GPTStepper])
@pytest.mark.parametrize("positions", SCHEMES)
def test_a_batch_of_unequal_prompts_writes_what_each_writes_alone(
    kind, positions
):
    """Past the window too: 2..7 tokens, 31 more, window 23."""
    model = make_gpt(positions=positions)
    together = generate(kind(model), PROMPTS, 31)
    alone = [generate(kind(model), [p], 31)[0] for p in PROMPTS]
    assert together == alone
    assert len({tuple(row) for row in alone}) == 3  # they do differ


def test_batch_check_catches_positions_that_count_padding(monkeypatch):
    """arange(T) for rows padded on the left."""
    model = make_gpt()
    alone = plain_stepper(model).prefill(PROMPTS[:1])
    right = plain_stepper(model).prefill(PROMPTS)[:1]
    hidden = model.hidden
    monkeypatch.setattr(
        model,
        "hidden",
        lambda ids, positions, mask, _: hidden(ids, None, mask),
    )
    wrong = plain_stepper(model).prefill(PROMPTS)[:1]
    assert torch.allclose(right, alone, atol=1e-5)
    assert (wrong - alone).abs().max() > 0.1


def test_translations_do_not_depend_on_the_batch():
    torch.manual_seed(3)
    model = Transformer(
        TransformerConfig(
            vocab_size=11, d_model=24, max_len=23, init_std=0.3, dropout=0.3
        )
    )
    for kind in (plain_seq2seq_stepper, Seq2SeqStepper):
        together = generate(kind(model, [1]), PROMPTS, 9)
        alone = [generate(kind(model, [1]), [p], 9)[0] for p in PROMPTS]
        assert together == alone
        beams = beam_search(kind(model, [1]), PROMPTS, 3, 9, [2])
        for prompt, hypotheses in zip(PROMPTS, beams, strict=True):
            single = beam_search(kind(model, [1]), [prompt], 3, 9, [2])[0]
            texts = [h.tokens for h in hypotheses]
            assert texts == [h.tokens for h in single]


@pytest.mark.parametrize("kind", [plain_stepper, GPTStepper])
def test_a_full_window_keeps_the_last_tokens(kind):
    model = make_gpt(max_len=7)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    logits = kind(model).prefill([prompt])
    assert torch.allclose(logits, model(torch.tensor([prompt[-7:]]))[:, -1])
    stepper = kind(model, keep=4)
    stepper.prefill([prompt[:7]])
    logits = stepper.step(torch.tensor([8]))  # 1 5 9 2, then 8
    expected = model(torch.tensor([[1, 5, 9, 2, 8]]))[:, -1]
    assert torch.allclose(logits, expected, atol=1e-5)
    sliding = kind(model, keep=6)
    sliding.prefill([prompt[:7]])
    for n, token in enumerate(prompt[7:]):
        logits = sliding.step(torch.tensor([token]))
        seen = torch.tensor([prompt[n + 1 : n + 8]])
        assert torch.allclose(logits, model(seen)[:, -1], atol=1e-5)


def test_a_crop_from_the_wrong_end_is_seen():
    """The next token must depend on the last one, past the window too."""
    model = make_gpt(max_len=7)

    def next_logits(prompt, crop):
        return model(torch.tensor([crop(prompt)]))[:, -1]

    first, last = (lambda ids: ids[:7]), (lambda ids: ids[-7:])
    a, b = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 1, 5, 9, 2, 7]
    assert torch.equal(next_logits(a, first), next_logits(b, first))
    assert not torch.allclose(next_logits(a, last), next_logits(b, last))
    ours = [plain_stepper(model).prefill([prompt]) for prompt in (a, b)]
    assert torch.allclose(ours[0], next_logits(a, last), atol=1e-6)
    assert torch.allclose(ours[1], next_logits(b, last), atol=1e-6)


@pytest.mark.parametrize("kind", [plain_stepper, GPTStepper])
def test_dropout_is_off_while_writing_and_on_again_after(kind):
    model = make_gpt(dropout=0.5)
    expected = generate(kind(model), PROMPTS, 9)
    model.train()
    model.blocks[1].eval()  # a part that was frozen stays frozen
    assert generate(kind(model), PROMPTS, 9) == expected
    assert model.training
    assert model.dropout.training
    assert not model.blocks[1].training
    # Without the switch the test would see it:
    ids = torch.tensor(PROMPTS[:1])
    assert not torch.equal(model(ids), model(ids))


def test_dropout_is_on_again_after_an_error():
    model = make_gpt().train()
    with pytest.raises(ValueError, match=r"got 3\.\.77"):
        plain_stepper(model).prefill([[3, 77]])
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()
    with evaluating(model.modules()):
        assert not model(torch.tensor([[1]])).requires_grad


def test_bad_settings_of_steppers_are_refused():
    gpt = make_gpt()
    for settings, message in (
        ({"window": 0}, r"1..max_len=23: got 0"),
        ({"window": 24}, r"1..max_len=23: got 24"),
        ({"keep": 23}, r"0..22: got 23"),
        ({"window": 5, "keep": -1}, r"0..4: got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            GPTStepper(gpt, **settings)
    config = TransformerConfig(vocab_size=11, d_model=8, max_len=5)
    model = Transformer(config)
    for start in ([], [1] * 6):
        with pytest.raises(ValueError, match=f"max_len=5 .*got {len(start)}"):
            plain_seq2seq_stepper(model, start)
    for kind in (plain_stepper, GPTStepper):
        stepper = kind(gpt)
        with pytest.raises(ValueError, match="got 2 for 0 rows"):
            stepper.step(torch.tensor([1, 2]))
        stepper.prefill(PROMPTS)
        with pytest.raises(ValueError, match="got 2 for 3 rows"):
            stepper.step(torch.tensor([1, 2]))
    for kind in (plain_seq2seq_stepper, Seq2SeqStepper):
        translator = kind(model, [1])
        with pytest.raises(ValueError, match="got 2 for 0 rows"):
            translator.step(torch.tensor([1, 2]))
        translator.prefill([[3, 5], [7]])
        with pytest.raises(ValueError, match="got 3 for 2 rows"):
            translator.step(torch.tensor([1, 2, 3]))
    translator = plain_seq2seq_stepper(model, [1, 2])
    assert translator.limit == 4
    with pytest.raises(ValueError, match=r"0\.\.4: got 5"):
        generate(translator, [[3]], 5)
    with pytest.raises(ValueError, match=r"got -1\. Ask for 0 or"):
        stream(plain_stepper(gpt), [[3]], -1)
    with pytest.raises(ValueError, match="max_len=5 tokens: got 6"):
        translator.prefill([[3] * 6])


def test_pad_rows():
    ids, real = pad_rows([[3, 5], [7]], left=True, pad_id=9)
    assert ids.tolist() == [[3, 5], [9, 7]]
    assert real.tolist() == [[True, True], [False, True]]
    ids, real = pad_rows([[3, 5], [7]], left=False)
    assert ids.tolist() == [[3, 5], [7, 0]]
    assert real.tolist() == [[True, True], [True, False]]
