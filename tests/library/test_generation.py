"""Generating with a stepper, one token at a time."""

import math
from functools import partial

import pytest
import torch
from compare import plain_stepper
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.generation import beam_search, generate, stream
from coursekit.sampling import (
    sampler,
)
from coursekit.steppers import (
    pad_rows,
)

PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]  # 5, 2, 7


class TreeStepper:
    """Gives the probabilities that a function of the new tokens says."""

    limit = None

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def prefill(self, prompts):
        self.rows = [() for _ in prompts]
        return self.read()

    def step(self, tokens):
        pairs = zip(self.rows, tokens.tolist(), strict=True)
        self.rows = [(*row, token) for row, token in pairs]
        return self.read()

    def reorder(self, index):
        self.rows = [self.rows[i] for i in index.tolist()]

    def read(self):
        rows = [self.probabilities(row) for row in self.rows]
        return torch.tensor(rows, dtype=torch.float64).log()


def markov(seed, vocab_size):
    """Random probabilities of the next token given the last and the time.

    Without the time, texts with the same transitions in another order tie.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(13, vocab_size + 1, vocab_size, generator=generator)
    table = (3 * table.double()).softmax(dim=-1)
    return lambda row: table[len(row), row[-1] if row else -1].tolist()


def make_gpt(**changes):
    settings = {
        "vocab_size": 11,
        "max_len": 23,
        "d_model": 24,
        "n_heads": 4,
        "n_layers": 2,
        "init_std": 0.3,
        **changes,
    }
    torch.manual_seed(0)
    return GPT(GPTConfig(**settings)).eval()


# --- writing -------------------------------------------------------------
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("write", [generate, partial(beam_search, n_beams=2)])
def test_logits_that_are_no_numbers_are_refused(write, bad):
    """They would be read as a text of token 0."""
    stepper = TreeStepper(lambda text: (0.5, bad, 0.5))
    with pytest.raises(ValueError, match="must be a finite number"):
        write(stepper, [[0]], max_new_tokens=3)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (None, r"of at least 0: got -1\. Ask for 0 or more\."),
        (7, r"in 0\.\.7: got -1\. Ask .* up to the 7 that"),
    ],
)
def test_too_few_new_tokens_name_the_range_that_there_is(limit, message):
    """A stepper without a limit has no max_len that would set one."""
    stepper = TreeStepper(lambda text: (0.5, 0.5))
    stepper.limit = limit
    with pytest.raises(ValueError, match=message):
        generate(stepper, [[0]], max_new_tokens=-1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n_good", [1, 2])
@pytest.mark.parametrize(
    "write",
    [
        generate,
        partial(generate, choose=sampler()),
        partial(beam_search, n_beams=1),
        partial(beam_search, n_beams=2, stop_ids=[2]),
    ],
)
def test_logits_that_are_no_numbers_later_are_refused(write, n_good, bad):
    """Also in one row of several, and after tokens that were good."""

    class Late(TreeStepper):
        def read(self):
            logits = super().read()
            if len(self.rows[0]) >= n_good:
                logits[-1, 1] = bad
            return logits

    good = TreeStepper(lambda text: (0.2, 0.3, 0.5))
    assert len(write(good, [[0], [1]], max_new_tokens=3)) == 2
    late = Late(good.probabilities)
    assert len(write(late, [[0], [1]], max_new_tokens=n_good)) == 2
    with pytest.raises(ValueError, match="must be a finite number"):
        write(late, [[0], [1]], max_new_tokens=3)


def test_a_row_that_has_ended_may_be_no_number():
    """Nobody reads what comes after a stop token."""

    class Ended(TreeStepper):
        def read(self):
            logits = super().read()
            if len(self.rows[0]) == 2:
                logits[0] = math.nan
            return logits

    def choose(logits):  # row 0 stops at once
        return torch.tensor([1, 0])

    stepper = Ended(lambda text: (0.4, 0.6))
    written = generate(stepper, [[0], [0]], 3, choose, stop_ids=[1])
    assert written == [[], [0, 0, 0]]


@pytest.mark.parametrize("penalty", [-1.0, math.nan, 11.0, math.inf])
def test_a_length_penalty_out_of_range(penalty):
    """1000 would overflow at two tokens."""
    stepper = TreeStepper(markov(0, 3))
    with pytest.raises(ValueError, match=r"in 0\.\.10: got"):
        beam_search(stepper, [[0]], 2, 4, length_penalty=penalty)


def test_stop_tokens_end_a_row_for_good():
    """Row b writes b, b + 1, ... and stops at 3 (mod 5); then None."""

    class Counter(TreeStepper):
        def prefill(self, prompts):
            self.rows = [tuple(prompt) for prompt in prompts]
            return self.read()

    def successor(row):
        return [float((row[-1] + 1) % 5 == i) for i in range(5)]

    batch = [[0], [1], [4]]
    steps = list(stream(Counter(successor), batch, 7, stop_ids={3}))
    assert steps == [[1, 2, 0], [2, None, 1], [None, None, 2]]
    rows = generate(Counter(successor), batch, 7, stop_ids={3})
    assert rows == [[1, 2], [2], [0, 1, 2]]
    rows = generate(Counter(successor), batch, 2, stop_ids={3})
    assert rows == [[1, 2], [2], [0, 1]]  # two were cut by the budget
    rows = generate(Counter(successor), torch.tensor(batch), 3)
    assert rows == [[1, 2, 3], [2, 3, 4], [0, 1, 2]]
    assert generate(Counter(successor), batch, 0) == [[], [], []]


def test_stream_computes_no_further_than_it_is_read():
    calls = []

    def probabilities(row):
        calls.append(row)
        return [0.25, 0.75]

    tokens = stream(TreeStepper(probabilities), [[0]], 1000)
    assert [next(tokens) for _ in range(3)] == [[1], [1], [1]]
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "at least one prompt: got none"),
        ([[1], []], "got an empty prompt in row 1 of 2"),
        (torch.zeros(2, 0, dtype=torch.long), "empty prompt in row 0 of 2"),
        (torch.tensor([1, 2]), r"got \[1, 2\]"),
    ],
)
def test_bad_prompts_are_refused_at_the_call(prompts, message):
    stepper = TreeStepper(markov(0, 3))
    for write in (stream, generate):
        with pytest.raises(ValueError, match=message):
            write(stepper, prompts, 5)
    with pytest.raises(ValueError, match=message):
        beam_search(stepper, prompts, 2, 5)
    if isinstance(prompts, list):
        with pytest.raises(ValueError, match=message):
            plain_stepper(make_gpt()).prefill(prompts)


# --- the same texts as transformers --------------------------------------

EOS, PAD = 2, 0


class GPT2Stepper(TreeStepper):
    """Their model behind our protocol: both searches see one model."""

    def __init__(self, model):
        self.model = model

    def prefill(self, prompts):
        self.rows = [tuple(prompt) for prompt in prompts]
        return self.read()

    @torch.no_grad()
    def read(self):
        ids, real = pad_rows(self.rows, left=True, pad_id=PAD)
        return self.model(
            input_ids=ids,
            attention_mask=real.long(),
            position_ids=(real.cumsum(1) - 1).clamp(min=0),
        ).logits[:, -1]


class MarianStepper(TreeStepper):
    def __init__(self, model):
        self.model = model

    def prefill(self, prompts):
        self.sources = [list(prompt) for prompt in prompts]
        self.rows = [(PAD,) for _ in prompts]
        return self.read()

    def reorder(self, index):
        super().reorder(index)
        self.sources = [self.sources[i] for i in index.tolist()]

    @torch.no_grad()
    def read(self):
        ids, real = pad_rows(self.sources, left=False, pad_id=PAD)
        return self.model(
            input_ids=ids,
            attention_mask=real.long(),
            decoder_input_ids=torch.tensor(self.rows),
        ).logits[:, -1]


def their_gpt2(seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=13,
        n_positions=64,
        n_embd=24,
        n_layer=2,
        n_head=4,
        initializer_range=0.35,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return GPT2LMHeadModel(config).eval()


def their_marian(seed):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=13,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        init_std=0.35,
        eos_token_id=EOS,
        pad_token_id=PAD,
        bos_token_id=1,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


FAMILIES = {
    "gpt2": (their_gpt2, GPT2Stepper, True),
    "marian": (their_marian, MarianStepper, False),
}


def their_texts(model, prompts, left, **settings):
    """What their ``generate`` writes, cut as ours is."""
    ids, real = pad_rows(prompts, left=left, pad_id=PAD)
    found = model.generate(
        ids,
        attention_mask=real.long(),
        max_new_tokens=11,
        do_sample=False,
        forced_eos_token_id=None,
        bad_words_ids=None,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    rows = found.sequences[:, ids.size(1) if left else 1 :].tolist()
    texts = [row[: row.index(EOS)] if EOS in row else row for row in rows]
    return texts, getattr(found, "sequences_scores", None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_writes_what_transformers_writes(family, seed):
    make, kind, left = FAMILIES[family]
    model = make(seed)
    theirs, _ = their_texts(model, PROMPTS, left, num_beams=1)
    ours = generate(kind(model), PROMPTS, 11, stop_ids={EOS})
    assert ours == theirs
