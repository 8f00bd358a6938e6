"""The commands, as a shell sees them: output, files and exit codes."""

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch
from compare import json_damages
from patience import PATIENCE, comes

import coursekit
from coursekit import cli, saved_models, tuning
from coursekit.cli import finetune, options, runs
from coursekit.cli.evaluate import recorded_text
from coursekit.cli.translate import LINES
from coursekit.config import GPTConfig, TrainConfig, TransformerConfig
from coursekit.data import load_text
from coursekit.files import locked
from coursekit.saved_models import load_model, read_config, save_model
from coursekit.seq2seq import Transformer
from coursekit.tokenizer import CharTokenizer
from coursekit.training import evaluate
from coursekit.translate import SPECIALS, Translator
from coursekit.weights import read_tensors

TEXT = "".join(f"the {a} saw the {b}. " for a in "abcde" for b in "fghij") * 9
SMALL = (  # noqa: SIM905 (as it is typed)
    "--d-model 22 --n-heads 2 --n-layers 1 --context 11 --batch-size 3 "
    "--steps 13 --warmup-steps 2 --eval-every 5 --checkpoint-every 4 "
    "--precision float32 --dropout 0.1 --device cpu"
).split()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run's folder; tests that change it make their own."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(TEXT)
    command = ["train", folder / "text.txt", "--out", folder / "r", *SMALL]
    assert cli.main([str(word) for word in command]) == 0
    return folder / "r"


@pytest.fixture
def call(capsys):
    """``call(*words)``: exit code, stdout, stderr."""

    def call(*words):
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call


def refused(result, *parts):
    """Exit code 2, nothing on stdout, one line on stderr with these parts."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("coursekit: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for part in parts:
        assert part in err, err


# -- help --------------------------------------------------------------------
def test_help_lists_the_commands_in_a_newcomers_order(call):
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    places = [out.index(f"coursekit {name} ") for name in cli.COMMANDS]
    assert places == sorted(places)
    names = ["train", "generate", "eval", "translate", "info"]
    assert list(cli.COMMANDS)[:5] == names
    examples = re.findall(r"^  (coursekit .*--.*)$", out, re.MULTILINE)
    assert len(examples) == 3


def test_the_examples_parse(call):
    out = call("--help")[1]
    for line in re.findall(r"^  coursekit (.*--.*)$", out, re.MULTILINE):
        words = [word.strip('"') for word in line.split()]
        assert callable(cli.parse(words).function)


@pytest.mark.parametrize("kind", [GPTConfig, TrainConfig])
def test_every_field_is_an_option_with_its_help(call, kind):
    out = " ".join(call("train", "--help")[1].split())
    texts = options.field_help(kind)
    for field in dataclasses.fields(kind):
        assert field.name in texts, f"{field.name} has no docstring"
        if field.name == "vocab_size":
            continue
        assert "--" + field.name.replace("_", "-") in out
        assert texts[field.name].split(" [")[0] in out


def test_the_help_shows_the_defaults(call):
    out = " ".join(call("train", "--help")[1].split())
    for name, value in runs.TRAIN_DEFAULTS.items():
        assert f"[default: {options.shown(value)}]" in out, name
    assert out.count("[default:") >= len(dataclasses.fields(TrainConfig))


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_each_command_explains_itself(call, command):
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert f"usage: coursekit {command}" in out


# -- train -------------------------------------------------------------------
def test_train_writes_a_run(run):
    names = sorted(path.name for path in run.iterdir())
    assert names == [
        "checkpoint.safetensors",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    fields = read_config(run)
    assert fields["config"]["max_len"] == 11
    assert fields["train"]["steps"] == 13
    about = read_tensors(run / "checkpoint.safetensors")[1]
    assert [h["step"] for h in about["history"]] == [5, 10, 13]


def test_train_says_how_it_goes(call, text, tmp_path):
    code, out, err = call("train", text, "--out", tmp_path / "r", *SMALL)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    n = len(TEXT)
    cut = int(n * 0.9)
    assert f"{cut:,} tokens to learn from, {n - cut:,} to check" in lines[0]
    steps = [re.match(r"step +(\d+) .*validation (\S+)", x) for x in lines]
    assert [m[1] for m in steps if m] == ["5", "10", "13"]
    assert "next: coursekit generate" in lines[-1]


def test_train_prints_json_lines(call, text, tmp_path):
    code, out, _ = call(
        "train", text, "--out", tmp_path / "r", *SMALL, "--json"
    )
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["event"] for e in events] == ["evaluation"] * 3 + ["end"]
    assert [e["step"] for e in events] == [5, 10, 13, 13]
    losses = [e["validation_loss"] for e in events[:3]]
    assert events[3]["best_validation_loss"] == min(losses)


def test_the_same_command_gives_the_same_files(run, tmp_path):
    words = ["train", run.parent / "text.txt", "--out", tmp_path / "r", *SMALL]
    assert cli.main([str(word) for word in words]) == 0
    for path in run.iterdir():
        assert (tmp_path / "r" / path.name).read_bytes() == path.read_bytes()
    other = [*words[:3], tmp_path / "s", *SMALL, "--seed", "1"]
    assert cli.main([str(word) for word in other]) == 0
    name = "model.safetensors"
    assert (tmp_path / "s" / name).read_bytes() != (run / name).read_bytes()


def test_bytepair_vocabulary(call, text, tmp_path):
    words = ["--tokenizer", "bpe", "--vocab-size", "263"]
    code, _, _ = call("train", text, "--out", tmp_path / "r", *SMALL, *words)
    assert code == 0
    model, tokenizer = load_model(tmp_path / "r")
    assert model.config.vocab_size == tokenizer.vocab_size == 263
    code, out, _ = call("generate", tmp_path / "r", "--prompt", "é the")
    assert code == 0
    assert out.startswith("é the")


def test_accumulated_batches_are_other_batches():
    """Two micro-batches of a step, and those of the next, all differ."""
    ids = torch.arange(101)
    config = TrainConfig(
        gradient_accumulation_steps=2, batch_size=3, context=5
    )
    batches = runs.batches_of(ids, config)
    starts = [
        tuple(batch.inputs["ids"][:, 0].tolist())
        for step in (0, 1)
        for batch in batches(step)
    ]
    assert len(set(starts)) == 4


def test_minutes_end_a_run_with_all_that_is_needed(call, text, tmp_path):
    words = ["train", text, "--out", tmp_path / "r", *SMALL, "--json"]
    code, out, _ = call(*words, "--minutes", "0.000001")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["event"] for e in events] == ["evaluation", "end"]
    step = events[1]["step"]
    assert step < 13
    about = read_tensors(tmp_path / "r" / "checkpoint.safetensors")[1]
    assert about["step"] == step
    code, out, _ = call(*words, "--resume")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["step"] == 13


# -- resume ------------------------------------------------------------------
def test_a_finished_run_has_nothing_to_resume(call, run):
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    code, out, _ = call("train", "--out", run, "--resume", "--device", "cpu")
    assert code == 0
    assert "13 steps" in out
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before


def in_shell(*words, fork=True, **options):
    """A command as a process; of a fork, signals do not reach the command."""
    program = [f"{forked.command()}/coursekit"]
    return subprocess.Popen(
        [
            *(program if fork else [sys.executable, "-m", "coursekit"]),
            *map(str, words),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **({"stdout": subprocess.PIPE} | options),
    )


def wait_for(path, process):
    assert comes(lambda: path.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


# So long that no run ends by itself before it is stopped.
LONG = [*SMALL, "--steps", "100000", "--schedule", "constant"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_stopped_run_goes_on_to_the_same_losses(text, tmp_path, how, call):
    folder, name = tmp_path / "r", "checkpoint.safetensors"
    process = in_shell("train", text, "--out", folder, *LONG, fork=False)
    wait_for(folder / name, process)
    process.send_signal(getattr(signal, how))
    out, err = process.communicate(timeout=PATIENCE)
    assert err == ""
    if how == "SIGINT":
        assert process.returncode == 130
        assert "next: coursekit" in out
    else:
        assert process.returncode == -signal.SIGKILL
    stopped = read_tensors(folder / name)[1]["step"]
    assert 0 < stopped < 100000
    # A while longer, and then a run that was never stopped.
    end = stopped + 9
    fields = json.loads((folder / "config.json").read_text())
    fields["train"]["steps"] = end
    (folder / "config.json").write_text(json.dumps(fields))
    assert (
        call("train", "--out", folder, "--resume", "--device", "cpu")[0] == 0
    )
    whole = tmp_path / "whole"
    words = ["train", text, "--out", whole, *LONG, "--steps", end]
    assert call(*words)[0] == 0
    ours, theirs = (read_tensors(f / name)[0] for f in (folder, whole))
    assert len(ours["losses"]) == end
    assert torch.equal(ours["losses"], theirs["losses"])
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_a_model_that_does_not_fit_is_refused_before_it_is_built(
    call, tmp_path
):
    """It used to fill the memory until the machine stopped."""
    words = ["train", "--out", tmp_path / "r", "--steps", 200]
    done = call(*words, "--d-model", 65536, "--n-layers", 9)
    refused(done, "billion weights", "GB", "Lower --d-model")
    assert not (tmp_path / "r").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shell")
@pytest.mark.parametrize(
    ("where", "code", "notes"),
    [
        ("| head -1", 0, ["Broken pipe"]),
        ("2>&1 | head -1", 0, []),
        ("| true", 0, ["Broken pipe"]),
        ("> /dev/full", 1, ["No space left on device"]),
        (">&-", 0, []),
        ("--json >&-", 0, []),
        ("2>&-", 0, []),
        ("<&- >&- 2>&-", 0, []),
    ],
)
def test_a_run_outlives_its_output(run, tmp_path, where, code, notes):
    """The same files to the last byte, and a line that says it."""
    if "full" in where and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    # Without any stream a process of its own: the others are forks.
    program = [sys.executable, "-m", "coursekit"]
    words = program if "<&-" in where else [f"{forked.command()}/coursekit"]
    words += [
        "train",
        run.parent / "text.txt",
        "--out",
        tmp_path / "r",
        *SMALL,
    ]
    command = f"set -o pipefail; {shlex.join(map(str, words))} {where}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(notes), done.stderr
    for line, note in zip(lines, notes, strict=True):
        assert line.startswith("coursekit: note: the output is lost")
        assert note in line
    assert sorted(p.name for p in run.iterdir()) == sorted(
        p.name for p in (tmp_path / "r").iterdir()
    )
    for path in run.iterdir():
        assert (tmp_path / "r" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    ("command", "words"), [("generate", ["--prompt", "the"]), ("info", [])]
)
def test_output_on_a_full_disk_is_no_wrong_option(run, command, words):
    """Whether it is flushed at each word, or at the end alone."""
    with open("/dev/full", "w") as full:
        process = in_shell(command, run, *words, stdout=full)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.startswith("coursekit: error: there must be room for the out")
    assert err.count("\n") == 1


def test_resume_after_a_kill_before_the_first_step(call, text, tmp_path, run):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json.77.part").write_text("{")
    code, _, _ = call("train", text, "--out", folder, *SMALL, "--resume")
    assert code == 0
    name = "model.safetensors"
    assert (folder / name).read_bytes() == (run / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--learning-rate", "0.5"], "got learning_rate=0.5, the run has"),
        (["--d-model", "44"], "got d_model=44, the run has 22"),
        (["--tokenizer", "bpe"], "got tokenizer=bpe"),
    ],
)
def test_resume_keeps_the_runs_settings(call, run, words, part):
    words = [*words, "--device", "cpu"]
    refused(call("train", "--out", run, "--resume", *words), part)


def test_resume_may_leave_out_the_compiler(call, text, tmp_path, monkeypatch):
    """Which the next machine may lack; it changes no setting of the run."""
    out = ["--out", tmp_path / "r"]
    words = ["train", text, *out, *SMALL, "--compile", "--steps", "0"]
    assert call(*words)[0] == 0
    path = tmp_path / "r" / "config.json"
    path.write_text(path.read_text().replace('"steps": 0', '"steps": 2'))
    monkeypatch.setattr("shutil.which", lambda name: None)
    resume = ["train", *out, "--resume", "--device", "cpu"]
    refused(call(*resume, "--json"), "got none", "--no-compile")
    assert call(*resume, "--no-compile")[0] == 0


def test_a_run_that_ends_in_its_warm_up_says_so(call, text, tmp_path):
    words = [*SMALL, "--steps", "3", "--learning-rate", "1e-3"]
    for warmup, note in (("6", "at 0.0005 of a rate of 0.001"), ("2", "")):
        out = ["--out", tmp_path / warmup, "--warmup-steps", warmup]
        err = call("train", text, *words, *out)[2]
        assert note in err
        assert ("ends in its warm-up" in err) == bool(note)


def test_resume_needs_the_same_text(call, text, tmp_path):
    folder = tmp_path / "r"
    words = ["train", text, "--out", folder, *SMALL, "--minutes", "1e-6"]
    assert call(*words)[0] == 0
    text.write_text(TEXT + "More.")
    resume = ["train", "--out", folder, "--resume", "--device", "cpu"]
    refused(call(*resume), "got another in", "text.txt")
    other = tmp_path / "other.txt"
    other.write_text(TEXT)
    resume.insert(1, other)
    refused(call(*resume), "text=", "other.txt")


def test_resume_refuses_the_packaged_text_for_another(call, run):
    words = ["train", "shakespeare", "--out", run, "--resume"]
    refused(call(*words, "--device", "cpu"), "got text=shakespeare")


def test_resume_needs_its_own_vocabulary(call, text, tmp_path):
    folder = tmp_path / "r"
    words = ["train", text, "--out", folder, *SMALL, "--minutes", "1e-6"]
    assert call(*words)[0] == 0
    resume = ["train", "--out", folder, "--resume", "--device", "cpu"]
    CharTokenizer(TEXT + "äöü").save(folder / "tokenizer.json")
    refused(call(*resume), "the tokenizer that it was saved with")
    (folder / "tokenizer.json").unlink()
    refused(call(*resume), "a tokenizer must be a file")
    fields = json.loads((folder / "config.json").read_text())
    fields["data"] = {"text": str(text)}
    (folder / "config.json").write_text(json.dumps(fields))
    refused(call(*resume), "must know its text, sha256 and threads")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_a_folder_has_one_run_at_a_time(call, text, tmp_path):
    """A second --resume would delete what the first is writing."""
    folder = tmp_path / "r"
    words = ["train", text, "--out", folder, *SMALL, "--minutes", "1e-6"]
    assert call(*words)[0] == 0
    resume = ["train", "--out", folder, "--resume", "--device", "cpu"]
    writing = folder / "checkpoint.safetensors.1.part"
    writing.write_text("")
    with locked(folder):
        refused(call(*resume), "one process at a time", str(folder))
        assert writing.exists()
    assert call(*resume)[0] == 0
    assert not writing.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
@pytest.mark.parametrize(
    ("module", "reader"), [(runs, "load_text"), (finetune, "read_pairs")]
)
def test_of_two_that_begin_together_one_is_refused(
    call, text, tmp_path, monkeypatch, module, reader
):
    """Both found an empty folder; one begins while the other still reads."""
    out = ["--out", tmp_path / "new" / "r"]
    words = ["train", text, *out, *SMALL]
    if module is finetune:
        text.write_text("the\tquick\nthe\tslow\n")
        words = ["finetune", "stories", text, *out, "--steps", "3"]
    read, second = getattr(module, reader), []

    def read_slowly(name):
        monkeypatch.setattr(module, reader, read)
        second.append(call(*words))
        return read(name)

    monkeypatch.setattr(module, reader, read_slowly)
    assert call(*words)[0] == 0
    refused(second[0], "one process at a time", str(out[1]))


def test_a_run_that_is_refused_leaves_no_folder(call, text, tmp_path):
    out = tmp_path / "a" / "b"
    (tmp_path / "mine").mkdir()
    for folder in (out, tmp_path / "mine"):
        words = ["train", text, "--out", folder, *SMALL, "--dropout", "7"]
        refused(call(*words), "dropout")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "text.txt"]


def test_no_steps_leave_a_model_that_writes(call, text, tmp_path):
    words = [*SMALL, "--steps", "0"]
    code, out, _ = call("train", text, "--out", tmp_path / "r", *words)
    assert code == 0
    assert f"next: coursekit generate {tmp_path / 'r'}" in out
    words = ["--prompt", "the", "--max-new-tokens", "7"]
    code, out, _ = call("generate", tmp_path / "r", *words)
    assert (code, len(out)) == (0, len("the") + 7 + len("\n"))


@pytest.mark.parametrize("what", ["ACGT", "猫と犬。", "Then\n"])
def test_any_text_leaves_a_model_that_writes(call, tmp_path, what):
    """Also one without a new line, or without T, h and e."""
    (tmp_path / "text").write_text(what * 99, encoding="utf8")
    folder = tmp_path / "a b"
    words = [tmp_path / "text", "--out", folder, *SMALL, "--steps", "1"]
    _, out, err = call("train", *words)
    said = shlex.split(out.splitlines()[-1].removeprefix("next: coursekit "))
    for words in (said, said[:2]):
        code, out, err = call(*words, "--max-new-tokens", "5")
        assert (code, err) == (0, "")
        assert {*out} <= {*what, "\n"}
    wrong = call("generate", folder, "--prompt", "x")
    refused(wrong, "got 'x'", repr("".join(sorted(what))), "Use only these")
    if "\n" not in what:
        (tmp_path / "pairs").write_text("A\tC\nC\tA\n")
        words = [folder, tmp_path / "pairs", "--out", tmp_path / "t"]
        refused(call("finetune", *words), "a new line ends each answer")


def test_a_folder_that_cannot_be_made_is_refused(call, text, tmp_path):
    folder = text / "r"  # below a file
    refused(
        call("train", text, "--out", folder, *SMALL),
        "--out must name a folder that can be made",
        str(folder),
        "Not a directory",
    )


def test_resume_needs_a_run(call, tmp_path):
    words = ["train", "--out", tmp_path / "none", "--resume"]
    refused(call(*words), "which has none", "none")
    assert not (tmp_path / "none").exists()


def test_a_loss_that_is_no_number_says_what_is_kept(call, text, tmp_path):
    folder = tmp_path / "r"
    words = ["train", text, "--out", folder, *SMALL, "--max-grad-norm", "0"]
    wild = ["--learning-rate", "1e30", "--warmup-steps", "0"]
    code, _, err = call(*words, *wild)
    assert code == 1
    assert err.count("\n") == 1 or err.splitlines()[-1].startswith("coursekit")
    line = err.splitlines()[-1]
    for part in ("got loss", "at step", "1e+30", "There is no checkpoint yet"):
        assert part in line, err
    assert not (folder / "checkpoint.safetensors").exists()
    kept = [*words, *wild, "--checkpoint-every", "1"]
    kept[3] = tmp_path / "kept"
    code, _, err = call(*kept)
    assert code == 1
    assert (tmp_path / "kept" / "checkpoint.safetensors").exists()
    assert "The last checkpoint is kept" in err


# -- bad input: nothing is lost or half written ------------------------------
def test_a_run_is_never_overwritten(call, run, text):
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    words = ["train", text, "--out", run, *SMALL]
    refused(call(*words), "which has files", "--resume")
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["must not be empty", "got 0 bytes"]),
        (b"caf\xe9 noir" * 50, ["must be UTF-8", "0xe9 at offset 3"]),
        (b"too short", ["context + 1 tokens", "context=11"]),
    ],
)
def test_bad_texts(call, tmp_path, content, parts):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    folder = tmp_path / "r"
    refused(call("train", path, "--out", folder, *SMALL), *parts)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--d-model", "23"], ["divisible", "d_model=23, n_heads=2"]),
        (["--device", "tpu"], ["device must be", "got 'tpu'"]),
        (["--max-len", "7"], ["context=11, max_len=7"]),
        (["--vocab-size", "300"], ["vocab_size=300", "--tokenizer bpe"]),
        (["--tokenizer", "bpe", "--vocab-size", "99"], ["vocab_size=99"]),
        (["--dropout", "1.5"], ["dropout must lie in [0, 1)", "1.5"]),
        (["--batch-size", "0"], ["batch_size must be", "got 0"]),
        (["--steps", "many"], ["--steps", "'many'", "train --help"]),
        (["--norm", "batch"], ["--norm", "'batch'"]),
        (["--minutes", "0"], ["--minutes", "above 0"]),
        (["--init-std", "-1"], ["init_std must be", "-1"]),
        (["--norm-eps", "-1"], ["norm_eps must be", "-1"]),
        (["--rope-base", "nan"], ["rope_base must be", "nan"]),
        (["--seed", str(2**63)], ["seed must be", str(2**63)]),
        (["--optimizer", "muon", "--n-layers", "0"], ["muon"]),
        (["--speling", "1"], ["--speling"]),
    ],
)
def test_bad_options(call, text, tmp_path, words, parts):
    folder = tmp_path / "r"
    refused(call("train", text, "--out", folder, *SMALL, *words), *parts)
    assert not folder.exists()


def test_a_missing_text_and_a_missing_run(call, tmp_path):
    words = ["train", tmp_path / "no.txt", "--out", tmp_path / "r", *SMALL]
    refused(call(*words), "got '", "no.txt")
    for command in ("generate", "eval", "translate", "info"):
        refused(call(command, tmp_path / "r"), "a model must be", "r'")


def test_no_command_and_an_unknown_one(call):
    refused(call(), "COMMAND", "coursekit --help")
    refused(call("tarin"), "tarin", "'train'")


@pytest.mark.parametrize("bits", ["8", "3"])
def test_quantize_measures_before_and_after(call, run, bits):
    code, out, _ = call("quantize", run, "--bits", bits, "--json")
    fields = json.loads(out)
    assert code == 0
    assert (
        fields["loss_before"]
        == json.loads(call("eval", run, "--json")[1])["loss"]
    )
    assert fields["added"] == fields["loss"] - fields["loss_before"]
    assert fields["added"] != 0
    assert fields["bytes"] < fields["bytes_before"] / 2


def test_quantize_refuses_groups_that_do_not_fit(call, run):
    refused(call("quantize", run, "--group-size", "7"), "group_size=7")


@pytest.mark.parametrize("command", ["generate", "eval", "translate", "info"])
def test_a_corrupt_model(call, run, tmp_path, command):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in run.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    refused(call(command, folder), "cut short or damaged", path.name)


def test_a_corrupt_checkpoint(call, run, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in run.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / "checkpoint.safetensors"
    cut = path.read_bytes()[:-9]
    path.write_bytes(cut)
    words = ["train", "--out", folder, "--resume", "--device", "cpu"]
    refused(call(*words), "cut short or damaged", path.name)
    assert path.read_bytes() == cut


def test_no_damage_is_taken_for_a_run(run, tmp_path):
    """Of what is no field of a configuration; see test_config.py."""
    folder = shutil.copytree(run, tmp_path / "r")
    fields = read_config(folder)
    ours = {k: fields.pop(k) for k in ("format", "model", "data", "tokenizer")}

    def is_refused(changed):
        content = fields | changed if isinstance(changed, dict) else changed
        (folder / "config.json").write_text(json.dumps(content))
        with contextlib.suppress(ValueError):
            runs.read_run(folder, runs.read_settings(folder))
            load_model(folder)
            load_text(recorded_text(str(folder)))
            return False
        return True

    damages = [*json_damages(ours)]
    accepted = [what for what, changed in damages if not is_refused(changed)]
    # How many threads is only told; some folders have no hash.
    assert accepted == ["data: threads: -1", "no tokenizer"]
    assert not is_refused(ours)  # the control


def test_prompts_that_cannot_be_read(call, run):
    words = ["generate", run, "--device", "cpu", "--prompt"]
    refused(call(*words, ""), "at least one character", "got ''")
    refused(call(*words, "the ü"), "got 'ü'", "index 4")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--temperature", "-1"], ["temperature", "-1"]),
        (["--top-k", "0"], ["top_k", "got 0"]),
        (["--top-p", "1.5"], ["top_p", "1.5"]),
        (["--beam", "0"], ["n_beams", "0"]),
        (["--beam", "9" * 20], ["n_beams", "9" * 20]),
        (["--beam", "2", "--top-k", "3"], ["top_k=3", "beam=2"]),
        (["--max-new-tokens", "-1"], ["max_new_tokens", "-1"]),
        (["--device", "quantum"], ["got 'quantum'"]),
    ],
)
def test_bad_choices(call, run, words, parts):
    refused(call("generate", run, "--prompt", "the", *words), *parts)


# -- training that stops -----------------------------------------------------
def test_a_loss_that_is_no_number(call, text, tmp_path):
    words = [
        "--learning-rate",
        "1e20",
        "--max-grad-norm",
        "0",
        "--warmup-steps",
        "0",
    ]
    folder = tmp_path / "r"
    code, out, err = call("train", text, "--out", folder, *SMALL, *words)
    assert code == 1
    assert "next" not in out
    assert err.startswith("coursekit: error: ")
    assert err.count("\n") == 1
    assert "learning rate" in err
    for path in folder.glob("*.safetensors"):  # what is there is good
        tensors, _ = read_tensors(path)
        assert all(t.isfinite().all() for t in tensors.values())


def test_a_full_disk(call, text, tmp_path, monkeypatch):
    folder, real, calls = tmp_path / "r", os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) == 5:  # the second checkpoint
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    code, _, err = call("train", text, "--out", folder, *SMALL)
    monkeypatch.undo()
    assert code == 1
    assert "No space left on device" in err
    assert "intact" in err
    assert err.count("\n") == 1
    assert not list(folder.glob("*.part"))
    assert read_tensors(folder / "checkpoint.safetensors")[1]["step"] == 4
    code, _, _ = call("train", "--out", folder, "--resume", "--device", "cpu")
    assert code == 0


def test_memory_that_runs_out_is_said_in_a_line(call, run, monkeypatch):
    def explode(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to ...")

    monkeypatch.setattr("coursekit.cli.evaluate.evaluate", explode)
    code, _, err = call("eval", run)
    assert (code, err.count("\n")) == (1, 1)


def test_memory_of_a_cpu_is_said_in_a_line(call, run, monkeypatch):
    def explode(*_, **__):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 8 bytes."
        )

    monkeypatch.setattr("coursekit.cli.evaluate.evaluate", explode)
    refused(call("eval", run), "must fit into memory", "8 bytes")


# -- generate ----------------------------------------------------------------
def test_generate_begins_with_the_prompt_and_is_repeatable(call, run):
    words = ["generate", run, "--prompt", "the c", "--max-new-tokens", "29"]
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert out.startswith("the c")
    assert len(out) == 5 + 29 + 1
    assert call(*words)[1] == out
    assert call(*words, "--seed", "1")[1] != out
    assert call(*words, "--temperature", "0")[1] != out


def test_generate_prints_json(call, run):
    words = ["generate", run, "--prompt", "the", "--max-new-tokens", "17"]
    plain = call(*words)[1]
    fields = json.loads(call(*words, "--json")[1])
    assert fields["prompt"] + fields["text"] + "\n" == plain
    assert fields["tokens"] == 17


def test_one_beam_is_greedy(call, run):
    words = ["generate", run, "--prompt", "the", "--max-new-tokens", "19"]
    greedy = call(*words, "--temperature", "0")[1]
    assert call(*words, "--beam", "1")[1] == greedy
    assert call(*words, "--beam", "3")[0] == 0


def test_generate_streams(run):
    """The first words are there before the last are written."""
    words = ["--prompt", "the", "--max-new-tokens", "1000000"]
    process = in_shell("generate", run, *words)
    assert process.stdout.read(30).startswith("the")
    process.stdout.close()  # as `| head` does
    process.stderr.close()
    assert process.wait(timeout=PATIENCE) == 0


# -- translate ---------------------------------------------------------------
@pytest.fixture(scope="session")
def wild(tmp_path_factory):
    """The folder of a translator that has learned nothing."""
    tokenizer = CharTokenizer("abcdefgh \t�\u2028", SPECIALS)
    fields = {"vocab_size": tokenizer.vocab_size, "max_len": 11}
    torch.manual_seed(19)
    model = Transformer(
        TransformerConfig(
            **fields, d_model=14, n_heads=7, tie_embeddings=False
        )
    )
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    folder = tmp_path_factory.mktemp("wild")
    save_model(folder, model, tokenizer, int8=True)
    return folder


@pytest.fixture
def pipe(call, monkeypatch):
    """``pipe(data, *words)``: as ``call``, with these bytes on stdin."""

    def pipe(data, *words):
        stdin = io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", stdin)
        return call(*words)

    return pipe


def expected(folder, texts, **options):
    """What the translator says, each text in one line."""
    found = Translator.load(folder)(texts, **options)
    return [" ".join(text.splitlines()) for text in found]


GOOD = ["abc", "bad", "a cab", "fed", "gaffe", "hgfedcba", "dad", "ebb"]


def test_translate_gives_a_line_for_each_line(pipe, wild, tmp_path):
    data = "".join(f"{line}\n" for line in GOOD).encode()
    code, out, err = pipe(data, "translate", wild)
    assert (code, err) == (0, "")
    assert out.split("\n")[:-1] == expected(wild, GOOD)
    assert len(set(out.split("\n"))) > 5
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    assert pipe(b"abc", "translate", wild, path)[1] == out  # not of stdin
    assert pipe(data.replace(b"\n", b"\r\n"), "translate", wild)[1] == out
    assert pipe(data[:-1], "translate", wild)[1] == out  # no last line end
    assert pipe(b"", "translate", wild) == (0, "", "")


def test_translate_takes_beams_and_length_penalty(pipe, wild):
    data = "".join(f"{line}\n" for line in GOOD).encode()
    words = ["--beams", "2", "--length-penalty", "0"]
    found = pipe(data, "translate", wild, *words)[1].split("\n")[:-1]
    assert found == expected(wild, GOOD, n_beams=2, length_penalty=0.0)
    assert found != expected(wild, GOOD)
    greedy = pipe(data, "translate", wild, "--beams", "1")[1]
    assert greedy.split("\n")[:-1] == expected(wild, GOOD, n_beams=1)


@pytest.mark.parametrize("lines_at_once", [1, 2, 256])
def test_a_line_that_cannot_be_translated_loses_no_other(
    pipe, wild, monkeypatch, lines_at_once
):
    """A blank line for it, its number on stderr, and exit code 1."""
    monkeypatch.setattr("coursekit.cli.translate.LINES", lines_at_once)
    lines = ["abc", "", "abcdefghabc", "bad", "xyz", " \t", "cab"]
    data = "".join(f"{line}\n" for line in lines).encode()
    code, out, err = pipe(data, "translate", wild)
    assert code == 1
    a, b, c = expected(wild, ["abc", "bad", "cab"])
    assert out.split("\n") == [a, "", "", b, "", "", c, ""]
    long, unknown = err.splitlines()
    assert long.startswith("coursekit: error: line 3: a source may have")
    assert "max_len=11" in long
    assert "got 12, beginning 'abcdefghabc'. Split" in long
    assert "line 5: a character tokenizer" in unknown
    assert "got 'x'" in unknown
    # Blank lines alone are no failure.
    assert pipe(b"abc\n\n\t\n", "translate", wild) == (0, f"{a}\n\n\n", "")


def test_bytes_that_are_not_utf8_are_replaced_and_told(pipe, wild):
    code, out, err = pipe(b"abc\nb\xe9d\ncab\n", "translate", wild)
    assert code == 0
    assert out.split("\n")[:-1] == expected(wild, ["abc", "b�d", "cab"])
    assert err == (
        "coursekit: note: line 2 is not UTF-8; what cannot be read became �\n"
    )
    # Whoever writes that sign is told nothing.
    assert pipe("b�d\n".encode(), "translate", wild)[2] == ""


def test_translate_prints_json(pipe, wild):
    lines = ["abc", "", "xyz", "cab"]
    data = "".join(f"{line}\n" for line in lines).encode()
    code, out, err = pipe(data, "translate", wild, "--json")
    assert code == 1
    assert err.count("\n") == 1
    found = [json.loads(line) for line in out.splitlines()]
    a, c = Translator.load(wild)(["abc", "cab"])
    assert [line["line"] for line in found] == [1, 2, 3, 4]
    assert [line["source"] for line in found] == lines
    assert [line["translation"] for line in found] == [a, "", None, c]
    problems = [line["problem"] for line in found]
    assert problems[0] is problems[1] is problems[3] is None
    assert "got 'x'" in problems[2]


def test_a_translation_is_one_line_whatever_it_says(pipe, wild, monkeypatch):
    monkeypatch.setattr(
        Translator, "__call__", lambda self, texts, *_: ["a\nb\u2028c"]
    )
    assert pipe(b"abc\n", "translate", wild)[1] == "a b c\n"
    out = pipe(b"abc\n", "translate", wild, "--json")[1]
    assert json.loads(out)["translation"] == "a\nb\u2028c"


def test_translations_come_batch_by_batch(wild):
    """The first are there while the last lines are not yet written."""
    process = in_shell(
        "translate", wild, "--beams", "1", stdin=subprocess.PIPE
    )
    process.stdin.write("abc\n" * (LINES + 1))
    process.stdin.flush()
    first = [process.stdout.readline() for _ in range(LINES)]
    assert process.poll() is None
    rest, err = process.communicate("bad\n", timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    a, b = expected(wild, ["abc", "bad"], n_beams=1)
    assert first == [f"{a}\n"] * LINES
    assert rest == f"{a}\n{b}\n"


def test_bad_translate_options(pipe, wild, run, tmp_path):
    refused(pipe(b"abc\n", "translate", run), "got GPT and CharTokenizer")
    missing = tmp_path / "no.txt"
    refused(pipe(b"", "translate", wild, missing), "must be a file", "no.txt")
    refused(pipe(b"", "translate", wild, tmp_path), "must be a file")
    refused(pipe(b"abc\n", "translate", wild, "--beams", "0"), "n_beams=0")
    words = ["--length-penalty", "-1"]
    refused(pipe(b"abc\n", "translate", wild, *words), "length_penalty=-1")
    refused(pipe(b"abc\n", "translate", wild, "--device", "tpu"), "'tpu'")


# -- eval and info -----------------------------------------------------------
def test_eval_measures_the_whole_validation_split(call, run):
    fields = json.loads(call("eval", run, "--json")[1])
    held_out = TEXT[int(len(TEXT) * 0.9) :]
    assert fields["tokens"] == len(held_out) - 1
    model, tokenizer = load_model(run)
    ids = torch.tensor(tokenizer.encode(held_out))
    nats = evaluate(model, runs.windows_of(ids, 11))
    assert fields["loss"] == pytest.approx(nats)
    assert fields["perplexity"] == pytest.approx(math.exp(nats))
    bits = nats / math.log(2)
    assert fields["bits_per_character"] == pytest.approx(bits)
    assert fields["bits_per_byte"] == pytest.approx(bits)
    about = read_tensors(run / "model.safetensors")[1]
    assert nats == pytest.approx(about["validation_loss"], abs=1e-6)


def test_eval_counts_characters_and_bytes(call, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("süß und grün. " * 99, encoding="utf-8")
    words = ["--tokenizer", "bpe", "--vocab-size", "260"]
    folder = tmp_path / "r"
    assert call("train", path, "--out", folder, *SMALL, *words)[0] == 0
    fields = json.loads(call("eval", folder, "--json")[1])
    held_out = path.read_text(encoding="utf-8")[int(14 * 99 * 0.9) :]
    tokenizer = load_model(folder).tokenizer
    first = tokenizer.encode(held_out)[:1]
    bits = fields["loss"] * fields["tokens"] / math.log(2)
    n_bytes = len(held_out.encode()) - len(tokenizer.decode_bytes(first))
    assert fields["bits_per_byte"] == pytest.approx(bits / n_bytes)
    assert fields["bits_per_character"] > fields["bits_per_byte"]


def test_eval_of_a_single_character(call, tmp_path):
    """Of three tokens: no character is left after the first."""
    path = tmp_path / "text.txt"
    path.write_text("süß und grün. " * 99, encoding="utf-8")
    words = ["--tokenizer", "bpe", "--vocab-size", "257"]
    folder = tmp_path / "r"
    assert call("train", path, "--out", folder, *SMALL, *words)[0] == 0
    path.write_text("日", encoding="utf-8")
    code, out, _ = call("eval", folder, path, "--split", "all", "--json")
    assert code == 0
    fields = json.loads(out)
    assert fields["tokens"] == 2
    assert fields["bits_per_character"] is None
    assert fields["bits_per_byte"] > 0


@pytest.mark.parametrize("command", ["eval", "train"])
def test_an_empty_name_is_no_default(call, run, tmp_path, command):
    """As a script passes it whose variable is not set."""
    folder = tmp_path / "r"
    words = [run, ""] if command == "eval" else ["", "--out", folder]
    assert call(command, *words)[0] == 2
    assert not folder.exists()


def test_eval_of_another_text(call, run, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("the e saw the f. " * 20)
    fields = json.loads(call("eval", run, path, "--split", "all", "--json")[1])
    assert fields["tokens"] == 17 * 20 - 1
    out = call("eval", run, path)[1]
    assert re.search(r"^split +validation$", out, re.MULTILINE)


def test_info_describes_a_run(call, run):
    fields = json.loads(call("info", run, "--json")[1])
    model, tokenizer = load_model(run)
    assert fields["parameters"] == sum(p.numel() for p in model.parameters())
    assert sum(fields["parameters_by_part"].values()) == fields["parameters"]
    assert fields["tokenizer"]["vocab_size"] == tokenizer.vocab_size
    assert fields["config"] == model.config.to_dict()
    assert fields["checkpoint"]["step"] == 13
    assert re.fullmatch("[0-9a-f]{64}", fields["weights"]["sha256"])
    out = call("info", run)[1]
    assert f"{fields['parameters']:,}" in out


def test_info_prints_card_and_license(call, wild, tmp_path):
    folder = tmp_path / "wild"
    folder.mkdir()
    for path in wild.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    bare = call("info", folder)[1]
    assert "card" not in json.loads(call("info", folder, "--json")[1])
    (folder / "CARD.md").write_text("# Wild\n\n- übt noch\n", "utf-8")
    (folder / "LICENSE").write_text("Research\nonly.\n", "utf-8")
    out = call("info", folder)[1]
    assert out == f"{bare}\n# Wild\n\n- übt noch\n\nResearch\nonly.\n"
    fields = json.loads(call("info", folder, "--json")[1])
    assert fields["card"] == "# Wild\n\n- übt noch\n"
    assert fields["license"] == "Research\nonly.\n"
    assert fields["model"] == "Transformer"


def test_info_describes_the_machine(call):
    fields = json.loads(call("info", "--json")[1])
    assert fields["torch"] == torch.__version__
    assert fields["models"] == coursekit.shipped()
    assert call("info")[0] == 0


# -- the package -------------------------------------------------------------
def test_shipped_models_load_by_name(tmp_path, run, monkeypatch):
    (tmp_path / "first").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / "first" / name).write_bytes((run / name).read_bytes())
    monkeypatch.setattr(saved_models, "SHIPPED", tmp_path)
    assert coursekit.shipped() == ["first"]
    model, tokenizer = coursekit.load("first")
    assert model.config.vocab_size == tokenizer.vocab_size
    with pytest.raises(ValueError, match=r"\(first\): got 'second'"):
        coursekit.load("second")


def test_a_name_never_means_two_things(call, run, tmp_path, monkeypatch):
    """A folder here and a shipped model: neither is taken unasked."""
    monkeypatch.chdir(tmp_path)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the\tquick\nthe\tslow\n")
    for words in (["train", *SMALL], ["finetune", run, pairs, "--steps", "2"]):
        result = call(*words, "--out", "stories")
        refused(result, "that no shipped model has: got stories")
    model, tokenizer = coursekit.load("stories")
    with pytest.raises(ValueError, match="that no shipped model has"):
        coursekit.save_model("stories", model, tokenizer)
    shutil.copytree(run, "stories")
    meant = "must mean one thing: got 'stories'"
    for command in ("generate", "eval", "info", "quantize", "translate"):
        refused(call(command, "stories"), meant, "./stories")
    words = ["finetune", "stories", pairs, "--out", "tuned"]
    refused(call(*words), meant)
    with pytest.raises(ValueError, match=meant):
        coursekit.load("stories")
    own = coursekit.load("./stories").model.config
    assert own == coursekit.load(Path("stories")).model.config
    assert own == coursekit.load(run).model.config != model.config
    said = json.loads(call("eval", "./stories", "--json")[1])
    assert said["text"].endswith("text.txt")


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (load_text, "shakespeare"),
        (tuning.read_pairs, "six-questions"),
        (tuning.load_tuned, "stories-answers"),
    ],
)
def test_a_file_never_hides_what_is_packaged(
    tmp_path, monkeypatch, read, name
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("a\tb")
    with pytest.raises(ValueError, match=f"one thing: got '{name}'"):
        read(name)
    if read is not tuning.load_tuned:
        assert len(read(f"./{name}")) == len(read(Path(name))) < 4


def test_everything_that_is_exported_is_there():
    for name in coursekit.__all__:
        assert getattr(coursekit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        coursekit.atend  # noqa: B018


def test_importing_loads_no_tool():
    code = (
        "import sys, coursekit; "
        "print([m for m in sys.modules if m.startswith('coursekit.')])"
        "; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    modules, plots = done.stdout.splitlines()
    assert "coursekit_classroom.figures" not in modules
    assert "coursekit.__main__" not in modules
    assert plots == "False"


def modules_after(line, python=(sys.executable,)):
    """The modules that a process has after a command."""
    code = (
        "import contextlib, io, sys\nfrom coursekit import cli\n"
        "with contextlib.suppress(SystemExit), "
        "contextlib.redirect_stdout(io.StringIO()):\n"
        f"    cli.main({line.split()!r})\nprint(*sys.modules)"
    )
    out = subprocess.run(
        [*python, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split())


def test_only_the_command_that_is_asked_for_is_imported():
    commands = {
        module.partition(":")[0] for _, module in cli.COMMANDS.values()
    }
    loaded = modules_after("--help")
    assert loaded & {*commands, "torch"} == set()
    loaded = modules_after("train --help", forked.python())
    assert loaded & commands == {"coursekit.cli.train"}


def test_the_package_lists_its_names():
    assert {*coursekit.__all__, "check", "live"} <= {*dir(coursekit)}
    scope = {}
    exec("from coursekit import *", scope)
    assert {*coursekit.__all__} <= {*scope}
    assert coursekit.probe.__name__ == "coursekit.probe"


def test_the_packaged_text_is_the_default(tmp_path, monkeypatch, call):
    asked = []

    def note(name="shakespeare"):
        asked.append(name)
        return load_text(name)[:2000]

    monkeypatch.setattr(runs, "load_text", note)
    assert call("train", "--out", tmp_path / "r", *SMALL)[0] == 0
    assert asked == ["shakespeare"]
    assert read_config(tmp_path / "r")["data"]["text"] == "shakespeare"
