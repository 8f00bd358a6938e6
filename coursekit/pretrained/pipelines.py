"""Pipelines of published models: compare, complete, chat, transcribe.

Each function takes a model and its tokenizer, as
:func:`coursekit.pretrained.published.load_published` gives them, and joins
what other modules do: the tokenizer's ids, the encoder, a stepper with its
cache.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from coursekit.decoder import GPT
from coursekit.devices import evaluating
from coursekit.encoder import Encoder
from coursekit.generation import generate
from coursekit.pretrained.speech import HOP, log_mel
from coursekit.pretrained.whisper import SpeechTransformer, cross_weights
from coursekit.pretrained.wordpiece import WordPieceTokenizer
from coursekit.steppers import (
    GPTStepper,
    Seq2SeqStepper,
    check_prompts,
    pad_rows,
)
from coursekit.tokenizer import BPETokenizer

ALIGNMENT_HEADS = (
    *((1, 0), (2, 0), (2, 5)),
    *((3, 0), (3, 1), (3, 2), (3, 3), (3, 4)),
)
"""(block, head) of tiny.en's cross-attention that follow the sound, as
published with the model."""


# -- sentences ---------------------------------------------------------------


def sentence_vectors(
    model: Encoder,
    tokenizer: WordPieceTokenizer,
    texts: Sequence[str],
    max_tokens: int = 256,
) -> Float[Tensor, "N D"]:
    """Give each text one vector; the dot product tells how alike two are.

    The mean of the tokens' vectors, made as long as 1.

    Args:
        model: as :func:`load_published` gives ``"minilm"``.
        tokenizer: its own.
        texts: N of them.
        max_tokens: longer texts are cut; this one was trained with 256.

    Returns:
        (N, D) vectors of length 1.

    Raises:
        ValueError: if there is no text.

    Chapter: 15, modern.
    Source: reimers2019sentence, section 3.
    """
    special = tokenizer.special_tokens
    rows = [
        [special["[CLS]"], *ids[: max_tokens - 2], special["[SEP]"]]
        for ids in map(tokenizer.encode, texts)
    ]
    check_prompts(rows)
    device = next(model.parameters()).device
    ids, real = pad_rows(rows, False, special["[PAD]"], device)
    with evaluating(model.modules()):
        x = model(ids, real[:, None, None])
    mean = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return mean / mean.norm(dim=-1, keepdim=True)


# -- text --------------------------------------------------------------------

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""Default system message of SmolLM2's training."""


def chat_ids(
    tokenizer: BPETokenizer, messages: Sequence[tuple[str, str]]
) -> list[int]:
    """Write a talk as SmolLM2 has learned to read it.

    Each message stands between ``<|im_start|>`` and ``<|im_end|>``; then
    the assistant's begins, and the model goes on.  What a user types never
    becomes a control token.

    Args:
        tokenizer: SmolLM2's.
        messages: (role, text): system, user, assistant.

    Returns:
        Ids.

    Chapter: 15, modern.
    Test: test_pipelines.py::test_smollm2_chats_by_its_template
    """
    begin = tokenizer.special_tokens["<|im_start|>"]
    end = tokenizer.special_tokens["<|im_end|>"]
    if not messages or messages[0][0] != "system":
        messages = [("system", SYSTEM), *messages]
    ids = []
    for role, text in messages:
        ids += [begin, *tokenizer.encode(f"{role}\n{text}"), end]
        ids += tokenizer.encode("\n")
    return [*ids, begin, *tokenizer.encode("assistant\n")]


def complete(
    model: GPT,
    tokenizer: BPETokenizer,
    text: str | Sequence[int],
    max_new_tokens: int = 40,
) -> str:
    """Go on with a text, greedily, until the model ends it.

    Args:
        model: as :func:`load_published` gives ``"smollm2"``.
        tokenizer: its own.
        text: how it begins, or its ids.
        max_new_tokens: most tokens to write.

    Returns:
        What was written, without the beginning.

    Chapter: 15, modern.
    """
    ids = tokenizer.encode(text) if isinstance(text, str) else list(text)
    stops = {"<|im_end|>", "<|endoftext|>"} & tokenizer.special_tokens.keys()
    stop_ids = [tokenizer.special_tokens[name] for name in stops]
    # A cache as long as is needed, not as the model could take.
    window = min(model.config.max_len, len(ids) + max_new_tokens)
    stepper = GPTStepper(model, window)
    new = generate(stepper, [ids], max_new_tokens, stop_ids=stop_ids)
    return tokenizer.decode(new[0])


def chat(
    model: GPT,
    tokenizer: BPETokenizer,
    messages: str | Sequence[tuple[str, str]],
    max_new_tokens: int = 60,
) -> str:
    """Answer a question.

    Args:
        model, tokenizer, max_new_tokens: as in :func:`complete`.
        messages: what a user says, or a talk, see :func:`chat_ids`.

    Returns:
        The answer.

    Chapter: 15, modern.
    """
    talk = [("user", messages)] if isinstance(messages, str) else messages
    ids = chat_ids(tokenizer, talk)
    return complete(model, tokenizer, ids, max_new_tokens)


# -- speech ------------------------------------------------------------------


class SpeechStepper(Seq2SeqStepper):
    """Steps a speech model: :class:`Seq2SeqStepper`, sounds for sources.

    A prompt is the number of a sound: ``[[0], [1], …]``.

    Args:
        model: the speech model.
        mel: (N, M, C) sounds, as
            :func:`coursekit.pretrained.speech.log_mel` makes.
        start: ids that every transcript begins with.

    Raises:
        ValueError: if ``start`` is empty or fills ``max_len``.

    Chapter: 15, modern.
    """

    def __init__(
        self,
        model: SpeechTransformer,
        mel: Float[Tensor, "N M C"],
        start: Sequence[int],
    ) -> None:
        super().__init__(model, start)
        self.mel = mel

    def prefill(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "B V"]:
        """Listen to the sounds of these numbers.

        Args:
            prompts: B lists of one number each.

        Returns:
            (B, V) logits of the first token.

        Raises:
            ValueError: if there is none, or no sound of that number.
        """
        check_prompts(prompts)
        numbers = [i for prompt in prompts for i in prompt]
        if len(numbers) != len(prompts) or not all(
            0 <= i < len(self.mel) for i in numbers
        ):
            raise ValueError(
                "a prompt must be the number of a sound, 0 to "
                f"{len(self.mel) - 1}: got {list(prompts)}. Write [[0]] for "
                "the first."
            )
        with evaluating(self.model.modules()):
            return self.begin(self.model.encode(self.mel[numbers]))


def start_ids(tokenizer: BPETokenizer) -> list[int]:
    """Token ids that begin a transcript of an English-only Whisper."""
    names = "<|startoftranscript|>", "<|notimestamps|>"
    return [tokenizer.special_tokens[name] for name in names]


def transcribe(
    model: SpeechTransformer,
    tokenizer: BPETokenizer,
    samples: Float[Tensor, "N"],
    max_new_tokens: int = 100,
) -> str:
    """Write down what is said, greedily.

    Args:
        model: as :func:`load_published` gives ``"whisper"``.
        tokenizer: its own.
        samples: (N,) at 16,000 a second, at most 30 seconds of them.
        max_new_tokens: most tokens to write.

    Returns:
        The text.

    Raises:
        ValueError: if the sound is longer than the model can hear at once.

    Chapter: 15, modern.
    Source: radford2023robust.
    """
    mel = heard(model, samples)
    stepper = SpeechStepper(model, mel, start_ids(tokenizer))
    stop = tokenizer.special_tokens["<|endoftext|>"]
    ids = generate(stepper, [[0]], max_new_tokens, stop_ids=[stop])[0]
    return tokenizer.decode(ids).strip()


def heard(
    model: SpeechTransformer, samples: Float[Tensor, "N"]
) -> Float[Tensor, "1 M C"]:
    """The columns of one sound, as long as the model is used to.

    Raises:
        ValueError: if the sound is longer.
    """
    config = model.config
    most = 2 * HOP * config.max_frames
    if len(samples) > most:
        raise ValueError(
            f"a sound may have at most {most} samples, {most / 16000:g} "
            f"seconds: got {len(samples)}. Cut it into pieces."
        )
    mel = log_mel(samples, most / 16000, config.n_mels)
    return mel[None].to(next(model.parameters()))


class Aligned(NamedTuple):
    """A transcript's tokens, and where each listened.

    ``pieces`` are T strings that joined are the text, ``weights`` (T, S)
    shares of attention, one column for 20 ms.
    """

    pieces: list[str]
    weights: Any


def align(
    model: SpeechTransformer,
    tokenizer: BPETokenizer,
    samples: Float[Tensor, "N"],
    text: str,
    heads: Sequence[tuple[int, int]] = ALIGNMENT_HEADS,
) -> Aligned:
    """Find where in a sound each token of its text is spoken.

    The mean of the cross-attention of some heads at the moment when the
    model *writes* the token.

    Args:
        model, tokenizer, samples: as in :func:`transcribe`.
        text: what is said.
        heads: (block, head) of those that follow the sound.

    Returns:
        The pieces and (T, S) weights; S reaches to the end of the sound.
        A row sums to less than 1: the rest went to the silence behind it.

    Chapter: 15, modern.
    Test: test_pipelines.py::test_whisper_follows_the_sound
    """
    start = start_ids(tokenizer)
    ids = tokenizer.encode(" " + text)
    tgt = torch.tensor([start + ids], device=next(model.parameters()).device)
    with evaluating(model.modules()):
        memory = model.encode(heard(model, samples))
        weights = cross_weights(model, memory, tgt, heads).mean(1)[0]
    n_frames = -(-len(samples) // (2 * HOP))
    rows = weights[len(start) - 1 : -1, :n_frames]  # row t writes token t + 1
    return Aligned([tokenizer.decode([i]) for i in ids], rows)
