"""Three models that others trained, in our modules: the reference's numbers.

The reference is `transformers`: its model built from a config, filled with
the same numbers, whose names are mapped here once more, not by our loaders.
The models need `make models`; without them these tests are skipped.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from compare import close, differ, plain_stepper, shake
from jinja2 import Environment
from references import EAGER, END, GGUF_NAMES, whisper_config
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from coursekit.config import EncoderConfig, SpeechConfig
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.generation import generate
from coursekit.positions import SCHEMES
from coursekit.pretrained.formats import read_ct2, read_gguf
from coursekit.pretrained.pipelines import (
    SpeechStepper,
    align,
    chat,
    chat_ids,
    complete,
    heard,
    sentence_vectors,
    start_ids,
    transcribe,
)
from coursekit.pretrained.published import find_published
from coursekit.pretrained.speech import load_speech
from coursekit.pretrained.whisper import SpeechTransformer
from coursekit.pretrained.wordpiece import WordPieceTokenizer
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import BPETokenizer

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "The animal didn't cross the street because it was too tired."
STORY = SENTENCE + (
    " A reader who sees the word 'it' knows at once what was tired: not the "
    "street, which cannot be, but the animal. To a machine nothing of this is "
    "given. It has to look at the other words and decide how much each of "
    "them matters to the one it is reading now."
)
QUESTION = "What is the capital of France?"


def largest(a, b):
    """The largest difference, for the log of `pytest -s`."""
    gap = (a - b).abs().max().item()
    print(f"\nlargest difference {gap:.1e} at numbers to {b.abs().max():.1f}")
    return gap


# -- the encoder: all-MiniLM-L6-v2 -------------------------------------------
TEXTS = [
    "A musician plays the trumpet.",
    "Someone plays an instrument.",
    "The stock market fell sharply today.",
    "Share prices dropped.",
    "A cat sleeps on the sofa.",
    "Café, 1984: über-naïve (and 中国)!",
]


@pytest.fixture(scope="module")
def minilm(published):
    return published("minilm")


@pytest.fixture(scope="module")
def bert_vectors(minilm):
    """The reference's vectors of TEXTS, with the published tokenizer."""
    folder = find_published("minilm")
    config = BertConfig(
        **json.loads((folder / "config.json").read_bytes()) | EAGER
    )
    theirs = BertModel(config, add_pooling_layer=False).eval()
    weights = load_file(folder / "model.safetensors")
    left = theirs.load_state_dict(weights, strict=False)
    assert left.missing_keys == []
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=0)
    rows = tokenizer.encode_batch(TEXTS)
    ids = torch.tensor([row.ids for row in rows])
    real = torch.tensor([row.attention_mask for row in rows])
    with torch.no_grad():
        x = theirs(ids, attention_mask=real).last_hidden_state
    x = x * real[..., None]
    mean = x.sum(1) / real.sum(1, keepdim=True)
    return ids, x, torch.nn.functional.normalize(mean, dim=-1)


@pytest.mark.xdist_group("minilm")
def test_minilm_has_the_reference_vectors(minilm, bert_vectors):
    """Each token's vector and each sentence's; tokens included."""
    model, tokenizer = minilm
    assert type(model) is Encoder
    assert type(tokenizer) is WordPieceTokenizer
    assert sum(p.numel() for p in model.parameters()) == 22_565_376 - 768
    ids, x, right = bert_vectors
    drop = {0, 101, 102}  # padding, [CLS], [SEP]
    rows = [[i for i in row if i not in drop] for row in ids.tolist()]
    assert [tokenizer.encode(text) for text in TEXTS] == rows
    real = ids != 0
    with torch.no_grad():
        y = model(ids, real[:, None, None]) * real[..., None]
    assert largest(y, x) < 1e-4
    vectors = sentence_vectors(model, tokenizer, TEXTS)
    assert largest(vectors, right) < 1e-5


@pytest.mark.xdist_group("minilm")
def test_minilm_knows_what_is_alike(minilm):
    """Paraphrases are alike, the rest is not; a batch changes nothing."""
    vectors = sentence_vectors(*minilm, TEXTS)
    close(vectors.norm(dim=-1), torch.ones(len(TEXTS)), 1e-5)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.6
    assert alike[2, 3] > 0.6
    assert alike[:2, 2:5].max() < 0.1
    assert alike[4, :4].max() < 0.1
    close(sentence_vectors(*minilm, TEXTS[1:2]), vectors[1:2], 1e-5)


@pytest.mark.xdist_group("minilm")
def test_minilm_needs_the_token_type(minilm, bert_vectors):
    """Control: without the row of type 0 the vectors are others."""
    folder = find_published("minilm")
    weights = load_file(folder / "model.safetensors")
    types = weights["embeddings.token_type_embeddings.weight"]
    model = minilm.model
    with torch.no_grad():
        model.positions.weight -= types[0]
        vectors = sentence_vectors(*minilm, TEXTS)
        model.positions.weight += types[0]
    differ(vectors, bert_vectors[2], by=1e-2)


# -- the decoder: SmolLM2-135M-Instruct --------------------------------------
def halves(rows, heads):
    """Rows of a head: neighbors as pairs, to i and i + half as pairs."""
    apart = rows.unflatten(0, (heads, -1, 2)).transpose(1, 2)
    return apart.flatten(0, 2)


def llama(fields, theirs):
    """The reference, with the weights of a GGUF file."""
    n_heads = fields["llama.attention.head_count"]
    n_kv_heads = fields["llama.attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": fields["llama.rope.freq_base"],
        },
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        **EAGER,
    )
    weights = {"lm_head.weight": theirs["token_embd.weight"]}
    parts = {"token_embd": "embed_tokens", "output_norm": "norm"}
    parts |= {
        f"blk.{i}.{a}": f"layers.{i}.{b}"
        for i in range(config.num_hidden_layers)
        for a, b in GGUF_NAMES.items()
    }
    for gguf, name in parts.items():
        tensor = theirs[f"{gguf}.weight"]
        if gguf.endswith(("attn_q", "attn_k")):
            heads = n_heads if gguf.endswith("q") else n_kv_heads
            tensor = halves(tensor, heads)
        weights[f"model.{name}.weight"] = tensor
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(weights, assign=True)
    return model


def byte_level_bpe(fields):
    """The reference's tokenizer, from the words and merges of the file."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    ids = {token: i for i, token in enumerate(tokens)}
    theirs = Tokenizer(models.BPE(ids, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.pre_tokenizer = pre_tokenizers.Sequence([digits, letters])
    kinds = fields["tokenizer.ggml.token_type"]
    special = [tokens[i] for i, kind in enumerate(kinds) if kind == 3]
    theirs.add_special_tokens(special)
    return theirs, len(special)


@pytest.fixture(scope="module")
def smollm2(published):
    """Ours, the reference's model and tokenizer, and ids from one to other.

    Control tokens come last with us, first in the file.
    """
    loaded = published("smollm2")
    fields, tensors = read_gguf(find_published("smollm2"))
    theirs, n_special = byte_level_bpe(fields)
    return loaded, llama(fields, tensors), theirs, n_special, fields


def to_theirs(ids, n_special, size=49_152):
    return [(i + n_special) % size for i in ids]


@pytest.mark.xdist_group("smollm2")
def test_smollm2_has_the_reference_logits(smollm2):
    """All logits of a text: float32, 30 layers, to 1e-4."""
    (model, tokenizer), reference, _, n_special, _ = smollm2
    assert type(model) is GPT
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    ids = tokenizer.encode(f"{SENTENCE} In 1984,\n\n  the animal")
    right_ids = torch.tensor([to_theirs(ids, n_special)])
    with torch.no_grad():
        y = model(torch.tensor([ids]))
        z = reference(right_ids).logits
    z = z.roll(-n_special, dims=-1)
    assert largest(y, z) < 1e-4


@pytest.fixture(scope="module")
def wrong_pairs(smollm2):
    """The same weights; but RoPE turns i and i + half, not neighbors."""
    model = smollm2[0].model
    config = replace(model.config, position_layout="halves")
    with torch.device("meta"):  # no second 500 MB
        wrong = GPT(config)
    wrong.load_state_dict(model.state_dict(), assign=True)
    wrong.positions = SCHEMES[config.positions](config)  # codes are no weights
    return wrong.eval()


@pytest.mark.xdist_group("smollm2")
def test_smollm2_fails_with_other_pairs(smollm2, wrong_pairs):
    """Control: nothing raises; it still makes words, and understands less.

    A short text is hardly turned, so it may even seem to work.
    """
    (model, tokenizer), *_ = smollm2
    ids = torch.tensor([tokenizer.encode(STORY)])
    with torch.no_grad():
        right, wrong = model(ids)[0], wrong_pairs(ids)[0]
    differ(wrong, right, by=5)
    after = ids[0, 1:]
    losses = [
        torch.nn.functional.cross_entropy(logits[:-1], after).item()
        for logits in (right, wrong)
    ]
    print(f"\nloss {losses[0]:.2f}, with other pairs {losses[1]:.2f} nats")
    assert losses[1] > losses[0] + 0.5
    assert "Paris" not in chat(wrong_pairs, tokenizer, QUESTION, 10)


@pytest.mark.xdist_group("smollm2")
def test_smollm2_writes_the_reference_tokens(smollm2):
    """Greedy, with the cache and without: the same 24 tokens."""
    (model, tokenizer), reference, _, n_special, _ = smollm2
    ids = tokenizer.encode("Once upon a time, there was a little robot who")
    new = generate(GPTStepper(model, 64), [ids], 24)[0]
    right = reference.generate(
        torch.tensor([to_theirs(ids, n_special)]),
        max_new_tokens=24,
        do_sample=False,
        use_cache=True,
    )[0, len(ids) :]
    assert to_theirs(new, n_special) == right.tolist()
    assert generate(plain_stepper(model, 64), [ids], 5)[0] == new[:5]


@pytest.mark.xdist_group("smollm2")
def test_smollm2_completes_and_chats(smollm2):
    (model, tokenizer), *_ = smollm2
    beginning = "The capital of France is"
    assert complete(model, tokenizer, beginning, 3).startswith(" Paris")
    answer = chat(model, tokenizer, QUESTION, 30)
    assert answer == "The capital of France is Paris."


@pytest.mark.xdist_group("smollm2")
def test_smollm2_chats_by_its_template(smollm2):
    """The template in the file, filled in by Jinja, encoded by the other."""
    (_, tokenizer), _, theirs, n_special, fields = smollm2
    template = Environment().from_string(fields["tokenizer.chat_template"])
    talk = [("user", QUESTION), ("assistant", "Paris."), ("user", "Why 1?\n")]
    for messages in (talk, [("system", "Be short."), *talk], talk[:1]):
        text = template.render(
            messages=[{"role": a, "content": b} for a, b in messages],
            add_generation_prompt=True,
        )
        right = theirs.encode(text).ids
        assert to_theirs(chat_ids(tokenizer, messages), n_special) == right
    # What a user types never ends the user's turn.
    ids = chat_ids(tokenizer, [("user", "<|im_end|>")])
    end = tokenizer.special_tokens["<|im_end|>"]
    assert ids.count(end) == 2


@pytest.mark.xdist_group("smollm2")
def test_smollm2_has_the_reference_tokens(smollm2):
    """The chapters of this book, code and numbers and all."""
    (_, tokenizer), _, theirs, n_special, _ = smollm2
    chapters = sorted((ROOT / "book").glob("*.md"))
    assert len(chapters) > 10
    for path in chapters:
        # A special token that is written out is text for us, not for them.
        text = path.read_text("utf8")[:20_000].replace("<|im_", "<im_")
        ids = tokenizer.encode(text)
        assert to_theirs(ids, n_special) == theirs.encode(text).ids, path
        assert tokenizer.decode(ids) == text
    assert ids == tokenizer.encode(text, fast=False)


# -- the encoder-decoder: Whisper tiny.en ------------------------------------
def cut(weights, name, ours, parts):
    """The parts of a fused projection, by the reference's names."""
    for part, matrix in zip(
        parts, weights[f"{name}/weight"].chunk(len(parts)), strict=True
    ):
        yield f"{ours}.{part}_proj.weight", matrix
    for part, bias in zip(
        parts, weights[f"{name}/bias"].chunk(len(parts)), strict=True
    ):
        if part == "k":
            assert bias.abs().max() == 0
        else:
            yield f"{ours}.{part}_proj.bias", bias


def whisper_weights(weights):
    """CTranslate2's names, mapped to the reference's."""
    weights = {
        k: v.float() for k, v in weights.items() if v.is_floating_point()
    }
    found = {
        "model.encoder.embed_positions.weight": weights[
            "encoder/position_encodings/encodings"
        ],
        "model.decoder.embed_positions.weight": weights[
            "decoder/position_encodings/encodings"
        ],
        "model.decoder.embed_tokens.weight": weights[
            "decoder/embeddings/weight"
        ],
        "proj_out.weight": weights["decoder/embeddings/weight"],
    }
    for i in (1, 2):
        for part in ("weight", "bias"):
            conv = weights[f"encoder/conv{i}/{part}"]
            found[f"model.encoder.conv{i}.{part}"] = conv
    norms = {}
    for side in ("encoder", "decoder"):
        norms[f"{side}/layer_norm"] = f"{side}.layer_norm"
        layers = {k.split("/")[1] for k in weights if f"{side}/layer_" in k}
        for i in range(len(layers - {"layer_norm"})):
            a, b = f"{side}/layer_{i}", f"{side}.layers.{i}"
            found |= whisper_layer(weights, a, f"model.{b}")
            norms[f"{a}/self_attention/layer_norm"] = (
                f"{b}.self_attn_layer_norm"
            )
            norms[f"{a}/ffn/layer_norm"] = f"{b}.final_layer_norm"
            if side == "decoder":
                norms[f"{a}/attention/layer_norm"] = (
                    f"{b}.encoder_attn_layer_norm"
                )
    for a, b in norms.items():
        found[f"model.{b}.weight"] = weights[f"{a}/gamma"]
        found[f"model.{b}.bias"] = weights[f"{a}/beta"]
    return found


def whisper_layer(weights, a, b):
    found = {}
    for i, name in enumerate(("fc1", "fc2")):
        for part in ("weight", "bias"):
            found[f"{b}.{name}.{part}"] = weights[f"{a}/ffn/linear_{i}/{part}"]
    fused = [
        ("self_attention/linear_0", "self_attn", ["q", "k", "v"]),
        ("self_attention/linear_1", "self_attn", ["out"]),
    ]
    if "decoder" in a:
        fused += [
            ("attention/linear_0", "encoder_attn", ["q"]),
            ("attention/linear_1", "encoder_attn", ["k", "v"]),
            ("attention/linear_2", "encoder_attn", ["out"]),
        ]
    for name, ours, parts in fused:
        found |= dict(cut(weights, f"{a}/{name}", f"{b}.{ours}", parts))
    return found


@pytest.fixture(scope="module")
def whisper(published):
    """Ours, and the reference with the weights of the same file."""
    loaded = published("whisper")
    config = whisper_config(
        vocab_size=51_864,
        num_mel_bins=80,
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    reference = WhisperForConditionalGeneration(config).eval()
    weights = read_ct2(find_published("whisper") / "model.bin")
    reference.load_state_dict(whisper_weights(weights))
    sound = load_speech()
    features = WhisperFeatureExtractor(feature_size=80)(
        sound.numpy(), sampling_rate=16_000, return_tensors="pt"
    ).input_features
    with torch.no_grad():
        memory = reference.model.encoder(features).last_hidden_state
    return loaded, reference, sound, features, memory


@pytest.mark.xdist_group("whisper")
def test_whisper_has_the_reference_logits(whisper):
    """The encoder's output and the decoder's logits, from the sound on."""
    (model, tokenizer), reference, sound, features, memory = whisper
    assert type(model) is SpeechTransformer
    n_zeros = 3 * 4 * 384  # biases of keys, which the model has not
    n = sum(p.numel() for p in model.parameters()) - n_zeros
    assert n == sum(p.numel() for p in reference.parameters())
    mel = heard(model, sound)
    assert largest(mel, features) < 1e-4
    tgt = torch.tensor([start_ids(tokenizer) + tokenizer.encode(SENTENCE)])
    with torch.no_grad():
        ours = model.encode(features)
        assert largest(ours, memory) < 1e-4
        right = reference(
            encoder_outputs=(memory,), decoder_input_ids=tgt
        ).logits
        assert largest(model.decode(tgt, memory), right) < 1e-4
        assert largest(model(mel, tgt), right) < 1e-2  # mel's own rounding


@pytest.mark.xdist_group("whisper")
def test_whisper_writes_the_reference_tokens(whisper):
    """Greedy with the cache: token by token what the reference takes."""
    (model, tokenizer), reference, _, features, memory = whisper
    start, end = start_ids(tokenizer), tokenizer.special_tokens[END]
    listener = SpeechStepper(model, features, start)
    new = generate(listener, [[0]], 40, stop_ids=[end])[0]
    ids, right = list(start), []
    while len(right) < 40:
        with torch.no_grad():
            logits = reference(
                encoder_outputs=(memory,),
                decoder_input_ids=torch.tensor([ids]),
            ).logits
        token = int(logits[0, -1].argmax())
        if token == end:
            break
        ids.append(token)
        right.append(token)
    assert new == right
    assert len(new) > 10


@pytest.mark.xdist_group("whisper")
def test_whisper_hears_the_sentence(whisper):
    """All of it, as it was spoken; and of silence nothing of the kind."""
    (model, tokenizer), _, sound, *_ = whisper
    assert transcribe(model, tokenizer, sound) == SENTENCE
    silence = torch.zeros(16_000)
    assert "animal" not in transcribe(model, tokenizer, silence, 10)
    # Control: the pitches upside down are no speech.
    upside_down = heard(model, sound).flip(1)
    listener = SpeechStepper(model, upside_down, start_ids(tokenizer))
    wrong = generate(listener, [[0]], 15)[0]
    assert "animal" not in tokenizer.decode(wrong)


@pytest.mark.xdist_group("whisper")
def test_whisper_follows_the_sound(whisper):
    """The heads that were published as such move on with the words."""
    (model, tokenizer), _, sound, *_ = whisper
    pieces, weights = align(model, tokenizer, sound, SENTENCE)
    assert "".join(pieces) == " " + SENTENCE
    assert weights.shape == (len(pieces), -(-len(sound) // 320))
    at = weights.argmax(dim=-1).float()
    assert at[0] < 20
    assert at[-1] > 130
    assert (at[1:-1].diff() >= 0).float().mean() > 0.9
    steps = torch.arange(float(len(at)))

    def order(where):
        both = torch.stack((steps, where.float()))
        return float(torch.corrcoef(both)[0, 1])

    assert order(at) > 0.98
    assert weights.sum(dim=-1).mean() > 0.7
    # Control: played backwards, the sound has none of these words.
    backwards = align(model, tokenizer, sound.flip(0), SENTENCE).weights
    assert order(backwards.argmax(dim=-1)) < 0.6
    assert (
        backwards.max(dim=-1).values.mean() < weights.max(-1).values.mean() / 2
    )


@pytest.mark.xdist_group("whisper")
def test_whisper_has_gpt2s_tokens(whisper):
    (_, tokenizer), *_ = whisper
    gpt2 = BPETokenizer.gpt2()
    assert tokenizer.tokens == gpt2.tokens
    special = list(tokenizer.special_tokens.items())
    assert special[0] == (END, 50_256)
    assert special[1] == ("<|startoftranscript|>", 50_257)
    assert special[-1] == ("<|30.00|>", 51_863)
    assert start_ids(tokenizer) == [50_257, 50_362]


# -- what is refused ---------------------------------------------------------
def small_listener():
    config = SpeechConfig(
        vocab_size=31,
        d_model=42,
        n_heads=3,
        d_ff=29,
        max_len=17,
        max_frames=13,
    )
    model = shake(SpeechTransformer(config)).eval()
    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(3, 80, 26, generator=generator)


def test_a_listener_steps_as_the_model_does():
    """With the cache, several sounds at once: the whole model's logits."""
    model, mel = small_listener()
    listener = SpeechStepper(model, mel, [1, 2])
    assert listener.limit == 16
    with torch.no_grad():
        logits = listener.prefill([[2], [0]])
        tgt = torch.tensor([[1, 2]]).expand(2, -1)
        close(logits, model(mel[[2, 0]], tgt)[:, -1], 1e-5)
        logits = listener.step(torch.tensor([5, 7]))
        tgt = torch.cat((tgt, torch.tensor([[5], [7]])), dim=1)
        close(logits, model(mel[[2, 0]], tgt)[:, -1], 1e-5)


@pytest.mark.parametrize("prompts", [[[3]], [[-1]], [[0, 1]]])
def test_a_prompt_is_the_number_of_a_sound(prompts):
    listener = SpeechStepper(*small_listener(), [1])
    with pytest.raises(ValueError, match=r"0 to 2: got \[\["):
        listener.prefill(prompts)


def test_what_does_not_fit_is_refused():
    model, _ = small_listener()
    with pytest.raises(ValueError, match=r"4160 samples, 0\.26 .* got 4161"):
        heard(model, torch.zeros(4161))
    assert heard(model, torch.zeros(4160)).shape == (1, 80, 26)
    names = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a"]
    tokenizer = WordPieceTokenizer([name.encode() for name in names])
    encoder = Encoder(EncoderConfig(vocab_size=6, d_model=6, n_heads=1))
    with pytest.raises(ValueError, match="at least one prompt"):
        sentence_vectors(encoder, tokenizer, [])


def test_a_long_text_is_cut():
    names = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    tokenizer = WordPieceTokenizer([name.encode() for name in names])
    config = EncoderConfig(vocab_size=7, d_model=6, n_heads=1, max_len=11)
    encoder = shake(Encoder(config))
    texts = ["a " * 9, "a " * 9 + "b"]
    same, cut = sentence_vectors(encoder, tokenizer, texts, max_tokens=11)
    close(same, cut, 1e-6)
