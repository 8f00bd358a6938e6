"""Sound as a sequence: a picture of its pitches, one column every 10 ms.

A text has tokens.  A sound has pressure, 16,000 numbers a second, far too
many and too alike to attend to.  So it is cut into short windows; each is
told by the strength of 80 bands of pitch; and two convolutions make one
vector of two columns.  From there on it is a sequence as any other, and
encoder and decoder are those of :mod:`coursekit.seq2seq`.
"""

import math
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import Attend, attention_weights, fast_attend
from coursekit.checks import check_length
from coursekit.config import SpeechConfig
from coursekit.encoder import Encoder
from coursekit.seq2seq import Transformer, encoder_config

__all__ = [
    "HOP",
    "RATE",
    "WINDOW",
    "ConvStem",
    "SoundEncoder",
    "SpeechTransformer",
    "cross_weights",
    "load_speech",
    "log_mel",
    "mel_filters",
    "read_wav",
]

RATE = 16_000
"""Samples a second."""
WINDOW = 400
"""Samples in a window, 25 ms of them."""
HOP = 160
"""Samples from one window to the next, 10 ms of them."""


# -- sound to columns --------------------------------------------------------


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
            rate = file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
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
    Test: tests/test_whisper.py::test_bands_are_those_of_another_library
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
    """How strong each band of pitch is, every 10 ms, as a logarithm.

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
    Test: tests/test_whisper.py::test_columns_are_those_of_another_library
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


# -- the model ---------------------------------------------------------------


class ConvStem(nn.Module):
    """Columns to vectors: two convolutions, the second in steps of two.

    Each looks at three neighbors, so a vector knows 5 columns.  What a
    letter is for a tokenizer, 10 ms are here: a step should hold more.

    Args:
        n_mels: M, bands of a column.
        d_model: D.

    Chapter: 15, modern.
    Source: radford2023robust, section 2.2.
    """

    def __init__(self, n_mels: int, d_model: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(n_mels, d_model, 3, padding=1)
        self.second = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)

    def forward(self, mel: Float[Tensor, "B M C"]) -> Float[Tensor, "B S D"]:
        """Map (B, M, C) columns to (B, S, D) vectors, S = C / 2."""
        x = F.gelu(self.first(mel))
        return F.gelu(self.second(x)).mT


class SoundEncoder(Encoder):
    """The encoder, behind a stem that turns sound into vectors.

    Its table of tokens is only kept here, as in every encoder, for the
    decoder.

    Args:
        config: every choice.
        attend: the attention function.

    Chapter: 15, modern.
    Source: radford2023robust, section 2.2.
    """

    def __init__(
        self, config: SpeechConfig, attend: Attend = fast_attend
    ) -> None:
        own = replace(encoder_config(config), max_len=config.max_frames)
        super().__init__(own, attend)
        self.stem = ConvStem(config.n_mels, config.d_model)

    def forward(
        self, mel: Float[Tensor, "B M C"], mask: Tensor | None = None
    ) -> Float[Tensor, "B S D"]:
        """Give each 20 ms a vector that knows the whole sound.

        Args:
            mel: (B, M, C) as :func:`log_mel` makes them.
            mask: what may be seen, broadcast to (B, H, S, S).

        Returns:
            (B, S, D) with S = C / 2.

        Raises:
            ValueError: if the sound has other bands, or is too long.
        """
        n_mels = self.stem.first.in_channels
        if mel.size(1) != n_mels:
            raise ValueError(
                f"the sound must have {n_mels} bands: got {mel.size(1)}. "
                f"Make it with log_mel(samples, n_mels={n_mels})."
            )
        x = self.stem(mel)
        check_length(x.size(1), self.config.max_len)
        return self.read(x, mask)


class SpeechTransformer(Transformer):
    """The paper's encoder-decoder; only its source is a sound.

    Args:
        config: every choice.
        attend: the attention function.

    Differs from the paper: pre-norm, GELU, learned positions, and the
        encoder reads columns of sound.
    Chapter: 15, modern.
    Source: radford2023robust, section 2.2; vaswani2017attention, section 3.
    Test: tests/test_pipelines.py::test_whisper_has_the_reference_logits
    """

    config: SpeechConfig

    def __init__(
        self, config: SpeechConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__(config, attend, SoundEncoder(config, attend))

    def forward(
        self,
        src: Float[Tensor, "B M C"],
        tgt: Int[Tensor, "B T"],
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Predict each next token from the sound and the prefix.

        Args:
            src: (B, M, C) columns.
            tgt, src_mask, tgt_mask: as in :meth:`Transformer.forward`.

        Returns:
            (B, T, V) logits.

        Raises:
            ValueError: if something is out of range or too long.
        """
        memory = self.encode(src, src_mask)
        return self.decode(tgt, memory, src_mask, tgt_mask)

    def encode(
        self, src: Float[Tensor, "B M C"], src_mask: Tensor | None = None
    ) -> Float[Tensor, "B S D"]:
        """Listen: (B, M, C) columns to (B, S, D) memory."""
        return self.encoder(src, src_mask)


# -- where it listens --------------------------------------------------------


@contextmanager
def _watching(model: Transformer) -> Iterator[list[Tensor]]:
    """Collect the weights of each cross-attention, in the blocks' order."""
    seen: list[Tensor] = []
    layers: list[Any] = [block.cross_attention for block in model.blocks]
    before = [layer.attend for layer in layers]

    def watch(attend: Attend) -> Attend:
        def watched(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
            seen.append(attention_weights(q, k, how["mask"]))
            return attend(q, k, v, **how)

        return watched

    for layer in layers:
        layer.attend = watch(layer.attend)
    try:
        yield seen
    finally:
        for layer, attend in zip(layers, before, strict=True):
            layer.attend = attend


def cross_weights(
    model: Transformer,
    memory: Float[Tensor, "B S D"],
    tgt: Int[Tensor, "B T"],
    heads: Sequence[tuple[int, int]] | None = None,
) -> Float[Tensor, "B N T S"]:
    """Where in the source each token of the target looks.

    Args:
        model: an encoder-decoder.
        memory: (B, S, D) what its encoder has read.
        tgt: (B, T) the target; row t is what the model looks at when it
            has token t and writes token t + 1.
        heads: (block, head) of those wanted; all if not given.

    Returns:
        (B, N, T, S) weights of the N heads; each row sums to 1.

    Chapter: 15, modern.
    Test: tests/test_whisper.py::test_weights_are_those_that_were_used
    """
    with torch.no_grad(), _watching(model) as seen:
        model.decode(tgt, memory)
    weights = torch.stack(seen, dim=1)  # (B, L, H, T, S)
    if heads is None:
        return weights.flatten(1, 2)
    return torch.stack([weights[:, i, h] for i, h in heads], dim=1)
