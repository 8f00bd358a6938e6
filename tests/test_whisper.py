"""Sound: columns like another library's, a model like another library's."""

import wave

import numpy as np
import pytest
import torch
from compare import Links, close, differ, shake
from transformers import (
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)
from transformers.audio_utils import mel_filter_bank

from coursekit.attention import attention_weights
from coursekit.checkpoint import load_model, save_model
from coursekit.config import SpeechConfig
from coursekit.multihead import split_heads
from coursekit.pretrained.whisper import (
    HOP,
    RATE,
    ConvStem,
    SpeechTransformer,
    cross_weights,
    load_speech,
    log_mel,
    mel_filters,
    read_wav,
)

B, T, V, M, C, D, HEADS, DFF = 2, 5, 31, 11, 26, 42, 3, 29


# -- columns -----------------------------------------------------------------
@pytest.mark.parametrize("n_mels", [80, 128, 7])
def test_bands_are_those_of_another_library(n_mels):
    theirs = mel_filter_bank(
        201, n_mels, 0.0, 8000.0, RATE, norm="slaney", mel_scale="slaney"
    )
    ours = mel_filters(n_mels)
    assert ours.shape == (n_mels, 201)
    # The other library rounds the frequencies of its windows elsewhere.
    close(ours, torch.tensor(theirs.T).float(), 1e-6)


def test_bands_by_hand():
    """1,000 Hz is 15 mel, 6,400 Hz is 42; the areas are 1."""
    one = mel_filters(1).double()[0]
    top = 15 + 27 * np.log(8) / np.log(6.4)
    middle = 1000 * 6.4 ** ((top / 2 - 15) / 27)
    assert abs(int(one.argmax()) * 40 - middle) < 40
    assert one.sum() * 40 == pytest.approx(1, abs=1e-4)


def test_columns_are_those_of_another_library():
    theirs = WhisperFeatureExtractor(feature_size=80)
    generator = torch.Generator().manual_seed(0)
    for sound in (load_speech(), torch.randn(RATE, generator=generator)):
        right = theirs(sound.numpy(), sampling_rate=RATE, return_tensors="pt")
        ours = log_mel(sound)
        assert ours.shape == (80, 3000)
        close(ours, right.input_features[0], 1e-4)


def test_columns_of_a_tone_are_loud_at_its_pitch():
    """440 Hz lies in the band whose weight at 440 Hz is largest."""
    steps = torch.arange(RATE) / RATE
    columns = log_mel(torch.sin(2 * torch.pi * 440 * steps), seconds=1.0)
    assert columns.shape == (80, 100)
    band = int(mel_filters()[:, 11].argmax())  # 440 Hz is number 11
    assert set(columns[:, 5:95].argmax(0).tolist()) == {band}
    assert columns.max() - columns.min() == pytest.approx(2)  # 8 / 4


def test_a_sound_is_cut_or_filled_up():
    sound = load_speech()
    assert torch.equal(log_mel(sound, 1.0), log_mel(sound[:RATE], 1.0))
    assert log_mel(sound, 7.5).shape == (80, 750)
    with pytest.raises(ValueError, match="must have samples: got none"):
        log_mel(sound[:0])


# -- files -------------------------------------------------------------------
def write(path, frames, channels=1, width=2, rate=RATE):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return path


def test_a_file_is_read(tmp_path):
    whole = np.array([0, 1, -1, 16384, -32768, 32767], dtype="<i2")
    samples = read_wav(write(tmp_path / "a.wav", whole.tobytes()))
    right = torch.tensor(whole.astype("float32")) / 32768
    assert torch.equal(samples, right)


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"channels": 2}, "got 2, 16, 16000"),
        ({"width": 1}, "got 1, 8, 16000"),
        ({"rate": 22050}, "got 1, 16, 22050"),
    ],
)
def test_another_kind_of_sound_is_refused(tmp_path, changes, received):
    path = write(tmp_path / "a.wav", bytes(16), **changes)
    with pytest.raises(ValueError, match=received):
        read_wav(path)


@pytest.mark.parametrize("data", [None, b"", b"RIFF", b"no sound at all"])
def test_what_is_no_sound_is_refused(tmp_path, data):
    path = tmp_path / "a.wav"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ValueError, match=r"whole WAV file: got .*a\.wav"):
        read_wav(path)


def test_the_spoken_sentence():
    """Mono, 16 kHz, below 150 kB; not silent, not cut off."""
    sound = load_speech()
    assert 3 < len(sound) / RATE < 4
    assert 0.3 < sound.abs().max() < 1
    edges = torch.cat((sound[:HOP], sound[-HOP:]))
    assert edges.abs().max() < 0.02


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
