"""Nothing is lost by a kill or a full disk, and nothing strange is loaded."""

import contextlib
import copy
import dataclasses
import errno
import json
import math
import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import forked
import pytest
import torch
from compare import close, json_damages, plain_stepper, shake
from patience import PATIENCE
from safetensors.torch import load_file, save_file

from coursekit import weights
from coursekit.attention import attend
from coursekit.checkpoint import Saver, load_checkpoint, save_checkpoint
from coursekit.checks import TrainingDiverged
from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    TrainConfig,
    TransformerConfig,
)
from coursekit.data import random_windows, sequential_windows
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.generation import generate
from coursekit.packed import pack
from coursekit.saved_models import (
    create_run,
    load,
    load_model,
    read_config,
    save_model,
)
from coursekit.seq2seq import Transformer
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import BPETokenizer, CharTokenizer
from coursekit.training import evaluate, new_state, train
from coursekit.weights import (
    SaveError,
    average_weights,
    read_tensors,
    read_weights,
    round_weights,
    save_weights,
    write_tensors,
)

CHARS = "abcdefghijklm"
V = len(CHARS)
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))
CONFIG = TrainConfig(steps=11, warmup_steps=2, eval_every=3)


def tiny(seed=3, **changes):
    torch.manual_seed(seed)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 2, "max_len": 7}
    fields |= {"vocab_size": V, "dropout": 0.2}
    return GPT(GPTConfig(**(fields | changes)))


def batches(step):
    return [random_windows(IDS, 3, 7, seed=1, step=step)]


def trained(steps=4, config=CONFIG, **changes):
    """A model and the state of a run that was stopped after some steps."""
    model = tiny(**changes)
    held_out = list(sequential_windows(IDS[:50], 3, 7))
    state = new_state(model, config)
    train(
        model,
        batches,
        config,
        held_out,
        [lambda p: p.step == steps],
        state=state,
    )
    return model, state


def equal_weights(one, other):
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def files(folder):
    return {p.name: p.read_bytes() for p in Path(folder).iterdir()}


# -- killed at any moment ----------------------------------------------------
# The script imports torch once, then forks a child for each life of the run.
# A child is killed at the n-th call of something that touches the disk, or by
# its parent after some milliseconds.
LIVES = '''
import json, os, random, signal, sys, time
from functools import partial
from pathlib import Path
from zipfile import ZipFile
import torch
torch.set_num_threads(1)
from coursekit import checkpoint
from coursekit.checkpoint import Saver, load_checkpoint
from coursekit.saved_models import build_model, create_run, read_config
from coursekit.weights import read_tensors
from coursekit.config import GPTConfig
from coursekit.config import TrainConfig
from coursekit.checkpoint import Saver, load_checkpoint
from coursekit.saved_models import build_model, create_run, read_config
from coursekit.weights import read_tensors
from coursekit.config import GPTConfig
from coursekit.config import TrainConfig
from coursekit.data import random_windows, sequential_windows
from coursekit.decoder import GPT
from coursekit.tokenizer import CharTokenizer
from coursekit.training import new_state, train

CONFIG = TrainConfig(
    steps=37, warmup_steps=3, eval_every=3, checkpoint_every=2, seed=7
)
TOKENIZER = CharTokenizer("abcdefghijklm")
IDS = torch.randint(13, (499,), generator=torch.Generator().manual_seed(5))

def fresh():
    torch.manual_seed(CONFIG.seed)
    return GPT(GPTConfig(vocab_size=13, d_model=22, n_heads=2, n_layers=2,
                         max_len=7, dropout=0.2))

def batches(step):
    return [random_windows(IDS, 3, 7, 1, 2 * step + i) for i in range(2)]

def live(folder):
    model = fresh()
    if not (folder / "config.json").exists():
        create_run(folder, model, TOKENIZER, CONFIG)
    state = new_state(model, CONFIG)
    path = folder / "checkpoint.safetensors"
    if path.exists():
        load_checkpoint(path, model, state)
    torch.manual_seed(random.randrange(10**9))  # chance elsewhere is no help
    saver = Saver(folder, model, state, CONFIG.checkpoint_every)
    held_out = list(sequential_windows(IDS[:80], 3, 7))
    train(model, batches, CONFIG, held_out, [saver], state)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def arm(where, n):
    """Die at the n-th call: before or after a rename, or while writing."""
    real = {"fsync": os.fsync, "replace": os.replace}
    calls = [0]
    def fsync(handle):
        calls[0] += where in ("half", "empty", "whole")
        if calls[0] == n:
            size = os.fstat(handle).st_size
            os.ftruncate(handle, {"half": size // 2, "empty": 0}.get(
                where, size))
            die()
        real["fsync"](handle)
    def replace(source, target):
        calls[0] += where in ("before", "after")
        if calls[0] == n and where == "before":
            die()
        real["replace"](source, target)
        if calls[0] == n and where == "after":
            die()
    os.fsync, os.replace = fsync, replace

def check(folder):
    """After a kill each file that is there is whole."""
    if (folder / "config.json").exists():
        build_model(read_config(folder))
        assert (folder / "tokenizer.json").exists()
    for path in folder.glob("*.safetensors"):
        read_tensors(path)

gold, folder = Path(sys.argv[1]), Path(sys.argv[2])
live(gold)
rng = random.Random(11)
deaths = [(w, n) for n in (1, 2, 3) for w in
          ("half", "before", "after", "empty", "whole")]
deaths += [("time", rng.uniform(0.0, 0.4)) for _ in range(8)]
rng.shuffle(deaths)
killed = lives = 0
while True:
    lives += 1
    where, when = deaths.pop() if deaths else ("never", 0)
    child = os.fork()
    if child == 0:
        if where not in ("time", "never"):
            arm(where, when)
        live(folder)
        os._exit(0)
    if where == "time":
        time.sleep(when)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        killed += 1
        check(folder)
    elif status != 0:
        sys.exit("a life ended with an error")
    else:  # the run is complete
        ours, theirs = ({p.name: p.read_bytes() for p in f.iterdir()}
                        for f in (folder, gold))
        assert ours == theirs
        if where == "never":
            break
        if where != "time":  # it ended before its death: again
            deaths.append((where, when))
        for path in folder.iterdir():
            path.unlink()
print(json.dumps({"killed": killed, "lives": lives}))
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    script = tmp_path / "lives.py"
    script.write_text(LIVES)
    gold, folder = tmp_path / "gold", tmp_path / "killed"
    done = subprocess.run(
        [*forked.python(), script, gold, folder],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["killed"] >= 15
    about = read_tensors(gold / "checkpoint.safetensors")[1]
    assert about["step"] == 37
    # The losses of all steps, the weights, the history, the best weights.
    assert files(folder) == files(gold)


# -- the round trip ----------------------------------------------------------
def test_a_checkpoint_brings_everything_back(tmp_path):
    model, state = trained()
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, state)
    other = tiny(seed=4)
    back = new_state(other, CONFIG)
    assert not equal_weights(model, other)
    load_checkpoint(path, other, back)
    assert equal_weights(model, other)
    assert (back.step, back.tokens) == (4, 84)
    assert (back.losses, back.history) == (state.losses, state.history)
    assert back.best == state.best is not None
    kept, found = state.optimizer.state, back.optimizer.state
    assert len(kept) == len(found) == len(list(model.parameters()))
    others = dict(other.named_parameters())
    for name, weight in model.named_parameters():
        assert kept[weight].keys() == {"step", "exp_avg", "exp_avg_sq"}
        for key, value in kept[weight].items():
            assert torch.equal(found[others[name]][key], value)


def test_a_run_goes_on_with_its_own_optimizer(tmp_path):
    """Or it is refused, before any weight has changed."""
    model, state = trained()
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, state)
    other = tiny(seed=4)
    before = copy.deepcopy(other)
    muon = new_state(other, dataclasses.replace(CONFIG, optimizer="muon"))
    with pytest.raises(ValueError, match="a file of AdamW for"):
        load_checkpoint(path, other, muon)
    other.embedding.weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"not train: embedding\.weight"):
        load_checkpoint(path, other, new_state(other, CONFIG))
    assert equal_weights(other, before)


@pytest.mark.parametrize("lost", [None, "optimizer", "step"])
def test_resuming_needs_each_part_of_the_state(tmp_path, lost):
    """With all of it the losses are equal; the negative controls differ."""
    whole = train(tiny(), batches, CONFIG).losses
    model, state = trained()
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, state)
    other = tiny(seed=4)
    back = new_state(other, CONFIG)
    load_checkpoint(path, other, back)
    if lost == "optimizer":
        back.optimizer = new_state(other, CONFIG).optimizer
    if lost == "step":
        back.step = 0
    train(other, batches, CONFIG, state=back)
    assert (back.losses[:11] == whole) == (lost is None)


MODELS = [
    (GPT, GPTConfig, {}),
    (GPT, GPTConfig, {"tie_embeddings": False, "positions": "rope"}),
    (Encoder, EncoderConfig, {}),
    (Transformer, TransformerConfig, {}),
]


def test_a_zip_is_named_that_lacks_a_file(tmp_path):
    """As one of a folder, whose files have its name before theirs."""
    save_model(tmp_path / "m", tiny())
    packed, nested = tmp_path / "packed.zip", tmp_path / "nested.zip"
    with ZipFile(packed, "w") as whole, ZipFile(nested, "w") as folder:
        for path in (tmp_path / "m").iterdir():
            whole.write(path, path.name)
            folder.write(path, f"m/{path.name}")
    assert equal_weights(load(packed).model, load(tmp_path / "m").model)
    with pytest.raises(ValueError, match=r"nested\.zip .*'config\.json'"):
        load(nested)


@pytest.mark.parametrize(("kind", "config", "changes"), MODELS)
def test_a_model_comes_back_from_its_folder(tmp_path, kind, config, changes):
    fields = {"d_model": 14, "n_heads": 7, "max_len": 11} | changes
    model = kind(config(vocab_size=V, **fields))
    save_model(tmp_path / "m", model, CharTokenizer(CHARS))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    back, tokenizer = load_model(tmp_path / "m")
    assert torch.equal(torch.rand(3), expected)  # no chance was used
    assert type(back) is kind
    assert back.config == model.config
    assert equal_weights(back, model)
    assert not back.training
    assert tokenizer.decode([2, 0, 1]) == "cab"
    assert sorted(files(tmp_path / "m")) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_shared_weights_are_stored_once_and_stay_shared(tmp_path):
    model = tiny()
    model.head = torch.nn.Linear(10, V, bias=False)
    model.head.weight = model.embedding.weight
    save_weights(tmp_path / "w.safetensors", model)
    tensors, _ = read_tensors(tmp_path / "w.safetensors")
    assert "head.weight" not in tensors
    other = tiny(seed=4)
    other.head = torch.nn.Linear(10, V, bias=False)
    other.head.weight = other.embedding.weight
    weights.put_weights(other, tensors, "w")
    assert other.head.weight is other.embedding.weight
    assert equal_weights(model, other)


def test_a_model_without_tokenizer(tmp_path):
    save_model(tmp_path, tiny())
    assert load_model(tmp_path).tokenizer is None


def test_floats_come_back_bit_by_bit(tmp_path):
    values = [0.1, math.pi, 1e-310, 1 / 3]
    write_tensors(tmp_path / "x", {"a": torch.zeros(())}, {"v": values})
    tensors, about = read_tensors(tmp_path / "x")
    assert about == {"v": values}
    assert tensors["a"].shape == ()


def test_the_saver_keeps_the_best_weights(tmp_path):
    """model.safetensors is of the lowest validation loss, not the last."""
    model = tiny()
    config = TrainConfig(steps=6, eval_every=2, learning_rate=0.0)
    state = new_state(model, config)
    saver = Saver(tmp_path, model, state, every=4)
    (tmp_path / "checkpoint.safetensors.77.part").write_bytes(b"cut")
    saver = Saver(tmp_path, model, state, every=4)
    assert files(tmp_path) == {}  # left over from a kill
    seen = []

    def disturb(progress):
        seen.append((progress.step, sorted(files(tmp_path))))
        with torch.no_grad():  # each evaluation is worse than the first
            model.embedding.weight.mul_(3.0)

    best = {}

    def remember(progress):
        if progress.is_best:
            best.clear()
            best.update({k: v.clone() for k, v in model.state_dict().items()})

    held_out = list(sequential_windows(IDS[:50], 3, 7))
    train(model, batches, config, held_out, [remember, saver, disturb], state)
    weights, about = read_tensors(tmp_path / "model.safetensors")
    assert about["validation_loss"] == state.best
    assert about["step"] < 6
    assert all(torch.equal(best[name], weights[name]) for name in weights)
    both = ["checkpoint.safetensors", "model.safetensors"]
    assert seen[1:] == [
        (2, both[1:]),
        (3, both[1:]),
        (4, both),
        (5, both),
        (6, both),
    ]


def test_without_validation_the_latest_weights_are_kept(tmp_path):
    model = tiny()
    state = new_state(model, CONFIG)
    train(
        model, batches, CONFIG, None, [Saver(tmp_path, model, state, 4)], state
    )
    weights, about = read_tensors(tmp_path / "model.safetensors")
    assert about["step"] == 11
    assert torch.equal(weights["embedding.weight"], model.embedding.weight)


def test_a_runs_folder_is_complete_before_the_first_step(tmp_path):
    create_run(
        tmp_path, tiny(), CharTokenizer(CHARS), CONFIG, {"text": "x.txt"}
    )
    fields = read_config(tmp_path)
    assert TrainConfig.from_dict(fields["train"]) == CONFIG
    assert fields["data"] == {"text": "x.txt"}
    assert GPTConfig.from_dict(fields["config"]) == tiny().config


# -- int8 --------------------------------------------------------------------
def steps_of(matrix):
    """The oracle: a 127th of the largest entry of each row."""
    return matrix.abs().flatten(1).amax(1) / 127


@pytest.mark.parametrize(("kind", "config", "changes"), MODELS)
def test_a_rounded_model_is_what_is_loaded(tmp_path, kind, config, changes):
    """Bit by bit; control: without rounding it would not be."""
    fields = {"d_model": 14, "n_heads": 7, "max_len": 11} | changes
    model = shake(kind(config(vocab_size=V, **fields)))
    save_model(tmp_path / "raw", model, CharTokenizer(CHARS), int8=True)
    raw = load_model(tmp_path / "raw").model
    assert not equal_weights(raw, model)
    round_weights(model)
    assert equal_weights(raw, model)  # saving rounds in the same way
    save_model(tmp_path / "m", model, CharTokenizer(CHARS), int8=True)
    back, tokenizer = load_model(tmp_path / "m")
    assert equal_weights(back, model)
    assert back.config == model.config
    assert tokenizer.decode([2, 0, 1]) == "cab"
    assert files(tmp_path / "m") == files(tmp_path / "raw")


def test_a_127th_is_the_same_again():
    """All 2²³ fractions that a float32 can have; control: not x itself."""
    x = torch.arange(2**23, 2**24).float()
    step = x / 127
    assert torch.equal(127 * step / 127, step)
    assert not torch.equal(127 * step, x)


def test_rounding_twice_changes_nothing():
    """Control: if the largest entry is 126.5 steps, the step shrinks."""
    rows = torch.randn(997, 11, generator=torch.Generator().manual_seed(0))
    rows *= 2.0 ** (torch.arange(997) % 111 - 60)[:, None]

    def again(rows):
        packed = weights.to_int8({"w": rows})
        return weights.from_int8(packed)["w"]

    def otherwise(rows):
        steps = steps_of(rows)[:, None] * 127 / 126.5
        return (rows / steps).round() * steps

    once = again(rows)
    assert not torch.equal(once, rows)
    assert torch.equal(again(once), once)
    once = otherwise(rows)
    assert not torch.equal(otherwise(once), once)


def test_a_model_rounded_twice_is_the_same_file(tmp_path):
    model = shake(tiny())
    round_weights(model)
    save_weights(tmp_path / "a", model, int8=True)
    round_weights(model)
    save_weights(tmp_path / "b", model, int8=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_error_is_half_a_step_at_most():
    model = shake(tiny())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    round_weights(model)
    worst = 0.0
    for name, after in model.state_dict().items():
        if after.dim() < 2:
            assert torch.equal(after, before[name])
            continue
        gap = (after - before[name]).abs().double().flatten(1).amax(1)
        steps = steps_of(before[name]).double()
        assert (gap <= 0.5 * steps * (1 + 2.0**-15)).all(), name
        worst = max(worst, float((gap / steps).max()))
    assert worst > 0.45  # control: it is no finer than that, either


def test_each_row_has_its_own_step():
    """Small rows beside a large one keep their digits; one step would not."""
    w = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    w *= torch.tensor([1e-6, 1e-3, 1.0, 1e3, 1e6])[:, None]
    packed = weights.to_int8({"w": w})
    assert packed["w"].dtype == torch.int8
    assert packed["w.scale"].shape == (5,)
    assert (packed["w"].abs().amax(1) == 127).all()
    back = weights.from_int8(packed)["w"]
    assert ((back - w).abs().amax(1) / w.abs().amax(1) < 0.004).all()
    step = w.abs().max() / 127
    assert (((w / step).round() * step)[:3] == 0).all()


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-38, 2.0**-100])
def test_a_row_of_zeros_survives(size):
    """Also dust, of which no 127th could be told from 0."""
    w = torch.full((3, 5), size)
    w[1] = torch.arange(5.0)
    packed = weights.to_int8({"w": w})
    back = weights.from_int8(packed)["w"]
    assert back.isfinite().all()
    assert (back - w).abs().max() <= 2 / 127 + 1e-6
    assert ((back[::2] - w[::2]).abs() <= 2.0**-106).all()
    again = weights.to_int8({"w": back})
    assert torch.equal(weights.from_int8(again)["w"], back)
    if size == 0:
        assert (back[::2] == 0).all()


def test_shared_weights_are_rounded_and_stored_once(tmp_path):
    model = shake(tiny())
    model.head = torch.nn.Linear(10, V, bias=False)
    model.head.weight = model.embedding.weight
    round_weights(model)
    assert model.head.weight is model.embedding.weight
    save_weights(tmp_path / "w", model, int8=True)
    tensors, _ = read_tensors(tmp_path / "w")
    assert {"embedding.weight", "embedding.weight.scale"} <= tensors.keys()
    assert "head.weight" not in tensors
    back = read_weights(tmp_path / "w")["embedding.weight"]
    assert torch.equal(back, model.head.weight)


def test_int8_takes_a_quarter_of_the_bytes(tmp_path):
    """A byte a weight, four bytes a row: measured on the file."""
    model = tiny(vocab_size=211, d_model=134, n_layers=2)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = sum(p.numel() for p in model.parameters() if p.dim() < 2)
    n = sum(p.numel() for p in matrices)
    n_bytes = n + 4 * (sum(p.size(0) for p in matrices) + vectors)
    save_model(tmp_path / "plain", model)
    save_model(tmp_path / "int8", model, int8=True)
    name = "model.safetensors"
    plain, small = (
        (tmp_path / kind / name).stat().st_size for kind in ("plain", "int8")
    )
    assert 0 < small - n_bytes < 6000  # names, shapes, checksum
    assert 0 < plain - 4 * (n + vectors) < 6000
    assert small < 0.28 * plain


def test_what_is_no_matrix_of_floats_is_kept():
    kept = {"b": torch.randn(7), "i": torch.arange(6).view(2, 3)}
    packed = weights.to_int8(kept)
    assert packed.keys() == kept.keys()
    assert all(packed[name] is kept[name] for name in kept)
    assert weights.from_int8(packed) == kept


def test_three_axes_have_a_step_for_each_first_index():
    w = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    packed = weights.to_int8({"w": w})
    assert packed["w"].shape == w.shape
    assert packed["w.scale"].shape == (3,)
    close(weights.from_int8(packed)["w"], w, 0.02)


def test_old_files_still_load(tmp_path):
    """Without int8 nothing changes: the same bytes as a plain write."""
    model = tiny()
    save_model(tmp_path, model)
    own = weights.own_weights(model)
    write_tensors(tmp_path / "old", own, {})
    name = "model.safetensors"
    assert (tmp_path / name).read_bytes() == (tmp_path / "old").read_bytes()
    assert equal_weights(load_model(tmp_path).model, model)
    assert load("running").model.config.d_model == 64  # was shipped before


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_not_rounded(tmp_path, bad):
    model = tiny()
    with torch.no_grad():
        model.blocks[0].attention.w_o.weight[0, 0] = bad
    for call in (
        lambda: round_weights(model),
        lambda: save_model(tmp_path / "m", model, int8=True),
    ):
        with pytest.raises(ValueError, match=r"infinity in blocks\.0\.att"):
            call()
    assert not (tmp_path / "m").exists()


def test_a_matrix_without_its_steps_is_refused(tmp_path):
    model = tiny()
    save_model(tmp_path, model, int8=True)
    path = tmp_path / "model.safetensors"
    tensors, about = read_tensors(path)
    del tensors["embedding.weight.scale"]
    write_tensors(path, tensors, about)
    with pytest.raises(ValueError, match=r"got none for embedding\.weight"):
        load_model(tmp_path)


# -- what is refused ---------------------------------------------------------
@pytest.fixture
def saved(tmp_path):
    """A checkpoint, its path, and a model and a state to load it into."""
    model, state = trained()
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, state)
    other = tiny(seed=4)
    return path, other, new_state(other, CONFIG)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 5000, -1])
def test_a_truncated_checkpoint_is_refused(saved, size):
    path, model, state = saved
    data = path.read_bytes()
    path.write_bytes(data[:size])
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="cut short or damaged") as error:
        load_checkpoint(path, model, state)
    assert str(path) in str(error.value)
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert state.step == 0


@pytest.mark.parametrize("place", [0.001, 0.05, 0.4, 0.7, 0.999])
def test_one_flipped_bit_is_found(saved, place):
    """Also in a weight, where safetensors itself would see nothing."""
    path, model, state = saved
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"checkpoint must (be|have)"):
        load_checkpoint(path, model, state)


def test_safetensors_alone_would_not_find_it(saved):
    """The negative control of the checksum."""
    path, _, _ = saved
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    load_file(path)


class Bomb:
    """Shows that it was unpickled."""

    def __reduce__(self):
        return exec, ("import os; os.environ['BOMB_WENT_OFF'] = '1'",)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", "m.bin"])
@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_pickle_is_refused_and_never_opened(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "torch":
        torch.save({"a": torch.zeros(2), "b": Bomb()}, path)
    else:
        path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="got a pickle") as error:
        read_tensors(path)
    assert str(path) in str(error.value)
    assert "BOMB_WENT_OFF" not in os.environ
    if kind == "pickle":  # the negative control: it is a bomb
        pickle.loads(path.read_bytes())
        assert os.environ.pop("BOMB_WENT_OFF") == "1"


@pytest.mark.parametrize("begin", [b"\x80", b"PK"])
def test_a_length_that_looks_like_a_pickle_is_none(tmp_path, begin):
    """The first bytes of safetensors are a length: any bytes at all."""
    path = tmp_path / "x.safetensors"
    wanted = int.from_bytes(begin, "little")
    for padding in range(max(0, wanted - 400), wanted + 400, 8):
        write_tensors(path, {"a": torch.ones(2)}, {"text": "x" * padding})
        if path.read_bytes().startswith(begin):
            break
    assert path.read_bytes().startswith(begin)
    assert read_tensors(path)[1] == {"text": "x" * padding}


def test_a_foreign_file_is_refused(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="not from this package"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="does not exist"):
        read_tensors(tmp_path / "y.safetensors")


def tensor_damages(tensors):
    """One of each kind dropped, and of other shapes, dtypes and numbers."""
    some = ("losses", "embedding.weight", "0.attention.w_q.weight")
    for name, x in tensors.items():
        if not name.endswith(some):
            continue
        yield f"no {name}", {k: v for k, v in tensors.items() if k != name}
        others = {
            "an axis more": x[None],
            "flat": x.reshape(-1)[:-1],
            "less precise": x.bfloat16(),
            "whole": x.long(),
            "NaN": torch.full_like(x, math.nan),
        }
        for what, other in others.items():
            yield f"{name}: {what}", tensors | {name: other}
    for name in ("optimizer/exp_avg/nope", "optimizer/exp_avg", "nope"):
        yield name, tensors | {name: torch.zeros(2)}
    bare = {k: v for k, v in tensors.items() if "optimizer/" not in k}
    yield "no moments", bare


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_no_damage_is_taken_for_a_checkpoint(tmp_path, monkeypatch, optimizer):
    """The checksum is right each time; PyTorch would crash or go on."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # it takes the time
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    model, state = trained(config=config)
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, state)
    tensors, about = read_tensors(path)
    before = tiny(seed=4)

    def is_refused(tensors, about):
        other = copy.deepcopy(before)
        write_tensors(path, tensors, about)
        with contextlib.suppress(ValueError):
            load_checkpoint(path, other, new_state(other, config))
            return False
        assert equal_weights(other, before)
        return True

    damages = [(w, d, about) for w, d in tensor_damages(tensors)]
    below = [(w, d) for w, d in json_damages(about) if isinstance(d, dict)]
    damages += [(w, tensors, d) for w, d in below if "a" not in d]
    assert [w for w, *d in damages if not is_refused(*d)] == ["best: None"]
    assert not is_refused(tensors, about)  # the control


def test_other_sizes_are_named(saved):
    path, _, _ = saved
    model = tiny(vocab_size=17)
    with pytest.raises(ValueError, match="weights must fit") as error:
        load_checkpoint(path, model, new_state(model, CONFIG))
    text = "embedding.weight has shape (13, 10), the model (17, 10)"
    assert text in str(error.value)
    model = tiny(n_layers=3, bias=False)
    with pytest.raises(ValueError, match=r"is missing.*more\) in") as error:
        load_checkpoint(path, model, new_state(model, CONFIG))
    model = tiny(n_layers=1)
    with pytest.raises(ValueError, match=r"blocks\.1\.\S+ is unknown"):
        load_checkpoint(path, model, new_state(model, CONFIG))


def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    model = tiny()
    with pytest.raises(ValueError, match="got 256 in the tokenizer, 13 in"):
        save_model(tmp_path / "a", model, BPETokenizer.train("abc", 256))
    assert not (tmp_path / "a").exists()
    save_model(tmp_path / "b", model, CharTokenizer(CHARS))
    CharTokenizer(CHARS[::-1]).save(tmp_path / "b" / "tokenizer.json")
    load_model(tmp_path / "b")  # sorted, so it is the same file
    CharTokenizer(CHARS.upper()).save(tmp_path / "b" / "tokenizer.json")
    with pytest.raises(ValueError, match=r"got another in .*tokenizer\.json"):
        load_model(tmp_path / "b")
    # A folder of an earlier release does not say which tokenizer it had.
    fields = json.loads((tmp_path / "b" / "config.json").read_text())
    del fields["tokenizer"]
    (tmp_path / "b" / "config.json").write_text(json.dumps(fields))
    load_model(tmp_path / "b")
    CharTokenizer(CHARS + "xyz").save(tmp_path / "b" / "tokenizer.json")
    with pytest.raises(ValueError, match="got 16 in the tokenizer, 13 in"):
        load_model(tmp_path / "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "must be whole JSON"),
        ("[]", "must have format 1"),
        ('{"format": 99}', "must have format 1"),
        ('{"format": 1, "model": "LSTM", "config": {}}', "got 'LSTM'"),
        ('{"format": 1, "model": [], "config": {}}', r"got \[\]"),
        ('{"format": 1, "model": "GPT"}', "must hold 'config'.*got None"),
        ('{"format": 1, "config": [7]}', r"must hold 'config'.*got \[7\]"),
        ('{"format": 1, "config": {}, "train": 7}', "must hold 'train'"),
        ('{"format": 1, "config": {}, "train": {}}', "must hold 'data'"),
        ('{"format": 1, "model": "GPT", "config": {"d": 1}}', "'d'"),
    ],
)
def test_a_configuration_that_is_none_is_refused(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)


def test_a_configuration_that_asks_for_too_much_is_refused(tmp_path):
    """Before any memory is taken: 2 TB here."""
    save_model(tmp_path, tiny())
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    fields["config"]["max_len"] = 2**31
    fields["config"]["d_model"] = 240
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="weights must fit the model"):
        load_model(tmp_path)


def test_a_device_that_is_not_there_is_refused(tmp_path):
    save_model(tmp_path, tiny())
    with pytest.raises(ValueError, match="got tpu"):
        load_model(tmp_path, "tpu")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="which has none"):
        load_model(tmp_path / "nowhere")


def test_a_compiled_model_is_saved_by_the_model_itself(tmp_path):
    """Or all names would have a prefix, and fit no model."""
    model = torch.compile(tiny())
    for save in (
        lambda: save_model(tmp_path / "m", model),
        lambda: save_weights(tmp_path / "w.safetensors", model),
        lambda: save_checkpoint(
            tmp_path / "c", model, new_state(model, CONFIG)
        ),
    ):
        with pytest.raises(ValueError, match=r"as model\._orig_mod"):
            save()
    assert not [*tmp_path.iterdir()]
    save_model(tmp_path / "m", model._orig_mod)


def test_only_known_models_are_saved(tmp_path):
    with pytest.raises(ValueError, match="got Linear"):
        save_model(tmp_path, torch.nn.Linear(2, 3))


def test_spoiled_weights_do_not_replace_good_ones(saved):
    path, _, _ = saved
    before = path.read_bytes()
    model, state = trained()
    with torch.no_grad():
        model.blocks[0].attention.w_o.weight[0, 0] = math.nan
    with pytest.raises(TrainingDiverged, match="after step 4"):
        save_checkpoint(path, model, state)
    assert path.read_bytes() == before


SPOILED = [
    ("embedding.weight", math.nan),
    ("blocks.0.attention.w_q.weight", math.nan),
    ("blocks.1.feed_forward.w_out.bias", -math.inf),
    ("final_norm.weight", math.inf),
]


def spoil(model, name, bad):
    with torch.no_grad():
        model.get_parameter(name).view(-1)[-1] = bad


@pytest.mark.parametrize(("name", "bad"), SPOILED)
def test_spoiled_weights_are_neither_saved_nor_loaded(tmp_path, name, bad):
    """Each file stays as it was, and the message names the tensor."""
    folder, pattern = tmp_path / "m", "infinity in " + re.escape(name)
    save_model(folder, tiny())
    before = files(folder)
    model, state = trained()
    spoil(model, name, bad)
    saver = Saver(folder, model, state, 1)
    for save in (
        lambda: save_model(folder, model),
        lambda: save_model(folder, model, int8=True),
        lambda: save_weights(folder / "model.safetensors", model),
        lambda: save_weights(folder / "model.safetensors", model, int8=True),
        lambda: save_checkpoint(folder / "new", model, state),
        saver.save,
        lambda: saver.save(best=True, checkpoint=False),
    ):
        with pytest.raises(TrainingDiverged, match=pattern):
            save()
        assert files(folder) == before
    # As a program that does not look would have written it.
    path = folder / "model.safetensors"
    write_tensors(path, weights.own_weights(model), {})
    with pytest.raises(ValueError, match=pattern) as error:
        load_model(folder)
    assert not isinstance(error.value, TrainingDiverged)
    assert str(path) in str(error.value)
    whole = tiny()
    with pytest.raises(ValueError, match=pattern):
        weights.put_weights(whole, read_weights(path), path)
    assert equal_weights(whole, tiny())


def test_a_finite_loss_does_not_show_that_weights_are_finite():
    """Why each weight is looked at: few keys, and PyTorch's kernel on a CPU.

    The readable function shows it.
    """
    model = tiny()
    spoil(model, "blocks.0.attention.w_q.weight", math.nan)
    ids = IDS[None, :3]
    with torch.no_grad():
        assert model.eval()(ids).isfinite().all()
        for block in model.blocks:
            block.attention.attend = attend
        assert model(ids).isnan().any()


@pytest.mark.parametrize("part", ["w_q", "w_k"])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_nan_that_attention_hides_is_told(part, kind):
    """In evaluation and in generation; the last model is the control."""
    for bad in (math.nan, math.inf, 1.0):
        model, windows = tiny(), sequential_windows(IDS[:9], 1, 4)
        spoil(model, f"blocks.1.attention.{part}.{kind}", bad)
        evaluation = partial(evaluate, model, [*windows])
        steppers = (
            lambda m=model: GPTStepper(m),
            lambda m=model: plain_stepper(m),
            lambda m=model: GPTStepper(pack(m)),
        )
        ways = [partial(write, make) for make in steppers] + [evaluation]
        for way in ways:
            if bad == 1.0:
                way()
                continue
            with pytest.raises(ValueError, match="finite number"):
                way()


def write(make):
    return generate(make(), [[3]], 2)


def test_the_largest_finite_weights_are_saved(tmp_path):
    """No sum or square may overflow on the way."""
    model = tiny()
    with torch.no_grad():
        model.embedding.weight.fill_(torch.finfo(torch.float32).max)
    save_model(tmp_path, model)
    assert equal_weights(load_model(tmp_path).model, model)


# -- a full disk -------------------------------------------------------------
def test_a_full_disk_keeps_the_old_checkpoint(saved, monkeypatch):
    path, _, _ = saved
    before = files(path.parent)
    model, state = trained(steps=6)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match="got 'No space left on device'"):
        save_checkpoint(path, model, state)
    assert files(path.parent) == before  # and no temporary file


TINY_DISK = """
import resource, signal, sys
from functools import partial
from pathlib import Path
from zipfile import ZipFile
sys.path[:0] = sys.argv[2:]
import test_checkpoint as t
path = Path(sys.argv[1])
model, state = t.trained(steps=6)
# As on a full disk, write() itself fails after some bytes.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, -1))
try:
    t.save_checkpoint(path, model, state)
except t.SaveError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_write_that_is_cut_off_keeps_the_old_checkpoint(saved):
    path, model, state = saved
    here = Path(__file__).parent
    before = files(path.parent)
    assert len(before[path.name]) > 10_000
    done = subprocess.run(
        [*forked.python(), "-c", TINY_DISK, path, here, here.parent],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "What was there before is intact" in done.stdout
    assert files(path.parent) == before
    load_checkpoint(path, model, state)
    assert state.step == 4


def test_a_run_cannot_be_made_below_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SaveError, match="leave to write"):
        create_run(tmp_path / "file" / "run", tiny())


# -- averaging ---------------------------------------------------------------


def test_the_mean_of_states():
    torch.manual_seed(0)
    states = [{"a": torch.randn(3, 5), "b": torch.randn(7)} for _ in "xyz"]
    mean = average_weights(states)
    for name in ("a", "b"):
        expected = sum(state[name].double() for state in states) / 3
        torch.testing.assert_close(mean[name].double(), expected)
    assert not torch.equal(mean["a"], states[0]["a"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_mean_has_the_dtype_of_its_states(dtype):
    """It is taken exactly: 1 + 2^-40 is 1 in float32."""
    states = [{"a": torch.tensor([x], dtype=dtype)} for x in (1, 1 + 2**-39)]
    mean = average_weights(states)["a"]
    assert mean.dtype == dtype
    assert mean.item() == (1 + 2**-40 if dtype == torch.float64 else 1)


def test_states_of_two_models_have_no_mean():
    with pytest.raises(ValueError, match="different names or shapes"):
        average_weights([{"a": torch.ones(3)}, {"a": torch.ones(5)}])
    with pytest.raises(ValueError, match="got 0"):
        average_weights([])
