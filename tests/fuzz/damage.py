"""Damaged files, and JSON of another form: an error that says so, or none.

What is read is as it was written, or it is refused: a ``ValueError`` (an
``OSError`` where the file is not there), in one line.
"""

import json
import struct
import wave
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import torch
import transformers  # what is asked of it is imported then
from safetensors.torch import save_file

from coursekit.bpe import read_ranks
from coursekit.checkpoint import load_checkpoint, save_checkpoint
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import load_text
from coursekit.decoder import GPT
from coursekit.pretrained.formats import (
    MissingModelError,
    read_ct2,
    read_gguf,
    read_safetensors,
)
from coursekit.pretrained.gpt2 import load_gpt2
from coursekit.pretrained.speech import read_wav
from coursekit.saved_models import load_model, save_model
from coursekit.tokenizer import BPETokenizer, CharTokenizer, load_tokenizer
from coursekit.training import new_state
from coursekit_classroom.notebooks.declared import declared
from coursekit_classroom.teach import wire as sandbox_wire
from coursekit_classroom.teach.read import read_submission
from coursekit_classroom.teach.roster import read_roster
from coursekit_classroom.teach.secret import Secret
from coursekit_classroom.yourfile.capstone import predicted
from tests.fuzz import folder, target
from tests.references import write_model_bin
from tests.submissions import corpus

# -- how things are damaged --------------------------------------------------
ODD = [
    *(None, True, False, 0, -1, 1, 2**31, 10**400, 0.5, float("nan"), 1e308),
    *("", "x", "../x", "\ud800", "9" * 30, [], [[]], {}, {"": None}, [0, "a"]),
]

DEEP = "lists in lists"  # stands for them until it is JSON


def spoiled(rng, data: bytes) -> bytes:
    """Bytes of which some are others, more, or missing."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 3, 20])):
        at = rng.randrange(len(found) + 1)
        # What says how long something is stands at the beginning.
        at = rng.choice([at, min(at, rng.randrange(64))])
        n = rng.choice([1, 1, 4, 8, 100])
        change = rng.randrange(7)
        if change == 0:
            del found[at:]
        elif change == 1:
            del found[at : at + n]
        elif change == 2:
            found[at:at] = rng.randbytes(n)
        elif change == 3:
            found[at : at + n] = rng.randbytes(n)
        elif change == 4:
            found[at : at + n] = bytes([rng.choice([0, 255])]) * n
        elif change == 5:
            found[at:at] = found[rng.randrange(len(found) + 1) :][:n]
        elif found:
            at = min(at, len(found) - 1)
            found[at] ^= 1 << rng.randrange(8)
    return bytes(found)


def changed(rng, value):
    """JSON with one part of another kind, more parts, or fewer."""
    value = json.loads(json.dumps(value))
    places = [*parts(value)]
    if not places:
        return rng.choice(ODD)
    owner, key = rng.choice(places)
    change = rng.randrange(6)
    if change == 0:
        del owner[key]
    elif change == 1 and isinstance(owner, dict):
        owner[rng.choice(["x", "", "kind", "id"])] = rng.choice(ODD)
    elif change == 2:
        other, place = rng.choice(places)
        owner[key] = json.loads(json.dumps(other[place]))
    elif change == 3:
        owner[key] = DEEP
    elif change == 4 and isinstance(owner[key], str | int | float):
        kinds = {str: "x", int: 1, float: 0.5, bool: 1}
        owner[key] = owner[key] + kinds[type(owner[key])]
    else:
        owner[key] = rng.choice(ODD)
    return value


def parts(value):
    """Every place in a JSON value: what holds it, and where."""
    keys = {dict: list, list: lambda v: range(len(v))}.get(type(value))
    for key in keys(value) if keys else ():
        yield value, key
        yield from parts(value[key])


def json_bytes(rng, data: bytes) -> bytes:
    """A JSON file of another form, or damaged as any file."""
    if rng.random() < 0.3:
        return spoiled(rng, data)
    value = json.loads(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if isinstance(value, dict | list):
            value = changed(rng, value)
    data, n = json.dumps(value).encode(), rng.choice([1, 30, 900, 200_000])
    return data.replace(f'"{DEEP}"'.encode(), b"[" * n + b"]" * n)


def refuses(read, *kinds):
    """Call it: what it gives, or None if it says in one line what is wrong."""
    try:
        return read()
    except (ValueError, OSError, *kinds) as error:
        said = error
    text = str(said)
    assert text, "an error must say something"
    assert not isinstance(said, UnicodeError), text
    assert len(text.splitlines()) == 1, text
    assert len(text) < 2000, f"{len(text)} characters: {text[:200]}"
    return None


# -- models and tokenizers ---------------------------------------------------
@cache
def run_files() -> dict[str, bytes]:
    """A small run, saved: its files by their names."""
    torch.manual_seed(0)
    tokenizer = CharTokenizer("abcdefg")
    model = GPT(
        GPTConfig(vocab_size=7, d_model=6, n_heads=2, n_layers=1, max_len=5)
    )
    with folder() as path:
        save_model(path, model, tokenizer)
        state = new_state(model, TrainConfig(steps=3))
        save_checkpoint(path / "checkpoint.safetensors", model, state)
        return {p.name: p.read_bytes() for p in path.iterdir()}


def put(path: Path, files: dict[str, bytes], **others: bytes) -> None:
    """Write files; some with other bytes."""
    for name, data in (files | others).items():
        (path / name).write_bytes(data)


@target
def model(rng):
    """A saved model: weights as they were, or an error."""
    files = run_files()
    name = rng.choice(["config.json", "tokenizer.json", "model.safetensors"])
    how = spoiled if name.endswith("tensors") else json_bytes
    data = how(rng, files[name])
    with folder() as path:
        put(path, files)
        right = load_model(path).model.state_dict()
        (path / name).write_bytes(data)
        found = refuses(lambda: load_model(path))
    if found is None:
        return
    weights = found.model.state_dict()
    assert weights.keys() == right.keys()
    assert all(torch.equal(weights[k], right[k]) for k in right)
    with torch.no_grad():
        assert found.model(torch.tensor([[1, 2]])).shape == (1, 2, 7)


@target
def checkpoint(rng):
    """A checkpoint: all of it as it was, or an error and nothing changed."""
    files = run_files()
    data = spoiled(rng, files["checkpoint.safetensors"])
    with folder() as path:
        put(path, files)
        ours = load_model(path).model
        before = {k: v.clone() for k, v in ours.state_dict().items()}
        state = new_state(ours, TrainConfig(steps=3))
        (path / "c.safetensors").write_bytes(data)
        refuses(lambda: load_checkpoint(path / "c.safetensors", ours, state))
    for k, v in ours.state_dict().items():
        assert torch.equal(v, before[k])


@target
def tokenizer(rng):
    """A tokenizer's JSON: it encodes and decodes, or is refused."""
    text = "the tent, the ten"
    trained = rng.choice([CharTokenizer, BPETokenizer])
    kind = CharTokenizer.train(text)
    if trained is BPETokenizer:
        kind = BPETokenizer.train(text, 260, special_tokens=["<e>"])
    data = json_bytes(rng, json.dumps(kind.to_dict()).encode())
    with folder() as path:
        (path / "tokenizer.json").write_bytes(data)
        found = refuses(lambda: load_tokenizer(path / "tokenizer.json"))
    if found is None:
        return
    ids = refuses(lambda: found.encode(text))
    if ids is not None:
        assert found.decode(ids) == text
        assert all(0 <= i < found.vocab_size for i in ids)


@cache
def published_files() -> dict[str, bytes]:
    """Small files of the formats in which others publish."""
    torch.manual_seed(0)
    with folder() as path:
        save_file({"a": torch.randn(3, 2), "b": torch.ones(4)}, path / "s")
        weights = {"a/weight": np.ones((2, 3), "float16"), "b": np.ones(1)}
        weights["b"] = weights["b"].astype("float32")
        write_model_bin(path / "c", weights, [("again", "b")])
        with wave.open(str(path / "w"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(struct.pack("<9h", *range(9)))
        (path / "r").write_bytes(b"YQ== 0\nYg== 1\nYWI= 2\n")
        (path / "t").write_bytes("é\ttwo\nlines\n".encode() * 3)
        files = {p.name: p.read_bytes() for p in path.iterdir()}
        try:
            import gguf
        except ImportError:
            return files
        writer = gguf.GGUFWriter(path / "g", "llama")
        writer.add_uint32("llama.block_count", 1)
        writer.add_string("tokenizer.ggml.model", "gpt2")
        writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
        writer.add_tensor("token_embd.weight", np.ones((2, 3), "float32"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return files | {"g": (path / "g").read_bytes()}


READERS = {
    "s": read_safetensors,
    "c": read_ct2,
    "w": read_wav,
    "r": read_ranks,
    "t": load_text,
    "g": read_gguf,
}


@target
def formats(rng):
    """Safetensors, CTranslate2, GGUF, WAV, ranks and texts, damaged."""
    files = published_files()
    name = rng.choice(sorted(files))
    data = spoiled(rng, files[name])
    with folder() as path:
        (path / name).write_bytes(data)
        refuses(lambda: READERS[name](path / name), MissingModelError)


@cache
def gpt2_files() -> dict[str, bytes]:
    """A small GPT-2 as `transformers` writes it."""
    config = transformers.GPT2Config(
        vocab_size=7,
        n_positions=5,
        n_embd=6,
        n_layer=1,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    with folder() as path:
        transformers.GPT2LMHeadModel(config).save_pretrained(path)
        return {p.name: p.read_bytes() for p in path.iterdir()}


@target
def published(rng):
    """A published model's folder with another configuration."""
    files = gpt2_files()
    name = rng.choice(["config.json", "config.json", "model.safetensors"])
    how = json_bytes if name == "config.json" else spoiled
    with folder() as path:
        put(path, files)
        (path / name).write_bytes(how(rng, files[name]))
        refuses(lambda: load_gpt2(path))


# -- what graders read -------------------------------------------------------
@target
def submission(rng):
    """A student's notebook: read, or refused in a sentence."""
    entry = rng.choice([e for e in corpus.ENTRIES if e.kind == "right"])
    [data] = entry.files.values()
    data = json_bytes(rng, data)
    wanted = [Wanted(e["id"], e["function"]) for e in corpus.EXERCISES]
    with folder() as path:
        file = path / "ada.ipynb"
        file.write_bytes(data)
        refuses(lambda: declared(file))
        found = refuses(lambda: read_submission([file], wanted))
    if found is not None:
        assert found.answers.keys() == {want.id for want in wanted}


class Wanted:
    """What is asked of a submission."""

    def __init__(self, id, function):
        self.id, self.function = id, function


@target
def wire(rng):
    """A message of the sandbox: what it holds, or one error."""
    value = {
        "x": torch.randn(3, 4).T,
        "y": [1, 2.5, None, True, "é", b"b", (2 + 3j, {1, 2})],
        3: np.float64(2.5).item(),
    }
    data = sandbox_wire.pack(value)
    is_json = rng.random() < 0.7
    if not is_json:
        data = spoiled(rng, data)
    with suppress(sandbox_wire.WireError, struct.error):
        text, body = sandbox_wire.sizes(data[: sandbox_wire.HEAD.size])
        rest = data[sandbox_wire.HEAD.size :]
        tree, tensors = rest[:text], rest[text : text + body]
        sandbox_wire.unpack(
            json_bytes(rng, tree) if is_json else tree, tensors
        )


KEY = {
    "version": 1,
    "id": "",
    "secret": "5" * 64,
    "assignments": {"04": {"page": "04", "exercises": [], "students": {}}},
}
MADE = {"old": "a", "new": "b", "expected": 0.5, "file": "", "made": ""}


@target
def records(rng):
    """A key, or a prediction: as it was, or refused."""
    with folder() as path:
        file = path / "assignment-secret.txt"
        file.write_bytes(json_bytes(rng, json.dumps(KEY).encode()))
        found = refuses(lambda: Secret.load(file))
        if found is not None:
            assert len(bytes.fromhex(found.digits)) == 32
            assert isinstance(found.seed("grade", "x"), int)
        file.write_bytes(json_bytes(rng, json.dumps(MADE).encode()))
        made = refuses(lambda: predicted(file))
        if made is not None:
            assert len(made.digest) == 64


ROSTERS = [
    "id,name\nada,Ada Okafor\nbo,Bo Lindqvist\n",
    "Student,ID,SIS User ID,SIS Login ID,Section\n    Points Possible,,,,\n"
    '"Okafor, Ada",4001,,ada,1\n',
]


@target
def roster(rng):
    """A list of students: members, or what is wrong with it."""
    data = rng.choice(ROSTERS).encode()
    with folder() as path:
        file = path / "class.csv"
        file.write_bytes(spoiled(rng, data))
        found = refuses(lambda: read_roster(file))
        if found is not None:
            ids = [one.id for one in found.members]
            assert len(set(ids)) == len(ids)
