"""The paper's encoder-decoder, built from the parts of minimal.py.

    python minimal_seq2seq.py pairs.tsv

learns to turn the left half of each line into the right half (a tab stands
between them), then translates lines that it has not been trained on.  Each
part names its chapter.  A copy needs minimal.py in the same folder.

Shapes: as in minimal.py; a source has S tokens, its target T tokens.
"""

import math
import sys
from pathlib import Path

import torch
from torch import nn

if __package__:
    from coursekit import minimal
else:  # a copy of this file, with minimal.py in the same folder
    import minimal

# Ids of three control characters, which no text contains: padding, and the
# tokens that begin and end a sequence.
PAD, BOS, EOS = 0, 1, 2
# A pair is a source and a target: two lists of ids that end in EOS.

# --- 1. Pairs of unequal length: chapters 13 and 14 -------------------------


def pad(sequences):  # chapter 13
    """Lists of ids as one tensor: padding fills up the shorter ones."""
    length = max(map(len, sequences))
    rows = [ids + [PAD] * (length - len(ids)) for ids in sequences]
    return torch.tensor(rows)


def padding_mask(ids):  # chapter 13
    """True where a key is a token: no query attends to padding."""
    return (ids != PAD)[:, None, None, :]  # (B, 1, 1, S)


def get_batch(pairs, batch_size):  # chapter 14
    """Random pairs; the decoder reads its targets shifted right by one."""
    rows = torch.randint(len(pairs), (batch_size,)).tolist()
    sources = pad([pairs[i][0] for i in rows])
    targets = pad([[BOS, *pairs[i][1]] for i in rows])
    return sources, targets[:, :-1], targets[:, 1:]


# --- 2. The model: chapters 13 and 14 ---------------------------------------


class Encoder(nn.Module):  # chapter 13
    """GPT's blocks without the causal mask: each token sees all others."""

    def __init__(self, vocab_size, context, d_model, n_heads, n_blocks):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.blocks = nn.ModuleList(
            minimal.Block(d_model, n_heads) for _ in range(n_blocks)
        )
        self.norm = minimal.LayerNorm(d_model)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x, padding_mask(ids), {})  # all at once: no past
        return self.norm(x)  # (B, S, D)


class DecoderBlock(minimal.Block):  # chapter 14
    """A block with attention to the source between its two layers."""

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.norm_cross = minimal.LayerNorm(d_model)
        self.cross_attention = minimal.MultiHeadAttention(d_model, n_heads)

    def forward(self, x, memory, mask, memory_mask, past):
        y = self.norm_1(x)
        x = x + self.attention(y, y, mask, past)
        y = self.norm_cross(x)  # queries; the memory gives keys and values
        x = x + self.cross_attention(y, memory, memory_mask, {})
        x = x + self.feed_forward(self.norm_2(x))
        return x


class Transformer(nn.Module):  # chapter 14
    """Ids of a source and a target in, logits of each next token out."""

    def __init__(self, vocab_size, context, d_model, n_heads, n_blocks):
        super().__init__()
        self.context = context
        self.encoder = Encoder(vocab_size, context, d_model, n_heads, n_blocks)
        self.positions = nn.Embedding(context, d_model)
        self.blocks = nn.ModuleList(
            DecoderBlock(d_model, n_heads) for _ in range(n_blocks)
        )
        self.norm = minimal.LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                std = 0.5 / math.sqrt(d_model)
                if name.endswith("output.weight"):
                    std /= math.sqrt(3 * n_blocks)  # a block adds three times
                nn.init.normal_(weight, std=std)

    def decode(self, ids, memory, memory_mask, past):
        start = past.get("length", 0)
        end = past["length"] = start + ids.size(1)
        x = self.encoder.embedding(ids)  # one matrix for both languages
        x = x + self.positions(torch.arange(start, end))
        # Padding comes last, so the causal mask hides it from all before.
        mask = minimal.causal_mask(ids.size(1), end)
        for block in self.blocks:
            x = block(x, memory, mask, memory_mask, past)  # (B, T, D)
        return self.unembed(self.norm(x))  # (B, T, V)

    def forward(self, sources, ids):
        memory = self.encoder(sources)
        return self.decode(ids, memory, padding_mask(sources), {})


# --- 3. Training and translating: chapter 14 --------------------------------


def loss_of(model, sources, inputs, targets):  # chapter 14
    """Mean cross-entropy over all targets that are not padding."""
    logits, is_token = model(sources, inputs), targets != PAD
    return minimal.cross_entropy(logits[is_token], targets[is_token])


def train(model, pairs, steps, batch_size=32):  # chapter 14
    """The loop of minimal.py, with batches of pairs."""
    optimizer = minimal.make_optimizer(model)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = minimal.learning_rate(step, steps)
        loss = loss_of(model, *get_batch(pairs, batch_size))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def translate(model, sources):  # chapter 14
    """Append the most probable token to each target, until all have ended."""
    sources = pad(sources)
    memory, memory_mask = model.encoder(sources), padding_mask(sources)
    past, ids = {}, torch.full((len(sources), 1), BOS)
    while ids.size(1) <= model.context and not (ids == EOS).any(1).all():
        logits = model.decode(ids[:, -1:], memory, memory_mask, past)
        ids = torch.cat([ids, logits.argmax(-1)], dim=1)
    rows = [[*row, EOS] for row in ids.tolist()]  # some may not have ended
    return [row[1 : row.index(EOS)] for row in rows]


if __name__ == "__main__":
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    tokenizer = minimal.CharTokenizer("\0\1\2" + text)  # first PAD, BOS, EOS
    pairs = []
    for line in text.splitlines():
        pairs.append([[*tokenizer.encode(t), EOS] for t in line.split("\t")])
    cut = len(pairs) * 9 // 10  # the last tenth is held out
    sources, targets = zip(*pairs, strict=True)
    context = max(map(len, sources + targets))
    V = len(tokenizer.vocabulary)
    model = Transformer(V, context, 64, n_heads=4, n_blocks=2)
    losses = train(model, pairs[:cut], steps=1000)
    print(f"loss: {losses[-1]:.3f} nats per token")
    for source in sources[cut:][:10]:
        print(tokenizer.decode(source[:-1]), end=" -> ")
        print(tokenizer.decode(translate(model, [source])[0]))
