"""Sound: columns like another library's, a model like another library's."""

import numpy as np
import pytest
import torch
from compare import Links, close, differ, shake
from references import END, numbers, whisper_config, write_model_bin
from tokenizers import pre_tokenizers
from transformers import (
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from coursekit.attention import attention_weights
from coursekit.config import SpeechConfig
from coursekit.multihead import split_heads
from coursekit.pretrained.whisper import (
    ConvStem,
    SpeechTransformer,
    cross_weights,
    load_whisper,
)
from coursekit.saved_models import load_model, save_model

B, T, V, M, C, D, HEADS, DFF = 2, 5, 31, 11, 26, 42, 3, 29


# -- the model ---------------------------------------------------------------
def whisper(**changes):
    """A small random model of theirs, and ours with its weights."""
    theirs = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=V,
            num_mel_bins=M,
            d_model=D,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=DFF,
            decoder_ffn_dim=DFF,
            max_source_positions=C // 2,
            max_target_positions=17,
            decoder_start_token_id=1,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            attn_implementation="eager",
        )
    )
    shake(theirs.double()).eval()
    options = {
        "vocab_size": V,
        "n_mels": M,
        "d_model": D,
        "n_heads": HEADS,
        "d_ff": DFF,
        "n_encoder_layers": 2,
        "n_decoder_layers": 3,
        "max_frames": C // 2,
        "max_len": 17,
    }
    ours = SpeechTransformer(SpeechConfig(**options | changes)).double()
    return ours, theirs, link(ours, theirs)


def link(ours, theirs):
    links = Links()
    encoder, decoder = theirs.model.encoder, theirs.model.decoder
    links.add(ours.embedding.weight, decoder.embed_tokens.weight)
    links.add(ours.positions.weight, decoder.embed_positions.weight)
    places = encoder.embed_positions.weight
    places.requires_grad_(True)  # there, these are fixed sinusoids
    links.add(ours.encoder.positions.weight, places)
    links.linear(ours.encoder.stem.first, encoder.conv1)
    links.linear(ours.encoder.stem.second, encoder.conv2)
    for a, b in ((ours.encoder, encoder), (ours, decoder)):
        for x, y in zip(a.blocks, b.layers, strict=True):
            link_attention(links, x.attention, y.self_attn)
            links.norm(x.attention_norm, y.self_attn_layer_norm)
            links.linear(x.feed_forward.w_in, y.fc1)
            links.linear(x.feed_forward.w_out, y.fc2)
            links.norm(x.feed_forward_norm, y.final_layer_norm)
        if isinstance(a.final_norm, torch.nn.Identity):
            continue
        links.norm(a.final_norm, b.layer_norm)
    for x, y in zip(ours.blocks, decoder.layers, strict=True):
        link_attention(links, x.cross_attention, y.encoder_attn)
        links.norm(x.cross_attention_norm, y.encoder_attn_layer_norm)
    return links


def link_attention(links, ours, theirs):
    links.linear(ours.w_q, theirs.q_proj)
    links.linear(ours.w_k, theirs.k_proj)  # which has no bias there
    torch.nn.init.zeros_(ours.w_k.bias)
    links.linear(ours.w_v, theirs.v_proj)
    links.linear(ours.w_o, theirs.out_proj)


def inputs():
    generator = torch.Generator().manual_seed(3)
    mel = torch.randn(B, M, C, generator=generator, dtype=torch.float64)
    return mel, torch.randint(3, V, (B, T), generator=generator)


def run_both(ours, theirs):
    mel, tgt = inputs()
    right = theirs(input_features=mel, decoder_input_ids=tgt).logits
    return ours(mel, tgt), right


def test_equal_to_another_library():
    """Logits and all gradients, float64, with weights that are random."""
    ours, theirs, links = whisper()
    y, z = run_both(ours, theirs)
    close(y, z, 1e-10)
    generator = torch.Generator().manual_seed(8)
    up = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    y.backward(up)
    z.backward(up)
    links.same_gradients(1e-10)
    linked = {id(mine) for mine, *_ in links.links}
    left = {n for n, p in ours.named_parameters() if id(p) not in linked}
    assert all(name.endswith("w_k.bias") for name in left)


@pytest.mark.parametrize(
    "switch",
    [
        {"activation": "relu"},
        {"norm_first": False},
        {"final_norm": False},
        {"scale_embedding": True},
    ],
    ids=str,
)
def test_fails_with(switch):
    """Control: each switch alone breaks parity."""
    ours, theirs, _ = whisper(**switch)
    differ(*run_both(ours, theirs), by=1e-2)


def test_a_bias_on_keys_changes_nothing():
    """All scores of a query move by the same: the softmax forgets it."""
    ours, theirs, _ = whisper()
    for name, p in ours.named_parameters():
        if name.endswith("w_k.bias"):
            torch.nn.init.normal_(p)
    close(*run_both(ours, theirs), 1e-10)


def test_two_columns_make_a_vector():
    """Vector s knows columns 2s − 2 to 2s + 2, and no other."""
    stem = shake(ConvStem(M, D).double())
    mel, _ = inputs()
    before = stem(mel)
    assert before.shape == (B, C // 2, D)
    for column, who in ((10, [4, 5, 6]), (11, [5, 6])):
        changed = mel.clone()
        changed[:, :, column] += 1
        moved = (stem(changed) - before).abs().amax((0, 2)) > 0
        assert moved.nonzero().flatten().tolist() == who


def test_saved_and_loaded(tmp_path):
    ours, *_ = whisper()
    save_model(tmp_path, ours.float())
    again = load_model(tmp_path).model
    assert type(again) is SpeechTransformer
    assert again.config == ours.config
    mel, tgt = inputs()
    assert torch.equal(again(mel.float(), tgt), ours(mel.float(), tgt))


def test_sounds_that_do_not_fit_are_refused():
    ours, *_ = whisper()
    mel, tgt = inputs()
    with pytest.raises(ValueError, match=f"must have {M} bands: got {M - 1}"):
        ours(mel[:, 1:], tgt)
    with pytest.raises(ValueError, match=r"at most max_len=13 .* got 26"):
        ours(torch.cat((mel, mel), dim=2), tgt)
    with pytest.raises(ValueError, match=r"n_mels must be a whole .* got 0"):
        SpeechConfig(vocab_size=V, d_model=D, n_heads=3, n_mels=0)


# -- where it listens --------------------------------------------------------
def test_weights_are_those_that_were_used():
    """The first block's, from its own projections; and theirs, all."""
    ours, theirs, _ = whisper()
    mel, tgt = inputs()
    memory = ours.encode(mel)
    weights = cross_weights(ours, memory, tgt)
    assert weights.shape == (B, 3 * HEADS, T, C // 2)
    right = theirs(
        input_features=mel, decoder_input_ids=tgt, output_attentions=True
    ).cross_attentions
    close(weights, torch.cat(right, dim=1), 1e-10)
    picked = cross_weights(ours, memory, tgt, [(2, 1), (0, 2)])
    assert torch.equal(picked, weights[:, [7, 2]])


def test_watching_leaves_nothing_behind():
    ours, *_ = whisper()
    mel, tgt = inputs()
    memory, before = ours.encode(mel), ours(mel, tgt)
    kept = [block.cross_attention.attend for block in ours.blocks]
    cross_weights(ours, memory, tgt)
    with pytest.raises(ValueError, match="token ids must lie in"):
        cross_weights(ours, memory, tgt + V)
    assert [block.cross_attention.attend for block in ours.blocks] == kept
    assert torch.equal(ours(mel, tgt), before)


def test_weights_from_hand_made_keys():
    """One head of one block, computed here from its matrices."""
    ours, *_ = whisper()
    mel, tgt = inputs()
    memory = ours.encode(mel)
    block = ours.blocks[0]
    x = ours.positions(ours.embedding(tgt), torch.arange(T))
    y = x + block.attention(block.attention_norm(x), causal=True)
    q = block.cross_attention.w_q(block.cross_attention_norm(y))
    k, _ = block.cross_attention.keys_values(memory)
    right = attention_weights(split_heads(q, HEADS), k)
    close(cross_weights(ours, memory, tgt)[:, :HEADS], right, 1e-12)


# -- from a file --------------------------------------------------------------
def write_whisper(folder, kind="float32", layers=(2, 1)):
    """A small random one; the reference's names mapped to the file's."""
    config = whisper_config(
        vocab_size=V + 256,
        num_mel_bins=M,
        d_model=D,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=DFF,
        decoder_ffn_dim=DFF,
        max_source_positions=13,
        max_target_positions=17,
    )
    theirs = shake(WhisperForConditionalGeneration(config)).eval()
    state = theirs.state_dict()
    weights = {}
    for name, tensor in state.items():
        words = name.removeprefix("model.").split(".")
        if words[0] == "proj_out":  # the same as the embedding
            continue
        key = published_key(words)
        letter = "qkv".find(words[-2][0]) if words[-2] in FUSED else 0
        weights.setdefault(key, {})[letter] = tensor
        if name.endswith("k_proj.weight"):  # the format has a bias: zeros
            key = key.replace("weight", "bias")
            weights.setdefault(key, {})[letter] = tensor.new_zeros(D)
    arrays = {
        name: torch.cat([parts[i] for i in sorted(parts)]).numpy()
        for name, parts in weights.items()
    }
    arrays = {name: array.astype(kind) for name, array in arrays.items()}
    for side in ("encoder", "decoder"):
        arrays[f"{side}/num_heads"] = np.array(HEADS, dtype="int16")
    write_model_bin(folder / "model.bin", arrays)
    lines = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
    lines += ["<|startoftranscript|>", "<|notimestamps|>"]
    lines += [f"<|{i}|>" for i in range(V + 256 - len(lines))]
    (folder / "vocabulary.txt").write_text("\n".join(lines), "utf8")
    return theirs


FUSED = ("q_proj", "k_proj", "v_proj")


def published_key(words):
    """One name of the reference in CTranslate2's words."""
    names = {"weight": "gamma", "bias": "beta"}
    side, rest, part = words[0], words[1:-1], words[-1]
    if rest[0] == "embed_tokens":
        return f"{side}/embeddings/weight"
    if rest[0] == "embed_positions":
        return f"{side}/position_encodings/encodings"
    if rest[0] != "layers":
        norm = rest[0] == "layer_norm"
        return f"{side}/{rest[0]}/{names[part] if norm else part}"
    before = f"{side}/layer_{rest[1]}"
    place = {"self_attn": "self_attention", "encoder_attn": "attention"}
    inner = {
        "self_attn_layer_norm": "self_attention/layer_norm",
        "encoder_attn_layer_norm": "attention/layer_norm",
        "final_layer_norm": "ffn/layer_norm",
    }
    if rest[2] in inner:
        return f"{before}/{inner[rest[2]]}/{names[part]}"
    if rest[2] in ("fc1", "fc2"):
        return f"{before}/ffn/linear_{int(rest[2][-1]) - 1}/{part}"
    cross = rest[2] == "encoder_attn"
    number = {"q_proj": 0, "k_proj": cross, "v_proj": cross}
    last = 1 + cross
    i = int(number.get(rest[3], last))
    return f"{before}/{place[rest[2]]}/linear_{i}/{part}"


def test_whisper_from_a_folder(tmp_path):
    """Fused projections cut, norms renamed; another number of blocks."""
    theirs = write_whisper(tmp_path)
    model, tokenizer = load_whisper(tmp_path)
    generator = torch.Generator().manual_seed(1)
    mel, tgt = torch.randn(2, 11, 26, generator=generator), numbers(2, 7)
    with torch.no_grad():
        right = theirs(input_features=mel, decoder_input_ids=tgt).logits
        close(model(mel, tgt), right, 1e-5)
    assert tokenizer.decode(tokenizer.encode("Ça va?")) == "Ça va?"
    assert tokenizer.special_tokens[END] == 256


def test_a_speech_model_that_does_not_fit(tmp_path):
    write_whisper(tmp_path)
    vocabulary = tmp_path / "vocabulary.txt"
    words = vocabulary.read_text("utf8")
    vocabulary.write_text(words + "\nmore", "utf8")
    with pytest.raises(ValueError, match="got 288 in the tokenizer, 287 in"):
        load_whisper(tmp_path)
    vocabulary.write_text("a\nb", "utf8")
    with pytest.raises(ValueError, match=r"must name <\|endoftext"):
        load_whisper(tmp_path)
    vocabulary.unlink()
    with pytest.raises(ValueError, match=r"must name <\|endoftext"):
        load_whisper(tmp_path)
    vocabulary.write_text(words, "utf8")
    write_whisper(tmp_path, "int8")
    with pytest.raises(ValueError, match="got whole numbers in"):
        load_whisper(tmp_path)
