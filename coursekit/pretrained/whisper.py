"""Whisper: the paper's encoder-decoder, whose source is a sound.

Two convolutions make one vector of two columns of
:mod:`coursekit.pretrained.speech`.  From there on it is a sequence as any
other, and encoder and decoder are those of :mod:`coursekit.seq2seq`:
pre-norm, with GELU.  Its keys have no bias, which here is a bias of zeros.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from coursekit.attention import Attend, fast_attend
from coursekit.checks import check_length
from coursekit.config import SpeechConfig
from coursekit.encoder import Encoder
from coursekit.interpret import record
from coursekit.pretrained import formats
from coursekit.saved_models import Loaded
from coursekit.seq2seq import Transformer, encoder_config
from coursekit.tokenizer import BPETokenizer

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


class SpeechEncoder(Encoder):
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

    ``src`` is (B, M, C) columns, as :func:`log_mel` makes them.

    Args:
        config: every choice.
        attend: the attention function.

    Differs from the paper: pre-norm, GELU, learned positions, and the
        encoder reads columns of sound.
    Chapter: 15, modern.
    Source: radford2023robust, section 2.2; vaswani2017attention, section 3.
    Test: test_pipelines.py::test_whisper_has_the_reference_logits
    """

    config: SpeechConfig

    def __init__(
        self, config: SpeechConfig, attend: Attend = fast_attend
    ) -> None:
        super().__init__(config, attend, SpeechEncoder(config, attend))


# -- where it listens --------------------------------------------------------


def cross_weights(
    model: Transformer,
    memory: Float[Tensor, "B S D"],
    tgt: Int[Tensor, "B T"],
    heads: Sequence[tuple[int, int]] | None = None,
) -> Float[Tensor, "B N T S"]:
    """Cross-attention weights of each target token over the source.

    Args:
        model: an encoder-decoder.
        memory: (B, S, D) what its encoder has read.
        tgt: (B, T) the target; row t is what the model looks at when it
            has token t and writes token t + 1.
        heads: (block, head) of those wanted; all if not given.

    Returns:
        (B, N, T, S) weights of the N heads; each row sums to 1.

    Chapter: 15, modern.
    Test: test_whisper.py::test_weights_are_those_that_were_used
    """
    with record(model, "cross_weights") as recorded:
        model.decode(tgt, memory)
    weights = torch.stack(recorded["cross_weights"], 1)  # (B, L, H, T, S)
    if heads is None:
        return weights.flatten(1, 2)
    return torch.stack([weights[:, i, h] for i, h in heads], dim=1)


# -- from a file ------------------------------------------------------------

WHISPER_ENCODER = """
encoder.stem.first                   encoder/conv1
encoder.stem.second                  encoder/conv2
encoder.positions                    encoder/position_encodings
encoder.final_norm                   encoder/layer_norm
encoder.blocks.{}.attention_norm     encoder/layer_{}/self_attention/layer_norm
encoder.blocks.{}.attention.w_qkv    encoder/layer_{}/self_attention/linear_0
encoder.blocks.{}.attention.w_o      encoder/layer_{}/self_attention/linear_1
encoder.blocks.{}.feed_forward_norm  encoder/layer_{}/ffn/layer_norm
encoder.blocks.{}.feed_forward.w_in  encoder/layer_{}/ffn/linear_0
encoder.blocks.{}.feed_forward.w_out encoder/layer_{}/ffn/linear_1
"""
WHISPER_DECODER = """
encoder.embedding               decoder/embeddings
positions                       decoder/position_encodings
final_norm                      decoder/layer_norm
blocks.{}.attention_norm        decoder/layer_{}/self_attention/layer_norm
blocks.{}.attention.w_qkv       decoder/layer_{}/self_attention/linear_0
blocks.{}.attention.w_o         decoder/layer_{}/self_attention/linear_1
blocks.{}.cross_attention_norm  decoder/layer_{}/attention/layer_norm
blocks.{}.cross_attention.w_q   decoder/layer_{}/attention/linear_0
blocks.{}.cross_attention.w_kv  decoder/layer_{}/attention/linear_1
blocks.{}.cross_attention.w_o   decoder/layer_{}/attention/linear_2
blocks.{}.feed_forward_norm     decoder/layer_{}/ffn/layer_norm
blocks.{}.feed_forward.w_in     decoder/layer_{}/ffn/linear_0
blocks.{}.feed_forward.w_out    decoder/layer_{}/ffn/linear_1
"""
WHISPER_ENDINGS = {"gamma": "weight", "beta": "bias", "encodings": "weight"}


def load_whisper(folder: str | Path) -> Loaded:
    """Load a Whisper that CTranslate2 has converted.

    Args:
        folder: with model.bin (in float16 or float32) and vocabulary.txt.

    Returns:
        A :class:`SpeechTransformer` and its :class:`BPETokenizer`.

    Raises:
        ValueError: if something is missing, damaged or of another kind.

    Chapter: 15, modern.
    Source: radford2023robust.
    Test: test_pipelines.py::test_whisper_has_the_reference_logits
    """
    path = Path(folder) / "model.bin"
    theirs = _read_weights(path)
    n_encoder = _n_layers(theirs, "encoder/layer_{}/ffn/linear_0.weight")
    n_decoder = _n_layers(theirs, "decoder/layer_{}/ffn/linear_0.weight")
    ours = formats.rename(theirs, WHISPER_ENCODER, path, n_encoder)
    ours |= formats.rename(theirs, WHISPER_DECODER, path, n_decoder)
    if any(not tensor.is_floating_point() for tensor in ours.values()):
        raise ValueError(
            "weights must be float16 or float32 for this loader: got whole "
            f"numbers in {path}. Convert the model without quantization."
        )
    config = SpeechConfig(
        n_heads=int(theirs["decoder.num_heads"]),
        n_encoder_layers=n_encoder,
        n_decoder_layers=n_decoder,
        **_speech_sizes(ours),
    )
    tokenizer = _whisper_tokenizer(Path(folder) / "vocabulary.txt")
    return formats.finish(SpeechTransformer, config, ours, tokenizer, path)


def _read_weights(path: Path) -> formats.Tensors:
    """The weights; ``a/gamma`` is called ``a.weight``."""
    weights = {}
    for name, tensor in formats.read_ct2(path).items():
        module, _, ending = name.rpartition("/")
        weights[f"{module}.{WHISPER_ENDINGS.get(ending, ending)}"] = tensor
    return weights


def _n_layers(tensors: formats.Tensors, name: str) -> int:
    """Count the layers by the name of a weight that each has."""
    return next(n for n in count() if name.format(n) not in tensors)


def _speech_sizes(weights: formats.Tensors) -> dict[str, Any]:
    """The sizes of a configuration, by the shapes of its weights."""
    max_len, d_model = weights["positions.weight"].shape
    return {
        "vocab_size": len(weights["encoder.embedding.weight"]),
        "max_len": max_len,
        "d_model": d_model,
        "d_ff": len(weights["blocks.0.feed_forward.w_in.weight"]),
        "n_mels": weights["encoder.stem.first.weight"].size(1),
        "max_frames": len(weights["encoder.positions.weight"]),
    }


def _whisper_tokenizer(path: Path) -> BPETokenizer:
    """Read ``vocabulary.txt``: BPE tokens, then control tokens, one a line.

    Raises:
        ValueError: if it is missing or has no end of text.
    """
    rule = "a speech model's vocabulary.txt must name <|endoftext|>"
    with formats.reading(rule, path):
        lines = path.read_bytes().decode().rstrip("\n").split("\n")
        end = lines.index("<|endoftext|>")
    tokens = [formats.from_printable(line) for line in lines[:end]]
    return BPETokenizer(tokens, lines[end:])
