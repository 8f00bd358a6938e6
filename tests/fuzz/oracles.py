"""Random configurations: the same numbers as PyTorch and `transformers`."""

import math

import torch
import transformers  # what is asked of it is imported then
from compare import plain_stepper
from torch import nn
from torch.nn import functional as F  # noqa: N812
from transformers.utils.logging import disable_progress_bar

from coursekit import bpe, sampling
from coursekit.attention import attend, fast_attend
from coursekit.block import Block
from coursekit.config import (
    GPTConfig,
    StackConfig,
    TrainConfig,
    TransformerConfig,
)
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.loss import (
    chunked_cross_entropy,
    cross_entropy,
    fast_cross_entropy,
)
from coursekit.norm import layer_norm, rms_norm
from coursekit.optim import make_optimizer
from coursekit.packed import pack
from coursekit.pretrained.bert import load_bert
from coursekit.pretrained.gpt2 import load_gpt2
from coursekit.seq2seq import CrossBlock
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import BPETokenizer
from tests.compare import Links, close, link_block, shake
from tests.fuzz import folder, target

EXACT = 1e-10  # in float64
disable_progress_bar()


def noise(rng, *shape, scale=1.0):
    """Numbers with a gradient, in float64."""
    g = torch.Generator().manual_seed(rng.getrandbits(40))
    x = torch.randn(shape, generator=g, dtype=torch.float64) * scale
    return x.requires_grad_()


def booleans(rng, *shape):
    """Mostly True; rows may be empty."""
    g = torch.Generator().manual_seed(rng.getrandbits(40))
    return torch.rand(shape, generator=g) < rng.choice([0.1, 0.6, 0.9, 1.0])


def same(ours, theirs, inputs, atol=EXACT):
    """Equal values, and equal gradients of all inputs."""
    close(ours, theirs, atol)
    up = torch.linspace(-1, 2, ours.numel(), dtype=ours.dtype)
    grads = [
        torch.autograd.grad(
            y, inputs, up.view_as(y), retain_graph=True, allow_unused=True
        )
        for y in (ours, theirs)
    ]
    for a, b, x in zip(*grads, inputs, strict=True):
        zero = torch.zeros_like(x)
        close(zero if a is None else a, zero if b is None else b, atol)


@target
def attention(rng):
    """Both attentions, values and gradients, against PyTorch's by hand."""
    groups, shared = rng.randint(1, 3), rng.randint(1, 3)
    lead = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
    n_keys = rng.randint(1, 19)
    causal = rng.random() < 0.5
    n_queries = rng.randint(1, n_keys if causal else 19)
    size, d_value = rng.randint(1, 9), rng.randint(1, 9)
    if not lead:
        shared = 1  # then there is no axis of heads
    heads = [groups] if lead else []
    q = noise(rng, *lead, *(groups * shared for _ in heads), n_queries, size)
    scale = rng.choice([1, 1, 30])
    k = noise(rng, *lead, *heads, n_keys, size, scale=scale)
    v = noise(rng, *lead, *heads, n_keys, d_value)
    full = (*q.shape[:-1], n_keys)
    part = [1 if rng.random() < 0.3 else n for n in full]
    part = part[rng.randint(0, len(part) - 1) :]
    mask = booleans(rng, *part) if rng.random() < 0.6 else None
    bias = noise(rng, *part) if rng.random() < 0.4 else None
    added = torch.zeros(full, dtype=torch.float64)
    if bias is not None:
        added = added + bias
    hide = torch.zeros(full, dtype=torch.bool)
    if mask is not None:
        hide = hide | ~mask
    if causal:
        ahead = torch.arange(n_keys) > torch.arange(n_queries)[:, None] + (
            n_keys - n_queries
        )
        hide = hide | ahead
    wide = [x.repeat_interleave(shared, -3) if lead else x for x in (k, v)]
    # What is hidden everywhere gets zeros; PyTorch's own rows are cut out.
    blank = hide.all(-1, keepdim=True)
    added = added.masked_fill(hide & ~blank, -math.inf)
    right = F.scaled_dot_product_attention(q, *wide, attn_mask=added)
    right = right.masked_fill(blank, 0.0)
    inputs = [q, k, v] + ([] if bias is None else [bias])
    for function in (attend, fast_attend):
        ours = function(q, k, v, mask=mask, causal=causal, bias=bias)
        same(ours, right, inputs)


@target
def norm(rng):
    """Both norms against PyTorch's."""
    shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
    size = rng.randint(1, 40)
    x = noise(rng, *shape, size, scale=10 ** rng.uniform(-6, 6))
    weight = noise(rng, size) if rng.random() < 0.7 else None
    bias = noise(rng, size) if rng.random() < 0.5 else None
    eps = 10 ** rng.uniform(-12, 0)
    # Gradients are in units of one over the deviation, and so is rounding.
    spread = x.detach().var(-1, correction=0).min() + eps
    atol = EXACT * max(1.0, float(spread.rsqrt()))
    inputs = [t for t in (x, weight, bias) if t is not None]
    right = F.layer_norm(x, (size,), weight, bias, eps)
    if size == 1:  # always 0; PyTorch's gradient of it is rounding
        right = 0 * x * (1 if weight is None else weight)
        right = right if bias is None else right + bias
    same(layer_norm(x, weight, bias, eps), right, inputs, atol)
    right = F.rms_norm(x, (size,), weight, eps)
    inputs = [t for t in (x, weight) if t is not None]
    same(rms_norm(x, weight, eps), right, inputs, atol)


@target
def loss(rng):
    """All three losses against PyTorch's."""
    size = rng.randint(2, 40)
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    logits = noise(rng, *shape, size, scale=rng.choice([1, 1, 50]))
    ignore = rng.choice([-100, 0, -1])
    targets = torch.tensor(
        [
            ignore if rng.random() < 0.2 else rng.randrange(size)
            for _ in range(math.prod(shape))
        ]
    ).view(shape)
    smoothing = rng.choice([0.0, 0.0, rng.random() * 0.9])
    reduction = rng.choice(["mean", "sum", "none"])
    if bool((targets == ignore).all()):
        reduction = "sum"  # PyTorch's mean over nothing is NaN
    right = F.cross_entropy(
        logits.flatten(0, -2),
        targets.flatten(),
        ignore_index=ignore,
        label_smoothing=smoothing,
        reduction=reduction,
    )
    right = right.view(shape) if reduction == "none" else right
    for function in (cross_entropy, fast_cross_entropy):
        ours = function(logits, targets, ignore, smoothing, reduction)
        same(ours, right, [logits])
    hidden, head = noise(rng, *shape, 7), noise(rng, size, 7)
    chunks = chunked_cross_entropy(
        hidden,
        lambda x: x @ head.T,
        [head],
        targets,
        rng.randint(1, 9),
        ignore,
        smoothing,
    )
    right = F.cross_entropy(
        (hidden @ head.T).flatten(0, -2),
        targets.flatten(),
        ignore_index=ignore,
        label_smoothing=smoothing,
        reduction="sum",
    )
    same(chunks, right, [hidden, head])


@target
def block(rng):
    """A block, or one that reads a memory, against nn.Transformer*Layer."""
    heads = rng.randint(1, 4)
    d, d_ff = heads * rng.randint(1, 6), rng.randint(1, 20)
    n_rows, t, s = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 9)
    first, eps = rng.random() < 0.5, 10 ** rng.uniform(-6, -1)
    activation = rng.choice(["relu", "gelu"])
    crossed = rng.random() < 0.5
    kind = (
        nn.TransformerDecoderLayer if crossed else nn.TransformerEncoderLayer
    )
    theirs = kind(
        d,
        heads,
        d_ff,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=eps,
        norm_first=first,
        batch_first=True,
    )
    theirs = shake(theirs.double(), seed=rng.getrandbits(40))
    fields = {
        "vocab_size": 5,
        "d_model": d,
        "n_heads": heads,
        "d_ff": d_ff,
        "norm_first": first,
        "norm_eps": eps,
        "activation": activation,
        "dropout": 0.0,
        "positions": "none",
    }
    links = Links()
    x, memory = noise(rng, n_rows, t, d), noise(rng, n_rows, s, d)
    # The first key is always there: PyTorch's rows would be NaN.
    real = booleans(rng, n_rows, s if crossed else t)
    real[:, 0] = True
    if crossed:
        ours = CrossBlock(TransformerConfig(**fields)).double()
        link_block(links, ours, theirs)
        y = ours(x, memory, memory_mask=real[:, None, None])
        ahead = torch.ones(t, t, dtype=torch.bool).triu(1)
        z = theirs(x, memory, ahead, memory_key_padding_mask=~real)
        inputs = [x, memory]
    else:
        ours = Block(StackConfig(**fields)).double()
        link_block(links, ours, theirs)
        y = ours(x, mask=real[:, None, None])
        z = theirs(x, src_key_padding_mask=~real)
        inputs = [x]
    links.covers(ours)
    # A row of two numbers may be all rounding after its norm.
    atol = 1e-8 / min(1.0, eps)
    same(y, z, inputs, atol)


@target
def adamw(rng):
    """A few updates against AdamW's formula, on every weight."""
    config = TrainConfig(
        weight_decay=rng.choice([0.0, rng.random()]),
        beta1=rng.choice([0.0, rng.random() * 0.99]),
        beta2=rng.choice([0.0, rng.random() * 0.999]),
        eps=10 ** rng.uniform(-12, -1),
    )
    d, n = rng.randint(1, 5), rng.randint(1, 5)
    model = nn.Linear(d, n).double()
    shake(model, seed=rng.getrandbits(40))
    weights = [p.detach().clone() for p in model.parameters()]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    optimizer = make_optimizer(model, config)
    for step in range(1, rng.randint(2, 7)):
        rate = 10 ** rng.uniform(-4, 0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for i, p in enumerate(model.parameters()):
            g = noise(rng, *p.shape).detach()
            p.grad = g
            m, v = moments[i]
            m.mul_(config.beta1).add_((1 - config.beta1) * g)
            v.mul_(config.beta2).add_((1 - config.beta2) * g * g)
            decay = config.weight_decay if p.dim() > 1 else 0.0
            down = m / (1 - config.beta1**step)
            root = (v / (1 - config.beta2**step)).sqrt() + config.eps
            weights[i] = weights[i] * (1 - rate * decay) - rate * down / root
        optimizer.step()
        for ours, right in zip(model.parameters(), weights, strict=True):
            close(ours.detach(), right, 1e-9)


@target
def filters(rng):
    """Top-k and top-p against those of `transformers`."""
    size = rng.randint(1, 30)
    logits = noise(rng, rng.randint(1, 4), size, scale=rng.choice([1, 9]))
    logits = logits.detach()
    k = rng.randint(1, size)
    right = transformers.TopKLogitsWarper(k)(None, logits)
    close(sampling.keep_top_k(logits, k).softmax(-1), right.softmax(-1), EXACT)
    p = rng.choice([rng.random(), 1e-9, 1e-60])
    right = transformers.TopPLogitsWarper(p)(None, logits) if p < 1 else logits
    close(sampling.keep_top_p(logits, p).softmax(-1), right.softmax(-1), EXACT)


def gpt_config(rng):
    """Any GPT that can be built, small."""
    shared, groups = rng.randint(1, 2), rng.randint(1, 2)
    heads = shared * groups
    positions = rng.choice(["learned", "sinusoidal", "rope", "alibi", "none"])
    d = heads * 2 * rng.randint(1, 4)
    return GPTConfig(
        vocab_size=rng.randint(2, 30),
        max_len=rng.randint(3, 17),
        d_model=d,
        n_layers=rng.randint(0, 3),
        n_heads=heads,
        n_kv_heads=rng.choice([None, groups]),
        d_head=rng.choice([None, 2 * rng.randint(1, 4)]),
        d_value=rng.choice([None, rng.randint(1, 7)]),
        d_ff=rng.choice([None, 0, rng.randint(1, 30)]),
        activation=rng.choice(["gelu", "gelu_tanh", "relu", "silu", "swiglu"]),
        norm=rng.choice(["layernorm", "rmsnorm", "none"]),
        norm_first=rng.random() < 0.5,
        final_norm=rng.random() < 0.5,
        residual=rng.random() < 0.8,
        bias=rng.random() < 0.5,
        attention_bias=rng.choice([None, True, False]),
        positions=positions,
        position_layout=rng.choice(["interleaved", "halves"]),
        scale_embedding=rng.random() < 0.3,
        tie_embeddings=rng.random() < 0.5,
    )


@target
def forms(rng):
    """A model read at once, step by step, packed, and as it is trained."""
    config = gpt_config(rng)
    model = shake(GPT(config).double(), rng.getrandbits(40), std=0.2).eval()
    length = rng.randint(1, config.max_len)
    ids = torch.tensor(
        [[rng.randrange(config.vocab_size) for _ in range(length)]] * 2
    )
    ids[1] = ids[1].flip(0)
    with torch.no_grad():
        right = model(ids)
        cut = rng.randint(1, length)
        fast = pack(model)
        close(fast(ids).double(), right, 1e-4 if fast is not model else EXACT)
        for form in (model, fast):
            stepper = GPTStepper(form)
            found = [stepper.prefill(ids[:, :cut].tolist())]
            found += [stepper.step(ids[:, i]) for i in range(cut, length)]
            steps = torch.stack(found, 1).double()
            close(steps, right[:, cut - 1 :], 1e-4 if form is fast else EXACT)


@target
def greedy(rng):
    """Greedy search: one token at a time, with and without a cache."""
    config = gpt_config(rng)
    model = shake(GPT(config).double(), rng.getrandbits(40), std=0.2).eval()
    n = rng.randint(1, config.max_len - 1)
    prompt = [rng.randrange(config.vocab_size) for _ in range(n)]
    new = rng.randint(1, config.max_len - n)
    right = list(prompt)
    with torch.no_grad():
        for _ in range(new):
            logits = model(torch.tensor([right]))[0, -1]
            top = logits.topk(min(2, logits.numel())).values
            if len(top) > 1 and top[0] - top[1] < 1e-6:
                return  # a tie: rounding decides
            right.append(int(logits.argmax()))
    for stepper in (plain_stepper(model), GPTStepper(model)):
        assert generate(stepper, [prompt], new) == [right[n:]]


@target
def gpt2(rng):
    """A GPT-2 of `transformers`, written to a folder and read by us."""
    heads = rng.randint(1, 4)
    config = transformers.GPT2Config(
        vocab_size=rng.randint(3, 40),
        n_positions=rng.randint(2, 20),
        n_embd=heads * rng.randint(1, 8),
        n_layer=rng.randint(1, 3),
        n_head=heads,
        n_inner=rng.choice([None, rng.randint(1, 40)]),
        activation_function=rng.choice(["gelu_new", "relu", "gelu"]),
        layer_norm_epsilon=10 ** rng.uniform(-6, -1),
        tie_word_embeddings=rng.random() < 0.5,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="eager",
    )
    theirs = shake(
        transformers.GPT2LMHeadModel(config), rng.getrandbits(40)
    ).eval()
    with folder() as path:
        theirs.save_pretrained(path)
        model, _ = load_gpt2(path)
    ids = random_ids(rng, config.vocab_size, config.n_positions)
    with torch.no_grad():
        close(model(ids), theirs(ids).logits, 1e-4)


@target
def bert(rng):
    """A BERT of `transformers`, written to a folder and read by us."""
    heads, size = rng.randint(1, 4), rng.randint(6, 40)
    config = transformers.BertConfig(
        vocab_size=size,
        hidden_size=heads * rng.randint(1, 8),
        num_hidden_layers=rng.randint(1, 3),
        num_attention_heads=heads,
        intermediate_size=rng.randint(1, 40),
        max_position_embeddings=rng.randint(2, 20),
        layer_norm_eps=10 ** rng.uniform(-6, -1),
        attn_implementation="eager",
    )
    theirs = shake(transformers.BertModel(config), rng.getrandbits(40)).eval()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(size - 5)]
    with folder() as path:
        theirs.save_pretrained(path)
        (path / "vocab.txt").write_text("\n".join(words) + "\n", "utf8")
        model, _ = load_bert(path)
    ids = random_ids(rng, size, config.max_position_embeddings)
    real = booleans(rng, *ids.shape)
    real[:, 0] = True
    with torch.no_grad():
        y = model(ids, real[:, None, None])
        z = theirs(ids, attention_mask=real.long()).last_hidden_state
    close(y[real], z[real], 1e-4)


def random_ids(rng, size, longest):
    """A few sequences."""
    n, length = rng.randint(1, 3), rng.randint(1, longest)
    g = torch.Generator().manual_seed(rng.getrandbits(40))
    return torch.randint(size, (n, length), generator=g)


PIECES = ["a", "ab", " the", "é", "e\u0301", "世", "🙂", "\n", "  ", "\x00"]


def text(rng, longest=60):
    """Letters of many kinds."""
    signs = []
    for _ in range(rng.randint(0, longest)):
        code = rng.choice([rng.randrange(128), rng.randrange(0x110000)])
        sign = chr(code) if not 0xD800 <= code < 0xE000 else "x"
        signs.append(rng.choice([sign, rng.choice(PIECES), "ab"]))
    return "".join(signs)


@target
def tokens(rng):
    """Byte-pair encoding against tiktoken, and back to the text."""
    import tiktoken

    corpus = text(rng, 200) or "a"
    ours = BPETokenizer.train(corpus, 256 + rng.randint(0, 40))
    theirs = tiktoken.Encoding(
        "fuzz",
        pat_str=ours.split,
        mergeable_ranks=ours.ranks,
        special_tokens={},
    )
    words = text(rng)
    ids = ours.encode(words, fast=False)
    assert ours.encode(words) == ids
    if bpe.fast_is_safe(words):  # otherwise the two know other letters
        assert ids == theirs.encode_ordinary(words)
    assert ours.decode(ids) == words
