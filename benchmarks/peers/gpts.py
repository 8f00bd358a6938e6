"""Decoder-only peers, each with GPT-2's choices as far as it offers them."""

import contextlib
import io
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.contest import (
    Missing,
    Model,
    Settings,
    Shape,
    Task,
    checkout,
    load_module,
    need,
)


def shape_of(task: Task) -> Shape:
    """The sizes that a model task always has."""
    assert task.shape is not None
    return task.shape


def mean_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of peers whose models return logits only."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def of_logits(module: nn.Module, *batch: Tensor) -> Tensor:
    """The loss of a module that maps its inputs to logits."""
    *inputs, targets = batch
    return mean_nats(module(*inputs), targets)


def transformers(task: Task, settings: Settings) -> Model:
    """GPT2LMHeadModel of the transformers library."""
    library, shape = need("transformers"), shape_of(task)
    config = library.GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.limit,
        n_embd=shape.d_model,
        n_layer=shape.n_layers,
        n_head=shape.n_heads,
        activation_function="gelu",
        bos_token_id=0,
        eos_token_id=None,
        **dict.fromkeys(
            ("resid_pdrop", "embd_pdrop", "attn_pdrop"), shape.dropout
        ),
    )
    model = library.GPT2LMHeadModel(config).train()

    def loss(module: Any, ids: Tensor, targets: Tensor) -> Tensor:
        return mean_nats(module(ids, use_cache=False).logits, targets)

    def write(ids: Tensor, n: int, **more: Any) -> Tensor:
        how = library.GenerationConfig(
            max_new_tokens=n,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            **more,
        )
        model.eval()
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=how
        )
        model.train()
        return out[:, ids.size(1) :]

    # Its own way: a static cache; on a CPU it compiles when told to.
    compiling = library.CompileConfig()
    compiling._compile_all_devices = True
    static = {
        "cache_implementation": "static",
        "compile_config": compiling,
    }
    return Model(
        model,
        loss,
        lambda ids: model(ids).logits,
        write,
        partial(write, **static),
    )


class TorchGPT(nn.Module):
    """PyTorch's own encoder layers under a causal mask."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d_model = shape.d_model
        self.tokens = nn.Embedding(shape.vocab_size, d_model)
        self.positions = nn.Embedding(shape.limit, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model,
            shape.n_heads,
            4 * d_model,
            shape.dropout,
            "gelu",
            batch_first=True,
            norm_first=True,
        )
        self.stack = nn.TransformerEncoder(
            layer,
            shape.n_layers,
            nn.LayerNorm(d_model),
            enable_nested_tensor=False,
        )
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids to (B, T, V) logits."""
        n, device = ids.size(1), ids.device
        positions = torch.arange(n, device=device)
        x = self.tokens(ids) + self.positions(positions)
        mask = nn.Transformer.generate_square_subsequent_mask(n, device)
        x = self.stack(x, mask, is_causal=True)
        return F.linear(x, self.tokens.weight)


def torch_nn(task: Task, settings: Settings) -> Model:
    """nn.TransformerEncoder; it has no cache, so it does not generate."""
    model = TorchGPT(shape_of(task))
    return Model(model, of_logits, model)


def x_transformers(task: Task, settings: Settings) -> Model:
    """TransformerWrapper of x-transformers."""
    library, shape = need("x_transformers"), shape_of(task)
    layers = library.Decoder(
        dim=shape.d_model,
        depth=shape.n_layers,
        heads=shape.n_heads,
        attn_dim_head=shape.d_model // shape.n_heads,
        attn_flash=True,
        attn_dropout=shape.dropout,
        ff_dropout=shape.dropout,
    )
    model = library.TransformerWrapper(
        num_tokens=shape.vocab_size,
        max_seq_len=shape.limit,
        attn_layers=layers,
        tie_embedding=True,
        emb_dropout=shape.dropout,
    )
    writer = library.AutoregressiveWrapper(model)

    def write(ids: Tensor, n: int) -> Tensor:
        return writer.generate(ids, n, temperature=0.0, cache_kv=True)

    return Model(model, of_logits, model, write)


def litgpt(task: Task, settings: Settings) -> Model:
    """LitGPT's model, its own generation loop for a batch of one."""
    library, shape = need("litgpt"), shape_of(task)
    config = library.Config(
        block_size=shape.limit,
        vocab_size=shape.vocab_size,
        padded_vocab_size=shape.vocab_size,
        n_layer=shape.n_layers,
        n_head=shape.n_heads,
        n_embd=shape.d_model,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=True,
        attn_bias=True,
    )
    model = library.GPT(config)
    model.apply(model._init_weights)
    base = need("litgpt.generate.base")

    plain, compiled = base.next_token, torch.compile(base.next_token)

    def write(ids: Tensor, n: int, next_token: Any = plain) -> Tensor:
        if ids.size(0) > 1:
            raise Missing("its generation loop takes one text at a time")
        base.next_token = next_token  # as its own --compile does
        model.eval()
        model.set_kv_cache(batch_size=1)
        out = base.generate(
            model, ids[0], ids.size(1) + n, temperature=0.0, top_k=1
        )
        model.clear_kv_cache()
        model.train()
        return out[None, ids.size(1) :]

    return Model(
        model,
        of_logits,
        model,
        write,
        partial(write, next_token=compiled),
        note="rotary positions, and a head of its own",
    )


def nanogpt(task: Task, settings: Settings) -> Model:
    """karpathy/nanoGPT, from a checkout."""
    path, shape = checkout(settings, "nanogpt"), shape_of(task)
    library = load_module("benchmarks_nanogpt", path)
    with contextlib.redirect_stdout(io.StringIO()):
        model = library.GPT(
            library.GPTConfig(
                block_size=shape.limit,
                vocab_size=shape.vocab_size,
                n_layer=shape.n_layers,
                n_head=shape.n_heads,
                n_embd=shape.d_model,
                dropout=shape.dropout,
                bias=True,
            )
        )
    return karpathys(model, "")


def mingpt(task: Task, settings: Settings) -> Model:
    """karpathy/minGPT, from a checkout."""
    path, shape = checkout(settings, "mingpt"), shape_of(task)
    # Its model imports `mingpt.utils`: the package has to have that name.
    load_module("mingpt", path.parent / "__init__.py")
    library = need("mingpt.model")
    config = library.GPT.get_default_config()
    config.model_type = None
    config.block_size, config.vocab_size = shape.limit, shape.vocab_size
    config.n_layer, config.n_head = shape.n_layers, shape.n_heads
    config.n_embd = shape.d_model
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = shape.dropout
    with contextlib.redirect_stdout(io.StringIO()):
        model = library.GPT(config)
    return karpathys(model, "a head of its own")


def karpathys(model: Any, note: str) -> Model:
    """nanoGPT and minGPT: (ids, targets) to (logits, loss); no cache."""

    def loss(module: Any, ids: Tensor, targets: Tensor) -> Tensor:
        return module(ids, targets)[1]

    def write(ids: Tensor, n: int) -> Tensor:
        model.eval()
        out = model.generate(ids, n, top_k=1)
        model.train()
        return out[:, ids.size(1) :]

    def logits(ids: Tensor) -> Tensor:
        return model(ids, ids)[0]

    return Model(model, loss, logits, write, note=note)


def sinusoids(length: int, size: int) -> Tensor:
    """(length, size) codes of positions, for the peers without their own."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(1e4) / size))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
