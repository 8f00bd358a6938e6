"""Two processes do what one does; when one dies, the other says so.

The oracle is the run in one process, here in pytest's own.  The processes
are real: torchrun starts this file, see the end, or the command line.
"""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch
from patience import PATIENCE

from coursekit import cli, distributed
from coursekit.checkpoint import Saver, load_checkpoint, save_checkpoint
from coursekit.cli.reporter import Reporter
from coursekit.config import GPTConfig, TrainConfig, TransformerConfig
from coursekit.data import Batch, pad_pairs, random_windows
from coursekit.decoder import GPT
from coursekit.distributed import (
    check_same_step,
    connect,
    gather_state,
    replicate,
    shard,
    shard_batch,
)
from coursekit.seq2seq import Transformer
from coursekit.training import (
    SINGLE_PROCESS,
    ProcessGroup,
    evaluate,
    new_state,
    seed_step,
    train,
)
from coursekit.weights import read_tensors

pytestmark = pytest.mark.xdist_group(__name__)  # the runs are made once
ROOT = Path(__file__).resolve().parents[2]
V = 13
IDS = torch.randint(V, (499,), generator=torch.Generator().manual_seed(5))
CONFIG = TrainConfig(
    steps=7,
    warmup_steps=2,
    learning_rate=0.02,
    max_grad_norm=0.5,
    eval_every=3,
)
ENGINES = ["ddp", "fsdp"]


def tiny(**changes):
    torch.manual_seed(3)
    fields = {"d_model": 10, "n_heads": 2, "n_layers": 3, "max_len": 7}
    return GPT(GPTConfig(vocab_size=V, **(fields | changes)))


def uneven(rows, step):
    """A batch whose odd rows, one process's, have few targets that count."""
    batch = random_windows(IDS, rows, 7, seed=1, step=step)
    batch.targets[1::2, 1:] = -100
    return batch


def batches(step):
    """Micro-batches of 5 and 3 rows: 3 and 2 in one process, 2 and 1 here."""
    return [uneven(5, 2 * step), uneven(3, 2 * step + 1)]


HELD_OUT = [uneven(5, 1001), uneven(3, 1002), uneven(1, 1003)]


def translator():
    torch.manual_seed(3)
    config = TransformerConfig(
        vocab_size=V,
        d_model=14,
        n_heads=2,
        n_encoder_layers=1,
        n_decoder_layers=1,
        dropout=0.0,
    )
    return Transformer(config)


def pairs(step):
    """Sentences of 1 to 7 tokens, translated; padded."""
    sizes = [(3, 7), (5, 2), (2, 1), (7, 5), (1, 2)]
    ids = IDS[step:].tolist()
    return [pad_pairs([(ids[:a], ids[a : a + b]) for a, b in sizes], 0, 1, 2)]


# -- without processes -------------------------------------------------------
def rows_of(shares):
    """First tokens of the rows that some process counts targets of."""
    return sorted(
        int(ids[0])
        for part in shares
        for ids, targets in zip(part.inputs["ids"], part.targets, strict=True)
        if (targets != -100).any()
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 11])
def test_each_row_has_one_process(rows, size):
    ids = torch.arange(rows * 5).view(rows, 5)
    batch = Batch({"ids": ids}, ids + 1)
    shares = [
        shard_batch(batch, ProcessGroup(rank, size)) for rank in range(size)
    ]
    assert rows_of(shares) == list(range(0, rows * 5, 5))
    assert sum(part.n_targets for part in shares) == batch.n_targets
    counts = [len(part.targets) for part in shares]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1  # all take part in each step
    # The negative control: shares that overlap are noticed.
    if size > 1:
        shares[1] = shares[0]
        assert rows_of(shares) != list(range(0, rows * 5, 5))


def test_a_share_keeps_each_rows_mask():
    (batch,) = pairs(0)
    part = shard_batch(batch, ProcessGroup(1, 2))
    assert part.inputs["src_mask"].shape == (2, 1, 1, 7)
    for name, x in batch.inputs.items():
        assert torch.equal(part.inputs[name], x[[1, 3]])


def test_an_input_that_is_not_by_rows_is_refused():
    batch = Batch({"ids": IDS[:7]}, IDS[:6].view(2, 3))
    with pytest.raises(ValueError, match=r"got \{'ids': 7\} and 2 rows"):
        shard_batch(batch, ProcessGroup(0, 2))


def test_processes_draw_different_dropout():
    drawn = []
    with torch.random.fork_rng(devices=[]):
        for name in [(0, 4), (0, 4, 0), (0, 4, 1), (0, 4, 1), (0, 4, 2)]:
            seed_step(*name)
            drawn.append(tuple(torch.rand(3).tolist()))
    assert drawn[0] == drawn[1]  # the first draws what one alone does
    assert drawn[2] == drawn[3]
    assert len(set(drawn)) == 3


def test_all_must_start_from_the_same_step():
    check_same_step(7, SINGLE_PROCESS)
    check_same_step(
        7, ProcessGroup(1, 2, lambda number: number + 7 * (number > 1))
    )
    steps = iter([7.0 + 4, 2.0])  # the sums that two processes would get
    with pytest.raises(ValueError, match=r"got step 7 in rank 1, 5\.5 on"):
        check_same_step(7, ProcessGroup(1, 2, lambda number: next(steps)))


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def pretend(monkeypatch, **changes):
    """As torchrun would start the third process of a machine."""
    variables = dict.fromkeys(distributed.LAUNCHED, "2") | changes
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_without_torchrun_the_remedy_is_named(monkeypatch):
    pretend(monkeypatch)
    monkeypatch.delenv("RANK")
    with (
        pytest.raises(ValueError, match=r"without RANK\. Start it as torchru"),
        connect(CPU),
    ):
        pass


def test_a_device_that_cannot_share_is_refused(monkeypatch):
    pretend(monkeypatch)
    with (
        pytest.raises(ValueError, match=r"got mps\. Add --device cpu"),
        connect(torch.device("mps")),
    ):
        pass


@pytest.mark.parametrize(
    ("device", "name", "lacking"),
    [
        (CPU, "is_available", "gloo"),
        (CPU, "is_gloo_available", "gloo"),
        (CUDA, "is_nccl_available", "nccl"),
    ],
)
def test_a_pytorch_that_lacks_a_backend_is_told(
    monkeypatch, device, name, lacking
):
    pretend(monkeypatch)
    monkeypatch.setattr(distributed.dist, name, lambda: False)
    with (
        pytest.raises(ValueError, match=f"got a PyTorch without {lacking}"),
        connect(device),
    ):
        pass


def test_more_processes_than_gpus_are_refused(monkeypatch):
    pretend(monkeypatch)
    monkeypatch.setattr(distributed.dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(ValueError, match="got at least 3 processes and 2 GPUs"),
        connect(CUDA),
    ):
        pass


def test_the_command_says_what_is_missing(monkeypatch, capsys, tmp_path):
    words = ["train", "--out", str(tmp_path / "r"), "--device", "cpu"]
    for name in distributed.LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    assert cli.main([*words, "--parallel", "ddp"]) == 2
    assert "Start it as torchrun" in capsys.readouterr().err
    pretend(monkeypatch)
    assert cli.main(words) == 2
    assert "Add --parallel ddp" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


# -- two processes -----------------------------------------------------------
def launch(*words, worker=None):
    """Run words in two processes by torchrun; exit code and output."""
    command = [*forked.python(), "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", "2", *map(str, words)]
    variables = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        # What torchrun starts: forks as well, which have loaded torch.
        "PYTHON_EXEC": worker or forked.executable(*forked.LIBRARIES),
    }
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        encoding="utf8",
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def alone():
    """What one process does with the same batches."""
    return {
        "gpt": follow(tiny(), batches, HELD_OUT, SINGLE_PROCESS),
        "translator": follow(translator(), pairs, pairs(90), SINGLE_PROCESS),
    }


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What each of two processes noted, and the folder of checkpoints."""
    folder = tmp_path_factory.mktemp("together")
    state = new_state(model := tiny(), CONFIG)
    train(model, batches, CONFIG, HELD_OUT, [stop_at(3)], state)
    save_checkpoint(folder / "alone.safetensors", model, state)
    ended = launch(__file__, "notes", folder)
    assert ended.returncode == 0, ended.stderr
    texts = [(folder / f"{r}.json").read_text() for r in (0, 1)]
    return folder, [json.loads(text) for text in texts]


def follow(model, batches, held_out, group, state=None, config=CONFIG):
    """Train, and note all numbers that should be the same."""
    records = []
    state = state or new_state(model, config)
    train(
        model,
        lambda step: [shard_batch(batch, group) for batch in batches(step)],
        config,
        [shard_batch(batch, group) for batch in held_out],
        [records.append],
        state,
        group=group,
    )
    return {
        "losses": state.losses,
        "norms": [record.grad_norm for record in records],
        "validation": [h["validation_loss"] for h in state.history],
        "tokens": state.tokens,
    }


def stop_at(step):
    return lambda progress: progress.step == step


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["gpt", "translator"])
def test_losses_are_those_of_one_process(alone, together, engine, model):
    """With accumulation, padding, clipping, unequal targets, evaluation."""
    for notes in together[1]:
        ours = notes[f"{engine} {model}"]
        for name, expected in alone[model].items():
            assert ours[name] == pytest.approx(expected, rel=0, abs=1e-5)
    assert (
        min(alone["gpt"]["norms"]) > CONFIG.max_grad_norm
    )  # it was cut each time


def test_the_shares_were_unequal():
    counts = [
        sum(
            shard_batch(batch, ProcessGroup(rank, 2)).n_targets
            for batch in batches(0)
        )
        for rank in (0, 1)
    ]
    assert counts == [35, 3]


@pytest.mark.parametrize("control", ["mean of means", "overlap"])
def test_the_classic_mistakes_would_be_seen(alone, together, control):
    """Negative controls: no weighting by tokens; the same rows twice."""
    ours = [notes[control]["losses"] for notes in together[1]]
    means = [sum(pair) / 2 for pair in zip(*ours, strict=True)]
    gaps = [
        abs(a - b) for a, b in zip(means, alone["gpt"]["losses"], strict=True)
    ]
    assert max(gaps) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_may_change_its_processes(alone, together, engine):
    folder, (first, second) = together
    # From one to two.
    for notes in (first, second):
        losses = notes[f"{engine} resumed"]["losses"]
        expected = alone["gpt"]["losses"]
        assert losses == pytest.approx(expected, rel=0, abs=1e-5)
    # From two to one.
    path = folder / f"{engine}.safetensors"
    state = new_state(model := tiny(), CONFIG)
    load_checkpoint(path, model, state)
    assert state.step == 3
    resumed = follow(model, batches, HELD_OUT, SINGLE_PROCESS, state)
    for name in ("losses", "validation", "tokens"):
        expected = alone["gpt"][name]
        assert resumed[name] == pytest.approx(expected, rel=0, abs=1e-5)
    # The same format, and all but the same numbers.
    ours, about = read_tensors(path)
    theirs, expected = read_tensors(folder / "alone.safetensors")
    assert about["step"] == expected["step"]
    assert about["tokens"] == expected["tokens"]
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if name.endswith("w_k.bias"):  # moves no output; AdamW, on noise, it
            continue
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-5)


def test_all_stop_when_the_time_of_one_is_up(together):
    assert [notes["stopped at"] for notes in together[1]] == [1, 1]


def test_dropout_is_each_processs_own_and_seeded(together):
    first, second = (notes["drawn"] for notes in together[1])
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]
    assert together[1][0]["dropout"][0] == together[1][0]["dropout"][1]


# -- the command -------------------------------------------------------------
TEXT = "".join(f"the {a} saw the {b}. " for a in "abcde" for b in "fghij") * 9
SMALL = (  # noqa: SIM905 (as it is typed)
    "--d-model 22 --n-heads 2 --n-layers 2 --context 11 --batch-size 3 "
    "--gradient-accumulation-steps 2 --steps 13 --warmup-steps 2 "
    "--eval-every 5 --checkpoint-every 4 --precision float32 --device cpu"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run in one process, and the words that made it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(TEXT)
    words = ["train", str(folder / "text.txt"), *SMALL, "--out"]
    assert cli.main([*words, str(folder / "one")]) == 0
    return folder, words


def same_run(one, other):
    """Files of the same names, losses that are equal to 1e-5."""
    names = [
        sorted(p.name for p in folder.iterdir()) for folder in (one, other)
    ]
    assert names[0] == names[1]
    expected, theirs = read_tensors(one / "checkpoint.safetensors")
    ours, about = read_tensors(other / "checkpoint.safetensors")
    assert about["step"] == theirs["step"] == 13
    losses = ours["losses"].tolist()
    assert losses == pytest.approx(expected["losses"].tolist(), abs=1e-5)
    assert about["best"] == pytest.approx(theirs["best"], abs=1e-5)


def errors(ended):
    """The lines by which the command says what went wrong."""
    return re.findall(r"^coursekit: error: .*$", ended.stderr, re.MULTILINE)


def test_one_begins_and_two_go_on(run):
    folder, words = run
    other = folder / "two"
    assert cli.main([*words, str(other), "--minutes", "0.000001"]) == 0
    assert read_tensors(other / "checkpoint.safetensors")[1]["step"] == 1
    more = [
        "--out",
        other,
        "--resume",
        "--parallel",
        "fsdp",
        "--device",
        "cpu",
    ]
    ended = launch("-m", "coursekit", "train", *more)
    assert ended.returncode == 0, ended.stderr
    same_run(folder / "one", other)
    # Only the first process prints.
    assert ended.stdout.count("from step 1\n") == 1
    assert ended.stdout.count("13 steps; lowest") == 1
    assert len(ended.stdout.splitlines()) == 6


def test_a_killed_worker_ends_the_run(run):
    folder, words = run
    other = folder / "killed"
    # Processes of torchrun's own, since it says which signal ended them.
    words = [__file__, "kill", folder, *words, other, "--parallel", "ddp"]
    ended = launch(*words, worker=sys.executable)
    assert ended.returncode != 0
    (line,) = errors(ended)
    assert "all processes of a run must live: got SIGTERM" in line
    assert "The last checkpoint is kept; --resume goes on from it." in line
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9 ", ended.stderr)
    assert "gloo" not in ended.stderr  # no traceback that hides the cause
    assert read_tensors(other / "checkpoint.safetensors")[1]["step"] == 4
    assert cli.main(["train", "--out", str(other), "--resume"]) == 0
    same_run(folder / "one", other)


def test_an_error_of_the_first_process_is_said_once(run):
    folder, words = run
    ended = launch(
        "-m", "coursekit", *words, folder / "one", "--parallel", "ddp"
    )
    assert ended.returncode != 0
    (line,) = errors(ended)
    assert "a new run needs an empty folder" in line
    assert ended.stdout == ""


# -- what torchrun starts ----------------------------------------------------
def note_all(group, folder):
    """All runs of two processes that the tests above ask about."""
    return (
        {f"{engine} gpt": run_gpt(engine, group) for engine in ENGINES}
        | {
            f"{engine} translator": run_pairs(engine, group)
            for engine in ENGINES
        }
        | {
            f"{engine} resumed": run_gpt(engine, group, folder)
            for engine in ENGINES
        }
        | {
            # Each process weighs by its own targets alone.
            "mean of means": run_gpt(
                "ddp", ProcessGroup(group.rank, 2, lambda number: 2 * number)
            ),
            # Both take the rows of the first.
            "overlap": run_gpt("ddp", dataclasses.replace(group, rank=0)),
        }
        | note_chance_and_time(group)
        | note_checkpoints(group, folder)
    )


def wrap(engine, model, state):
    if engine == "ddp":
        return replicate(model), state
    return shard(model, state, CONFIG, CPU)


def run_gpt(engine, group, folder=None):
    state = new_state(model := tiny(), CONFIG)
    if folder is not None:
        load_checkpoint(folder / "alone.safetensors", model, state)
    trained, state = wrap(engine, model, state)
    if folder is None and engine == "fsdp":
        # An evaluation first leaves a model that can be trained.
        evaluate(
            trained, [shard_batch(b, group) for b in HELD_OUT], group=group
        )
    return follow(trained, batches, HELD_OUT, group, state)


def run_pairs(engine, group):
    state = new_state(model := translator(), CONFIG)
    trained, state = wrap(engine, model, state)
    return follow(trained, pairs, pairs(90), group, state)


def note_chance_and_time(group):
    """Twice the same: losses, and what is drawn after each step."""
    losses, drawn = [], []
    for _ in range(2):
        numbers = []
        state = train(
            replicate(tiny(dropout=0.3)),
            lambda step: [
                shard_batch(batch, group) for batch in batches(step)
            ],
            CONFIG,
            callbacks=[lambda _, n=numbers: n.append(torch.rand(1).item())],
            group=group,
        )
        losses.append(state.losses)
        drawn.append(numbers)
    # Only the second process runs out of time.
    seconds = [None, 0.0][group.rank]
    state = train(
        replicate(tiny()), batches, CONFIG, seconds=seconds, group=group
    )
    return {"dropout": losses, "drawn": drawn, "stopped at": state.step}


def note_checkpoints(group, folder):
    """Three steps of two processes, saved as the command line does."""
    for engine in ENGINES:
        home = folder / f"{engine} {group.rank}"
        home.mkdir()
        state = new_state(model := tiny(), CONFIG)
        saver = Saver(home, model, state, 3, group)
        trained, state = wrap(engine, model, state)
        if engine == "fsdp":
            saver.collect = lambda a=state, b=saver: gather_state(a, b, group)
        train(
            trained,
            lambda step: [
                shard_batch(batch, group) for batch in batches(step)
            ],
            CONFIG,
            [shard_batch(batch, group) for batch in HELD_OUT],
            [saver, stop_at(3)],
            state,
            group=group,
        )
        if group.rank == 0:
            file = home / "checkpoint.safetensors"
            file.rename(folder / f"{engine}.safetensors")
        else:
            assert list(home.iterdir()) == []
    return {}


def die_at_step_7():
    """Have rank 1 killed, as by a system that is out of memory."""
    say = Reporter.__call__

    def kill(reporter, progress):
        say(reporter, progress)
        if progress.step == 7 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    Reporter.__call__ = kill


if __name__ == "__main__":
    task, folder, *argv = sys.argv[1:]
    torch.set_num_threads(1)
    if task == "kill":
        die_at_step_7()
        sys.exit(cli.main(argv))
    with connect(CPU) as (group, _):
        notes = note_all(group, Path(folder))
        Path(folder, f"{group.rank}.json").write_text(json.dumps(notes))
