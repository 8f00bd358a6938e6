"""Texts in, texts out: alone and in a batch, and what is refused."""

import random
from collections import Counter

import pytest
import torch
from compare import plain_seq2seq_stepper

from coursekit import translate as module
from coursekit.config import GPTConfig, TrainConfig, TransformerConfig
from coursekit.data import Pairs
from coursekit.decoder import GPT
from coursekit.generation import beam_search
from coursekit.saved_models import save_model
from coursekit.seq2seq import Transformer
from coursekit.steppers import Seq2SeqStepper
from coursekit.tokenizer import BPETokenizer, CharTokenizer
from coursekit.training import train
from coursekit.translate import SPECIALS, Translator, special_ids
from coursekit.weights import round_weights

pytestmark = pytest.mark.xdist_group(__name__)  # one of them learns
LETTERS = "abcde "
MAX = 11
TEXTS = ["abc", "d", "eeee eeee", "b a", "cab", "deadbeedca", "e", "acdc"]


def make(seed=3, tokenizer=None, **changes):
    """A translator that has learned nothing."""
    tokenizer = tokenizer or CharTokenizer(LETTERS, SPECIALS)
    fields = {"vocab_size": tokenizer.vocab_size, "max_len": MAX}
    fields |= {"d_model": 14, "n_heads": 7, "dropout": 0.2}
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(**(fields | changes)))
    return Translator(model, tokenizer)


@pytest.fixture
def wild():
    """Has learned nothing, but says other things to other texts.

    In float64, as no rounding may decide between two tokens.
    """
    translator = make(19, tie_embeddings=False)
    with torch.no_grad():
        for p in translator.model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    translator.model.double()
    return translator


def words(n, seed):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 7) for _ in range(n)]
    return ["".join(rng.choices("abcde", k=length)) for length in lengths]


@pytest.fixture(scope="module")
def copier():
    """Learned in a few seconds to say what it reads."""
    translator = make(
        0,
        d_model=32,
        n_heads=1,
        d_ff=64,
        n_encoder_layers=1,
        n_decoder_layers=1,
        norm_first=True,
        final_norm=True,
        dropout=0.0,
    )
    encode = translator.tokenizer.encode
    pairs = [(translator.encode(x), encode(x)) for x in words(2000, 0)]
    batches = Pairs(pairs, 300, *special_ids(translator.tokenizer))
    config = TrainConfig(
        steps=400,
        learning_rate=5e-3,
        warmup_steps=20,
        weight_decay=0.0,
        min_lr_ratio=0.0,
    )
    train(
        translator.model, lambda i: [batches.batch(i)], config, progress=False
    )
    return translator


def right(translator, texts, **options):
    """The share of texts that are copied."""
    found = translator(texts, **options)
    return sum(a == b for a, b in zip(texts, found, strict=True)) / len(texts)


# -- what it says ------------------------------------------------------------
@pytest.mark.parametrize("n_beams", [1, 4])
def test_it_learns_to_copy(copier, n_beams):
    """What encode gives is what search reads; control: untrained."""
    new = words(101, 1)
    assert right(copier, new, n_beams=n_beams) >= 0.95
    assert right(make(), new, n_beams=n_beams) < 0.2


def test_greedy_by_hand(wild):
    """One beam: the model called on the whole prefix, token by token."""
    model, bos = wild.model.eval(), wild.bos_id
    for text in TEXTS:
        src, tgt = torch.tensor([wild.encode(text)]), [bos]
        while len(tgt) <= MAX:
            logits = model(src, torch.tensor([tgt]))
            token = int(logits[0, -1].argmax())
            if token == wild.eos_id:
                break
            tgt.append(token)
        assert wild([text], n_beams=1) == [wild.decode(tgt[1:])]


def test_beams_are_those_of_the_plain_search(wild):
    for penalty in (0.0, 1.0):
        sources = [wild.encode(text) for text in TEXTS]
        stepper = plain_seq2seq_stepper(wild.model, [wild.bos_id])
        rules = (3, MAX, [wild.eos_id], penalty, False)
        found = beam_search(stepper, sources, *rules)
        expected = [wild.decode(best[0].tokens) for best in found]
        assert wild(TEXTS, 3, penalty) == expected


def test_beams_and_penalty_change_what_is_said(wild):
    """Controls: neither argument is lost on the way."""
    assert wild(TEXTS, 1) != wild(TEXTS, 3)
    short, long = (wild(TEXTS, 3, penalty) for penalty in (0.0, 2.0))
    assert sum(map(len, short)) < sum(map(len, long))


# -- batches -----------------------------------------------------------------
@pytest.mark.parametrize("n_beams", [1, 3])
def test_a_batch_equals_one_by_one(wild, monkeypatch, n_beams):
    """Sources of many lengths: nearly each row of a batch is padded."""
    texts = [text[:n] for text in TEXTS for n in range(1, len(text) + 1, 2)]
    alone = [wild([text], n_beams)[0] for text in texts]
    assert len(set(alone)) > 10
    for size in (3, 64):
        monkeypatch.setattr(module, "BATCH", size)
        assert wild(texts, n_beams) == alone


def test_padding_that_is_seen_changes_the_batch(wild, monkeypatch):
    """The control: without its mask a padded batch says something else."""
    alone = [wild([text])[0] for text in TEXTS]
    begin = Seq2SeqStepper.begin
    monkeypatch.setattr(
        Seq2SeqStepper,
        "begin",
        lambda self, memory, _: begin(self, memory),
    )
    assert [wild([text])[0] for text in TEXTS] == alone  # no padding, no mask
    assert wild(TEXTS) != alone


def test_a_batch_equals_one_by_one_when_trained(copier):
    new = words(71, 2)  # two batches
    assert copier(new) == [copier([text])[0] for text in new]


def test_the_order_is_kept(wild, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 3)
    expected = dict(zip(TEXTS, wild(TEXTS), strict=True))
    mixed = random.Random(0).sample(TEXTS * 2, 2 * len(TEXTS))
    assert wild(mixed) == [expected[text] for text in mixed]
    assert wild([]) == []


def test_texts_of_like_length_go_together(wild, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    seen = []
    search = Translator.search

    def spy(self, sources, *rules):
        seen.append([len(source) for source in sources])
        return search(self, sources, *rules)

    monkeypatch.setattr(Translator, "search", spy)
    wild(TEXTS)
    lengths = [length for batch in seen for length in batch]
    assert lengths == sorted(len(text) + 1 for text in TEXTS)
    assert Counter(map(len, seen)) == {2: 4}


def test_the_same_every_time_and_no_trace(wild):
    """Neither dropout nor chance; training mode and chance stay."""
    wild.model.train()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = wild(TEXTS)
    assert torch.equal(torch.rand(3), expected)
    assert all(part.training for part in wild.model.modules())
    assert wild(TEXTS) == first
    wild.model.eval()
    assert wild(TEXTS) == first


# -- lengths -----------------------------------------------------------------
@pytest.mark.parametrize("n_beams", [1, 3])
def test_a_target_has_at_most_max_len_tokens(wild, n_beams):
    sources = [wild.encode(text) for text in TEXTS]
    rows = wild.search(sources, n_beams, 1.0)
    assert max(map(len, rows)) == MAX
    assert wild.eos_id not in {i for row in rows for i in row}


def test_problems():
    translator = make()
    for blank in ("", " ", "\n", "\t  "):
        problem = translator.problem(blank)
        assert problem.startswith(
            f"a source needs text to translate: got {blank!r}"
        )
    longest = "a" * (MAX - 1)
    assert translator.problem(longest) is None
    problem = translator.problem(longest + "b")
    assert f"max_len={MAX} tokens" in problem
    assert f"got {MAX + 1}, beginning 'aaaaaaaaaab'. Split" in problem
    assert "got 'x' (U+0078) at index 1" in translator.problem("axe")
    assert make(tokenizer=BPE).problem("half \ud83d a pair") is not None
    for bad in ("", longest + "b", "axe"):
        with pytest.raises(ValueError, match="got") as error:
            translator(["abc", bad])
        assert str(error.value) == translator.problem(bad)
    assert len(translator([longest])) == 1


def test_one_text_alone_is_refused():
    with pytest.raises(ValueError, match=r"got 'abc'. Write \[text\]"):
        make()("abc")


@pytest.mark.parametrize("rules", [(0, 1.0), (3, -1.0), (-1, 1.0)])
def test_numbers_out_of_range(rules):
    with pytest.raises(ValueError, match=f"got n_beams={rules[0]}, length"):
        make()(["abc"], *rules)


# -- special tokens ----------------------------------------------------------
BPE = BPETokenizer.train("ein Satz und noch ein Satz", 263, SPECIALS)


def test_special_ids_are_found_by_name():
    assert special_ids(BPE) == (263, 264, 265)
    mixed = CharTokenizer("ab", ["<eos>", "<mask>", "<pad>", "<bos>"])
    assert special_ids(mixed) == (4, 5, 2)


def test_a_source_is_its_ids_and_eos():
    translator = make(tokenizer=BPE, max_len=31)
    text = "noch ein <eos> Satz"
    *ids, end = translator.encode(text)
    assert end == BPE.special_tokens["<eos>"]
    assert max(ids) < 263  # what a user types is no special token
    assert BPE.decode(ids) == text


def test_special_tokens_are_no_text():
    translator = make(tokenizer=BPE)
    assert translator.decode([264, 101, 263, 105, 110, 265]) == "ein"
    assert translator.decode([]) == ""


# -- what is refused ---------------------------------------------------------
def test_a_tokenizer_without_the_special_tokens_is_refused():
    tokenizer = CharTokenizer(LETTERS, ["<bos>", "<eos>"])
    with pytest.raises(ValueError, match=r"got \['<bos>', '<eos>'\]\. Train"):
        make(tokenizer=tokenizer)


def test_a_tokenizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="got 266 in the tokenizer, 9 in"):
        Translator(make().model, BPE)


def test_what_is_no_translator_is_refused(tmp_path):
    gpt = GPT(GPTConfig(vocab_size=7, d_model=14, n_layers=1, n_heads=2))
    with pytest.raises(ValueError, match="got GPT and CharTokenizer"):
        Translator(gpt, CharTokenizer("abcdefg"))
    with pytest.raises(ValueError, match="got Transformer and NoneType"):
        Translator(make().model, None)
    with pytest.raises(ValueError, match="got GPT and BPETokenizer"):
        Translator.load("running")
    with pytest.raises(ValueError, match="got 'nowhere'"):
        Translator.load("nowhere")


# -- files -------------------------------------------------------------------
def test_a_rounded_translator_says_the_same_from_its_file(copier, tmp_path):
    model = Transformer(copier.model.config)
    model.load_state_dict(copier.model.state_dict())
    round_weights(model)
    save_model(tmp_path, model, copier.tokenizer, int8=True)
    loaded = Translator.load(tmp_path)
    new = words(101, 3)
    assert loaded(new) == Translator(model, copier.tokenizer)(new)
    assert right(loaded, new) >= 0.9
