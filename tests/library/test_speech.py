"""Sound: columns like another library's."""

import wave

import numpy as np
import pytest
import torch
from compare import close
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from coursekit.pretrained.speech import (
    HOP,
    RATE,
    load_speech,
    log_mel,
    mel_filters,
    read_wav,
)


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


@pytest.mark.parametrize("cut", [-2, -1])
def test_half_a_sound_is_refused(tmp_path, cut):
    """Not read as a shorter one."""
    path = write(tmp_path / "a.wav", bytes(16))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"whole WAV file: .* of 8 samples"):
        read_wav(path)


def test_a_chunk_of_an_impossible_length_is_refused(tmp_path):
    """Python's reader raises a RuntimeError without a word."""
    path = write(tmp_path / "a.wav", bytes(16))
    data = path.read_bytes()
    odd = b"LIST" + (2**32 - 1).to_bytes(4, "little")
    path.write_bytes(data[:12] + odd + data[12:])
    with pytest.raises(ValueError, match="whole WAV file"):
        read_wav(path)


def test_the_spoken_sentence():
    """Mono, 16 kHz, below 150 kB; not silent, not cut off."""
    sound = load_speech()
    assert 3 < len(sound) / RATE < 4
    assert 0.3 < sound.abs().max() < 1
    edges = torch.cat((sound[:HOP], sound[-HOP:]))
    assert edges.abs().max() < 0.02
