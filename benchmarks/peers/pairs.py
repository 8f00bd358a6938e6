"""Encoder-decoder peers, with the paper's base choices."""

import ast
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.contest import Model, Settings, Shape, Task, checkout, need
from benchmarks.peers.gpts import mean_nats, of_logits, shape_of, sinusoids


def marian(task: Task, settings: Settings) -> Model:
    """MarianMTModel of the transformers library."""
    library, shape = need("transformers"), shape_of(task)
    sizes = {
        "layers": shape.n_layers,
        "attention_heads": shape.n_heads,
        "ffn_dim": 4 * shape.d_model,
    }
    config = library.MarianConfig(
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.limit,
        d_model=shape.d_model,
        scale_embedding=True,
        activation_function="relu",
        dropout=shape.dropout,
        attention_dropout=shape.dropout,
        activation_dropout=shape.dropout,
        pad_token_id=shape.vocab_size - 1,
        eos_token_id=None,
        forced_eos_token_id=None,
        decoder_start_token_id=0,
        **{f"{s}_{k}": v for k, v in sizes.items() for s in _STACKS},
    )
    model = library.MarianMTModel(config).train()

    def loss(module: Any, src: Tensor, tgt: Tensor, y: Tensor) -> Tensor:
        out = module(src, decoder_input_ids=tgt, use_cache=False)
        return mean_nats(out.logits, y)

    def logits(src: Tensor, tgt: Tensor) -> Tensor:
        return model(src, decoder_input_ids=tgt).logits

    def write(src: Tensor, n: int, n_beams: int = 1) -> Tensor:
        how = library.GenerationConfig(
            max_new_tokens=n,
            do_sample=False,
            num_beams=n_beams,
            use_cache=True,
            decoder_start_token_id=0,
            pad_token_id=shape.vocab_size - 1,
        )
        model.eval()
        out = model.generate(
            src, attention_mask=torch.ones_like(src), generation_config=how
        )
        model.train()
        return out[:, 1:]

    return Model(model, loss, logits, write)


_STACKS = ("encoder", "decoder")


class TorchPairs(nn.Module):
    """nn.Transformer between one tied table."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.core = nn.Transformer(
            shape.d_model,
            shape.n_heads,
            shape.n_layers,
            shape.n_layers,
            4 * shape.d_model,
            shape.dropout,
            batch_first=True,
        )
        self.table = nn.Embedding(shape.vocab_size, shape.d_model)
        nn.init.normal_(self.table.weight, std=shape.d_model**-0.5)
        self.dropout = nn.Dropout(shape.dropout)
        codes = sinusoids(shape.limit, shape.d_model)
        self.codes = nn.Buffer(codes, persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) ids to (B, T, D)."""
        x = self.table(ids) * math.sqrt(self.table.embedding_dim)
        return self.dropout(x + self.codes[: ids.size(1)])

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """(B, S) and (B, T) ids to (B, T, V) logits."""
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        x = self.core(
            self.embed(src), self.embed(tgt), tgt_mask=mask, tgt_is_causal=True
        )
        return F.linear(x, self.table.weight)


def torch_nn(task: Task, settings: Settings) -> Model:
    """nn.Transformer; it has no cache, so it does not generate."""
    model = TorchPairs(shape_of(task))
    return Model(model, of_logits, model)


def annotated(task: Task, settings: Settings) -> Model:
    """The Annotated Transformer, from a checkout."""
    shape = shape_of(task)
    names = definitions(checkout(settings, "annotated"))
    sizes = (shape.n_layers, shape.d_model, 4 * shape.d_model, shape.n_heads)
    n = shape.vocab_size
    model = names["make_model"](n, n, *sizes, shape.dropout)

    def logits(module: Any, src: Tensor, tgt: Tensor) -> Tensor:
        seen = torch.ones(1, 1, src.size(1), dtype=torch.bool)
        earlier = names["subsequent_mask"](tgt.size(1))
        # Log-probabilities: a softmax leaves them as they are.
        return model.generator(module(src, tgt, seen, earlier))

    def loss(module: Any, src: Tensor, tgt: Tensor, y: Tensor) -> Tensor:
        return F.nll_loss(logits(module, src, tgt).flatten(0, 1), y.flatten())

    note = "pre-norm, three tables, no cache"
    return Model(model, loss, note=note)


def definitions(path: Path) -> dict[str, Any]:
    """The functions and classes of a notebook's script.

    The rest of it, imports of plotting and data libraries included, is left
    out.
    """
    tree = ast.parse(path.read_text("utf8"))
    tree.body = [node for node in tree.body if _is_wanted(node)]
    names: dict[str, Any] = {"__name__": "benchmarks_annotated"}
    exec(compile(tree, str(path), "exec"), names)
    return names


def _is_wanted(node: ast.stmt) -> bool:
    known = ("torch", "math", "copy")
    if isinstance(node, ast.Import):
        return all(a.name.partition(".")[0] in known for a in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in known
    return isinstance(node, (ast.ClassDef, ast.FunctionDef))
