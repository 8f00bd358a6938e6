"""Sound as a sequence: a picture of its pitches, one column every 10 ms.

A text has tokens.  A sound has pressure, 16,000 numbers a second, far too
many and too alike to attend to.  So it is cut into short windows, and each
is described by the strength of 80 bands of pitch.
"""

import math
import wave
from importlib import resources
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

RATE = 16_000
"""Samples a second."""
WINDOW = 400
"""Samples in a window, 25 ms of them."""
HOP = 160
"""Samples from one window to the next, 10 ms of them."""


def read_wav(path: str | Path) -> Float[Tensor, "N"]:
    """Read a sound.

    Args:
        path: a WAV file of one channel, 16 bits, 16,000 samples a second.

    Returns:
        (N,) samples in −1 … 1.

    Raises:
        ValueError: if the file is missing, damaged or of another kind.

    Chapter: 15, modern.
    """
    try:
        with wave.open(str(path), "rb") as file:
            kind = file.getnchannels(), 8 * file.getsampwidth()
            rate, n_frames = file.getframerate(), file.getnframes()
            data = file.readframes(n_frames)
        if len(data) != n_frames * file.getsampwidth() * kind[0]:
            raise EOFError(f"{len(data)} bytes of {n_frames} samples")
    except (OSError, EOFError, RuntimeError, wave.Error) as error:
        raise ValueError(
            f"a sound must be a whole WAV file: got {path} ({error}). "
            "Convert it: sox IN -r 16000 -b 16 -c 1 OUT.wav."
        ) from error
    if (*kind, rate) != (1, 16, RATE):
        raise ValueError(
            f"a sound must have 1 channel, 16 bits, {RATE} samples a "
            f"second: got {kind[0]}, {kind[1]}, {rate} in {path}. Convert "
            "it: sox IN -r 16000 -b 16 -c 1 OUT.wav."
        )
    whole = torch.frombuffer(bytearray(data), dtype=torch.int16)
    return whole.to(torch.get_default_dtype()) / 2**15


def load_speech() -> Float[Tensor, "N"]:
    """The book's running sentence, spoken by a machine.

    Returns:
        (N,) samples, 3.5 seconds.

    Chapter: 15, modern.
    """
    name = "assets/speech.wav"
    with resources.as_file(resources.files("coursekit") / name) as path:
        return read_wav(path)


def mel_filters(n_mels: int = 80) -> Float[Tensor, "M P"]:
    """Bands of pitch, as weights of the window's frequencies.

    The ear hears ratios: 200 Hz is as far from 100 as 4,000 from 2,000.
    On the mel scale equal steps sound equal: it is linear up to 1,000 Hz,
    15 mel, and logarithmic above, 27 mel for a factor of 6.4.  The bands
    are triangles between points that are equally far apart in mel, each
    as tall as makes its area 1.

    Args:
        n_mels: M, bands between 0 and 8,000 Hz.

    Returns:
        (M, P) weights of the P = 201 frequencies of a window.

    Chapter: 15, modern.
    Source: radford2023robust, section 2.2.
    Test: test_speech.py::test_bands_are_those_of_another_library
    """
    top = 15 + 27 * math.log(RATE / 2 / 1000) / math.log(6.4)
    mels = torch.linspace(0, top, n_mels + 2, dtype=torch.float64)
    above = 1000 * 6.4 ** ((mels - 15) / 27)
    points = torch.where(mels < 15, mels * 1000 / 15, above)
    left, middle, right = points[:-2], points[1:-1], points[2:]
    heard = torch.linspace(0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    rise = (heard - left[:, None]) / (middle - left)[:, None]
    fall = (right[:, None] - heard) / (right - middle)[:, None]
    bands = torch.minimum(rise, fall).clamp(min=0)
    bands = bands * (2 / (right - left))[:, None]
    return bands.to(torch.get_default_dtype())


def log_mel(
    samples: Float[Tensor, "N"], seconds: float = 30.0, n_mels: int = 80
) -> Float[Tensor, "M C"]:
    """Log-mel spectrogram: the energy of each band every 10 ms.

    ``log₁₀`` of the energy, cut off at 8 below the largest (80 decibels),
    then ``(x + 4) / 4``: numbers about as large as 1.

    Args:
        samples: (N,) at 16,000 a second.
        seconds: length of the outcome: silence is added, or the end cut
            off.  Whisper has only ever heard 30.
        n_mels: M, bands.

    Returns:
        (M, C) with C = 100 · seconds columns.

    Raises:
        ValueError: if there is no sample.

    Chapter: 15, modern.
    Source: radford2023robust, section 2.2.
    Test: test_speech.py::test_columns_are_those_of_another_library
    """
    if len(samples) == 0:
        raise ValueError(
            "a sound must have samples: got none. Read one with read_wav."
        )
    n = round(seconds * RATE)
    sound = F.pad(samples[:n], (0, max(0, n - len(samples))))
    # A window that fades in and out, or its edges would sound like clicks.
    hann = torch.hann_window(WINDOW, dtype=sound.dtype, device=sound.device)
    waves = torch.stft(sound, WINDOW, HOP, window=hann, return_complex=True)
    energy = waves[:, :-1].abs().square()  # the last one begins at the end
    bands = mel_filters(n_mels).to(energy) @ energy
    loud = bands.clamp(min=1e-10).log10()
    return (loud.clamp(min=float(loud.max()) - 8) + 4) / 4
