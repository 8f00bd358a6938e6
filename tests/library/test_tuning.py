"""Fine-tuning against `peft`, sums by hand, and wrong versions."""

import copy
import json
import re
from pathlib import Path

import pytest
import torch
from compare import close, differ, json_damages
from torch import nn

import coursekit
from coursekit import cli, tuning
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import IGNORE
from coursekit.decoder import GPT
from coursekit.loss import cross_entropy
from coursekit.saved_models import save_model
from coursekit.training import train
from coursekit.weights import own_weights, read_tensors, write_tensors
from coursekit_classroom.glue import result
from results.story_grammar import NAMES, has_held_out
from results.story_questions import questions

V, T, D, L = 53, 17, 20, 3
PAIRS = [([7, 11, 13], [17, 2]), ([5], [19, 23, 29, 2]), ([3, 31], [2])]
END = 2


def model(dtype=torch.float64, seed=0, **changes):
    """A small GPT; biases and norms are random too."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "max_len": T, "d_model": D, "n_heads": 5}
    made = GPT(GPTConfig(**sizes | {"n_layers": L} | changes)).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p += 0.1 * torch.randn_like(p)
    return made.eval()


def adapted(rank=3, seed=1, **options):
    """A model with updates that are not 0 any more."""
    made = tuning.add_lora(model(), rank, **options)
    torch.manual_seed(seed)
    with torch.no_grad():
        for tensor in tuning.lora_weights(made).values():
            tensor += 0.3 * torch.randn_like(tensor)
    return made


def ids(rows=2):
    return torch.randint(
        V, (rows, 13), generator=torch.Generator().manual_seed(3)
    )


# -- prompts with answers ----------------------------------------------------
def test_only_answers_are_targets():
    """By hand: each counted target is a token of an answer, once."""
    batch = tuning.answer_batch(PAIRS, pad_id=43)
    assert batch.inputs["ids"].tolist() == [
        [7, 11, 13, 17],
        [5, 19, 23, 29],
        [3, 31, 43, 43],
    ]
    x = IGNORE
    assert batch.targets.tolist() == [
        [x, x, 17, 2],
        [19, 23, 29, 2],
        [x, 2, x, x],
    ]
    assert batch.n_targets == sum(len(answer) for _, answer in PAIRS)


def test_all_targets_are_those_of_pretraining():
    batch = tuning.answer_batch(PAIRS, pad_id=43, prompts_too=True)
    assert batch.targets[0].tolist() == [11, 13, 17, 2]
    whole = sum(len(p) + len(a) - 1 for p, a in PAIRS)
    assert batch.n_targets == whole


def test_the_loss_is_that_of_the_answer_alone():
    """Row by row without padding; the prompt's tokens as a control."""
    made, batch = model(), tuning.answer_batch(PAIRS, pad_id=43)
    got = cross_entropy(made(**batch.inputs), batch.targets)
    nats = []
    for prompt, answer in PAIRS:
        rows = made(torch.tensor([prompt + answer]))[0].log_softmax(-1)
        for i, token in enumerate(answer, len(prompt)):
            nats.append(-rows[i - 1, token])
    close(got, torch.stack(nats).mean(), 1e-12)
    everything = tuning.answer_batch(PAIRS, pad_id=43, prompts_too=True)
    differ(cross_entropy(made(**everything.inputs), everything.targets), got)


@pytest.mark.parametrize("pairs", [[], [([], [3])], [([3], [])]])
def test_empty_parts_are_refused(pairs):
    with pytest.raises(ValueError, match=r"needs pairs.*got"):
        tuning.answer_batch(pairs, pad_id=0)


# -- the update --------------------------------------------------------------
def peft_layer():
    """One layer with the numbers of `peft`, and those numbers."""
    found = result("tuning_oracle")
    numbers = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in found.items()
        if isinstance(value, list)
    }
    linear = nn.Linear(7, 5, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(numbers["weight"])
        linear.bias.copy_(numbers["bias"])
    layer = tuning.LoRA(linear, found["rank"], float(found["alpha"]))
    with torch.no_grad():
        layer.a.copy_(numbers["a"])
        layer.b.copy_(numbers["b"])
    return layer, numbers


def test_equal_to_peft():
    """Output, gradients and merged weights; scale 1 as the control."""
    layer, theirs = peft_layer()
    x = theirs["x"].clone().requires_grad_()
    y = layer(x)
    (y * theirs["up"]).sum().backward()
    close(y, theirs["y"], 1e-12)
    close(layer.a.grad, theirs["a.grad"], 1e-12)
    close(layer.b.grad, theirs["b.grad"], 1e-12)
    close(x.grad, theirs["x.grad"], 1e-12)
    assert layer.linear.weight.grad is None
    layer.scale = 1.0
    differ(layer(x), theirs["y"])
    layer, theirs = peft_layer()
    close(layer.merged().weight, theirs["merged"], 1e-12)


def test_three_by_two_by_hand():
    """The example of the page: W (3, 2), rank 1, α = 2."""
    w = torch.tensor([[1.0, 0], [0, 1], [2, 1]])
    a, b = torch.tensor([[1.0, -1]]), torch.tensor([[1.0], [0], [2]])
    x = torch.tensor([3.0, 1])
    got = tuning.lora(x, w, a, b, scale=2.0)
    assert got.tolist() == [3 + 4, 1, 7 + 8]
    assert torch.equal(got, x @ (w + 2 * b @ a).T)


def test_an_update_begins_at_nothing():
    made, plain = tuning.add_lora(model(), rank=3), model()
    assert torch.equal(made(ids()), plain(ids()))
    differ(adapted()(ids()), plain(ids()))


@pytest.mark.parametrize("layers", [("w_q",), ("w_v", "w_out"), ("w_in",)])
def test_merged_is_adapted(layers):
    """To 1e-12 in double precision; a merge without the scale is another."""
    made = adapted(rank=2, alpha=7.0, layers=layers)
    want = made(ids())
    wrong = copy.deepcopy(made)
    for module in wrong.modules():
        if isinstance(module, tuning.LoRA):
            module.scale = 1.0
    merged = tuning.merge_lora(made)
    close(merged(ids()), want, 1e-12)
    assert own_weights(merged).keys() == own_weights(model()).keys()
    assert all(p.requires_grad for p in merged.parameters())
    differ(tuning.merge_lora(wrong)(ids()), want)


def test_only_the_adapter_gets_gradients():
    made = adapted(rank=3, layers=("w_q", "w_out"))
    made(ids()).logsumexp(-1).sum().backward()
    moved = {n for n, p in made.named_parameters() if p.grad is not None}
    assert moved == set(tuning.lora_weights(made))
    assert len(moved) == 2 * 2 * L
    # The control: without freezing, every parameter would get one.
    made.requires_grad_(True)
    made(ids()).logsumexp(-1).sum().backward()
    assert all(p.grad is not None for p in made.parameters())


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_parameters_by_hand(rank):
    """r (I + O) for each matrix."""
    made = tuning.add_lora(model(d_ff=31), rank, layers=("w_q", "w_in"))
    trained = [p.numel() for p in made.parameters() if p.requires_grad]
    assert sum(trained) == L * rank * ((D + D) + (D + 31))


def test_training_moves_the_adapter_alone():
    """The loop as it is; what was frozen is the same to the bit."""
    made = tuning.add_lora(model(torch.float32), rank=3)
    before = copy.deepcopy(made.state_dict())
    batch = tuning.answer_batch(PAIRS, pad_id=0)
    config = TrainConfig(steps=30, warmup_steps=3, learning_rate=0.02)
    state = train(made, lambda _: [batch], config, progress=False)
    assert state.losses[-1] < state.losses[0] / 2
    after = made.state_dict()
    moved = {name for name in after if not after[name].equal(before[name])}
    assert moved == set(tuning.lora_weights(made))


def test_a_wrong_use_is_refused():
    with pytest.raises(ValueError, match=r"rank of at least 1: got 0"):
        tuning.add_lora(model(), rank=0)
    kept = model()
    with pytest.raises(ValueError, match=r"got c_attn, of which GPT has none"):
        tuning.add_lora(kept, rank=2, layers=("c_attn",))
    assert all(p.requires_grad for p in kept.parameters())


def test_answers_end_at_the_end():
    """The end token is left out, and so is all that would follow it."""
    made = model(torch.float32)
    free = tuning.answers(made, [[7, 11], [5]], END, max_new_tokens=6)
    stopped = free[0][2]  # the token that now is to end it
    cut = tuning.answers(made, [[7, 11], [5]], stopped, max_new_tokens=6)
    assert cut[0] == free[0][: free[0].index(stopped)]


# -- adapters as files -------------------------------------------------------
def saved(tmp_path, **options):
    """A base in a folder, an adapter beside it, and the adapted model."""

    save_model(tmp_path / "base", model(torch.float32))
    base = coursekit.load(tmp_path / "base").model
    tuning.add_lora(base, 3, alpha=5.0, layers=("w_v", "w_o"))
    torch.manual_seed(4)
    with torch.no_grad():
        for tensor in tuning.lora_weights(base).values():
            tensor += torch.randn_like(tensor)
    path = tmp_path / "adapter.safetensors"
    tuning.save_adapter(path, base, str(tmp_path / "base"), ("w_v", "w_o"))
    return path, base


def test_an_adapter_is_loaded_with_its_base(tmp_path):
    path, base = saved(tmp_path)
    loaded = tuning.load_tuned(path).model
    close(loaded(ids()), base(ids()), 1e-5)
    differ(coursekit.load(tmp_path / "base").model(ids()), base(ids()))
    assert path.stat().st_size < 4 * (L * 2 * 3 * 2 * D) + 4000


def test_an_adapter_refuses_another_base(tmp_path):
    path, _ = saved(tmp_path)
    save_model(tmp_path / "base", model(torch.float32, seed=9))
    with pytest.raises(ValueError, match="other weights in"):
        tuning.load_tuned(path)


def test_an_adapter_finds_its_base_from_any_folder(tmp_path, monkeypatch):
    """By the place of its file; if it is not there, both are named."""
    home, away = tmp_path / "home", tmp_path / "away"
    (home / "adapters").mkdir(parents=True)
    save_model(home / "base", model(torch.float32))
    monkeypatch.chdir(home)
    made, at = adapted(), Path("adapters", "a.safetensors")
    tuning.save_adapter(at, made, "base", tuning.MATRICES)
    monkeypatch.chdir(tmp_path)
    here = tuning.load_tuned(home / at).model
    home.rename(away)
    close(here(ids()), tuning.load_tuned(away / at).model(ids()), 0.0)
    (away / "base").rename(tmp_path / "base")  # found by nobody
    with pytest.raises(ValueError, match=r"a\.safetensors, made for .*base"):
        tuning.load_tuned(away / at)


def test_no_damage_is_taken_for_an_adapter(tmp_path):
    path, _ = saved(tmp_path)
    tensors, about = read_tensors(path)
    some = next(iter(tensors))
    damages = [(tensors, d) for _, d in json_damages(about)]
    damages += [
        (tensors | {some: other}, about)
        for other in (torch.full_like(tensors[some], torch.nan),
                      tensors[some][None], torch.zeros(()))
    ]  # fmt: skip
    for content, said in damages:
        if isinstance(said, dict) and said != {"a": 7}:  # no other JSON
            write_tensors(path, content, said)
            with pytest.raises(ValueError, match=r"adapter|finite"):
                tuning.load_tuned(path)
    write_tensors(path, tensors, about)
    tuning.load_tuned(path)  # the control


def test_an_adapter_may_have_a_rank_above_the_width(tmp_path):
    save_model(tmp_path / "base", model(torch.float32))
    made = tuning.add_lora(model(torch.float32), D + 3, layers=("w_q",))
    for tensor in tuning.lora_weights(made).values():
        tensor += 0.1
    path = tmp_path / "adapter.safetensors"
    tuning.save_adapter(path, made, str(tmp_path / "base"), ("w_q",))
    close(tuning.load_tuned(path).model(ids()), made(ids()), 1e-5)


def test_what_is_no_adapter_is_refused(tmp_path):
    save_model(tmp_path / "base", model(torch.float32))
    path = tmp_path / "adapter.safetensors"
    with pytest.raises(ValueError, match=r"0 kinds\. Save it before merge"):
        tuning.save_adapter(path, tuning.merge_lora(adapted()), "base", ())
    assert not path.exists()
    with pytest.raises(ValueError, match=r"which model it belongs to: got"):
        tuning.load_tuned(tmp_path / "base" / "model.safetensors")


def test_other_tensors_are_refused():
    made = adapted(rank=3)
    with pytest.raises(ValueError, match="another name or shape"):
        tuning.put_lora(made, tuning.lora_weights(adapted(rank=2)))


# -- pairs, and the command --------------------------------------------------
def test_shipped_pairs():
    six = tuning.read_pairs("six-questions")
    assert len(six) == 6
    assert six[0][1] == "The dog."
    told = dict(tuning.read_pairs("story-questions"))
    assert len(told) > 800
    assert not {prompt for prompt, _ in six} & told.keys()


def test_only_a_new_line_ends_a_pair(tmp_path):
    """Not the other characters that Python takes for ends of lines."""
    path = tmp_path / "pairs.tsv"
    path.write_text("a\u2028b\x0cc\td\ne\tf\n", "utf8")
    assert tuning.read_pairs(path) == [("a\u2028b\x0cc", "d"), ("e", "f")]


def test_a_pair_needs_two_parts(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one\ttwo\nthree\n", "utf8")
    with pytest.raises(ValueError, match="got 1 parts in line 2"):
        tuning.read_pairs(path)


def test_finetune_lowers_the_loss(tmp_path, capsys):
    """And writes a plain model, which any other command takes."""
    out = tmp_path / "tuned"
    words = ["finetune", "stories", "story-questions", "--out", str(out)]
    few = ["--steps", "12", "--rank", "2", "--batch-size", "5", "--json"]
    assert cli.main([*words, *few]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["loss_after"] < said["loss_before"] - 1
    assert said["trained_parameters"] == 18_432
    tuned = coursekit.load(out).model
    assert not any(isinstance(m, tuning.LoRA) for m in tuned.modules())
    assert cli.main([*words, *few]) == 2, "the folder exists"


def test_a_pair_that_cannot_be_learned_is_named(tmp_path, capsys):
    """Before anything is computed."""
    path, out = tmp_path / "pairs.tsv", str(tmp_path / "tuned")
    short = "Who?\tTom."
    for wrong, part in (("Who?\t" + "Tom " * 99, "max_len=96"),):
        path.write_text("\n".join([short, short, wrong]))
        assert cli.main(["finetune", "stories", str(path), "--out", out]) == 2
        said = capsys.readouterr().err
        assert f"line 3 of {path}: " in said
        assert part in said


def test_the_shipped_adapter_answers():
    """As it was recorded; the model without it does not."""
    six = tuning.read_pairs("six-questions")
    prompts = [prompt for prompt, _ in six]
    tuned, tokenizer = tuning.load_tuned("stories-answers")
    said = tuning.replies(tuned, tokenizer, prompts)
    found = result("tuning")
    assert said == found["ways"]["rank 4"][0]["six"]
    plain = coursekit.load("stories").model
    told = tuning.replies(plain, tokenizer, prompts)
    right = [answer for _, answer in six]
    assert sum(map(str.__eq__, said, right)) >= 2
    assert not any(map(str.__eq__, told, right)), "the control"


def test_questions_and_their_answers():
    """No pair that is held out; each answer by a rule of its own."""
    for asked in questions(300, 0):
        assert not has_held_out(asked.story)
    assert all(has_held_out(a.story) for a in questions(60, 0, held_out=True))
    for asked in [a for a in questions(600, 5) if a.question[:3] == "Who"]:
        story, question, answer = asked
        name = answer.removesuffix(".").removeprefix("The ")
        assert name in story
        if "has the" in question:
            gives = re.search(r" (gave|sold|sent|brought|handed) ", story)
            names = [w for w in re.findall(r"\w+", story) if w in NAMES]
            assert name == names[bool(gives)]
