"""Training in the page against PyTorch, in Chromium.

A step of the page's own model, forward, backward and AdamW, must be that of
`minimal.py` with the same weights and batch; a run must learn, and what it
saves must be what `coursekit.load` reads.
"""

import hashlib
import re
import zipfile

import pytest
import torch
from patience import PATIENCE

import coursekit
from coursekit import minimal
from coursekit_classroom import live
from coursekit_classroom.live import train
from coursekit_classroom.yourfile.saving import library_name, to_library

pytestmark = pytest.mark.xdist_group("live")

NEAR = 1e-5  # of every number
# Distinct sizes; no count of rows or columns is a multiple of the kernel's.
SIZES = {"V": 11, "T": 7, "D": 15, "H": 3, "blocks": 2, "batch": 3}
STEPS, PEAK = 4, 0.02
HARNESS = """
globalThis.L = coursekitLive;
globalThis.fill = ([sizes, weights]) => {
  globalThis.model = new L.Minimal(sizes);
  for (const [name, values] of Object.entries(weights))
    model.w[name].set(values);
};
globalThis.gradients = ([ids, targets]) => {
  const loss = model.forward(Int32Array.from(ids), Int32Array.from(targets));
  model.backward();
  return [loss, numbers(model.g)];
};
globalThis.update = ([ids, targets, rate]) => [
  model.update(Int32Array.from(ids), Int32Array.from(targets), rate),
  numbers(model.w)];
const numbers = (named) => Object.fromEntries(Object.entries(named).map(
  ([name, values]) => [name, [...values]]));
"""


@pytest.fixture(scope="module")
def new_page(browser, tmp_path_factory):
    """Make a page with the worker's script, some of its text replaced."""
    pages = []

    def make(*edits):
        files = train.sources()
        for old, new in edits:
            (path,) = [p for p, text in files.items() if old in text]
            assert files[path].count(old) == 1, old
            files[path] = files[path].replace(old, new)
        folder = tmp_path_factory.mktemp("train")
        script = live.bundle(files) + HARNESS
        (folder / "worker.js").write_text(script, "utf8")
        (folder / "page.html").write_text(
            '<!doctype html><meta charset="utf-8"><title>t</title>'
            '<script src="worker.js"></script>'
        )
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.goto((folder / "page.html").as_uri())
        pages.append(page)
        return page

    yield make
    for each in pages:
        each.close()


@pytest.fixture(scope="module")
def page(new_page):
    return new_page()


# -- one step ----------------------------------------------------------------
def start():
    """A model of minimal.py with weights far from their first ones."""
    torch.manual_seed(5)
    sizes = (SIZES["V"], SIZES["T"], SIZES["D"], SIZES["H"], SIZES["blocks"])
    model = minimal.GPT(*sizes).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
            weight.copy_(weight.float())  # what the page can hold
    return model


def batches():
    """Windows in which some characters come often, and one never."""
    torch.manual_seed(7)
    for _ in range(STEPS):
        ids = torch.randint(SIZES["V"] - 1, (SIZES["batch"], SIZES["T"] + 1))
        yield ids[:, :-1], ids[:, 1:]


def named(model, what=lambda weight: weight):
    """A number of each parameter, by the library's names."""
    return {
        library_name(name): what(weight).detach().clone()
        for name, weight in model.named_parameters()
    }


def furthest(ours, theirs):
    """The largest difference of all numbers."""
    assert ours.keys() == theirs.keys()
    return max(
        float((torch.tensor(ours[name]) - theirs[name].flatten()).abs().max())
        for name in theirs
    )


def differences(page):
    """Of losses, first gradients and weights: page and PyTorch, at most."""
    model, found = start(), {"loss": 0.0, "weights": 0.0}
    flat = {k: w.flatten().tolist() for k, w in named(model).items()}
    page.evaluate("given => fill(given)", [SIZES, flat])
    optimizer, lengths = minimal.make_optimizer(model), []
    for step, (inputs, targets) in enumerate(batches()):
        rate = minimal.learning_rate(step, STEPS, PEAK, warmup=1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = minimal.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        given = [inputs.flatten().tolist(), targets.flatten().tolist()]
        if step == 0:
            ours, g = page.evaluate("given => gradients(given)", given)
            found["gradient"] = furthest(g, named(model, lambda w: w.grad))
            found["loss"] = abs(ours - loss.item())
        length = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        lengths.append(float(length))
        optimizer.step()
        ours, w = page.evaluate("given => update(given)", [*given, rate])
        found["loss"] = max(found["loss"], abs(ours - loss.item()))
        found["weights"] = max(found["weights"], furthest(w, named(model)))
    assert max(lengths) > 1  # a gradient was clipped
    return found


def test_a_step_is_pytorchs(page, capsys):
    found = differences(page)
    with capsys.disabled():
        print(f"\ntraining in the page, from PyTorch at most: {found}")
    assert max(found.values()) < NEAR


KEYS = "let mean = 0;\n      for (let s = 0;"
WRONG = {
    "mask off by one in the backward": [
        (f"{KEYS} s <= t;", f"{KEYS} s < t;"),
    ],
    "the residual's gradient dropped": [
        ("this.normBack(a.norm1,", "room.dx.fill(0); this.normBack(a.norm1,"),
    ],
    "softmax without its mean": [("(dP[s] - mean)", "dP[s]")],
    "scores' gradient not divided by the root": [
        ("(dP[s] - mean) / root", "(dP[s] - mean)"),
    ],
    "gelu without its slope": [
        ("(normal[i] + x[i] * Math.exp(-x[i] * x[i] / 2) / root)",
         "normal[i]"),
    ],
    "norm as if the variance were fixed": [
        ("- centered[at] * along", ""),
    ],
    "gains get no gradient": [("dgain[i] += dy[at] * centered[at];", "")],
    "positions get no gradient": [
        ("dP[(t % T) * D + i] += room.dx[t * D + i];", ""),
    ],
    "gradients not cleared": [
        ("this.all.g.fill(0); // optimizer.zero_grad()", ""),
    ],
    "not clipped": [("clipGradient(this.all.g);", "")],
    "gains decay": [("shape.length === 2 ? DECAY : 0", "DECAY")],
    "means not corrected": [("m[i] / whole1", "m[i]")],
    "decay within the gradient": [
        ("(Math.sqrt(v[i] / whole2) + eps)\n      + decay * w[i])",
         "(Math.sqrt(v[i] / whole2) + eps + decay * w[i]))"),
    ],
    "a row of the product left out": [
        ("const rows = m - m % 4,", "const rows = (m -= m % 4),"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_step_is_seen(new_page, how):
    """Controls: each is a mistake with which a loss may well fall."""
    found = differences(new_page(*WRONG[how]))
    assert not max(found.values()) < 10 * NEAR


def test_the_rate_is_minimal_pys(page):
    steps = [0, 1, 99, 100, 101, 700, 1999]
    ours = page.evaluate(
        "steps => steps.map(s => L.learningRate(s, 2000, 1e-3))", steps
    )
    theirs = [minimal.learning_rate(step, 2000) for step in steps]
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_first_weights_are_drawn_as_minimal_pys(page):
    """The same spread; uniform numbers are uniform."""
    spreads, draws = page.evaluate(
        """() => {
          const model = new L.Minimal({V: 61, T: 32, D: 48, H: 4, blocks: 3,
            batch: 1});
          const std = (w) => Math.sqrt(
            w.reduce((sum, x) => sum + x * x, 0) / w.length);
          const draw = L.uniform(3);
          return [Object.fromEntries(Object.entries(model.w).map(
            ([name, w]) => [name, std(w)])),
            Array.from({length: 4000}, draw)];
        }"""
    )
    torch.manual_seed(0)
    theirs = named(minimal.GPT(61, 32, 48, 4, 3))
    assert list(spreads) == list(theirs)
    for name, weight in theirs.items():
        assert spreads[name] == pytest.approx(
            float(weight.square().mean().sqrt()), rel=0.1
        )
    assert len(set(draws)) == 4000
    assert 0 <= min(draws) < 0.01
    assert 0.99 < max(draws) < 1
    assert sum(draws) / 4000 == pytest.approx(0.5, abs=0.02)


# -- a run -------------------------------------------------------------------
TEXT = "The cat sat on the mat.\nThe dog saw the cat, é 🙂.\n" * 400


@pytest.fixture(scope="module")
def run(page):
    """A short run: losses, a sample before and after, and the saved bytes."""
    return page.evaluate(
        """([text]) => {
          const trainer = new L.Trainer(text, {steps: 60, seed: 3});
          const before = trainer.sample(300), losses = [];
          while (!trainer.done) losses.push(trainer.step());
          const logits = L.buildModel(
            {model: "GPT", config: trainer.config}, L.nest(trainer.tensors()),
          ).forward(trainer.tokenizer.encode("The cat")).at(-1);
          const bytes = trainer.save();
          return {before, losses, after: trainer.sample(300),
            again: trainer.sample(300), prompt: trainer.prompt,
            logits: [...logits],
            saved: [...bytes]};
        }""",
        [TEXT],
    )


def words(text):
    """The fraction of words that the text has, too."""
    known = set(re.findall(r"[a-zA-Z]{2,}", TEXT))
    found = re.findall(r"[a-zA-Z]{2,}", text)
    return sum(word in known for word in found) / max(1, len(found))


def test_a_run_learns(run):
    assert run["losses"][0] == pytest.approx(2.9, abs=0.3)
    assert sum(run["losses"][-5:]) / 5 < 1.5
    assert run["prompt"] == "The cat sat on t"
    assert run["after"] == run["again"]  # the same draws
    assert words(run["after"]) > 0.5 > words(run["before"])


def test_what_is_saved_is_loaded(run, tmp_path):
    saved = bytes(run["saved"])
    path = tmp_path / "trained-here.zip"
    path.write_bytes(saved)
    model, tokenizer = coursekit.load(path)
    assert tokenizer.encode("é🙂\n")
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode("The cat")]))[0, -1]
    off = (logits - torch.tensor(run["logits"])).abs().max()
    assert float(off) < 1e-4
    # The configuration is minimal.py's, whatever else the library can do.
    own = minimal.GPT(tokenizer.vocab_size, 32, 32, n_heads=2, n_blocks=2)
    assert to_library(own).config == model.config


def test_the_hash_is_sha_256(page):
    for n in (0, 3, 55, 56, 64, 1000):
        data = bytes(i * 37 % 256 for i in range(n))
        ours = page.evaluate(
            "data => L.sha256(Uint8Array.from(data))", list(data)
        )
        assert ours == hashlib.sha256(data).hexdigest()


def test_a_damaged_zip_is_refused(run, tmp_path):
    saved = bytes(run["saved"])
    path = tmp_path / "half.zip"
    for bad in (saved[: len(saved) // 2], saved.replace(b'"GPT"', b'"GPU"')):
        path.write_bytes(bad)
        with pytest.raises(
            ValueError, match=r"a zip must be complete.*half\.zip"
        ):
            coursekit.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "no model")
    with pytest.raises(ValueError, match=r"half\.zip .*no item named"):
        coursekit.load(path)
