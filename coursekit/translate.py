"""Texts in one language in, texts in another out.

A translator is a trained encoder-decoder with the tokenizer of its texts.
What a source and a target look like in ids is said here, once, for training
and for use: the source ends in ``<eos>``; the target begins with ``<bos>``
and ends in ``<eos>``.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from coursekit.generation import beam_search, generate
from coursekit.saved_models import check_vocabulary, load
from coursekit.seq2seq import Transformer
from coursekit.steppers import Seq2SeqStepper
from coursekit.tokenizer import Tokenizer

SPECIALS = ("<pad>", "<bos>", "<eos>")
"""Names of a translator's special tokens, for its tokenizer's training."""
BATCH = 64
"""Texts that are translated at once."""


def special_ids(tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Return the ids of ``<pad>``, ``<bos>`` and ``<eos>``.

    In this order :class:`coursekit.data.Pairs` wants them.

    Args:
        tokenizer: that has special tokens of these names.

    Raises:
        ValueError: if one is missing.

    Chapter: 14, encoder and decoder together.
    """
    names = tokenizer.special_tokens
    if not set(SPECIALS) <= names.keys():
        raise ValueError(
            "a translator's tokenizer needs the special tokens "
            f"{', '.join(SPECIALS)}: got {list(names)}. Train it with "
            "special_tokens=SPECIALS."
        )
    pad, bos, eos = (names[name] for name in SPECIALS)
    return pad, bos, eos


class Translator:
    """Translates texts with a trained model.

    ``translator(["Ein Satz."])`` is a list with one text.

    Args:
        model: the Transformer; in evaluation mode for each call only.
        tokenizer: with which it was trained, see :func:`special_ids`.

    Raises:
        ValueError: if the model is no Transformer, or the tokenizer is
            missing or another model's.

    Chapter: 14, encoder and decoder together.
    Source: vaswani2017attention, sections 5.1 and 6.1.
    Test: test_translate.py::test_a_batch_equals_one_by_one
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer | None) -> None:
        if not isinstance(model, Transformer) or tokenizer is None:
            raise ValueError(
                "a translator needs a Transformer and its tokenizer: got "
                f"{type(model).__name__} and {type(tokenizer).__name__}. "
                "Choose a model that was trained on pairs."
            )
        check_vocabulary(model, tokenizer, "the translator")
        self.model, self.tokenizer = model, tokenizer
        self.pad_id, self.bos_id, self.eos_id = special_ids(tokenizer)

    @classmethod
    def load(
        cls, name: str | Path, device: str | torch.device = "cpu"
    ) -> "Translator":
        """Load a translator that the package ships, or a run's folder.

        Args:
            name: as for :func:`coursekit.load`.
            device: where the model goes.

        Raises:
            ValueError: if there is no such model, or it does not translate.
        """
        return cls(*load(name, device))

    def encode(self, text: str) -> list[int]:
        """Turn a source into ids, as in training: its tokens, then eos.

        Args:
            text: of at least one character that is no space.

        Returns:
            At most ``max_len`` ids.

        Raises:
            ValueError: if the text is blank, longer than the model knows,
                or has what the tokenizer cannot encode.
        """
        if not text.strip():
            raise ValueError(
                f"a source needs text to translate: got {text[:9]!r}. "
                "Leave it out."
            )
        ids = [*self.tokenizer.encode(text), self.eos_id]
        max_len = self.model.config.max_len
        if len(ids) > max_len:
            raise ValueError(
                f"a source may have max_len={max_len} tokens, its end "
                f"included: got {len(ids)}, beginning {text[:20]!r}. Split "
                "it into shorter sentences."
            )
        return ids

    def problem(self, text: str) -> str | None:
        """Say why a text cannot be translated; None if it can.

        Args:
            text: any text.
        """
        try:
            self.encode(text)
        except ValueError as error:
            return str(error)
        return None

    def __call__(
        self,
        texts: Sequence[str],
        n_beams: int = 4,
        length_penalty: float = 1.0,
    ) -> list[str]:
        """Translate texts, those of like length together.

        The same texts always give the same translations.

        Args:
            texts: B sources, each of which has no :meth:`problem`.
            n_beams: beams of the search; 1 takes the likeliest token at
                each step.
            length_penalty: see :func:`coursekit.generation.beam_search`;
                greater values favor longer targets.

        Returns:
            B targets in the order of the texts, each of at most ``max_len``
            tokens, the end included.

        Raises:
            ValueError: if a text cannot be translated, or a number is out
                of range.
        """
        if isinstance(texts, str):
            raise ValueError(
                "texts are a list, even if there is one: got "
                f"{texts[:20]!r}. Write [text]."
            )
        sources = [self.encode(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda i: len(sources[i]))
        by_row: dict[int, Sequence[int]] = {}
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = [sources[i] for i in rows]
            targets = self.search(batch, n_beams, length_penalty)
            by_row |= dict(zip(rows, targets, strict=True))
        return [self.decode(by_row[i]) for i in range(len(texts))]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        n_beams: int,
        length_penalty: float,
    ) -> list[Sequence[int]]:
        """Find the target ids of a batch, without bos and eos.

        Args:
            sources: B lists of ids from :meth:`encode`.
            n_beams, length_penalty: as for a call.

        Returns:
            B lists of ids.
        """
        stepper = Seq2SeqStepper(self.model, [self.bos_id])
        stops = [self.eos_id]
        if n_beams == 1:
            return [*generate(stepper, sources, stepper.limit, stop_ids=stops)]
        # Exhaustive search would go on to max_len for nearly every source:
        # divided by so great a length, any sum may still win.
        searches = beam_search(
            stepper,
            sources,
            n_beams,
            stepper.limit,
            stops,
            length_penalty,
            exhaustive=False,
        )
        return [hypotheses[0].tokens for hypotheses in searches]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn target ids into text; special tokens are no text."""
        specials = (self.pad_id, self.bos_id, self.eos_id)
        return self.tokenizer.decode([i for i in ids if i not in specials])
