"""The only file here that names the package: what is computed, and how.

:func:`groups` gives functions by name; each returns ``{name: tensor}``, all
in float32 or as token ids, with one thread and fixed seeds.
"""

import ast
import re
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812

from coursekit.config import (
    EncoderConfig,
    GPTConfig,
    SpeechConfig,
    TrainConfig,
    TransformerConfig,
    VisionConfig,
)
from coursekit.data import Pairs, random_windows
from coursekit.decoder import GPT
from coursekit.encoder import Encoder
from coursekit.generation import beam_search, generate
from coursekit.loss import token_loss
from coursekit.preferences import dpo_batch, make_dpo_loss
from coursekit.pretrained.whisper import SpeechTransformer
from coursekit.saved_models import load
from coursekit.seq2seq import Transformer
from coursekit.steppers import GPTStepper, Seq2SeqStepper
from coursekit.training import add_gradients, train
from coursekit.translate import Translator
from coursekit.vision import ViT

ROOT = Path(__file__).resolve().parents[2]
V, T, B = 11, 13, 3
SMALL = {"vocab_size": V, "max_len": 17, "d_model": 20, "n_heads": 5}
CONFIGS = {
    "default": {},
    "rope": {"positions": "rope"},
    "rope_halves": {"positions": "rope", "position_layout": "halves"},
    "sinusoidal": {"positions": "sinusoidal", "scale_embedding": True},
    "alibi": {"positions": "alibi"},
    "unordered": {"positions": "none"},
    "llama": {
        **{"positions": "rope", "norm": "rmsnorm", "activation": "swiglu"},
        **{"bias": False, "tie_embeddings": False},
    },
    "post_norm": {"norm_first": False, "final_norm": False},
    "no_norm": {"norm": "none", "activation": "relu"},
    "no_residual": {"residual": False, "activation": "gelu_tanh"},
    "no_network": {"d_ff": 0},
    "shared_heads": {"n_heads": 6, "n_kv_heads": 2, "d_head": 6, "d_value": 7},
}
PROMPTS = [[3, 5, 7, 2], [9, 1]]
SUBJECTS = {
    "en": "A man|Two women|A little girl|The dog|Some people",
    "de": "Ein Mann|Zwei Frauen|Ein kleines Mädchen|Der Hund|Einige Leute",
}
DOINGS = {
    "en": "in a red shirt|on a bench|near the water|with a ball|under a tree|"
    "in the snow|on a street|in front of a house|with a guitar|at night",
    "de": "in einem roten Hemd|auf einer Bank|am Wasser|mit einem Ball|"
    "unter einem Baum|im Schnee|auf einer Straße|vor einem Haus|"
    "mit einer Gitarre|in der Nacht",
}


def tokens(*shape, seed=7):
    """Token ids, of which none is 0, the padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, V, shape, generator=generator)


def build(kind, config):
    """A model in evaluation mode whose every parameter is random."""
    torch.manual_seed(3)
    model = kind(config)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model.eval()


def measure(model, logits, targets):
    """Logits, the loss, and the length of each parameter's gradient."""
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    loss.backward()
    lengths = [
        torch.tensor(0.0) if p.grad is None else p.grad.norm()
        for p in model.parameters()
    ]
    return {
        "logits": logits.detach(),
        "loss": loss.detach(),
        "gradients": torch.stack(lengths),
    }


def sure(stepper, prompts, n):
    """Greedy tokens, -1 from where the two best are nearly as likely."""
    margins = []

    def choose(logits):
        best = logits.topk(2).values
        margins.append(best[:, 0] - best[:, 1])
        return logits.argmax(-1)

    rows = torch.tensor(generate(stepper, prompts, n, choose))
    unsure = torch.stack(margins, 1).cummin(1).values <= 1e-3
    return rows.masked_fill(unsure, -1)


def decoder(fields):
    """A GPT with these fields: one batch, and greedy tokens."""
    model = build(GPT, GPTConfig(n_layers=2, **SMALL | fields))
    found = measure(model, model(tokens(B, T)), tokens(B, T, seed=8))
    with torch.no_grad():
        found["greedy"] = sure(GPTStepper(model), PROMPTS, 10)
    return found


def encoder():
    """An encoder; its features stand for logits."""
    model = build(Encoder, EncoderConfig(n_layers=2, **SMALL))
    mask = (tokens(B, T) > 3)[:, None, None]
    return measure(model, model(tokens(B, T), mask), tokens(B, T, seed=8))


def transformer():
    """An encoder-decoder: one batch, and two beams."""
    model = build(Transformer, TransformerConfig(**SMALL))
    source, target = tokens(B, T), tokens(B, 7, seed=9)
    found = measure(model, model(source, target), tokens(B, 7, seed=8))
    with torch.no_grad():
        rows = source.tolist()
        found["greedy"] = sure(Seq2SeqStepper(model, [1]), rows, 9)
        beams = beam_search(Seq2SeqStepper(model, [1]), rows, 2, 9)
    found["scores"] = torch.tensor([[h.score for h in row] for row in beams])
    return found


def image():
    """A vision transformer."""
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 20, "n_heads": 5}
    model = build(ViT, VisionConfig(n_layers=2, n_classes=V, **sizes))
    torch.manual_seed(5)
    logits = model(torch.randn(B, 1, 8, 8))
    return measure(model, logits, tokens(B))


def speech():
    """A model that hears."""
    fields = SMALL | {"n_mels": 6, "max_frames": 7}
    model = build(SpeechTransformer, SpeechConfig(**fields))
    torch.manual_seed(5)
    logits = model(torch.randn(B, 6, 14), tokens(B, 7))
    return measure(model, logits, tokens(B, 7, seed=8))


def losses(model, batches, loss=None, **changes):
    """Twenty losses of the loop."""
    fields = {"steps": 20, "warmup_steps": 3, "learning_rate": 0.01}
    config = TrainConfig(**fields | changes)
    state = train(model, batches, config, progress=False, loss=loss)
    return {"losses": torch.tensor(state.losses)}


def training(**changes):
    """A GPT learns windows of a text; changes may be of either setting."""
    dropout = changes.pop("dropout", 0.0)
    text = tokens(400)
    model = build(GPT, GPTConfig(n_layers=2, dropout=dropout, **SMALL))
    return losses(
        model, lambda n: [random_windows(text, B, T, 0, n)] * 2, **changes
    )


def pairs_training():
    """An encoder-decoder learns pairs of unequal lengths."""
    rows = tokens(30, 9).tolist()
    pairs = [(r[: 2 + n % 7], r[n % 5 :]) for n, r in enumerate(rows)]
    batches = Pairs(pairs, max_tokens=40, pad_id=0, bos_id=1, eos_id=2, seed=0)
    model = build(Transformer, TransformerConfig(**SMALL))
    return losses(model, lambda n: [batches.batch(n)])


def preference_training():
    """DPO on two comparisons."""
    reference = build(GPT, GPTConfig(n_layers=2, **SMALL))
    model = build(GPT, GPTConfig(n_layers=2, **SMALL))
    compared = [([3, 5, 7], [2, 1], [4, 6, 1]), ([2], [9, 8, 1], [1])]
    batch = dpo_batch(compared, reference, 0)
    return losses(model, lambda n: [batch], make_dpo_loss(0.5))


def text_model(name):
    """A shipped model of text: loss of its own greedy words, logits, words."""
    model, _ = load(name)
    ids = torch.arange(B * T).view(B, T) * 7 % model.config.vocab_size
    with torch.no_grad():
        logits = model(ids)
        greedy = sure(GPTStepper(model), ids[:2, :5].tolist(), 20)
    batch = random_windows(ids.flatten(), B, T - 1, 0, 0)
    nats, _ = add_gradients(model, [batch], token_loss)
    lengths = [p.grad.norm() for p in model.parameters()]
    return {
        "logits": logits[:, -2:].clone(),
        "greedy": greedy,
        "loss": nats,
        "gradients": torch.stack(lengths),
    }


def translations(direction):
    """Fifty sentences, as text in UTF-8."""
    translate = Translator.load(f"translator-{direction}")
    said = translate(
        [
            f"{who} {where}."
            for who in SUBJECTS[direction[:2]].split("|")
            for where in DOINGS[direction[:2]].split("|")
        ]
    )
    return {"text": torch.tensor([*"\n".join(said).encode()])}


def names():
    """What README, the pages and the list of names import from the package."""
    offered = (ROOT / "coursekit/__init__.pyi").read_text("utf8")
    found = {
        alias.asname
        for node in ast.walk(ast.parse(offered))
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    for page in [ROOT / "README.md", *ROOT.glob("book/**/*.md")]:
        found |= set(
            re.findall(r"\bcoursekit\.(\w+)\(", page.read_text("utf8"))
        )
    return found


def groups():
    """``{name: function}``, all that is pinned but names."""
    found = {f"gpt/{n}": lambda f=f: decoder(f) for n, f in CONFIGS.items()}
    found |= {"encoder": encoder, "transformer": transformer}
    found |= {"vision": image, "speech": speech}
    found |= {
        "train/adamw": training,
        "train/muon": lambda: training(optimizer="muon", schedule="noam"),
        "train/dropout": lambda: training(dropout=0.1, label_smoothing=0.1),
        "train/chunks": lambda: training(loss_chunk_size=16),
        "train/pairs": pairs_training,
        "train/preferences": preference_training,
    }
    for name in ("running", "shakespeare", "stories", "stories-student"):
        found[f"shipped/{name}"] = lambda name=name: text_model(name)
    for direction in ("en-de", "de-en"):
        found[f"translate/{direction}"] = lambda d=direction: translations(d)
    return found
