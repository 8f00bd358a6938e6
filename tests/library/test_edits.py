"""The file with chapter 15's edits: Llama, for random and for real weights."""

import difflib
from itertools import chain

import pytest
import torch
from compare import close, differ, shake
from references import EAGER, numbers
from transformers import LlamaConfig, LlamaForCausalLM

from coursekit_classroom import lesson
from coursekit_classroom.edits import EDITS

MODERN = ["rmsnorm", "swiglu", "rope", "grouped_heads"]
V, D, HEADS, SHARED, BLOCKS, CONTEXT = 31, 54, 9, 3, 2, 17
OURS = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output",
    "mlp.gate_proj": "feed_forward.gate",
    "mlp.up_proj": "feed_forward.hidden",
    "mlp.down_proj": "feed_forward.output",
}
LIBRARY = {
    "attention_norm": "norm_1",
    "feed_forward_norm": "norm_2",
    "final_norm": "norm",
    **{"w_q": "query", "w_k": "key", "w_v": "value", "w_o": "output"},
    **{"w_gate": "gate", "w_in": "hidden", "w_out": "output"},
}


def load(*names):
    return lesson.load(12, list(chain(*(EDITS[name] for name in names))))


@pytest.fixture(scope="module")
def file():
    return load(*MODERN)


@pytest.fixture(scope="module")
def theirs():
    """A small random Llama, of the reference implementation."""
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=D,
        intermediate_size=8 * D // 3,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        **EAGER,
    )
    return shake(LlamaForCausalLM(config), std=0.15).eval()


def neighbors(matrix, n_heads):
    """Rows of each head from pairs (i, i + half) to pairs (2i, 2i + 1)."""
    halves = matrix.unflatten(0, (n_heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def of_theirs(theirs):
    """The reference's weights by the names of the file."""
    state = theirs.state_dict()
    weights = {
        "embedding.weight": state["model.embed_tokens.weight"],
        "unembed.weight": state["lm_head.weight"],
        "norm.gain": state["model.norm.weight"],
    }
    for i in range(BLOCKS):
        their, our = f"model.layers.{i}", f"blocks.{i}"
        for a, b in OURS.items():
            weights[f"{our}.{b}.weight"] = state[f"{their}.{a}.weight"]
        for a, b in {
            "input_layernorm": "norm_1",
            "post_attention_layernorm": "norm_2",
        }.items():
            weights[f"{our}.{b}.gain"] = state[f"{their}.{a}.weight"]
        for part, heads in (("query", HEADS), ("key", SHARED)):
            name = f"{our}.attention.{part}.weight"
            weights[name] = neighbors(weights[name], heads)
    return weights


def make(file, weights):
    model = file.GPT(V, CONTEXT, D, HEADS, BLOCKS)
    model.load_state_dict(weights)
    return model


@torch.no_grad()
def test_all_four_edits_are_the_references_llama(file, theirs):
    model, ids = make(file, of_theirs(theirs)), numbers(2, 13, top=V)
    logits = theirs(ids).logits
    close(model(ids), logits, 1e-4)
    # Behind a cache: positions go on, and shared heads are cached once.
    past = {}
    parts = [model(part, past) for part in ids.split([5, 1, 7], dim=1)]
    close(torch.cat(parts, 1), logits, 1e-4)
    keys, values = past[model.blocks[0].attention]
    assert keys.shape == values.shape == (2, SHARED, 13, D // HEADS)


@torch.no_grad()
@pytest.mark.parametrize(
    "edit",
    [
        ("mean_square = x.square()", "mean_square = (x - x.mean()).square()"),
        ("functional.silu", "functional.gelu"),
        ("gate * self.hidden(x)", "self.hidden(x)"),
        ("100_000 **", "10_000 **"),
        ('rotate(k, past["length"])', 'rotate(k, 2 * past["length"])'),
        ("rotate(k, past", "rotate(-k, past"),
        (
            "k.repeat_interleave(group, dim=1)",
            "k.repeat(1, group, 1, 1)",
        ),
    ],
)
def test_a_wrong_change_is_noticed(theirs, edit):
    edits = list(chain(*(EDITS[name] for name in MODERN)))
    model = make(lesson.load(12, [*edits, edit]), of_theirs(theirs))
    ids = numbers(2, 13, top=V)
    differ(model(ids), theirs(ids).logits, by=1e-2)


@torch.no_grad()
def test_the_other_pairing_loads_and_is_wrong(file, theirs):
    """Rows in the reference's own order: nothing raises."""
    weights = of_theirs(theirs)
    for name in list(weights):
        if name.endswith("query.weight"):
            theirs_name = name.replace("blocks", "model.layers").replace(
                "attention.query", "self_attn.q_proj"
            )
            weights[name] = theirs.state_dict()[theirs_name]
    ids = numbers(2, 13, top=V)
    y, z = make(file, weights)(ids), theirs(ids).logits
    close(y[:, 0], z[:, 0], 1e-4)  # the first token sees itself alone
    differ(y[:, 1:], z[:, 1:], by=1e-2)


@pytest.mark.parametrize("without", MODERN)
def test_with_one_edit_missing_the_weights_do_not_fit(theirs, without):
    """Except for the norm, whose gain has the same shape: other logits."""
    file = load(*(name for name in MODERN if name != without))
    if without != "rmsnorm":
        with pytest.raises(RuntimeError, match=r"size mismatch|Missing|Unexp"):
            make(file, of_theirs(theirs))
        return
    ids = numbers(2, 13, top=V)
    with torch.no_grad():
        y = make(file, of_theirs(theirs))(ids)
        differ(y, theirs(ids).logits, by=1e-2)


@pytest.mark.parametrize("name", MODERN)
def test_an_edit_has_at_most_twelve_new_lines_and_trains(name):
    before = lesson.text(12).splitlines()
    after = before
    source = lesson.text(12)
    for old, new in EDITS[name]:
        source = source.replace(old, new)
    after = source.splitlines()
    new = [
        line[2:]
        for line in difflib.ndiff(before, after)
        if line.startswith("+ ") and line[2:].strip()
    ]
    assert 0 < len(new) <= 12
    assert max(map(len, after)) <= 79
    torch.manual_seed(0)
    file = load(name)
    model, ids = file.GPT(13, 11, 24, 4, 2), torch.arange(400) % 13
    losses = file.train(model, ids, 60)
    assert losses[-1] < 0.5 * losses[0]
    new = file.generate(model, ids[None, :3], 20, top_p=1e-9)
    assert new.shape == (1, 23)


@pytest.mark.xdist_group("smollm2")
@torch.no_grad()
def test_smollm2_runs_in_the_edited_file(published, file):
    """All logits as the library has them, to 1e-4, and the same text."""
    loaded = published("smollm2")
    weights = {}
    for name, weight in loaded.model.state_dict().items():
        parts = [LIBRARY.get(part, part) for part in name.split(".")]
        if weight.dim() == 1:
            parts[-1] = "gain"
        weights[".".join(parts)] = weight
    weights["unembed.weight"] = weights["embedding.weight"]
    with torch.device("meta"):  # no second 500 MB
        model = file.GPT(49_152, 8192, 576, 9, 30)
    model.load_state_dict(weights, assign=True)
    text = "The animal didn't cross the street because it was too tired."
    ids = torch.tensor([loaded.tokenizer.encode(f"{text} In 1984,\n\n  the")])
    close(model(ids), loaded.model(ids), 1e-4)
    ids = torch.tensor([loaded.tokenizer.encode("The capital of France is")])
    new = file.generate(model, ids, 3, top_p=1e-9)[0, ids.size(1) :]
    assert loaded.tokenizer.decode(new.tolist()) == " Paris.\n"
