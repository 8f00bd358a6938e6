"""A decoder-only transformer in one file, from a text to generated text.

    python minimal.py text.txt

trains a GPT without biases for about two minutes, then generates from it.
Each part names the chapter of *The Executable Transformer* that teaches it.

Shapes: (B, T) ids of V tokens; D dimensions, in H heads of Dh = D / H.
"""

import math
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

# --- 1. Data and tokenizers: chapters 0 and 1 -------------------------------

# A word with the space before it; merges never cross the border of words.
WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s")


class CharTokenizer:  # chapter 0
    """Each character of the text is a token."""

    def __init__(self, text):
        self.vocabulary = sorted(set(text))
        self.id_of = {char: i for i, char in enumerate(self.vocabulary)}

    def encode(self, text):
        return [self.id_of[char] for char in text]

    def decode(self, ids):
        return "".join(self.vocabulary[i] for i in ids)


def merge(ids, pair, new_id):  # chapter 1
    """Replace each occurrence of a pair of ids by one new id."""
    merged = []
    for i in ids:
        merged.append(i)
        if tuple(merged[-2:]) == pair:
            merged[-2:] = [new_id]
    return merged


class BPETokenizer:  # chapter 1
    """Byte-pair encoding: start from bytes, merge the most frequent pair."""

    def __init__(self, text, vocab_size):
        self.vocabulary = [bytes([byte]) for byte in range(256)]
        self.merges = {}  # a pair of ids -> the id that replaces it
        counts = Counter(WORD.findall(text))
        self.words = {word: list(word.encode()) for word in counts}
        while len(self.vocabulary) < vocab_size:
            pairs = Counter()
            for word, ids in self.words.items():
                for pair in pairwise(ids):
                    pairs[pair] += counts[word]
            if not pairs:  # every word has become one token
                break
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            new_id = self.merges[best] = len(self.vocabulary)
            self.vocabulary.append(b"".join(self.vocabulary[i] for i in best))
            for word, ids in self.words.items():
                self.words[word] = merge(ids, best, new_id)

    def encode(self, text):
        ids = []
        for word in WORD.findall(text):
            if word not in self.words:  # not in the training text
                self.words[word] = list(word.encode())
                for pair, new_id in self.merges.items():
                    self.words[word] = merge(self.words[word], pair, new_id)
            ids += self.words[word]
        return ids

    def decode(self, ids):
        data = b"".join(self.vocabulary[i] for i in ids)
        return data.decode(errors="replace")


def get_batch(ids, batch_size, context):  # chapter 0
    """Random windows of the text; every token's target is the next one."""
    windows = ids.unfold(0, context + 1, 1)  # all of them, without a copy
    rows = torch.randint(len(windows), (batch_size,))
    return windows[rows, :-1], windows[rows, 1:]


# --- 2. The model: chapters 2 to 9 ------------------------------------------


def attention(q, k, v, mask):  # chapter 4
    """Each query's weighted mean of the values: softmax(q kᵀ / √Dh) v."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


def causal_mask(n_queries, n_keys):  # chapters 4 and 5
    """True where a query may look: at its own position and before it."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return mask.tril(n_keys - n_queries)  # the last query sees every key


class MultiHeadAttention(nn.Module):  # chapter 6
    """H attentions side by side; ``output`` mixes what they found."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def split_heads(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, x, memory, mask, past):
        q = self.split_heads(self.query(x))  # (B, H, T, Dh)
        k = self.split_heads(self.key(memory))
        v = self.split_heads(self.value(memory))
        if self in past:  # chapter 12: keys and values of earlier tokens
            k = torch.cat([past[self][0], k], dim=2)
            v = torch.cat([past[self][1], v], dim=2)
        past[self] = k, v
        heads = attention(q, k, v, mask)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, D)


class LayerNorm(nn.Module):  # chapter 7
    """Shift a vector to mean 0, scale it to variance 1, times a gain."""

    def __init__(self, d_model):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True)
        return self.gain * x / torch.sqrt(variance + 1e-5)


class FeedForward(nn.Module):  # chapter 8
    """Two matrices with a nonlinearity between, at each position alone."""

    def __init__(self, d_model):
        super().__init__()
        self.hidden = nn.Linear(d_model, 4 * d_model, bias=False)
        self.output = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x):
        return self.output(nn.functional.gelu(self.hidden(x)))


class Block(nn.Module):  # chapter 9
    """Attention between positions, then computation at each of them."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm_1 = LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.norm_2 = LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model)

    def forward(self, x, mask, past):
        y = self.norm_1(x)
        x = x + self.attention(y, y, mask, past)
        x = x + self.feed_forward(self.norm_2(x))
        return x


class GPT(nn.Module):  # chapter 9
    """Token ids in, logits of each next token out."""

    def __init__(self, vocab_size, context, d_model, n_heads, n_blocks):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)  # chapter 2
        self.positions = nn.Embedding(context, d_model)  # chapter 3
        self.blocks = nn.ModuleList(
            Block(d_model, n_heads) for _ in range(n_blocks)
        )
        self.norm = LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                std = 0.5 / math.sqrt(d_model)
                if name.endswith("output.weight"):
                    std /= math.sqrt(2 * n_blocks)  # each block adds twice
                nn.init.normal_(weight, std=std)

    def forward(self, ids, past=None):
        past = {} if past is None else past  # chapter 12: see generate
        start = past.get("length", 0)
        end = past["length"] = start + ids.size(1)
        x = self.embedding(ids) + self.positions(torch.arange(start, end))
        mask = causal_mask(ids.size(1), end)
        for block in self.blocks:
            x = block(x, mask, past)  # (B, T, D)
        return self.unembed(self.norm(x))  # (B, T, V)


# --- 3. Training and sampling: chapters 0, 10, 11 and 12 --------------------


def cross_entropy(logits, targets):  # chapter 10
    """Mean of −ln p(target), in nats; no exponential can overflow."""
    shifted = logits - logits.max(-1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -log_p.gather(-1, targets.unsqueeze(-1)).mean()


def learning_rate(step, steps, peak=1e-3, warmup=100):  # chapter 11
    """Rises for ``warmup`` steps, then falls to a tenth along a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step + 1 - warmup) / (steps - warmup)
    return peak * (0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2)


def make_optimizer(model):  # chapter 11
    """AdamW; weight decay pulls matrices toward 0, but not the gains."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    gains = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0.1)


def train(model, ids, steps, batch_size=32):  # chapter 11
    """Update the model ``steps`` times; return the loss of each batch."""
    optimizer = make_optimizer(model)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        inputs, targets = get_batch(ids, batch_size, model.context)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def evaluate(model, ids):  # chapter 0
    """Mean loss over a whole text, in windows side by side."""
    windows = ids.unfold(0, model.context + 1, model.context)
    total = 0.0
    for batch in windows.split(64):
        loss = cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        total += loss.item() * len(batch)
    return total / len(windows)


def sample(logits, temperature, top_p):  # chapter 12
    """Draw from the fewest tokens whose probabilities reach ``top_p``."""
    p, tokens = (logits / temperature).softmax(-1).sort(descending=True)
    p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)
    return tokens.gather(-1, torch.multinomial(p, 1))


@torch.no_grad()
def generate(model, ids, n_new, temperature=1.0, top_p=1.0):  # chapter 12
    """Continue (B, T) ids by ``n_new`` tokens, one at a time."""
    past, new = {}, ids[:, -model.context :]
    for _ in range(n_new):
        if past.get("length") == model.context:
            # No position is left: read the last half again, go on from there.
            past, new = {}, ids[:, -(model.context // 2) :]
        logits = model(new, past)[:, -1]
        new = sample(logits, temperature, top_p)
        ids = torch.cat([ids, new], dim=1)
    return ids


if __name__ == "__main__":
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    tokenizer = CharTokenizer(text)  # or BPETokenizer(text, 512)
    ids = torch.tensor(tokenizer.encode(text))
    cut = len(ids) * 9 // 10  # the last tenth is held out
    assert len(ids[cut:]) > 64, "the text is too short to hold out a window"
    model = GPT(len(tokenizer.vocabulary), 64, 64, n_heads=4, n_blocks=4)
    train(model, ids[:cut], steps=2000)
    print(f"held-out loss: {evaluate(model, ids[cut:]):.3f} nats per token")
    print(tokenizer.decode(generate(model, ids[None, :1], 500)[0].tolist()))
