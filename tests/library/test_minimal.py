"""The book's files: equal to the library, short, and alone in a folder."""

import ast
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import forked
import pytest
import torch
from compare import plain_seq2seq_stepper, plain_stepper

from coursekit import minimal, minimal_seq2seq, training
from coursekit.bpe import encode_chunk, learn_merges
from coursekit.data import Batch, pad_pairs
from coursekit.generation import generate as library_generate
from coursekit.loss import cross_entropy
from coursekit.optim import make_schedule
from coursekit_classroom import lesson
from coursekit_classroom.dates import date_pairs
from coursekit_classroom.yourfile.saving import library_name, to_library
from results.minimal import settings

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "coursekit"
SIZES = {"vocab_size": 13, "context": 11, "d_model": 35, "n_heads": 5}
TEXT = (
    "ROMEO:\nBut soft! What light through yonder window breaks?\n"
    "It is the east, and Juliet is the sun. Arise, fair sun, and kill\n"
    "the envious moon, who is already sick and pale with grief.\n"
) * 9


def load_seq2seq(edits=()):
    """minimal_seq2seq as a module of its own, with some text replaced."""
    source = (PACKAGE / "minimal_seq2seq.py").read_text("utf8")
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    module = ModuleType("edited")
    module.__package__ = "coursekit"
    exec(compile(source, "<edited>", "exec"), module.__dict__)
    return module


def shaken(model, seed=0):
    """In float64, with weights so large that every part matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.double().parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(0.5 * noise + (weight.dim() == 1))
    return model


def gpt(file=minimal):
    """A GPT of three blocks whose sizes are all different."""
    return shaken(file.GPT(**SIZES, n_blocks=3))


def transformer(file=minimal_seq2seq):
    """An encoder-decoder of three and three blocks."""
    return shaken(file.Transformer(**SIZES, n_blocks=3))


def random_ids(*shape, low=0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, 13, shape, generator=generator)


def random_pairs(n=7, seed=2):
    """Pairs of ids from 3 on, of unequal length, each with its EOS."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(n):
        lengths = torch.randint(1, 10, (2,), generator=generator).tolist()
        draw = [
            torch.randint(3, 13, (k,), generator=generator) for k in lengths
        ]
        pairs.append([[*ids.tolist(), minimal_seq2seq.EOS] for ids in draw])
    return pairs


# -- the same numbers as the library -----------------------------------------
def gpt_results(file=minimal):
    """Logits, loss and gradients of a file's GPT, and the library's."""
    model = gpt(minimal)
    library = to_library(model)
    edited = gpt(file)
    edited.load_state_dict(model.state_dict())
    inputs, targets = random_ids(7, 11), random_ids(7, 11, seed=3)
    ours, theirs = edited(inputs), library(inputs)
    loss = file.cross_entropy(ours, targets)
    loss.backward()
    right = cross_entropy(theirs, targets)
    right.backward()
    return edited, library, (ours, loss), (theirs, right)


def seq2seq_results(file=minimal_seq2seq):
    """The same of an encoder-decoder, on pairs with padding."""
    model = transformer(minimal_seq2seq)
    library = to_library(model)
    edited = transformer(file)
    edited.load_state_dict(model.state_dict())
    pairs = random_pairs()
    torch.manual_seed(5)
    sources, inputs, targets = file.get_batch(pairs, 6)
    is_token = targets != 0
    assert not is_token.all(), "some padding"
    ours = edited(sources, inputs)
    loss = file.loss_of(edited, sources, inputs, targets)
    loss.backward()
    torch.manual_seed(5)
    rows = torch.randint(len(pairs), (6,)).tolist()
    batch = pad_pairs([(pairs[i][0], pairs[i][1][:-1]) for i in rows], 0, 1, 2)
    theirs = library(**batch.inputs)
    right = cross_entropy(theirs, batch.targets)
    right.backward()
    return (
        edited,
        library,
        (ours[is_token], loss),
        (theirs[is_token], right),
    )


def gap(results):
    """The largest difference in logits and loss, and in any gradient."""
    edited, library, ours, theirs = results
    values = max(
        (a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)
    )
    right = {k: p.grad for k, p in library.named_parameters()}
    gradients = 0.0
    for name, weight in edited.named_parameters():
        grad = right.pop(library_name(name))
        own = torch.zeros_like(grad) if weight.grad is None else weight.grad
        gradients = max(gradients, (grad - own).abs().max().item())
    assert not right, "a parameter of the library has no counterpart"
    return values, gradients


def test_gpt_is_the_librarys():
    values, gradients = gap(gpt_results())
    assert values < 1e-10
    assert gradients < 1e-10


@pytest.mark.parametrize(
    "edit",
    [
        ("x = x + self.attention(", "x = self.attention("),
        ("x = x + self.feed_forward(", "x = self.feed_forward("),
        (".tril(n_keys - n_queries)", ".tril(n_keys - n_queries + 1)"),
        (".tril(n_keys - n_queries)", ".tril(n_keys - n_queries - 1)"),
        (" / math.sqrt(q.size(-1))", ""),
        (" + 1e-5", " + 1e-3"),
        ("gelu(self.hidden(x))", "relu(self.hidden(x))"),
        ("self.unembed(self.norm(x))", "self.unembed(x)"),
        ("heads.transpose(1, 2).flatten(2)", "heads.reshape(x.shape)"),
        (" + self.positions(torch.arange(start, end))", ""),
        ("targets.unsqueeze(-1)).mean()", "targets.unsqueeze(-1)).sum()"),
    ],
    ids=lambda edit: edit[0].strip()[:30],
)
def test_an_edited_gpt_is_not_the_librarys(edit):
    values, _ = gap(gpt_results(lesson.load(12, [edit])))
    assert not values < 1e-6  # NaN, too, if a token sees nothing


def test_a_gradient_that_is_cut_is_noticed():
    """Values alone would not show it."""
    cut = [("block(x, mask, past)", "block(x.detach(), mask, past)")]
    values, gradients = gap(gpt_results(lesson.load(12, cut)))
    assert values < 1e-10
    assert gradients > 1e-6


def test_the_encoder_decoder_is_the_librarys():
    values, gradients = gap(seq2seq_results())
    assert values < 1e-10
    assert gradients < 1e-10


@pytest.mark.parametrize(
    "edit",
    [
        ("x = x + self.cross_attention(", "x = self.cross_attention("),
        (
            "block(x, padding_mask(ids), {})",
            "block(x, ids.new_ones(1) > 0, {})",
        ),
        (
            "self.decode(ids, memory, padding_mask(sources), {})",
            "self.decode(ids, memory, ids.new_ones(1) > 0, {})",
        ),
        (
            "self.decode(ids, memory, padding_mask(sources), {})",
            "self.decode(ids, memory, (ids[0, :, None] * sources[:1] * 0"
            " + 1).tril() > 0, {})",
        ),
        ("y = self.norm_cross(x)", "y = x"),
        ("return self.norm(x)  # (B, S, D)", "return x"),
        (
            "minimal.causal_mask(ids.size(1), end)",
            "minimal.causal_mask(ids.size(1), end + 1)[:, :-1]",
        ),
        ("targets[:, :-1], targets[:, 1:]", "targets[:, 1:], targets[:, 1:]"),
        ("logits[is_token], targets[is_token]", "logits, targets"),
    ],
    ids=lambda edit: edit[0].strip()[:30],
)
def test_an_edited_encoder_decoder_is_not_the_librarys(edit):
    values, _ = gap(seq2seq_results(load_seq2seq([edit])))
    assert values > 1e-6


def test_every_choice_of_the_library_that_matters_is_made():
    """With another choice the weights do not fit, or the numbers differ."""
    model = gpt()
    library = to_library(model)
    ids = random_ids(3, 7)
    assert torch.allclose(library(ids), model(ids), rtol=0, atol=1e-10)
    tanh = {"activation": "gelu_tanh"}
    config = type(library.config)(**library.config.to_dict() | tanh)
    other = type(library)(config).double()
    other.load_state_dict(library.state_dict())
    assert (other(ids) - model(ids)).abs().max() > 1e-6


# -- the same training -------------------------------------------------------
def losses_of_gpt(steps, edits=()):
    """Losses of a file's training, and of the library's on its batches."""
    file = lesson.load(12, [("warmup=100", "warmup=7"), *edits])
    model = gpt()
    library = to_library(model)
    ids = random_ids(211)
    torch.manual_seed(5)
    drawn = [minimal.get_batch(ids, 3, model.context) for _ in range(steps)]
    torch.manual_seed(5)
    ours = file.train(model, ids, steps, batch_size=3)
    batches = [[Batch({"ids": a}, b)] for a, b in drawn]
    config = settings(steps, warmup_steps=7)
    state = training.train(
        library, batches.__getitem__, config, progress=False
    )
    return torch.tensor(ours), torch.tensor(state.losses)


def test_training_is_the_librarys():
    ours, theirs = losses_of_gpt(20)
    assert (ours - theirs).abs().max() < 1e-8
    assert ours[-1] < ours[0] - 0.1, "it learns"


@pytest.mark.parametrize(
    "edit",
    [
        ("betas=(0.9, 0.99)", "betas=(0.9, 0.999)"),
        ('{"params": gains, "weight_decay": 0.0}', '{"params": gains}'),
        ("weight_decay=0.1", "weight_decay=0.01"),
        ("model.parameters(), 1.0", "model.parameters(), 9.0"),
        ("peak * (step + 1) / warmup", "peak * step / warmup"),
        ("0.1 + 0.9 * (1 +", "1.0 * (1 +"),
        ("(step + 1 - warmup)", "(step - warmup)"),
    ],
    ids=lambda edit: edit[0].strip()[:30],
)
def test_edited_training_is_not_the_librarys(edit):
    ours, theirs = losses_of_gpt(20, [edit])
    assert (ours - theirs).abs().max() > 1e-8


def test_the_learning_rate_is_the_librarys():
    rates = make_schedule(settings(2000))
    for step in range(2000):  # the library counts updates from 1
        assert minimal.learning_rate(step, 2000) == pytest.approx(
            rates(step + 1), rel=1e-12
        )


def test_training_on_pairs_is_the_librarys():
    pairs, steps = random_pairs(17), 20
    model = transformer()
    library = to_library(model)
    torch.manual_seed(5)
    batches = []
    for _ in range(steps):
        rows = torch.randint(len(pairs), (5,)).tolist()
        chosen = [(pairs[i][0], pairs[i][1][:-1]) for i in rows]
        batches.append([pad_pairs(chosen, 0, 1, 2)])
    torch.manual_seed(5)
    ours = torch.tensor(minimal_seq2seq.train(model, pairs, steps, 5))
    config = settings(steps)
    state = training.train(
        library, batches.__getitem__, config, progress=False
    )
    assert (ours - torch.tensor(state.losses)).abs().max() < 1e-8
    # The control: a batch of its own is another one.
    torch.manual_seed(6)
    others = minimal_seq2seq.train(transformer(), pairs, steps, 5)
    assert (ours - torch.tensor(others)).abs().max() > 1e-3


# -- generation --------------------------------------------------------------
def recomputed(model, ids, n_new):
    """Greedy tokens without a cache; what ``generate`` says it does.

    A window grows to the context; then its last half is read again.
    """
    start = max(0, ids.size(1) - model.context)
    for _ in range(n_new):
        if ids.size(1) - start > model.context:
            start = ids.size(1) - model.context // 2
        logits = model(ids[:, start:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


@pytest.mark.parametrize("length", [1, 5, 11, 17])
def test_the_cache_changes_nothing(length):
    model = gpt()
    prompt = random_ids(3, length)
    found = minimal.generate(model, prompt, 29, top_p=1e-9)
    assert found.shape == (3, length + 29)
    assert torch.equal(found, recomputed(model, prompt, 29))
    assert torch.equal(found[:, :length], prompt)


@pytest.mark.parametrize(
    "edit",
    [
        ("k = torch.cat([past[self][0], k], dim=2)", "pass"),
        ("torch.arange(start, end)", "torch.arange(end - start)"),
        ("model.context // 2", "model.context - 1"),
    ],
)
def test_a_wrong_cache_is_noticed(edit):
    file = lesson.load(12, [edit])
    model = gpt(file)
    prompt = random_ids(3, 5)
    try:
        found = file.generate(model, prompt, 29, top_p=1e-9)
    except RuntimeError:  # five keys, one value
        return
    assert not torch.equal(found, recomputed(gpt(), prompt, 29))


def test_greedy_tokens_are_the_librarys():
    model = gpt()
    prompt = random_ids(1, 3)
    found = minimal.generate(model, prompt, 8, top_p=1e-9)[0].tolist()
    stepper = plain_stepper(to_library(model))
    rows = library_generate(stepper, prompt.tolist(), 8)
    assert found == [*prompt[0].tolist(), *rows[0]]


def test_sampling_keeps_the_fewest_tokens_that_reach_top_p():
    p = torch.tensor([[0.5, 0.05, 0.3, 0.15]], dtype=torch.float64)
    torch.manual_seed(0)
    for top_p, kept in [
        (0.4, {0}),
        (0.5, {0}),
        (0.7, {0, 2}),
        (0.9, {0, 2, 3}),
    ]:
        drawn = {
            minimal.sample(p.log(), 1.0, top_p).item() for _ in range(300)
        }
        assert drawn == kept
    # Temperature by hand: at 2 the ratio 10 : 1 becomes √10 : 1.
    many = p.log().expand(20_000, 4)
    counts = torch.bincount(minimal.sample(many, 2.0, 1.0).flatten())
    assert counts[0] / counts[1] == pytest.approx(math.sqrt(10), rel=0.1)


def test_greedy_translations_are_the_librarys():
    model = transformer()
    with torch.no_grad():  # so that some translations end, and some do not
        model.unembed.weight[minimal_seq2seq.EOS] *= 2
    sources = [source for source, _ in random_pairs()]
    found = minimal_seq2seq.translate(model, sources)
    stepper = plain_seq2seq_stepper(to_library(model), [minimal_seq2seq.BOS])
    rows = list(stream_rows(stepper, sources))
    assert found == rows
    lengths = {len(row) for row in found}
    assert max(lengths) == model.context > min(lengths)
    # One by one they are the same: padding is not looked at.
    alone = [minimal_seq2seq.translate(model, [s])[0] for s in sources]
    assert alone == found


def stream_rows(stepper, sources):
    """The library's greedy translations, up to the EOS."""
    stops = [minimal_seq2seq.EOS]
    rows = library_generate(stepper, sources, stepper.limit, stop_ids=stops)
    for row in rows:
        row = [*row, minimal_seq2seq.EOS]
        yield row[: row.index(minimal_seq2seq.EOS)]


# -- tokenizers --------------------------------------------------------------
UNICODE = "naïve Ωμέγα 東京 🙂🙂 e\u0301 \u200b\tx\r\n\x00_a1  b"


def test_bpe_learns_the_librarys_merges():
    tokenizer = minimal.BPETokenizer(TEXT, 256 + 89)
    words = Counter(minimal.WORD.findall(TEXT))
    chunks = {word.encode(): n for word, n in words.items()}
    assert list(tokenizer.merges) == learn_merges(chunks, 89)
    assert list(tokenizer.merges.values()) == list(range(256, 256 + 89))
    ranks = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    assert len(ranks) == 256 + 89
    for text in (TEXT, UNICODE, "Juliet, arise; the moonlight"):
        right = []
        for word in minimal.WORD.findall(text):
            right += encode_chunk(word.encode(), ranks)
        assert tokenizer.encode(text) == right


def test_ties_go_to_the_smallest_pair():
    tokenizer = minimal.BPETokenizer("dc ba", 257)
    assert list(tokenizer.merges) == [(32, 98)]  # " b", before "ba" and "dc"


def test_a_short_text_ends_the_merging():
    tokenizer = minimal.BPETokenizer("aaa b", 512)
    assert len(tokenizer.vocabulary) == 259  # aa, aaa, " b"
    assert tokenizer.decode(tokenizer.encode("aaa b")) == "aaa b"


@pytest.mark.parametrize("text", [UNICODE, TEXT, "", " ", "🙂"])
def test_text_comes_back(text):
    tokenizer = minimal.BPETokenizer(TEXT, 300)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    characters = minimal.CharTokenizer(text)
    assert characters.decode(characters.encode(text)) == text
    assert characters.vocabulary == sorted(set(text))


def test_merging_goes_from_left_to_right():
    assert minimal.merge([1, 1, 1], (1, 1), 9) == [9, 1]
    assert minimal.merge([9, 1, 2, 1, 2], (1, 2), 9) == [9, 9, 9]
    assert minimal.merge([], (1, 2), 9) == []


def test_batches_are_windows_and_what_follows():
    ids = torch.arange(31)
    inputs, targets = minimal.get_batch(ids, 500, 7)
    assert inputs.shape == targets.shape == (500, 7)
    assert torch.equal(targets, inputs + 1)
    assert set(inputs[:, 0].tolist()) == set(range(24))  # each start, no other


def test_a_whole_text_is_evaluated():
    model = gpt()
    ids = random_ids(11 * 70 + 5)  # more than one batch of windows
    rows = ids[: 11 * 70].view(70, 11)
    targets = ids[1 : 11 * 70 + 1].view(70, 11)
    right = cross_entropy(model(rows), targets).item()
    assert minimal.evaluate(model, ids) == pytest.approx(right, rel=1e-12)


# -- alone in a folder -------------------------------------------------------
def run_alone(folder, name, *words):
    """Run a copied file as a reader would, without the package."""
    return subprocess.run(
        [*forked.python(), name, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        check=False,
    )


def copy(name, folder, steps):
    """A file with fewer steps in its script."""
    source = (PACKAGE / name).read_text("utf8")
    source, n = re.subn(r"steps=\d+\)", f"steps={steps})", source)
    assert n == 1
    (folder / name).write_text(source, "utf8")


def test_the_file_runs_alone(tmp_path):
    copy("minimal.py", tmp_path, steps=3)
    # A tenth of 641 is 65, the context of 64 and one target.
    (tmp_path / "text.txt").write_text(TEXT[:641], "utf8")
    done = run_alone(tmp_path, "minimal.py", "text.txt")
    assert done.returncode == 0, done.stderr
    first, sample = done.stdout.split("\n", 1)
    loss = re.fullmatch(r"held-out loss: (\d\.\d+) nats per token", first)
    assert 1 < float(loss[1]) < 5
    assert len(sample) == 502  # the prompt, 500 tokens, the end of the line
    assert set(sample) <= set(TEXT)


@pytest.mark.parametrize("n", [0, 640])
def test_a_text_too_short_is_refused_before_it_is_learned(tmp_path, n):
    """One character more runs: the test before."""
    copy("minimal.py", tmp_path, steps=1)
    (tmp_path / "text.txt").write_text(TEXT[:n], "utf8")
    done = run_alone(tmp_path, "minimal.py", "text.txt")
    assert done.returncode == 1
    said = "AssertionError: the text is too short to hold out a window"
    assert said in done.stderr


def test_the_encoder_decoder_runs_beside_it(tmp_path):
    copy("minimal.py", tmp_path, steps=3)
    copy("minimal_seq2seq.py", tmp_path, steps=3)
    lines = [f"{source}\t{target}\n" for source, target in date_pairs(97, 0)]
    (tmp_path / "pairs.tsv").write_text("".join(lines), "utf8")
    done = run_alone(tmp_path, "minimal_seq2seq.py", "pairs.tsv")
    assert done.returncode == 0, done.stderr
    first, rest = done.stdout.split("\n", 1)
    assert re.fullmatch(r"loss: \d\.\d{3} nats per token", first)
    assert rest.count(" -> ") == 10
    for line in lines[87:97]:  # the last tenth
        assert line.split("\t")[0] + " -> " in rest
    # The control: it does not run without the file that it imports.
    (tmp_path / "minimal.py").unlink()
    done = run_alone(tmp_path, "minimal_seq2seq.py", "pairs.tsv")
    assert "No module named 'minimal'" in done.stderr


def test_the_encoder_decoder_learns():
    """Reversing three letters; a source ends in EOS, as everywhere."""
    words = torch.cartesian_prod(*[torch.arange(3, 8)] * 3).tolist()
    pairs = [[[*word, 2], [*word[::-1], 2]] for word in words]
    torch.manual_seed(0)
    model = minimal_seq2seq.Transformer(8, 4, 24, n_heads=2, n_blocks=1)
    losses = minimal_seq2seq.train(model, pairs, steps=300)
    assert losses[0] == pytest.approx(math.log(8), abs=0.3)
    found = minimal_seq2seq.translate(model, [pair[0] for pair in pairs])
    right = [ids == word[::-1] for ids, word in zip(found, words, strict=True)]
    assert sum(right) > 0.9 * len(words)


def test_the_files_import_nothing_of_the_package_but_each_other():
    for name in ("minimal.py", "minimal_seq2seq.py"):
        tree = ast.parse((PACKAGE / name).read_text("utf8"))
        roots = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                roots |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                roots.add(node.module.split(".")[0])
        ours = {"torch"} | (
            {"coursekit", "minimal"} if name != "minimal.py" else set()
        )
        assert roots - set(sys.stdlib_module_names) == ours
