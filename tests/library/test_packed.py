"""A packed model: the logits and tokens of the model that it comes from."""

import copy

import pytest
import torch
from compare import plain_seq2seq_stepper, plain_stepper, shake

from coursekit.attention import attend
from coursekit.config import GPTConfig, TrainConfig, TransformerConfig
from coursekit.decoder import GPT
from coursekit.feedforward import FeedForward
from coursekit.generation import beam_search, generate
from coursekit.packed import _gelu_network, _network, pack
from coursekit.saved_models import save_model
from coursekit.seq2seq import Transformer
from coursekit.steppers import (
    GPTStepper,
    Seq2SeqStepper,
)
from coursekit.training import train

V = 53
SIZES = {"vocab_size": V, "d_model": 20, "n_heads": 5, "d_ff": 31}
GPTS = {
    "gpt-2": {},
    "post-norm": {"norm_first": False},
    "llama": {
        "norm": "rmsnorm",
        "activation": "swiglu",
        "positions": "rope",
        "bias": False,
        "n_kv_heads": 1,
        "tie_embeddings": False,
    },
    "alibi, no path": {"positions": "alibi", "residual": False},
    "attention only": {"d_ff": 0},
    "value size": {"d_head": 6, "d_value": 7, "n_kv_heads": 1},
}


def gpt(**changes):
    torch.manual_seed(0)
    fields = SIZES | {"n_layers": 3, "max_len": 29}
    model = GPT(GPTConfig(**(fields | changes)))
    return shake(model)


def translator(**changes):
    torch.manual_seed(0)
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 3}
    fields = SIZES | layers | {"max_len": 29}
    return shake(Transformer(TransformerConfig(**(fields | changes))))


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("changes", GPTS.values(), ids=GPTS)
def test_the_same_logits(changes, n_rows):
    same_logits(gpt(**changes), n_rows)


def same_logits(model, n_rows):
    prompts = [[7, 3, 11, 2], [5, 1, 19], [50, 4, 13, 8, 6]][:n_rows]
    plain, quick = plain_stepper(model), GPTStepper(pack(model, n_rows))
    expected, found = plain.prefill(prompts), quick.prefill(prompts)
    for step in range(7):
        bound = 1e-5 * expected.abs().max().item()
        torch.testing.assert_close(found, expected, rtol=0, atol=bound)
        tokens = torch.tensor([(step * 17 + i) % V for i in range(n_rows)])
        expected, found = plain.step(tokens), quick.step(tokens)


@pytest.mark.parametrize("n_rows", [1, 2, 5])
@pytest.mark.parametrize("n_beams", [1, 4])
def test_the_same_tokens(n_rows, n_beams):
    model = translator()
    sources = [[9, 4, 33, 12, 8], [21, 5, 2]]
    plain = plain_seq2seq_stepper(model, [1])
    quick = Seq2SeqStepper(pack(model, n_rows), [1])
    if n_beams == 1:
        assert generate(quick, sources, 11) == generate(plain, sources, 11)
        return
    expected = beam_search(plain, sources, n_beams, 11, [0])
    found = beam_search(quick, sources, n_beams, 11, [0])
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]


@pytest.mark.parametrize("n_rows", [1, 3])
def test_any_attention_function(n_rows):
    """The fast one is called past its checks; others as they are."""
    model, seen = gpt(), []

    def told(q, *args, **kwargs):
        seen.append(q.size(2))
        return attend(q, *args, **kwargs)

    for block in model.blocks:
        block.attention.attend = told
    same_logits(model, n_rows)
    assert seen.count(1) >= 3


@pytest.mark.parametrize("n_rows", [1, 3])
def test_autocast(n_rows):
    """Keys and values are then as exact as the cache that keeps them."""
    model = gpt()
    prompts = [[7, 3, 11, 2], [5, 1, 19], [50, 4]][:n_rows]
    with torch.autocast("cpu", torch.bfloat16):
        plain, stepper = (
            plain_stepper(model),
            GPTStepper(pack(model, n_rows)),
        )
        expected, found = plain.prefill(prompts), stepper.prefill(prompts)
        for token in (3, 41):
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
            tokens = torch.arange(n_rows) + token
            expected, found = plain.step(tokens), stepper.step(tokens)
    assert stepper.cache[0].k.dtype == torch.bfloat16


@pytest.mark.parametrize("n_rows", [1, 3])
def test_half_precision_rounds_no_more_than_the_model(n_rows):
    torch.manual_seed(0)
    network = FeedForward(31, 1009, "gelu").bfloat16()
    true, quick = copy.deepcopy(network).double(), _network(network, n_rows)
    x = torch.randn(300, n_rows, 31).bfloat16()
    gold = true(x.double())

    def error(found):
        return (found.double() - gold).square().mean().sqrt().item()

    with torch.no_grad():
        found = torch.stack([quick(rows, None) for rows in x])
        folded = _gelu_network(network, n_rows)
        control = torch.stack([folded(rows, None) for rows in x])
        assert error(found) < 1.05 * error(network(x))
        assert error(control) > 1.05 * error(network(x))


def test_float64_is_exact():
    model = gpt().double()
    prompts = [[7, 3, 11, 2], [5, 1, 19, 40]]
    expected = plain_stepper(model).prefill(prompts)
    found = GPTStepper(pack(model, 2)).prefill(prompts)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_model_is_left_as_it_is():
    model = gpt()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    names = [name for name, _ in model.named_modules()]
    twin = pack(model)
    assert [name for name, _ in model.named_modules()] == names
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert model.head is None
    assert twin.training == model.training
    model(torch.tensor([[3, 5]])).sum().backward()
    assert all(p.grad is not None for p in model.blocks.parameters())


def by_sgd(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sum(p.square().sum() for p in model.parameters()).backward()
    optimizer.step()


def by_fused_adamw(model):
    """What training takes; it does not count as a change in place."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    sum(p.square().sum() for p in model.parameters()).backward()
    optimizer.step()


def of_the_table(model):
    with torch.no_grad():
        model.embedding.weight.mul_(3)


@pytest.mark.parametrize("n_layers", [0, 3])
@pytest.mark.parametrize("prompt", [[7], [7, 3, 11]], ids=len)
@pytest.mark.parametrize("change", [by_sgd, by_fused_adamw, of_the_table])
def test_a_stale_twin_is_told(change, prompt, n_layers):
    """Matrices are copies, so later training is not seen by its steps."""
    model = gpt(n_layers=n_layers)
    twin = pack(model)
    for stepper in (GPTStepper(twin), plain_stepper(twin)):
        stepper.prefill([prompt])
    change(model)
    for stepper in (GPTStepper(twin), plain_stepper(twin)):
        with pytest.raises(ValueError, match="changed since pack"):
            stepper.prefill([prompt])


@pytest.mark.parametrize("change", [by_sgd, by_fused_adamw, of_the_table])
def test_a_stale_translator_is_told(change):
    model = translator()
    stepper = Seq2SeqStepper(pack(model), [1])
    stepper.prefill([[7, 3]])
    change(model)
    with pytest.raises(ValueError, match="changed since pack"):
        stepper.prefill([[7, 3]])


def test_a_twin_of_a_model_with_nan_is_not_called_stale():
    model = gpt()
    with torch.no_grad():
        model.embedding.weight[0, 0] = torch.nan
    pack(model).check_source()


def test_a_stale_twin_generates_something_else():
    """The control: why it must be told."""
    model = gpt()
    stale = GPTStepper(pack(model))
    stale.prefill([[7, 3, 11]])
    by_sgd(model)
    fresh, plain = GPTStepper(pack(model)), plain_stepper(model)
    token = torch.tensor([5])
    for each in (fresh, plain):
        each.prefill([[7, 3, 11]])
    now = plain.step(token)
    assert torch.allclose(fresh.step(token), now, atol=1e-4)
    assert not torch.allclose(stale.step(token), now, atol=1e-2)


def test_a_twin_is_not_packed_again():
    with pytest.raises(ValueError, match="as it was built"):
        pack(pack(gpt()))


@pytest.mark.parametrize(
    "ask",
    [
        lambda twin: twin.train(),
        lambda twin: twin.half(),
        lambda twin: twin.to("meta"),
        lambda twin: twin.state_dict(),
        lambda twin: train(twin, list, TrainConfig(steps=1), progress=False),
    ],
    ids=["train", "half", "to", "save", "training"],
)
def test_a_twin_only_generates(ask):
    """It shares norms and table with its model, which would change."""
    model = gpt()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="only generates"):
        ask(pack(model))
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert pack(model).eval().training is model.training


def test_a_copy_of_a_twin_watches_the_model_too():
    model = gpt()
    twin = copy.deepcopy(pack(model))
    assert GPTStepper(twin).prefill([[7, 3]]).isfinite().all()
    with torch.no_grad():
        model.blocks[0].attention.w_q.weight.mul_(2)
    with pytest.raises(ValueError, match="have changed since"):
        GPTStepper(twin).prefill([[7, 3]])


def test_a_twin_is_not_saved_over_its_model(tmp_path):
    model = gpt()
    save_model(tmp_path, model)
    with pytest.raises(ValueError, match="to save it"):
        save_model(tmp_path, pack(model))
    assert (tmp_path / "model.safetensors").exists()


class Halved(torch.nn.Module):
    """A layer around a layer, as adapters put one."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias
        self.out_features = inner.out_features

    def forward(self, x):
        return self.inner(x) / 2


def hook(model):
    part = model.blocks[1].attention
    part.register_forward_hook(lambda module, inputs, output: output * 0.5)


def wrapped(model):
    part = model.blocks[1].attention
    part.w_v = Halved(part.w_v)


def hook_of_head(model):
    model.head.register_forward_hook(lambda module, inputs, output: output / 2)


def wrapped_head(model):
    model.head = Halved(model.head)


@pytest.mark.parametrize("change", [hook, wrapped, hook_of_head, wrapped_head])
def test_what_is_more_than_matrices_goes_through_the_model(change):
    model = gpt(tie_embeddings=False)
    before = GPTStepper(pack(model))
    before.prefill([[7, 3]])
    change(model)
    steppers = GPTStepper(pack(model)), plain_stepper(model)
    for stepper in steppers:
        stepper.prefill([[7, 3]])
    found, expected = (stepper.step(torch.tensor([5])) for stepper in steppers)
    torch.testing.assert_close(found, expected)
    # The control: it makes a difference.
    assert not torch.allclose(before.step(torch.tensor([5])), expected)


def test_what_a_hook_keeps_stays_as_it_was():
    """Steps add in place only where nobody looks."""
    model, kept = gpt(), []
    model.blocks[0].register_forward_hook(
        lambda module, inputs, output: kept.extend([output, output.clone()])
    )
    stepper = GPTStepper(pack(model))
    stepper.prefill([[7, 3]])
    stepper.step(torch.tensor([5]))
    assert torch.equal(kept[-2], kept[-1])


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        model = gpt()
        same_logits(model, 1)


def test_dropout_is_off_in_prompts_too():
    model = gpt(dropout=0.5).train()
    expected = GPTStepper(model).prefill([[7, 3, 11]])
    found = GPTStepper(pack(model)).prefill([[7, 3, 11]])
    torch.testing.assert_close(found, expected)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("norm_first", [True, False])
def test_steps_change_no_parameter(n_rows, norm_first):
    """What a step adds in place is its own."""
    model = gpt(norm_first=norm_first, norm="none")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    generate(GPTStepper(pack(model, n_rows)), [[7, 3]] * n_rows, 5)
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
