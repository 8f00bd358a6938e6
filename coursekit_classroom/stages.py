"""Parts of `minimal.py` as they are until a later chapter replaces them.

The file of the book grows: a bigram table becomes a GPT, a plain training
loop gets its schedule.  Here stand the earlier forms, each under the number
of the chapter that writes it; :mod:`coursekit_classroom.lesson` puts them
into the file of each chapter, where ``Model4`` and ``train0`` are simply
called ``Model`` and ``train``.
"""

import torch
from torch import nn

from coursekit.minimal import (
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    attention,
    causal_mask,
    cross_entropy,
    get_batch,
)


class Model0(nn.Module):  # chapter 0
    """A bigram model: row i holds the logits of what follows token i."""

    def __init__(self, vocab_size, context):
        super().__init__()
        self.context = context
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)  # all tokens equally likely

    def forward(self, ids):
        return self.table(ids)  # (B, T) -> (B, T, V)


class Model2(nn.Module):  # chapter 2
    """A bigram model through vectors: similar tokens share what they know."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        return self.unembed(x)


class Model3(nn.Module):  # chapter 3
    """Each token's vector also says where the token stands."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        x = x + self.positions(torch.arange(ids.size(1)))
        return self.unembed(x)


class Head4(nn.Module):  # chapter 4
    """One attention with its three matrices."""

    def __init__(self, d_model):
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask):
        return attention(self.query(x), self.key(x), self.value(x), mask)


class Model4(nn.Module):  # chapter 4
    """Each token looks back and adds what it found to its vector."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.attend = Head4(d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        x = x + self.positions(torch.arange(ids.size(1)))
        mask = causal_mask(ids.size(1), ids.size(1))
        x = x + self.attend(x, mask)
        return self.unembed(x)


class Model6(nn.Module):  # chapter 6
    """Four heads look for several things at once."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.attend = MultiHeadAttention(d_model, n_heads=4)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        x = x + self.positions(torch.arange(ids.size(1)))
        mask = causal_mask(ids.size(1), ids.size(1))
        x = x + self.attend(x, x, mask)
        return self.unembed(x)


class Model7(nn.Module):  # chapter 7
    """Model of chapter 7: layer inputs are normalized, the stream is not."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.norm_1 = LayerNorm(d_model)
        self.attend = MultiHeadAttention(d_model, n_heads=4)
        self.norm = LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        x = x + self.positions(torch.arange(ids.size(1)))
        mask = causal_mask(ids.size(1), ids.size(1))
        y = self.norm_1(x)
        x = x + self.attend(y, y, mask)
        return self.unembed(self.norm(x))


class Model8(nn.Module):  # chapter 8
    """After looking back, each position computes on what it has."""

    def __init__(self, vocab_size, context, d_model):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.norm_1 = LayerNorm(d_model)
        self.attend = MultiHeadAttention(d_model, n_heads=4)
        self.norm_2 = LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model)
        self.norm = LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab_size, bias=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.5 / d_model**0.5)

    def forward(self, ids):
        x = self.embedding(ids)  # (B, T, D)
        x = x + self.positions(torch.arange(ids.size(1)))
        mask = causal_mask(ids.size(1), ids.size(1))
        y = self.norm_1(x)
        x = x + self.attend(y, y, mask)
        x = x + self.feed_forward(self.norm_2(x))
        return self.unembed(self.norm(x))


def cross_entropy0(logits, targets):  # chapter 0
    """Mean of −ln p(target), in nats."""
    log_p = logits.log_softmax(-1)
    return -log_p.gather(-1, targets.unsqueeze(-1)).mean()


def train0(model, ids, steps, lr=1e-3, batch_size=32):  # chapter 0
    """Update the model ``steps`` times; return the loss of each batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    losses = []
    for _ in range(steps):
        inputs, targets = get_batch(ids, batch_size, model.context)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def generate0(model, ids, n_new):  # chapter 0
    """Continue (B, T) ids by ``n_new`` tokens, one at a time."""
    for _ in range(n_new):
        logits = model(ids[:, -model.context :])[:, -1]
        new = torch.multinomial(logits.softmax(-1), 1)
        ids = torch.cat([ids, new], dim=1)
    return ids


@torch.no_grad()
def changed_by5(model, ids, at):  # chapter 5
    """Change of each position's logits when token `at` changes."""
    logits = model(ids)
    other = ids.clone()
    other[:, at] = (ids[:, at] + 1) % logits.size(-1)  # another token
    return (logits - model(other)).abs().amax((0, 2))
